//! Results: kept as JSON, shown as tables and as one HTML page, checked against budgets and older results.

mod against;
mod budgets;
mod html;
mod machine;
mod model;
mod svg;
mod tables;
pub(crate) mod text;

pub(crate) use against::compare_runs;
pub(crate) use budgets::{Budgets, Outcome};
pub(crate) use html::page;
pub(crate) use machine::{Machine, StealClock};
pub(crate) use model::{
    Comparison, Contender, Density, DensityPoint, DensitySeries, Detection, DetectionMode, Entry, ExecCost,
    KernelCosts, PeerCost, Ratio, Run, Sample, Verdict, WorkloadResult,
};
pub(crate) use tables::summary;
