//! From bytes to the characters that YAML allows.

use super::super::text::TextError;
use std::borrow::Cow;

/// Decodes UTF-8 with or without a byte order mark, or UTF-16 with one, and refuses control characters. NUL must not
/// reach the parser, which takes it for the end of the text.
pub(super) fn decode(bytes: &[u8]) -> Result<Cow<'_, str>, TextError> {
    let text = match bytes {
        [0xFF, 0xFE, rest @ ..] => Cow::Owned(utf16(rest, u16::from_le_bytes)?),
        [0xFE, 0xFF, rest @ ..] => Cow::Owned(utf16(rest, u16::from_be_bytes)?),
        [0xEF, 0xBB, 0xBF, rest @ ..] => Cow::Borrowed(utf8(rest)?),
        _ => Cow::Borrowed(utf8(bytes)?),
    };
    match text.char_indices().find(|&(_, c)| !is_allowed(c)) {
        None => Ok(text),
        Some((index, c)) => {
            let (line, column) = position(&text[..index]);
            let code = u32::from(c);
            Err(TextError::new(line, column, format!("the control character U+{code:04X} is not allowed")))
        }
    }
}

fn utf8(bytes: &[u8]) -> Result<&str, TextError> {
    std::str::from_utf8(bytes).map_err(|error| {
        let valid = &bytes[..error.valid_up_to()];
        let (line, column) = position(&String::from_utf8_lossy(valid));
        let byte = bytes[error.valid_up_to()];
        TextError::new(line, column, format!("the byte 0x{byte:02X} is not UTF-8"))
    })
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, TextError> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let mut text = String::with_capacity(bytes.len());
    for decoded in char::decode_utf16(pairs.iter().map(|&pair| unit(pair))) {
        match decoded {
            Ok(c) => text.push(c),
            Err(error) => {
                let (line, column) = position(&text);
                let unit = error.unpaired_surrogate();
                return Err(TextError::new(
                    line,
                    column,
                    format!("the UTF-16 unit 0x{unit:04X} has no pair"),
                ));
            }
        }
    }
    if rest.is_empty() {
        return Ok(text);
    }
    let (line, column) = position(&text);
    Err(TextError::new(line, column, "the UTF-16 text ends in half a unit"))
}

/// The printable characters of YAML 1.1, as go-yaml checks them.
fn is_allowed(c: char) -> bool {
    matches!(c,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{A0}'..='\u{D7FF}' | '\u{E000}'..='\u{FFFD}'
        | '\u{10000}'..='\u{10FFFF}')
}

/// The line and column after `before`.
fn position(before: &str) -> (u32, u32) {
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    let last = before.rsplit('\n').next().unwrap_or(before);
    let column = last.chars().count() + 1;
    (u32::try_from(line).unwrap_or(u32::MAX), u32::try_from(column).unwrap_or(u32::MAX))
}
