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
