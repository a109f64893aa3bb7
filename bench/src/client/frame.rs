//! Frame layout of RFC 9113 section 4.1, and the few frames this client writes.

pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
pub(super) const HEADER_BYTES: usize = 9;

pub(super) const DATA: u8 = 0x0;
pub(super) const HEADERS: u8 = 0x1;
pub(super) const PRIORITY: u8 = 0x2;
pub(super) const RST_STREAM: u8 = 0x3;
pub(super) const SETTINGS: u8 = 0x4;
pub(super) const PUSH_PROMISE: u8 = 0x5;
pub(super) const PING: u8 = 0x6;
pub(super) const GOAWAY: u8 = 0x7;
pub(super) const WINDOW_UPDATE: u8 = 0x8;
pub(super) const CONTINUATION: u8 = 0x9;

pub(super) const FLAG_ACK: u8 = 0x1;
pub(super) const FLAG_END_STREAM: u8 = 0x1;
pub(super) const FLAG_END_HEADERS: u8 = 0x4;
pub(super) const FLAG_PADDED: u8 = 0x8;
pub(super) const FLAG_PRIORITY: u8 = 0x20;

pub(super) const SETTINGS_HEADER_TABLE_SIZE: u16 = 0x1;
pub(super) const SETTINGS_ENABLE_PUSH: u16 = 0x2;
pub(super) const SETTINGS_MAX_CONCURRENT_STREAMS: u16 = 0x3;
pub(super) const SETTINGS_INITIAL_WINDOW_SIZE: u16 = 0x4;
pub(super) const SETTINGS_MAX_FRAME_SIZE: u16 = 0x5;

/// The nine bytes before each frame's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FrameHeader {
    pub(super) length: usize,
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
}

impl FrameHeader {
    pub(super) fn parse(bytes: &[u8; HEADER_BYTES]) -> Self {
        Self {
            length: usize::from(bytes[0]) << 16 | usize::from(bytes[1]) << 8 | usize::from(bytes[2]),
            kind: bytes[3],
            flags: bytes[4],
            stream: u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]]) & 0x7fff_ffff,
        }
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Appends one frame.
pub(super) fn write(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[&[u8]]) {
    let length: usize = payload.iter().map(|part| part.len()).sum();
    debug_assert!(length < 1 << 24, "a frame's length has 24 bits");
    out.extend_from_slice(&(length as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    for part in payload {
        out.extend_from_slice(part);
    }
}

pub(super) fn write_settings(out: &mut Vec<u8>, settings: &[(u16, u32)]) {
    let payload: Vec<u8> = settings
        .iter()
        .flat_map(|(id, value)| id.to_be_bytes().into_iter().chain(value.to_be_bytes()))
        .collect();
    write(out, SETTINGS, 0, 0, &[&payload]);
}

pub(super) fn write_window_update(out: &mut Vec<u8>, stream: u32, increment: u32) {
    write(out, WINDOW_UPDATE, 0, stream, &[&increment.to_be_bytes()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_header_parses_back() {
        let mut out = Vec::new();
        write(&mut out, DATA, FLAG_END_STREAM, 7, &[&[1, 2], &[3; 70_000]]);
        let header = FrameHeader::parse(out[..HEADER_BYTES].try_into().unwrap());
        assert_eq!(header, FrameHeader { length: 70_002, kind: DATA, flags: FLAG_END_STREAM, stream: 7 });
    }

    #[test]
    fn reserved_bit_of_the_stream_is_ignored() {
        // RFC 9113 section 4.1: the reserved bit must be ignored when receiving.
        let header = FrameHeader::parse(&[0, 0, 4, WINDOW_UPDATE, 0, 0x80, 0, 0, 3]);
        assert_eq!(header.stream, 3);
    }
}
