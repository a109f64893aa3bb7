//! A worker's thread from its start to its end: which driver it gets, and that its reactor hears of both.
//!
//! Runs on the worker's own thread.

use super::Accept;
use super::choice::Transport;
use super::counters::DriverKind;
use super::driver::Driver;
use super::epoll::Epoll;
use super::placement::Acceptor;
use super::probe::RingError;
use super::ring::Ring;
use super::shared::Shared;
use super::worker::Worker;
use crossbeam::channel::Sender;
use rustix::io::Errno;
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The reactor could not be started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// io_uring was asked for and is refused.
    #[error("io_uring cannot be used (--transport io_uring)")]
    IoUring(#[source] Arc<RingError>),
    /// Even epoll does not work.
    #[error("could not set up epoll")]
    Epoll(#[source] Errno),
    /// A thread or its descriptors could not be had.
    #[error("could not start a worker")]
    Worker(#[source] std::io::Error),
}

/// A worker's thread, up to its loop.
pub(super) struct Start<A> {
    pub(super) index: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) accept: Arc<A>,
    pub(super) listening: Option<Arc<OwnedFd>>,
    /// For one message: how the start went.
    pub(super) started: Option<Sender<Result<(), StartError>>>,
}

/// Says that a worker has ended, also when it panics.
pub(super) struct End {
    index: usize,
    shared: Arc<Shared>,
    // Dropped with this, which is what its receiver waits for.
    _end: Sender<()>,
}

impl End {
    pub(super) fn new(index: usize, shared: Arc<Shared>, end: Sender<()>) -> Self {
        Self { index, shared, _end: end }
    }
}

impl Drop for End {
    fn drop(&mut self) {
        self.shared.set_ended(self.index);
    }
}

impl<A: Accept> Start<A> {
    /// Runs the worker to its end. It is made here because its protocols belong to this thread.
    pub(super) fn run(mut self) {
        let transport = self.shared.config().transport;
        if transport == Transport::Epoll {
            return self.run_epoll(None);
        }
        let bell = Arc::clone(self.shared.bell(self.index));
        let counters = Arc::clone(self.shared.counters(self.index));
        match Ring::new(bell, self.shared.config().max_connections, counters) {
            Ok(ring) => self.run_ring(ring),
            Err(refusal) if transport == Transport::Auto => self.run_epoll(Some(Arc::new(refusal))),
            Err(refusal) => self.tell(Err(StartError::IoUring(Arc::new(refusal)))),
        }
    }

    fn run_ring(&mut self, mut ring: Ring) {
        let mut worker = self.begin(&mut ring, DriverKind::IoUring, None);
        let Err(cause) = worker.run(&mut ring) else { return };
        let refusal = Arc::new(RingError::explain("io_uring_enter", cause));
        let orphans = worker.give_up(&mut ring);
        // Before epoll takes the sockets: the ring's receives must not take their bytes.
        drop(ring);
        let mut epoll = match self.epoll() {
            Ok(epoll) => epoll,
            Err(cause) => return self.report_lost(cause),
        };
        let (kept, closed) = worker.take_over(orphans, &mut epoll);
        tracing::warn!(
            worker = self.index,
            %refusal,
            kept,
            closed,
            "io_uring has failed, connections are served with epoll"
        );
        self.shared.set_driver(self.index, DriverKind::Epoll, Some(refusal));
        if let Err(cause) = worker.run(&mut epoll) {
            self.report_lost(cause);
        }
    }

    fn run_epoll(&mut self, refusal: Option<Arc<RingError>>) {
        let mut epoll = match self.epoll() {
            Ok(epoll) => epoll,
            Err(cause) => return self.tell(Err(StartError::Epoll(cause))),
        };
        // All workers are refused alike, and one line is enough.
        if let Some(refusal) = refusal.as_ref().filter(|_| self.index == 0) {
            tracing::warn!(%refusal, "io_uring cannot be used, connections are served with epoll");
        }
        let mut worker = self.begin(&mut epoll, DriverKind::Epoll, refusal);
        if let Err(cause) = worker.run(&mut epoll) {
            self.report_lost(cause);
        }
    }

    fn epoll(&self) -> Result<Epoll, Errno> {
        Epoll::new(self.shared.bell(self.index), Arc::clone(self.shared.counters(self.index)))
    }

    fn begin(
        &mut self,
        driver: &mut impl Driver,
        kind: DriverKind,
        refusal: Option<Arc<RingError>>,
    ) -> Worker<A> {
        let acceptor = self.listening.take().map(|socket| Acceptor::new(Arc::clone(&self.shared), socket));
        let mut worker =
            Worker::new(self.index, Arc::clone(&self.shared), Arc::clone(&self.accept), acceptor);
        self.shared.set_driver(self.index, kind, refusal);
        worker.begin(driver);
        self.tell(Ok(()));
        worker
    }

    fn tell(&mut self, start: Result<(), StartError>) {
        if let Some(started) = self.started.take() {
            // The owner may have given up already, because another worker has failed: then it says so by the phase.
            let _ = started.send(start);
        }
    }

    fn report_lost(&self, cause: Errno) {
        tracing::error!(worker = self.index, error = %cause, "a worker cannot go on, and its connections are closed");
    }
}
