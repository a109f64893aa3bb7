//! JSON values to pod bytes.
//!
//! The output is canonical: fields by ascending number, map entries by key, no zero value that means nothing, so
//! that equal pods are equal bytes. What is accepted is what the API's JSON decoder accepts: unknown names are
//! dropped, names are case-sensitive (rule A.2.5), null is absence (rule E.9.9), numbers are never made of strings
//! nor strings of numbers.

use bytes::Bytes;

use super::json_text::write_json;
use super::quantity::Quantity;
use super::schema::{self, Cardinality, Field, Kind, Leaf, Message};
use super::time::parse_rfc3339;
use super::tree::{Entry, Node, Value};
use super::varint::{
    begin_length, end_length, put_int_field, put_length_field, put_nested, put_varint, put_varint_field,
};

/// How much of a key an error message shows.
const SHOWN_CHARS: usize = 40;

/// A value that a Pod cannot have where it stands.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {message}")]
pub struct FieldError {
    /// The field, such as `spec.containers[0].ports[1].containerPort`; a map's key stands in brackets.
    pub path: String,
    /// The line of the source text, from 1; 0 for a value that stood in no text.
    pub line: u32,
    /// What is wrong: lower case, without a full stop. Names the value's type and never the value, which may be a
    /// secret, while messages go to logs and to whoever reads the admin listener.
    pub message: String,
}

impl FieldError {
    /// An error about the value itself; [`FieldError::within`] adds where it stands, from the inside out.
    fn new(node: &Node, message: String) -> Self {
        Self { path: String::new(), line: node.line, message }
    }

    fn within(mut self, segment: &Segment<'_>) -> Self {
        let mut path = match segment {
            Segment::Field(name) => (*name).to_owned(),
            Segment::Index(index) => format!("[{index}]"),
            Segment::Key(key) => format!("[{}]", clip(key)),
        };
        if !self.path.is_empty() && !self.path.starts_with('[') {
            path.push('.');
        }
        self.path.insert_str(0, &path);
        self
    }
}

enum Segment<'a> {
    Field(&'a str),
    Index(usize),
    Key(&'a str),
}

/// Encodes a Pod given as a JSON object. `apiVersion` and `kind` are not part of the message and not looked at.
///
/// # Errors
/// The first value, in the order of field numbers, whose type or range does not fit its field.
pub fn encode_pod(pod: &Node) -> Result<Bytes, FieldError> {
    let mut out = Vec::with_capacity(4096);
    put_object(&mut out, schema::pod(), pod).map_err(|mut error| {
        if error.path.is_empty() {
            "pod".clone_into(&mut error.path);
        }
        error
    })?;
    Ok(out.into())
}

/// One member of an object that the schema knows: where it goes and what it is.
struct Member<'a> {
    outer: u8,
    inner: Option<u8>,
    value: &'a Node,
}

fn put_object(out: &mut Vec<u8>, message: &'static Message, node: &Node) -> Result<(), FieldError> {
    let entries = object(node)?;
    let mut members: Vec<Member<'_>> = entries
        .iter()
        .filter_map(|entry| {
            let at = message.by_json_name(&entry.key)?;
            Some(Member { outer: at.outer, inner: at.inner, value: &entry.value })
        })
        .collect();
    // Stable: of equal names the last stays last, and it is the one that counts.
    members.sort_by_key(|member| (member.outer, member.inner));
    let mut members = &members[..];
    while let Some(first) = members.first() {
        let len = members.iter().take_while(|member| member.outer == first.outer).count();
        let (same_field, rest) = members.split_at(len);
        members = rest;
        let field = &message.fields[usize::from(first.outer)];
        match field.message().filter(|_| field.is_inlined) {
            Some(inlined) => put_inlined(out, field, inlined, same_field)?,
            None => put_last(out, field, same_field)?,
        }
    }
    Ok(())
}

/// Writes an inlined message from those members of its parent that belong to it (rule E.9.7). Without any content
/// it is no different from none, and not written.
fn put_inlined(
    out: &mut Vec<u8>,
    field: &Field,
    inlined: &'static Message,
    mut members: &[Member<'_>],
) -> Result<(), FieldError> {
    let before = out.len();
    put_varint(out, u64::from(field.number) << 3 | 2);
    let content = begin_length(out);
    while let Some(first) = members.first() {
        let len = members.iter().take_while(|member| member.inner == first.inner).count();
        let (same_field, rest) = members.split_at(len);
        members = rest;
        let inner = first.inner.expect("a member of an inlined message has an inner field");
        put_last(out, &inlined.fields[usize::from(inner)], same_field)?;
    }
    if out.len() == content {
        out.truncate(before);
    } else {
        end_length(out, content);
    }
    Ok(())
}

/// Writes the last of the values that an object gives for one field.
fn put_last(out: &mut Vec<u8>, field: &Field, same_field: &[Member<'_>]) -> Result<(), FieldError> {
    let Some(last) = same_field.last() else { return Ok(()) };
    put_field(out, field, last.value).map_err(|error| error.within(&Segment::Field(&field.name)))
}

fn put_field(out: &mut Vec<u8>, field: &Field, node: &Node) -> Result<(), FieldError> {
    if node.value == Value::Null {
        return Ok(());
    }
    match field.cardinality {
        Cardinality::One => put_value(out, field.number, field.kind, node, field.keeps_zero),
        Cardinality::Many => {
            let Value::List(items) = &node.value else { return Err(mismatch(node, "a list")) };
            for (index, item) in items.iter().enumerate() {
                put_value(out, field.number, field.kind, item, true)
                    .map_err(|error| error.within(&Segment::Index(index)))?;
            }
            Ok(())
        }
        Cardinality::Map => put_map(out, field, node),
    }
}

fn put_map(out: &mut Vec<u8>, field: &Field, node: &Node) -> Result<(), FieldError> {
    let mut entries: Vec<&Entry> = object(node)?.iter().collect();
    // Stable: of equal keys the last stays last, and it is the one that counts.
    entries.sort_by(|a, b| a.key.cmp(&b.key));
    for (at, entry) in entries.iter().enumerate() {
        if entries.get(at + 1).is_some_and(|next| next.key == entry.key) {
            continue;
        }
        put_nested(out, field.number, |out| {
            put_length_field(out, 1, entry.key.as_bytes());
            put_value(out, 2, field.kind, &entry.value, true)
        })
        .map_err(|error| error.within(&Segment::Key(&entry.key)))?;
    }
    Ok(())
}

/// Writes one value. A null can only be the element of a list or a map here; it stands for the zero value.
fn put_value(
    out: &mut Vec<u8>,
    number: u32,
    kind: Kind,
    node: &Node,
    keeps_zero: bool,
) -> Result<(), FieldError> {
    match kind {
        Kind::Bool => {
            let value = match node.value {
                Value::Bool(value) => value,
                Value::Null => false,
                _ => return Err(mismatch(node, "true or false")),
            };
            if value || keeps_zero {
                put_varint_field(out, number, value.into());
            }
        }
        Kind::Int32 | Kind::Int64 => {
            let value = integer(node, kind == Kind::Int32)?;
            if value != 0 || keeps_zero {
                put_int_field(out, number, value);
            }
        }
        Kind::String => {
            let value = match &node.value {
                Value::String(value) => &**value,
                Value::Null => "",
                Value::Number(_) | Value::Bool(_) => {
                    return Err(mismatch(node, "a string (put it in quotes)"));
                }
                _ => return Err(mismatch(node, "a string")),
            };
            if !value.is_empty() || keeps_zero {
                put_length_field(out, number, value.as_bytes());
            }
        }
        Kind::Bytes => unreachable!("bytes occur in leaves only"),
        Kind::Message(id) => {
            let message = id.get();
            return match message.leaf {
                Some(leaf) => put_leaf(out, number, leaf, node),
                None => put_nested(out, number, |out| put_object(out, message, node)),
            };
        }
    }
    Ok(())
}

fn put_leaf(out: &mut Vec<u8>, number: u32, leaf: Leaf, node: &Node) -> Result<(), FieldError> {
    match leaf {
        Leaf::Time => put_time(out, number, node),
        Leaf::Quantity => {
            let quantity = match &node.value {
                Value::Null => "0".to_owned(),
                Value::String(text) | Value::Number(text) => Quantity::parse(text)
                    .map_err(|error| FieldError::new(node, format!("{error}; found {}", describe(node))))?
                    .to_string(),
                _ => return Err(mismatch(node, "a quantity")),
            };
            put_nested(out, number, |out| {
                put_length_field(out, 1, quantity.as_bytes());
                Ok(())
            })
        }
        Leaf::IntOrString => put_nested(out, number, |out| {
            match &node.value {
                Value::String(text) => {
                    put_varint_field(out, 1, 1);
                    put_length_field(out, 3, text.as_bytes());
                }
                Value::Number(_) | Value::Null => {
                    put_varint_field(out, 1, 0);
                    put_int_field(out, 2, integer(node, true)?);
                }
                _ => return Err(mismatch(node, "an integer or a string")),
            }
            Ok(())
        }),
        Leaf::FieldsV1 => put_nested(out, number, |out| {
            let mut json = String::new();
            write_json(node, &mut json);
            put_length_field(out, 1, json.as_bytes());
            Ok(())
        }),
    }
}

/// Writes a time; the zero time is absence (rule E.9.6).
fn put_time(out: &mut Vec<u8>, number: u32, node: &Node) -> Result<(), FieldError> {
    let text = match &node.value {
        Value::String(text) => text,
        Value::Null => return Ok(()),
        _ => return Err(mismatch(node, "a time such as \"2026-01-31T12:00:00Z\"")),
    };
    let time = parse_rfc3339(text).ok_or_else(|| mismatch(node, "a time such as 2026-01-31T12:00:00Z"))?;
    let Some(seconds) = time else { return Ok(()) };
    put_nested(out, number, |out| {
        put_int_field(out, 1, seconds);
        Ok(())
    })
}

fn object(node: &Node) -> Result<&[Entry], FieldError> {
    match &node.value {
        Value::Map(entries) => Ok(entries),
        Value::Null => Ok(&[]),
        _ => Err(mismatch(node, "an object")),
    }
}

fn integer(node: &Node, is_32_bit: bool) -> Result<i64, FieldError> {
    let text = match &node.value {
        Value::Number(text) => text,
        Value::Null => return Ok(0),
        Value::String(_) => return Err(mismatch(node, "an integer (without quotes)")),
        _ => return Err(mismatch(node, "an integer")),
    };
    // `1.0` and `1e3` are refused like any other fraction, as upstream refuses them.
    if text.contains(['.', 'e', 'E']) {
        return Err(mismatch(node, "an integer"));
    }
    let (low, high) = if is_32_bit { (i32::MIN.into(), i32::MAX.into()) } else { (i64::MIN, i64::MAX) };
    text.parse()
        .ok()
        .filter(|value| (low..=high).contains(value))
        .ok_or_else(|| FieldError::new(node, format!("must be between {low} and {high}")))
}

fn mismatch(node: &Node, expected: &str) -> FieldError {
    FieldError::new(node, format!("expected {expected}, found {}", describe(node)))
}

fn describe(node: &Node) -> &'static str {
    match &node.value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::List(_) => "a list",
        Value::Map(_) => "an object",
    }
}

fn clip(text: &str) -> String {
    let mut clipped: String = text.chars().take(SHOWN_CHARS).collect();
    if clipped.len() < text.len() {
        clipped.push('…');
    }
    clipped
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
