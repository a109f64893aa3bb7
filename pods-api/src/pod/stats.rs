//! What the store counts, for metrics. Written by the store's thread alone, read by anyone.

use super::change::ChangeKind;
use super::snapshot::Snapshot;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the buckets that publish durations are counted in, in seconds; the last bucket is open.
pub const PUBLISH_SECONDS: [f64; 8] = [0.000_01, 0.000_05, 0.000_1, 0.000_5, 0.001, 0.005, 0.025, 0.1];

/// Counters and gauges of the store. Every access is Relaxed: the values are independent of each other.
#[derive(Debug, Default)]
pub struct StoreStats {
    events: [AtomicU64; 3],
    rejected: AtomicU64,
    publish_buckets: [AtomicU64; PUBLISH_SECONDS.len() + 1],
    publish_nanoseconds: AtomicU64,
    pods: AtomicU64,
    tombstones: AtomicU64,
    pod_bytes: AtomicU64,
    revision: AtomicU64,
}

/// Publications by how long they took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PublishHistogram {
    /// How many fell into each bucket of [`PUBLISH_SECONDS`], not cumulated; the last one counts the longer ones.
    pub buckets: [u64; PUBLISH_SECONDS.len() + 1],
    /// All durations together.
    pub sum: Duration,
}

impl StoreStats {
    /// Events of one kind since the start.
    #[must_use]
    pub fn events(&self, kind: ChangeKind) -> u64 {
        self.events[kind as usize].load(Ordering::Relaxed)
    }

    /// Pods that a source gave and that could not be read as a Pod.
    #[must_use]
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    /// Pods now served.
    #[must_use]
    pub fn pods(&self) -> u64 {
        self.pods.load(Ordering::Relaxed)
    }

    /// Pods that have left and are still findable.
    #[must_use]
    pub fn tombstones(&self) -> u64 {
        self.tombstones.load(Ordering::Relaxed)
    }

    /// The bytes of all pods now served, tombstones included.
    #[must_use]
    pub fn pod_bytes(&self) -> u64 {
        self.pod_bytes.load(Ordering::Relaxed)
    }

    /// The newest revision.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Relaxed)
    }

    /// How long publications took, from the first update of a batch to the last waker.
    #[must_use]
    pub fn publish_histogram(&self) -> PublishHistogram {
        PublishHistogram {
            buckets: std::array::from_fn(|index| self.publish_buckets[index].load(Ordering::Relaxed)),
            sum: Duration::from_nanos(self.publish_nanoseconds.load(Ordering::Relaxed)),
        }
    }

    pub(super) fn count_event(&self, kind: ChangeKind) {
        self.events[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn published(&self, snapshot: &Snapshot, took: Duration) {
        let seconds = took.as_secs_f64();
        let bucket =
            PUBLISH_SECONDS.iter().position(|bound| seconds <= *bound).unwrap_or(PUBLISH_SECONDS.len());
        self.publish_buckets[bucket].fetch_add(1, Ordering::Relaxed);
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.publish_nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        self.pods.store(snapshot.len() as u64, Ordering::Relaxed);
        self.tombstones.store(snapshot.tombstone_count() as u64, Ordering::Relaxed);
        self.pod_bytes.store(snapshot.held_bytes() as u64, Ordering::Relaxed);
        self.revision.store(snapshot.revision().0, Ordering::Relaxed);
    }
}
