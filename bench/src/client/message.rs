//! Cuts the bytes of a stream into gRPC Length-Prefixed-Messages.

use anyhow::ensure;

const PREFIX_BYTES: usize = 5;

/// Reassembles the messages of one stream, keeping only the first `capture` bytes of each.
#[derive(Debug)]
pub(crate) struct Assembler {
    prefix: [u8; PREFIX_BYTES],
    prefix_bytes: usize,
    length: usize,
    remaining: usize,
    head: Vec<u8>,
    capture: usize,
}

impl Assembler {
    pub(crate) fn new(capture: usize) -> Self {
        Self {
            prefix: [0; PREFIX_BYTES],
            prefix_bytes: 0,
            length: 0,
            remaining: 0,
            head: Vec::new(),
            capture,
        }
    }

    /// Takes the next bytes and calls `on(length, head)` for each message they complete.
    pub(crate) fn push(&mut self, mut bytes: &[u8], mut on: impl FnMut(usize, &[u8])) -> anyhow::Result<()> {
        while !bytes.is_empty() {
            if self.prefix_bytes < PREFIX_BYTES {
                let take = bytes.len().min(PREFIX_BYTES - self.prefix_bytes);
                self.prefix[self.prefix_bytes..self.prefix_bytes + take].copy_from_slice(&bytes[..take]);
                self.prefix_bytes += take;
                bytes = &bytes[take..];
                if self.prefix_bytes < PREFIX_BYTES {
                    break;
                }
                let [compressed, a, b, c, d] = self.prefix;
                ensure!(compressed == 0, "message is compressed, which was never offered");
                self.length = u32::from_be_bytes([a, b, c, d]) as usize;
                self.remaining = self.length;
                self.head.clear();
            }
            let take = bytes.len().min(self.remaining);
            let wanted = take.min(self.capture.saturating_sub(self.head.len()));
            self.remaining -= take;
            if self.remaining == 0 {
                self.prefix_bytes = 0;
                if self.head.is_empty() {
                    on(self.length, &bytes[..wanted]);
                } else {
                    self.head.extend_from_slice(&bytes[..wanted]);
                    on(self.length, &self.head);
                }
            } else {
                self.head.extend_from_slice(&bytes[..wanted]);
            }
            bytes = &bytes[take..];
        }
        Ok(())
    }

    /// Whether the stream stands between two messages.
    pub(crate) fn is_at_boundary(&self) -> bool {
        self.prefix_bytes == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed(messages: &[&[u8]]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for message in messages {
            bytes.push(0);
            bytes.extend_from_slice(&(message.len() as u32).to_be_bytes());
            bytes.extend_from_slice(message);
        }
        bytes
    }

    #[test]
    fn messages_survive_every_way_of_cutting_the_bytes() {
        let messages: [&[u8]; 4] = [b"first", b"", b"a longer third message", b"x"];
        let bytes = framed(&messages);
        for step in 1..=bytes.len() {
            let mut assembler = Assembler::new(usize::MAX);
            let mut seen: Vec<Vec<u8>> = Vec::new();
            for chunk in bytes.chunks(step) {
                assembler
                    .push(chunk, |length, head| {
                        assert_eq!(length, head.len());
                        seen.push(head.to_vec());
                    })
                    .unwrap();
            }
            assert_eq!(seen, messages, "cut every {step} bytes");
            assert!(assembler.is_at_boundary());
        }
    }

    #[test]
    fn capture_bounds_what_is_kept() {
        let mut assembler = Assembler::new(4);
        let mut seen = Vec::new();
        for chunk in framed(&[b"0123456789", b"ab"]).chunks(3) {
            assembler.push(chunk, |length, head| seen.push((length, head.to_vec()))).unwrap();
        }
        assert_eq!(seen, [(10, b"0123".to_vec()), (2, b"ab".to_vec())]);
    }

    #[test]
    fn compressed_message_is_an_error() {
        assert!(Assembler::new(0).push(&[1, 0, 0, 0, 0], |_, _| {}).is_err());
    }
}
