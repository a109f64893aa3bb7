//! Live status from container runtimes: a fake one for what real ones do seldom, and a real containerd.

mod bench;
mod containerd;
mod fake;
mod faults;
mod live;
pub(crate) mod node;
