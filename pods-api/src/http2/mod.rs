//! A sans-I/O HTTP/2 server connection (RFC 9113) with HPACK (RFC 7541); knows nothing of gRPC.
//!
//! The owner hands received bytes to [`Connection::receive`], drains [`Connection::next_event`], answers with the
//! `send_*` methods and moves what may leave into the socket's queue with [`Connection::gather`]. Nothing here blocks,
//! reads a clock or touches a socket; a connection belongs to one worker thread. Whatever the peer sends, memory and
//! time are bounded by [`Config`].

mod block;
mod config;
mod connection;
mod error;
mod events;
mod flow;
mod frame;
mod headers;
pub mod hpack;
mod rates;
mod receive;
mod repeat;
mod request;
mod send;
mod sender;
mod settings;
mod streams;
mod writer;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use block::FieldBlock;
pub use config::Config;
pub use connection::Connection;
pub use error::{ErrorCode, StreamClosed};
pub use events::{Event, FieldIter, Fields, RequestHead, StreamId};
pub use rates::Limit;
