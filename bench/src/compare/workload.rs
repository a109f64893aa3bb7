//! The workloads that servers are compared under.

use std::time::Duration;

use super::contender::Server;
use crate::client::{Call, STOCK_WINDOW_BYTES};
use crate::load::{
    self, Changes, FanoutOutcome, FanoutPlan, Pace, Protocol, RequestOutcome, RequestPlan, Target,
};
use crate::measure::{Cost, Summary};
use crate::report::Sample;

/// How long each measurement takes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Seconds of each unary measurement.
    pub(crate) seconds: f64,
    /// Changes of each fan-out measurement.
    pub(crate) changes: u64,
    /// Rounds of a list after an event.
    pub(crate) lists: u64,
    /// Watches of a first sync, and of a burst.
    pub(crate) watches: usize,
    /// Changes of a burst.
    pub(crate) burst: u64,
}

impl Scale {
    pub(crate) fn full() -> Self {
        Self { seconds: 0.7, changes: 20, lists: 30, watches: 100, burst: 200 }
    }

    pub(crate) fn quick() -> Self {
        Self { seconds: 0.3, changes: 12, lists: 20, watches: 30, burst: 100 }
    }

    /// Just enough to see that everything works.
    pub(crate) fn smoke() -> Self {
        Self { seconds: 0.02, changes: 2, lists: 2, watches: 2, burst: 3 }
    }

    /// For counts that do not vary with time.
    pub(super) fn brief(self) -> Self {
        Self {
            seconds: self.seconds.min(0.2),
            changes: self.changes.min(5),
            lists: self.lists.min(10),
            ..self
        }
    }
}

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Workload {
    /// GetPod in a closed loop.
    Get {
        connections: usize,
        streams: usize,
    },
    /// GetPod at a fixed rate: latency at the same load for all.
    GetAtRate {
        rate: f64,
    },
    /// ListPods in a closed loop, with large or with stock flow-control windows.
    List {
        stock: bool,
    },
    ListAfterEvent,
    FirstSync,
    FanOut {
        connections: usize,
        streams: usize,
    },
    Burst,
}

/// Changes per second of a fan-out: slow enough that every server delivers one before the next comes.
const CHANGE_RATE: f64 = 20.0;
/// Changes per second when only their intake is measured; slow enough that none is joined with the next.
const INTAKE_RATE: f64 = 100.0;

impl Workload {
    /// Workloads on a node of full size.
    pub(super) fn node() -> Vec<Self> {
        vec![
            Self::Get { connections: 1, streams: 1 },
            Self::Get { connections: 32, streams: 8 },
            Self::GetAtRate { rate: 2_000.0 },
            Self::List { stock: false },
            Self::List { stock: true },
            Self::ListAfterEvent,
            Self::FirstSync,
            // Here, so that every change of it is of another pod.
            Self::Burst,
        ]
    }

    /// Workloads that deliver events.
    pub(super) fn fan_out() -> Vec<Self> {
        vec![
            Self::FanOut { connections: 100, streams: 1 },
            Self::FanOut { connections: 1_000, streams: 1 },
            Self::FanOut { connections: 10, streams: 100 },
        ]
    }

    /// Workloads on which a CPU quota tells: what an agent on a small share of a core does to its clients. The others'
    /// cost per operation is the same, and a burst or a first sync is one long wait.
    pub(super) fn node_under_quota() -> Vec<Self> {
        // More than a server can answer on a fifth of a core that takes 80 µs for each.
        vec![Self::Get { connections: 32, streams: 8 }, Self::GetAtRate { rate: 2_500.0 }]
    }

    /// The same where events are delivered.
    pub(super) fn fan_out_under_quota() -> Vec<Self> {
        vec![Self::FanOut { connections: 1_000, streams: 1 }]
    }

    #[cfg(test)]
    pub(crate) fn all() -> Vec<Self> {
        [Self::node(), Self::fan_out()].concat()
    }

    /// The name in results, budgets and `--only`.
    pub(crate) fn id(&self) -> &'static str {
        match self {
            Self::Get { connections: 1, .. } => "get-1x1",
            Self::Get { .. } => "get-32x8",
            Self::GetAtRate { .. } => "get-open",
            Self::List { stock: false } => "list",
            Self::List { stock: true } => "list-stock-windows",
            Self::ListAfterEvent => "list-after-event",
            Self::FirstSync => "sync",
            Self::FanOut { connections: 100, .. } => "fanout-100x1",
            Self::FanOut { connections: 1_000, .. } => "fanout-1000x1",
            Self::FanOut { .. } => "fanout-10x100",
            Self::Burst => "burst",
        }
    }

    pub(crate) fn title(&self) -> String {
        match self {
            Self::Get { connections, streams } => {
                format!("GetPod, {connections} connections x {streams} streams")
            }
            Self::GetAtRate { rate } => format!("GetPod at {rate} per second"),
            Self::List { stock: false } => "ListPods".to_owned(),
            Self::List { stock: true } => "ListPods, 64 KiB windows".to_owned(),
            Self::ListAfterEvent => "ListPods right after an event".to_owned(),
            Self::FirstSync => "first sync of many watches".to_owned(),
            Self::FanOut { connections, streams } => {
                format!("event to {connections} connections x {streams} watches")
            }
            Self::Burst => "burst of events to many watches".to_owned(),
        }
    }

    /// What one operation is.
    pub(crate) fn operation(&self) -> &'static str {
        match self {
            Self::Get { .. } | Self::GetAtRate { .. } | Self::List { .. } => "request",
            Self::ListAfterEvent => "event and list",
            Self::FirstSync => "pod",
            Self::FanOut { .. } | Self::Burst => "delivery",
        }
    }

    /// Whether a server can take part: the floor's protocol has one watch per connection, and no windows.
    pub(super) fn suits(&self, server: &Server) -> bool {
        let http2_only = match self {
            Self::FanOut { streams, .. } => *streams > 1,
            Self::List { stock } => *stock,
            _ => false,
        };
        !(http2_only && server.target.protocol == Protocol::Floor)
    }

    /// Measures a server once.
    pub(crate) fn run(&self, server: &mut Server, scale: Scale) -> anyhow::Result<Sample> {
        match *self {
            Self::Get { connections, streams } => self.get(server, connections, streams, Pace::Closed, scale),
            Self::GetAtRate { rate } => self.get(server, 8, 8, Pace::Open { rate, poisson: true }, scale),
            Self::List { stock } => list(server, stock, scale),
            Self::ListAfterEvent => list_after_event(server, scale),
            Self::FirstSync => first_sync(server, scale),
            Self::FanOut { connections, streams } => fan_out(
                server,
                FanoutPlan { connections, streams, warm_up: 2, changes: scale.changes, rate: CHANGE_RATE },
            ),
            Self::Burst => fan_out(
                server,
                FanoutPlan {
                    connections: scale.watches,
                    streams: 1,
                    warm_up: 2,
                    changes: scale.burst,
                    rate: f64::INFINITY,
                },
            ),
        }
    }

    /// Measures a server once while its system calls are counted.
    pub(super) fn run_counted(&self, server: &mut Server, scale: Scale) -> anyhow::Result<Sample> {
        server.target.count_syscalls = true;
        let sample = self.run(server, scale);
        server.target.count_syscalls = false;
        sample
    }

    fn get(
        &self,
        server: &Server,
        connections: usize,
        streams: usize,
        pace: Pace,
        scale: Scale,
    ) -> anyhow::Result<Sample> {
        let uids =
            load::list_pods(&server.target)?.iter().map(load::uid_of).collect::<anyhow::Result<Vec<_>>>()?;
        let plan = RequestPlan {
            calls: uids.iter().map(|uid| Call::get(uid)).collect(),
            ..unary_plan(connections, streams, pace, scale)
        };
        unary_sample(&load::request(&server.target, &plan)?)
    }
}

fn unary_plan(connections: usize, streams: usize, pace: Pace, scale: Scale) -> RequestPlan {
    RequestPlan {
        calls: vec![Call::list()],
        connections,
        streams,
        pace,
        warm_up: Duration::from_secs_f64(scale.seconds / 5.0),
        duration: Duration::from_secs_f64(scale.seconds),
        requests: None,
    }
}

fn list(server: &Server, stock: bool, scale: Scale) -> anyhow::Result<Sample> {
    let mut target = server.target.clone();
    if stock {
        target.settings.window_bytes = STOCK_WINDOW_BYTES;
    }
    unary_sample(&load::request(&target, &unary_plan(1, 1, Pace::Closed, scale))?)
}

fn unary_sample(outcome: &RequestOutcome) -> anyhow::Result<Sample> {
    let failed = outcome.failed.values().sum::<u64>() + outcome.unfinished;
    let mut sample = sample(outcome.answered, outcome.server, outcome.client, outcome.latency.clone())?;
    sample.per_second = outcome.per_second();
    sample.failed = failed;
    Ok(sample)
}

fn list_after_event(server: &mut Server, scale: Scale) -> anyhow::Result<Sample> {
    let (target, changes) = server.changes()?;
    let intake = intake(target, changes, scale.lists, INTAKE_RATE)?;
    let outcome = load::list_after_event(target, changes, scale.lists)?;
    let sample = sample(outcome.lists, outcome.server, outcome.client, outcome.list)?;
    Ok(without_intake(sample, &intake, outcome.lists))
}

fn first_sync(server: &Server, scale: Scale) -> anyhow::Result<Sample> {
    let outcome = load::first_sync(&server.target, scale.watches, 1)?;
    sample(outcome.pods, outcome.server, outcome.client, outcome.synced)
}

fn fan_out(server: &mut Server, plan: FanoutPlan) -> anyhow::Result<Sample> {
    let (target, changes) = server.changes()?;
    let intake = intake(target, changes, plan.changes, plan.rate)?;
    let outcome = load::fan_out(target, changes, plan)?;
    let mut sample = sample(outcome.deliveries, outcome.server, outcome.client, outcome.last)?;
    sample.failed = outcome.ended;
    Ok(without_intake(sample, &intake, outcome.changes))
}

/// What it costs a server to take in changes that nobody watches.
fn intake(target: &Target, changes: &mut Changes, count: u64, rate: f64) -> anyhow::Result<FanoutOutcome> {
    let plan = FanoutPlan { connections: 0, streams: 1, warm_up: 2, changes: count, rate };
    load::fan_out(target, changes, plan)
}

/// Takes the cost of so many changes out of a sample: it is not the price of delivering them, and only pods-api
/// decodes manifests.
fn without_intake(mut sample: Sample, intake: &FanoutOutcome, changes: u64) -> Sample {
    let cost = intake.server.unwrap_or_default();
    let share = changes as f64 / intake.changes.max(1) as f64 / sample.operations.max(1) as f64;
    sample.cpu_micros -= cost.micros_per(1) * share;
    sample.syscalls = sample.syscalls.zip(cost.syscalls).map(|(all, intake)| all - intake as f64 * share);
    sample
}

fn sample(operations: u64, server: Option<Cost>, client: Cost, latency: Summary) -> anyhow::Result<Sample> {
    anyhow::ensure!(operations > 0, "nothing was answered");
    let server = server.unwrap_or_default();
    Ok(Sample {
        operations,
        cpu_micros: server.micros_per(operations),
        gross_cpu_micros: server.micros_per(operations),
        per_second: operations as f64 / client.elapsed().as_secs_f64(),
        context_switches: server.context_switches as f64 / operations as f64,
        syscalls: server.syscalls.map(|calls| calls as f64 / operations as f64),
        server_utilisation: server.utilisation(),
        client_utilisation: client.utilisation(),
        failed: 0,
        latency,
    })
}
