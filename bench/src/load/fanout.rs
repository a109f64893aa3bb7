//! Events to many watches: latency and cost of each delivery.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde::{Deserialize, Serialize};

use super::changes::Changes;
use super::channels::Target;
use super::watchers::Watchers;
use crate::measure::{Cost, Latency, Summary};

const SYNC_LIMIT: Duration = Duration::from_secs(120);
/// How long deliveries are awaited after the last change.
const GRACE: Duration = Duration::from_secs(10);

/// A fan-out workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FanoutPlan {
    pub(crate) connections: usize,
    /// Watches on each connection; with 0 connections only the server's cost of taking in changes is measured.
    pub(crate) streams: usize,
    /// Changes before the measurement.
    pub(crate) warm_up: u64,
    pub(crate) changes: u64,
    /// Changes per second; infinite for a burst: all of them at once.
    pub(crate) rate: f64,
}

/// What a fan-out workload showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct FanoutOutcome {
    pub(crate) watches: u64,
    pub(crate) changes: u64,
    /// Events received by all watches together; fewer than watches times changes when the server coalesced some.
    pub(crate) deliveries: u64,
    /// Watches the server ended.
    pub(crate) ended: u64,
    /// From a change to each watch that has it.
    pub(crate) each: Summary,
    /// From a change to the first watch that has it.
    pub(crate) first: Summary,
    /// From a change to the last watch that has it.
    pub(crate) last: Summary,
    pub(crate) server: Option<Cost>,
    pub(crate) client: Cost,
}

/// Runs a fan-out workload.
pub(crate) fn fan_out(
    target: &Target,
    changes: &mut Changes,
    plan: FanoutPlan,
) -> anyhow::Result<FanoutOutcome> {
    let mut watchers = Watchers::open(target, plan.connections, plan.streams)?;
    watchers.sync(SYNC_LIMIT)?;
    let watches = watchers.all().len() as u64;
    run(&mut watchers, changes, plan.warm_up, 200.0)?;
    let meter = target.meter()?;
    let events = run(&mut watchers, changes, plan.changes, plan.rate)?;
    let costs = meter.finish()?;
    let (mut first, mut last) = (Latency::new(), Latency::new());
    for event in events.by_sequence.values().filter(|event| event.count > 0) {
        first.record(event.first - event.published);
        last.record(event.last - event.published);
    }
    let outcome = FanoutOutcome {
        watches,
        changes: plan.changes,
        deliveries: events.deliveries,
        ended: watchers.ended() as u64,
        each: events.each.summary(),
        first: first.summary(),
        last: last.summary(),
        server: costs.server,
        client: costs.client,
    };
    ensure!(
        watches == 0 || outcome.deliveries > 0,
        "no watch received a change: does the server read the directory that the changes go to?"
    );
    Ok(outcome)
}

struct Events {
    by_sequence: HashMap<u64, Published>,
    each: Latency,
    deliveries: u64,
}

struct Published {
    published: Instant,
    first: Instant,
    last: Instant,
    count: u64,
}

impl Events {
    fn delivered(&mut self, at: Instant, sequence: u64) {
        // A change of the warm-up that arrives late belongs to nobody.
        let Some(event) = self.by_sequence.get_mut(&sequence) else { return };
        if event.count == 0 {
            event.first = at;
        }
        event.last = at;
        event.count += 1;
        self.deliveries += 1;
        self.each.record(at - event.published);
    }
}

/// Publishes changes at a rate and receives until every watch has the newest of each pod, is ended, or the
/// time is up.
fn run(watchers: &mut Watchers, changes: &mut Changes, count: u64, rate: f64) -> anyhow::Result<Events> {
    let mut events = Events { by_sequence: HashMap::new(), each: Latency::new(), deliveries: 0 };
    let gap = Duration::from_secs_f64(1.0 / rate);
    let mut staged = (0..count).map(|_| changes.stage()).collect::<anyhow::Result<Vec<_>>>()?;
    staged.reverse();
    let start = Instant::now();
    let mut published = 0;
    // The newest change of each pod: a server may leave out what it has already superseded.
    let mut newest = HashMap::new();
    let mut awaited: Option<Vec<u64>> = None;
    let mut deadline = start + GRACE;
    loop {
        let now = Instant::now();
        let due = start + gap * published;
        if due <= now
            && let Some(change) = staged.pop()
        {
            let (sequence, pod) = (change.sequence, change.pod);
            let at = change.publish()?;
            events.by_sequence.insert(sequence, Published { published: at, first: at, last: at, count: 0 });
            newest.insert(pod, sequence);
            published += 1;
            deadline = now + GRACE;
            continue;
        }
        if staged.is_empty() {
            let awaited = awaited.get_or_insert_with(|| newest.values().copied().collect());
            let live = (watchers.all().len() - watchers.ended()) as u64;
            while awaited.last().is_some_and(|sequence| events.by_sequence[sequence].count >= live) {
                awaited.pop();
            }
            if awaited.is_empty() || now >= deadline {
                break;
            }
        }
        let wake = if staged.is_empty() { deadline } else { due };
        let mut arrived = Vec::new();
        watchers.receive(wake.saturating_duration_since(now), &mut |delivery| arrived.push(delivery))?;
        for delivery in arrived {
            if let Some(sequence) = delivery.sequence {
                events.delivered(delivery.at, sequence);
            }
        }
    }
    if watchers.all().is_empty() {
        // Nobody tells that the last change has been taken in; give it a moment, at no cost for an idle server.
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(events)
}
