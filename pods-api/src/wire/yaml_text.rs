//! Pod bytes to YAML text, in the layout of `kubectl get -o yaml`.
//!
//! A string is quoted wherever some YAML reader, 1.1 or 1.2, would take it for another type (`yes`, `1e3`, `012`,
//! `2026-01-31`), or for other text. Text of several lines is written as a literal block where that is exact.

use std::fmt::Write as _;

use serde_json::Value;

use super::json::pod_to_json;
use super::varint::DecodeError;

/// Words that YAML 1.1 or 1.2 resolves to a boolean, null or number in some capitalisation.
const RESOLVED_WORDS: [&str; 14] =
    ["y", "yes", "n", "no", "true", "false", "on", "off", "null", "~", ".nan", ".inf", "+.inf", "-.inf"];

/// Converts an encoded Pod to YAML, `apiVersion` and `kind` first.
///
/// # Errors
/// As [`pod_to_json`].
pub fn pod_to_yaml(pod: &[u8]) -> Result<String, DecodeError> {
    Ok(json_to_yaml(&pod_to_json(pod)?))
}

/// Writes a JSON value as a YAML document.
#[must_use]
pub fn json_to_yaml(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Object(object) if !object.is_empty() => write_block(value, 0, &mut out),
        Value::Array(items) if !items.is_empty() => write_block(value, 0, &mut out),
        _ => {
            write_inline(value, 0, &mut out);
            out.push('\n');
        }
    }
    out
}

/// Writes the lines of a list or an object that is not empty; the cursor stands where its first line goes.
fn write_block(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                write_indent(if at > 0 { indent } else { 0 }, out);
                out.push_str("- ");
                if is_block(item) {
                    write_block(item, indent + 2, out);
                } else {
                    write_inline(item, indent, out);
                    out.push('\n');
                }
            }
        }
        Value::Object(object) => {
            for (at, (key, value)) in object.iter().enumerate() {
                write_indent(if at > 0 { indent } else { 0 }, out);
                write_scalar(key, out);
                out.push(':');
                if is_block(value) {
                    out.push('\n');
                    // A list stands at the column of its key.
                    let indent = indent + if value.is_array() { 0 } else { 2 };
                    write_indent(indent, out);
                    write_block(value, indent, out);
                } else {
                    out.push(' ');
                    write_inline(value, indent, out);
                    out.push('\n');
                }
            }
        }
        _ => unreachable!("only lists and objects are blocks"),
    }
}

fn is_block(value: &Value) -> bool {
    match value {
        Value::Array(items) => !items.is_empty(),
        Value::Object(object) => !object.is_empty(),
        _ => false,
    }
}

fn write_indent(indent: usize, out: &mut String) {
    out.extend(std::iter::repeat_n(' ', indent));
}

fn write_inline(value: &Value, indent: usize, out: &mut String) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&number.to_string()),
        Value::String(text) if is_literal_safe(text) => write_literal(text, indent + 2, out),
        Value::String(text) => write_scalar(text, out),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
}

fn write_scalar(text: &str, out: &mut String) {
    if is_plain_safe(text) {
        out.push_str(text);
    } else {
        write_quoted(text, out);
    }
}

/// Double quotes with escapes that YAML and JSON share, where YAML allows the character at all.
fn write_quoted(text: &str, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            _ if is_printable(char) => out.push(char),
            // Writing to a String cannot fail.
            _ if u32::from(char) > 0xffff => drop(write!(out, "\\U{:08x}", u32::from(char))),
            _ => drop(write!(out, "\\u{:04x}", u32::from(char))),
        }
    }
    out.push('"');
}

/// A literal block: the lines as they are, the number of line breaks at the end told by the indicator.
fn write_literal(text: &str, indent: usize, out: &mut String) {
    out.push_str(if text.ends_with('\n') { "|" } else { "|-" });
    for line in text.strip_suffix('\n').unwrap_or(text).split('\n') {
        out.push('\n');
        if !line.is_empty() {
            write_indent(indent, out);
            out.push_str(line);
        }
    }
}

/// Whether a literal block gives back exactly this text: several lines, the first of them with text at its begin,
/// no blank at a line's end (editors strip it), at most one line break at the end.
fn is_literal_safe(text: &str) -> bool {
    let body = text.strip_suffix('\n').unwrap_or(text);
    body.contains('\n')
        && !body.starts_with([' ', '\t', '\n'])
        && !body.ends_with('\n')
        && body.split('\n').all(|line| !line.ends_with([' ', '\t']))
        && body.chars().all(|char| char == '\n' || char == '\t' || is_printable(char))
}

/// Characters that YAML lets stand for themselves; line breaks of Unicode and the byte order mark excluded.
fn is_printable(char: char) -> bool {
    matches!(char, ' '..='~' | '\u{a0}'..='\u{2027}' | '\u{202a}'..='\u{d7ff}' | '\u{e000}'..='\u{fefe}'
        | '\u{ff00}'..='\u{fffd}' | '\u{10000}'..)
}

/// Whether the text without quotes is read back as this string by readers of YAML 1.1 and 1.2.
fn is_plain_safe(text: &str) -> bool {
    let Some(first) = text.chars().next() else { return false };
    // Indicators that may not begin a plain scalar, and blanks; `-` may if no blank follows.
    let first_is_safe = !"?:,[]{}#&*!|>'\"%@`= \t".contains(first) && !text.starts_with("- ") && text != "-";
    first_is_safe
        && !text.starts_with("---")
        && !text.starts_with("...")
        && !text.ends_with([' ', ':'])
        && !text.contains(": ")
        && !text.contains(" #")
        && text.chars().all(is_printable)
        && text != "<<"
        && !RESOLVED_WORDS.iter().any(|word| text.eq_ignore_ascii_case(word))
        && !looks_like_number(text)
        && !looks_like_date(text)
}

/// Numbers of YAML 1.1 and 1.2: decimal, octal, hexadecimal, binary, base 60, with `_` between digits.
fn looks_like_number(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if let Some(rest) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        return rest.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'_');
    }
    let digits =
        ["0o", "0O", "0b", "0B"].iter().find_map(|prefix| digits.strip_prefix(prefix)).unwrap_or(digits);
    digits.starts_with(|char: char| char.is_ascii_digit() || char == '.')
        && digits.bytes().all(|byte| byte.is_ascii_digit() || b"_.:eE+-".contains(&byte))
        && digits.bytes().filter(|byte| *byte == b'.').count() <= 1
}

/// Dates and times of YAML 1.1: four digits, a dash, a digit.
fn looks_like_date(text: &str) -> bool {
    let mut parts = text.split('-');
    let is_number = |part: Option<&str>, len: std::ops::RangeInclusive<usize>| {
        part.is_some_and(|part| len.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit()))
    };
    is_number(parts.next(), 4..=4)
        && is_number(parts.next(), 1..=2)
        && parts.next().is_some_and(|part| part.starts_with(|char: char| char.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{encode_pod, parse_yaml};
    use serde_json::json;

    #[test]
    fn the_layout_is_kubectls() {
        let value = json!({
            "kind": "Pod",
            "metadata": {"name": "web", "labels": {"app.kubernetes.io/name": "x", "12": "true"}, "finalizers": []},
            "spec": {"containers": [{"name": "a", "args": ["--x", "-c", "echo hi\nexit\n"], "securityContext": {}},
                {"name": "b"}], "priority": 5}
        });
        let expected = "\
kind: Pod
metadata:
  name: web
  labels:
    app.kubernetes.io/name: x
    \"12\": \"true\"
  finalizers: []
spec:
  containers:
  - name: a
    args:
    - --x
    - -c
    - |
      echo hi
      exit
    securityContext: {}
  - name: b
  priority: 5
";
        // `args` is a list within a list's object; its literal block is indented from the dash.
        assert_eq!(json_to_yaml(&value), expected);
    }

    #[test]
    fn strings_that_a_reader_would_take_for_something_else_are_quoted() {
        for text in [
            "",
            "yes",
            "No",
            "ON",
            "off",
            "y",
            "N",
            "true",
            "FALSE",
            "null",
            "~",
            "Null",
            "1",
            "-1",
            "+1",
            "012",
            "0o7",
            "0x1F",
            "0b1",
            "1_000",
            "1.5",
            ".5",
            "5.",
            "1e3",
            "1E+3",
            "190:20:30",
            ".inf",
            "-.INF",
            ".NaN",
            "2026-01-31",
            "2026-1-3",
            "2026-01-31T12:00:00Z",
            "2026-01-31 12:00:00",
            "a: b",
            "a #b",
            "a:",
            " a",
            "a ",
            "- a",
            "-",
            "?a",
            "#a",
            "&a",
            "*a",
            "!a",
            "|",
            ">",
            "'a'",
            "\"a\"",
            "%a",
            "@a",
            "`a",
            "[a",
            "{a",
            "a\tb",
            "a\u{85}b",
            "\u{feff}a",
            "---",
            "... x",
            "<<",
            "=",
        ] {
            assert!(!is_plain_safe(text), "{text:?}");
        }
        for text in [
            "a",
            "web-0",
            "10.0.0.7",
            "fd00::7",
            "123e4567-e89b-12d3-a456-426614174000",
            "a:b",
            "a#b",
            "registry:5000/a@sha256:0",
            "--flag=x",
            "-c",
            "/bin/sh",
            "$(NAME)",
            "hello world",
            "é",
            "500m",
            "1Gi",
            "v1",
            "1a",
            "x=y, z",
        ] {
            assert!(is_plain_safe(text), "{text:?}");
        }
    }

    #[test]
    fn texts_that_a_literal_block_would_change_are_quoted() {
        for text in ["a\n", "\na\nb", " a\nb", "a \nb", "a\nb\n\n", "a\r\nb", "a\n\u{1}b"] {
            assert!(!is_literal_safe(text), "{text:?}");
        }
        assert!(is_literal_safe("a\n\n  b\n\tc"));
    }

    proptest::proptest! {
        #![proptest_config(proptest::prelude::ProptestConfig::with_cases(256))]
        #[test]
        fn any_text_reads_back(texts in proptest::collection::vec("[ -~\n\té0-9:.#'\"-]{0,12}|\\PC{0,6}", 1..5)) {
            let metadata: serde_json::Map<_, _> =
                texts.iter().map(|text| (text.clone(), Value::from(text.clone()))).collect();
            let value = json!({"metadata": {"annotations": metadata, "finalizers": texts}});
            let yaml = json_to_yaml(&value);
            let bytes = encode_pod(&parse_yaml(yaml.as_bytes()).unwrap()).unwrap();
            let back = pod_to_json(&bytes).unwrap();
            proptest::prop_assert_eq!(&back["metadata"], &value["metadata"], "{}", yaml);
        }
    }
}
