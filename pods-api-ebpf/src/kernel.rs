//! The kernel's own structures, read at the offsets that the loader has found in its BTF.

use core::ffi::c_void;

use aya_ebpf::Global;
use aya_ebpf::helpers::bpf_probe_read_kernel;
use aya_ebpf::helpers::generated::bpf_get_current_cgroup_id;
use aya_ebpf::programs::RawTracePointContext;
use pods_api_common::NO_ARGUMENT;

use crate::events::count;
use crate::maps::{PROCESSES, TRACKED};

/// Declares the globals of `pods_api_common::field`.
macro_rules! globals {
    ($($name:ident),* $(,)?) => {
        $(
            #[unsafe(no_mangle)]
            static $name: Global<u32> = Global::new(NO_ARGUMENT);
        )*
    };
}

globals!(
    CGROUP_KN,
    CGROUP_ROOT,
    ROOT_HIERARCHY,
    KN_ID,
    TASK_TGID,
    TASK_SIGNAL,
    TASK_CGROUPS,
    CSS_DFL_CGRP,
    SIGNAL_LIVE,
    EXIT_GROUP_DEAD,
    VICTIM_IS_TASK,
);

/// A `struct cgroup`.
#[derive(Clone, Copy)]
pub struct Cgroup(*const c_void);

impl Cgroup {
    /// Passes cgroups of the cgroup2 hierarchy only. On a hybrid node each event fires once for every hierarchy,
    /// and IDs are unique only within one.
    #[inline(always)]
    pub fn of_cgroup2(cgroup: *const c_void) -> Option<Self> {
        let root: *const c_void = read(cgroup, &CGROUP_ROOT)?;
        let hierarchy: u32 = read(root, &ROOT_HIERARCHY)?;
        (hierarchy == 0).then_some(Self(cgroup))
    }

    /// The inode number of its directory, by which user space knows it.
    #[inline(always)]
    pub fn id(self) -> Option<u64> {
        let node: *const c_void = read(self.0, &CGROUP_KN)?;
        read(node, &KN_ID)
    }

    /// Its ID, if it is tracked.
    #[inline(always)]
    pub fn tracked_id(self) -> Option<u64> {
        self.id().filter(|id| is_tracked(*id))
    }
}

/// A `struct task_struct`.
#[derive(Clone, Copy)]
pub struct Task(pub *const c_void);

impl Task {
    /// The process's ID in the initial PID namespace.
    #[inline(always)]
    pub fn tgid(self) -> Option<u32> {
        read(self.0, &TASK_TGID)
    }

    /// Its cgroup in the cgroup2 hierarchy.
    #[inline(always)]
    fn cgroup(self) -> Option<Cgroup> {
        let set: *const c_void = read(self.0, &TASK_CGROUPS)?;
        read(set, &CSS_DFL_CGRP).map(Cgroup)
    }

    /// Threads of its process that have not exited.
    #[inline(always)]
    fn live_threads(self) -> Option<u32> {
        let signal: *const c_void = read(self.0, &TASK_SIGNAL)?;
        read(signal, &SIGNAL_LIVE)
    }
}

/// The cgroup of the current task, if it is tracked.
///
/// Those above it need no look: what a container makes below its own cgroup has `kubepods` in its path too, and what
/// it had made before the programs were loaded is put into the map by the loader.
#[inline(always)]
pub fn current_tracked_cgroup() -> Option<u64> {
    // SAFETY: the helper takes nothing and cannot fail.
    let id = unsafe { bpf_get_current_cgroup_id() };
    is_tracked(id).then_some(id)
}

/// Whether the exit that `ctx` tells of leaves no thread of its process.
#[inline(always)]
pub fn is_group_dead(ctx: &RawTracePointContext) -> Option<bool> {
    // The verifier knows the global's value and drops the branch not taken, as it must: it refuses to attach a
    // program that reads an argument which the tracepoint does not have.
    match EXIT_GROUP_DEAD.load() {
        1 => Some(ctx.arg::<u8>(1) != 0),
        // The kernel counts the thread out before it comes to the tracepoint.
        _ => Task(ctx.arg(0)).live_threads().map(|live| live == 0),
    }
}

/// The tracked cgroup and the process that the OOM killer has chosen.
#[inline(always)]
pub fn oom_victim(ctx: &RawTracePointContext) -> Option<(u64, u32)> {
    if VICTIM_IS_TASK.load() == 1 {
        let task = Task(ctx.arg(0));
        let id = task.cgroup()?.id()?;
        return is_tracked(id).then_some((id, task.tgid()?));
    }
    let pid = ctx.arg::<u32>(0);
    // SAFETY: the entry is copied at once.
    if let Some(entry) = unsafe { PROCESSES.get(pid) } {
        return Some((entry.cgroup_id, pid));
    }
    // A process that was forked in its container and has executed nothing since. Memory limits are enforced on
    // whoever asks for too much, so the current task is most likely of the same container.
    current_tracked_cgroup().map(|id| (id, pid))
}

/// Whether that is a cgroup of pods.
#[inline(always)]
pub fn is_tracked(id: u64) -> bool {
    TRACKED.get_ptr(id).is_some()
}

/// Reads a field of a kernel structure.
#[inline(always)]
fn read<T>(structure: *const c_void, offset: &Global<u32>) -> Option<T> {
    let field = structure.wrapping_byte_add(offset.load() as usize);
    // SAFETY: the helper checks the address itself and fails instead of faulting.
    let value = unsafe { bpf_probe_read_kernel(field.cast::<T>()) };
    if value.is_err() {
        count(|counters| &mut counters.read_failed);
    }
    value.ok()
}
