//! gRPC over HTTP/2: message framing, statuses, deadlines, and the services of this server.

mod counters;
mod limits;
mod message;
mod status;
mod timeout;
mod tower;

pub use counters::{Api, Method, Rejection, RequestCounters};
pub use limits::{Limits, Scope};
pub use status::{Code, Status};
