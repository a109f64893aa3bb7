//! What the server writes into the programs' maps.

use pods_api::kernel::{CgroupEntry, CgroupMap as _, DEFAULT_RING_BYTES};
use pods_api::pod::CgroupId;

use super::Programs;

/// As many entries as the map of cgroups has.
const MAX_ENTRIES: u64 = 4096;
/// No cgroup has such a number.
const FIRST: u64 = 1 << 40;

#[test]
fn entry_that_does_not_fit_is_asked_for_again() {
    let Some(mut programs) = Programs::load(DEFAULT_RING_BYTES) else { return };
    let entry = CgroupEntry { pod: "podx".into(), container: Some("c1".into()), name: None };
    let mut put = |number: u64| programs.0.map.put(CgroupId(FIRST + number), &entry);
    assert!((0..MAX_ENTRIES).all(&mut put));
    assert!(!put(MAX_ENTRIES) && !put(MAX_ENTRIES));
    assert_eq!(programs.0.status.map_failures(), 2);
    programs.0.map.remove(CgroupId(FIRST));
    assert!(programs.0.map.put(CgroupId(FIRST + MAX_ENTRIES), &entry));
}

#[test]
fn entry_that_can_never_fit_is_not_asked_for_again() {
    let Some(mut programs) = Programs::load(DEFAULT_RING_BYTES) else { return };
    let entry =
        CgroupEntry { pod: "podx".into(), container: Some("c".repeat(100).as_str().into()), name: None };
    assert!(programs.0.map.put(CgroupId(FIRST), &entry));
    assert_eq!(programs.0.status.map_failures(), 1);
}
