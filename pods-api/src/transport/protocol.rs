//! The one trait that joins the reactor with what it carries.
//!
//! A [`Protocol`] is one connection's state machine. It belongs to one worker thread and does no I/O: the worker
//! hands it received bytes, asks it for bytes to send, and tells it the time.

use bytes::{Buf as _, Bytes};
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

/// Bytes that wait for the socket, oldest first; the driver sends them with one vectored write.
#[derive(Debug, Default)]
pub struct Outgoing {
    chunks: VecDeque<Bytes>,
    bytes: usize,
}

impl Outgoing {
    /// Appends a chunk; an empty one is dropped.
    pub fn push(&mut self, chunk: Bytes) {
        if !chunk.is_empty() {
            self.bytes += chunk.len();
            self.chunks.push_back(chunk);
        }
    }

    /// How many bytes wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// The waiting chunks, oldest first.
    pub fn chunks(&self) -> impl Iterator<Item = &Bytes> {
        self.chunks.iter()
    }

    /// Forgets the first `sent` bytes.
    pub fn advance(&mut self, mut sent: usize) {
        self.bytes -= sent;
        while sent > 0 {
            let Some(first) = self.chunks.front_mut() else { return };
            if sent < first.len() {
                first.advance(sent);
                return;
            }
            sent -= first.len();
            self.chunks.pop_front();
        }
    }
}

/// One connection's state machine. Every method runs on the connection's worker thread and must not block.
pub trait Protocol {
    /// Takes bytes that the peer sent.
    fn receive(&mut self, bytes: &[u8], now: Instant);

    /// The peer will send no more.
    fn receive_end(&mut self, now: Instant);

    /// Looks for work that came from elsewhere: log entries for watches, answers of other threads. Called after the
    /// worker was woken through its [`Waker`], on every connection that [`Protocol::wants_wake`].
    fn wake(&mut self, now: Instant);

    /// Whether [`Protocol::wake`] can have anything to do; false for a connection with neither a watch nor a
    /// pending answer, so that an event costs nothing there.
    fn wants_wake(&self) -> bool;

    /// Moves bytes into `out` until it holds about `budget` bytes or there is nothing to send now.
    fn gather(&mut self, out: &mut Outgoing, budget: usize, now: Instant);

    /// When [`Protocol::timeout`] wants to be called, if at all.
    fn deadline(&self) -> Option<Instant>;

    /// The deadline has passed.
    fn timeout(&mut self, now: Instant);

    /// The server is about to stop: start no new work, finish or end what runs, then report [`Protocol::is_done`].
    fn shutdown(&mut self, now: Instant);

    /// Whether the connection can be closed once everything gathered has been sent.
    fn is_done(&self) -> bool;
}

/// Makes the [`Protocol`] of an accepted connection; shared by all workers.
pub trait Accept: Send + Sync + 'static {
    /// The state machine of one connection.
    type Protocol: Protocol;

    /// Starts a connection. `socket` is for reading peer credentials only. `waker` makes the connection's worker call
    /// [`Protocol::wake`] soon, from any thread; it costs a system call only while the worker sleeps.
    fn accept(&self, socket: BorrowedFd<'_>, waker: &Waker, now: Instant) -> Self::Protocol;
}

impl<A: Accept> Accept for Arc<A> {
    type Protocol = A::Protocol;

    fn accept(&self, socket: BorrowedFd<'_>, waker: &Waker, now: Instant) -> Self::Protocol {
        A::accept(self, socket, waker, now)
    }
}
