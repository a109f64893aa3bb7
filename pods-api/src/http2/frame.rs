//! Frame headers (RFC 9113 section 4.1), frame types and flags (section 6).

use super::error::{ConnectionError, ErrorCode};

/// Bytes of a frame header.
pub(crate) const HEADER_LEN: usize = 9;
/// What a client sends first (RFC 9113 section 3.4).
pub(crate) const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The largest frame that each side accepts before SETTINGS say otherwise, and the smallest limit allowed.
pub(crate) const MIN_MAX_FRAME_SIZE: u32 = 16_384;
/// The largest value of SETTINGS_MAX_FRAME_SIZE.
pub(crate) const MAX_MAX_FRAME_SIZE: u32 = (1 << 24) - 1;

/// The frame types this server knows; all others are ignored (RFC 9113 section 5.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Kind(pub(crate) u8);

impl Kind {
    pub(crate) const DATA: Self = Self(0x0);
    pub(crate) const HEADERS: Self = Self(0x1);
    pub(crate) const PRIORITY: Self = Self(0x2);
    pub(crate) const RST_STREAM: Self = Self(0x3);
    pub(crate) const SETTINGS: Self = Self(0x4);
    pub(crate) const PUSH_PROMISE: Self = Self(0x5);
    pub(crate) const PING: Self = Self(0x6);
    pub(crate) const GOAWAY: Self = Self(0x7);
    pub(crate) const WINDOW_UPDATE: Self = Self(0x8);
    pub(crate) const CONTINUATION: Self = Self(0x9);
}

/// Frame flags; what a bit means depends on the type.
pub(crate) mod flag {
    /// SETTINGS, PING: answers one of ours.
    pub(crate) const ACK: u8 = 0x1;
    /// DATA, HEADERS: the last of the stream.
    pub(crate) const END_STREAM: u8 = 0x1;
    /// HEADERS, CONTINUATION: the field block ends here.
    pub(crate) const END_HEADERS: u8 = 0x4;
    /// DATA, HEADERS: the payload is padded.
    pub(crate) const PADDED: u8 = 0x8;
    /// HEADERS: five bytes of priority come first.
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// A frame header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Payload bytes that follow.
    pub(crate) length: usize,
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    /// Zero is the connection itself.
    pub(crate) stream: u32,
}

impl FrameHeader {
    /// Reads a header; the reserved bit of the stream identifier is ignored.
    pub(crate) fn parse(bytes: &[u8; HEADER_LEN]) -> Self {
        let [l0, l1, l2, kind, flags, s0, s1, s2, s3] = *bytes;
        Self {
            length: u32::from_be_bytes([0, l0, l1, l2]) as usize,
            kind: Kind(kind),
            flags,
            stream: u32::from_be_bytes([s0, s1, s2, s3]) & 0x7fff_ffff,
        }
    }

    /// Writes the header. The length must fit 24 bits, which every limit on frame sizes guarantees.
    pub(crate) fn encode(self) -> [u8; HEADER_LEN] {
        let [_, l0, l1, l2] = (self.length as u32).to_be_bytes();
        let [s0, s1, s2, s3] = self.stream.to_be_bytes();
        [l0, l1, l2, self.kind.0, self.flags, s0, s1, s2, s3]
    }

    /// Whether a flag is set.
    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends a whole frame to a buffer; for control frames, which are small.
pub(crate) fn append(buffer: &mut Vec<u8>, kind: Kind, flags: u8, stream: u32, payload: &[u8]) {
    buffer.extend_from_slice(&FrameHeader { length: payload.len(), kind, flags, stream }.encode());
    buffer.extend_from_slice(payload);
}

/// Appends an RST_STREAM frame.
pub(crate) fn append_reset(buffer: &mut Vec<u8>, stream: u32, code: ErrorCode) {
    append(buffer, Kind::RST_STREAM, 0, stream, &code.as_u32().to_be_bytes());
}

/// Appends a WINDOW_UPDATE frame; stream zero is the connection's window.
pub(crate) fn append_window_update(buffer: &mut Vec<u8>, stream: u32, increment: u32) {
    append(buffer, Kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes());
}

/// Appends a GOAWAY frame.
pub(crate) fn append_goaway(buffer: &mut Vec<u8>, last_stream: u32, code: ErrorCode, debug: &str) {
    let mut payload = Vec::with_capacity(8 + debug.len());
    payload.extend_from_slice(&last_stream.to_be_bytes());
    payload.extend_from_slice(&code.as_u32().to_be_bytes());
    payload.extend_from_slice(debug.as_bytes());
    append(buffer, Kind::GOAWAY, 0, 0, &payload);
}

/// The payload of a DATA or HEADERS frame without its padding (RFC 9113 section 6.1).
pub(crate) fn without_padding(header: FrameHeader, payload: &[u8]) -> Result<&[u8], ConnectionError> {
    if !header.has(flag::PADDED) {
        return Ok(payload);
    }
    let (&padding, rest) =
        payload.split_first().ok_or(ConnectionError::frame_size("a padded frame has no padding length"))?;
    let kept = rest
        .len()
        .checked_sub(usize::from(padding))
        .ok_or(ConnectionError::protocol("the padding is longer than the frame"))?;
    Ok(&rest[..kept])
}

/// A payload that must be one 32-bit number.
pub(crate) fn u32_payload(payload: &[u8], reason: &'static str) -> Result<u32, ConnectionError> {
    match payload.try_into() {
        Ok(bytes) => Ok(u32::from_be_bytes(bytes)),
        Err(_) => Err(ConnectionError::frame_size(reason)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_survives_encoding_and_the_reserved_bit_is_ignored() {
        let header = FrameHeader { length: 0x01_02_03, kind: Kind::PING, flags: 0xa5, stream: 0x7fff_fffe };
        let mut bytes = header.encode();
        assert_eq!(bytes, [1, 2, 3, 6, 0xa5, 0x7f, 0xff, 0xff, 0xfe]);
        bytes[5] |= 0x80; // RFC 9113 section 4.1
        assert_eq!(FrameHeader::parse(&bytes), header);
    }

    // RFC 9113 section 6.1
    #[test]
    fn padding_is_taken_off_and_may_fill_the_whole_payload_but_no_more() {
        let header = FrameHeader { length: 0, kind: Kind::DATA, flags: flag::PADDED, stream: 1 };
        assert_eq!(without_padding(header, &[2, b'x', 0, 0]), Ok(&b"x"[..]));
        assert_eq!(without_padding(header, &[2, 0, 0]), Ok(&b""[..]));
        assert_eq!(without_padding(header, &[3, 0, 0]).map_err(|e| e.code), Err(ErrorCode::PROTOCOL_ERROR));
        assert_eq!(without_padding(header, &[]).map_err(|e| e.code), Err(ErrorCode::FRAME_SIZE_ERROR));
    }
}
