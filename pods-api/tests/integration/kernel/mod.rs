//! The kernel programs on the running kernel: real cgroups, real processes. They run as root here, and in
//! `cargo xtask vm` on other kernels.

mod leaderless;
mod life;
mod maps;
mod pins;
mod pod;
mod refusals;
mod storm;

use pods_api::kernel::{EbpfConfig, EbpfMode, Feed as _, KernelEvent, KernelPrograms};

use crate::harness::{cannot_run, eventually};

/// Whether programs can be loaded here at all; says so where they cannot.
#[track_caller]
fn can_load() -> bool {
    let problem = if !rustix::process::geteuid().is_root() {
        "not root"
    } else if !pods_api::kernel::is_built_with_ebpf() {
        "built without eBPF"
    } else {
        return true;
    };
    cannot_run(problem);
    false
}

/// The programs attached for one test, without pins: those are the server's.
struct Programs(KernelPrograms);

impl Programs {
    /// Loads them; `None` where this machine cannot.
    #[track_caller]
    fn load(ring_bytes: u32) -> Option<Self> {
        if !can_load() {
            return None;
        }
        let config = EbpfConfig { mode: EbpfMode::Require, ring_bytes, is_pinned: false };
        Some(Self(pods_api::kernel::load(&config).unwrap_or_else(|refusal| panic!("{refusal}"))))
    }

    /// Reads events until `enough` of them are there.
    #[track_caller]
    fn events_until(
        &mut self,
        what: &str,
        mut enough: impl FnMut(&[KernelEvent]) -> bool,
    ) -> Vec<KernelEvent> {
        let mut events = Vec::new();
        eventually(what, crate::harness::PATIENCE, || {
            self.0.ring.drain(&mut |event| events.push(event));
            enough(&events).then_some(())
        });
        events
    }
}
