//! What the process may do beyond its user, given up once it has started.
//!
//! Linux keeps capabilities per thread, and a thread can lower only its own. So this runs on the main thread while it
//! is the only one: every thread made later inherits what is left, and none can take back more.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, clear_ambient_capability_set,
    remove_capability_from_bounding_set, set_capabilities, set_no_new_privs,
};
use std::fmt;

/// The highest number that a capability can have; kernels say which they know.
const MAX_CAPABILITIES: u32 = 64;

/// What the running server needs capabilities for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Needs {
    /// To give the socket to a group again, should it have to be bound again.
    pub socket_group: bool,
    /// To write maps of the loaded eBPF object; from Linux 5.19 on that needs none.
    pub ebpf: bool,
}

/// What is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept(CapabilitySet);

/// Why privileges could not be given up.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegesError {
    /// Other threads would keep theirs.
    #[error("{0} threads run already, of which all but one would keep their capabilities")]
    Threads(usize),
    /// The kernel refuses.
    #[error("{call} failed")]
    Refused {
        /// What was called.
        call: &'static str,
        /// What the kernel says.
        source: std::io::Error,
    },
}

impl Needs {
    /// SYS_PTRACE to read `/proc/PID/exe` of other users' processes. Everything else that is read belongs to root or
    /// to everybody; what does not, such as a manifest of another user's that only they may read, stays unread rather
    /// than the server keeping DAC_READ_SEARCH, which opens every file of the machine.
    fn capabilities(self) -> CapabilitySet {
        let mut needed = CapabilitySet::SYS_PTRACE;
        needed.set(CapabilitySet::CHOWN, self.socket_group);
        needed.set(CapabilitySet::BPF, self.ebpf);
        needed
    }
}

/// Gives up every capability that is not needed, for this thread and all that it will start, and the way to new ones
/// by executing a file. What the process has not been given is no error: it then does without.
///
/// # Errors
/// When other threads run already, or the kernel refuses.
pub fn give_up_all_but(needs: Needs) -> Result<Kept, PrivilegesError> {
    let refused = |call| move |cause: Errno| PrivilegesError::Refused { call, source: cause.into() };
    let threads = std::fs::read_dir("/proc/self/task")
        .map_err(|source| PrivilegesError::Refused { call: "reading /proc/self/task", source })?
        .count();
    if threads != 1 {
        return Err(PrivilegesError::Threads(threads));
    }
    let had = capabilities(None).map_err(refused("capget"))?;
    let kept = had.permitted & needs.capabilities();
    bound_to(kept).map_err(refused("PR_CAPBSET_DROP"))?;
    // EINVAL: the kernel is older than ambient capabilities.
    match clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(cause) => return Err(refused("PR_CAP_AMBIENT")(cause)),
    }
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
    set_capabilities(None, sets).map_err(refused("capset"))?;
    set_no_new_privs(true).map_err(refused("PR_SET_NO_NEW_PRIVS"))?;
    Ok(Kept(kept))
}

/// Takes everything else from the bounding set too, where we may: without SETPCAP no_new_privs has to do.
fn bound_to(kept: CapabilitySet) -> Result<(), Errno> {
    for number in 0..MAX_CAPABILITIES {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(capability) {
            Ok(true) if !kept.contains(capability) => match remove_capability_from_bounding_set(capability) {
                Ok(()) => {}
                Err(Errno::PERM) => return Ok(()),
                Err(cause) => return Err(cause),
            },
            Ok(_) => {}
            // The kernel knows no more.
            Err(Errno::INVAL) => return Ok(()),
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("none");
        }
        for (index, (name, _)) in self.0.iter_names().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(f, "{comma}CAP_{name}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_needed_is_kept() {
        let text = |needs: Needs| Kept(needs.capabilities()).to_string();
        assert_eq!(text(Needs::default()), "CAP_SYS_PTRACE");
        assert_eq!(text(Needs { socket_group: true, ebpf: true }), "CAP_CHOWN,CAP_SYS_PTRACE,CAP_BPF");
        assert_eq!(Kept(CapabilitySet::empty()).to_string(), "none");
    }

    #[test]
    fn a_process_of_several_threads_keeps_what_it_has() {
        let before = capabilities(None).unwrap();
        let (release, wait) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            let _ = wait.recv();
        });
        assert!(matches!(give_up_all_but(Needs::default()), Err(PrivilegesError::Threads(2..))));
        assert_eq!(capabilities(None).unwrap(), before);
        drop(release);
        other.join().unwrap();
    }
}
