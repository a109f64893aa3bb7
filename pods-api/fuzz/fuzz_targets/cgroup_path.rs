//! Any text names a pod or none; what comes below a container never changes which pod and container it is.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pods_api::kernel::{CgroupRoot, MAX_PATH_BYTES, PodPath};

fuzz_target!(|input: (&str, &str, &str)| {
    let (path, root, below) = input;
    let root = CgroupRoot::new(root);
    let Some(pod) = PodPath::parse(path, &root) else { return };
    if let Some(uid) = pod.uid.certain() {
        assert!(pod.uid.names(uid.as_str()));
    }
    let deeper = format!("{path}/{below}");
    let is_plain = !path.contains([':', ' ', '\n', '\r']) && !below.contains([' ', '\n', '\r']);
    if is_plain && pod.container.is_some() && deeper.len() <= MAX_PATH_BYTES {
        let deeper = PodPath::parse(&deeper, &root).expect("the first pod counts");
        assert_eq!((deeper.uid, deeper.container), (pod.uid, pod.container));
    }
});
