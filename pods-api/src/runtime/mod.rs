//! Live status from the container runtime: the CRI client, the runtime's events, the status rules and the relist
//! loop that ties them together. Everything but `status` (pure) and `live` (the store's) runs on the `runtime` thread.

mod cri;
mod events;
mod hints;
mod ledger;
mod live;
mod queue;
mod reconcile;
mod report;
mod run;
mod source;
mod statics;
pub mod status;

pub use cri::{CriError, DEFAULT_SOCKETS, RuntimeVersion, SocketChoice};
pub use events::EventSource;
pub use hints::RuntimeHints;
pub use live::Divergences;
pub use report::{RuntimeCounts, RuntimeReport, RuntimeStatus};
pub use source::{RuntimeConfig, RuntimeSource};
