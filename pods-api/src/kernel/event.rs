//! The seam between what watches the kernel (the eBPF ring buffer, inotify) and what the events mean.
//!
//! Everything here lives on the `kernel` thread. An event is a hint, never truth: whoever takes one looks again.

use crate::pod::{CgroupId, ContainerId, Namespace, Pid, PodName, PodUid};
use std::fmt::Debug;
use std::os::fd::BorrowedFd;

/// What the kernel side learned, whichever way it was learned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KernelEvent {
    /// A cgroup was made.
    CgroupCreated {
        /// Its number.
        id: CgroupId,
        /// Its path below the hierarchy's root, beginning with `/`.
        path: String,
    },
    /// The first process came into a cgroup or below it, or the last one left.
    CgroupPopulated {
        /// The cgroup.
        id: CgroupId,
        /// Whether there is any process now.
        is_populated: bool,
    },
    /// A cgroup was removed.
    CgroupReleased {
        /// The cgroup.
        id: CgroupId,
    },
    /// A process was moved into a cgroup of pods, or out of one.
    ProcessAttached {
        /// Where it is now; no pod's, if it has left.
        cgroup: CgroupId,
        /// The process.
        pid: Pid,
    },
    /// A process of a cgroup executed a program.
    ProcessExecuted {
        /// Where it runs.
        cgroup: CgroupId,
        /// The process (tgid).
        pid: Pid,
    },
    /// A process ended: the whole thread group, not one thread.
    ProcessExited {
        /// Where it ran.
        cgroup: CgroupId,
        /// The process (tgid).
        pid: Pid,
    },
    /// The kernel killed a process for want of memory.
    OomKilled {
        /// Where the process runs.
        cgroup: CgroupId,
        /// The process.
        pid: Pid,
    },
    /// Events were lost: everything is to be read anew.
    EventsLost {
        /// How many are known to be lost.
        count: u64,
    },
}

/// A source of events with a file descriptor to wait on.
pub trait Feed: Debug + Send {
    /// Readable when there are events.
    fn fd(&self) -> BorrowedFd<'_>;

    /// Hands over the events that are there, in order; never waits. Returns whether it took all: if not, it has handed
    /// over enough for once, and losses are not told of yet.
    fn drain(&mut self, apply: &mut dyn FnMut(KernelEvent)) -> bool;
}

/// The node's map from cgroups to pods in the kernel (`pods_cgroups`).
pub trait CgroupMap: Debug + Send {
    /// Writes what is known of a cgroup, over what was known before, and has its events reported. Returns whether it
    /// is done with; if not, there may be room later.
    fn put(&mut self, id: CgroupId, entry: &CgroupEntry) -> bool;

    /// Has the events of a cgroup reported that others do not look for. Returns as [`CgroupMap::put`] does.
    fn track(&mut self, id: CgroupId) -> bool;

    /// Forgets a cgroup.
    fn remove(&mut self, id: CgroupId);

    /// Forgets the processes of which `is_alive` does not know.
    fn sweep_processes(&mut self, is_alive: &dyn Fn(Pid) -> bool);
}

/// What others may read of a pod's cgroup.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupEntry {
    /// The pod.
    pub pod: PodUid,
    /// The container or sandbox; `None` for the pod's own cgroup.
    pub container: Option<ContainerId>,
    /// The pod's namespace and name; `None` until a source tells them.
    pub name: Option<(Namespace, PodName)>,
}
