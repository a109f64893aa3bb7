//! ListPods right after an event: what a server pays to have its list in order again.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::changes::Changes;
use super::channels::{Channels, Target};
use super::watchers::Watchers;
use crate::client::{Call, Event};
use crate::measure::{Cost, Latency, Summary};

const LIMIT: Duration = Duration::from_secs(10);

/// What the workload showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct AfterEventOutcome {
    pub(crate) lists: u64,
    /// Of each ListPods, sent as soon as a watch has shown the change.
    pub(crate) list: Summary,
    /// From the change to the watch that shows it.
    pub(crate) event: Summary,
    /// For the changes, their delivery to one watch, and the lists together.
    pub(crate) server: Option<Cost>,
    pub(crate) client: Cost,
}

/// Makes a change, waits for its event, lists; `rounds` times.
pub(crate) fn list_after_event(
    target: &Target,
    changes: &mut Changes,
    rounds: u64,
) -> anyhow::Result<AfterEventOutcome> {
    let mut watchers = Watchers::open(target, 1, 1)?;
    watchers.sync(LIMIT)?;
    let mut channels = Channels::connect(target, 1)?;
    list(&mut channels)?;
    let meter = target.meter()?;
    let (mut latency, mut events) = (Latency::new(), Latency::new());
    for _ in 0..rounds {
        let staged = changes.stage()?;
        let sequence = staged.sequence;
        let published = staged.publish()?;
        events.record(await_event(&mut watchers, sequence)? - published);
        latency.record(list(&mut channels)?);
    }
    let costs = meter.finish()?;
    Ok(AfterEventOutcome {
        lists: rounds,
        list: latency.summary(),
        event: events.summary(),
        server: costs.server,
        client: costs.client,
    })
}

fn await_event(watchers: &mut Watchers, sequence: u64) -> anyhow::Result<Instant> {
    let deadline = Instant::now() + LIMIT;
    let mut seen = None;
    while seen.is_none() {
        let left = deadline
            .checked_duration_since(Instant::now())
            .with_context(|| format!("change {sequence} was not seen within {LIMIT:?}"))?;
        watchers.receive(left, &mut |delivery| {
            if delivery.sequence == Some(sequence) {
                seen = Some(delivery.at);
            }
        })?;
    }
    seen.context("the loop ends with a time")
}

fn list(channels: &mut Channels) -> anyhow::Result<Duration> {
    let began = Instant::now();
    ensure!(channels.start(0, &Call::list(), 0), "no room for a ListPods");
    channels.flush(0)?;
    let mut ended = None;
    while ended.is_none() {
        let ready = channels.wait(None)?;
        if !ready.is_empty() {
            channels.read(0, &mut |event| {
                if let Event::End { status, message, .. } = event {
                    ended = Some((status, message.to_owned()));
                }
            })?;
            channels.flush(0)?;
        }
        channels.done_with(ready);
    }
    if let Some((status, message)) = ended.filter(|(status, _)| *status != 0) {
        anyhow::bail!("ListPods failed: code {status}, {message}");
    }
    Ok(began.elapsed())
}
