//! Requests that say the same as the one before.
//!
//! A client that asks again and again sends the same few bytes: indices into the dynamic table. What they mean is a
//! function of the bytes and of the table, so as long as the table has not changed the head of the last request is
//! the head of this one. That saves a third of the instructions of a small exchange.

use super::events::RequestHead;

/// Larger blocks hold literals, which mostly differ.
const MAX_BLOCK: usize = 128;

/// A decoded request.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) head: RequestHead,
    pub(super) content_length: Option<u64>,
}

/// Remembers the last field block, and what it meant from the second time on: a block that comes only once costs no
/// more than its comparison.
#[derive(Debug, Default)]
pub(super) struct Repeat {
    block: Vec<u8>,
    /// Which state of the table the block was for.
    generation: u64,
    request: Option<Request>,
}

impl Repeat {
    /// What the block means, if that is known.
    pub(super) fn get(&self, block: &[u8], generation: u64) -> Option<&Request> {
        self.request.as_ref().filter(|_| self.is_same(block, generation))
    }

    /// Notes what a block meant that left the table as it was.
    pub(super) fn note(&mut self, block: &[u8], generation: u64, request: &Request) {
        if self.is_same(block, generation) {
            // A copy: the original would keep the connection's receive memory from being used again.
            let mut request = request.clone();
            request.head.buffer = bytes::Bytes::copy_from_slice(&request.head.buffer);
            self.request = Some(request);
        } else if block.len() <= MAX_BLOCK {
            self.block.clear();
            self.block.extend_from_slice(block);
            self.generation = generation;
            self.request = None;
        }
    }

    /// Bytes of memory that it takes.
    pub(super) fn held_bytes(&self) -> usize {
        self.block.capacity() + self.request.as_ref().map_or(0, |request| request.head.buffer.len())
    }

    fn is_same(&self, block: &[u8], generation: u64) -> bool {
        self.generation == generation && self.block == block
    }
}

#[cfg(test)]
mod tests {
    use super::super::Event;
    use super::super::frame::{Kind, flag};
    use super::super::testing::{Client, REQUEST, block, frame};
    use super::*;

    fn send(client: &mut Client, stream: u32, block: &[u8]) -> RequestHead {
        client.send(&frame(Kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, stream, block));
        client.requested().1
    }

    /// A request whose field `a` is the newest entry of the table.
    fn naming_the_newest() -> Vec<u8> {
        [block(REQUEST), vec![0xbe]].concat()
    }

    fn entering(value: &str) -> Vec<u8> {
        [block(REQUEST), vec![0x40, 1, b'a', value.len() as u8], value.as_bytes().to_vec()].concat()
    }

    #[test]
    fn a_repeated_head_says_the_same() {
        let mut client = Client::new();
        send(&mut client, 1, &entering("first"));
        for number in [3, 5, 7, 9] {
            let head = send(&mut client, number, &naming_the_newest());
            assert_eq!(head.path(), b"/v1alpha1.Pods/GetPod");
            assert_eq!(head.fields().count(), 3);
            assert_eq!(head.field("a"), Some(&b"first"[..]));
        }
        assert!(client.connection.repeat.request.is_some());
    }

    #[test]
    fn the_same_bytes_mean_something_else_when_the_table_has_changed() {
        let mut client = Client::new();
        for (round, value) in ["first", "second"].into_iter().enumerate() {
            let number = 20 * round as u32;
            send(&mut client, number + 1, &entering(value));
            for more in [3, 5, 7] {
                let head = send(&mut client, number + more, &naming_the_newest());
                assert_eq!(head.field("a"), Some(value.as_bytes()));
            }
        }
        // A table size update empties the table, so that the bytes now mean nothing.
        client.send(&frame(Kind::HEADERS, flag::END_HEADERS, 41, &[vec![0x20], block(REQUEST)].concat()));
        client.requested();
        client.send(&frame(Kind::HEADERS, flag::END_HEADERS, 43, &naming_the_newest()));
        assert_eq!(client.closed_with(), super::super::ErrorCode::COMPRESSION_ERROR);
    }

    #[test]
    fn a_repeated_request_is_still_checked() {
        let mut client = Client::new();
        let promising = block(&[REQUEST, &[("content-length", "3")]].concat());
        for number in [1, 3, 5, 7] {
            client.send(&frame(Kind::HEADERS, flag::END_HEADERS, number, &promising));
            client.requested();
            client.send(&frame(Kind::DATA, flag::END_STREAM, number, b"four"));
            assert!(matches!(client.events()[..], [Event::Reset { .. }]), "RFC 9113 section 8.1.1");
        }
        client.output();
        client.send(&frame(Kind::HEADERS, flag::END_HEADERS | flag::END_STREAM, 9, &promising));
        assert_eq!(client.reset_with(9), super::super::ErrorCode::PROTOCOL_ERROR);
    }

    #[test]
    fn large_blocks_are_not_kept() {
        let mut client = Client::new();
        let large = block(&[REQUEST, &[("a", &"x".repeat(MAX_BLOCK))]].concat());
        for number in [1, 3, 5] {
            send(&mut client, number, &large);
        }
        assert!(client.connection.repeat.held_bytes() <= MAX_BLOCK);
    }
}
