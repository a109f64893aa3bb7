//! Arbitrary bytes never panic; the canonical form shows the same JSON, and YAML says the same as JSON.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use pods_api::wire::{canonical_pod, parse_json, parse_yaml, pod_to_json, pod_to_yaml};

fuzz_target!(|data: &[u8]| {
    let Ok(json) = pod_to_json(data) else { return };
    let canonical = canonical_pod(&Bytes::copy_from_slice(data)).expect("what has JSON has a canonical form");
    assert_eq!(pod_to_json(&canonical).as_ref(), Ok(&json));
    let yaml = pod_to_yaml(data).expect("what has JSON has YAML");
    let from_yaml = parse_yaml(yaml.as_bytes()).expect("what was written is YAML");
    let from_json = parse_json(json.to_string().as_bytes()).expect("what was written is JSON");
    assert_eq!(encodings(&from_yaml), encodings(&from_json));
});

fn encodings(node: &pods_api::wire::Node) -> Result<Bytes, String> {
    pods_api::wire::encode_pod(node).map_err(|error| error.message)
}
