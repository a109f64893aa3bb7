//! Turns decoded field blocks into requests and trailers, and says which are malformed (RFC 9113 section 8).
//!
//! `:authority` and `host` are taken as they come. Clients on a UNIX socket send the socket's path there, raw or
//! percent-encoded, and nothing here depends on it; h2 refuses such requests, which shuts out C-core and Java.

use bytes::BytesMut;

use super::events::{FIELD_PREFIX, Fields, RequestHead, Span};
use super::hpack::Sink;
use super::repeat::Request;
use super::writer;

/// What a field costs in a header list beside its bytes (RFC 9113 section 6.5.2).
const FIELD_OVERHEAD: usize = 32;

/// What a field is. Found out once per table entry, see [`Sink::Mark`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    Method,
    Scheme,
    Authority,
    Path,
    ContentLength,
    Regular,
    /// Makes the message malformed.
    Malformed,
}

/// Says what a field is.
fn classify(name: &[u8], value: &[u8]) -> Class {
    let Some(&first) = name.first() else { return Class::Malformed };
    let class = if first == b':' {
        match name {
            b":method" => Class::Method,
            b":scheme" => Class::Scheme,
            b":authority" => Class::Authority,
            b":path" => Class::Path,
            // Includes :status, and :protocol, which SETTINGS would have to offer first.
            _ => return Class::Malformed,
        }
    } else {
        match name {
            b"content-length" => Class::ContentLength,
            // Section 8.2.2
            b"connection" | b"proxy-connection" | b"keep-alive" | b"transfer-encoding" | b"upgrade" => {
                return Class::Malformed;
            }
            b"te" if value != b"trailers" => return Class::Malformed,
            _ if name.iter().all(|&byte| is_name_byte(byte)) => Class::Regular,
            _ => return Class::Malformed,
        }
    };
    // Section 8.2.1
    let is_padded = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    let is_free = class == Class::Authority || name == b"host";
    if value.iter().any(|byte| matches!(byte, 0 | b'\r' | b'\n'))
        || (!is_free && (is_padded(value.first()) || is_padded(value.last())))
    {
        return Class::Malformed;
    }
    class
}

/// A token of RFC 9110 section 5.6.2, without upper case (RFC 9113 section 8.2.1).
fn is_name_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*'
        | b'+' | b'^' | b'`' | b'|' | b'~')
}

/// Which section a field block holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Section {
    Request,
    Trailers,
    /// A block that nobody wants, decoded to keep the compression state.
    Discarded,
}

/// What a field block turned out to be.
#[derive(Debug)]
pub(crate) enum Message {
    Request(Request),
    Trailers(Fields),
    Discarded,
    /// Larger than the limit; its fields are lost.
    TooLarge,
    Malformed,
}

/// Collects the fields of one block in a buffer that the connection's blocks use in turn. The values of pseudo-header
/// fields come first, then each field with its lengths in front.
#[derive(Debug)]
pub(crate) struct Collector<'a> {
    section: Section,
    buffer: &'a mut Vec<u8>,
    room: usize,
    too_large: bool,
    malformed: bool,
    method: Option<Span>,
    scheme: Option<Span>,
    authority: Option<Span>,
    path: Option<Span>,
    /// Where the regular fields begin, once there is one.
    fields: Option<u32>,
    content_length: Option<u64>,
}

impl<'a> Collector<'a> {
    /// Collects into `buffer` at most `limit` bytes, as SETTINGS_MAX_HEADER_LIST_SIZE counts them.
    pub(crate) fn new(section: Section, buffer: &'a mut Vec<u8>, limit: usize) -> Self {
        buffer.clear();
        Self {
            section,
            buffer,
            room: limit,
            too_large: false,
            malformed: false,
            method: None,
            scheme: None,
            authority: None,
            path: None,
            fields: None,
            content_length: None,
        }
    }

    /// What the block held, after all of it was decoded; what is kept of it is cut from `arena`.
    pub(crate) fn finish(self, arena: &mut BytesMut) -> Message {
        match self.section {
            Section::Discarded => Message::Discarded,
            _ if self.too_large => Message::TooLarge,
            _ if self.malformed => Message::Malformed,
            Section::Trailers => Message::Trailers(Fields { buffer: writer::cut(arena, self.buffer) }),
            Section::Request => match self.is_complete() {
                Some(method) => self.into_request(method, arena),
                None => Message::Malformed,
            },
        }
    }

    /// The method, if the pseudo-header fields are those that section 8.3.1 (or 8.5 for CONNECT) demands.
    fn is_complete(&self) -> Option<Span> {
        let text = |span: Span| &self.buffer[span.start as usize..][..span.len as usize];
        let method = self.method?;
        if text(method) == b"CONNECT" {
            return (self.scheme.is_none() && self.path.is_none() && self.authority.is_some())
                .then_some(method);
        }
        let (_, path) = (self.scheme?, text(self.path?));
        let is_path = path.starts_with(b"/") || (path == b"*" && text(method) == b"OPTIONS");
        (is_path && method.len > 0).then_some(method)
    }

    fn into_request(self, method: Span, arena: &mut BytesMut) -> Message {
        let head = RequestHead {
            buffer: writer::cut(arena, self.buffer),
            method,
            scheme: self.scheme.unwrap_or_default(),
            path: self.path.unwrap_or_default(),
            authority: self.authority,
            fields: self.fields.unwrap_or(self.buffer.len() as u32),
        };
        Message::Request(Request { head, content_length: self.content_length })
    }

    fn pseudo(&mut self, class: Class, value: &[u8]) {
        let slot = match class {
            Class::Method => &mut self.method,
            Class::Scheme => &mut self.scheme,
            Class::Authority => &mut self.authority,
            _ => &mut self.path,
        };
        // Not twice, not behind regular fields, not in trailers (section 8.3).
        if slot.is_some() || self.fields.is_some() || self.section == Section::Trailers {
            self.malformed = true;
            return;
        }
        *slot = Some(Span { start: self.buffer.len() as u32, len: value.len() as u32 });
        self.buffer.extend_from_slice(value);
    }

    fn regular(&mut self, name: &[u8], value: &[u8]) {
        self.fields.get_or_insert(self.buffer.len() as u32);
        let mut lengths = [0; FIELD_PREFIX];
        let (name_len, value_len) = lengths.split_at_mut(FIELD_PREFIX / 2);
        name_len.copy_from_slice(&(name.len() as u32).to_ne_bytes());
        value_len.copy_from_slice(&(value.len() as u32).to_ne_bytes());
        self.buffer.extend_from_slice(&lengths);
        self.buffer.extend_from_slice(name);
        self.buffer.extend_from_slice(value);
    }

    /// Several equal lengths are one (RFC 9110 section 8.6).
    fn content_length(&mut self, value: &[u8]) {
        let length = std::str::from_utf8(value)
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|text| text.parse().ok());
        match length {
            Some(length) if self.content_length.is_none_or(|earlier| earlier == length) => {
                self.content_length = Some(length);
            }
            _ => self.malformed = true,
        }
    }
}

impl Sink for Collector<'_> {
    type Mark = Class;

    fn examine(&self, name: &[u8], value: &[u8]) -> Class {
        classify(name, value)
    }

    fn field(&mut self, name: &[u8], value: &[u8], class: Class) {
        if self.section == Section::Discarded || self.too_large {
            return;
        }
        let Some(room) = self.room.checked_sub(name.len() + value.len() + FIELD_OVERHEAD) else {
            self.too_large = true;
            return;
        };
        self.room = room;
        match class {
            Class::Regular => self.regular(name, value),
            Class::ContentLength => {
                self.content_length(value);
                self.regular(name, value);
            }
            Class::Malformed => self.malformed = true,
            pseudo => self.pseudo(pseudo, value),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: [(&str, &str); 4] =
        [(":method", "POST"), (":scheme", "http"), (":path", "/a/B"), (":authority", "localhost")];

    fn message(section: Section, fields: &[(&str, &str)]) -> Message {
        let mut buffer = Vec::new();
        let mut collector = Collector::new(section, &mut buffer, 1000);
        for (name, value) in fields {
            let class = collector.examine(name.as_bytes(), value.as_bytes());
            collector.field(name.as_bytes(), value.as_bytes(), class);
        }
        collector.finish(&mut BytesMut::new())
    }

    fn request(fields: &[(&str, &str)]) -> Message {
        message(Section::Request, fields)
    }

    fn good_and(more: &[(&'static str, &'static str)]) -> Message {
        request(&[&GOOD, more].concat())
    }

    #[track_caller]
    fn head(message: Message) -> RequestHead {
        match message {
            Message::Request(request) => request.head,
            other => panic!("not a request: {other:?}"),
        }
    }

    #[test]
    fn a_request_gives_back_what_went_in() {
        let head = head(good_and(&[("te", "trailers"), ("x", ""), ("x", "2")]));
        assert_eq!(head.method(), b"POST");
        assert_eq!(head.scheme(), b"http");
        assert_eq!(head.path(), b"/a/B");
        assert_eq!(head.authority(), Some(&b"localhost"[..]));
        let fields: Vec<_> = head.fields().collect();
        assert_eq!(fields, [(&b"te"[..], &b"trailers"[..]), (b"x", b""), (b"x", b"2")]);
        assert_eq!(head.field("x"), Some(&b""[..]));
        assert_eq!(head.share(head.path()), "/a/B");
    }

    // GRPC-1, GRPC-2
    #[test]
    fn any_authority_and_host_are_welcome() {
        for authority in [
            "localhost",
            "",
            "%2Fvar%2Flib%2Fkubelet%2Fpods-api%2Fpods-api.sock",
            "/var/lib/kubelet/pods-api/pods-api.sock",
            "user@host:bad port ",
            "\u{1f980}[::",
        ] {
            let fields = [GOOD[0], GOOD[1], GOOD[2], (":authority", authority), ("host", authority)];
            assert_eq!(head(request(&fields)).authority(), Some(authority.as_bytes()));
        }
        assert_eq!(head(request(&GOOD[..3])).authority(), None);
    }

    #[test]
    fn malformed_requests_are_recognised() {
        let cases: &[(&str, &[(&str, &str)])] = &[
            ("8.2.1 upper case", &[("X-a", "1")]),
            ("8.2.1 empty name", &[("", "1")]),
            ("8.2.1 space in a name", &[("a b", "1")]),
            ("8.2.1 colon in a name", &[("a:b", "1")]),
            ("8.2.1 not ASCII", &[("\u{e9}", "1")]),
            ("8.2.1 NUL", &[("a", "1\0")]),
            ("8.2.1 line feed", &[("a", "1\n2")]),
            ("8.2.1 carriage return", &[("a", "\r")]),
            ("8.2.1 leading space", &[("a", " 1")]),
            ("8.2.1 trailing tab", &[("a", "1\t")]),
            ("8.2.2 connection", &[("connection", "close")]),
            ("8.2.2 upgrade", &[("upgrade", "h2c")]),
            ("8.2.2 transfer-encoding", &[("transfer-encoding", "chunked")]),
            ("8.2.2 keep-alive", &[("keep-alive", "1")]),
            ("8.2.2 proxy-connection", &[("proxy-connection", "close")]),
            ("8.2.2 te", &[("te", "trailers, deflate")]),
            ("8.3 twice", &[(":path", "/")]),
            ("8.3 of a response", &[(":status", "200")]),
            ("8.3 unknown", &[(":version", "2")]),
            ("8.1.1 content-length", &[("content-length", "1x")]),
            ("8.1.1 content-length sign", &[("content-length", "+1")]),
            ("8.1.1 content-length empty", &[("content-length", "")]),
            ("8.1.1 two content-lengths", &[("content-length", "1"), ("content-length", "2")]),
        ];
        for (rule, more) in cases {
            assert!(matches!(good_and(more), Message::Malformed), "{rule}");
        }
    }

    // RFC 9113 section 8.3
    #[test]
    fn pseudo_header_fields_come_first() {
        let late = [GOOD[0], GOOD[1], GOOD[2], ("a", "1"), GOOD[3]];
        assert!(matches!(request(&late), Message::Malformed));
    }

    // RFC 9113 section 8.3.1
    #[test]
    fn pseudo_header_fields_must_be_complete() {
        for missing in [":method", ":scheme", ":path"] {
            let mut fields = GOOD.to_vec();
            fields.retain(|(name, _)| *name != missing);
            assert!(matches!(request(&fields), Message::Malformed), "without {missing}");
        }
        for (index, value) in [(0, ""), (2, ""), (2, "no-slash"), (2, "*")] {
            let mut fields = GOOD.to_vec();
            fields[index].1 = value;
            assert!(matches!(request(&fields), Message::Malformed), "{} is {value:?}", GOOD[index].0);
        }
    }

    // RFC 9113 sections 8.3.1 and 8.5
    #[test]
    fn options_and_connect_have_forms_of_their_own() {
        head(request(&[(":method", "OPTIONS"), (":scheme", "http"), (":path", "*")]));
        head(request(&[(":method", "CONNECT"), (":authority", "a:1")]));
        assert!(matches!(request(&[(":method", "CONNECT")]), Message::Malformed));
        assert!(matches!(
            request(&[(":method", "CONNECT"), (":authority", "a:1"), (":path", "/")]),
            Message::Malformed
        ));
    }

    // RFC 9113 section 8.1
    #[test]
    fn trailers_hold_no_pseudo_header_fields() {
        let Message::Trailers(fields) = message(Section::Trailers, &[("a", "1")]) else {
            panic!("no trailers")
        };
        assert_eq!(fields.iter().collect::<Vec<_>>(), [(&b"a"[..], &b"1"[..])]);
        assert!(matches!(message(Section::Trailers, &[(":path", "/")]), Message::Malformed));
    }

    // RFC 9113 section 10.5.1
    #[test]
    fn the_limit_counts_names_values_and_overhead() {
        let used: usize = GOOD.iter().map(|(name, value)| name.len() + value.len() + 32).sum();
        let fits = "x".repeat(1000 - used - 33);
        let fields = |value| [&GOOD[..], &[("a", value)]].concat();
        head(request(&fields(&fits)));
        assert!(matches!(request(&fields(&format!("{fits}x"))), Message::TooLarge));
    }
}
