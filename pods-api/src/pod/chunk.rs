//! A run of neighbouring pods, and their part of the encoded ListPodsResponse.
//!
//! The list is kept in chunks so that one event costs one chunk's encoding, not the whole list's. Chunks are immutable
//! once published; only the store's thread edits its own copy.

use super::id::UidPrefix;
use super::masked::{PerMask, append_projection};
use super::record::Record;
use crate::wire::Mask;
use crate::wire::varint::put_length_field;
use bytes::{Bytes, BytesMut};
use std::sync::{Arc, OnceLock};

/// The most pods of one chunk. Bounds what an event copies: this many `Arc`s.
pub(super) const MAX_PODS: usize = 64;

/// The most bytes of one chunk, unless one pod alone is larger. Bounds what a list encodes anew after one event.
pub(super) const MAX_BYTES: usize = 256 * 1024;

/// Pods in UID order, each UID once.
#[derive(Debug, Clone, Default)]
pub(super) struct Chunk {
    records: Vec<Arc<Record>>,
    /// Of each record, for finding it.
    prefixes: Vec<UidPrefix>,
    bytes: usize,
    bodies: Bodies,
}

/// What readers have made of a chunk; empty again after every edit.
#[derive(Debug, Clone, Default)]
struct Bodies {
    /// Made by the first reader that lists. Readers that race each make it and one wins: nobody waits for anybody.
    whole: OnceLock<Bytes>,
    masked: PerMask<Bytes>,
}

impl Chunk {
    pub(super) fn records(&self) -> &[Arc<Record>] {
        &self.records
    }

    pub(super) fn get(&self, uid: &str) -> Option<&Arc<Record>> {
        self.position(uid).ok().map(|index| &self.records[index])
    }

    /// The elements of ListPodsResponse, joined.
    pub(super) fn body(&self) -> Bytes {
        if let Some(body) = self.bodies.whole.get() {
            return body.clone();
        }
        let mut body = BytesMut::with_capacity(self.bytes);
        self.records.iter().for_each(|record| body.extend_from_slice(record.list_element()));
        let body = body.freeze();
        match self.bodies.whole.set(body.clone()) {
            Ok(()) => body,
            Err(_) => self.bodies.whole.get().cloned().unwrap_or(body),
        }
    }

    /// As [`Chunk::body`], with each pod cut down to `mask`.
    pub(super) fn masked_body(&self, mask: &Mask) -> Bytes {
        self.bodies.masked.get_or_make(mask, || {
            let mut body = Vec::new();
            let mut pod = Vec::new();
            for record in &self.records {
                append_masked_element(record, mask, &mut pod, &mut body);
            }
            body.into()
        })
    }

    /// Puts a record in its place and returns the one of the same UID that it replaces.
    pub(super) fn insert(&mut self, record: Arc<Record>) -> Option<Arc<Record>> {
        self.bodies = Bodies::default();
        self.bytes += record.list_element().len();
        match self.position(record.uid().as_str()) {
            Ok(index) => {
                let old = std::mem::replace(&mut self.records[index], record);
                self.bytes -= old.list_element().len();
                Some(old)
            }
            Err(index) => {
                self.prefixes.insert(index, UidPrefix::of(record.uid().as_str()));
                self.records.insert(index, record);
                None
            }
        }
    }

    pub(super) fn remove(&mut self, uid: &str) -> Option<Arc<Record>> {
        let index = self.position(uid).ok()?;
        let old = self.records.remove(index);
        self.prefixes.remove(index);
        self.bodies = Bodies::default();
        self.bytes -= old.list_element().len();
        Some(old)
    }

    /// Moves upper parts out until the chunk and each part are within the bounds.
    pub(super) fn split_all(&mut self, parts: &mut Vec<Self>) {
        while let Some(mut upper) = self.split() {
            upper.split_all(parts);
            parts.push(upper);
        }
    }

    /// Moves the upper part out if the chunk has outgrown its bounds. Halves by bytes, so that pods of very
    /// different size do not leave one half as large as before.
    fn split(&mut self) -> Option<Self> {
        if self.records.len() < 2 || (self.records.len() <= MAX_PODS && self.bytes <= MAX_BYTES) {
            return None;
        }
        let mut lower = 0;
        let mut middle = 0;
        while middle < self.records.len() - 1 && (middle == 0 || lower < self.bytes / 2) {
            lower += self.records[middle].list_element().len();
            middle += 1;
        }
        let upper = Self {
            records: self.records.split_off(middle),
            prefixes: self.prefixes.split_off(middle),
            bytes: self.bytes - lower,
            bodies: Bodies::default(),
        };
        self.bytes = lower;
        self.bodies = Bodies::default();
        Some(upper)
    }

    /// Whether this chunk and `next` together are well below the bounds, so that joining them does not soon split.
    pub(super) fn fits_with(&self, next: &Self) -> bool {
        self.records.len() + next.records.len() <= MAX_PODS / 2 && self.bytes + next.bytes <= MAX_BYTES / 2
    }

    /// Appends the pods of the chunk that follows this one.
    pub(super) fn append(&mut self, next: &Self) {
        self.records.extend_from_slice(&next.records);
        self.prefixes.extend_from_slice(&next.prefixes);
        self.bytes += next.bytes;
        self.bodies = Bodies::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    /// Where the UID is, or where it would be.
    fn position(&self, uid: &str) -> Result<usize, usize> {
        let prefix = UidPrefix::of(uid);
        let start = self.prefixes.partition_point(|other| *other < prefix);
        let equal = self.prefixes[start..].partition_point(|other| *other == prefix);
        let found =
            self.records[start..start + equal].binary_search_by(|record| record.uid().as_str().cmp(uid));
        found.map(|index| start + index).map_err(|index| start + index)
    }
}

/// Appends a pod's element of ListPodsResponse under a mask; `pod` is scratch space.
pub(super) fn append_masked_element(record: &Record, mask: &Mask, pod: &mut Vec<u8>, body: &mut Vec<u8>) {
    pod.clear();
    append_projection(record, mask, pod);
    put_length_field(body, 1, pod);
}
