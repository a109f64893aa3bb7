//! What a worker counts, and the status that the outside reads.

use super::probe::RingError;
use crossbeam::utils::CachePadded;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A number that its worker writes and anybody reads. One writer, so it needs no locked instruction.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to the number; only the worker that owns it may.
    pub(super) fn add(&self, count: u64) {
        // Relaxed: the number stands for itself and orders nothing.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    pub(super) fn add_bytes(&self, count: usize) {
        self.add(count as u64);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Why a connection was closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// The protocol had nothing more to do.
    Finished,
    /// The peer closed it.
    PeerGone,
    /// The peer took no bytes for too long.
    Stalled,
    /// The server stopped, and it was not finished in time.
    Cut,
    /// The kernel reported another error.
    Failed,
    /// Its driver failed while it was sending.
    DriverFailed,
}

impl Close {
    /// Every cause, in the order of [`Counters::closed`].
    pub const ALL: [Self; 6] =
        [Self::Finished, Self::PeerGone, Self::Stalled, Self::Cut, Self::Failed, Self::DriverFailed];

    /// The cause as a metric label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::PeerGone => "peer_gone",
            Self::Stalled => "stalled",
            Self::Cut => "cut",
            Self::Failed => "failed",
            Self::DriverFailed => "driver_failed",
        }
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// What a worker counts since its start.
        #[derive(Clone, Debug, Default)]
        pub struct Counters<T = u64> {
            $($(#[doc = $doc])+ pub $name: T,)+
            /// Connections closed, by cause in the order of [`Close::ALL`].
            pub closed: [T; Close::ALL.len()],
        }

        impl Counters<Count> {
            pub(super) fn read(&self) -> Counters {
                Counters {
                    $($name: self.$name.get(),)+
                    closed: std::array::from_fn(|index| self.closed[index].get()),
                }
            }
        }
    };
}

counters! {
    /// Connections accepted; only the accepting worker counts these.
    accepted,
    /// Connections closed at once because there were too many.
    refused,
    /// Times that accepting stopped for want of file descriptors or memory.
    accept_pauses,
    /// Connections this worker has served.
    connections,
    /// Bytes received.
    bytes_received,
    /// Bytes given to sockets.
    bytes_sent,
    /// System calls that move bytes or wait.
    system_calls,
    /// Rounds of the worker's loop.
    rounds,
    /// Rounds in which other threads had news.
    wakes,
    /// Times that received bytes found no free buffer and had to wait a round; io_uring only.
    buffer_shortages,
    /// Times that the completion queue was too small; io_uring only.
    completion_overflows,
}

impl<T> Counters<T> {
    /// Connections closed for one cause.
    pub fn closed_for(&self, cause: Close) -> &T {
        &self.closed[cause as usize]
    }
}

/// A worker's counters, on cache lines that no other thread writes to.
pub(super) type WorkerCounters = Arc<CachePadded<Counters<Count>>>;

/// How a worker moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverKind {
    /// By an io_uring of its own.
    IoUring,
    /// By epoll.
    Epoll,
}

impl DriverKind {
    /// The name as in the flag `--transport` and in metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
        }
    }
}

/// What the reactor does at the moment.
#[derive(Clone, Debug)]
pub struct Status {
    /// Whether clients can connect: the accepting worker runs and is not short of anything.
    pub accepting: bool,
    /// Connections open.
    pub connections: usize,
    /// Each worker's own status.
    pub workers: Vec<WorkerStatus>,
}

/// What one worker does at the moment.
#[derive(Clone, Debug)]
pub struct WorkerStatus {
    /// Whether its thread runs. One that does not while the reactor has not been shut down has panicked.
    pub is_running: bool,
    /// How it moves bytes.
    pub driver: DriverKind,
    /// Why it does not use io_uring, if it was asked to.
    pub refusal: Option<Arc<RingError>>,
    /// Connections open or about to be.
    pub connections: usize,
    /// What it has counted.
    pub counters: Counters,
}
