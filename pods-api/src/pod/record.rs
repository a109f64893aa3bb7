//! One pod as it is served: an immutable record whose bytes are ready for every answer.
//!
//! Made once per change on the store's thread, then shared by `Arc` with snapshots, logs and workers. A record has
//! one allocation for its bytes, laid out as
//!
//! ```text
//! ADDED head | MODIFIED head | gRPC prefix | field 1 of the answer | the encoded Pod
//! ```
//!
//! so that GetPod, a ListPods element, the documented watch and the Pod itself are slices that end together, and a
//! v1alpha1 watch event is a slice of the front followed by the Pod. No answer copies or encodes a pod.

use super::container::{ContainerRef, containers_of};
use super::id::{Namespace, PodName, PodUid, Revision};
use super::masked::append_projection;
use super::selector::Selector;
use super::update::SourcePod;
use crate::wire::varint::{
    length_field_len, put_length_field, put_length_head, put_varint_field, varint_len,
};
use crate::wire::{DecodeError, Mask, PodView};
use bytes::{BufMut, Bytes, BytesMut};
use smallvec::SmallVec;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// gRPC's Length-Prefixed-Message prefix: an uncompressed flag byte and a big-endian length.
pub(crate) const MESSAGE_PREFIX_BYTES: usize = 5;

/// `WatchPodsEvent.type` of ADDED and MODIFIED.
const EVENT_TYPES: [u64; 2] = [1, 2];

/// The labels of a pod, sorted by key, each key once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels(Box<[(Box<str>, Box<str>)]>);

impl Labels {
    /// The value of the label `key`.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        let index = self.0.binary_search_by(|(name, _)| (**name).cmp(key)).ok()?;
        Some(&self.0[index].1)
    }

    /// Every label, by key.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl<K: Into<Box<str>>, V: Into<Box<str>>> FromIterator<(K, V)> for Labels {
    /// Of a key that occurs twice the last value counts, as in every protobuf map.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(labels: I) -> Self {
        let mut labels: Vec<(Box<str>, Box<str>)> =
            labels.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        labels.reverse();
        labels.sort_by(|(a, _), (b, _)| a.cmp(b));
        labels.dedup_by(|(later, _), (earlier, _)| later == earlier);
        Self(labels.into())
    }
}

/// Counts the bytes of all records that are still held by anyone: snapshot, logs or watchers.
///
/// One counter, changed by whichever thread makes or drops a record; read by the watch engine's writer.
#[derive(Debug, Clone, Default)]
pub struct ByteMeter(Arc<AtomicUsize>);

impl ByteMeter {
    /// The bytes held now.
    #[must_use]
    pub fn bytes(&self) -> usize {
        // Relaxed: a number to act upon, nothing is published through it.
        self.0.load(Ordering::Relaxed)
    }

    /// Counts `bytes` until the charge is dropped.
    #[must_use]
    pub fn charge(&self, bytes: usize) -> Charge {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        Charge { meter: self.clone(), bytes }
    }
}

/// Bytes counted by a [`ByteMeter`] while this lives.
#[derive(Debug)]
pub struct Charge {
    meter: ByteMeter,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.meter.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// One pod at one revision.
pub struct Record {
    uid: PodUid,
    namespace: Namespace,
    name: PodName,
    labels: Labels,
    pod_ips: SmallVec<[IpAddr; 2]>,
    containers: Box<[ContainerRef]>,
    host_network: bool,
    revision: Revision,
    buffer: Bytes,
    /// Where, in `buffer`, the MODIFIED head, the GetPod message and the Pod begin.
    modified_at: u8,
    get_at: u8,
    pod_at: u8,
    _charge: Charge,
}

impl Record {
    /// Reads and frames the pod a source gave. The identity is the source's.
    ///
    /// # Errors
    /// When the bytes are no Pod.
    pub fn new(pod: &SourcePod, revision: Revision, meter: &ByteMeter) -> Result<Self, DecodeError> {
        Self::with_containers(pod, &[], revision, meter)
    }

    /// As [`Record::new`], with the containers and sandboxes that the runtime has of the pod.
    ///
    /// # Errors
    /// When the bytes are no Pod.
    pub fn with_containers(
        pod: &SourcePod,
        live: &[ContainerRef],
        revision: Revision,
        meter: &ByteMeter,
    ) -> Result<Self, DecodeError> {
        let view = PodView::parse(&pod.pod)?;
        let labels = view.labels.iter().map(|(key, value)| (&**key, &**value)).collect();
        let length = pod.pod.len();
        let event_len = 2 + length_field_len(2, length);
        let event_head = MESSAGE_PREFIX_BYTES + event_len - length;
        let get_head = MESSAGE_PREFIX_BYTES + 1 + varint_len(length as u64);

        let mut buffer = BytesMut::with_capacity(2 * event_head + get_head + length);
        for event_type in EVENT_TYPES {
            put_message_prefix(&mut buffer, event_len);
            put_varint_field(&mut buffer, 1, event_type);
            put_length_head(&mut buffer, 2, length);
        }
        put_message_prefix(&mut buffer, length_field_len(1, length));
        put_length_head(&mut buffer, 1, length);
        let pod_at = buffer.len();
        buffer.put_slice(&pod.pod);

        let small = |offset: usize| u8::try_from(offset).expect("three heads of at most 17 bytes");
        Ok(Self {
            uid: pod.uid.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            labels,
            containers: containers_of(&view, live),
            pod_ips: view.pod_ips,
            host_network: view.host_network,
            revision,
            modified_at: small(event_head),
            get_at: small(2 * event_head),
            pod_at: small(pod_at),
            _charge: meter.charge(buffer.len()),
            buffer: buffer.freeze(),
        })
    }

    /// `metadata.uid`.
    #[must_use]
    pub fn uid(&self) -> &PodUid {
        &self.uid
    }

    /// `metadata.namespace`.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// `metadata.name`.
    #[must_use]
    pub fn name(&self) -> &PodName {
        &self.name
    }

    /// `metadata.labels`.
    #[must_use]
    pub fn labels(&self) -> &Labels {
        &self.labels
    }

    /// `status.podIPs`, each that is an IP address.
    #[must_use]
    pub fn pod_ips(&self) -> &[IpAddr] {
        &self.pod_ips
    }

    /// The containers and sandboxes that are known to be the pod's, ended ones included.
    #[must_use]
    pub fn containers(&self) -> &[ContainerRef] {
        &self.containers
    }

    /// `spec.hostNetwork`: the pod's addresses are the node's.
    #[must_use]
    pub fn is_host_network(&self) -> bool {
        self.host_network
    }

    /// The revision that brought this state.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// The encoded core/v1 Pod, shared.
    #[must_use]
    pub fn pod(&self) -> Bytes {
        self.buffer.slice(usize::from(self.pod_at)..)
    }

    /// The encoded core/v1 Pod.
    #[must_use]
    pub fn pod_bytes(&self) -> &[u8] {
        &self.buffer[usize::from(self.pod_at)..]
    }

    /// GetPodResponse as a whole gRPC message, prefix included; PodWatchResponse of the documented contract is the
    /// same message.
    #[must_use]
    pub fn get_message(&self) -> Bytes {
        self.buffer.slice(usize::from(self.get_at)..)
    }

    /// As [`Record::get_message`], cut down to `mask`.
    #[must_use]
    pub fn masked_get_message(&self, mask: &Mask) -> Bytes {
        if mask.is_all() {
            return self.get_message();
        }
        let mut pod = Vec::new();
        append_projection(self, mask, &mut pod);
        let message_len = length_field_len(1, pod.len());
        let mut message = BytesMut::with_capacity(MESSAGE_PREFIX_BYTES + message_len);
        put_message_prefix(&mut message, message_len);
        put_length_field(&mut message, 1, &pod);
        message.freeze()
    }

    /// The encoded core/v1 Pod, cut down to `mask`.
    #[must_use]
    pub fn projection(&self, mask: &Mask) -> Bytes {
        if mask.is_all() {
            return self.pod();
        }
        let mut pod = Vec::new();
        append_projection(self, mask, &mut pod);
        pod.into()
    }

    /// Whether a selector is about this pod.
    #[must_use]
    pub fn is_selected_by(&self, selector: &Selector) -> bool {
        selector.matches(&self.namespace, |key| self.labels.get(key))
    }

    /// This pod's element of ListPodsResponse: field 1 with tag and length.
    #[must_use]
    pub fn list_element(&self) -> &[u8] {
        &self.buffer[usize::from(self.get_at) + MESSAGE_PREFIX_BYTES..]
    }

    /// What stands before the Pod in a v1alpha1 ADDED event: gRPC prefix, type, tag and length of the pod.
    #[must_use]
    pub fn added_head(&self) -> Bytes {
        self.buffer.slice(..usize::from(self.modified_at))
    }

    /// As [`Record::added_head`], for MODIFIED.
    #[must_use]
    pub fn modified_head(&self) -> Bytes {
        self.buffer.slice(usize::from(self.modified_at)..usize::from(self.get_at))
    }

    /// The bytes this record keeps in memory for its pod.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.buffer.len()
    }
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{} {} @{}", self.namespace, self.name, self.uid, self.revision)
    }
}

/// Writes the gRPC prefix of an uncompressed message.
pub(crate) fn put_message_prefix(out: &mut impl BufMut, message_len: usize) {
    out.put_u8(0);
    // A pod comes from a message or file far below 4 GiB; a longer one could not be framed at all.
    out.put_u32(u32::try_from(message_len).unwrap_or(u32::MAX));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{PodSketch, decode_message};
    use pods_api_proto::v1alpha1::{EventType, GetPodResponse, ListPodsResponse, WatchPodsEvent};

    #[test]
    fn every_answer_is_a_slice_of_one_buffer() {
        for padding in [0, 90, 100, 20_000, 3_000_000] {
            let source = PodSketch::new("u-1").padding(padding).source_pod();
            let record = Record::new(&source, Revision(3), &ByteMeter::default()).unwrap();
            assert_eq!(record.pod(), source.pod);
            assert_eq!(decode_message::<GetPodResponse>(&record.get_message()).pod, source.pod);
            let list: ListPodsResponse = prost::Message::decode(record.list_element()).unwrap();
            assert_eq!(list.pods, std::slice::from_ref(&source.pod));
            for (head, kind) in
                [(record.added_head(), EventType::Added), (record.modified_head(), EventType::Modified)]
            {
                let event: WatchPodsEvent = decode_message(&[head, record.pod()].concat());
                assert_eq!((event.r#type(), event.pod), (kind, source.pod.clone()));
            }
        }
    }

    #[test]
    fn record_knows_labels_and_addresses() {
        let source = PodSketch::new("u-1").label("b", "2").label("a", "1").ip("10.0.0.7").source_pod();
        let record = Record::new(&source, Revision(1), &ByteMeter::default()).unwrap();
        assert_eq!(record.labels().get("b"), Some("2"));
        assert_eq!(record.labels().get("c"), None);
        assert_eq!(record.labels().iter().map(|(key, _)| key).collect::<Vec<_>>(), ["a", "b"]);
        assert_eq!(record.pod_ips(), ["10.0.0.7".parse::<IpAddr>().unwrap()]);
        let twice: Labels = [("k", "old"), ("k", "new")].into_iter().collect();
        assert_eq!(twice.get("k"), Some("new"));
    }

    #[test]
    fn meter_counts_records_while_they_live() {
        let meter = ByteMeter::default();
        let record = Record::new(&PodSketch::new("u-1").source_pod(), Revision(1), &meter).unwrap();
        assert_eq!(meter.bytes(), record.held_bytes());
        drop(record);
        assert_eq!(meter.bytes(), 0);
    }
}
