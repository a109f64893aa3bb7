//! Changes single fields of an encoded Pod and leaves every other byte as it is, unknown fields included.
//!
//! Works on canonical bytes (fields in ascending order, no singular field twice) and keeps them canonical. Any
//! thread.

use std::borrow::Cow;

use bytes::Bytes;

use super::varint::{DecodeError, Fields, put_int_field, put_length_field, put_nested};
use super::view::{PodView, number, read_entry};

/// Encodes the Pod that a v1alpha1 DELETED event carries: `metadata.name`, `namespace` and `uid` (rule E.7.8).
#[must_use]
pub fn deleted_stub(uid: &str, namespace: &str, name: &str) -> Bytes {
    let mut metadata = Vec::with_capacity(uid.len() + namespace.len() + name.len() + 30);
    put_length_field(&mut metadata, number::META_NAME, name.as_bytes());
    put_length_field(&mut metadata, number::META_NAMESPACE, namespace.as_bytes());
    put_length_field(&mut metadata, number::META_UID, uid.as_bytes());
    let mut pod = Vec::with_capacity(metadata.len() + 4);
    put_length_field(&mut pod, number::POD_METADATA, &metadata);
    pod.into()
}

/// Returns `pod` with `metadata.deletionTimestamp` as it is, else set to `seconds` since 1970, and with the
/// annotation `key: value`. Everything else stays byte for byte.
///
/// # Errors
/// Where the bytes are no encoded Pod at the levels that are read.
pub fn with_deletion(pod: &[u8], seconds: i64, key: &str, value: &str) -> Result<Bytes, DecodeError> {
    let mut edit = PodEdit::new(pod);
    if PodView::parse(pod)?.deletion_timestamp.is_none() {
        edit.deletion_timestamp(seconds);
    }
    edit.annotation(key, value);
    edit.finish()
}

/// Changes to one encoded Pod, applied together by [`PodEdit::finish`].
#[derive(Debug, Clone)]
pub struct PodEdit<'a> {
    pod: &'a [u8],
    /// Encoded fields of the metadata that replace those of the same place, or are put in.
    metadata: Vec<Replacement>,
    status: Option<&'a [u8]>,
}

/// A field's place within a message: its number, and for map entries the key.
type Place<'a> = (u32, Cow<'a, str>);

#[derive(Debug, Clone)]
struct Replacement {
    place: Place<'static>,
    /// The whole field, tag included; empty to remove what is there.
    encoded: Vec<u8>,
}

impl<'a> PodEdit<'a> {
    /// Begins with no change to `pod`.
    #[must_use]
    pub fn new(pod: &'a [u8]) -> Self {
        Self { pod, metadata: Vec::new(), status: None }
    }

    /// Sets `metadata.uid`.
    pub fn uid(&mut self, uid: &str) -> &mut Self {
        let mut encoded = Vec::new();
        put_length_field(&mut encoded, number::META_UID, uid.as_bytes());
        self.replace(number::META_UID, "", encoded)
    }

    /// Sets `metadata.deletionTimestamp` to seconds since 1970.
    pub fn deletion_timestamp(&mut self, seconds: i64) -> &mut Self {
        let mut time = Vec::new();
        put_int_field(&mut time, 1, seconds);
        let mut encoded = Vec::new();
        put_length_field(&mut encoded, number::META_DELETION_TIMESTAMP, &time);
        self.replace(number::META_DELETION_TIMESTAMP, "", encoded)
    }

    /// Sets one annotation.
    pub fn annotation(&mut self, key: &str, value: &str) -> &mut Self {
        let mut entry = Vec::with_capacity(key.len() + value.len() + 8);
        put_length_field(&mut entry, 1, key.as_bytes());
        put_length_field(&mut entry, 2, value.as_bytes());
        let mut encoded = Vec::new();
        put_length_field(&mut encoded, number::META_ANNOTATIONS, &entry);
        self.replace(number::META_ANNOTATIONS, key, encoded)
    }

    /// Removes one annotation.
    pub fn without_annotation(&mut self, key: &str) -> &mut Self {
        self.replace(number::META_ANNOTATIONS, key, Vec::new())
    }

    /// Replaces the whole status by an encoded PodStatus.
    pub fn status(&mut self, status: &'a [u8]) -> &mut Self {
        self.status = Some(status);
        self
    }

    /// The changed Pod.
    ///
    /// # Errors
    /// Where the bytes are no encoded Pod at the levels that are read.
    pub fn finish(&mut self) -> Result<Bytes, DecodeError> {
        self.metadata.sort_by(|a, b| a.place.cmp(&b.place));
        let added: usize = self.metadata.iter().map(|field| field.encoded.len()).sum();
        let mut out = Vec::with_capacity(self.pod.len() + added + self.status.map_or(0, <[u8]>::len) + 16);
        let mut metadata_is_due = !self.metadata.is_empty();
        let mut status_is_due = self.status.is_some();
        for field in Fields::new(self.pod) {
            let field = field?;
            if metadata_is_due {
                metadata_is_due = false;
                let old = field.bytes().filter(|_| field.number == number::POD_METADATA);
                self.put_metadata(&mut out, old.unwrap_or_default())?;
                if old.is_some() {
                    continue;
                }
            }
            if status_is_due && field.number >= number::POD_STATUS {
                status_is_due = false;
                self.put_status(&mut out);
            }
            if self.status.is_none() || field.number != number::POD_STATUS {
                out.extend_from_slice(field.raw);
            }
        }
        if metadata_is_due {
            self.put_metadata(&mut out, &[])?;
        }
        if status_is_due {
            self.put_status(&mut out);
        }
        Ok(out.into())
    }

    /// The last change of one place counts.
    fn replace(&mut self, number: u32, key: &str, encoded: Vec<u8>) -> &mut Self {
        self.metadata.retain(|known| known.place.0 != number || known.place.1 != key);
        self.metadata.push(Replacement { place: (number, key.to_owned().into()), encoded });
        self
    }

    fn put_status(&self, out: &mut Vec<u8>) {
        if let Some(status) = self.status {
            put_length_field(out, number::POD_STATUS, status);
        }
    }

    /// Merges the old fields with the replacements, both in order of their places.
    fn put_metadata(&self, out: &mut Vec<u8>, old: &[u8]) -> Result<(), DecodeError> {
        put_nested(out, number::POD_METADATA, |out| {
            let mut due = self.metadata.iter().peekable();
            for field in Fields::new(old) {
                let field = field?;
                let key = match field.bytes().filter(|_| field.number == number::META_ANNOTATIONS) {
                    Some(entry) => read_entry(entry)?.0,
                    None => Cow::default(),
                };
                let place = (field.number, key);
                while let Some(before) = due.next_if(|new| new.place < place) {
                    out.extend_from_slice(&before.encoded);
                }
                // It stays due: what comes after it is written behind, and a second old one is dropped too.
                if due.peek().is_none_or(|new| new.place != place) {
                    out.extend_from_slice(field.raw);
                }
            }
            due.for_each(|new| out.extend_from_slice(&new.encoded));
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{canonical_pod, encode_pod, parse_json, pod_to_json};
    use serde_json::json;

    fn pod(json: &str) -> Bytes {
        encode_pod(&parse_json(json.as_bytes()).unwrap()).unwrap()
    }

    const WEB: &str = r#"{"metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "annotations": {"a": "1", "m": "2"},
        "finalizers": ["f"]}, "spec": {"hostNetwork": true}, "status": {"phase": "Running"}}"#;

    // rule E.7.8
    #[test]
    fn a_deleted_stub_carries_identity_only() {
        let expected = pod(r#"{"metadata": {"name": "web", "namespace": "shop", "uid": "u-1"}}"#);
        assert_eq!(deleted_stub("u-1", "shop", "web"), expected);
    }

    #[test]
    fn deletion_sets_timestamp_and_annotation_once() {
        let once = with_deletion(&pod(WEB), 77, "pods-api/deleted", "true").unwrap();
        let json = pod_to_json(&once).unwrap();
        assert_eq!(json["metadata"]["deletionTimestamp"], "1970-01-01T00:01:17Z");
        assert_eq!(json["metadata"]["annotations"], json!({"a": "1", "m": "2", "pods-api/deleted": "true"}));
        // A timestamp that is set stays, the annotation is replaced, not doubled.
        assert_eq!(with_deletion(&once, 99, "pods-api/deleted", "true").unwrap(), once);
        let empty = with_deletion(b"", 5, "k", "v").unwrap();
        assert_eq!(PodView::parse(&empty).unwrap().deletion_timestamp, Some(5));
    }

    #[test]
    fn an_unset_deletion_timestamp_is_replaced() {
        // rule E.9.6: upstream may send a zero-length time.
        let out = with_deletion(b"\x0a\x02\x4a\x00", 77, "k", "v").unwrap();
        assert_eq!(PodView::parse(&out).unwrap().deletion_timestamp, Some(77));
        assert_eq!(canonical_pod(&out).unwrap(), out);
    }

    #[test]
    fn every_edit_lands_in_its_place() {
        let edited = PodEdit::new(&pod(WEB))
            .annotation("c", "3")
            .annotation("a", "x")
            .annotation("z", "y")
            .without_annotation("m")
            .uid("u-2")
            .deletion_timestamp(1)
            .status(b"\x0a\x06Failed")
            .finish()
            .unwrap();
        let expected = pod(r#"{"metadata": {"name": "web", "namespace": "shop", "uid": "u-2",
            "deletionTimestamp": "1970-01-01T00:00:01Z", "annotations": {"a": "x", "c": "3", "z": "y"},
            "finalizers": ["f"]}, "spec": {"hostNetwork": true}, "status": {"phase": "Failed"}}"#);
        assert_eq!(edited, expected);
    }

    #[test]
    fn missing_parts_are_put_in() {
        let spec = pod(r#"{"spec": {"hostNetwork": true}}"#);
        let edited = PodEdit::new(&spec).uid("u").status(b"\x0a\x06Failed").finish().unwrap();
        let expected = pod(
            r#"{"metadata": {"uid": "u"}, "spec": {"hostNetwork": true}, "status": {"phase": "Failed"}}"#,
        );
        assert_eq!(edited, expected);
        assert_eq!(PodEdit::new(b"").uid("u").finish().unwrap(), pod(r#"{"metadata": {"uid": "u"}}"#));
        assert_eq!(PodEdit::new(&spec).finish().unwrap(), spec);
    }

    // PROTO-1
    #[test]
    fn unknown_fields_are_kept_and_order_is_preserved() {
        let view = PodView::parse(b"").unwrap();
        assert_eq!(view, PodView::default());
        let bytes = pod(WEB);
        let view = PodView::parse(&bytes).unwrap();
        let mut metadata = view.metadata.to_vec();
        put_length_field(&mut metadata, 200, b"newer");
        let mut with_unknown = Vec::new();
        put_length_field(&mut with_unknown, 1, &metadata);
        put_length_field(&mut with_unknown, 3, view.status);
        put_length_field(&mut with_unknown, 200, b"newest");
        let out = PodEdit::new(&with_unknown).annotation("k", "v").status(b"").finish().unwrap();
        assert!(out.windows(5).any(|part| part == b"newer") && out.ends_with(b"newest"));
        assert_eq!(canonical_pod(&out).unwrap(), out);
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        assert!(PodEdit::new(b"\x0a\x05abc").uid("u").finish().is_err());
        assert!(PodEdit::new(b"\x0a\x03abc").uid("u").finish().is_err());
        assert!(with_deletion(b"\x0a\x05abc", 1, "k", "v").is_err());
    }
}
