//! HPACK (RFC 7541): a full decoder, and an encoder for the one kind of request this client sends.

use std::collections::VecDeque;

use anyhow::{Context as _, bail, ensure};

use super::{Method, huffman};

/// SETTINGS_HEADER_TABLE_SIZE that holds until a peer says otherwise (RFC 9113 section 6.5.2).
pub(super) const DEFAULT_TABLE_BYTES: usize = 4096;
/// Bookkeeping bytes counted for each dynamic table entry (RFC 7541 section 4.1).
const ENTRY_OVERHEAD: usize = 32;
const STATIC_ENTRIES: usize = STATIC_TABLE.len();

/// Encodes request field sections: literals that enter the dynamic table once, one-byte references from then on.
pub(super) struct Encoder {
    /// Sequence number of the insertion of each of this client's own fields.
    inserted: [Option<u8>; OWN_FIELDS],
    insertions: u8,
    indexing: bool,
    announce_empty_table: bool,
}

const OWN_FIELDS: usize = Method::ALL.len() + 4;
const AUTHORITY: usize = Method::ALL.len();
/// More than all own fields need together, so nothing inserted is ever evicted.
const NEEDED_TABLE_BYTES: usize = 512;

impl Encoder {
    pub(super) fn new() -> Self {
        Self { inserted: [None; OWN_FIELDS], insertions: 0, indexing: true, announce_empty_table: false }
    }

    /// Obeys the peer's SETTINGS_HEADER_TABLE_SIZE: with too small a table this encoder uses none.
    pub(super) fn limit_table(&mut self, bytes: usize) {
        if bytes < NEEDED_TABLE_BYTES && self.indexing {
            self.indexing = false;
            self.announce_empty_table = true;
            self.inserted = [None; OWN_FIELDS];
        }
    }

    /// Appends the field section of a request.
    pub(super) fn request(&mut self, out: &mut Vec<u8>, method: Method) {
        if std::mem::take(&mut self.announce_empty_table) {
            out.push(0x20); // RFC 7541 section 6.3: the table size becomes 0
        }
        out.extend_from_slice(&[0x83, 0x86]); // :method POST, :scheme http
        let path = Method::ALL.iter().position(|each| *each == method).expect("every method is in ALL");
        self.field(out, path, 4, b"", method.path().as_bytes());
        self.field(out, AUTHORITY, 1, b"", b"localhost");
        self.field(out, AUTHORITY + 1, 31, b"", b"application/grpc");
        self.field(out, AUTHORITY + 2, 0, b"te", b"trailers");
        self.field(out, AUTHORITY + 3, 58, b"", b"pods-bench");
    }

    fn field(&mut self, out: &mut Vec<u8>, own: usize, name_index: usize, name: &[u8], value: &[u8]) {
        if let Some(inserted) = self.inserted[own] {
            let age = usize::from(self.insertions - 1 - inserted);
            encode_integer(out, 0x80, 7, STATIC_ENTRIES + 1 + age);
            return;
        }
        if self.indexing {
            encode_integer(out, 0x40, 6, name_index);
            self.inserted[own] = Some(self.insertions);
            self.insertions += 1;
        } else {
            encode_integer(out, 0x00, 4, name_index);
        }
        if name_index == 0 {
            encode_integer(out, 0, 7, name.len());
            out.extend_from_slice(name);
        }
        encode_integer(out, 0, 7, value.len());
        out.extend_from_slice(value);
    }
}

/// Decodes the server's field sections.
pub(super) struct Decoder {
    entries: VecDeque<(Vec<u8>, Vec<u8>)>,
    bytes: usize,
    max_bytes: usize,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self { entries: VecDeque::new(), bytes: 0, max_bytes: DEFAULT_TABLE_BYTES }
    }

    /// Calls `on(name, value)` for each field of one section.
    pub(super) fn decode(
        &mut self,
        mut block: &[u8],
        mut on: impl FnMut(&[u8], &[u8]),
    ) -> anyhow::Result<()> {
        while let Some(&first) = block.first() {
            if first & 0x80 != 0 {
                let index = decode_integer(&mut block, 7)?;
                let (name, value) = self.entry(index)?;
                on(name, value);
            } else if first & 0x40 != 0 {
                let (name, value) = self.literal(&mut block, 6)?;
                on(&name, &value);
                self.insert(name, value);
            } else if first & 0x20 != 0 {
                let size = decode_integer(&mut block, 5)?;
                ensure!(size <= DEFAULT_TABLE_BYTES, "dynamic table of {size} bytes was never allowed");
                self.max_bytes = size;
                self.evict(0);
            } else {
                let (name, value) = self.literal(&mut block, 4)?;
                on(&name, &value);
            }
        }
        Ok(())
    }

    fn literal(&self, block: &mut &[u8], prefix_bits: u8) -> anyhow::Result<(Vec<u8>, Vec<u8>)> {
        let name = match decode_integer(block, prefix_bits)? {
            0 => decode_string(block)?,
            index => self.entry(index)?.0.to_vec(),
        };
        Ok((name, decode_string(block)?))
    }

    fn entry(&self, index: usize) -> anyhow::Result<(&[u8], &[u8])> {
        let before = index.checked_sub(1).context("field index 0")?;
        if let Some((name, value)) = STATIC_TABLE.get(before) {
            return Ok((name.as_bytes(), value.as_bytes()));
        }
        let (name, value) = self
            .entries
            .get(before - STATIC_ENTRIES)
            .with_context(|| format!("field index {index} beyond the dynamic table"))?;
        Ok((name, value))
    }

    fn insert(&mut self, name: Vec<u8>, value: Vec<u8>) {
        let size = name.len() + value.len() + ENTRY_OVERHEAD;
        self.evict(size);
        if size <= self.max_bytes {
            self.bytes += size;
            self.entries.push_front((name, value));
        }
    }

    fn evict(&mut self, room_for: usize) {
        while self.bytes + room_for > self.max_bytes {
            let Some((name, value)) = self.entries.pop_back() else { break };
            self.bytes -= name.len() + value.len() + ENTRY_OVERHEAD;
        }
    }
}

/// Integer representation with a prefix, RFC 7541 section 5.1.
fn encode_integer(out: &mut Vec<u8>, pattern: u8, prefix_bits: u8, value: usize) {
    let limit = (1usize << prefix_bits) - 1;
    if value < limit {
        out.push(pattern | value as u8);
        return;
    }
    out.push(pattern | limit as u8);
    let mut rest = value - limit;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

fn decode_integer(block: &mut &[u8], prefix_bits: u8) -> anyhow::Result<usize> {
    let limit = (1usize << prefix_bits) - 1;
    let mut value = usize::from(take_byte(block)?) & limit;
    if value < limit {
        return Ok(value);
    }
    for shift in [0, 7, 14, 21] {
        let byte = take_byte(block)?;
        value += usize::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    bail!("integer of a field section is too long")
}

fn decode_string(block: &mut &[u8]) -> anyhow::Result<Vec<u8>> {
    let huffman = block.first().is_some_and(|byte| byte & 0x80 != 0);
    let length = decode_integer(block, 7)?;
    let (text, rest) = block.split_at_checked(length).context("field section ends inside a string")?;
    *block = rest;
    if huffman { huffman::decode(text) } else { Ok(text.to_vec()) }
}

fn take_byte(block: &mut &[u8]) -> anyhow::Result<u8> {
    let (first, rest) = block.split_first().context("field section ends early")?;
    *block = rest;
    Ok(*first)
}

/// RFC 7541 appendix A.
const STATIC_TABLE: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn decode_all(decoder: &mut Decoder, block: &[u8]) -> Vec<(String, String)> {
        let mut fields = Vec::new();
        decoder
            .decode(block, |name, value| {
                fields.push((
                    String::from_utf8(name.to_vec()).unwrap(),
                    String::from_utf8(value.to_vec()).unwrap(),
                ));
            })
            .unwrap();
        fields
    }

    #[test]
    fn decodes_the_response_examples_of_rfc_7541() {
        // RFC 7541 appendix C.5.1 and C.5.2: plain literals, a 256-byte table there; nothing is evicted here.
        let mut decoder = Decoder::new();
        let mut first = b"\x48\x03302\x58\x07private\x61\x1dMon, 21 Oct 2013 20:13:21 GMT".to_vec();
        first.extend_from_slice(b"\x6e\x17https://www.example.com");
        let fields = decode_all(&mut decoder, &first);
        assert_eq!(fields[0], (":status".into(), "302".into()));
        assert_eq!(fields[3], ("location".into(), "https://www.example.com".into()));
        let fields = decode_all(&mut decoder, b"\x48\x03307\xc1\xc0\xbf");
        assert_eq!(fields[0], (":status".into(), "307".into()));
        assert_eq!(fields[1], ("cache-control".into(), "private".into()));
        assert_eq!(fields[3], ("location".into(), "https://www.example.com".into()));
    }

    #[test]
    fn requests_decode_alike_with_and_without_the_dynamic_table() {
        let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new());
        let expected = |method: Method| {
            [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", method.path()),
                (":authority", "localhost"),
                ("content-type", "application/grpc"),
                ("te", "trailers"),
                ("user-agent", "pods-bench"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
        };
        let mut sizes = Vec::new();
        for round in 0..3 {
            if round == 2 {
                encoder.limit_table(0);
            }
            for method in Method::ALL {
                let mut block = Vec::new();
                encoder.request(&mut block, method);
                assert_eq!(decode_all(&mut decoder, &block), expected(method));
                sizes.push(block.len());
            }
        }
        assert_eq!(sizes[3..6], [7, 7, 7], "known fields take one byte each");
        assert!(decoder.entries.is_empty(), "the peer's table limit empties the table");
    }

    #[test]
    fn table_stays_within_its_limit() {
        let mut decoder = Decoder::new();
        for index in 0..200 {
            decoder.insert(format!("name-{index}").into_bytes(), vec![b'v'; 100]);
            assert!(decoder.bytes <= DEFAULT_TABLE_BYTES);
        }
        decoder.insert(b"huge".to_vec(), vec![b'v'; DEFAULT_TABLE_BYTES]);
        assert_eq!((decoder.entries.len(), decoder.bytes), (0, 0), "an entry too large empties the table");
    }

    #[test]
    fn broken_sections_are_errors() {
        for block in [
            &[0x80][..],
            &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
            &[0xc5],
            &[0x40, 0x05, b'a'],
            &[0x3f, 0xff, 0x7f],
        ] {
            assert!(Decoder::new().decode(block, |_, _| {}).is_err(), "{block:x?}");
        }
    }
}
