//! Properties of the converters and of projection, checked on pods made from the whole schema, against independent
//! implementations: `k8s-openapi` for JSON, `k8s-pb` for protobuf, and a projection on JSON trees.

use proptest::prelude::*;
use prost::Message as _;
use serde_json::{Map, Value};

use super::testing::{self, Choices};
use super::{Mask, canonical_pod, parse_yaml, pod_to_json, pod_to_yaml};

/// Bytes that a pod is chosen by; a pod of the largest has some 60 kB.
fn entropy() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..3000)
}

fn project(mask: &Mask, pod: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    mask.project(pod, &mut out).unwrap();
    out
}

/// Cuts a pod's JSON to the paths, the slow and obvious way.
fn cut(value: &Value, paths: &[Vec<&str>]) -> Value {
    if paths.iter().any(Vec::is_empty) {
        return value.clone();
    }
    match value {
        Value::Object(object) => {
            let mut kept = Map::new();
            for (key, value) in object {
                let quoted = format!("`{key}`");
                let below: Vec<Vec<&str>> = paths
                    .iter()
                    .filter(|path| path[0] == key || path[0] == quoted || path[0] == "*")
                    .map(|path| path[1..].to_vec())
                    .collect();
                if below.is_empty() {
                    continue;
                }
                let is_whole = below.iter().any(Vec::is_empty);
                let value = cut(value, &below);
                if is_whole || value.as_object().is_none_or(|object| !object.is_empty()) {
                    kept.insert(key.clone(), value);
                }
            }
            Value::Object(kept)
        }
        Value::Array(items) => {
            let below: Vec<Vec<&str>> =
                paths.iter().map(|path| path[usize::from(path[0] == "*")..].to_vec()).collect();
            items.iter().map(|item| cut(item, &below)).collect()
        }
        scalar => scalar.clone(),
    }
}

fn segments(mask: &str) -> Vec<Vec<&str>> {
    // No key of the generator holds a comma, and points only occur within back quotes where a key has them.
    let split = |path| {
        let mut is_quoted = false;
        str::split(path, move |char| {
            is_quoted ^= char == '`';
            char == '.' && !is_quoted
        })
        .collect()
    };
    mask.split(',').map(split).collect()
}

/// Removes empty objects and lists: what is left of list elements of which nothing is selected.
fn without_empty(value: &Value) -> Option<Value> {
    let kept = match value {
        Value::Object(object) => object
            .iter()
            .filter_map(|(key, value)| Some((key.clone(), without_empty(value)?)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().filter_map(without_empty).collect(),
        scalar => return Some(scalar.clone()),
    };
    let is_empty = kept == Value::Array(Vec::new()) || kept == Value::Object(Map::new());
    (!is_empty).then_some(kept)
}

/// Whether a value says no more than its absence.
fn is_nothing(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Array(items) => items.iter().all(is_nothing),
        Value::Object(object) => object.values().all(is_nothing),
        scalar => *scalar == 0 || *scalar == "" || *scalar == "0",
    }
}

/// Asserts that `whole` says all that `part` says; what it says more is empty or zero, or named in `more`.
fn assert_covers(whole: &Value, part: &Value, path: &str, more: &dyn Fn(&str) -> bool) {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            for (key, part) in part {
                let path = format!("{path}.{key}");
                match whole.get(key) {
                    Some(whole) => assert_covers(whole, part, &path, more),
                    None => panic!("{path} is missing, was {part}"),
                }
            }
            for (key, extra) in whole.iter().filter(|(key, _)| !part.contains_key(*key)) {
                assert!(is_nothing(extra) || more(key), "{path}.{key} is new: {extra}");
            }
        }
        (Value::Array(whole), Value::Array(part)) => {
            assert_eq!(whole.len(), part.len(), "{path}");
            whole.iter().zip(part).for_each(|(whole, part)| assert_covers(whole, part, path, more));
        }
        _ => assert_eq!(whole, part, "{path}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn json_and_bytes_say_the_same(entropy in entropy()) {
        let json = testing::pod_json(&mut Choices::new(&entropy));
        let bytes = testing::encode(&json);
        prop_assert_eq!(&pod_to_json(&bytes).unwrap(), &json);
        prop_assert_eq!(canonical_pod(&bytes).unwrap().as_ptr(), bytes.as_ptr());
    }

    #[test]
    fn yaml_and_bytes_say_the_same(entropy in entropy()) {
        let bytes = testing::pod_bytes(&mut Choices::new(&entropy));
        let yaml = pod_to_yaml(&bytes).unwrap();
        let node = parse_yaml(yaml.as_bytes()).unwrap();
        prop_assert_eq!(super::encode_pod(&node).unwrap(), bytes);
    }

    #[test]
    fn every_encoding_of_a_pod_has_the_same_canonical_form(entropy in entropy(), more in entropy()) {
        let mut choices = Choices::new(&more);
        let pod = testing::with_unknown_fields(&testing::pod_bytes(&mut Choices::new(&entropy)), &mut choices);
        let scrambled = testing::scrambled(&pod, &mut choices);
        prop_assert_eq!(canonical_pod(&scrambled).unwrap(), canonical_pod(&pod).unwrap());
    }

    #[test]
    fn k8s_openapi_reads_the_json_as_the_same_pod(entropy in entropy()) {
        let json = pod_to_json(&testing::pod_bytes(&mut Choices::new(&entropy))).unwrap();
        let theirs: k8s_openapi::api::core::v1::Pod = serde_json::from_value(json.clone()).unwrap();
        assert_covers(&serde_json::to_value(&theirs).unwrap(), &json, "", &|_| false);
    }

    #[test]
    fn k8s_pb_reads_the_bytes_as_the_same_pod(entropy in entropy()) {
        let bytes = testing::pod_bytes(&mut Choices::new(&entropy));
        let theirs = k8s_pb::api::core::v1::Pod::decode(&*bytes).unwrap();
        let theirs = pod_to_json(&theirs.encode_to_vec()).unwrap();
        let is_newer = |field: &str| NEWER_THAN_K8S_PB.contains(&field);
        assert_covers(&pod_to_json(&bytes).unwrap(), &theirs, "", &is_newer);
    }

    // The reference implementation of projection works on JSON trees.
    #[test]
    fn projection_is_that_of_the_json_tree(entropy in entropy(), mask in entropy()) {
        let json = testing::pod_json(&mut Choices::new(&entropy));
        let text = testing::mask_text(&mut Choices::new(&mask));
        let mask = Mask::parse(&text).unwrap();
        let projected = project(&mask, &testing::encode(&json));
        let expected = cut(&json, &segments(&text));
        prop_assert_eq!(&projected[..], &testing::encode(&expected)[..], "{}", text);
        prop_assert_eq!(Mask::parse(&mask.to_string()).unwrap(), mask);
    }

    #[test]
    fn projection_is_idempotent_and_does_not_grow(entropy in entropy(), mask in entropy()) {
        let mut choices = Choices::new(&mask);
        let mask = Mask::parse(&testing::mask_text(&mut choices)).unwrap();
        let pod = testing::with_unknown_fields(&testing::pod_bytes(&mut Choices::new(&entropy)), &mut choices);
        let once = project(&mask, &pod);
        prop_assert!(once.len() <= pod.len());
        prop_assert_eq!(&project(&mask, &once), &once);
        prop_assert_eq!(project(&Mask::All, &pod), pod);
    }

    // What is not canonical is projected as if it were.
    #[test]
    fn projection_and_canonical_form_commute(entropy in entropy(), mask in entropy()) {
        let mut choices = Choices::new(&mask);
        let mask = Mask::parse(&testing::mask_text(&mut choices)).unwrap();
        let pod = testing::with_unknown_fields(&testing::pod_bytes(&mut Choices::new(&entropy)), &mut choices);
        let scrambled = testing::scrambled(&pod, &mut choices);
        let canonical = canonical_pod(&scrambled).unwrap();
        prop_assert_eq!(canonical_pod(&project(&mask, &scrambled).into()).unwrap(), project(&mask, &canonical));
    }

    #[test]
    fn masks_are_sets_of_fields(entropy in entropy(), masks in entropy()) {
        let mut choices = Choices::new(&masks);
        let (a, b) = (testing::mask_text(&mut choices), testing::mask_text(&mut choices));
        let (mask_a, mask_b) = (Mask::parse(&a).unwrap(), Mask::parse(&b).unwrap());
        let union = mask_a.union(&mask_b);
        prop_assert_eq!(&union, &Mask::parse(&format!("{a},{b}")).unwrap());
        prop_assert_eq!(&mask_b.union(&mask_a), &union);
        prop_assert_eq!(mask_a.intersection(&mask_b), mask_b.intersection(&mask_a));
        prop_assert_eq!(&union.intersection(&mask_a), &mask_a);

        let pod = testing::pod_bytes(&mut Choices::new(&entropy));
        let json = |mask: &Mask, pod: &[u8]| without_empty(&pod_to_json(&project(mask, pod)).unwrap());
        // A part of a part is the intersection, but for list elements of which nothing is left.
        let twice = json(&mask_a, &project(&mask_b, &pod));
        prop_assert_eq!(json(&mask_a.intersection(&mask_b), &pod), twice);
        // Taking away what the other selects leaves nothing of it.
        let rest = mask_a.difference(&mask_b);
        prop_assert_eq!(rest.intersection(&mask_b), rest.difference(&rest));
    }

    #[test]
    fn projection_of_any_bytes_does_not_panic_or_grow(bytes in entropy(), mask in entropy(), pod in entropy()) {
        let mask = Mask::parse(&testing::mask_text(&mut Choices::new(&mask))).unwrap();
        let mut broken = testing::pod_bytes(&mut Choices::new(&pod)).to_vec();
        for (at, byte) in bytes.iter().enumerate().take(20) {
            let len = broken.len().max(1);
            if let Some(target) = broken.get_mut((at * 977 + usize::from(*byte) * 31) % len) {
                *target ^= byte;
            }
        }
        for pod in [&bytes, &broken] {
            let mut out = b"before".to_vec();
            match mask.project(pod, &mut out) {
                Ok(()) => prop_assert!(out.len() <= pod.len() + 6),
                Err(_) => prop_assert_eq!(&out, b"before"),
            }
        }
    }
}

/// Fields of 1.37 that the newest schema in k8s-pb does not have.
const NEWER_THAN_K8S_PB: &[&str] = &[
    "bindMountOptions",
    "defaultUser",
    "evictionResponders",
    "message",
    "mode",
    "nodeAllocatableResourceClaimStatuses",
    "protocol",
    "schedulingGroup",
    "user",
    "volumeHealth",
    "volumeStatus",
];
