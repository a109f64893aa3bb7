//! How a server grows with its node: from 100 to 10,000 pods, and with pods of 15 to 40 kB.
//!
//! What an event or a request costs should depend on one pod, not on how many there are; this measures the
//! exponents. Each node is a fresh server process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::client::Call;
use crate::compare::{Program, Server, Site};
use crate::generate::Plan;
use crate::load::{self, FanoutPlan, Pace, RequestPlan};
use crate::measure::fit_power_law;
use crate::report::text::{progress, progress_done};
use crate::report::{Density, DensityPoint, DensitySeries};

const SEED: u64 = 1;
/// Pods of this size make the series over which growth is fitted.
const SERIES_POD_BYTES: usize = 6_000;

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct DensityPlan {
    pub(crate) program: Program,
    /// Nodes as (pods, bytes of each pod).
    pub(crate) nodes: Vec<(usize, usize)>,
    /// Seconds of each unary measurement.
    pub(crate) seconds: f64,
    /// Changes of each measurement with events.
    pub(crate) changes: u64,
}

impl DensityPlan {
    /// Nodes far beyond today's limit of pods, and today's nodes with the largest pods people report.
    pub(crate) fn full_nodes() -> Vec<(usize, usize)> {
        let series = [100, 300, 1_000, 3_000, 10_000].map(|pods| (pods, SERIES_POD_BYTES));
        let large = [(110, 15_000), (250, 15_000), (110, 40_000), (250, 40_000)];
        series.into_iter().chain(large).collect()
    }

    pub(crate) fn quick_nodes() -> Vec<(usize, usize)> {
        vec![(100, SERIES_POD_BYTES), (600, SERIES_POD_BYTES), (3_000, SERIES_POD_BYTES), (110, 15_000)]
    }
}

/// Measures every node.
pub(crate) fn density(plan: &DensityPlan, interrupted: &Arc<AtomicBool>) -> anyhow::Result<Density> {
    let cpus = crate::launch::cpus()?;
    if let Some((_, client)) = cpus {
        crate::launch::pin(client)?;
    }
    let mut points = Vec::new();
    for &(pods, pod_bytes) in &plan.nodes {
        ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
        progress(&format!("density: {pods} pods of {pod_bytes} bytes"));
        let site = Site::new(Plan { pods, pod_bytes, seed: SEED }, cpus, None)?;
        let point = measure_node(plan, &site, pods)
            .with_context(|| format!("node of {pods} pods of {pod_bytes} bytes"))?;
        points.push(point);
    }
    progress_done();
    let series = series(&points);
    Ok(Density { server: plan.program.name().to_owned(), points, series })
}

fn measure_node(plan: &DensityPlan, site: &Site, pods: usize) -> anyhow::Result<DensityPoint> {
    let mut figures = BTreeMap::new();
    let mut keep = |name: &str, value: f64| figures.insert(name.to_owned(), value);
    let began = Instant::now();
    let mut server = site.start(&plan.program)?;
    keep("start ms", began.elapsed().as_secs_f64() * 1e3);
    site.keep_dump(&server)?;
    let pod_bytes = site.pods_bytes()? / pods as u64;

    let sync = load::first_sync(&server.target, 1, 1)?;
    keep("first sync ms", sync.synced.p50 as f64 / 1e6);
    keep("first sync CPU µs", sync.server.unwrap_or_default().micros_per(1));

    let get = unary(plan, &server, uid_calls(&server)?)?;
    keep("get p50 µs", get.latency.p50 as f64 / 1e3);
    keep("get CPU µs", get.server.unwrap_or_default().micros_per(get.answered.max(1)));

    let list = unary(plan, &server, vec![Call::list()])?;
    keep("list p50 µs", list.latency.p50 as f64 / 1e3);
    keep("list CPU µs", list.server.unwrap_or_default().micros_per(list.answered.max(1)));

    let (target, changes) = server.changes()?;
    let after = load::list_after_event(target, changes, plan.changes)?;
    keep("event to one watch p50 µs", after.event.p50 as f64 / 1e3);
    keep("list after event p50 µs", after.list.p50 as f64 / 1e3);

    let events = FanoutPlan { connections: 0, streams: 1, warm_up: 2, changes: plan.changes, rate: 50.0 };
    let intake = load::fan_out(target, changes, events)?;
    keep("change CPU µs", intake.server.unwrap_or_default().micros_per(intake.changes.max(1)));

    keep("resident MB", server.memory()?.resident as f64 / 1e6);
    Ok(DensityPoint { pods, pod_bytes, figures })
}

fn uid_calls(server: &Server) -> anyhow::Result<Vec<Call>> {
    load::list_pods(&server.target)?.iter().map(|pod| Ok(Call::get(&load::uid_of(pod)?))).collect()
}

fn unary(plan: &DensityPlan, server: &Server, calls: Vec<Call>) -> anyhow::Result<load::RequestOutcome> {
    let plan = RequestPlan {
        calls,
        connections: 1,
        streams: 1,
        pace: Pace::Closed,
        warm_up: Duration::from_secs_f64(plan.seconds / 5.0),
        duration: Duration::from_secs_f64(plan.seconds),
        requests: None,
    };
    load::request(&server.target, &plan)
}

/// Every figure over the nodes whose pods have the size of the series.
fn series(points: &[DensityPoint]) -> Vec<DensitySeries> {
    let near = |bytes: u64| bytes.abs_diff(SERIES_POD_BYTES as u64) < SERIES_POD_BYTES as u64 / 4;
    let in_series: Vec<&DensityPoint> = points.iter().filter(|point| near(point.pod_bytes)).collect();
    let names = in_series.first().map(|point| point.figures.keys().cloned()).into_iter().flatten();
    let series = names.map(|figure| {
        let points: Vec<(f64, f64)> = in_series
            .iter()
            .filter_map(|point| Some((point.pods as f64, *point.figures.get(&figure)?)))
            .collect();
        DensitySeries { fit: fit_power_law(&points), figure, points }
    });
    series.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_is_fitted_over_pods_of_one_size_only() {
        let point = |pods: usize, pod_bytes, list: f64| DensityPoint {
            pods,
            pod_bytes,
            figures: [("list CPU µs".to_owned(), list)].into(),
        };
        let points = [point(100, 6_100, 10.0), point(1_000, 5_900, 100.0), point(110, 40_000, 5_000.0)];
        let series = series(&points);
        assert_eq!(series.len(), 1);
        assert_eq!(series[0].points, [(100.0, 10.0), (1_000.0, 100.0)]);
        assert!((series[0].fit.unwrap().exponent - 1.0).abs() < 1e-9);
    }
}
