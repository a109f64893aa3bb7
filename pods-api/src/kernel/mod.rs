//! What the kernel tells of pods: their cgroups and processes. Everything but `cgroup_path` (pure) runs on the
//! `kernel` thread.

mod cgroup_path;
mod event;

pub use cgroup_path::{CgroupRoot, MAX_PATH_BYTES, PodPath, QosClass, UidText};
pub use event::{CgroupEntry, CgroupMap, Feed, KernelEvent};
