//! Live status from the container runtime: the CRI client, the runtime's events, the status rules and the relist
//! loop that ties them together. Everything but `status` (pure) and `live` (the store's) runs on the `runtime` thread.

mod live;
pub mod status;

pub use live::Divergences;
