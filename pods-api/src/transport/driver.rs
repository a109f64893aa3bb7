//! What a worker asks of the operating system, in terms that io_uring and epoll can both serve.
//!
//! A driver owns the sockets of one worker and the bytes on their way to them. It is used by that worker's thread
//! only.

use super::Outgoing;
use rustix::io::Errno;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A connection's number within its driver; reused once nothing refers to it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot(pub(super) u32);

impl Slot {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// How long [`Driver::wait`] may block.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wait {
    /// Not at all: there is more to do.
    Not,
    /// Until something happens.
    Forever,
    /// Until something happens, or for this long.
    For(Duration),
}

/// How far [`Driver::send`] got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    /// All of it, so many bytes, has been given to the socket.
    Done(usize),
    /// The rest is on its way, after so many bytes; [`Handler::sent`] tells the progress.
    Started(usize),
}

/// A connection whose driver has failed.
#[derive(Debug)]
pub(super) struct Orphan {
    pub(super) slot: Slot,
    pub(super) socket: OwnedFd,
    /// What is still to be sent.
    pub(super) outgoing: Outgoing,
    /// Whether the peer has ended its side.
    pub(super) has_ended: bool,
}

/// Owns sockets and moves their bytes.
pub(super) trait Driver {
    /// Accepts connections from now on, until [`Driver::stop_listening`] or [`Handler::accept_failed`].
    fn listen(&mut self, socket: Arc<OwnedFd>) -> Result<(), Errno>;

    /// Accepts no more connections; one accepted just before may still be reported.
    fn stop_listening(&mut self);

    /// Takes a connected socket and starts to receive from it.
    fn add(&mut self, socket: OwnedFd) -> Result<Slot, Errno>;

    /// A connection's socket, for its options.
    fn socket(&self, slot: Slot) -> BorrowedFd<'_>;

    /// What to send next; `None` while a previous send is on its way.
    fn outgoing(&mut self, slot: Slot) -> Option<&mut Outgoing>;

    /// Sends what [`Driver::outgoing`] holds.
    ///
    /// # Errors
    /// Fails if the connection cannot be sent to any more; then it is to be removed.
    fn send(&mut self, slot: Slot) -> Result<Sending, Errno>;

    /// Closes a connection. Nothing more is reported for it.
    fn remove(&mut self, slot: Slot);

    /// Starts what has been asked for without waiting for the next [`Driver::wait`].
    ///
    /// # Errors
    /// Fails if the driver as a whole is of no use any more; so does `wait`.
    fn submit(&mut self) -> Result<(), Errno>;

    /// Starts what has been asked for and waits until something happens.
    fn wait(&mut self, wait: Wait) -> Result<(), Errno>;

    /// Reports what has happened.
    fn dispatch(&mut self, handler: &mut impl Handler);

    /// Whether the kernel holds nothing any more on behalf of removed connections.
    fn is_quiet(&self) -> bool;

    /// Gives up, after a failure, all connections whose bytes are accounted for, and closes the others.
    fn abandon(&mut self, handler: &mut impl Handler) -> Vec<Orphan>;
}

/// Takes what a driver reports. The slots are those of connections that have not been removed.
pub(super) trait Handler {
    /// A client has connected.
    fn accepted(&mut self, socket: OwnedFd);

    /// Accepting failed, and has stopped.
    fn accept_failed(&mut self, cause: Errno);

    /// The peer has sent bytes.
    fn received(&mut self, slot: Slot, bytes: &[u8]);

    /// The peer will send no more, but may still read.
    fn ended(&mut self, slot: Slot);

    /// So many bytes were taken by the socket; if `is_idle`, nothing is on its way any more.
    fn sent(&mut self, slot: Slot, bytes: usize, is_idle: bool);

    /// The connection is of no use any more; the peer has gone if there is no other cause.
    fn lost(&mut self, slot: Slot, cause: Option<Errno>);
}

/// Whether an error on a socket means no more than that the peer has closed it.
pub(super) fn is_peer_gone(cause: Errno) -> bool {
    matches!(cause, Errno::PIPE | Errno::CONNRESET)
}
