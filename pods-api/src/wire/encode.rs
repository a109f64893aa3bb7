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
mod tests {
    use super::*;
    use crate::wire::parse_json;
    use pods_api_proto::k8s::io::api::core::v1::Pod;
    use prost::Message as _;

    fn encode(json: &str) -> Result<Bytes, FieldError> {
        encode_pod(&parse_json(json.as_bytes()).unwrap())
    }

    fn pod(json: &str) -> Pod {
        Pod::decode(encode(json).unwrap()).unwrap()
    }

    fn error(json: &str) -> String {
        encode(json).unwrap_err().to_string()
    }

    #[test]
    fn fields_are_written_in_order_and_maps_by_key() {
        let bytes = encode(
            r#"{"status": {"phase": "Running"}, "kind": "Pod", "spec": {"nodeName": "n", "restartPolicy": "Never"},
                "metadata": {"labels": {"b": "2", "a": "1"}, "name": "x"}}"#,
        );
        let expected: &[u8] = b"\x0a\x13\x0a\x01x\x5a\x06\x0a\x01a\x12\x011\x5a\x06\x0a\x01b\x12\x012\
            \x12\x0a\x1a\x05Never\x52\x01n\x1a\x09\x0a\x07Running";
        assert_eq!(bytes.unwrap(), expected);
    }

    // rule A.2.5
    #[test]
    fn unknown_and_differently_spelled_names_are_dropped_and_the_last_duplicate_counts() {
        let bytes = encode(
            r#"{"Metadata": {"name": "no"}, "metadata": {"name": "a", "Name": "b", "name": "c"}, "x": [1]}"#,
        );
        assert_eq!(bytes, encode(r#"{"metadata": {"name": "c"}}"#));
        assert_eq!(
            encode(r#"{"metadata": {"labels": {"a": "1", "a": "2"}}}"#),
            encode(r#"{"metadata": {"labels": {"a": "2"}}}"#)
        );
    }

    // rule A.2.5, rule E.9.9, MAN-5
    #[test]
    fn a_value_of_the_wrong_type_is_named_with_its_path() {
        for (json, expected) in [
            (
                r#"{"metadata": {"labels": {"version": 5}}}"#,
                "metadata.labels[version]: expected a string (put it in quotes), found a number",
            ),
            (
                r#"{"metadata": {"labels": {"on": true}}}"#,
                "metadata.labels[on]: expected a string (put it in quotes), found a boolean",
            ),
            (
                r#"{"spec": {"containers": [{}, {"ports": [{"containerPort": "80"}]}]}}"#,
                "spec.containers[1].ports[0].containerPort: expected an integer (without quotes), found a string",
            ),
            (
                r#"{"spec": {"priority": 2147483648}}"#,
                "spec.priority: must be between -2147483648 and 2147483647",
            ),
            (r#"{"spec": {"priority": 1.0}}"#, "spec.priority: expected an integer, found a number"),
            (r#"{"spec": {"priority": 1e3}}"#, "spec.priority: expected an integer, found a number"),
            (
                r#"{"spec": {"hostNetwork": "yes"}}"#,
                "spec.hostNetwork: expected true or false, found a string",
            ),
            (r#"{"spec": {"containers": {}}}"#, "spec.containers: expected a list, found an object"),
            (r#"{"spec": []}"#, "spec: expected an object, found a list"),
            (r#"[]"#, "pod: expected an object, found a list"),
            (
                r#"{"spec": {"volumes": [{"hostPath": {"path": 1}}]}}"#,
                "spec.volumes[0].hostPath.path: expected a string (put it in quotes), found a number",
            ),
            (
                r#"{"metadata": {"creationTimestamp": "yesterday"}}"#,
                "metadata.creationTimestamp: expected a time such as 2026-01-31T12:00:00Z, found a string",
            ),
        ] {
            assert_eq!(error(json), expected);
        }
        let located = encode("{\"metadata\": {\n\"labels\": {\n\"a\": 5}}}").unwrap_err();
        assert_eq!(located.line, 3);
    }

    // rule E.9.9
    #[test]
    fn null_is_absence() {
        let nulls = r#"{"metadata": {"name": "a", "labels": null, "creationTimestamp": null}, "spec": null}"#;
        assert_eq!(encode(nulls), encode(r#"{"metadata": {"name": "a"}}"#));
        // In a list or a map there is no absence: the zero value stands there.
        let pod = pod(
            r#"{"metadata": {"labels": {"a": null}, "finalizers": [null]}, "spec": {"containers": [null]}}"#,
        );
        assert_eq!(pod.metadata.as_ref().unwrap().labels["a"], "");
        assert_eq!(pod.metadata.unwrap().finalizers, [""]);
        assert_eq!(pod.spec.unwrap().containers.len(), 1);
    }

    // rule A.4.10
    #[test]
    fn zeros_are_written_only_where_they_mean_something() {
        let spec = pod(
            r#"{"spec": {"hostNetwork": false, "hostname": "", "priority": 0, "enableServiceLinks": false,
            "securityContext": {}, "runtimeClassName": ""}}"#,
        )
        .spec
        .unwrap();
        assert_eq!((spec.host_network, spec.hostname), (None, None));
        assert_eq!((spec.priority, spec.enable_service_links), (Some(0), Some(false)));
        assert_eq!(spec.runtime_class_name.as_deref(), Some(""));
        assert!(spec.security_context.is_some());
    }

    // rule E.9.7
    #[test]
    fn inlined_messages_are_nested() {
        let spec = pod(r#"{"spec": {
            "volumes": [{"name": "v", "emptyDir": {}}, {"name": "none"}],
            "containers": [{"livenessProbe": {"httpGet": {"port": "web"}, "periodSeconds": 5},
                "envFrom": [{"configMapRef": {"name": "c", "optional": true}}, {"secretRef": {"optional": false}}]}],
            "ephemeralContainers": [{"name": "e", "targetContainerName": "t", "image": "i"}]}}"#)
        .spec
        .unwrap();
        assert!(spec.volumes[0].volume_source.as_ref().unwrap().empty_dir.is_some());
        assert!(spec.volumes[1].volume_source.is_none());
        let probe = spec.containers[0].liveness_probe.as_ref().unwrap();
        let port = probe.handler.as_ref().unwrap().http_get.as_ref().unwrap().port.as_ref().unwrap();
        assert_eq!(
            (port.r#type, port.str_val.as_deref(), probe.period_seconds),
            (Some(1), Some("web"), Some(5))
        );
        let config_map = spec.containers[0].env_from[0].config_map_ref.as_ref().unwrap();
        assert_eq!(config_map.local_object_reference.as_ref().unwrap().name.as_deref(), Some("c"));
        assert_eq!(config_map.optional, Some(true));
        assert!(spec.containers[0].env_from[1].secret_ref.as_ref().unwrap().local_object_reference.is_none());
        let ephemeral = &spec.ephemeral_containers[0];
        assert_eq!(ephemeral.ephemeral_container_common.as_ref().unwrap().image.as_deref(), Some("i"));
        assert_eq!(ephemeral.target_container_name.as_deref(), Some("t"));
    }

    // rule E.9.5, rule E.9.6, rule A.2.9
    #[test]
    fn leaves_have_their_own_forms() {
        let pod = pod(r#"{"metadata": {"creationTimestamp": "2026-07-01T12:30:15.7Z",
                "deletionTimestamp": "0001-01-01T00:00:00Z",
                "managedFields": [{"fieldsV1": {"f:spec": {".": {}, "n": 1.50}}}]},
            "spec": {"overhead": {"cpu": 0.5, "memory": " 1024Mi "},
                "containers": [{"livenessProbe": {"tcpSocket": {"port": 8080}}}]}}"#);
        let metadata = pod.metadata.unwrap();
        assert_eq!(metadata.creation_timestamp.unwrap().seconds, Some(1_782_909_015));
        assert_eq!(metadata.deletion_timestamp, None);
        let fields = metadata.managed_fields[0].fields_v1.as_ref().unwrap();
        assert_eq!(fields.raw.as_deref(), Some(&br#"{"f:spec":{".":{},"n":1.50}}"#[..]));
        let spec = pod.spec.unwrap();
        assert_eq!(spec.overhead["cpu"].string.as_deref(), Some("500m"));
        assert_eq!(spec.overhead["memory"].string.as_deref(), Some("1Gi"));
        let handler = spec.containers[0].liveness_probe.as_ref().unwrap().handler.as_ref().unwrap();
        let port = handler.tcp_socket.as_ref().unwrap().port.as_ref().unwrap();
        assert_eq!((port.r#type, port.int_val), (Some(0), Some(8080)));
    }

    #[test]
    fn values_are_not_in_messages_and_long_keys_are_cut() {
        for json in [
            r#"{"spec": {"containers": [{"env": [{"value": 8675309}]}]}}"#,
            r#"{"spec": {"overhead": {"cpu": "8675309x"}}}"#,
            r#"{"spec": {"priority": 86753098675309}}"#,
            r#"{"spec": {"priority": 8675309.5}}"#,
            r#"{"spec": {"priority": "8675309"}}"#,
            r#"{"spec": {"hostNetwork": "8675309"}}"#,
            r#"{"spec": {"containers": "8675309"}}"#,
            r#"{"metadata": {"labels": "8675309", "creationTimestamp": "8675309"}}"#,
            r#"{"metadata": {"creationTimestamp": "8675309"}}"#,
        ] {
            assert!(!error(json).contains("8675309"), "{}", error(json));
        }
        let message = error(&format!(r#"{{"metadata": {{"labels": {{"{}": 1}}}}}}"#, "9x".repeat(5000)));
        assert!(message.len() < 300, "{message}");
    }
}
