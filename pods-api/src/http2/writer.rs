//! Puts frames together into few chunks: what is small is copied into one buffer, what is large is shared.

use bytes::{Bytes, BytesMut};

use crate::transport::Outgoing;

/// Size of the buffers that small pieces are copied into and cut from.
const BUFFER_SIZE: usize = 4096;
/// A piece up to this size is copied: that costs less than a chunk of its own, on both sides of the system call.
const COPY_LIMIT: usize = 1024;

/// Writes frames to an [`Outgoing`].
#[derive(Debug)]
pub(super) struct Writer<'a> {
    buffer: &'a mut BytesMut,
    out: &'a mut Outgoing,
}

impl<'a> Writer<'a> {
    /// `buffer` must be empty; it comes back empty, with whatever room is left in its memory.
    pub(super) fn new(buffer: &'a mut BytesMut, out: &'a mut Outgoing) -> Self {
        Self { buffer, out }
    }

    /// How many bytes wait for the socket.
    pub(super) fn len(&self) -> usize {
        self.out.len() + self.buffer.len()
    }

    /// Copies bytes.
    pub(super) fn copy(&mut self, bytes: &[u8]) {
        if self.buffer.capacity() - self.buffer.len() < bytes.len() {
            // A chunk is sent as it is rather than moved to a larger buffer.
            self.flush();
            self.buffer.reserve(bytes.len().max(BUFFER_SIZE));
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

    /// Hands over what was copied.
    pub(super) fn flush(&mut self) {
        if !self.buffer.is_empty() {
            self.out.push(self.buffer.split().freeze());
        }
    }
}

/// Copies bytes into shared memory; small ones share one allocation.
pub(super) fn cut(arena: &mut BytesMut, bytes: &[u8]) -> Bytes {
    if bytes.is_empty() {
        return Bytes::new();
    }
    if bytes.len() >= BUFFER_SIZE {
        return Bytes::copy_from_slice(bytes);
    }
    make_room(arena, bytes.len());
    arena.extend_from_slice(bytes);
    arena.split().freeze()
}

/// Makes room for bytes; if that takes a new buffer, one for many of them.
pub(super) fn make_room(arena: &mut BytesMut, bytes: usize) {
    if arena.capacity() - arena.len() < bytes {
        arena.reserve(bytes.max(BUFFER_SIZE));
    }
}
