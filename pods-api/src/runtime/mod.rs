//! Live status from the container runtime: the CRI client, the runtime's events, the status rules and the relist
//! loop that ties them together. Everything but `status` (pure) runs on the `runtime` thread.

pub mod status;
