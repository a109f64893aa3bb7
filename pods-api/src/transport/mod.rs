//! Moves bytes between sockets and protocol state machines: the worker threads, their io_uring and epoll drivers,
//! and the listening socket.
//!
//! A [`Reactor`] owns the [`Listener`] and one thread per worker. Each worker has a driver of its own and serves the
//! connections it was given for their whole life, so nothing about a connection is shared between threads.

mod bell;
mod buffers;
mod bulk;
mod choice;
mod counters;
mod driver;
mod epoll;
mod listener;
mod op;
mod placement;
mod probe;
mod protocol;
mod reactor;
mod ring;
mod shared;
mod start;
mod table;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod worker;

pub use choice::{Transport, UnknownTransport};
pub use counters::{Close, Count, Counters, DriverKind, Status, WorkerStatus};
pub use listener::{BindError, Listener, ListenerConfig, Owner, Rebound, SocketGroup};
pub use probe::RingError;
pub use protocol::{Accept, Outgoing, Protocol};
pub use reactor::{Drained, Reactor, ReactorConfig, ReactorMonitor};
pub use start::StartError;
