//! Arbitrary bytes never panic; what is accepted has one canonical form, which is its own.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use pods_api::wire::canonical_pod;

fuzz_target!(|data: &[u8]| {
    if let Ok(canonical) = canonical_pod(&Bytes::copy_from_slice(data)) {
        assert_eq!(canonical_pod(&canonical).as_ref(), Ok(&canonical));
    }
});
