//! Starts the workers, watches over the listening socket, and ends both in order.
//!
//! The [`Reactor`] itself runs no code of its own: its owner calls [`Reactor::check_listener`] now and then, from a
//! thread that may wait for a file system.

use super::Accept;
use super::choice::Transport;
use super::counters::Status;
use super::listener::{BindError, Listener, Rebound};
use super::shared::{Phase, Shared};
use super::start::{End, Start, StartError};
use crossbeam::channel::{Receiver, RecvTimeoutError, bounded};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

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
            let end = End::new(index, Arc::clone(&shared), end.clone());
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
