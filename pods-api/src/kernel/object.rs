//! The kernel programs as `build.rs` has embedded them, and which tracepoint each belongs to.

/// A program of the object.
#[derive(Debug)]
pub(super) struct Program {
    /// Its name, in the object and in the kernel.
    pub(super) name: &'static str,
    /// The raw tracepoint to attach it to.
    pub(super) tracepoint: &'static str,
}

/// Every program, in the order of attaching: what removes entries of maps before what makes them, so that none stays.
pub(super) const PROGRAMS: [Program; 7] = [
    Program { name: "pods_rmdir", tracepoint: "cgroup_rmdir" },
    Program { name: "pods_exit", tracepoint: "sched_process_exit" },
    Program { name: "pods_mkdir", tracepoint: "cgroup_mkdir" },
    Program { name: "pods_populated", tracepoint: "cgroup_notify_populated" },
    Program { name: "pods_attach", tracepoint: "cgroup_attach_task" },
    Program { name: "pods_exec", tracepoint: "sched_process_exec" },
    Program { name: "pods_oom", tracepoint: "mark_victim" },
];

/// Empty where this was built without the tool chain.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pods-api-ebpf.o"));

/// The object, if this was built with it.
pub(super) fn embedded() -> Option<&'static [u8]> {
    Some(OBJECT).filter(|object| !object.is_empty())
}

/// Whether the kernel programs are part of this build.
#[must_use]
pub fn is_built_with_ebpf() -> bool {
    embedded().is_some()
}
