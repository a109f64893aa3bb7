//! Pod bytes to JSON, as `kubectl get -o json` shows a pod.
//!
//! Fields stand in the order of their numbers, which puts names first; inlined messages are flattened (rule E.9.7);
//! zero values that mean nothing are left out, so that a pod encoded by upstream (which writes every zero) and by
//! this server look the same. Fields this build does not know cannot be named and are left out too.

use bytes::Bytes;
use serde_json::{Map, Value};

use super::canonical::canonical_pod;
use super::schema::{self, Cardinality, Field, Kind, Leaf, Message};
use super::time::format_rfc3339;
use super::varint::{self, DecodeError, FieldValue, Fields};

/// Converts an encoded Pod, in canonical form or not, to its JSON object, `apiVersion` and `kind` first.
///
/// # Errors
/// Where the bytes are not an encoded Pod, or hold a time that RFC 3339 cannot write.
pub fn pod_to_json(pod: &[u8]) -> Result<Value, DecodeError> {
    // Afterwards every singular field occurs once, and no number is packed.
    let pod = canonical_pod(&Bytes::copy_from_slice(pod))?;
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), "v1".into());
    object.insert("kind".to_owned(), "Pod".into());
    read_message(&mut object, schema::pod(), &pod)?;
    Ok(Value::Object(object))
}

fn read_message(object: &mut Map<String, Value>, message: &Message, bytes: &[u8]) -> Result<(), DecodeError> {
    for wire in Fields::new(bytes) {
        let wire = wire?;
        let Some(field) = message.by_number(wire.number) else { continue };
        match (field.cardinality, field.message()) {
            (Cardinality::One, Some(inlined)) if field.is_inlined => {
                read_message(object, inlined, wire.bytes().unwrap_or_default())?;
            }
            (Cardinality::One, _) => {
                if let Some(value) = read_value(field, &wire)?
                    && (field.keeps_zero || field.message().is_some() || !is_zero(&value))
                {
                    object.insert(field.name.to_string(), value);
                }
            }
            (Cardinality::Many, _) => {
                let list = object.entry(&*field.name).or_insert_with(|| Value::Array(Vec::new()));
                if let (Value::Array(items), Some(value)) = (list, read_value(field, &wire)?) {
                    items.push(value);
                }
            }
            (Cardinality::Map, _) => {
                let (key, value) = read_entry(field, wire.bytes().unwrap_or_default())?;
                let map = object.entry(&*field.name).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(map) = map {
                    map.insert(key, value);
                }
            }
        }
    }
    Ok(())
}

fn read_entry(field: &Field, entry: &[u8]) -> Result<(String, Value), DecodeError> {
    let (mut key, mut value) = (String::new(), Value::Null);
    for part in Fields::new(entry) {
        let part = part?;
        match part.number {
            1 => key = text(&part),
            2 => value = read_value(field, &part)?.unwrap_or_default(),
            _ => {}
        }
    }
    Ok((key, value))
}

/// The value of one occurrence; `None` for an unset time. Wire types have been checked.
fn read_value(field: &Field, wire: &varint::Field<'_>) -> Result<Option<Value>, DecodeError> {
    let number = wire.varint().unwrap_or_default();
    Ok(Some(match field.kind {
        Kind::Bool => (number != 0).into(),
        Kind::Int32 | Kind::Int64 => number.cast_signed().into(),
        Kind::String | Kind::Bytes => text(wire).into(),
        Kind::Message(id) => {
            let (message, bytes) = (id.get(), wire.bytes().unwrap_or_default());
            match message.leaf {
                Some(Leaf::Time) => return read_time(bytes),
                Some(Leaf::Quantity) => read_quantity(bytes)?,
                Some(Leaf::IntOrString) => read_int_or_string(bytes)?,
                Some(Leaf::FieldsV1) => read_fields_v1(bytes)?,
                None => {
                    let mut object = Map::new();
                    read_message(&mut object, message, bytes)?;
                    Value::Object(object)
                }
            }
        }
    }))
}

/// Whether a scalar is its type's zero value.
fn is_zero(value: &Value) -> bool {
    match value {
        Value::Bool(value) => !value,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// Text that may hold invalid UTF-8 (rule E.9.8).
fn text(wire: &varint::Field<'_>) -> String {
    String::from_utf8_lossy(wire.bytes().unwrap_or_default()).into_owned()
}

/// A zero-length time is unset (rule E.9.6); nanoseconds are ignored, as upstream ignores them.
fn read_time(bytes: &[u8]) -> Result<Option<Value>, DecodeError> {
    if bytes.is_empty() {
        return Ok(None);
    }
    let seconds = last_varint(bytes, 1)?.unwrap_or_default().cast_signed();
    let what = || DecodeError { what: format!("time {seconds} has no RFC 3339 form").into(), offset: 0 };
    format_rfc3339(seconds).ok_or_else(what).map(|text| Some(text.into()))
}

/// An empty quantity is zero.
fn read_quantity(bytes: &[u8]) -> Result<Value, DecodeError> {
    let text = last_text(bytes, 1)?;
    Ok(if text.is_empty() { "0".into() } else { text.into() })
}

fn read_int_or_string(bytes: &[u8]) -> Result<Value, DecodeError> {
    let is_string = last_varint(bytes, 1)? == Some(1);
    if is_string {
        return Ok(last_text(bytes, 3)?.into());
    }
    Ok(last_varint(bytes, 2)?.unwrap_or_default().cast_signed().into())
}

/// The field set of managedFields is JSON in itself; what is not is shown as a string.
fn read_fields_v1(bytes: &[u8]) -> Result<Value, DecodeError> {
    let raw = last_text(bytes, 1)?;
    Ok(serde_json::from_str(&raw).unwrap_or_else(|_| raw.into()))
}

fn last_varint(bytes: &[u8], number: u32) -> Result<Option<u64>, DecodeError> {
    let mut last = None;
    for field in Fields::new(bytes) {
        let field = field?;
        if let (true, FieldValue::Varint(value)) = (field.number == number, field.value) {
            last = Some(value);
        }
    }
    Ok(last)
}

fn last_text(bytes: &[u8], number: u32) -> Result<String, DecodeError> {
    let mut last = String::new();
    for field in Fields::new(bytes) {
        let field = field?;
        if field.number == number {
            last = text(&field);
        }
    }
    Ok(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{encode_pod, parse_json};
    use pods_api_proto::k8s::io::api::core::v1 as core;
    use pods_api_proto::k8s::io::apimachinery::pkg::apis::meta::v1 as meta;
    use prost::Message as _;
    use serde_json::json;

    fn round_trip(json: &Value) -> Value {
        let node = parse_json(json.to_string().as_bytes()).unwrap();
        pod_to_json(&encode_pod(&node).unwrap()).unwrap()
    }

    #[test]
    fn a_pod_reads_back_as_it_was_written() {
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "a", "creationTimestamp": "2026-07-01T12:30:15Z", "labels": {"b": "", "c": "1"},
                "managedFields": [{"manager": "m", "fieldsV1": {"f:spec": {".": {}}}}]},
            "spec": {
                "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}, {"name": "w", "configMap": {"name": "c"}}],
                "containers": [{"name": "c", "resources": {"limits": {"cpu": "500m"}}, "livenessProbe":
                    {"tcpSocket": {"port": "web"}, "periodSeconds": 5}, "readinessProbe": {"httpGet": {"port": 80}}}],
                "hostNetwork": true,
                "securityContext": {"supplementalGroups": [0, -1]},
                "priority": 0
            },
            "status": {"containerStatuses": [{"name": "c", "state": {}, "ready": false, "restartCount": 0,
                "image": "", "imageID": "", "started": false}]}
        });
        assert_eq!(serde_json::to_string(&round_trip(&pod)).unwrap(), pod.to_string());
    }

    // rules E.9.4, E.9.6: upstream writes zeros and unset times; they are not shown.
    #[test]
    fn zeros_that_mean_nothing_are_left_out() {
        let pod = core::Pod {
            metadata: Some(meta::ObjectMeta {
                name: Some("a".into()),
                generate_name: Some(String::new()),
                generation: Some(0),
                creation_timestamp: Some(meta::Time::default()),
                deletion_grace_period_seconds: Some(0),
                ..Default::default()
            }),
            spec: Some(core::PodSpec {
                host_network: Some(false),
                priority: Some(0),
                security_context: Some(core::PodSecurityContext::default()),
                ..Default::default()
            }),
            status: None,
        };
        assert_eq!(
            pod_to_json(&pod.encode_to_vec()).unwrap(),
            json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "deletionGracePeriodSeconds": 0},
                "spec": {"securityContext": {}, "priority": 0}})
        );
    }

    // rule E.9.8
    #[test]
    fn text_is_read_leniently() {
        let json = pod_to_json(b"\x0a\x05\x0a\x03a\xffb\x25abcd").unwrap();
        assert_eq!(json["metadata"]["name"], "a\u{fffd}b");
    }

    #[test]
    fn a_time_beyond_rfc_3339_is_an_error() {
        let time = meta::Time { seconds: Some(i64::MAX), nanos: None };
        let metadata = meta::ObjectMeta { creation_timestamp: Some(time), ..Default::default() };
        let pod = core::Pod { metadata: Some(metadata), ..Default::default() };
        assert!(pod_to_json(&pod.encode_to_vec()).unwrap_err().to_string().contains("RFC 3339"));
    }
}
