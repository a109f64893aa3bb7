//! What a connection tells its owner.

use bytes::{Buf, Bytes};

use super::error::ErrorCode;

/// Names a stream of one connection, also after it has closed; the slot makes the lookup an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    pub(super) number: u32,
    pub(super) slot: u32,
}

impl StreamId {
    /// The stream identifier of RFC 9113.
    #[must_use]
    pub fn number(self) -> u32 {
        self.number
    }
}

/// What happened on a connection.
#[derive(Debug)]
pub enum Event {
    /// A request began.
    Request {
        /// The stream to answer on.
        stream: StreamId,
        /// Its header section.
        head: RequestHead,
        /// Whether nothing follows.
        end_stream: bool,
    },
    /// Bytes of a request's body. They count against the flow-control windows until
    /// [`Connection::consume`](super::Connection::consume) is called.
    Data {
        /// The request's stream.
        stream: StreamId,
        /// The bytes; empty only together with `end_stream`.
        data: Bytes,
        /// Whether nothing follows.
        end_stream: bool,
    },
    /// A request ended with trailers.
    Trailers {
        /// The request's stream.
        stream: StreamId,
        /// The trailer section.
        fields: Fields,
    },
    /// A stream of a [`Event::Request`] was reset, by the peer or because the peer broke a rule; it is gone.
    Reset {
        /// The stream that was reset.
        stream: StreamId,
        /// Why.
        code: ErrorCode,
    },
    /// What waits on a stream fell to [`Config::send_low_water`](super::Config::send_low_water) or below, after it
    /// had been above.
    Writable {
        /// The stream that has room.
        stream: StreamId,
    },
    /// The connection is over, and with it every stream; the last event. What is still to be gathered tells the peer.
    ConnectionClosed {
        /// [`ErrorCode::NO_ERROR`] if it ended in order.
        code: ErrorCode,
        /// Says in words what the peer did.
        reason: &'static str,
    },
}

/// A part of a buffer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Span {
    pub(super) start: u32,
    pub(super) len: u32,
}

impl Span {
    fn of(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.start as usize..][..self.len as usize]
    }
}

/// The header section of a request: one buffer, whose bytes are shared by everything taken out of it.
///
/// It is meant to be read and dropped: whoever keeps it, or a slice of it, keeps a few kilobytes of the connection's
/// receive memory.
#[derive(Clone, Debug)]
pub struct RequestHead {
    pub(super) buffer: Bytes,
    pub(super) method: Span,
    pub(super) scheme: Span,
    pub(super) path: Span,
    pub(super) authority: Option<Span>,
    /// Where the regular fields begin.
    pub(super) fields: u32,
}

impl RequestHead {
    /// The `:method` pseudo-header field; never empty.
    #[must_use]
    pub fn method(&self) -> &[u8] {
        self.method.of(&self.buffer)
    }

    /// The `:scheme` pseudo-header field; empty for a CONNECT request.
    #[must_use]
    pub fn scheme(&self) -> &[u8] {
        self.scheme.of(&self.buffer)
    }

    /// The `:authority` pseudo-header field, as sent: clients on a UNIX socket put a name, the socket's path or its
    /// percent-encoded form there, an empty string, or leave it out.
    #[must_use]
    pub fn authority(&self) -> Option<&[u8]> {
        self.authority.map(|span| span.of(&self.buffer))
    }

    /// The `:path` pseudo-header field; empty for a CONNECT request.
    #[must_use]
    pub fn path(&self) -> &[u8] {
        self.path.of(&self.buffer)
    }

    /// The fields that are not pseudo-header fields, in order.
    #[must_use]
    pub fn fields(&self) -> FieldIter<'_> {
        FieldIter { rest: &self.buffer[self.fields as usize..] }
    }

    /// The value of the first field with a name, which must be lower case.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        self.fields().find(|(found, _)| *found == name.as_bytes()).map(|(_, value)| value)
    }

    /// A value of this head as bytes that outlive it, without a copy.
    ///
    /// # Panics
    /// If `part` is not a slice that this head returned.
    #[must_use]
    pub fn share(&self, part: &[u8]) -> Bytes {
        self.buffer.slice_ref(part)
    }
}

/// A trailer section.
#[derive(Clone, Debug)]
pub struct Fields {
    pub(super) buffer: Bytes,
}

impl Fields {
    /// The fields, in order.
    #[must_use]
    pub fn iter(&self) -> FieldIter<'_> {
        FieldIter { rest: &self.buffer }
    }
}

impl<'a> IntoIterator for &'a Fields {
    type Item = (&'a [u8], &'a [u8]);
    type IntoIter = FieldIter<'a>;

    fn into_iter(self) -> FieldIter<'a> {
        self.iter()
    }
}

/// Bytes in front of each field: the lengths of name and value.
pub(super) const FIELD_PREFIX: usize = 8;

/// Iterates over names and values.
#[derive(Clone, Debug)]
pub struct FieldIter<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for FieldIter<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let (name_len, value_len) = (self.rest.get_u32_ne() as usize, self.rest.get_u32_ne() as usize);
        let (name, rest) = self.rest.split_at(name_len);
        let (value, rest) = rest.split_at(value_len);
        self.rest = rest;
        Some((name, value))
    }
}
