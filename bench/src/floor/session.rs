//! The client side of the floor's protocol.

use std::collections::VecDeque;

use anyhow::bail;

use super::{KIND_GET, KIND_LIST, KIND_WATCH, LENGTHS_BYTES, REQUEST_BYTES};
use crate::client::{Assembler, Call, Event, Method, Session};

/// One connection. Responses come in the order of the requests; a watch takes the connection for good.
pub(crate) struct FloorSession {
    out: Vec<u8>,
    waiting: VecDeque<u64>,
    watch: Option<u64>,
    lengths: Vec<u8>,
    message_bytes: usize,
    padding_bytes: usize,
    assembler: Assembler,
}

impl FloorSession {
    pub(crate) fn new(capture_bytes: usize) -> Self {
        Self {
            out: Vec::new(),
            waiting: VecDeque::new(),
            watch: None,
            lengths: Vec::new(),
            message_bytes: 0,
            padding_bytes: 0,
            assembler: Assembler::new(capture_bytes),
        }
    }
}

impl Session for FloorSession {
    fn start(&mut self, call: &Call, tag: u64) -> bool {
        if self.watch.is_some() || (call.method == Method::Watch && !self.waiting.is_empty()) {
            return false;
        }
        let kind = match call.method {
            Method::Get => KIND_GET,
            Method::List => KIND_LIST,
            Method::Watch => KIND_WATCH,
        };
        // The encoded GetPodRequest is a tag, a length and the UID: the length and the UID are what is sent.
        let uid = call.request.get(1..).unwrap_or(&[0]);
        let end = self.out.len() + REQUEST_BYTES;
        self.out.push(kind);
        self.out.extend_from_slice(&uid[..uid.len().min(REQUEST_BYTES - 1)]);
        self.out.resize(end, 0);
        if call.method == Method::Watch {
            self.watch = Some(tag);
        } else {
            self.waiting.push_back(tag);
        }
        true
    }

    fn receive(&mut self, mut bytes: &[u8], on: &mut dyn FnMut(Event<'_>)) -> anyhow::Result<()> {
        while !bytes.is_empty() {
            if self.message_bytes > 0 {
                let take = bytes.len().min(self.message_bytes);
                let Some(tag) = self.watch.or(self.waiting.front().copied()) else {
                    bail!("response without a request")
                };
                self.assembler
                    .push(&bytes[..take], |length, head| on(Event::Message { tag, length, head }))?;
                self.message_bytes -= take;
                bytes = &bytes[take..];
            } else if self.padding_bytes > 0 {
                let take = bytes.len().min(self.padding_bytes);
                self.padding_bytes -= take;
                bytes = &bytes[take..];
                if self.padding_bytes == 0
                    && self.watch.is_none()
                    && let Some(tag) = self.waiting.pop_front()
                {
                    on(Event::End { tag, status: 0, message: "" });
                }
            } else {
                let take = bytes.len().min(LENGTHS_BYTES - self.lengths.len());
                self.lengths.extend_from_slice(&bytes[..take]);
                bytes = &bytes[take..];
                if let Some((message, padding)) = self.lengths.split_first_chunk::<4>()
                    && let Some(padding) = padding.first_chunk::<4>()
                {
                    self.message_bytes = u32::from_le_bytes(*message) as usize;
                    self.padding_bytes = u32::from_le_bytes(*padding) as usize;
                    self.lengths.clear();
                }
            }
        }
        Ok(())
    }

    fn output(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::floor::{lengths, unary_padding};

    #[test]
    fn responses_are_matched_in_order_however_they_are_cut() {
        let mut bytes = Vec::new();
        for message in [&b"\0\0\0\0\x03abc"[..], b"\0\0\0\0\0"] {
            let padding = unary_padding(message.len());
            bytes.extend_from_slice(&lengths(message.len(), padding));
            bytes.extend_from_slice(message);
            bytes.resize(bytes.len() + padding, 0);
        }
        for step in 1..=bytes.len() {
            let mut session = FloorSession::new(0);
            assert!(session.start(&Call::get("uid"), 5) && session.start(&Call::list(), 6));
            assert_eq!(session.output().len(), 2 * REQUEST_BYTES);
            assert_eq!(session.output()[..6], [KIND_GET, 3, b'u', b'i', b'd', 0]);
            let mut seen = Vec::new();
            for chunk in bytes.chunks(step) {
                session
                    .receive(chunk, &mut |event| {
                        seen.push(match event {
                            Event::Message { tag, length, .. } => (tag, length),
                            Event::End { tag, .. } => (tag, usize::MAX),
                        });
                    })
                    .unwrap();
            }
            assert_eq!(seen, [(5, 3), (5, usize::MAX), (6, 0), (6, usize::MAX)]);
        }
    }

    #[test]
    fn watch_takes_the_connection() {
        let mut session = FloorSession::new(0);
        assert!(session.start(&Call::watch(), 0));
        assert!(!session.start(&Call::list(), 1));
    }
}
