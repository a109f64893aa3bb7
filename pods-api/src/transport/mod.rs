//! Moves bytes between sockets and protocol state machines: the worker threads, their io_uring and epoll drivers,
//! and the listening socket.

mod listener;
mod protocol;
#[cfg(test)]
mod testing;

pub use listener::{BindError, Listener, ListenerConfig, Owner, Rebound, SocketGroup};
pub use protocol::{Accept, Outgoing, Protocol};
