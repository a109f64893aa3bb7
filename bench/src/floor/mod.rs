//! The floor: the protocol of a server that does nothing but move the same bytes.
//!
//! A request is [`REQUEST_BYTES`] long, as an HTTP/2 GetPod request is once its fields are in the HPACK table:
//! the kind, the UID's length, the UID, zeros. A response is two little-endian `u32` (message bytes, padding
//! bytes), the gRPC Length-Prefixed-Message, and padding, so that as many bytes travel as with HTTP/2 framing.
//! What a server costs above this one is the price of its protocol and of its own code.

mod session;

pub(crate) use session::FloorSession;

pub(crate) const REQUEST_BYTES: usize = 68;
pub(crate) const LENGTHS_BYTES: usize = 8;
pub(crate) const KIND_GET: u8 = 1;
pub(crate) const KIND_LIST: u8 = 2;
pub(crate) const KIND_WATCH: u8 = 3;

const FRAME_HEADER_BYTES: usize = 9;
const FRAME_PAYLOAD_BYTES: usize = 16_384;
/// HEADERS with two indexed fields, and trailers with one.
const UNARY_BYTES: usize = 2 * FRAME_HEADER_BYTES + 3;

/// Padding after a unary response of so many message bytes.
pub(crate) fn unary_padding(message_bytes: usize) -> usize {
    UNARY_BYTES + data_frames(message_bytes) * FRAME_HEADER_BYTES - LENGTHS_BYTES
}

/// Padding after a streamed message of so many bytes.
pub(crate) fn stream_padding(message_bytes: usize) -> usize {
    data_frames(message_bytes) * FRAME_HEADER_BYTES - LENGTHS_BYTES
}

fn data_frames(message_bytes: usize) -> usize {
    message_bytes.div_ceil(FRAME_PAYLOAD_BYTES).max(1)
}

/// Returns the two lengths that precede a message.
pub(crate) fn lengths(message_bytes: usize, padding_bytes: usize) -> [u8; LENGTHS_BYTES] {
    let mut lengths = [0; LENGTHS_BYTES];
    lengths[..4].copy_from_slice(&(message_bytes as u32).to_le_bytes());
    lengths[4..].copy_from_slice(&(padding_bytes as u32).to_le_bytes());
    lengths
}
