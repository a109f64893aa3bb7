//! The first sync of many watches at once: what a restart of every agent on the node costs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::channels::Target;
use super::watchers::Watchers;
use crate::measure::{Cost, Latency, Memory, Summary};

const LIMIT: Duration = Duration::from_secs(120);

/// What a first sync showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SyncOutcome {
    pub(crate) watches: u64,
    /// ADDED events received by all watches together.
    pub(crate) pods: u64,
    pub(crate) message_bytes: u64,
    /// From opening the first connection to each watch's INITIAL_SYNC_COMPLETE.
    pub(crate) synced: Summary,
    pub(crate) server: Option<Cost>,
    pub(crate) client: Cost,
    /// The server's memory while all watches are open.
    pub(crate) memory: Option<Memory>,
}

/// Opens `connections` times `streams` watches at once and receives until each is synchronised.
pub(crate) fn first_sync(target: &Target, connections: usize, streams: usize) -> anyhow::Result<SyncOutcome> {
    let meter = target.meter()?;
    let mut watchers = Watchers::open(target, connections, streams)?;
    watchers.sync(LIMIT)?;
    let costs = meter.finish()?;
    let mut synced = Latency::new();
    for watcher in watchers.all() {
        synced.record(watcher.synced_after.unwrap_or(LIMIT));
    }
    Ok(SyncOutcome {
        watches: watchers.all().len() as u64,
        pods: watchers.all().iter().map(|watcher| watcher.added).sum(),
        message_bytes: watchers.all().iter().map(|watcher| watcher.message_bytes).sum(),
        synced: synced.summary(),
        server: costs.server,
        client: costs.client,
        memory: target.pid.map(Memory::of).transpose()?,
    })
}
