//! Accepting connections and spreading them over the workers.
//!
//! One worker accepts for all. If each had an accept of its own on the one listening socket, the kernel would wake
//! the same one first each time, so that it would get nearly all connections: a connection stays with its worker for
//! life. The accepting one knows how many each has and gives the next to the one with the fewest.

use super::driver::Driver;
use super::shared::Shared;
use rustix::io::Errno;
use rustix::net::SocketFlags;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often accepting is tried again when descriptors or memory ran out. A connection closed here makes it happen at
/// once; this is for what others in the process release.
const RETRY: Duration = Duration::from_millis(100);

/// The least time between two warnings that accepting is paused.
const WARNING_PAUSE: Duration = Duration::from_secs(30);

/// The accepting worker's part.
#[derive(Debug)]
pub(super) struct Acceptor {
    shared: Arc<Shared>,
    listening: Arc<OwnedFd>,
    /// When to try again, while accepting is paused. Clients wait in the backlog meanwhile: a shortage passes, and
    /// they are then served at once, while one sent away would come back after its backoff.
    retry_at: Option<Instant>,
    /// Where to start looking for the worker with the fewest, so that equal ones take turns.
    next: usize,
    /// When the operator was last told of a pause.
    warned_at: Option<Instant>,
}

impl Acceptor {
    pub(super) fn new(shared: Arc<Shared>, listening: Arc<OwnedFd>) -> Self {
        Self { shared, listening, retry_at: None, next: 0, warned_at: None }
    }

    /// Starts or restarts accepting.
    pub(super) fn resume(&mut self, driver: &mut impl Driver) {
        match driver.listen(Arc::clone(&self.listening)) {
            Ok(()) => {
                self.retry_at = None;
                self.shared.set_accepting(true);
            }
            Err(cause) => self.pause(cause, Instant::now()),
        }
    }

    /// Goes over to another listening socket, and takes out what still waits at the old one.
    pub(super) fn listen(
        &mut self,
        socket: Arc<OwnedFd>,
        driver: &mut impl Driver,
        accepted: &mut Vec<OwnedFd>,
    ) {
        let old = std::mem::replace(&mut self.listening, socket);
        driver.stop_listening();
        if rustix::io::ioctl_fionbio(&old, true).is_ok() {
            while let Ok(socket) = rustix::net::accept_with(&old, SocketFlags::CLOEXEC) {
                accepted.push(socket);
            }
        }
        self.resume(driver);
    }

    /// Accepts no more.
    pub(super) fn stop(self, driver: &mut impl Driver) {
        driver.stop_listening();
        self.shared.set_accepting(false);
    }

    /// Notes that accepting has failed, for want of descriptors or memory.
    pub(super) fn pause(&mut self, cause: Errno, now: Instant) {
        self.retry_at = Some(now + RETRY);
        if !self.shared.set_accepting(false) {
            return;
        }
        self.shared.counters(0).accept_pauses.add(1);
        // At the limit each closed connection lets one in and starts the next pause.
        if self.warned_at.is_none_or(|at| now >= at + WARNING_PAUSE) {
            self.warned_at = Some(now);
            tracing::warn!(
                error = %cause,
                "accepting connections is paused: raise the limit of open files (RLIMIT_NOFILE), or find out who \
                 uses them up"
            );
        }
    }

    /// Tries again if accepting is paused and it is time, or a connection has been closed.
    pub(super) fn retry(&mut self, now: Instant, driver: &mut impl Driver) {
        let Some(at) = self.retry_at else { return };
        if !self.shared.take_released() && now < at {
            return;
        }
        // Whether a descriptor can be had is found out with one of our own: accepting tells only when a client comes.
        match rustix::io::fcntl_dupfd_cloexec(&self.listening, 0) {
            Ok(spare) => {
                drop(spare);
                self.resume(driver);
            }
            Err(cause) => self.pause(cause, now),
        }
    }

    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.retry_at
    }

    /// Finds the worker for a connection just accepted, and counts it there; `None` if there are too many already.
    ///
    /// Such a connection is closed at once rather than left waiting: its client learns that it will not be served,
    /// and the counter says so.
    pub(super) fn place(&mut self) -> Option<usize> {
        let counters = self.shared.counters(0);
        counters.accepted.add(1);
        if self.shared.open() >= self.shared.config().max_connections {
            counters.refused.add(1);
            return None;
        }
        let workers = self.shared.workers();
        let candidates = (0..workers).map(|offset| (self.next + offset) % workers);
        let candidates = candidates.filter(|worker| self.shared.is_running(*worker));
        let worker = candidates.min_by_key(|worker| self.shared.open_at(*worker))?;
        self.next = (worker + 1) % workers;
        self.shared.opened(worker);
        Some(worker)
    }
}
