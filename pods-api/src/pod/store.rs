//! The store: a thread that owns the [`Writer`], and the handle through which everyone else reads.
//!
//! Sources send [`Update`]s through a bounded channel. Overflow rule: the sender blocks until the store has caught up;
//! nothing is dropped, and a source that is slowed down sends newer state later. What has queued up while a
//! publication was made becomes the next one, so a burst costs few publications.

use super::cell::{Loaded, Published};
use super::readiness::Readiness;
use super::record::ByteMeter;
use super::snapshot::Snapshot;
use super::stats::StoreStats;
use super::update::{SourceId, Update};
use super::writer::{EventSink, Now, Writer};
use crossbeam::channel::{self, Receiver, Sender};
use std::sync::Arc;
use std::time::Duration;
use std::{io, thread};

/// The most updates of one publication: bounds how long the first of them waits.
const MAX_BATCH: usize = 64;

/// How the store runs.
#[derive(Debug, Clone)]
pub struct StoreConfig {
    /// The sources whose first full set is waited for.
    pub required: Vec<SourceId>,
    /// How long a pod that has left stays findable.
    pub tombstones_kept_for: Duration,
    /// How many updates wait before senders block.
    pub queue: usize,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { required: vec![SourceId::Manifest], tombstones_kept_for: Duration::from_secs(60), queue: 256 }
    }
}

/// What everyone but the store's thread has of it. Cheap to clone.
#[derive(Debug, Clone)]
pub struct PodStore {
    snapshot: Arc<Published<Snapshot>>,
    readiness: Arc<Readiness>,
    stats: Arc<StoreStats>,
    updates: Sender<Update>,
}

impl PodStore {
    /// Starts the store's thread. It publishes into `snapshot`, counts bytes in `meter` and tells `sink` of events.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn spawn(
        config: &StoreConfig,
        snapshot: Arc<Published<Snapshot>>,
        meter: ByteMeter,
        sink: impl EventSink,
    ) -> io::Result<(Self, StoreThread)> {
        let (updates, queue) = channel::bounded(config.queue);
        let (stop, stopped) = channel::bounded(0);
        let readiness = Arc::new(Readiness::new(config.required.iter().copied()));
        let stats = Arc::new(StoreStats::default());
        let store =
            Self { snapshot: snapshot.clone(), readiness: readiness.clone(), stats: stats.clone(), updates };
        let writer = Writer::new(snapshot, readiness, stats, meter, config.tombstones_kept_for, sink);
        let thread =
            thread::Builder::new().name("store".into()).spawn(move || run(writer, &queue, &stopped))?;
        Ok((store, StoreThread { stop, thread }))
    }

    /// Borrows the newest snapshot: for the time of one request.
    pub fn load(&self) -> Loaded<Snapshot> {
        self.snapshot.load()
    }

    /// The newest snapshot, to keep.
    #[must_use]
    pub fn load_full(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Whether the server may answer, and what it waits for.
    #[must_use]
    pub fn readiness(&self) -> &Arc<Readiness> {
        &self.readiness
    }

    /// What the store counts.
    #[must_use]
    pub fn stats(&self) -> &StoreStats {
        &self.stats
    }

    /// Where sources send their updates; a full queue blocks.
    #[must_use]
    pub fn updates(&self) -> Sender<Update> {
        self.updates.clone()
    }

    /// How many updates wait.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.updates.len()
    }
}

/// The store's thread. Stops and is joined on [`StoreThread::stop`]; dropping it stops the thread too.
#[derive(Debug)]
pub struct StoreThread {
    stop: Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl StoreThread {
    /// Whether it still takes updates; it does until it is stopped, unless it has panicked.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !self.thread.is_finished()
    }

    /// Ends the thread; updates that still wait are not applied. Senders get an error from then on.
    ///
    /// # Errors
    /// When the thread had panicked.
    pub fn stop(self) -> thread::Result<()> {
        drop(self.stop);
        self.thread.join()
    }
}

fn run<S: EventSink>(mut writer: Writer<S>, updates: &Receiver<Update>, stopped: &Receiver<()>) {
    loop {
        let expiry = writer.next_expiry().map_or_else(channel::never, channel::at);
        channel::select! {
            recv(stopped) -> _ => return,
            recv(updates) -> update => match update {
                Ok(first) => {
                    let batch = std::iter::once(first).chain(updates.try_iter().take(MAX_BATCH - 1));
                    writer.apply(batch, Now::read());
                }
                Err(channel::RecvError) => return,
            },
            recv(expiry) -> _ => writer.apply([], Now::read()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::PodSketch;
    use std::time::Instant;

    fn eventually(mut condition: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(10);
        while !condition() {
            assert!(Instant::now() < deadline, "condition not met in time");
            thread::yield_now();
        }
    }

    #[test]
    fn updates_are_published_and_tombstones_expire_without_further_updates() {
        let config = StoreConfig { tombstones_kept_for: Duration::from_millis(50), ..Default::default() };
        let published = Arc::new(Published::new(Arc::default()));
        let (store, thread) = PodStore::spawn(&config, published, ByteMeter::default(), ()).unwrap();
        let set = |pods: &[&str]| Update::Set {
            source: SourceId::Manifest,
            pods: pods.iter().map(|uid| PodSketch::new(uid).source_pod()).collect(),
        };
        assert!(!store.readiness().is_ready());
        store.updates().send(set(&["a", "b"])).unwrap();
        eventually(|| store.readiness().is_ready());
        assert_eq!(store.load().len(), 2);
        store.updates().send(set(&["b"])).unwrap();
        eventually(|| store.load().tombstone("a").is_some());
        eventually(|| store.load().tombstone("a").is_none());
        assert_eq!(store.load().revision().0, 3);
        thread.stop().unwrap();
        assert!(store.updates().send(set(&[])).is_err());
    }
}
