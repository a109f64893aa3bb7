//! Arbitrary YAML never panics and stays in its bounds; every number is one that JSON has.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pods_api::wire::{Node, Value, parse_json, parse_yaml};

fuzz_target!(|data: &[u8]| {
    match parse_yaml(data) {
        Ok(node) => check(&node, 0),
        Err(error) => assert!(error.line >= 1 && error.column >= 1 && !error.message.is_empty()),
    }
});

fn check(node: &Node, depth: usize) {
    assert!(depth <= 128);
    match &node.value {
        Value::Number(text) => assert!(parse_json(format!("[{text}]").as_bytes()).is_ok(), "{text}"),
        Value::List(items) => items.iter().for_each(|item| check(item, depth + 1)),
        Value::Map(entries) => entries.iter().for_each(|entry| check(&entry.value, depth + 1)),
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}
