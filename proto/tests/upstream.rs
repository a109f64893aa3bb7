//! core/v1 Pod as written in `proto/`, checked field by field against two independent descriptions of it: `k8s-pb`
//! (numbers and types; an older Kubernetes, so a subset) and `k8s-openapi` (JSON names; 1.37).
//!
//! Each field is probed alone: a Pod is encoded with nothing but that field, read by the other crate, and written
//! again. What comes back tells whether the other side has that number (or name), type and cardinality there.

use std::collections::BTreeSet;

use prost::Message as _;
use prost::encoding::{encode_key, encode_varint};
use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor};
use serde_json::{Value, json};

/// Fields that the Kubernetes of k8s-pb does not have yet.
const NEWER_THAN_K8S_PB: &[&str] = &[
    "ClusterTrustBundleProjection.user",
    "ConfigMapVolumeSource.defaultUser",
    "DownwardAPIVolumeFile.user",
    "DownwardAPIVolumeSource.defaultUser",
    "EmptyDirVolumeSource.mode",
    "EvictionResponder.name",
    "EvictionResponder.priority",
    "GRPCAction.mode",
    "HTTPGetAction.protocol",
    "ImageVolumeStatus.imageRef",
    "KeyToPath.user",
    "NodeAllocatableMappedResources.name",
    "NodeAllocatableMappedResources.quantity",
    "NodeAllocatableOverheadResources.name",
    "NodeAllocatableOverheadResources.perContainer",
    "NodeAllocatableOverheadResources.perPod",
    "NodeAllocatableResourceClaimStatus.containers",
    "NodeAllocatableResourceClaimStatus.mapping",
    "NodeAllocatableResourceClaimStatus.overhead",
    "NodeAllocatableResourceClaimStatus.resourceClaimName",
    "PodCertificateProjection.user",
    "PodSchedulingGroup.podGroupName",
    "PodSpec.evictionResponders",
    "PodSpec.schedulingGroup",
    "PodStatus.nodeAllocatableResourceClaimStatuses",
    "PodStatus.volumeHealth",
    "PodVolumeHealth.healthConditions",
    "PodVolumeHealth.lastTransitionTime",
    "PodVolumeHealth.name",
    "ProjectedVolumeSource.defaultUser",
    "ResourceHealth.message",
    "SecretVolumeSource.defaultUser",
    "ServiceAccountTokenProjection.user",
    "VolumeHealthCondition.message",
    "VolumeHealthCondition.reason",
    "VolumeHealthCondition.status",
    "VolumeMount.bindMountOptions",
    "VolumeMountStatus.volumeStatus",
    "VolumeStatus.image",
];

/// Messages that JSON writes as a scalar.
const LEAVES: [&str; 4] = ["Time", "Quantity", "IntOrString", "FieldsV1"];

/// Messages that JSON inlines into the parent.
const INLINED: [&str; 4] = ["volumeSource", "handler", "ephemeralContainerCommon", "localObjectReference"];

/// Every field that a Pod reaches, each with the fields that lead to its message, by the first way found.
fn fields() -> Vec<(Vec<FieldDescriptor>, FieldDescriptor)> {
    let pool =
        DescriptorPool::decode(pods_api_proto::DESCRIPTOR_SET).expect("the build wrote a descriptor set");
    let pod = pool.get_message_by_name("k8s.io.api.core.v1.Pod").expect("proto/ has the message Pod");
    let mut known = BTreeSet::from([pod.full_name().to_owned()]);
    let mut messages = vec![(Vec::new(), pod)];
    let mut fields = Vec::new();
    let mut next = 0;
    while let Some((path, message)) = messages.get(next).cloned() {
        next += 1;
        for field in message.fields() {
            if let Some(below) = value_message(&field)
                && known.insert(below.full_name().to_owned())
            {
                messages.push(([&path[..], std::slice::from_ref(&field)].concat(), below));
            }
            fields.push((path.clone(), field));
        }
    }
    fields
}

/// The message that a field holds, as map value too.
fn value_message(field: &FieldDescriptor) -> Option<MessageDescriptor> {
    value_field(field).kind().as_message().cloned()
}

fn value_field(field: &FieldDescriptor) -> FieldDescriptor {
    match field.kind() {
        Kind::Message(entry) if entry.is_map_entry() => entry.map_entry_value_field(),
        _ => field.clone(),
    }
}

fn put_bytes(number: u32, bytes: &[u8], out: &mut Vec<u8>) {
    encode_key(number, prost::encoding::WireType::LengthDelimited, out);
    encode_varint(bytes.len() as u64, out);
    out.extend(bytes);
}

fn put_varint(number: u32, value: u64, out: &mut Vec<u8>) {
    encode_key(number, prost::encoding::WireType::Varint, out);
    encode_varint(value, out);
}

/// Encodes a value of the field's type as field `number`: the first, or a second one that tells types apart.
fn put_value(kind: &Kind, number: u32, is_second: bool, out: &mut Vec<u8>) {
    match (kind, is_second) {
        (Kind::Bool, second) => put_varint(number, if second { 2 } else { 0 }, out),
        // A 32-bit decoder drops the high half.
        (Kind::Int32 | Kind::Int64, second) => {
            put_varint(number, if second { (7 << 40) + 5 } else { 3 }, out);
        }
        (Kind::String | Kind::Bytes, second) => put_bytes(number, if second { b"b" } else { b"a" }, out),
        (Kind::Message(_), _) => put_bytes(number, b"", out),
        other => panic!("unexpected type {other:?}"),
    }
}

/// The second value as a decoder of that type writes it again.
fn put_second_normalized(kind: &Kind, number: u32, out: &mut Vec<u8>) {
    match kind {
        Kind::Bool => put_varint(number, 1, out),
        Kind::Int32 => put_varint(number, 5, out),
        _ => put_value(kind, number, true, out),
    }
}

fn map_entry(number: u32, value: impl Fn(&mut Vec<u8>), out: &mut Vec<u8>) {
    let mut entry = Vec::new();
    put_bytes(1, b"k", &mut entry);
    value(&mut entry);
    put_bytes(number, &entry, out);
}

/// Puts an encoded message where the path leads.
fn wrap(path: &[FieldDescriptor], message: Vec<u8>) -> Vec<u8> {
    path.iter().rev().fold(message, |inner, field| {
        let mut outer = Vec::new();
        if field.is_map() {
            map_entry(field.number(), |entry| put_bytes(2, &inner, entry), &mut outer);
        } else {
            put_bytes(field.number(), &inner, &mut outer);
        }
        outer
    })
}

#[test]
fn numbers_types_and_cardinalities_are_those_of_k8s_pb() {
    let mut newer = BTreeSet::new();
    for (path, field) in fields() {
        let (number, kind) = (field.number(), value_field(&field).kind());
        let (mut twice, mut expected) = (Vec::new(), Vec::new());
        if field.is_map() {
            map_entry(number, |entry| put_value(&kind, 2, false, entry), &mut twice);
            map_entry(number, |entry| put_value(&kind, 2, true, entry), &mut twice);
            // prost leaves out a map value that is a message without fields.
            map_entry(
                number,
                |entry| {
                    if kind.as_message().is_none() {
                        put_second_normalized(&kind, 2, entry);
                    }
                },
                &mut expected,
            );
        } else {
            put_value(&kind, number, false, &mut twice);
            put_value(&kind, number, true, &mut twice);
            if field.is_list() {
                put_value(&kind, number, false, &mut expected);
            }
            put_second_normalized(&kind, number, &mut expected);
        }
        let read = k8s_pb::api::core::v1::Pod::decode(&*wrap(&path, twice))
            .unwrap_or_else(|error| panic!("{field:?}: {error}"));
        let written = read.encode_to_vec();
        if written == wrap(&path, expected) {
            continue;
        }
        // Not known there: then nothing of it may have been understood.
        let is_known = (0..=path.len()).all(|len| written != wrap(&path[..len], Vec::new()));
        assert!(!is_known, "{} differs: {written:?}", field.full_name());
        newer.insert(format!("{}.{}", field.parent_message().name(), field.name()));
    }
    let expected: BTreeSet<String> = NEWER_THAN_K8S_PB.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(newer, expected);
}

// rule E.9.8
#[test]
fn json_names_are_those_of_k8s_openapi() {
    let mut missing = Vec::new();
    for (path, field) in fields() {
        if LEAVES.contains(&field.parent_message().name()) || INLINED.contains(&field.name()) {
            continue;
        }
        let steps: Vec<&FieldDescriptor> =
            path.iter().chain([&field]).filter(|field| !INLINED.contains(&field.name())).collect();
        let mut json = probe(&value_field(&field));
        for field in steps.iter().rev() {
            json = match (field.is_map(), field.is_list()) {
                (true, _) => json!({field.name(): {"k": json}}),
                (_, true) => json!({field.name(): [json]}),
                _ => json!({field.name(): json}),
            };
        }
        let read: k8s_openapi::api::core::v1::Pod =
            serde_json::from_value(json.clone()).unwrap_or_else(|error| panic!("{field:?}: {error}"));
        let written = serde_json::to_value(&read).unwrap();
        if !covers(&written, &json) {
            missing.push(field.full_name().to_owned());
        }
    }
    assert_eq!(missing, [""; 0]);
}

fn probe(field: &FieldDescriptor) -> Value {
    match field.kind() {
        Kind::Bool => true.into(),
        Kind::Int32 => i32::MAX.into(),
        Kind::Int64 => i64::MAX.into(),
        Kind::Message(message) => match message.name() {
            "Time" => "2026-07-01T12:30:15Z".into(),
            "Quantity" => "1536Mi".into(),
            "IntOrString" => "web".into(),
            "FieldsV1" => json!({"f:spec": {}}),
            _ => json!({}),
        },
        _ => "text".into(),
    }
}

/// Whether one JSON value says all that the other says.
fn covers(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().all(|(key, part)| whole.get(key).is_some_and(|whole| covers(whole, part)))
        }
        (Value::Array(whole), Value::Array(part)) => {
            whole.len() == part.len() && whole.iter().zip(part).all(|(whole, part)| covers(whole, part))
        }
        _ => whole == part,
    }
}
