//! The commands that load one running server: get, list, watch, fanout, burst, sync, connect.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;

use super::target::{ChangeOptions, TargetOptions};
use crate::client::Call;
use crate::load::{
    self, FanoutOutcome, FanoutPlan, Pace, RequestOutcome, RequestPlan, SyncOutcome, Watchers,
};
use crate::measure::Cost;
use crate::report::text::{Table, micros, print, print_json, quantity};

/// Options of `get` and `list`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct RequestOptions {
    #[command(flatten)]
    target: TargetOptions,
    /// Connections to open.
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Requests at a time on each connection.
    #[arg(long, default_value_t = 1)]
    concurrency: usize,
    /// Requests per second, sent whatever the server does (open loop); without it, each answer starts the next
    /// request (closed loop).
    #[arg(long)]
    rate: Option<f64>,
    /// Open loop: random instead of even gaps between requests.
    #[arg(long, requires = "rate")]
    poisson: bool,
    /// Seconds to measure.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Seconds before that.
    #[arg(long, default_value_t = 0.5)]
    warm_up: f64,
    /// End after so many answers.
    #[arg(long)]
    requests: Option<u64>,
}

/// Options of `watch`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct WatchOptions {
    #[command(flatten)]
    target: TargetOptions,
    #[command(flatten)]
    watches: WatchCount,
    /// Seconds to watch after the first sync.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
}

/// How many watches to open.
#[derive(Clone, Copy, Debug, clap::Args)]
struct WatchCount {
    /// Connections to open.
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Watches on each connection.
    #[arg(long, default_value_t = 1)]
    streams: usize,
}

/// Options of `fanout`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct FanoutOptions {
    #[command(flatten)]
    target: TargetOptions,
    #[command(flatten)]
    watches: WatchCount,
    #[command(flatten)]
    changes: ChangeOptions,
    /// Changes to make.
    #[arg(long, default_value_t = 100)]
    events: u64,
    /// Changes per second.
    #[arg(long, default_value_t = 20.0)]
    rate: f64,
}

/// Options of `burst`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct BurstOptions {
    #[command(flatten)]
    target: TargetOptions,
    #[command(flatten)]
    watches: WatchCount,
    #[command(flatten)]
    changes: ChangeOptions,
    /// Changes to make, all at once.
    #[arg(long, default_value_t = 300)]
    events: u64,
}

/// Options of `sync`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct SyncOptions {
    #[command(flatten)]
    target: TargetOptions,
    #[command(flatten)]
    watches: WatchCount,
}

/// Options of `connect`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ConnectOptions {
    #[command(flatten)]
    target: TargetOptions,
    /// Connections to make.
    #[arg(long, default_value_t = 1_000)]
    connections: u64,
}

pub(super) fn get(options: &RequestOptions) -> anyhow::Result<ExitCode> {
    let target = options.target.target()?;
    let uids = load::list_pods(&target)?.iter().map(load::uid_of).collect::<anyhow::Result<Vec<_>>>()?;
    anyhow::ensure!(!uids.is_empty(), "the server has no pods to get");
    requests(options, &target, uids.iter().map(|uid| Call::get(uid)).collect())
}

pub(super) fn list(options: &RequestOptions) -> anyhow::Result<ExitCode> {
    requests(options, &options.target.target()?, vec![Call::list()])
}

fn requests(options: &RequestOptions, target: &load::Target, calls: Vec<Call>) -> anyhow::Result<ExitCode> {
    let pace = match options.rate {
        Some(rate) => {
            anyhow::ensure!(rate > 0.0 && rate <= 1e6, "--rate must be above 0 and at most 1,000,000");
            Pace::Open { rate, poisson: options.poisson }
        }
        None => Pace::Closed,
    };
    let plan = RequestPlan {
        calls,
        connections: options.connections.max(1),
        streams: options.concurrency.max(1),
        pace,
        warm_up: Duration::try_from_secs_f64(options.warm_up)?,
        duration: Duration::try_from_secs_f64(options.seconds)?,
        requests: options.requests,
    };
    let outcome = load::request(target, &plan)?;
    show(&options.target, &outcome, |table| request_rows(table, &outcome))
}

fn request_rows(table: &mut Table, outcome: &RequestOutcome) {
    table.pair("answered", quantity(outcome.answered as f64));
    for (status, count) in &outcome.failed {
        table.pair(&format!("failed with code {status}"), quantity(*count as f64));
    }
    if outcome.unfinished > 0 {
        table.pair("without answer", quantity(outcome.unfinished as f64));
    }
    table.pair("per second", quantity(outcome.per_second()));
    table.pair(
        "throughput",
        format!("{:.1} MB/s", outcome.message_bytes as f64 * 1e3 / outcome.elapsed_nanos.max(1) as f64),
    );
    table.latency("latency", &outcome.latency);
    if outcome.lateness.count > 0 {
        table.latency("sent late by", &outcome.lateness);
    }
    cost_rows(table, outcome.server.as_ref(), &outcome.client, outcome.answered, "request");
}

fn cost_rows(table: &mut Table, server: Option<&Cost>, client: &Cost, operations: u64, operation: &str) {
    if let Some(server) = server {
        let per = |value: f64| format!("{:.2} per {operation}", value / operations.max(1) as f64);
        let cpu = server.micros_per(operations.max(1));
        table.pair(
            "server CPU",
            format!("{} per {operation}, {:.0}% busy", micros(cpu), server.utilisation() * 1e2),
        );
        table.pair("context switches", per(server.context_switches as f64));
    }
    let limit = if client.utilisation() > 0.9 { ": the client is the limit" } else { "" };
    table.pair("client", format!("{:.0}% busy{limit}", client.utilisation() * 1e2));
}

pub(super) fn watch(options: &WatchOptions) -> anyhow::Result<ExitCode> {
    #[derive(Serialize)]
    struct Outcome {
        watches: usize,
        added: u64,
        changes: u64,
        message_bytes: u64,
        ended: usize,
    }
    let target = options.target.target()?;
    let mut watchers = Watchers::open(&target, options.watches.connections, options.watches.streams)?;
    watchers.sync(Duration::from_secs(60))?;
    let end = Instant::now() + Duration::try_from_secs_f64(options.seconds)?;
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        watchers.receive(left, &mut |_| {})?;
    }
    let all = watchers.all();
    let outcome = Outcome {
        watches: all.len(),
        added: all.iter().map(|watcher| watcher.added).sum(),
        changes: all.iter().map(|watcher| watcher.changes).sum(),
        message_bytes: all.iter().map(|watcher| watcher.message_bytes).sum(),
        ended: watchers.ended(),
    };
    show(&options.target, &outcome, |table| {
        table.pair("watches", quantity(outcome.watches as f64));
        table.pair("pods of the first sync", quantity(outcome.added as f64));
        table.pair("changes", quantity(outcome.changes as f64));
        table.pair("message bytes", quantity(outcome.message_bytes as f64));
        table.pair("watches ended", quantity(outcome.ended as f64));
    })
}

pub(super) fn fanout(options: &FanoutOptions) -> anyhow::Result<ExitCode> {
    fan_out(&options.target, &options.changes, options.watches, options.events, options.rate)
}

pub(super) fn burst(options: &BurstOptions) -> anyhow::Result<ExitCode> {
    fan_out(&options.target, &options.changes, options.watches, options.events, f64::INFINITY)
}

fn fan_out(
    target_options: &TargetOptions,
    change_options: &ChangeOptions,
    watches: WatchCount,
    events: u64,
    rate: f64,
) -> anyhow::Result<ExitCode> {
    anyhow::ensure!(rate > 0.0, "--rate must be above 0");
    let target = target_options.target()?;
    let mut changes = change_options.changes(&target)?;
    let plan = FanoutPlan {
        connections: watches.connections,
        streams: watches.streams,
        warm_up: 5,
        changes: events,
        rate,
    };
    let outcome = load::fan_out(&target, &mut changes, plan)?;
    show(target_options, &outcome, |table| fanout_rows(table, &outcome))
}

fn fanout_rows(table: &mut Table, outcome: &FanoutOutcome) {
    table.pair("watches", quantity(outcome.watches as f64));
    table.pair("changes", quantity(outcome.changes as f64));
    table.pair("deliveries", quantity(outcome.deliveries as f64));
    table.pair("watches ended", quantity(outcome.ended as f64));
    table.latency("to the first watch", &outcome.first);
    table.latency("to each watch", &outcome.each);
    table.latency("to the last watch", &outcome.last);
    cost_rows(table, outcome.server.as_ref(), &outcome.client, outcome.deliveries, "delivery");
}

pub(super) fn sync(options: &SyncOptions) -> anyhow::Result<ExitCode> {
    let target = options.target.target()?;
    let outcome = load::first_sync(&target, options.watches.connections, options.watches.streams)?;
    show(&options.target, &outcome, |table| sync_rows(table, &outcome))
}

fn sync_rows(table: &mut Table, outcome: &SyncOutcome) {
    table.pair("watches", quantity(outcome.watches as f64));
    table.pair("pods received", quantity(outcome.pods as f64));
    table.latency("synchronised after", &outcome.synced);
    if let Some(memory) = &outcome.memory {
        table.pair("server memory", format!("{} MB resident", memory.resident / 1_000_000));
    }
    cost_rows(table, outcome.server.as_ref(), &outcome.client, outcome.pods, "pod");
}

pub(super) fn connect(options: &ConnectOptions) -> anyhow::Result<ExitCode> {
    let target = options.target.target()?;
    let pods = load::list_pods(&target)?;
    let uid = load::uid_of(pods.first().context("the server has no pod to get")?)?;
    let outcome = load::connect(&target, &Call::get(&uid), options.connections)?;
    show(&options.target, &outcome, |table| {
        table.pair("connections", quantity(outcome.connections as f64));
        table.latency("to the answer", &outcome.latency);
        cost_rows(table, outcome.server.as_ref(), &outcome.client, outcome.connections, "connection");
    })
}

/// Prints an outcome, as JSON or as a table.
fn show(
    target: &TargetOptions,
    outcome: &impl Serialize,
    rows: impl FnOnce(&mut Table),
) -> anyhow::Result<ExitCode> {
    if target.json {
        print_json(outcome)?;
    } else {
        let mut table = Table::pairs();
        rows(&mut table);
        print(&table.to_string());
    }
    Ok(ExitCode::SUCCESS)
}
