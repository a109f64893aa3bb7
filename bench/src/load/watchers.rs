//! Open watches: what each has received, and when.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use super::channels::{Channels, Target};
use crate::client::{Call, Event};
use crate::generate::sequence_of;

const ADDED: u8 = 1;
const INITIAL_SYNC_COMPLETE: u8 = 4;

/// How much of each event is looked at: its type and the pod's annotations are in it.
pub(crate) const CAPTURE_BYTES: usize = 2_048;

/// Watches of one server.
pub(crate) struct Watchers {
    channels: Channels,
    watchers: Vec<Watcher>,
    opened: Instant,
}

/// What one watch has received.
#[derive(Clone, Debug, Default)]
pub(crate) struct Watcher {
    /// Pods of the first sync.
    pub(crate) added: u64,
    /// Events after it.
    pub(crate) changes: u64,
    pub(crate) message_bytes: u64,
    /// When INITIAL_SYNC_COMPLETE arrived, after opening.
    pub(crate) synced_after: Option<Duration>,
    /// Set when the server ended the watch: the gRPC code and its text.
    pub(crate) ended: Option<(u32, String)>,
}

/// An event after the first sync.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivery {
    pub(crate) at: Instant,
    /// The number of the change, if the pod carries one.
    pub(crate) sequence: Option<u64>,
}

impl Watchers {
    /// Opens `connections` times `streams` watches; the first sync has then only begun.
    pub(crate) fn open(target: &Target, connections: usize, streams: usize) -> anyhow::Result<Self> {
        let mut target = target.clone();
        target.settings.capture_bytes = CAPTURE_BYTES;
        let opened = Instant::now();
        let mut channels = Channels::connect(&target, connections)?;
        let call = Call::watch();
        for channel in 0..connections {
            for stream in 0..streams {
                let tag = (channel * streams + stream) as u64;
                ensure!(channels.start(channel, &call, tag), "no room for {streams} watches on a connection");
            }
            channels.flush(channel)?;
        }
        Ok(Self { channels, watchers: vec![Watcher::default(); connections * streams], opened })
    }

    pub(crate) fn all(&self) -> &[Watcher] {
        &self.watchers
    }

    pub(crate) fn ended(&self) -> usize {
        self.watchers.iter().filter(|watcher| watcher.ended.is_some()).count()
    }

    /// Receives until every watch has had its first sync.
    pub(crate) fn sync(&mut self, limit: Duration) -> anyhow::Result<()> {
        let deadline = Instant::now() + limit;
        while self.watchers.iter().any(|watcher| watcher.synced_after.is_none()) {
            let left = deadline.checked_duration_since(Instant::now()).with_context(|| {
                let missing = self.watchers.iter().filter(|watcher| watcher.synced_after.is_none()).count();
                format!("{missing} watches without a first sync after {limit:?}")
            })?;
            self.receive(left, &mut |_| {})?;
            let ended = self.watchers.iter().find_map(|watcher| watcher.ended.as_ref());
            if let Some((status, message)) = ended {
                anyhow::bail!("a watch ended during the first sync: code {status}, {message}");
            }
        }
        Ok(())
    }

    /// Waits at most so long for something to arrive, and takes it.
    pub(crate) fn receive(&mut self, timeout: Duration, on: &mut dyn FnMut(Delivery)) -> anyhow::Result<()> {
        let ready = self.channels.wait(Some(timeout))?;
        for channel in &ready {
            let (watchers, opened) = (&mut self.watchers, self.opened);
            let mut at = None;
            self.channels.read(*channel, &mut |event| {
                // One clock reading per read: what it returns has arrived together.
                let at = *at.get_or_insert_with(Instant::now);
                match event {
                    Event::Message { tag, length, head } => {
                        let watcher = &mut watchers[tag as usize];
                        watcher.message_bytes += length as u64;
                        // The first field of a WatchPodsEvent is its type, a one-byte varint.
                        match head {
                            [0x08, INITIAL_SYNC_COMPLETE, ..] => watcher.synced_after = Some(at - opened),
                            [0x08, ADDED, ..] if watcher.synced_after.is_none() => watcher.added += 1,
                            _ => {
                                watcher.changes += 1;
                                on(Delivery { at, sequence: sequence_of(head) });
                            }
                        }
                    }
                    Event::End { tag, status, message } => {
                        watchers[tag as usize].ended = Some((status, message.to_owned()));
                    }
                }
            })?;
            self.channels.flush(*channel)?;
        }
        self.channels.done_with(ready);
        Ok(())
    }
}
