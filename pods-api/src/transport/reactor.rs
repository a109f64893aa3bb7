//! Starts the workers, watches over the listening socket, and ends both in order.
//!
//! The [`Reactor`] itself runs no code of its own: its owner calls [`Reactor::check_listener`] now and then, from a
//! thread that may wait for a file system.

use super::Accept;
use super::counters::{DriverKind, Status};
use super::driver::Driver;
use super::epoll::Epoll;
use super::listener::{BindError, Listener, Rebound};
use super::placement::Acceptor;
use super::probe::RingError;
use super::ring::Ring;
use super::shared::{Phase, Shared};
use super::worker::Worker;
use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use rustix::io::Errno;
use std::fmt;
use std::os::fd::OwnedFd;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Which driver moves the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// io_uring where the system allows it, else epoll.
    #[default]
    Auto,
    /// io_uring, or no start.
    IoUring,
    /// epoll.
    Epoll,
}

/// How many threads serve how many connections, and what a connection may cost.
#[derive(Clone, Debug)]
pub struct ReactorConfig {
    /// Threads that serve connections.
    pub workers: usize,
    /// Which driver they use.
    pub transport: Transport,
    /// Connections open at a time, over all workers; further ones are accepted and closed.
    pub max_connections: usize,
    /// How long a peer may take no byte of what is on its way before its connection is closed.
    ///
    /// One that is merely behind takes some, which shows once its send buffer is three quarters empty; one that takes
    /// none for so long is stopped or hung, and holds a connection and a full buffer. gRPC's own keepalive would give
    /// up on it after 20 seconds.
    pub send_stall: Duration,
    /// The usual send buffer of a connection in bytes, as given to SO_SNDBUF; the kernel doubles it for its own
    /// overhead. Few connections at a time have a larger one, while they have much to send.
    pub send_buffer_bytes: usize,
}

impl Default for ReactorConfig {
    fn default() -> Self {
        Self {
            workers: std::thread::available_parallelism().map_or(1, usize::from).min(2),
            transport: Transport::Auto,
            max_connections: 1024,
            send_stall: Duration::from_secs(60),
            send_buffer_bytes: 16 * 1024,
        }
    }
}

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

/// How the reactor ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Whether every connection came to its end in time; the rest was cut.
    pub in_time: bool,
    /// Whether a worker had panicked.
    pub has_panicked: bool,
}

/// The running workers and the socket they serve. Dropping it closes all connections at once.
#[derive(Debug)]
pub struct Reactor {
    shared: Arc<Shared>,
    /// Locked by whoever checks it, and for its removal.
    listener: Mutex<Option<Listener>>,
    workers: Vec<JoinHandle<()>>,
    /// Carries nothing; disconnected when all workers have ended.
    ends: Receiver<()>,
}

/// Tells what the workers of a reactor do.
#[derive(Clone, Debug)]
pub struct ReactorMonitor(Arc<Shared>);

impl ReactorMonitor {
    /// What the workers do at the moment.
    #[must_use]
    pub fn status(&self) -> Status {
        self.0.status()
    }
}

impl Reactor {
    /// Starts to serve the listener's clients with the protocols that `accept` makes.
    ///
    /// # Errors
    /// Fails if a worker cannot be started, in particular if io_uring was asked for and is refused.
    pub fn spawn<A: Accept>(
        listener: Listener,
        accept: A,
        config: ReactorConfig,
    ) -> Result<Self, StartError> {
        let accept = Arc::new(accept);
        let shared = Arc::new(Shared::new(config).map_err(|cause| StartError::Worker(cause.into()))?);
        let (end, ends) = bounded(1);
        let mut reactor =
            Self { listener: Mutex::new(None), workers: Vec::new(), ends, shared: Arc::clone(&shared) };
        let (started, starts) = bounded(shared.workers());
        for index in 0..shared.workers() {
            let start = Start {
                index,
                shared: Arc::clone(&shared),
                accept: Arc::clone(&accept),
                listening: (index == 0).then(|| listener.socket()),
                started: Some(started.clone()),
            };
            let end = End { index, shared: Arc::clone(&shared), _end: end.clone() };
            let thread = std::thread::Builder::new().name(format!("pods-io-{index}"));
            let thread = thread.spawn(move || {
                let _end = end;
                start.run();
            });
            reactor.workers.push(thread.map_err(StartError::Worker)?);
        }
        // Only the workers' own are left, so the reactor sees when all have ended.
        drop(end);
        drop(started);
        let starts = starts.into_iter().collect::<Result<Vec<()>, _>>()?;
        if starts.len() < shared.workers() {
            return Err(StartError::Worker(std::io::Error::other("a worker has panicked")));
        }
        *reactor.listener.get_mut().unwrap_or_else(PoisonError::into_inner) = Some(listener);
        Ok(reactor)
    }

    /// What the workers do at the moment.
    #[must_use]
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// What tells the status to others, for as long as they like.
    #[must_use]
    pub fn monitor(&self) -> ReactorMonitor {
        ReactorMonitor(self.shared.clone())
    }

    /// Looks whether the socket is still at its path and binds it again if not; see [`Listener::check`].
    ///
    /// # Errors
    /// Fails like [`Listener::check`].
    pub fn check_listener(&self) -> Result<Option<Rebound>, BindError> {
        let mut listener = self.listener.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(listener) = &mut *listener else { return Ok(None) };
        let rebound = listener.check()?;
        if rebound.is_some() {
            self.shared.give_listening(listener.socket());
        }
        Ok(rebound)
    }

    /// Stops accepting, removes the socket, lets every connection come to its end, and closes those that take longer
    /// than `patience`.
    pub fn shutdown(mut self, patience: Duration) -> Drained {
        self.stop(patience)
    }

    fn stop(&mut self, patience: Duration) -> Drained {
        let deadline = Instant::now() + patience;
        // The path first: who connects from now on shall meet nobody, or the next server.
        drop(self.listener.get_mut().unwrap_or_else(PoisonError::into_inner).take());
        self.shared.advance(Phase::Draining);
        let in_time = loop {
            match self.ends.recv_deadline(deadline) {
                Ok(()) => {}
                Err(RecvTimeoutError::Disconnected) => break true,
                Err(RecvTimeoutError::Timeout) => {
                    self.shared.advance(Phase::Closing);
                    break false;
                }
            }
        };
        let has_panicked =
            self.workers.drain(..).map(JoinHandle::join).fold(false, |any, end| any | end.is_err());
        Drained { in_time, has_panicked }
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        if !self.workers.is_empty() {
            self.stop(Duration::ZERO);
        }
    }
}

/// A worker's thread, up to its loop.
struct Start<A> {
    index: usize,
    shared: Arc<Shared>,
    accept: Arc<A>,
    listening: Option<Arc<OwnedFd>>,
    /// For one message: how the start went.
    started: Option<Sender<Result<(), StartError>>>,
}

/// Says that a worker has ended, also when it panics.
struct End {
    index: usize,
    shared: Arc<Shared>,
    // Dropped with this, which is what its receiver waits for.
    _end: Sender<()>,
}

impl Drop for End {
    fn drop(&mut self) {
        self.shared.set_ended(self.index);
    }
}

impl<A: Accept> Start<A> {
    /// Runs the worker to its end. It is made here because its protocols belong to this thread.
    fn run(mut self) {
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

impl FromStr for Transport {
    type Err = UnknownTransport;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(Self::Auto),
            "io_uring" => Ok(Self::IoUring),
            "epoll" => Ok(Self::Epoll),
            _ => Err(UnknownTransport),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::IoUring => DriverKind::IoUring.label(),
            Self::Epoll => DriverKind::Epoll.label(),
        })
    }
}

/// Not the name of a transport.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the transport is one of auto, io_uring and epoll")]
pub struct UnknownTransport;
