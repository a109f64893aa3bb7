//! Any text is a mask or an error; a mask's text gives the same mask; projecting any bytes never panics, never
//! grows, and changes nothing the second time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pods_api::wire::Mask;

fuzz_target!(|input: (&str, &[u8], &[u8])| {
    let (paths, encoded, pod) = input;
    for mask in [Mask::parse(paths), Mask::from_field_mask(encoded)].into_iter().flatten() {
        if !mask.to_string().is_empty() && mask.to_string().len() <= pods_api::wire::MAX_MASK_BYTES {
            assert_eq!(Mask::parse(&mask.to_string()).as_ref(), Ok(&mask));
        }
        let mut once = Vec::new();
        if mask.project(pod, &mut once).is_err() {
            assert!(once.is_empty());
            continue;
        }
        assert!(once.len() <= pod.len());
        let mut twice = Vec::new();
        mask.project(&once, &mut twice).expect("a projection is a message");
        assert_eq!(twice, once);
    }
});
