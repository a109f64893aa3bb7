//! What the workers and the reactor's owner share: who is where, what is handed over, and which phase it is.

use super::bell::Bell;
use super::counters::{DriverKind, Status, WorkerCounters, WorkerStatus};
use super::probe::RingError;
use super::reactor::ReactorConfig;
use crossbeam::queue::ArrayQueue;
use crossbeam::utils::CachePadded;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// How far the reactor is on its way to the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(super) enum Phase {
    /// Serving.
    Running,
    /// Serving what there is, and accepting nothing new.
    Draining,
    /// Closing what is left.
    Closing,
}

/// State that more than one thread of the reactor touches.
#[derive(Debug)]
pub(super) struct Shared {
    config: ReactorConfig,
    workers: Box<[Member]>,
    /// Written by the owner, read by each worker after its bell has rung.
    phase: AtomicU8,
    /// Written by the accepting worker: whether clients can connect.
    is_accepting: AtomicBool,
    /// Set by any worker that closes a connection while accepting is paused; taken by the accepting one.
    has_released: AtomicBool,
    /// The newest listening socket, from the owner for the accepting worker. Locked for a move only.
    listening: Mutex<Option<Arc<OwnedFd>>>,
}

/// One worker, as the others see it.
#[derive(Debug)]
struct Member {
    bell: Arc<Bell>,
    /// Accepted sockets for this worker, from the accepting one. Each has been counted in `open`, which is kept within
    /// the limit that is this queue's capacity; should it overflow all the same the socket is closed and counted.
    inbox: ArrayQueue<OwnedFd>,
    /// Connections it serves or will. Raised by the accepting worker, lowered by its own.
    open: CachePadded<AtomicUsize>,
    counters: WorkerCounters,
    /// Cleared by its thread at its end.
    is_running: AtomicBool,
    /// Written by its thread when it changes drivers. Locked for reading or writing it only.
    driver: Mutex<(DriverKind, Option<Arc<RingError>>)>,
}

impl Shared {
    pub(super) fn new(config: ReactorConfig) -> Result<Self, Errno> {
        let member = |_| {
            Ok(Member {
                bell: Arc::new(Bell::new()?),
                inbox: ArrayQueue::new(config.max_connections.max(1)),
                open: CachePadded::default(),
                counters: Arc::default(),
                is_running: AtomicBool::new(true),
                driver: Mutex::new((DriverKind::Epoll, None)),
            })
        };
        Ok(Self {
            workers: (0..config.workers.max(1)).map(member).collect::<Result<_, Errno>>()?,
            config,
            phase: AtomicU8::new(Phase::Running as u8),
            is_accepting: AtomicBool::new(false),
            has_released: AtomicBool::new(false),
            listening: Mutex::new(None),
        })
    }

    pub(super) fn config(&self) -> &ReactorConfig {
        &self.config
    }

    pub(super) fn workers(&self) -> usize {
        self.workers.len()
    }

    pub(super) fn bell(&self, worker: usize) -> &Arc<Bell> {
        &self.workers[worker].bell
    }

    pub(super) fn counters(&self, worker: usize) -> &WorkerCounters {
        &self.workers[worker].counters
    }

    // Relaxed, here and for `is_accepting`, `is_running` and `open`: each value stands for itself. What must be seen
    // together with it goes through a bell, a queue or a mutex.
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Running,
            1 => Phase::Draining,
            _ => Phase::Closing,
        }
    }

    /// Goes on to a later phase and tells every worker.
    pub(super) fn advance(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::Relaxed);
        for worker in &self.workers {
            worker.bell.ring();
        }
    }

    /// Hands an accepted socket to another worker.
    pub(super) fn give_connection(&self, worker: usize, socket: OwnedFd) {
        let member = &self.workers[worker];
        if member.inbox.push(socket).is_err() {
            self.counters(0).refused.add(1);
            self.closed(worker);
            return;
        }
        member.bell.ring();
    }

    pub(super) fn take_connection(&self, worker: usize) -> Option<OwnedFd> {
        self.workers[worker].inbox.pop()
    }

    /// Tells the accepting worker to go over to another listening socket.
    pub(super) fn give_listening(&self, socket: Arc<OwnedFd>) {
        *self.listening.lock().unwrap_or_else(PoisonError::into_inner) = Some(socket);
        self.workers[0].bell.ring();
    }

    pub(super) fn take_listening(&self) -> Option<Arc<OwnedFd>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Returns what it was before.
    pub(super) fn set_accepting(&self, is_accepting: bool) -> bool {
        self.is_accepting.swap(is_accepting, Ordering::Relaxed)
    }

    /// Whether a connection was closed since accepting was paused.
    pub(super) fn take_released(&self) -> bool {
        self.has_released.swap(false, Ordering::Relaxed)
    }

    /// Connections of all workers.
    pub(super) fn open(&self) -> usize {
        self.workers.iter().map(|worker| worker.open.load(Ordering::Relaxed)).sum()
    }

    pub(super) fn open_at(&self, worker: usize) -> usize {
        self.workers[worker].open.load(Ordering::Relaxed)
    }

    pub(super) fn opened(&self, worker: usize) {
        self.workers[worker].open.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn closed(&self, worker: usize) {
        self.workers[worker].open.fetch_sub(1, Ordering::Relaxed);
        if !self.is_accepting.load(Ordering::Relaxed) {
            self.has_released.store(true, Ordering::Relaxed);
            self.workers[0].bell.ring();
        }
    }

    pub(super) fn is_running(&self, worker: usize) -> bool {
        self.workers[worker].is_running.load(Ordering::Relaxed)
    }

    pub(super) fn set_ended(&self, worker: usize) {
        self.workers[worker].is_running.store(false, Ordering::Relaxed);
    }

    pub(super) fn set_driver(&self, worker: usize, kind: DriverKind, refusal: Option<Arc<RingError>>) {
        *self.workers[worker].driver.lock().unwrap_or_else(PoisonError::into_inner) = (kind, refusal);
    }

    pub(super) fn status(&self) -> Status {
        let workers: Vec<_> = self.workers.iter().map(Member::status).collect();
        Status {
            accepting: self.is_accepting.load(Ordering::Relaxed) && workers[0].is_running,
            connections: workers.iter().map(|worker| worker.connections).sum(),
            workers,
        }
    }
}

impl Member {
    fn status(&self) -> WorkerStatus {
        let (driver, refusal) = self.driver.lock().unwrap_or_else(PoisonError::into_inner).clone();
        WorkerStatus {
            is_running: self.is_running.load(Ordering::Relaxed),
            driver,
            refusal,
            connections: self.open.load(Ordering::Relaxed),
            counters: self.counters.read(),
        }
    }
}
