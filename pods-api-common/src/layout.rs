//! What the loader tells the programs about the running kernel, as read-only globals of these names.
//!
//! The values come from the kernel's BTF when the programs are loaded; nothing about a kernel is compiled in.

/// The value of a global that names a tracepoint argument this kernel does not pass.
pub const NO_ARGUMENT: u32 = u32::MAX;

/// Names of the globals: byte offsets of fields, unless said otherwise.
pub mod field {
    /// `cgroup.kn`
    pub const CGROUP_KN: &str = "CGROUP_KN";
    /// `cgroup.root`
    pub const CGROUP_ROOT: &str = "CGROUP_ROOT";
    /// `cgroup_root.hierarchy_id`
    pub const ROOT_HIERARCHY: &str = "ROOT_HIERARCHY";
    /// `kernfs_node.id`
    pub const KN_ID: &str = "KN_ID";
    /// `task_struct.tgid`
    pub const TASK_TGID: &str = "TASK_TGID";
    /// `task_struct.signal`
    pub const TASK_SIGNAL: &str = "TASK_SIGNAL";
    /// `task_struct.cgroups`
    pub const TASK_CGROUPS: &str = "TASK_CGROUPS";
    /// `css_set.dfl_cgrp`
    pub const CSS_DFL_CGRP: &str = "CSS_DFL_CGRP";
    /// `signal_struct.live`, the number of threads that have not exited.
    pub const SIGNAL_LIVE: &str = "SIGNAL_LIVE";
    /// Which argument of `sched_process_exit` says that the whole group is dead, or
    /// [`NO_ARGUMENT`](crate::NO_ARGUMENT).
    pub const EXIT_GROUP_DEAD: &str = "EXIT_GROUP_DEAD";
    /// 1 where the first argument of `mark_victim` is the task, 0 where it is its process ID.
    pub const VICTIM_IS_TASK: &str = "VICTIM_IS_TASK";
}
