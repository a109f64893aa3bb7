//! Connections that come and go: what it costs a server to take a client in, find out who it is, and answer it once.

use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};

use super::channels::{Channels, Target};
use crate::client::{Call, Event};
use crate::measure::{Cost, Latency, Summary};

const LIMIT: Duration = Duration::from_secs(20);

/// What it showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ConnectOutcome {
    pub(crate) connections: u64,
    /// From connecting to the answer.
    pub(crate) latency: Summary,
    pub(crate) server: Option<Cost>,
    pub(crate) client: Cost,
}

/// Makes connections one after the other, each for one call.
pub(crate) fn connect(target: &Target, call: &Call, connections: u64) -> anyhow::Result<ConnectOutcome> {
    ensure!(connections > 0, "at least one connection is needed");
    // The first ones are the warm-up.
    for _ in 0..connections.div_ceil(10) {
        once(target, call)?;
    }
    let (meter, mut latency) = (target.meter()?, Latency::new());
    for _ in 0..connections {
        let start = Instant::now();
        once(target, call)?;
        latency.record(start.elapsed());
    }
    let costs = meter.finish()?;
    Ok(ConnectOutcome { connections, latency: latency.summary(), server: costs.server, client: costs.client })
}

fn once(target: &Target, call: &Call) -> anyhow::Result<()> {
    let mut channels = Channels::connect(target, 1)?;
    ensure!(channels.start(0, call, 0), "no room for a call");
    channels.flush(0)?;
    let (deadline, mut ended) = (Instant::now() + LIMIT, None);
    while ended.is_none() {
        let left = deadline.checked_duration_since(Instant::now()).context("no answer")?;
        let ready = channels.wait(Some(left))?;
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
    match ended {
        Some((0, _)) => Ok(()),
        Some((status, message)) => bail!("refused: code {status}, {message}"),
        None => bail!("no answer"),
    }
}
