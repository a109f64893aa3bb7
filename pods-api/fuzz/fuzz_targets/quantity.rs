//! Arbitrary text never panics; the canonical text of a quantity is a quantity of the same value.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pods_api::wire::Quantity;

fuzz_target!(|data: &str| {
    let Ok(mut quantity) = Quantity::parse(data) else { return };
    let again = Quantity::parse(&quantity.to_string()).expect("canonical text is a quantity");
    assert_eq!(again, quantity);
    let before = quantity.clone();
    quantity.round_up_to_milli();
    assert!(if before.is_negative() { quantity <= before } else { quantity >= before });
});
