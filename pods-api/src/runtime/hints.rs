//! Hints to look at a container or pod now: from the kernel side, and from the store when the kubelet speaks of a
//! container that the runtime has not shown yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::mpsc;

use super::report::RuntimeStatus;
use crate::pod::{ContainerId, PodUid};

/// Hints that wait at one time. Overflow rule: the hint is dropped and counted, and a full list follows.
const QUEUE: usize = 1024;

/// What to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Hint {
    /// A container or sandbox of this pod is being made.
    Appeared(PodUid, ContainerId),
    Ended(ContainerId),
    OutOfMemory(ContainerId),
    Everything,
    /// Tell of this pod again, changed or not.
    Pod(PodUid),
}

/// Where hints are handed in. Never blocks; cheap to clone.
#[derive(Debug, Clone)]
pub struct RuntimeHints {
    queue: mpsc::Sender<Hint>,
    /// Set by whoever found the queue full, cleared by the reconciler, which lists all then. Relaxed: a wish, no data.
    has_overflowed: Arc<AtomicBool>,
    status: Arc<RuntimeStatus>,
}

/// The reconciler's end.
#[derive(Debug)]
pub(super) struct HintQueue {
    pub(super) queue: mpsc::Receiver<Hint>,
    has_overflowed: Arc<AtomicBool>,
}

impl HintQueue {
    /// Whether hints were lost since this was asked last.
    pub(super) fn take_overflow(&self) -> bool {
        self.has_overflowed.swap(false, Ordering::Relaxed)
    }
}

impl RuntimeHints {
    pub(super) fn new(status: Arc<RuntimeStatus>) -> (Self, HintQueue) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let has_overflowed = Arc::new(AtomicBool::new(false));
        let queue = HintQueue { queue: receiver, has_overflowed: has_overflowed.clone() };
        (Self { queue: sender, has_overflowed, status }, queue)
    }

    /// A container or sandbox of this pod is being made.
    pub fn appeared(&self, pod: PodUid, container: ContainerId) {
        self.send(Hint::Appeared(pod, container));
    }

    /// This container or sandbox has ended: the runtime's status calls will say so soon.
    pub fn ended(&self, container: ContainerId) {
        self.send(Hint::Ended(container));
    }

    /// A process of this container was killed for want of memory.
    pub fn out_of_memory(&self, container: ContainerId) {
        self.send(Hint::OutOfMemory(container));
    }

    /// Anything may have happened: list all.
    pub fn look_at_everything(&self) {
        self.send(Hint::Everything);
    }

    /// Look at this pod and tell of it again, even if nothing has changed.
    pub(super) fn ask_again(&self, pod: PodUid) {
        self.send(Hint::Pod(pod));
    }

    fn send(&self, hint: Hint) {
        let is_dropped = self.queue.try_send(hint).is_err();
        if is_dropped {
            self.has_overflowed.store(true, Ordering::Relaxed);
        }
        self.status.count_hint(is_dropped);
    }
}
