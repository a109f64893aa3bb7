//! What a YAML scalar means, as go-yaml v2 resolves it and Go's encoding/json then writes it.

use super::super::tree::Value;
use super::is_core;
use saphyr_parser::{ScalarStyle, Tag};
use std::fmt::Write as _;

/// A scalar after resolution, before it is JSON: keys and values treat numbers differently.
enum Scalar<'text> {
    Null,
    Bool(bool),
    /// Decimal digits, with a sign if negative.
    Integer(String),
    Float(f64),
    String(&'text str),
}

/// The tags that go-yaml resolves; a scalar with any other tag is a string.
#[derive(Clone, Copy, PartialEq)]
enum Wanted {
    Any,
    String,
    Bool,
    Integer,
    Float,
    Null,
}

/// The JSON value of a scalar.
///
/// # Errors
/// The reason, when the text does not fit its tag or JSON cannot say it.
pub(super) fn resolve(text: &str, style: ScalarStyle, tag: Option<&Tag>) -> Result<Value, String> {
    let wanted = match tag {
        None if style == ScalarStyle::Plain => Wanted::Any,
        None => Wanted::String,
        // The non-specific tag counts as none, and as plain whatever the quotes.
        Some(tag) if tag.handle.is_empty() && tag.suffix == "!" => Wanted::Any,
        Some(tag) if is_core(tag, "bool") => Wanted::Bool,
        Some(tag) if is_core(tag, "int") => Wanted::Integer,
        Some(tag) if is_core(tag, "float") => Wanted::Float,
        Some(tag) if is_core(tag, "null") => Wanted::Null,
        Some(tag) if is_core(tag, "binary") => {
            return Err("!!binary is not taken; write the base64 text as a string".to_owned());
        }
        Some(_) => Wanted::String,
    };
    let resolved = if wanted == Wanted::String { Scalar::String(text) } else { plain(text)? };
    let fits = match (&resolved, wanted) {
        (_, Wanted::Any)
        | (Scalar::String(_), Wanted::String)
        | (Scalar::Null, Wanted::Null)
        | (Scalar::Bool(_), Wanted::Bool)
        | (Scalar::Integer(_), Wanted::Integer | Wanted::Float)
        | (Scalar::Float(_), Wanted::Float) => true,
        (_, _) => false,
    };
    if !fits {
        return Err("the value does not fit its tag".to_owned());
    }
    Ok(match resolved {
        Scalar::Null => Value::Null,
        Scalar::Bool(value) => Value::Bool(value),
        Scalar::Integer(text) => Value::Number(text.into()),
        Scalar::Float(value) if value.is_finite() => Value::Number(json_float(value).into()),
        Scalar::Float(_) => return Err("JSON cannot hold the number; quote it".to_owned()),
        Scalar::String(text) => Value::String(text.into()),
    })
}

/// The member name for a key, which JSON wants as a string: `5:` is "5", `on:` is "true".
///
/// # Errors
/// The reason, when the value cannot be a key.
pub(super) fn key_text(value: &Value) -> Result<Box<str>, &'static str> {
    match value {
        Value::String(text) => Ok(text.clone()),
        Value::Bool(value) => Ok(if *value { "true" } else { "false" }.into()),
        // Integers up to int64 keep their digits. Of larger ones and of fractions go-yaml gives floats or types
        // that the JSON conversion refuses; no field of a pod takes such a key, so all are refused.
        Value::Number(text) if text.parse::<i64>().is_ok() => Ok(text.clone()),
        Value::Number(_) => Err("a number that is not an int64 cannot be a key; quote it"),
        Value::Null => Err("null cannot be a key"),
        Value::List(_) | Value::Map(_) => Err("a list or mapping cannot be a key"),
    }
}

/// Resolves a scalar without quotes. An error is an integer too long to convert.
fn plain(text: &str) -> Result<Scalar<'_>, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Scalar::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => {
            return Ok(Scalar::Bool(true));
        }
        "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => {
            return Ok(Scalar::Bool(false));
        }
        ".nan" | ".NaN" | ".NAN" => return Ok(Scalar::Float(f64::NAN)),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => return Ok(Scalar::Float(f64::INFINITY)),
        "-.inf" | "-.Inf" | "-.INF" => return Ok(Scalar::Float(f64::NEG_INFINITY)),
        _ => {}
    }
    match text.as_bytes()[0] {
        b'.' => Ok(float(text).map_or(Scalar::String(text), Scalar::Float)),
        b'0'..=b'9' | b'+' | b'-' => number(text),
        // Dates need no rule: go-yaml recognises them and then keeps their text.
        _ => Ok(Scalar::String(text)),
    }
}

fn number(text: &str) -> Result<Scalar<'_>, String> {
    let digits = text.replace('_', "");
    match integer(&digits) {
        Integer::Fits(text) => return Ok(Scalar::Integer(text)),
        Integer::No => {}
        Integer::TooLarge => {
            // A decimal one becomes a float and loses digits; a float cannot hold one of 309 digits.
            if let Some(value) = float(&digits) {
                return Ok(Scalar::Float(value));
            }
            return Err(format!("the integer of {} characters is too large", digits.len()));
        }
    }
    Ok(float(&digits).map_or(Scalar::String(text), Scalar::Float))
}

enum Integer {
    Fits(String),
    TooLarge,
    No,
}

/// Reads an integer as Go's `ParseInt(text, 0, 64)`, then `ParseUint`: 0x, 0o, 0b, a leading 0 for octal. Larger ones
/// with a prefix fit up to 128 bits.
fn integer(text: &str) -> Integer {
    let (negative, signed, digits) = match text.as_bytes().first() {
        Some(b'-') => (true, true, &text[1..]),
        Some(b'+') => (false, true, &text[1..]),
        _ => (false, false, text),
    };
    // A float too could be written like this, and is what go-yaml makes of it when it is too large.
    let like_float = !matches!(digits.as_bytes(), [b'0', b'x' | b'X' | b'o' | b'O' | b'b' | b'B', ..]);
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return Integer::No;
    }
    let Ok(magnitude) = u128::from_str_radix(digits, radix) else { return Integer::TooLarge };
    let limit = match (negative, signed) {
        (true, _) => i64::MIN.unsigned_abs().into(),
        (false, true) => i64::MAX.unsigned_abs().into(),
        (false, false) => u64::MAX.into(),
    };
    if magnitude <= limit || !(like_float || signed) {
        let sign = if negative && magnitude != 0 { "-" } else { "" };
        return Integer::Fits(format!("{sign}{magnitude}"));
    }
    // With a sign and beyond 64 bits a prefixed number is no number at all for go-yaml.
    if like_float { Integer::TooLarge } else { Integer::No }
}

/// Reads a decimal fraction; `None` for another text and beyond what a float holds.
fn float(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent.strip_prefix(['-', '+']).unwrap_or(exponent))),
        None => (unsigned, None),
    };
    let all_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let has_digits = !whole.is_empty() || !fraction.is_empty();
    if !has_digits || !all_digits(whole) || !all_digits(fraction) {
        return None;
    }
    if exponent.is_some_and(|exponent| exponent.is_empty() || !all_digits(exponent)) {
        return None;
    }
    text.parse().ok().filter(|value: &f64| value.is_finite())
}

/// A float as Go's encoding/json writes it: the shortest digits, an exponent below 1e-6 and from 1e21 on.
fn json_float(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-6..1e21).contains(&magnitude) {
        return format!("{value}");
    }
    let text = format!("{value:e}");
    let Some((mantissa, exponent)) = text.split_once('e') else { return text };
    let mut written = mantissa.to_owned();
    let sign = if exponent.starts_with('-') { "" } else { "+" };
    write!(written, "e{sign}{exponent}").expect("writing to a string cannot fail");
    written
}
