//! The canonical form of pod bytes, made once when a pod arrives as protobuf.
//!
//! Protobuf allows many encodings of one message: fields in any order, a submessage in several parts, packed or
//! unpacked numbers, map entries in any order and twice. Everything behind ingest (comparison, projection,
//! splicing) then works on bytes alone, because equal pods have one encoding: fields by ascending number, singular
//! fields once, map entries by key, numbers unpacked and in their shortest form. Fields this build does not know
//! are kept, in their place by number. Values are not judged: zeros that were sent stay.

use bytes::Bytes;
use smallvec::SmallVec;

use super::schema::{self, Cardinality, Field, Kind, Message};
use super::varint::{
    self, DecodeError, FieldValue, Fields, put_length_field, put_nested, put_varint, put_varint_field,
};

/// The parts of one message: a singular submessage that occurs several times is the concatenation of them.
type Parts<'a> = SmallVec<[&'a [u8]; 2]>;

/// Brings an encoded Pod into canonical form; bytes that are canonical already are returned as they are, shared.
///
/// # Errors
/// Where the bytes are not an encoded Pod: cut off, or a known field has another wire type than its own.
pub fn canonical_pod(pod: &Bytes) -> Result<Bytes, DecodeError> {
    let mut out = Vec::with_capacity(pod.len());
    put_message(&mut out, schema::pod(), &[pod])?;
    Ok(if out == **pod { pod.clone() } else { out.into() })
}

fn put_message(out: &mut Vec<u8>, message: &'static Message, parts: &[&[u8]]) -> Result<(), DecodeError> {
    // Nearly every message has fewer fields: no allocation for it.
    let mut fields: SmallVec<[varint::Field<'_>; 12]> = SmallVec::new();
    for part in parts {
        for field in Fields::new(part) {
            fields.push(field?);
        }
    }
    // Stable, and linear where the fields stand in order already.
    fields.sort_by_key(|field| field.number);
    for same_number in fields.chunk_by(|a, b| a.number == b.number) {
        match message.by_number(same_number[0].number) {
            None => same_number.iter().for_each(|field| put_unknown(out, field)),
            Some(field) => match field.cardinality {
                Cardinality::One => put_one(out, message, field, same_number)?,
                Cardinality::Many => put_many(out, message, field, same_number)?,
                Cardinality::Map => put_map(out, message, field, same_number)?,
            },
        }
    }
    Ok(())
}

/// A field that this build does not know, its tag and length in their shortest form.
fn put_unknown(out: &mut Vec<u8>, field: &varint::Field<'_>) {
    let tag = |wire_type: u64| u64::from(field.number) << 3 | wire_type;
    match field.value {
        FieldValue::Varint(value) => put_varint_field(out, field.number, value),
        FieldValue::Length(bytes) => put_length_field(out, field.number, bytes),
        FieldValue::Fixed64(bytes) => {
            put_varint(out, tag(1));
            out.extend_from_slice(&bytes);
        }
        FieldValue::Fixed32(bytes) => {
            put_varint(out, tag(5));
            out.extend_from_slice(&bytes);
        }
    }
}

/// Of a scalar the last value counts, of a message all parts do.
fn put_one(
    out: &mut Vec<u8>,
    message: &Message,
    field: &Field,
    occurrences: &[varint::Field<'_>],
) -> Result<(), DecodeError> {
    match field.kind {
        Kind::Message(id) => {
            let parts: Parts<'_> =
                occurrences.iter().map(|part| length(message, field, part)).collect::<Result<_, _>>()?;
            put_nested(out, field.number, |out| put_message(out, id.get(), &parts))
        }
        _ => {
            let mut last = None;
            for occurrence in occurrences {
                // Packed numbers are allowed for a singular field too; the last of them counts.
                each_scalar(message, field, occurrence, |value| last = Some(value))?;
            }
            if let Some(value) = last {
                put_scalar(out, field.number, value);
            }
            Ok(())
        }
    }
}

fn put_many(
    out: &mut Vec<u8>,
    message: &Message,
    field: &Field,
    occurrences: &[varint::Field<'_>],
) -> Result<(), DecodeError> {
    for occurrence in occurrences {
        match field.kind {
            Kind::Message(id) => {
                let part = length(message, field, occurrence)?;
                put_nested(out, field.number, |out| put_message(out, id.get(), &[part]))?;
            }
            _ => each_scalar(message, field, occurrence, |value| put_scalar(out, field.number, value))?,
        }
    }
    Ok(())
}

/// Entries by key; of equal keys the last counts. Key and value are always written, as upstream writes them.
fn put_map(
    out: &mut Vec<u8>,
    message: &Message,
    field: &Field,
    occurrences: &[varint::Field<'_>],
) -> Result<(), DecodeError> {
    let mut entries: SmallVec<[(&[u8], Parts<'_>); 12]> = SmallVec::new();
    for occurrence in occurrences {
        let (mut key, mut values) = (&[][..], Parts::new());
        for part in Fields::new(length(message, field, occurrence)?) {
            let part = part?;
            match part.number {
                1 => key = length(message, field, &part)?,
                2 if field.message().is_none() => {
                    values = [length(message, field, &part)?].into_iter().collect();
                }
                2 => values.push(length(message, field, &part)?),
                _ => {}
            }
        }
        entries.push((key, values));
    }
    // Stable: of equal keys the last stays last.
    entries.sort_by_key(|(key, _)| *key);
    for (at, (key, values)) in entries.iter().enumerate() {
        if entries.get(at + 1).is_some_and(|(next, _)| next == key) {
            continue;
        }
        put_nested(out, field.number, |out| {
            put_length_field(out, 1, key);
            match field.message() {
                Some(value) => put_nested(out, 2, |out| put_message(out, value, values)),
                None => {
                    put_length_field(out, 2, values.first().copied().unwrap_or_default());
                    Ok(())
                }
            }
        })?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum Scalar<'a> {
    Number(u64),
    Text(&'a [u8]),
}

fn put_scalar(out: &mut Vec<u8>, number: u32, value: Scalar<'_>) {
    match value {
        Scalar::Number(value) => put_varint_field(out, number, value),
        Scalar::Text(text) => put_length_field(out, number, text),
    }
}

/// Calls `each` with every scalar of one occurrence of a field: one, or those of a packed field.
fn each_scalar<'a>(
    message: &Message,
    field: &Field,
    occurrence: &varint::Field<'a>,
    mut each: impl FnMut(Scalar<'a>),
) -> Result<(), DecodeError> {
    let normal = |value: u64| match field.kind {
        Kind::Bool => u64::from(value != 0),
        // The wire carries 64 bits; a decoder keeps the low 32 of them, and a writer extends their sign.
        Kind::Int32 => i64::from(value as i32).cast_unsigned(),
        _ => value,
    };
    match (field.kind, occurrence.value) {
        (Kind::String | Kind::Bytes, FieldValue::Length(text)) => each(Scalar::Text(text)),
        (Kind::Bool | Kind::Int32 | Kind::Int64, FieldValue::Varint(value)) => {
            each(Scalar::Number(normal(value)));
        }
        (Kind::Bool | Kind::Int32 | Kind::Int64, FieldValue::Length(packed)) => {
            let mut reader = Fields::new(packed);
            while reader.offset() < packed.len() {
                each(Scalar::Number(normal(reader.read_varint()?)));
            }
        }
        _ => return Err(wire_type_error(message, field, occurrence)),
    }
    Ok(())
}

fn length<'a>(
    message: &Message,
    field: &Field,
    occurrence: &varint::Field<'a>,
) -> Result<&'a [u8], DecodeError> {
    occurrence.bytes().ok_or_else(|| wire_type_error(message, field, occurrence))
}

#[cold]
fn wire_type_error(message: &Message, field: &Field, occurrence: &varint::Field<'_>) -> DecodeError {
    let found = match occurrence.value {
        FieldValue::Varint(_) => "a varint",
        FieldValue::Fixed64(_) | FieldValue::Fixed32(_) => "a fixed number",
        FieldValue::Length(_) => "bytes",
    };
    DecodeError { what: format!("{}.{} is {found}", message.name, field.name).into(), offset: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{encode_pod, parse_json};

    fn pod(json: &str) -> Bytes {
        encode_pod(&parse_json(json.as_bytes()).unwrap()).unwrap()
    }

    fn canonical(bytes: &[u8]) -> Bytes {
        canonical_pod(&Bytes::copy_from_slice(bytes)).unwrap()
    }

    #[test]
    fn canonical_bytes_are_shared_not_copied() {
        let bytes =
            pod(r#"{"metadata": {"name": "a", "labels": {"x": "1", "y": "2"}}, "spec": {"priority": -5}}"#);
        assert_eq!(canonical_pod(&bytes).unwrap().as_ptr(), bytes.as_ptr());
        assert!(canonical_pod(&Bytes::new()).unwrap().is_empty());
    }

    #[test]
    fn parts_of_a_message_are_merged_and_the_last_scalar_counts() {
        let first = pod(r#"{"spec": {"nodeName": "old", "securityContext": {"runAsUser": 1}},
            "metadata": {"name": "a", "labels": {"x": "1"}, "finalizers": ["f"]}}"#);
        let second = pod(r#"{"spec": {"nodeName": "new", "securityContext": {"fsGroup": 2}},
            "metadata": {"labels": {"x": "2", "w": "3"}, "finalizers": ["g"]}}"#);
        let merged = pod(r#"{"spec": {"nodeName": "new", "securityContext": {"runAsUser": 1, "fsGroup": 2}},
            "metadata": {"name": "a", "labels": {"x": "2", "w": "3"}, "finalizers": ["f", "g"]}}"#);
        assert_eq!(canonical(&[first, second].concat()), merged);
    }

    #[test]
    fn fields_and_entries_are_put_in_order() {
        // spec before metadata, value before key, label b before a.
        let bytes = b"\x12\x05\x1a\x03abc\x0a\x10\x5a\x06\x12\x011\x0a\x01b\x5a\x06\x0a\x01a\x12\x012";
        assert_eq!(
            canonical(bytes),
            pod(r#"{"spec": {"restartPolicy": "abc"}, "metadata": {"labels": {"b": "1", "a": "2"}}}"#)
        );
    }

    // rule E.9.3
    #[test]
    fn packed_numbers_become_unpacked() {
        let unpacked = pod(r#"{"spec": {"securityContext": {"supplementalGroups": [1, 300, -1]}}}"#);
        let packed = b"\x12\x11\x72\x0f\x22\x0d\x01\xac\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01";
        assert_eq!(canonical(packed), unpacked);
        assert_eq!(canonical(&unpacked), unpacked);
    }

    #[test]
    fn numbers_get_their_shortest_form() {
        // hostNetwork = true as 2, priority = -1 cut to 32 bits, a length and a tag with a superfluous byte.
        let bytes = b"\x12\x8e\x00\x58\x02\xc8\x81\x00\xff\xff\xff\xff\x0f\x52\x81\x00n";
        assert_eq!(
            canonical(bytes),
            pod(r#"{"spec": {"hostNetwork": true, "priority": -1, "nodeName": "n"}}"#).as_ref()
        );
    }

    // PROTO-1
    #[test]
    fn unknown_fields_of_every_depth_are_kept_in_place() {
        // In order: number 2000 in a container, 60 in the spec, 4 and 5 in the pod.
        let container = b"\x0a\x01c\x82\x7d\x03new";
        let mut spec = Vec::new();
        put_length_field(&mut spec, 2, container);
        put_varint_field(&mut spec, 60, 7);
        let mut bytes = Vec::new();
        put_length_field(&mut bytes, 2, &spec);
        bytes.extend(b"\x25abcd\x29abcdefgh");
        assert_eq!(canonical(&bytes), bytes);
        // Out of order they move, and keep their order among themselves.
        let mut mixed = b"\x29abcdefgh\x25abcd\x25efgh".to_vec();
        put_length_field(&mut mixed, 2, &spec);
        let mut expected = Vec::new();
        put_length_field(&mut expected, 2, &spec);
        expected.extend(b"\x25abcd\x25efgh\x29abcdefgh");
        assert_eq!(canonical(&mixed), expected);
    }

    #[test]
    fn map_entries_without_key_or_value_are_completed() {
        assert_eq!(canonical(b"\x0a\x02\x5a\x00"), pod(r#"{"metadata": {"labels": {"": ""}}}"#));
        // Quantity values in two parts are merged.
        let bytes = b"\x12\x0e\x82\x02\x0b\x0a\x01c\x12\x03\x0a\x011\x12\x00\x12\x00";
        assert!(canonical_pod(&Bytes::from_static(bytes)).is_err());
        let bytes = b"\x12\x0d\x82\x02\x0a\x0a\x01c\x12\x03\x0a\x011\x12\x00";
        assert_eq!(canonical(bytes), pod(r#"{"spec": {"overhead": {"c": "1"}}}"#));
    }

    #[test]
    fn a_known_field_of_another_wire_type_is_refused_by_name() {
        for (bytes, expected) in [
            (&b"\x08\x01"[..], "malformed protobuf: Pod.metadata is a varint at byte 0"),
            (b"\x12\x02\x50\x01", "malformed protobuf: PodSpec.nodeName is a varint at byte 0"),
            (
                b"\x12\x05\x5d\x00\x00\x00\x00",
                "malformed protobuf: PodSpec.hostNetwork is a fixed number at byte 0",
            ),
            (b"\x12\x02\x52\x05", "malformed protobuf: value longer than the message at byte 2"),
        ] {
            assert_eq!(canonical_pod(&Bytes::from_static(bytes)).unwrap_err().to_string(), expected);
        }
    }
}
