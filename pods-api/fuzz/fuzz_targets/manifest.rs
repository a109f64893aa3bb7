//! An arbitrary manifest never panics; one that is taken gives the same canonical pod each time, with the identity
//! that the bytes carry.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pods_api::source::manifest::{Origin, decode};
use pods_api::wire::{PodView, canonical_pod};
use std::path::Path;

fuzz_target!(|data: &[u8]| {
    let path = Path::new("/m/a");
    let origin = Origin { node_name: &"node".into(), path };
    match decode(data, origin, |_| String::new()) {
        Ok(decoded) => {
            let pod = decoded.pod;
            assert_eq!(canonical_pod(&pod.pod).as_ref(), Ok(&pod.pod));
            let view = PodView::parse(&pod.pod).expect("an encoded pod can be read");
            assert_eq!(view.name, pod.name.as_str());
            assert_eq!(view.namespace, pod.namespace.as_str());
            assert_eq!(view.uid, pod.uid.as_str());
            let again = decode(data, origin, |_| String::new()).expect("it decoded before");
            assert_eq!(again.pod, pod);
        }
        Err(error) => {
            assert!(!error.problems().is_empty());
            assert!(error.describe(path).starts_with("/m/a:"));
        }
    }
});
