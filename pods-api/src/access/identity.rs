//! Where a process runs: in a pod, beside all pods, or nobody can tell.
//!
//! The seam between the access room, which asks, and the kernel room, which knows cgroups. No I/O here.

use crate::pod::{CgroupId, ContainerId, Locate, Located, Pid, Place, PodUid, Snapshot};
use std::os::fd::BorrowedFd;
use std::task::Waker;

/// Finds where a process runs. Implemented by the kernel room.
pub trait Identify: std::fmt::Debug + Send + Sync {
    /// Identifies the process `pid`. It is the process of `pidfd`, so a caller that finds the pidfd's process alive
    /// afterwards knows that nothing was read of another process which got the number meanwhile (PID-1).
    ///
    /// Called by a worker for each connection it accepts: must not block.
    fn identify(&self, pid: Pid, pidfd: BorrowedFd<'_>) -> Identity;
}

/// Where a process runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// In a pod.
    Pod {
        /// The pod: the outermost one of the process's cgroup path.
        uid: PodUid,
        /// The container; `None` where the cgroup names none.
        container: Option<ContainerId>,
    },
    /// In no pod: a process of the host.
    Host,
    /// Nobody can make sure. Never taken for a process of the host, nor for one of a pod.
    Unknown,
}

/// Knows of no process where it runs: for a server that does not look at cgroups.
#[derive(Debug, Clone, Copy, Default)]
pub struct Nowhere;

impl Identify for Nowhere {
    fn identify(&self, _: Pid, _: BorrowedFd<'_>) -> Identity {
        Identity::Unknown
    }
}

impl Locate for Nowhere {
    fn process(&self, _: Pid, _: &Snapshot) -> Located {
        Located::Never("this server does not look at processes".into())
    }

    fn cgroup(&self, _: CgroupId, _: &Snapshot) -> Located {
        Located::Never("this server does not look at cgroups".into())
    }

    fn cgroup_path(&self, _: &str, _: &Snapshot) -> Located {
        Located::Never("this server does not look at cgroups".into())
    }

    fn containers(&self, _: &str, _: usize, _: &Snapshot) -> Vec<Place> {
        Vec::new()
    }

    fn add_waker(&self, _: &Waker) {}
}
