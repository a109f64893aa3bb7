//! What is measured and how: latencies, and a server's cost seen from outside.

mod cgroup;
mod cost;
mod latency;
mod meter;
mod statistics;
mod syscalls;

pub(crate) use cgroup::ServerCgroups;
pub(crate) use cost::{Cost, Memory, Usage};
pub(crate) use latency::{Latency, Summary};
pub(crate) use meter::Meter;
pub(crate) use statistics::{Fit, Spread, fit_power_law};
pub(crate) use syscalls::SyscallCount;
