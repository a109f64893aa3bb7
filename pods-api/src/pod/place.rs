//! Where keys lead that name no pod themselves: processes, cgroups and containers that a pod's status does not show.
//!
//! The seam between the Lookup, which asks, and the kernel room, which knows. No I/O here.

use super::id::{CgroupId, ContainerId, Pid, PodUid};
use super::snapshot::Snapshot;
use std::fmt::Debug;
use std::task::Waker;

/// A pod, or one container of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The pod; no source need know it.
    pub pod: PodUid,
    /// The container or sandbox, where the key named one.
    pub container: Option<ContainerId>,
}

/// Where a key leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Located {
    /// Into a pod.
    In(Place),
    /// Nowhere as yet, with the reason: it may still come into a pod.
    NotYet(String),
    /// Nowhere, with the reason, and waiting does not change that.
    Never(String),
}

/// Finds pods by what the kernel knows of them. Implemented by the kernel room. May read `/proc`, and does not block
/// beyond that.
pub trait Locate: Debug + Send + Sync {
    /// Where a process runs, or ran until just now. `pods` tells unusual UIDs from one another.
    fn process(&self, pid: Pid, pods: &Snapshot) -> Located;

    /// Which pod a cgroup of that number belongs to.
    fn cgroup(&self, id: CgroupId, pods: &Snapshot) -> Located;

    /// Which pod a cgroup path, or a line of /proc/PID/cgroup, names.
    fn cgroup_path(&self, path: &str, pods: &Snapshot) -> Located;

    /// The containers and sandboxes whose ID begins with `prefix`, in order, `limit` at most.
    fn containers(&self, prefix: &str, limit: usize, pods: &Snapshot) -> Vec<Place>;

    /// Has `waker` woken whenever answers may have changed.
    fn add_waker(&self, waker: &Waker);
}
