//! The pods of one instant, by UID, name and address.
//!
//! A persistent structure: cloning shares everything, an edit copies O(log n) nodes and one chunk. The store's thread
//! edits its own table and publishes clones of it.

use super::chunk::Chunk;
use super::id::{ContainerId, Namespace, PodName, PodUid, UidPrefix};
use super::index::Index;
use super::record::Record;
use equivalent::{Comparable, Equivalent};
use imbl::OrdMap;
use std::cmp::Ordering;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;

/// Records in UID order, in chunks.
///
/// A chunk's key is a lower bound that stays while its first pods come and go: a UID belongs to the chunk with the
/// greatest key that is not above it. The first chunk's key is the empty text.
#[derive(Debug, Clone, Default)]
pub(super) struct Table {
    chunks: OrdMap<ChunkKey, Arc<Chunk>>,
    index: Index,
    len: usize,
    held_bytes: usize,
}

/// A UID that is the lower bound of a chunk.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ChunkKey {
    prefix: UidPrefix,
    uid: PodUid,
}

impl From<PodUid> for ChunkKey {
    fn from(uid: PodUid) -> Self {
        Self { prefix: UidPrefix::of(uid.as_str()), uid }
    }
}

/// A UID that is looked for among the keys.
struct Wanted<'a> {
    prefix: UidPrefix,
    uid: &'a str,
}

impl<'a> Wanted<'a> {
    fn new(uid: &'a str) -> Self {
        Self { prefix: UidPrefix::of(uid), uid }
    }
}

impl Equivalent<ChunkKey> for Wanted<'_> {
    fn equivalent(&self, key: &ChunkKey) -> bool {
        self.compare(key).is_eq()
    }
}

impl Comparable<ChunkKey> for Wanted<'_> {
    fn compare(&self, key: &ChunkKey) -> Ordering {
        self.prefix.cmp(&key.prefix).then_with(|| self.uid.cmp(key.uid.as_str()))
    }
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bytes of all records, as [`Record::held_bytes`] counts them.
    pub(super) fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    pub(super) fn get(&self, uid: &str) -> Option<&Arc<Record>> {
        let (_, chunk) = self.chunks.get_prev(&Wanted::new(uid))?;
        chunk.get(uid)
    }

    pub(super) fn by_name<'a>(
        &'a self,
        namespace: &Namespace,
        name: &PodName,
    ) -> impl Iterator<Item = &'a Arc<Record>> {
        self.index.by_name(namespace, name).filter_map(|uid| self.get(uid.as_str()))
    }

    pub(super) fn by_ip(&self, ip: IpAddr) -> impl Iterator<Item = &Arc<Record>> {
        self.index.by_ip(ip).filter_map(|uid| self.get(uid.as_str()))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.chunks.values().flat_map(|chunk| chunk.records())
    }

    /// See [`Index::by_container`].
    pub(super) fn by_container<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a ContainerId, &'a PodUid, bool)> {
        self.index.by_container(prefix)
    }

    pub(super) fn chunks(&self) -> impl Iterator<Item = &Arc<Chunk>> {
        self.chunks.values()
    }

    /// The first chunk whose key is above `key`; the very first one for `None`.
    pub(super) fn chunk_after(&self, key: Option<&ChunkKey>) -> Option<(&ChunkKey, &Arc<Chunk>)> {
        match key {
            None => self.chunks.get_min().map(|(key, chunk)| (key, chunk)),
            Some(key) => self.chunks.range::<_, ChunkKey>((Bound::Excluded(key), Bound::Unbounded)).next(),
        }
    }

    /// Puts a record in and returns the one of the same UID that it replaces.
    pub(super) fn insert(&mut self, record: &Arc<Record>) -> Option<Arc<Record>> {
        if self.chunks.is_empty() {
            self.chunks.insert(PodUid::from("").into(), Arc::default());
        }
        self.held_bytes += record.held_bytes();
        let uid = record.uid().as_str();
        let (_, shared) =
            self.chunks.get_prev_mut(&Wanted::new(uid)).expect("the first chunk's key is below every UID");
        let chunk = Arc::make_mut(shared);
        let old = chunk.insert(record.clone());
        let mut uppers = Vec::new();
        chunk.split_all(&mut uppers);
        for upper in uppers {
            let key = upper.records().first().expect("a split leaves pods on both sides").uid().clone();
            self.chunks.insert(key.into(), Arc::new(upper));
        }
        match &old {
            Some(old) => self.held_bytes -= old.held_bytes(),
            None => self.len += 1,
        }
        self.index.replace(old.as_deref(), record);
        old
    }

    /// Takes a record out.
    pub(super) fn remove(&mut self, uid: &str) -> Option<Arc<Record>> {
        let (key, shared) = self.chunks.get_prev_mut(&Wanted::new(uid))?;
        shared.get(uid)?;
        let old = Arc::make_mut(shared).remove(uid)?;
        let key = key.clone();
        self.join_neighbours(&key);
        self.len -= 1;
        self.held_bytes -= old.held_bytes();
        self.index.remove(&old);
        Some(old)
    }

    /// Joins a chunk that has become small with the one before it or after it.
    fn join_neighbours(&mut self, key: &ChunkKey) {
        if let Some((next_key, next)) =
            self.chunk_after(Some(key)).map(|(key, next)| (key.clone(), next.clone()))
        {
            self.join(key, &next_key, &next);
        }
        let Some(chunk) = self.chunks.get(key).cloned() else { return };
        let previous = self.chunks.range(..key.clone()).next_back().map(|(key, _)| key.clone());
        if let Some(previous) = previous {
            self.join(&previous, key, &chunk);
        }
    }

    fn join(&mut self, lower: &ChunkKey, upper: &ChunkKey, upper_chunk: &Chunk) {
        let Some(shared) = self.chunks.get_mut(lower) else { return };
        if shared.is_empty() || upper_chunk.is_empty() || shared.fits_with(upper_chunk) {
            Arc::make_mut(shared).append(upper_chunk);
            self.chunks.remove(upper);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunk::{MAX_BYTES, MAX_PODS};
    use super::*;
    use crate::pod::id::Revision;
    use crate::pod::record::ByteMeter;
    use crate::pod::testing::PodSketch;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn record(uid: &str, padding: usize) -> Arc<Record> {
        let pod = PodSketch::new(uid).padding(padding).source_pod();
        Arc::new(Record::new(&pod, Revision(1), &ByteMeter::default()).unwrap())
    }

    fn check(table: &Table, model: &BTreeMap<String, Arc<Record>>) {
        assert!(table.iter().map(|record| record.uid().as_str()).eq(model.keys()));
        assert_eq!(table.len(), model.len());
        assert_eq!(table.held_bytes(), model.values().map(|record| record.held_bytes()).sum::<usize>());
        let chunks: Vec<_> = table.chunks().collect();
        for chunk in &chunks {
            let bytes: usize = chunk.records().iter().map(|record| record.list_element().len()).sum();
            assert_eq!(chunk.body().len(), bytes);
            assert!(chunk.records().len() <= MAX_PODS);
            assert!(bytes <= MAX_BYTES || chunk.records().len() == 1);
            assert!(!chunk.is_empty() || chunks.len() == 1);
        }
        let joinable = chunks.windows(2).filter(|pair| pair[0].fits_with(pair[1])).count();
        assert!(joinable <= 1 + chunks.len() / 2, "{joinable} of {} chunks could be joined", chunks.len());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn table_equals_a_plain_map(
            operations in prop::collection::vec((0..300u32, any::<bool>(), 0..3usize), 1..400),
        ) {
            let (mut table, mut model) = (Table::default(), BTreeMap::new());
            for (number, insert, size) in operations {
                // Half of the UIDs differ only after the bytes that look-ups compare first.
                let uid = if number % 2 == 0 { format!("{number:x}") } else { format!("12345678-{number:x}") };
                let (got, expected) = if insert {
                    let record = record(&uid, [10, 6_000, 70_000][size]);
                    (table.insert(&record), model.insert(uid.clone(), record))
                } else {
                    (table.remove(&uid), model.remove(&uid))
                };
                prop_assert_eq!(got.map(|record| record.pod()), expected.map(|record| record.pod()));
                prop_assert_eq!(table.get(&uid).is_some(), model.contains_key(&uid));
            }
            check(&table, &model);
            for uid in model.keys() {
                table.remove(uid);
            }
            check(&table, &BTreeMap::new());
        }
    }

    #[test]
    fn clone_keeps_its_state_when_the_original_changes() {
        let mut table = Table::default();
        for number in 0..200 {
            table.insert(&record(&format!("{number:03}"), 10));
        }
        let before = table.clone();
        table.remove("100");
        table.insert(&record("200", 10));
        assert_eq!((before.len(), table.len()), (200, 200));
        assert!(before.get("100").is_some() && before.get("200").is_none());
        // Only the chunks that changed were copied.
        let shared = |chunk: &&Arc<Chunk>| before.chunks().any(|other| Arc::ptr_eq(chunk, other));
        assert_eq!(table.chunks().count() - table.chunks().filter(shared).count(), 2);
    }

    #[test]
    fn one_name_may_have_several_uids() {
        let mut table = Table::default();
        let pods = ["b", "a"].map(|uid| PodSketch::new(uid).name("web-0").ip("10.0.0.1").source_pod());
        for pod in &pods {
            table.insert(&Arc::new(Record::new(pod, Revision(1), &ByteMeter::default()).unwrap()));
        }
        let (namespace, name) = (pods[0].namespace.clone(), pods[0].name.clone());
        let uids = |table: &Table| {
            let by_name: Vec<_> =
                table.by_name(&namespace, &name).map(|record| record.uid().clone()).collect();
            let by_ip: Vec<_> =
                table.by_ip("10.0.0.1".parse().unwrap()).map(|record| record.uid().clone()).collect();
            assert_eq!(by_name, by_ip);
            by_name.iter().map(PodUid::to_string).collect::<Vec<_>>()
        };
        assert_eq!(uids(&table), ["a", "b"]);
        table.remove("a");
        assert_eq!(uids(&table), ["b"]);
        let moved = PodSketch::new("b").name("web-0").ip("10.0.0.2").source_pod();
        table.insert(&Arc::new(Record::new(&moved, Revision(2), &ByteMeter::default()).unwrap()));
        assert_eq!(table.by_ip("10.0.0.1".parse().unwrap()).count(), 0);
        assert_eq!(table.by_ip("10.0.0.2".parse().unwrap()).count(), 1);
    }
}
