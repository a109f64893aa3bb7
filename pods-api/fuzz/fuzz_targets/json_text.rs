//! Arbitrary text never panics; what encodes is canonical, and its JSON encodes to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pods_api::wire::{canonical_pod, encode_pod, parse_json, pod_to_json};

fuzz_target!(|data: &[u8]| {
    let Ok(node) = parse_json(data) else { return };
    let Ok(pod) = encode_pod(&node) else { return };
    assert_eq!(canonical_pod(&pod).as_ref(), Ok(&pod));
    // Offsets can move a time past the last year that has four digits.
    if let Ok(json) = pod_to_json(&pod) {
        let again = encode_pod(&parse_json(json.to_string().as_bytes()).expect("what was written is JSON"));
        assert_eq!(again.expect("what was read encodes"), pod);
    }
});
