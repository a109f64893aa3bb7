//! The single writer's state: applies updates, numbers events, publishes snapshots.
//!
//! Owned by the store's thread; no other code changes what is served. One publication may hold many events, but every
//! change of a pod is an event with a revision of its own.

use super::cell::Published;
use super::change::Change;
use super::container::ContainerRef;
use super::id::{PodUid, Revision};
use super::live::Live;
use super::merge::{Effects, Sources};
use super::readiness::Readiness;
use super::record::{ByteMeter, Record};
use super::snapshot::Snapshot;
use super::stats::StoreStats;
use super::table::Table;
use super::tombstone::{Tombstone, Tombstones};
use super::update::{SourceId, SourcePod, Update};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Who is told of events. Called on the store's thread; must not block.
pub trait EventSink: Send + 'static {
    /// The events that led to `snapshot`, in order. The snapshot has been published before: whoever subscribes after
    /// this call began loads a snapshot that holds all of them.
    fn publish(&mut self, snapshot: &Snapshot, changes: &[Arc<Change>]);
}

/// Drops every event: for a server without watches, and for tests.
impl EventSink for () {
    fn publish(&mut self, _: &Snapshot, _: &[Arc<Change>]) {}
}

/// The time of one publication, on both clocks: the monotonic one for tombstones, the other for deletionTimestamp.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// The monotonic clock.
    pub instant: Instant,
    /// Seconds since 1970.
    pub unix_seconds: i64,
}

impl Now {
    /// Reads both clocks.
    #[must_use]
    pub fn read() -> Self {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self {
            instant: Instant::now(),
            unix_seconds: i64::try_from(since_1970.as_secs()).unwrap_or(i64::MAX),
        }
    }
}

/// Applies updates and publishes the result.
#[derive(Debug)]
pub struct Writer<S> {
    sources: Sources,
    live: Live,
    table: Table,
    tombstones: Tombstones,
    tombstones_kept_for: Duration,
    revision: Revision,
    changes: Vec<Arc<Change>>,
    /// Whether a publication is due although there is no event.
    is_reindexed: bool,
    delivered: Vec<SourceId>,
    published: Arc<Published<Snapshot>>,
    readiness: Arc<Readiness>,
    stats: Arc<StoreStats>,
    meter: ByteMeter,
    sink: S,
}

impl<S: EventSink> Writer<S> {
    /// Starts with no pods at revision 0. `meter` counts the records' bytes.
    #[must_use]
    pub fn new(
        published: Arc<Published<Snapshot>>,
        readiness: Arc<Readiness>,
        stats: Arc<StoreStats>,
        meter: ByteMeter,
        tombstones_kept_for: Duration,
        sink: S,
    ) -> Self {
        Self {
            sources: Sources::default(),
            live: Live::default(),
            table: Table::default(),
            tombstones: Tombstones::default(),
            tombstones_kept_for,
            revision: Revision::default(),
            changes: Vec::new(),
            is_reindexed: false,
            delivered: Vec::new(),
            published,
            readiness,
            stats,
            meter,
            sink,
        }
    }

    /// Applies updates in order and publishes them together.
    pub fn apply(&mut self, updates: impl IntoIterator<Item = Update>, now: Now) {
        let start = Instant::now();
        for update in updates {
            let effects = match update {
                Update::Set { source, pods } => {
                    self.delivered.push(source);
                    self.sources.set(source, pods, now.instant)
                }
                Update::Changes { source, pods, gone } => {
                    self.sources.change(source, pods, gone, now.instant)
                }
                Update::Live { pods } => {
                    let uids = self.live.update(pods);
                    self.served(uids)
                }
                Update::LiveSet { pods, absent } => {
                    self.delivered.push(SourceId::Cri);
                    self.live.replace(pods, absent);
                    let uids: BTreeSet<_> =
                        self.sources.uids().into_iter().chain(self.live.leaving().cloned()).collect();
                    self.served(uids)
                }
            };
            self.apply_effects(effects, now);
        }
        let expired = self.tombstones.expire(now.instant, self.tombstones_kept_for);
        if expired || std::mem::take(&mut self.is_reindexed) || !self.changes.is_empty() {
            self.publish(start);
        }
        // After the publication: who sees the server ready must find the pods that made it so.
        self.delivered.drain(..).for_each(|source| self.readiness.delivered(source));
    }

    /// What the sources have of some pods now.
    fn served(&self, uids: impl IntoIterator<Item = PodUid>) -> Effects {
        uids.into_iter().map(|uid| (uid.clone(), self.sources.served(&uid))).collect()
    }

    /// When the next tombstone expires.
    pub fn next_expiry(&mut self) -> Option<Instant> {
        self.tombstones.oldest().map(|left| left + self.tombstones_kept_for)
    }

    /// One change set: what leaves goes before what comes, so that of two pods with one name the old one's DELETED
    /// precedes the new one's ADDED (rules A.6.9, E.7.11); then what changed.
    fn apply_effects(&mut self, effects: Effects, now: Now) {
        let (mut added, mut modified) = (Vec::new(), Vec::new());
        for (uid, pod) in effects {
            let shown = self.table.get(uid.as_str()).cloned();
            let pod = self.live.stay(&uid, pod, shown.as_deref(), now);
            let old = shown.map(|old| (old.namespace().clone(), old.name().clone()));
            match (old, pod) {
                (Some(_), None) => self.delete(&uid, now),
                (Some(old), Some(pod)) if old == (pod.namespace.clone(), pod.name.clone()) => {
                    modified.push(pod);
                }
                (Some(_), Some(pod)) => {
                    // Another name under the same UID is another pod.
                    self.delete(&uid, now);
                    added.push(pod);
                }
                (None, Some(pod)) => added.push(pod),
                (None, None) => {}
            }
        }
        for pod in added.into_iter().chain(modified) {
            let shown = self.table.get(pod.uid.as_str()).cloned();
            let base = self.sources.base(&pod.uid);
            let pod = self.live.overlay(pod, base.as_ref(), shown.as_deref(), now);
            self.upsert(&pod, now);
        }
    }

    fn upsert(&mut self, pod: &SourcePod, now: Now) {
        let containers = self.live.containers(&pod.uid);
        if let Some(old) = self.table.get(pod.uid.as_str()).filter(|old| old.pod_bytes() == pod.pod) {
            if containers.iter().any(|container| !old.containers().contains(container)) {
                self.reindex(pod, &containers, old.revision());
            }
            return;
        }
        let revision = Revision(self.revision.0 + 1);
        let record = match Record::with_containers(pod, &containers, revision, &self.meter) {
            Ok(record) => Arc::new(record),
            Err(error) => {
                self.stats.count_rejected();
                tracing::warn!(uid = %pod.uid, namespace = %pod.namespace, name = %pod.name, %error, "pod is unreadable");
                return;
            }
        };
        self.revision = revision;
        self.sources.share(record.uid(), &record.pod());
        self.tombstones.remove(record.uid());
        let change = match self.table.insert(&record) {
            Some(old) => Change::modified(old, record, now.unix_seconds),
            None => Change::added(record, now.unix_seconds),
        };
        self.note(change);
    }

    /// The runtime has more of a pod than its status shows, such as a new sandbox: found by it from now on. That is no
    /// event.
    fn reindex(&mut self, pod: &SourcePod, containers: &[ContainerRef], revision: Revision) {
        if let Ok(record) = Record::with_containers(pod, containers, revision, &self.meter) {
            self.table.insert(&Arc::new(record));
            self.is_reindexed = true;
        }
    }

    fn delete(&mut self, uid: &PodUid, now: Now) {
        let Some(old) = self.table.remove(uid.as_str()) else { return };
        self.revision.0 += 1;
        self.tombstones.insert(Tombstone { record: old.clone(), deleted: self.revision, left: now.instant });
        self.note(Change::deleted(old, self.revision, now.unix_seconds));
    }

    fn note(&mut self, change: Change) {
        tracing::debug!(kind = ?change.kind(), pod = ?change.record(), "pod event");
        self.stats.count_event(change.kind());
        self.changes.push(Arc::new(change));
    }

    fn publish(&mut self, start: Instant) {
        let snapshot = Arc::new(Snapshot::new(self.revision, self.table.clone(), self.tombstones.clone()));
        self.published.store(snapshot.clone());
        self.sink.publish(&snapshot, &self.changes);
        self.changes.clear();
        self.stats.published(&snapshot, start.elapsed());
    }
}

#[cfg(test)]
#[path = "writer_tests.rs"]
mod tests;
