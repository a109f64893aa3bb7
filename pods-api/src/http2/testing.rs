//! A client for tests: it writes frames byte by byte, legal or not, and reads what comes back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::ErrorCode;
use super::frame::{self, FrameHeader, HEADER_LEN, Kind, PREFACE, flag};
use super::hpack::{Decoder, Encoder, Sink};
use super::{Config, Connection, Event, RequestHead, StreamId};
use crate::transport::Outgoing;

/// A field as bytes.
pub(crate) type Field = (Vec<u8>, Vec<u8>);

/// A frame that the server sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) kind: Kind,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    /// The 32-bit number at an offset of the payload.
    pub(crate) fn u32_at(&self, offset: usize) -> u32 {
        u32::from_be_bytes(self.payload[offset..offset + 4].try_into().unwrap())
    }

    pub(crate) fn ends_stream(&self) -> bool {
        matches!(self.kind, Kind::DATA | Kind::HEADERS) && self.flags & flag::END_STREAM != 0
    }
}

/// The bytes of a frame.
pub(crate) fn frame(kind: Kind, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame::append(&mut bytes, kind, flags, stream, payload);
    bytes
}

/// An encoded field block.
pub(crate) fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut encoder = Encoder::default();
    for (name, value) in fields {
        encoder.field(name.as_bytes(), value.as_bytes());
    }
    encoder.finish()
}

/// The fields of an ordinary request.
pub(crate) const REQUEST: &[(&str, &str)] = &[
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/v1alpha1.Pods/GetPod"),
    (":authority", "localhost"),
    ("te", "trailers"),
    ("content-type", "application/grpc"),
];

/// HEADERS of an ordinary request.
pub(crate) fn request(stream: u32, flags: u8) -> Vec<u8> {
    frame(Kind::HEADERS, flag::END_HEADERS | flags, stream, &block(REQUEST))
}

/// DATA.
pub(crate) fn data(stream: u32, flags: u8, payload: &[u8]) -> Vec<u8> {
    frame(Kind::DATA, flags, stream, payload)
}

/// WINDOW_UPDATE.
pub(crate) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(Kind::WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// RST_STREAM.
pub(crate) fn rst_stream(stream: u32, code: ErrorCode) -> Vec<u8> {
    frame(Kind::RST_STREAM, 0, stream, &code.as_u32().to_be_bytes())
}

/// SETTINGS.
pub(crate) fn settings(settings: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> = settings
        .iter()
        .flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
        .collect();
    frame(Kind::SETTINGS, 0, 0, &payload)
}

/// Preface, SETTINGS and the acknowledgement of the server's.
pub(crate) fn handshake() -> Vec<u8> {
    [&PREFACE[..], &settings(&[]), &frame(Kind::SETTINGS, flag::ACK, 0, &[])].concat()
}

/// Collects fields as bytes.
#[derive(Default)]
struct Collect(Vec<Field>);

impl Sink for Collect {
    type Mark = ();

    fn examine(&self, _name: &[u8], _value: &[u8]) {}

    fn field(&mut self, name: &[u8], value: &[u8], (): ()) {
        self.0.push((name.to_vec(), value.to_vec()));
    }
}

/// A connection with its client.
pub(crate) struct Client {
    pub(crate) connection: Connection,
    pub(crate) now: Instant,
    decoder: Decoder<()>,
}

impl Client {
    /// A client of a server with default limits, after the handshake.
    pub(crate) fn new() -> Self {
        Self::with(Config::default())
    }

    /// A client after the handshake, whose frames are taken out.
    pub(crate) fn with(config: Config) -> Self {
        let mut client = Self::silent(config);
        client.send(&handshake());
        client.output();
        client
    }

    /// A client that has sent nothing.
    pub(crate) fn silent(config: Config) -> Self {
        let now = Instant::now();
        Self { connection: Connection::server(Arc::new(config), now), now, decoder: Decoder::new(4096) }
    }

    /// Sends bytes.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.connection.receive(bytes, self.now);
    }

    /// Lets time pass.
    pub(crate) fn pass(&mut self, time: Duration) {
        self.now += time;
        self.connection.timeout(self.now);
    }

    /// Sends a request without a body and returns its stream.
    #[track_caller]
    pub(crate) fn request(&mut self, number: u32) -> StreamId {
        self.send(&request(number, flag::END_STREAM));
        self.requested().0
    }

    /// The next event, which must be a request.
    #[track_caller]
    pub(crate) fn requested(&mut self) -> (StreamId, RequestHead, bool) {
        match self.connection.next_event() {
            Some(Event::Request { stream, head, end_stream }) => (stream, head, end_stream),
            other => panic!("not a request: {other:?}"),
        }
    }

    /// All events.
    pub(crate) fn events(&mut self) -> Vec<Event> {
        std::iter::from_fn(|| self.connection.next_event()).collect()
    }

    /// What the server sends, as bytes.
    pub(crate) fn bytes(&mut self) -> Vec<u8> {
        self.bytes_up_to(usize::MAX)
    }

    /// What the server sends with a budget, as bytes.
    pub(crate) fn bytes_up_to(&mut self, budget: usize) -> Vec<u8> {
        let mut out = Outgoing::default();
        self.connection.gather(&mut out, budget, self.now);
        out.chunks().flat_map(|chunk| chunk.to_vec()).collect()
    }

    /// What the server sends, as frames.
    #[track_caller]
    pub(crate) fn output(&mut self) -> Vec<Frame> {
        frames(&self.bytes())
    }

    /// Decodes the field block of a HEADERS frame.
    #[track_caller]
    pub(crate) fn fields(&mut self, frame: &Frame) -> Vec<Field> {
        assert_eq!((frame.kind, frame.flags & flag::END_HEADERS), (Kind::HEADERS, flag::END_HEADERS));
        let mut fields = Collect::default();
        self.decoder.decode(&frame.payload, &mut fields).unwrap();
        fields.0
    }

    /// The code of the GOAWAY that ended the connection; the owner must have been told the same.
    #[track_caller]
    pub(crate) fn closed_with(&mut self) -> ErrorCode {
        let told = match self.events().pop() {
            Some(Event::ConnectionClosed { code, .. }) => code,
            other => panic!("the connection is not closed: {other:?}"),
        };
        let output = self.output();
        let goaway = output.last().expect("a last frame");
        assert_eq!((goaway.kind, goaway.stream), (Kind::GOAWAY, 0));
        assert!(self.connection.is_done());
        assert_eq!(goaway.u32_at(4), told.as_u32());
        told
    }

    /// The code of the only frame sent, an RST_STREAM of a stream; the connection must be open.
    #[track_caller]
    pub(crate) fn reset_with(&mut self, stream: u32) -> ErrorCode {
        let output = self.output();
        assert_eq!(output.len(), 1, "{output:?}");
        assert_eq!((output[0].kind, output[0].stream), (Kind::RST_STREAM, stream));
        assert!(!self.connection.is_done());
        ErrorCode::from_u32(output[0].u32_at(0))
    }
}

/// Splits bytes into frames; the last must be whole.
#[track_caller]
pub(crate) fn frames(mut bytes: &[u8]) -> Vec<Frame> {
    let mut frames = Vec::new();
    while let Some((header, rest)) = bytes.split_first_chunk::<HEADER_LEN>() {
        let FrameHeader { length, kind, flags, stream } = FrameHeader::parse(header);
        let (payload, rest) = rest.split_at(length);
        frames.push(Frame { kind, flags, stream, payload: payload.to_vec() });
        bytes = rest;
    }
    assert!(bytes.is_empty(), "half a frame was sent");
    frames
}
