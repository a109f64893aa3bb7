//! Edits of arbitrary bytes never panic; those of a canonical pod give a canonical pod that says what was set.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use pods_api::wire::{PodEdit, PodView, canonical_pod};

fuzz_target!(|input: (&[u8], &str, &str, i64)| {
    let (data, key, value, seconds) = input;
    let edit = |pod: &[u8]| {
        PodEdit::new(pod)
            .uid(key)
            .deletion_timestamp(seconds)
            .annotation(key, value)
            .status(b"\x0a\x01x")
            .finish()
    };
    let _ = edit(data);
    let Ok(canonical) = canonical_pod(&Bytes::copy_from_slice(data)) else { return };
    let edited = edit(&canonical).expect("a canonical pod can be edited");
    assert_eq!(canonical_pod(&edited).as_ref(), Ok(&edited));
    let view = PodView::parse(&edited).expect("an edited pod is a pod");
    assert_eq!((&*view.uid, view.deletion_timestamp, &*view.phase), (key, Some(seconds), "x"));
    assert_eq!(view.annotation(key).as_deref(), Some(value));
});
