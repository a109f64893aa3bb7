//! Puts frames together into few chunks: what is small is copied into one buffer, what is large is shared.

use bytes::{Bytes, BytesMut};

use crate::transport::Outgoing;

/// Size of the buffers that small pieces are copied into and cut from. Each connection keeps two.
const BUFFER_SIZE: usize = 4096;
/// Size of further buffers that one round fills; they are not kept.
const BURST_BUFFER_SIZE: usize = 16 << 10;
/// A piece up to this size is copied: that costs less than a chunk of its own, on both sides of the system call.
const COPY_LIMIT: usize = 1024;

/// Writes frames to an [`Outgoing`].
#[derive(Debug)]
pub(super) struct Writer<'a> {
    buffer: &'a mut BytesMut,
    out: &'a mut Outgoing,
    is_burst: bool,
}

impl<'a> Writer<'a> {
    /// `buffer` must be empty. Its memory is used again from the front if the socket has taken all of it.
    pub(super) fn new(buffer: &'a mut BytesMut, out: &'a mut Outgoing) -> Self {
        // If not, what is left of it has to do.
        let _ = buffer.try_reclaim(BUFFER_SIZE);
        Self { buffer, out, is_burst: false }
    }

    /// How many bytes wait for the socket.
    pub(super) fn len(&self) -> usize {
        self.out.len() + self.buffer.len()
    }

    /// Copies bytes.
    pub(super) fn copy(&mut self, bytes: &[u8]) {
        if self.buffer.capacity() - self.buffer.len() < bytes.len() {
            // A chunk is sent as it is rather than moved to a larger buffer.
            self.is_burst = !self.buffer.is_empty();
            self.flush();
            let size = if self.is_burst { BURST_BUFFER_SIZE } else { BUFFER_SIZE };
            self.buffer.reserve(bytes.len().max(size));
        }
        self.buffer.extend_from_slice(bytes);
    }

    /// Takes a part of a body, by reference unless it is small.
    pub(super) fn share(&mut self, bytes: Bytes) {
        if bytes.len() <= COPY_LIMIT {
            self.copy(&bytes);
        } else {
            self.flush();
            self.out.push(bytes);
        }
    }

    /// Hands over what is left and leaves the buffer for the next round.
    pub(super) fn finish(mut self) {
        self.flush();
        if self.is_burst {
            *self.buffer = BytesMut::new();
        }
    }

    fn flush(&mut self) {
        if !self.buffer.is_empty() {
            self.out.push(self.buffer.split().freeze());
        }
    }
}

/// Copies bytes into shared memory; small ones share one allocation, and its memory is used again from the front if
/// nothing of it is in use any more.
pub(super) fn cut(arena: &mut BytesMut, bytes: &[u8]) -> Bytes {
    if bytes.is_empty() {
        return Bytes::new();
    }
    if bytes.len() >= BUFFER_SIZE {
        return Bytes::copy_from_slice(bytes);
    }
    if arena.capacity() < bytes.len() {
        arena.reserve(BUFFER_SIZE);
    }
    arena.extend_from_slice(bytes);
    arena.split().freeze()
}
