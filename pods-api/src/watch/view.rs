//! What a watch shows: the contract it speaks, and so how a change becomes a frame.
//!
//! A [`View`] is the key of a log: watches with equal views share every frame.

use crate::pod::{Change, ChangeKind, Record, put_message_prefix};
use crate::wire::splice::{deleted_stub, with_deletion};
use crate::wire::varint::{length_field_len, put_length_field, put_varint_field};
use bytes::{Bytes, BytesMut};

/// The annotation that marks the last state of a deleted pod in the documented contract; its value is `"true"`.
pub const DELETED_ANNOTATION: &str = "pods-api/deleted";

/// `WatchPodsEvent.type` of DELETED and INITIAL_SYNC_COMPLETE.
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
}

impl View {
    /// Whole pods under that contract.
    #[must_use]
    pub fn new(contract: Contract) -> Self {
        Self { contract }
    }

    /// The contract.
    #[must_use]
    pub fn contract(&self) -> Contract {
        self.contract
    }

    /// The frame of a pod that the client does not have yet.
    pub(super) fn added(&self, record: &Record) -> Frame {
        match self.contract {
            Contract::V1alpha1 => Frame { head: record.added_head(), body: record.pod() },
            Contract::Documented => Frame::whole(record.get_message()),
        }
    }

    /// The frame of a pod's newer state.
    pub(super) fn modified(&self, record: &Record) -> Frame {
        match self.contract {
            Contract::V1alpha1 => Frame { head: record.modified_head(), body: record.pod() },
            Contract::Documented => Frame::whole(record.get_message()),
        }
    }

    /// The frame of a pod that the client shall forget; `record` is its last state, `unix_seconds` when it left.
    pub(super) fn deleted(&self, record: &Record, unix_seconds: i64) -> Frame {
        let stub =
            || deleted_stub(record.uid().as_str(), record.namespace().as_str(), record.name().as_str());
        match self.contract {
            Contract::V1alpha1 => {
                let pod = stub();
                let message_len = 2 + length_field_len(2, pod.len());
                let mut message = BytesMut::with_capacity(5 + message_len);
                put_message_prefix(&mut message, message_len);
                put_varint_field(&mut message, 1, EVENT_TYPE_DELETED);
                put_length_field(&mut message, 2, &pod);
                Frame::whole(message.freeze())
            }
            Contract::Documented => {
                let mark = |pod: &[u8]| with_deletion(pod, unix_seconds, DELETED_ANNOTATION, "true");
                // A pod whose annotations are malformed leaves with its identity only.
                let pod = mark(record.pod_bytes())
                    .or_else(|_| mark(&stub()))
                    .expect("the stub was encoded by this server");
                let message_len = length_field_len(1, pod.len());
                let mut message = BytesMut::with_capacity(5 + message_len);
                put_message_prefix(&mut message, message_len);
                put_length_field(&mut message, 1, &pod);
                Frame::whole(message.freeze())
            }
        }
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
    }
}
