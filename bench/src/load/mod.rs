//! The load engine: many connections and streams, driven by one thread.
//!
//! One thread because a server is measured on one core and its client on another; a client with more threads
//! would compete with the server it measures. Each outcome says how busy the client was, so that a figure that
//! shows the client's limit is not taken for the server's.

mod after_event;
mod changes;
mod channels;
mod connect;
mod discover;
mod fanout;
mod requests;
mod sync;
mod watchers;

#[cfg(test)]
mod tests;

pub(crate) use after_event::list_after_event;
pub(crate) use changes::{ChangeFormat, Changes, fresh_sequence};
pub(crate) use channels::{Channels, Protocol, Target};
pub(crate) use connect::{ConnectOutcome, connect};
pub(crate) use discover::{list_pods, uid_of};
pub(crate) use fanout::{FanoutOutcome, FanoutPlan, fan_out};
pub(crate) use requests::{Pace, RequestOutcome, RequestPlan, request};
pub(crate) use sync::{SyncOutcome, first_sync};
pub(crate) use watchers::Watchers;
