//! An HTTP/2 client that sends exactly what a test tells it to: for what stock clients never send, and for the wire
//! images of clients that are not installed here. Blocking, one connection.

use pods_api::http2::hpack::{Decoder, Encoder, Sink};
use std::collections::{HashMap, HashSet};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use crate::harness::PATIENCE;

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;

const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const ACK: u8 = 0x1;

/// SETTINGS_INITIAL_WINDOW_SIZE.
pub(crate) const INITIAL_WINDOW_SIZE: u16 = 4;

/// A received frame.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    pub(crate) stream: u32,
    pub(crate) payload: Vec<u8>,
}

/// What came back on one stream.
#[derive(Debug, Default, Clone)]
pub(crate) struct Answer {
    /// Every field of the header and trailer sections.
    pub(crate) fields: HashMap<String, String>,
    pub(crate) body: Vec<u8>,
    pub(crate) reset: Option<u32>,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }

    /// The number and the message of the gRPC status.
    pub(crate) fn status(&self) -> (&str, &str) {
        (self.field("grpc-status"), self.field("grpc-message"))
    }

    /// How many whole messages have come.
    pub(crate) fn messages_so_far(&self) -> usize {
        let (mut rest, mut count) = (&*self.body, 0);
        while let Some((prefix, tail)) = rest.split_first_chunk::<5>() {
            let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
            let Some(tail) = tail.get(length..) else { break };
            (rest, count) = (tail, count + 1);
        }
        count
    }

    /// The messages of the body.
    pub(crate) fn messages(&self) -> Vec<Vec<u8>> {
        let (mut rest, mut messages) = (&*self.body, Vec::new());
        while let Some((prefix, tail)) = rest.split_first_chunk::<5>() {
            let length = u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize;
            assert!(prefix[0] == 0 && tail.len() >= length, "a whole, uncompressed message");
            messages.push(tail[..length].to_vec());
            rest = &tail[length..];
        }
        messages
    }
}

/// A connection.
pub(crate) struct Raw {
    socket: UnixStream,
    decoder: Decoder<()>,
    next_stream: u32,
    /// Bytes that are to be sent together.
    held: Option<Vec<u8>>,
    /// Whether received DATA is acknowledged with WINDOW_UPDATE at once.
    pub(crate) opens_windows: bool,
}

impl Raw {
    /// Connects and sends the preface and an empty SETTINGS frame.
    pub(crate) fn connect(socket: &Path) -> Self {
        Self::with_settings(socket, &[])
    }

    /// Connects with these SETTINGS.
    pub(crate) fn with_settings(socket: &Path, settings: &[(u16, u32)]) -> Self {
        Self::over(UnixStream::connect(socket).unwrap(), settings)
    }

    /// Begins on a connection that somebody made.
    pub(crate) fn over(socket: UnixStream, settings: &[(u16, u32)]) -> Self {
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut raw =
            Self { socket, decoder: Decoder::new(4096), next_stream: 1, held: None, opens_windows: true };
        raw.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(name, value)| [&name.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        raw.frame(SETTINGS, 0, 0, &payload);
        raw
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) {
        match &mut self.held {
            Some(held) => held.extend_from_slice(bytes),
            None => self.socket.write_all(bytes).unwrap(),
        }
    }

    pub(crate) fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&length[1..], &[kind, flags], &stream.to_be_bytes()].concat();
        self.write(&[&head, payload].concat());
    }

    /// Sends a header section on a new stream and returns the stream.
    pub(crate) fn headers(&mut self, fields: &[(&str, &str)], is_last: bool) -> u32 {
        let stream = self.next_stream;
        self.next_stream += 2;
        let mut encoder = Encoder::default();
        fields.iter().for_each(|(name, value)| encoder.field(name.as_bytes(), value.as_bytes()));
        let flags = END_HEADERS | if is_last { END_STREAM } else { 0 };
        self.frame(HEADERS, flags, stream, &encoder.finish());
        stream
    }

    /// Begins a call with one message and these further fields.
    pub(crate) fn call(&mut self, path: &str, message: &[u8], more: &[(&str, &str)]) -> u32 {
        self.call_as(Some("localhost"), path, message, more)
    }

    /// As [`Raw::call`], under an authority of the test's choice.
    pub(crate) fn call_as(
        &mut self,
        authority: Option<&str>,
        path: &str,
        message: &[u8],
        more: &[(&str, &str)],
    ) -> u32 {
        let mut fields = vec![(":method", "POST"), (":scheme", "http"), (":path", path)];
        fields.extend(authority.map(|authority| (":authority", authority)));
        fields.extend([("content-type", "application/grpc"), ("te", "trailers")]);
        fields.extend(more);
        let stream = self.headers(&fields, false);
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        self.frame(DATA, END_STREAM, stream, &[&[0], &length[..], message].concat());
        stream
    }

    /// Sends DATA that ends the stream.
    pub(crate) fn last_data(&mut self, stream: u32, payload: &[u8]) {
        self.frame(DATA, END_STREAM, stream, payload);
    }

    pub(crate) fn widen(&mut self, stream: u32, bytes: u32) {
        self.frame(WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
    }

    /// The next frame that is not about SETTINGS; `None` when the server has closed the connection.
    pub(crate) fn read(&mut self) -> Option<Frame> {
        loop {
            let mut head = [0; 9];
            if let Err(error) = self.socket.read_exact(&mut head) {
                assert_ne!(error.kind(), std::io::ErrorKind::WouldBlock, "the server sent nothing in time");
                return None;
            }
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
            let mut payload = vec![0; length];
            self.socket.read_exact(&mut payload).ok()?;
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & 0x7fff_ffff;
            let frame = Frame { kind: head[3], flags: head[4], stream, payload };
            match (frame.kind, frame.flags & ACK) {
                (SETTINGS, 0) => self.frame(SETTINGS, ACK, 0, &[]),
                (SETTINGS, _) => {}
                _ => return Some(frame),
            }
        }
    }

    /// Takes one frame into the answers; returns the stream that it ended.
    pub(crate) fn take(&mut self, frame: &Frame, answers: &mut HashMap<u32, Answer>) -> Option<u32> {
        let answer = answers.entry(frame.stream).or_default();
        match frame.kind {
            HEADERS => self.decoder.decode(&frame.payload, &mut Collect(&mut answer.fields)).unwrap(),
            DATA => {
                answer.body.extend_from_slice(&frame.payload);
                let length = u32::try_from(frame.payload.len()).unwrap();
                if self.opens_windows && length > 0 {
                    self.widen(0, length);
                    if frame.flags & END_STREAM == 0 {
                        self.widen(frame.stream, length);
                    }
                }
            }
            RST_STREAM => {
                answer.reset = Some(u32::from_be_bytes(frame.payload[..].try_into().unwrap()));
                return Some(frame.stream);
            }
            GOAWAY => panic!("the server ended the connection: {frame:?}"),
            _ => return None,
        }
        (frame.flags & END_STREAM != 0).then_some(frame.stream)
    }

    /// Reads until the stream has ended. Other streams must be idle.
    pub(crate) fn finish(&mut self, stream: u32) -> Answer {
        let mut answers = HashMap::new();
        loop {
            let frame = self.read().expect("the server keeps the connection");
            if self.take(&frame, &mut answers) == Some(stream) {
                return answers.remove(&stream).unwrap();
            }
        }
    }

    /// Reads until each of the streams has had so many messages. None of them may end.
    pub(crate) fn read_until(
        &mut self,
        streams: &[u32],
        messages: usize,
        answers: &mut HashMap<u32, Answer>,
    ) {
        let mut waiting: HashSet<u32> = streams.iter().copied().collect();
        waiting.retain(|stream| answers.get(stream).is_none_or(|answer| answer.messages_so_far() < messages));
        while !waiting.is_empty() {
            let frame = self.read().expect("the server keeps the connection");
            assert_eq!(self.take(&frame, answers), None, "a stream has ended");
            if answers.get(&frame.stream).is_some_and(|answer| answer.messages_so_far() >= messages) {
                waiting.remove(&frame.stream);
            }
        }
    }

    /// As [`Raw::run`] without a message, with the whole request in one write.
    pub(crate) fn run_at_once(&mut self, path: &str) -> Answer {
        self.held = Some(Vec::new());
        let stream = self.call(path, &[], &[]);
        let request = self.held.take().expect("held above");
        self.write(&request);
        self.finish(stream)
    }

    /// A call from begin to end.
    pub(crate) fn run(&mut self, path: &str, message: &[u8], more: &[(&str, &str)]) -> Answer {
        let stream = self.call(path, message, more);
        self.finish(stream)
    }
}

struct Collect<'a>(&'a mut HashMap<String, String>);

impl Sink for Collect<'_> {
    type Mark = ();

    fn examine(&self, _: &[u8], _: &[u8]) {}

    fn field(&mut self, name: &[u8], value: &[u8], (): ()) {
        let text = |bytes| String::from_utf8(Vec::from(bytes)).unwrap();
        let value = text(value);
        // Servers differ in what they percent-encode beyond what they must.
        let value = match name {
            b"grpc-message" => {
                percent_encoding::percent_decode_str(&value).decode_utf8().unwrap().into_owned()
            }
            _ => value,
        };
        self.0.insert(text(name), value);
    }
}
