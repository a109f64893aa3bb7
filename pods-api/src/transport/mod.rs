//! Moves bytes between sockets and protocol state machines: the worker threads, their io_uring and epoll drivers,
//! and the listening socket.

mod protocol;

pub use protocol::{Accept, Outgoing, Protocol};
