//! gRPC over HTTP/2: message framing, statuses, deadlines, and the services of this server.

mod limits;
mod message;
mod status;
mod timeout;

pub use limits::{Limits, Scope};
pub use status::{Code, Status};
