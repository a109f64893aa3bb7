//! The pods of this node at one revision, immutable: what every List, Get, Lookup and initial sync reads.

use super::chunk::{Chunk, append_masked_element};
use super::id::{ContainerId, Namespace, PodName, PodUid, Revision};
use super::masked::PerMask;
use super::record::{MESSAGE_PREFIX_BYTES, Record, put_message_prefix};
use super::selector::Selector;
use super::table::{ChunkKey, Table};
use super::tombstone::{Tombstone, Tombstones};
use crate::wire::Mask;
use bytes::{Bytes, BytesMut};
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};

/// All pods at one revision, in UID order, and those that have left lately.
#[derive(Debug, Default)]
pub struct Snapshot {
    revision: Revision,
    table: Table,
    tombstones: Tombstones,
    /// Made by the first reader that lists; see [`Chunk::body`] for the race.
    list: OnceLock<ListMessage>,
    masked_lists: PerMask<ListMessage>,
}

/// ListPodsResponse of one snapshot as a whole gRPC message, in few large shared parts.
#[derive(Debug, Clone)]
pub struct ListMessage {
    parts: Arc<[Bytes]>,
    len: usize,
}

impl ListMessage {
    fn of(bodies: impl IntoIterator<Item = Bytes>) -> Self {
        let mut parts = vec![Bytes::new()];
        parts.extend(bodies.into_iter().filter(|body| !body.is_empty()));
        let message_len = parts.iter().map(Bytes::len).sum();
        let mut prefix = BytesMut::with_capacity(MESSAGE_PREFIX_BYTES);
        put_message_prefix(&mut prefix, message_len);
        parts[0] = prefix.freeze();
        Self { parts: parts.into(), len: MESSAGE_PREFIX_BYTES + message_len }
    }

    /// The parts, in order: the gRPC prefix, then the encoded elements chunk by chunk.
    #[must_use]
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// The bytes of all parts.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // The prefix alone is five bytes.
    pub fn len(&self) -> usize {
        self.len
    }
}

impl Snapshot {
    pub(super) fn new(revision: Revision, table: Table, tombstones: Tombstones) -> Self {
        Self { revision, table, tombstones, list: OnceLock::new(), masked_lists: PerMask::default() }
    }

    /// The revision of the newest event that this snapshot holds.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// How many pods there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is no pod.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The pod of that UID: exact, case-sensitive (rule E.4.4).
    #[must_use]
    pub fn get(&self, uid: &str) -> Option<&Arc<Record>> {
        self.table.get(uid)
    }

    /// The pods of that name, by UID: more than one while an old one still terminates.
    pub fn by_name<'a>(
        &'a self,
        namespace: &Namespace,
        name: &PodName,
    ) -> impl Iterator<Item = &'a Arc<Record>> {
        self.table.by_name(namespace, name)
    }

    /// The pods with that address, by UID: more than one on the host's network.
    pub fn by_ip(&self, ip: IpAddr) -> impl Iterator<Item = &Arc<Record>> {
        self.table.by_ip(ip)
    }

    /// The containers and sandboxes whose ID begins with `prefix`: those of pods that are there in order, then those of
    /// pods that have left lately. Each with its pod, and whether it is a sandbox.
    pub fn containers<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a ContainerId, &'a PodUid, bool)> {
        self.table.by_container(prefix).chain(self.tombstones.by_container(prefix))
    }

    /// Every pod in the byte order of its UID (rule E.4.3).
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Record>> {
        self.table.iter()
    }

    /// The pod of that UID that has left lately.
    #[must_use]
    pub fn tombstone(&self, uid: &str) -> Option<&Tombstone> {
        self.tombstones.get(uid)
    }

    /// The pods of that name that have left lately.
    pub fn tombstones_by_name<'a>(
        &'a self,
        namespace: &Namespace,
        name: &PodName,
    ) -> impl Iterator<Item = &'a Tombstone> {
        self.tombstones.by_name(namespace, name)
    }

    /// The pods with that address that have left lately.
    pub fn tombstones_by_ip(&self, ip: IpAddr) -> impl Iterator<Item = &Tombstone> {
        self.tombstones.by_ip(ip)
    }

    /// How many tombstones there are.
    #[must_use]
    pub fn tombstone_count(&self) -> usize {
        self.tombstones.len()
    }

    /// The whole answer to ListPods. Encoded by the first caller and shared with the others; after an event only the
    /// chunk that it touched is encoded again.
    #[must_use]
    pub fn list_message(&self) -> ListMessage {
        if let Some(list) = self.list.get() {
            return list.clone();
        }
        let list = ListMessage::of(self.table.chunks().map(|chunk| chunk.body()));
        self.list.set(list.clone()).err().unwrap_or(list)
    }

    /// As [`Snapshot::list_message`], with each pod cut down to `mask`. Kept for the masks used last.
    #[must_use]
    pub fn masked_list_message(&self, mask: &Mask) -> ListMessage {
        if mask.is_all() {
            return self.list_message();
        }
        self.masked_lists
            .get_or_make(mask, || ListMessage::of(self.table.chunks().map(|chunk| chunk.masked_body(mask))))
    }

    /// The answer to ListPods for the selected pods, cut down to `mask`. Made for each caller.
    #[must_use]
    pub fn selected_list_message(&self, selector: &Selector, mask: &Mask) -> ListMessage {
        let (mut body, mut pod) = (Vec::new(), Vec::new());
        for record in self.iter().filter(|record| record.is_selected_by(selector)) {
            if mask.is_all() {
                body.extend_from_slice(record.list_element());
            } else {
                append_masked_element(record, mask, &mut pod, &mut body);
            }
        }
        ListMessage::of([body.into()])
    }

    /// The bytes that this snapshot's records hold, tombstones included.
    pub(crate) fn held_bytes(&self) -> usize {
        self.table.held_bytes() + self.tombstones.held_bytes()
    }
}

/// Walks a snapshot in UID order and owns it meanwhile, so that a watch can go on where its client stopped reading.
#[derive(Debug)]
pub(crate) struct SnapshotCursor {
    snapshot: Arc<Snapshot>,
    chunk: Option<(ChunkKey, Arc<Chunk>)>,
    index: usize,
}

impl SnapshotCursor {
    pub(crate) fn new(snapshot: Arc<Snapshot>) -> Self {
        let mut cursor = Self { snapshot, chunk: None, index: 0 };
        cursor.next_chunk();
        cursor
    }

    fn next_chunk(&mut self) {
        let key = self.chunk.take().map(|(key, _)| key);
        self.chunk =
            self.snapshot.table.chunk_after(key.as_ref()).map(|(key, chunk)| (key.clone(), chunk.clone()));
        self.index = 0;
    }
}

impl Iterator for SnapshotCursor {
    type Item = Arc<Record>;

    fn next(&mut self) -> Option<Arc<Record>> {
        loop {
            let (_, chunk) = self.chunk.as_ref()?;
            if let Some(record) = chunk.records().get(self.index) {
                self.index += 1;
                return Some(record.clone());
            }
            self.next_chunk();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::record::ByteMeter;
    use crate::pod::testing::{PodSketch, decode_message};
    use pods_api_proto::v1alpha1::ListPodsResponse;

    fn snapshot(pods: usize, padding: usize) -> Snapshot {
        let mut table = Table::default();
        for number in 0..pods {
            let pod = PodSketch::new(&format!("{:03}", (number * 7) % pods)).padding(padding).source_pod();
            table.insert(&Arc::new(Record::new(&pod, Revision(1), &ByteMeter::default()).unwrap()));
        }
        Snapshot::new(Revision(1), table, Tombstones::default())
    }

    #[test]
    fn list_is_every_pod_in_uid_order_in_few_parts() {
        let snapshot = snapshot(500, 6_000);
        let list = snapshot.list_message();
        assert!(list.parts().len() < 30, "{}", list.parts().len());
        let response: ListPodsResponse = decode_message(&list.parts().concat());
        let pods: Vec<_> = snapshot.iter().map(|record| record.pod()).collect();
        assert_eq!(response.pods, pods);
        assert_eq!(list.len(), list.parts().iter().map(Bytes::len).sum::<usize>());
        // The second caller gets the same bytes, not a copy.
        assert!(
            list.parts().iter().zip(snapshot.list_message().parts()).all(|(a, b)| a.as_ptr() == b.as_ptr())
        );
    }

    #[test]
    fn empty_list_is_an_empty_message() {
        let list = Snapshot::default().list_message();
        assert_eq!(list.parts().concat(), [0; 5]);
    }

    #[test]
    fn cursor_walks_every_pod_in_uid_order() {
        let snapshot = Arc::new(snapshot(300, 100));
        let walked: Vec<_> =
            SnapshotCursor::new(snapshot.clone()).map(|record| record.uid().clone()).collect();
        assert!(walked.iter().eq(snapshot.iter().map(|record| record.uid())));
        assert_eq!(SnapshotCursor::new(Arc::default()).count(), 0);
    }
}
