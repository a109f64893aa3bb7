//! What a watch shows: the contract it speaks and the fields it selects, and so how a change becomes a frame.
//!
//! A [`View`] is the key of a log: watches with equal views share every frame. Frames of whole pods are slices of the
//! record; those of selected fields are cut once for all watches of the view.

use crate::pod::{Change, ChangeKind, Record, append_projection, put_message_prefix};
use crate::wire::Mask;
use crate::wire::splice::{deleted_stub, with_deletion};
use crate::wire::varint::{length_field_len, put_length_field, put_varint_field};
use bytes::{Bytes, BytesMut};

/// The annotation that marks the last state of a deleted pod in the documented contract; its value is `"true"`.
pub const DELETED_ANNOTATION: &str = "pods-api/deleted";

/// `WatchPodsEvent.type`.
const EVENT_TYPE_ADDED: u64 = 1;
const EVENT_TYPE_MODIFIED: u64 = 2;
const EVENT_TYPE_DELETED: u64 = 3;
const EVENT_TYPE_INITIAL_SYNC_COMPLETE: u64 = 4;

/// INITIAL_SYNC_COMPLETE as a whole gRPC message.
static INITIAL_SYNC_COMPLETE: [u8; 7] = [0, 0, 0, 0, 2, 0x08, EVENT_TYPE_INITIAL_SYNC_COMPLETE as u8];

/// Which service the client called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Contract {
    /// `v1alpha1.Pods`: typed events, a marker after the initial sync, DELETED with the pod's identity only.
    V1alpha1,
    /// `Pods` as kubernetes.io documents it: the newest state of each pod, no marker; a deleted pod is sent a last time
    /// with `metadata.deletionTimestamp` and the annotation [`DELETED_ANNOTATION`].
    Documented,
}

/// One whole gRPC message, prefix included, in at most two parts: what stands before the pod, and the pod. Both are
/// shared; the head may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    head: Bytes,
    body: Bytes,
}

impl Frame {
    /// The parts, in the order in which they are sent; the first may be empty.
    #[must_use]
    pub fn into_parts(self) -> [Bytes; 2] {
        [self.head, self.body]
    }

    /// The bytes of both parts.
    #[must_use]
    #[allow(clippy::len_without_is_empty)] // The prefix alone is five bytes.
    pub fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    /// The message in one piece. Copies unless the head is empty.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        if self.head.is_empty() { self.body.clone() } else { [&*self.head, &*self.body].concat().into() }
    }

    /// The bytes that this frame holds beyond those of `record`.
    pub(super) fn own_bytes(&self, record: &Record) -> usize {
        let pod = record.pod_bytes().as_ptr_range();
        // Every slice of a record's buffer that ends a message ends where the pod ends.
        if self.body.as_ptr_range().end == pod.end { 0 } else { self.len() }
    }

    fn whole(body: Bytes) -> Self {
        Self { head: Bytes::new(), body }
    }
}

/// What one kind of watch sees of the pods.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct View {
    contract: Contract,
    mask: Mask,
}

impl View {
    /// Pods under that contract, cut down to `mask`. What a client cannot do without is always shown: a pod's
    /// identity, and in the documented contract that it has been deleted (rule F.2.6).
    #[must_use]
    pub fn new(contract: Contract, mask: &Mask) -> Self {
        let mask = match contract {
            _ if mask.is_all() => Mask::All,
            Contract::V1alpha1 => mask.union(&Mask::identity()),
            Contract::Documented => mask.union(&Mask::identity()).union(&Mask::deletion()),
        };
        Self { contract, mask }
    }

    /// Whole pods under that contract.
    #[must_use]
    pub fn whole(contract: Contract) -> Self {
        Self { contract, mask: Mask::All }
    }

    /// The same, but nothing that `ceiling` does not allow: not even what is otherwise shown under any mask.
    #[must_use]
    pub fn below(self, ceiling: &Mask) -> Self {
        Self { mask: self.mask.intersection(ceiling), ..self }
    }

    /// The fields that are shown.
    #[must_use]
    pub fn mask(&self) -> &Mask {
        &self.mask
    }

    /// The contract.
    #[must_use]
    pub fn contract(&self) -> Contract {
        self.contract
    }

    /// The frame of a pod that the client does not have yet.
    pub(super) fn added(&self, record: &Record) -> Frame {
        match self.contract {
            _ if !self.mask.is_all() => self.masked(record, EVENT_TYPE_ADDED),
            Contract::V1alpha1 => Frame { head: record.added_head(), body: record.pod() },
            Contract::Documented => Frame::whole(record.get_message()),
        }
    }

    /// The frame of a pod's newer state.
    pub(super) fn modified(&self, record: &Record) -> Frame {
        match self.contract {
            _ if !self.mask.is_all() => self.masked(record, EVENT_TYPE_MODIFIED),
            Contract::V1alpha1 => Frame { head: record.modified_head(), body: record.pod() },
            Contract::Documented => Frame::whole(record.get_message()),
        }
    }

    fn masked(&self, record: &Record, event_type: u64) -> Frame {
        self.message(event_type, &self.projection(record))
    }

    fn projection(&self, record: &Record) -> Vec<u8> {
        let mut pod = Vec::new();
        append_projection(record, &self.mask, &mut pod);
        pod
    }

    /// A whole message about an encoded pod.
    fn message(&self, event_type: u64, pod: &[u8]) -> Frame {
        let (type_len, field) = match self.contract {
            Contract::V1alpha1 => (2, 2),
            Contract::Documented => (0, 1),
        };
        let message_len = type_len + length_field_len(field, pod.len());
        let mut message = BytesMut::with_capacity(5 + message_len);
        put_message_prefix(&mut message, message_len);
        if type_len > 0 {
            put_varint_field(&mut message, 1, event_type);
        }
        put_length_field(&mut message, field, pod);
        Frame::whole(message.freeze())
    }

    /// The frame of a pod that the client shall forget; `record` is its last state, `unix_seconds` when it left.
    pub(super) fn deleted(&self, record: &Record, unix_seconds: i64) -> Frame {
        let stub =
            || deleted_stub(record.uid().as_str(), record.namespace().as_str(), record.name().as_str());
        let project = |pod: &[u8]| {
            let mut shown = Vec::new();
            self.mask.project(pod, &mut shown).map(|()| shown)
        };
        let pod = match self.contract {
            // The mask has no say in it, but what it was kept below has.
            Contract::V1alpha1 => project(&stub()),
            Contract::Documented => {
                let mark = |pod: &[u8]| with_deletion(pod, unix_seconds, DELETED_ANNOTATION, "true");
                let last = |pod: &[u8]| mark(pod).and_then(|marked| project(&marked));
                // A pod that is malformed where it is looked into leaves with its identity only.
                last(record.pod_bytes()).or_else(|_| last(&stub()))
            }
        };
        self.message(EVENT_TYPE_DELETED, &pod.expect("the stub was encoded by this server"))
    }

    /// The frame that says that the initial sync is complete, where the contract has one.
    pub(super) fn initial_sync_complete(&self) -> Option<Frame> {
        (self.contract == Contract::V1alpha1)
            .then(|| Frame::whole(Bytes::from_static(&INITIAL_SYNC_COMPLETE)))
    }

    /// The frame of a change for everyone who sees the pod before and after it; `None` when nothing that this view
    /// shows has changed.
    pub(super) fn event(&self, change: &Change) -> Option<Frame> {
        let record = change.record();
        match change.kind() {
            ChangeKind::Added => Some(self.added(record)),
            ChangeKind::Modified => {
                let old = change.old().expect("a modified pod has an old state");
                (!self.is_same(old, record)).then(|| self.modified(record))
            }
            ChangeKind::Deleted => Some(self.deleted(record, change.unix_seconds())),
        }
    }

    /// Whether two states of a pod look the same.
    pub(super) fn is_same(&self, old: &Record, new: &Record) -> bool {
        old.pod_bytes() == new.pod_bytes()
            || (!self.mask.is_all() && self.projection(old) == self.projection(new))
    }
}
