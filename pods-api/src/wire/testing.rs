//! Pods made from the schema and from a stream of choices, for property tests, fuzz targets and benchmarks.
//!
//! Whatever the schema can say, these pods say sooner or later: every message, list, map and leaf. Choices come from
//! bytes, so that a test case that fails shrinks by shrinking the bytes; when they run out, nothing more is added.

use std::collections::BTreeMap;

use bytes::Bytes;
use serde_json::{Map, Value, json};

use super::schema::{self, Cardinality, Field, Kind, Leaf, Message};
use super::varint::{self, Fields, put_length_field, put_varint_field};
use super::{encode_pod, parse_json};

/// Out of 256: how often an optional field is there.
const FIELD_ODDS: u8 = 40;

const TEXTS: [&str; 16] = [
    "a",
    "web-0",
    "10.0.0.7",
    "true",
    "1e3",
    "null",
    "2026-01-31",
    "é\u{1F600}",
    "a\nb\n",
    "with \"quotes\" \\ and\ttab",
    " x ",
    "app.kubernetes.io/name",
    "a: b # c",
    "$(NAME)",
    "-",
    "0x1F",
];
const KEYS: [&str; 8] = ["a", "app.kubernetes.io/name", "b/c", "cpu", "memory", "x.y-z_0", "10", "é"];
const QUANTITIES: [&str; 8] = ["0", "1", "500m", "1536Mi", "1e3", "-5Gi", "12345678901234567890", "7n"];

/// A stream of choices; all of them are the smallest once its bytes have run out.
#[derive(Debug, Clone)]
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// Choices made from these bytes.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte().unwrap_or(0)) % bound
    }

    fn happens(&mut self, odds: u8) -> bool {
        self.byte().is_some_and(|byte| byte < odds)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }
}

/// A Pod as JSON in the form in which [`super::pod_to_json`] shows it, so that the two can be compared.
#[must_use]
pub fn pod_json(choices: &mut Choices<'_>) -> Value {
    let mut object = Map::new();
    object.insert("apiVersion".to_owned(), "v1".into());
    object.insert("kind".to_owned(), "Pod".into());
    for field in &schema::pod().fields {
        let message = field.message().expect("a Pod is made of messages");
        object.insert(field.name.to_string(), Value::Object(message_json(message, choices)));
    }
    Value::Object(object)
}

/// The encoded form of [`pod_json`].
#[must_use]
pub fn pod_bytes(choices: &mut Choices<'_>) -> Bytes {
    encode(&pod_json(choices))
}

/// Encodes a Pod given as JSON.
///
/// # Panics
/// Where it is not one.
#[must_use]
pub fn encode(pod: &Value) -> Bytes {
    encode_pod(&parse_json(pod.to_string().as_bytes()).expect("JSON is JSON"))
        .expect("the JSON is that of a Pod")
}

fn message_json(message: &'static Message, choices: &mut Choices<'_>) -> Map<String, Value> {
    let mut object = Map::new();
    for field in &message.fields {
        if !choices.happens(FIELD_ODDS) {
            continue;
        }
        match (field.cardinality, field.message()) {
            (Cardinality::One, Some(inlined)) if field.is_inlined => {
                object.extend(message_json(inlined, choices));
            }
            (Cardinality::One, _) => {
                object.insert(field.name.to_string(), value_json(field, choices, field.keeps_zero));
            }
            (Cardinality::Many, _) => {
                let items = (0..=choices.below(3)).map(|_| value_json(field, choices, true)).collect();
                object.insert(field.name.to_string(), Value::Array(items));
            }
            (Cardinality::Map, _) => {
                let entries: BTreeMap<&str, Value> = (0..=choices.below(3))
                    .map(|_| (choices.pick(&KEYS), value_json(field, choices, true)))
                    .collect();
                let entries = entries.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
                object.insert(field.name.to_string(), Value::Object(entries));
            }
        }
    }
    object
}

fn value_json(field: &Field, choices: &mut Choices<'_>, may_be_zero: bool) -> Value {
    let is_zero = may_be_zero && choices.happens(64);
    match field.kind {
        Kind::Bool => (!is_zero).into(),
        Kind::Int32 if is_zero => 0.into(),
        Kind::Int32 => choices.pick(&[1, -1, 8080, i32::MAX, i32::MIN]).into(),
        Kind::Int64 if is_zero => 0.into(),
        Kind::Int64 => choices.pick(&[1, -1, 1_782_909_015, i64::MAX, i64::MIN]).into(),
        Kind::String | Kind::Bytes if is_zero => "".into(),
        Kind::String | Kind::Bytes => choices.pick(&TEXTS).into(),
        Kind::Message(id) => match id.get().leaf {
            Some(Leaf::Time) => {
                choices.pick(&["2026-07-01T12:30:15Z", "1970-01-01T00:00:00Z", "1969-12-31T23:59:59Z"]).into()
            }
            Some(Leaf::Quantity) => choices.pick(&QUANTITIES).into(),
            Some(Leaf::IntOrString) => {
                choices.pick(&[Some(80), Some(0), Some(-1), None]).map_or("web".into(), Value::from)
            }
            Some(Leaf::FieldsV1) => json!({"f:metadata": {"f:labels": {".": {}, "k:{\"a\":1}": {}}}}),
            None => Value::Object(message_json(id.get(), choices)),
        },
    }
}

/// Adds fields that no schema knows to messages of every depth; canonical bytes stay canonical.
#[must_use]
pub fn with_unknown_fields(pod: &[u8], choices: &mut Choices<'_>) -> Bytes {
    let mut out = Vec::new();
    rewrite(&mut out, schema::pod(), pod, choices, &mut |fields, choices| {
        if choices.happens(64) {
            let mut unknown = Vec::new();
            match choices.below(4) {
                0 => put_varint_field(&mut unknown, 5001, 300),
                1 => put_length_field(&mut unknown, 5002, b"unknown"),
                2 => unknown.extend(b"\xdd\xb8\x02abcd"),
                _ => unknown.extend(b"\xe1\xb8\x02abcdefgh"),
            }
            fields.push(unknown);
        }
    });
    out.into()
}

/// Another encoding of the same pod: fields in another order where that changes nothing, messages in two parts.
#[must_use]
pub fn scrambled(pod: &[u8], choices: &mut Choices<'_>) -> Bytes {
    let mut out = Vec::new();
    rewrite(&mut out, schema::pod(), pod, choices, &mut |fields, choices| {
        // Moving one field over another changes nothing unless both have the same number; swap neighbours so.
        for at in 1..fields.len() {
            let number =
                |field: &[u8]| Fields::new(field).next().and_then(Result::ok).map(|field| field.number);
            if choices.happens(96) && number(&fields[at]) != number(&fields[at - 1]) {
                fields.swap(at, at - 1);
            }
        }
    });
    out.into()
}

/// Writes a message again, each of its fields encoded by itself, after `change` has seen them; messages first below.
fn rewrite(
    out: &mut Vec<u8>,
    message: &'static Message,
    bytes: &[u8],
    choices: &mut Choices<'_>,
    change: &mut dyn FnMut(&mut Vec<Vec<u8>>, &mut Choices<'_>),
) {
    let mut fields = Vec::new();
    for wire in Fields::new(bytes) {
        let wire: varint::Field<'_> = wire.expect("the pod was encoded here");
        let below = message
            .by_number(wire.number)
            .filter(|field| field.cardinality != Cardinality::Map)
            .and_then(|field| Some((field, field.message()?, wire.bytes()?)));
        let Some((field, below, content)) = below else {
            fields.push(wire.raw.to_vec());
            continue;
        };
        let mut inner = Vec::new();
        rewrite(&mut inner, below, content, choices, change);
        let starts: Vec<usize> = Fields::new(&inner)
            .scan(0, |at, field| {
                let start = *at;
                *at += field.expect("it was just written").raw.len();
                Some(start)
            })
            .collect();
        // A singular message may be sent in two parts.
        let split = match field.cardinality {
            Cardinality::One if !starts.is_empty() && choices.happens(48) => {
                starts[choices.below(starts.len())]
            }
            _ => 0,
        };
        let (first, second) = inner.split_at(split);
        for part in [first, second].into_iter().skip(usize::from(split == 0)) {
            let mut encoded = Vec::new();
            put_length_field(&mut encoded, wire.number, part);
            fields.push(encoded);
        }
    }
    change(&mut fields, choices);
    out.extend(fields.concat());
}

/// A plausible running pod of about so many bytes, the same for the same seed.
///
/// Small pods have two containers with probes, mounts and a status for each; larger ones have more of everything that
/// grows in practice: variables, annotations, containers.
#[must_use]
pub fn plausible_pod(seed: u64, bytes: usize) -> Bytes {
    (1..)
        .map(|scale| encode(&plausible_json(seed, scale)))
        .find(|pod| pod.len() >= bytes)
        .expect("scales do not end")
}

fn plausible_json(seed: u64, scale: usize) -> Value {
    let hex = |salt: u64| format!("{:016x}", (seed ^ salt).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let uid =
        format!("{}-{}-4{}-8{}-{}", &hex(1)[..8], &hex(2)[..4], &hex(3)[..3], &hex(4)[..3], &hex(5)[..12]);
    let name = format!("web-{}-{}", &hex(6)[..10], &hex(7)[..5]);
    let containers = 2 + scale / 8;
    let strings = |prefix: &str, count: usize| -> Map<String, Value> {
        (0..count)
            .map(|n| (format!("example.com/{prefix}-{n}"), format!("value {n} of {}", hex(n as u64)).into()))
            .collect()
    };
    let container = |n: usize| {
        let env: Vec<_> = (0..4 + scale)
            .map(|e| match e % 3 {
                0 => json!({"name": format!("POD_IP_{e}"), "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "status.podIP"}}}),
                _ => json!({"name": format!("SETTING_{e}"), "value": hex(e as u64)}),
            })
            .collect();
        json!({
            "name": format!("c{n}"), "image": format!("registry.example.com/team/app-{n}:v1.{seed}"),
            "args": ["--listen=:8080", "--verbose"],
            "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}], "env": env,
            "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "250m", "memory": "256Mi"}},
            "volumeMounts": [{"name": "config", "readOnly": true, "mountPath": "/etc/app"},
                {"name": "token", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}],
            "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "timeoutSeconds": 1,
                "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
            "readinessProbe": {"httpGet": {"path": "/readyz", "port": "http", "scheme": "HTTP"}, "timeoutSeconds": 1,
                "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3},
            "terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "IfNotPresent",
            "terminationMessagePolicy": "File",
            "securityContext": {"capabilities": {"drop": ["ALL"]}, "runAsNonRoot": true, "allowPrivilegeEscalation": false}
        })
    };
    let status = |n: usize| {
        json!({"name": format!("c{n}"), "state": {"running": {"startedAt": "2026-07-01T12:30:15Z"}}, "ready": true,
            "restartCount": 0, "image": format!("registry.example.com/team/app-{n}:v1.{seed}"),
            "imageID": format!("registry.example.com/team/app-{n}@sha256:{}{}{}{}", hex(1), hex(2), hex(3), hex(4)),
            "containerID": format!("containerd://{}{}{}{}", hex(5), hex(6), hex(7), hex(n as u64)), "started": true})
    };
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-07-01T12:30:16Z"}));
    json!({
        "metadata": {"name": name, "generateName": "web-", "namespace": "shop", "uid": uid, "resourceVersion": "123456",
            "creationTimestamp": "2026-07-01T12:30:10Z",
            "labels": {"app.kubernetes.io/name": "web", "app.kubernetes.io/part-of": "shop", "pod-template-hash": &hex(6)[..10]},
            "annotations": strings("note", 3 + scale),
            "ownerReferences": [{"kind": "ReplicaSet", "name": format!("web-{}", &hex(6)[..10]), "uid": uid,
                "apiVersion": "apps/v1", "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"volumes": [{"name": "config", "configMap": {"name": "web", "defaultMode": 420}},
                {"name": "token", "projected": {"sources": [{"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}], "defaultMode": 420}}],
            "containers": (0..containers).map(container).collect::<Vec<_>>(), "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "serviceAccountName": "web",
            "serviceAccount": "web", "nodeName": "node-1", "securityContext": {}, "schedulerName": "default-scheduler",
            "tolerations": [{"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": 300}], "priority": 0, "enableServiceLinks": true, "preemptionPolicy": "PreemptLowerPriority"},
        "status": {"phase": "Running", "conditions": conditions,
            "hostIP": "192.0.2.10", "podIP": format!("10.1.{}.{}", seed >> 8 & 255, seed & 255), "startTime": "2026-07-01T12:30:10Z",
            "containerStatuses": (0..containers).map(status).collect::<Vec<_>>(), "qosClass": "Burstable",
            "podIPs": [{"ip": format!("10.1.{}.{}", seed >> 8 & 255, seed & 255)}], "hostIPs": [{"ip": "192.0.2.10"}]}
    })
}

/// A mask's text of one to four paths of the schema, deep and shallow, now and then with `*` or a map's key.
#[must_use]
pub fn mask_text(choices: &mut Choices<'_>) -> String {
    let paths: Vec<String> = (0..=choices.below(4)).map(|_| mask_path(choices)).collect();
    paths.join(",")
}

fn mask_path(choices: &mut Choices<'_>) -> String {
    let mut path = String::new();
    let mut message = schema::pod();
    loop {
        let field = &message.fields[choices.below(message.fields.len())];
        if !field.is_inlined {
            path.push_str(&field.name);
        }
        let below = field.message().filter(|below| below.leaf.is_none());
        match (field.cardinality, below) {
            (Cardinality::Map, _) if choices.happens(96) => {
                path.push_str(&format!(".`{}`", choices.pick(&KEYS)));
                return path;
            }
            // A path does not end in a message that JSON does not name.
            (_, Some(below)) if field.is_inlined || choices.happens(200) => {
                if field.cardinality == Cardinality::Many && choices.happens(64) {
                    path.push_str(".*");
                }
                message = below;
                if !field.is_inlined {
                    path.push('.');
                }
            }
            _ => return path,
        }
    }
}
