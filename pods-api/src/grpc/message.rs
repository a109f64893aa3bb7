//! gRPC message framing: `Length-Prefixed-Message` = compressed flag (1 byte), length (4 bytes, big endian), message.

use super::status::{Code, Status};
use bytes::{Buf, Bytes, BytesMut};

/// Bytes of a message's prefix.
pub(super) const PREFIX_BYTES: usize = 5;

/// The largest request message taken. Requests of this API are a few bytes; this bounds what a peer can make the
/// server hold per stream.
pub(super) const MAX_REQUEST_BYTES: usize = 64 * 1024;

/// Collects the messages of one request from DATA that may be split anywhere.
#[derive(Debug, Default)]
pub(super) struct MessageReader {
    buffer: BytesMut,
}

impl MessageReader {
    /// Takes received bytes. A whole message that arrives in one piece is never copied: see [`MessageReader::next`].
    pub(super) fn push(&mut self, data: &[u8]) {
        self.buffer.extend_from_slice(data);
    }

    /// The next whole message, `None` while it is incomplete.
    ///
    /// # Errors
    /// INTERNAL for a compressed message (no encoding is ever agreed on, so the flag contradicts the headers), and
    /// RESOURCE_EXHAUSTED for one over [`MAX_REQUEST_BYTES`].
    pub(super) fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let Some(prefix) = self.buffer.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let length = message_length(*prefix)?;
        if self.buffer.len() < PREFIX_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX_BYTES);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// Whether bytes of an unfinished message are left.
    #[must_use]
    pub(super) fn is_partial(&self) -> bool {
        !self.buffer.is_empty()
    }
}

/// The one message of a unary request that lies whole in `data`: the common case, taken without a copy.
///
/// # Errors
/// As [`MessageReader::next`].
pub(super) fn whole_message(data: &Bytes) -> Result<Option<Bytes>, Status> {
    let Some(prefix) = data.first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
    let length = message_length(*prefix)?;
    Ok((data.len() == PREFIX_BYTES + length).then(|| data.slice(PREFIX_BYTES..)))
}

fn message_length([flag, length @ ..]: [u8; PREFIX_BYTES]) -> Result<usize, Status> {
    match flag {
        0 => {}
        // GRPC-8: the flag without a grpc-encoding header is the sender's bug.
        1 => {
            return Err(Status::new(
                Code::Internal,
                "message has the compressed flag set, but the request has no grpc-encoding",
            ));
        }
        _ => {
            return Err(Status::new(
                Code::Internal,
                format!("message prefix has the invalid flag byte {flag}"),
            ));
        }
    }
    let length = u32::from_be_bytes(length) as usize;
    if length > MAX_REQUEST_BYTES {
        return Err(Status::new(
            Code::ResourceExhausted,
            format!("request message of {length} bytes is larger than the limit of {MAX_REQUEST_BYTES}"),
        ));
    }
    Ok(length)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(message: &[u8]) -> Vec<u8> {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        [&[0], &length[..], message].concat()
    }

    #[test]
    fn messages_split_anywhere_are_put_together() {
        let stream = [framed(b"first"), framed(b""), framed(&[7; 1000])].concat();
        for step in [1, 2, 3, 5, 7, 1000, stream.len()] {
            let (mut reader, mut messages) = (MessageReader::default(), Vec::new());
            for part in stream.chunks(step) {
                reader.push(part);
                while let Some(message) = reader.next().unwrap() {
                    messages.push(message);
                }
            }
            assert!(!reader.is_partial());
            assert_eq!(messages, [&b"first"[..], &b""[..], &[7; 1000][..]], "in steps of {step}");
        }
    }

    #[test]
    fn a_whole_message_is_not_copied() {
        let data = Bytes::from(framed(b"abc"));
        let message = whole_message(&data).unwrap().unwrap();
        assert_eq!((&*message, message.as_ptr()), (&b"abc"[..], data[5..].as_ptr()));
        assert_eq!(whole_message(&data.slice(..6)).unwrap(), None);
        assert_eq!(whole_message(&data.slice(..4)).unwrap(), None);
    }

    #[test]
    fn compressed_flag_without_encoding_is_internal() {
        // GRPC-8
        let mut reader = MessageReader::default();
        reader.push(&[1, 0, 0, 0, 0]);
        assert_eq!(reader.next().unwrap_err().code, Code::Internal);
        assert_eq!(whole_message(&Bytes::from_static(&[9, 0, 0, 0, 0])).unwrap_err().code, Code::Internal);
    }

    #[test]
    fn a_huge_length_is_refused_before_it_is_buffered() {
        let mut reader = MessageReader::default();
        reader.push(&[0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(reader.next().unwrap_err().code, Code::ResourceExhausted);
    }
}
