//! Arbitrary bytes, and arbitrary frames, split arbitrarily: the connection never panics, holds bounded memory, sends
//! whole frames and none after a stream's end, and tells the same events however the bytes were split.
#![no_main]

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use pods_api::http2::{Config, Connection, ErrorCode, Event, FieldBlock};
use pods_api::transport::Outgoing;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// What a connection may hold for its peer at these limits, responses aside.
const MEMORY: usize = 1 << 20;

fn config() -> Config {
    Config {
        max_concurrent_streams: 20,
        connection_window: 1 << 17,
        header_list_limit: 8 << 10,
        max_pending_heads: 32 << 10,
        ..Config::default()
    }
}

fn push_frame(bytes: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    bytes.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    bytes.extend_from_slice(&[kind, flags]);
    bytes.extend_from_slice(&stream.to_be_bytes());
    bytes.extend_from_slice(payload);
}

/// Turns input into frames of the known types on few streams, so that most of them mean something.
fn framed(mut data: &[u8]) -> Vec<u8> {
    let mut bytes = PREFACE.to_vec();
    push_frame(&mut bytes, 4, 0, 0, &[]);
    while let Some((&[kind, flags, stream, length], rest)) = data.split_first_chunk() {
        let (payload, rest) = rest.split_at(usize::from(length).min(rest.len()));
        data = rest;
        let stream = match kind % 11 {
            4 | 6 | 7 => 0,
            _ => u32::from(stream % 32),
        };
        if kind & 0x80 != 0 && kind % 11 == 1 {
            // A request that is right but for what the input adds.
            let block = [&[0x83, 0x86, 0x84, 0x41, 0x01, b'x'], payload].concat();
            push_frame(&mut bytes, 1, flags & 1 | 4, stream | 1, &block);
        } else {
            push_frame(&mut bytes, kind % 11, flags, stream, payload);
        }
    }
    bytes
}

/// Reads what the server sends as a client does.
#[derive(Default)]
struct Reader {
    bytes: Vec<u8>,
}

impl Reader {
    fn take(&mut self, out: &mut Outgoing) {
        for chunk in out.chunks() {
            self.bytes.extend_from_slice(chunk);
        }
        out.advance(out.len());
    }

    /// Checks that the output is whole frames and that no stream goes on after its end.
    fn check(&self, is_http1: bool) {
        if is_http1 {
            return assert!(self.bytes.starts_with(b"HTTP/1.1 505 "));
        }
        let mut rest = &self.bytes[..];
        let mut ended: HashMap<u32, bool> = HashMap::new();
        while let Some((header, behind)) = rest.split_first_chunk::<9>() {
            let length = u32::from_be_bytes([0, header[0], header[1], header[2]]) as usize;
            let stream = u32::from_be_bytes([header[5], header[6], header[7], header[8]]);
            assert!(behind.len() >= length, "half a frame was sent");
            rest = &behind[length..];
            match header[3] {
                0 | 1 => {
                    assert!(!ended.get(&stream).is_some_and(|ended| *ended), "a frame after END_STREAM");
                    ended.insert(stream, header[4] & 1 != 0);
                }
                kind => assert!(matches!(kind, 3 | 4 | 6..=9), "frame type {kind}"),
            }
        }
        assert!(rest.is_empty(), "half a header was sent");
    }
}

/// Serves the bytes with an owner that answers, resets, consumes and forgets, as `script` says.
fn serve(bytes: &[u8], split: usize, script: &[u8]) {
    let mut now = Instant::now();
    let mut connection = Connection::server(config(), now);
    let mut reader = Reader::default();
    let mut out = Outgoing::default();
    let mut script = script.iter().copied().cycle();
    let mut choice = move || script.next().unwrap_or(0);
    let body = Bytes::from_static(&[b'x'; 5000]);
    let ok = FieldBlock::new(&[(":status", "200")]);
    let mut is_http1 = false;
    let mut queued = 0;
    for part in bytes.chunks(split) {
        connection.receive(part, now);
        while let Some(event) = connection.next_event() {
            match event {
                Event::Request { stream, head, end_stream } => {
                    assert!(!head.method().is_empty());
                    assert_eq!(head.fields().filter(|(name, _)| name.is_empty()).count(), 0);
                    if end_stream || choice() % 4 == 0 {
                        let _ = connection.send_headers(stream, ok.clone(), choice() % 8 == 0);
                    }
                    for _ in 0..choice() % 4 {
                        if connection.send_data(stream, body.slice(..usize::from(choice()) * 19), false).is_ok() {
                            queued += 5000;
                        }
                    }
                    if choice() % 2 == 0 {
                        let _ = connection.send_trailers(stream, ok.clone());
                    }
                }
                Event::Data { stream, data, .. } => {
                    if choice() % 4 != 0 {
                        connection.consume(stream, data.len());
                    }
                    if choice() % 16 == 0 {
                        connection.reset(stream, ErrorCode::CANCEL);
                    }
                }
                Event::Trailers { stream, .. } | Event::Writable { stream } => {
                    let _ = connection.send_data(stream, Bytes::new(), true);
                }
                Event::Reset { stream, .. } => {
                    assert!(connection.send_data(stream, body.clone(), false).is_err());
                    assert_eq!(connection.queued(stream), 0);
                }
                Event::ConnectionClosed { code, .. } => is_http1 = code == ErrorCode::HTTP_1_1_REQUIRED,
            }
        }
        if choice() % 4 != 0 {
            connection.gather(&mut out, usize::from(choice()) * 64 + 1, now);
            reader.take(&mut out);
        }
        if choice() == 0 {
            connection.shutdown(now);
        }
        now += Duration::from_millis(u64::from(choice()));
        if connection.deadline().is_some_and(|deadline| deadline <= now) {
            connection.timeout(now);
        }
        assert!(connection.held_bytes() < MEMORY + bytes.len() + queued, "{}", connection.held_bytes());
        assert!(connection.open_streams() <= 20);
    }
    connection.receive_end(now);
    connection.gather(&mut out, usize::MAX, now);
    reader.take(&mut out);
    assert!(connection.is_done() && connection.open_streams() == 0);
    reader.check(is_http1);
}

/// What is told of the bytes to an owner that only consumes.
fn told(bytes: &[u8], split: usize) -> Vec<String> {
    let now = Instant::now();
    let mut connection = Connection::server(config(), now);
    let mut told = Vec::new();
    for part in bytes.chunks(split) {
        connection.receive(part, now);
        while let Some(event) = connection.next_event() {
            if let Event::Data { stream, data, .. } = &event {
                connection.consume(*stream, data.len());
            }
            told.push(format!("{event:?}"));
        }
    }
    told
}

fuzz_target!(|data: &[u8]| {
    let Some((&[mode, split], data)) = data.split_first_chunk() else { return };
    let split = usize::from(split).max(1);
    let bytes = match mode % 4 {
        0 => data.to_vec(),
        1 => [PREFACE, data].concat(),
        _ => framed(data),
    };
    serve(&bytes, split, data);
    // An owner that looks more often frees windows and heads earlier, which only differs for large inputs.
    if bytes.len() < 16 << 10 {
        assert_eq!(told(&bytes, split), told(&bytes, 1));
    }
});
