//! JSON text to the located tree, and back.
//!
//! Written here because no kept crate gives the line of every value (`serde_json` gives one for errors only). What
//! is accepted is RFC 8259 as the API's decoder reads it (`sigs.k8s.io/json`): duplicate keys are kept, the last
//! counts (rule A.2.5); text after the value is an error (rule A.2.3); broken UTF-8 and lone surrogates become
//! U+FFFD instead of errors. The input is untrusted: depth, size and number of values are bounded.

use std::fmt::Write as _;

use super::text::TextError;
use super::tree::{Entry, Node, Value};

/// The longest text read (rule A.1.7).
pub const MAX_TEXT_BYTES: usize = 10 << 20;

/// How deep lists and objects may nest. A Pod needs 12; managedFields grow to about 30.
const MAX_DEPTH: usize = 256;

/// How many values a text may hold: keeps the tree of the densest text below 100 MB.
const MAX_VALUES: usize = 1 << 20;

/// Reads one JSON value and nothing else.
///
/// # Errors
/// Where the text is not one JSON value, with line and column, or too large, too deep or with too many values.
pub fn parse_json(text: &[u8]) -> Result<Node, TextError> {
    let mut parser = Parser { text, at: 0, line: 1, line_start: 0, values: 0 };
    if text.len() > MAX_TEXT_BYTES {
        return Err(parser.error(format!("the text is longer than {MAX_TEXT_BYTES} bytes")));
    }
    if text.starts_with(b"\xef\xbb\xbf") {
        return Err(parser.error("a byte order mark stands before the JSON value"));
    }
    let node = parser.value(0)?;
    parser.skip_blanks();
    match parser.peek() {
        None => Ok(node),
        Some(_) => Err(parser.unexpected("the end of the text")),
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
    /// Where the current line begins.
    line_start: usize,
    values: usize,
}

impl Parser<'_> {
    fn error(&self, message: impl Into<String>) -> TextError {
        let before = &self.text[self.line_start..self.at];
        let column = String::from_utf8_lossy(before).chars().count() + 1;
        TextError::new(self.line, u32::try_from(column).unwrap_or(u32::MAX), message)
    }

    fn unexpected(&self, expected: &str) -> TextError {
        match self.text[self.at..].utf8_chunks().next() {
            None => self.error(format!("expected {expected}, found the end of the text")),
            Some(chunk) => {
                let found = chunk.valid().chars().next().unwrap_or(char::REPLACEMENT_CHARACTER);
                self.error(format!("expected {expected}, found {found:?}"))
            }
        }
    }

    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn skip_blanks(&mut self) {
        while let Some(byte @ (b' ' | b'\t' | b'\r' | b'\n')) = self.peek() {
            self.at += 1;
            if byte == b'\n' {
                self.line += 1;
                self.line_start = self.at;
            }
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node, TextError> {
        self.skip_blanks();
        self.values += 1;
        if self.values > MAX_VALUES {
            return Err(self.error(format!("the text has more than {MAX_VALUES} values")));
        }
        let line = self.line;
        let value = match self.peek() {
            Some(b'{' | b'[') if depth == MAX_DEPTH => {
                return Err(self.error(format!("lists and objects nest deeper than {MAX_DEPTH}")));
            }
            Some(b'{') => self.object(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Value::String(self.string()?.into()),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(b't') => self.word("true", Value::Bool(true))?,
            Some(b'f') => self.word("false", Value::Bool(false))?,
            Some(b'n') => self.word("null", Value::Null)?,
            _ => return Err(self.unexpected("a value")),
        };
        Ok(Node { line, value })
    }

    fn word(&mut self, word: &str, value: Value) -> Result<Value, TextError> {
        if !self.text[self.at..].starts_with(word.as_bytes()) {
            return Err(self.unexpected(word));
        }
        self.at += word.len();
        Ok(value)
    }

    fn list(&mut self, depth: usize) -> Result<Value, TextError> {
        self.at += 1;
        let mut items = Vec::new();
        self.skip_blanks();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Value::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b']') => {
                    self.at += 1;
                    return Ok(Value::List(items));
                }
                _ => return Err(self.unexpected("`,` or `]`")),
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Value, TextError> {
        self.at += 1;
        let mut entries = Vec::new();
        self.skip_blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Value::Map(entries));
        }
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                return Err(self.unexpected("a name in double quotes"));
            }
            let key = self.string()?.into();
            self.skip_blanks();
            if self.peek() != Some(b':') {
                return Err(self.unexpected("`:`"));
            }
            self.at += 1;
            let value = self.value(depth + 1)?;
            entries.push(Entry { key, value });
            self.skip_blanks();
            match self.peek() {
                Some(b',') => self.at += 1,
                Some(b'}') => {
                    self.at += 1;
                    return Ok(Value::Map(entries));
                }
                _ => return Err(self.unexpected("`,` or `}`")),
            }
        }
    }

    fn number(&mut self) -> Result<Value, TextError> {
        let start = self.at;
        self.at += usize::from(self.peek() == Some(b'-'));
        match self.peek() {
            Some(b'0') => self.at += 1,
            Some(b'1'..=b'9') => self.skip_digits(),
            _ => return Err(self.unexpected("a digit")),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.require_digits()?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            self.at += usize::from(matches!(self.peek(), Some(b'+' | b'-')));
            self.require_digits()?;
        }
        let text = std::str::from_utf8(&self.text[start..self.at]).expect("a number is made of ASCII");
        Ok(Value::Number(text.into()))
    }

    fn skip_digits(&mut self) {
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
    }

    fn require_digits(&mut self) -> Result<(), TextError> {
        match self.peek() {
            Some(b'0'..=b'9') => {
                self.skip_digits();
                Ok(())
            }
            _ => Err(self.unexpected("a digit")),
        }
    }

    fn string(&mut self) -> Result<String, TextError> {
        self.at += 1;
        let mut string = String::new();
        loop {
            let rest = &self.text[self.at..];
            let plain =
                rest.iter().position(|byte| matches!(byte, b'"' | b'\\' | 0..0x20)).unwrap_or(rest.len());
            string.push_str(&String::from_utf8_lossy(&rest[..plain]));
            self.at += plain;
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(string);
                }
                Some(b'\\') => string.push(self.escape()?),
                Some(_) => {
                    return Err(self.error("a control character stands in a string; it must be escaped"));
                }
                None => return Err(self.unexpected("a closing `\"`")),
            }
        }
    }

    fn escape(&mut self) -> Result<char, TextError> {
        self.at += 1;
        let escaped = match self.peek() {
            Some(b'u') => {
                self.at += 1;
                return self.unicode_escape();
            }
            Some(byte @ (b'"' | b'\\' | b'/')) => char::from(byte),
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            _ => return Err(self.unexpected("one of \" \\ / b f n r t u after a backslash")),
        };
        self.at += 1;
        Ok(escaped)
    }

    /// Reads the digits of `\u`, and a second escape if the two are a surrogate pair.
    fn unicode_escape(&mut self) -> Result<char, TextError> {
        let first = self.hex_digits()?;
        if let Some(char) = char::from_u32(first) {
            return Ok(char);
        }
        let after_first = self.at;
        if (0xd800..0xdc00).contains(&first) && self.text[self.at..].starts_with(b"\\u") {
            self.at += 2;
            let second = self.hex_digits()?;
            if (0xdc00..0xe000).contains(&second) {
                let code_point = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code_point).expect("a surrogate pair is a code point"));
            }
            // Not a pair: the second escape is read again by itself.
            self.at = after_first;
        }
        Ok(char::REPLACEMENT_CHARACTER)
    }

    fn hex_digits(&mut self) -> Result<u32, TextError> {
        let mut code = 0;
        for _ in 0..4 {
            let digit = self.peek().and_then(|byte| char::from(byte).to_digit(16));
            code = code * 16 + digit.ok_or_else(|| self.unexpected("four hexadecimal digits after \\u"))?;
            self.at += 1;
        }
        Ok(code)
    }
}

/// Appends a tree as compact JSON.
pub(crate) fn write_json(node: &Node, out: &mut String) {
    match &node.value {
        Value::Null => out.push_str("null"),
        Value::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
        Value::Number(text) => out.push_str(text),
        Value::String(text) => write_string(text, out),
        Value::List(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_json(item, out);
            }
            out.push(']');
        }
        Value::Map(entries) => {
            out.push('{');
            for (at, entry) in entries.iter().enumerate() {
                if at > 0 {
                    out.push(',');
                }
                write_string(&entry.key, out);
                out.push(':');
                write_json(&entry.value, out);
            }
            out.push('}');
        }
    }
}

fn write_string(text: &str, out: &mut String) {
    out.push('"');
    for char in text.chars() {
        match char {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            control @ '\0'..' ' => {
                // Writing to a String cannot fail.
                let _ = write!(out, "\\u{:04x}", u32::from(control));
            }
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &[u8]) -> String {
        parse_json(text).unwrap_err().to_string()
    }

    fn compact(text: &str) -> String {
        let mut out = String::new();
        write_json(&parse_json(text.as_bytes()).unwrap(), &mut out);
        out
    }

    #[test]
    fn every_value_knows_its_line() {
        let node = parse_json(b"\n{\"a\": 1,\n \"b\": [true,\n  {\"c\": null}],\r\n\"d\": \"x\"}\n").unwrap();
        assert_eq!(node.line, 2);
        assert_eq!(node.get("a").unwrap().line, 2);
        assert_eq!(node.get("b").unwrap().line, 3);
        assert_eq!(node.get("b").unwrap().items()[1].line, 4);
        assert_eq!(node.get("d").unwrap().line, 5);
    }

    // rule A.2.5
    #[test]
    fn of_a_duplicate_name_the_last_counts() {
        let node = parse_json(br#"{"a": 1, "a": 2}"#).unwrap();
        assert_eq!(node.get("a").unwrap().value, Value::Number("2".into()));
    }

    // rule A.2.3
    #[test]
    fn text_after_the_value_is_an_error() {
        assert_eq!(error(b"{}\n {}"), "line 2, column 2: expected the end of the text, found '{'");
        assert!(parse_json(b" {} \n\t\r\n").is_ok());
    }

    #[test]
    fn numbers_keep_their_text() {
        for text in ["0", "-0", "9223372036854775808", "1.50", "1e3", "1E+3", "-0.1e-7"] {
            assert_eq!(compact(text), text);
        }
        for text in ["01", "+1", ".5", "1.", "1e", "-", "0x1", "NaN", "1_000"] {
            assert!(parse_json(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn strings_are_unescaped() {
        let text = |json: &str| parse_json(json.as_bytes()).unwrap().as_str().map(str::to_owned).unwrap();
        assert_eq!(text(r#""\"\\\/\b\f\n\r\t\u00e9""#), "\"\\/\u{8}\u{c}\n\r\té");
        assert_eq!(text(r#""\ud83d\ude00""#), "😀");
        // Lone surrogates become the replacement character, what follows them is kept.
        assert_eq!(text(r#""\ud83dx""#), "\u{fffd}x");
        assert_eq!(text(r#""\ude00""#), "\u{fffd}");
        assert_eq!(text(r#""\ud83d\u0041""#), "\u{fffd}A");
        assert_eq!(text(r#""\ud83d\ud83d\ude00""#), "\u{fffd}😀");
        assert_eq!(parse_json(b"\"a\xffb\"").unwrap().as_str(), Some("a\u{fffd}b"));
    }

    #[test]
    fn broken_text_is_refused_where_it_breaks() {
        for (text, expected) in [
            (&b""[..], "line 1, column 1: expected a value, found the end of the text"),
            (b"{\"a\" 1}", "line 1, column 6: expected `:`, found '1'"),
            (b"{\"a\": 1,}", "line 1, column 9: expected a name in double quotes, found '}'"),
            (b"{a: 1}", "line 1, column 2: expected a name in double quotes, found 'a'"),
            (b"[1\n,\n,2]", "line 3, column 1: expected a value, found ','"),
            (b"[1 2]", "line 1, column 4: expected `,` or `]`, found '2'"),
            ("{\"é\": tru}".as_bytes(), "line 1, column 7: expected true, found 't'"),
            (b"\"a\nb\"", "line 1, column 3: a control character stands in a string; it must be escaped"),
            (b"\"abc", "line 1, column 5: expected a closing `\"`, found the end of the text"),
            (
                b"\"\\x\"",
                "line 1, column 3: expected one of \" \\ / b f n r t u after a backslash, found 'x'",
            ),
            (b"\"\\u12g4\"", "line 1, column 6: expected four hexadecimal digits after \\u, found 'g'"),
            (b"\xef\xbb\xbf{}", "line 1, column 1: a byte order mark stands before the JSON value"),
            (b"\xff", "line 1, column 1: expected a value, found '\u{fffd}'"),
        ] {
            assert_eq!(error(text), expected);
        }
    }

    #[test]
    fn depth_size_and_number_of_values_are_bounded() {
        let nested = |depth: usize| [b"[".repeat(depth), b"]".repeat(depth)].concat();
        assert!(parse_json(&nested(MAX_DEPTH)).is_ok());
        assert!(error(&nested(MAX_DEPTH + 1)).contains("nest deeper"));
        assert!(error(&nested(1_000_000)).contains("nest deeper"));
        assert!(error(&vec![b' '; MAX_TEXT_BYTES + 1]).contains("longer than"));
        let many = [b"[0".to_vec(), b",0".repeat(MAX_VALUES), b"]".to_vec()].concat();
        assert!(error(&many).contains("more than"));
    }

    #[test]
    fn written_json_is_compact_and_reads_back() {
        let text = r#"{"a":[1,true,null,{}],"b\u0001\n":"\"\\é"}"#;
        assert_eq!(compact(text), text);
        assert_eq!(compact(" [ 1 , { \"a\" : [ ] } ] "), r#"[1,{"a":[]}]"#);
    }
}
