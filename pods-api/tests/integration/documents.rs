//! What the documentation says in a form that can be checked.

use pods_api::wire::Mask;

#[test]
fn every_mask_in_the_documentation_is_one() {
    let text = std::fs::read_to_string(crate::harness::root().join("docs/field-masks.md")).unwrap();
    let (_, agents) = text.split_once("## Masks of common agents").expect("the section is there");
    let rows = agents.lines().filter_map(|line| line.strip_prefix("| ")?.split('`').nth(1));
    let masks: Vec<_> = rows.map(|mask| Mask::parse(mask).unwrap()).collect();
    assert!(masks.len() >= 7 && masks.iter().all(|mask| !mask.is_all()), "{masks:?}");
}
