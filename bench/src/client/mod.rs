//! A lean gRPC-over-HTTP/2 client without I/O: bytes in, events out.
//!
//! Written for load: one thread drives thousands of streams, and what the client itself costs stays small enough
//! not to be what is measured. It is still a correct peer: it keeps both flow-control windows, checks that the
//! server keeps them, decodes every field section (RFC 9113, RFC 7541) and reports the gRPC status of each call.

mod connection;
mod frame;
mod hpack;
mod huffman;
mod message;

pub(crate) use connection::{Connection, STOCK_WINDOW_BYTES, Settings};
pub(crate) use message::Assembler;

use bytes::Bytes;

/// A call of `/v1alpha1.Pods`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Method {
    Get,
    List,
    Watch,
}

impl Method {
    pub(crate) const ALL: [Self; 3] = [Self::Get, Self::List, Self::Watch];

    /// The value of the `:path` pseudo-header field.
    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Get => "/v1alpha1.Pods/GetPod",
            Self::List => "/v1alpha1.Pods/ListPods",
            Self::Watch => "/v1alpha1.Pods/WatchPods",
        }
    }
}

/// One call to make: the method and its encoded request message.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) request: Bytes,
}

impl Call {
    pub(crate) fn list() -> Self {
        Self { method: Method::List, request: Bytes::new() }
    }

    pub(crate) fn watch() -> Self {
        Self { method: Method::Watch, request: Bytes::new() }
    }

    pub(crate) fn get(uid: &str) -> Self {
        use prost::Message as _;
        let request = pods_api_proto::v1alpha1::GetPodRequest { pod_uid: uid.to_owned() };
        Self { method: Method::Get, request: request.encode_to_vec().into() }
    }
}

/// What the peer did on a call. `tag` is the caller's own number for it.
#[derive(Debug)]
pub(crate) enum Event<'a> {
    /// A whole gRPC message arrived; `head` holds its first bytes, as many as the session captures.
    Message { tag: u64, length: usize, head: &'a [u8] },
    /// The call ended; `status` is a gRPC code, 0 for OK.
    End { tag: u64, status: u32, message: &'a str },
}

/// One connection's protocol, HTTP/2 or the floor's: no I/O, so the load engine treats both alike.
pub(crate) trait Session {
    /// Queues a call; false when the peer's limits leave no room for it now.
    fn start(&mut self, call: &Call, tag: u64) -> bool;
    /// Takes bytes from the peer and reports what they complete.
    fn receive(&mut self, bytes: &[u8], on: &mut dyn FnMut(Event<'_>)) -> anyhow::Result<()>;
    /// The bytes to send; the caller drains what it has written.
    fn output(&mut self) -> &mut Vec<u8>;
}
