//! Pods that have left, kept findable for a while.
//!
//! A log shipper asks for a pod's metadata after the pod is gone (WATCH-8). Bounded in time by the store's
//! configuration and in number by [`MAX_TOMBSTONES`]: the oldest go first. Only the store's thread edits.

use super::id::{ContainerId, Namespace, PodName, PodUid, Revision};
use super::index::Index;
use super::record::Record;
use imbl::{OrdMap, Vector};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The most tombstones kept, whatever their age.
pub const MAX_TOMBSTONES: usize = 4096;

/// A pod that has left.
#[derive(Debug, Clone)]
pub struct Tombstone {
    /// Its last state.
    pub record: Arc<Record>,
    /// The revision of its DELETED event.
    pub deleted: Revision,
    /// When it left, on the monotonic clock.
    pub left: Instant,
}

/// Tombstones by UID, name and address.
#[derive(Debug, Clone, Default)]
pub(super) struct Tombstones {
    by_uid: OrdMap<PodUid, Tombstone>,
    index: Index,
    /// The order of leaving. May hold pods that have come back since: their entry no longer fits `by_uid`.
    queue: Vector<(PodUid, Revision)>,
    held_bytes: usize,
}

impl Tombstones {
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(super) fn len(&self) -> usize {
        self.by_uid.len()
    }

    pub(super) fn get(&self, uid: &str) -> Option<&Tombstone> {
        self.by_uid.get(uid)
    }

    pub(super) fn by_name<'a>(
        &'a self,
        namespace: &Namespace,
        name: &PodName,
    ) -> impl Iterator<Item = &'a Tombstone> {
        self.index.by_name(namespace, name).filter_map(|uid| self.by_uid.get(uid))
    }

    pub(super) fn by_ip(&self, ip: IpAddr) -> impl Iterator<Item = &Tombstone> {
        self.index.by_ip(ip).filter_map(|uid| self.by_uid.get(uid))
    }

    pub(super) fn by_container<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a ContainerId, &'a PodUid, bool)> {
        self.index.by_container(prefix)
    }

    /// Takes in a pod that has just left.
    pub(super) fn insert(&mut self, tombstone: Tombstone) {
        let uid = tombstone.record.uid().clone();
        self.remove(&uid);
        self.held_bytes += tombstone.record.held_bytes();
        self.index.replace(None, &tombstone.record);
        self.queue.push_back((uid.clone(), tombstone.deleted));
        self.by_uid.insert(uid, tombstone);
        while self.queue.len() > MAX_TOMBSTONES {
            self.remove_oldest();
        }
    }

    /// Forgets the tombstone of a pod that is back.
    pub(super) fn remove(&mut self, uid: &PodUid) {
        if let Some(old) = self.by_uid.remove(uid) {
            self.held_bytes -= old.record.held_bytes();
            self.index.remove(&old.record);
        }
    }

    /// Forgets what has been kept for `keep` at `now`, and says whether anything was.
    pub(super) fn expire(&mut self, now: Instant, keep: Duration) -> bool {
        let before = self.queue.len();
        while self.oldest().is_some_and(|left| now.saturating_duration_since(left) >= keep) {
            self.remove_oldest();
        }
        self.queue.len() < before
    }

    /// When the oldest tombstone's pod left.
    pub(super) fn oldest(&mut self) -> Option<Instant> {
        loop {
            let (uid, deleted) = self.queue.front()?;
            match self.by_uid.get(uid) {
                Some(tombstone) if tombstone.deleted == *deleted => return Some(tombstone.left),
                _ => self.queue.pop_front(),
            };
        }
    }

    fn remove_oldest(&mut self) {
        let Some((uid, deleted)) = self.queue.pop_front() else { return };
        if self.by_uid.get(&uid).is_some_and(|tombstone| tombstone.deleted == deleted) {
            self.remove(&uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::record::ByteMeter;
    use crate::pod::testing::PodSketch;

    fn tombstone(uid: &str, deleted: u64, left: Instant) -> Tombstone {
        let record =
            Record::new(&PodSketch::new(uid).source_pod(), Revision(1), &ByteMeter::default()).unwrap();
        Tombstone { record: Arc::new(record), deleted: Revision(deleted), left }
    }

    #[test]
    fn tombstone_expires_after_its_time_and_not_before() {
        let (start, keep) = (Instant::now(), Duration::from_secs(60));
        let mut tombstones = Tombstones::default();
        tombstones.insert(tombstone("a", 1, start));
        tombstones.insert(tombstone("b", 2, start + Duration::from_secs(30)));
        assert!(!tombstones.expire(start + Duration::from_secs(59), keep));
        assert!(tombstones.expire(start + keep, keep));
        assert!(tombstones.get("a").is_none() && tombstones.get("b").is_some());
        assert!(tombstones.expire(start + Duration::from_secs(90), keep));
        assert_eq!((tombstones.len(), tombstones.held_bytes()), (0, 0));
    }

    #[test]
    fn pod_that_leaves_twice_is_kept_from_the_second_time() {
        let (start, keep) = (Instant::now(), Duration::from_secs(60));
        let mut tombstones = Tombstones::default();
        tombstones.insert(tombstone("a", 1, start));
        tombstones.remove(&"a".into());
        tombstones.insert(tombstone("a", 5, start + Duration::from_secs(50)));
        tombstones.expire(start + Duration::from_secs(100), keep);
        assert_eq!(tombstones.get("a").map(|tombstone| tombstone.deleted), Some(Revision(5)));
    }

    #[test]
    fn number_of_tombstones_is_bounded() {
        let start = Instant::now();
        let mut tombstones = Tombstones::default();
        for number in 0..=MAX_TOMBSTONES as u64 {
            tombstones.insert(tombstone(&number.to_string(), number, start));
        }
        assert_eq!(tombstones.len(), MAX_TOMBSTONES);
        assert!(tombstones.get("0").is_none() && tombstones.get("1").is_some());
    }
}
