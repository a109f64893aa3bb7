//! gRPC over HTTP/2: message framing, statuses, deadlines, and the services of this server.

mod caller;
mod connection;
mod counters;
mod deadlines;
mod head;
mod limits;
mod lookup;
mod message;
mod node;
mod options;
mod pods;
mod refusals;
mod request;
mod response;
mod server;
mod status;
mod timeout;
mod tower;
mod watches;
mod whoami;

pub use connection::Connection;
pub use counters::{Api, Method, Rejection, RequestCounters};
pub use limits::{Limits, Scope};
pub use refusals::Refusals;
pub use server::{Acceptor, Server, Shared};
pub use status::{Code, Status};
