//! Times of the HTTP/2 state machine alone: no socket, no gRPC.
#![allow(missing_docs)] // criterion's macros

use std::hint::black_box;
use std::time::Instant;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use pods_api::http2::hpack::{Decoder, Encoder, Sink, huffman};
use pods_api::http2::{Config, Connection, Event, FieldBlock, StreamId};
use pods_api::transport::Outgoing;

/// What a gRPC client in Go sends, Huffman-coded and indexed as it does: the first time, then from the table.
const FIELDS: [(&str, &str); 7] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/v1alpha1.Pods/GetPod"),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
    ("user-agent", "grpc-go/1.80.0"),
    ("te", "trailers"),
];

fn literal(out: &mut Vec<u8>, name: &str, value: &str) {
    out.push(0x40);
    for text in [name, value] {
        out.push(0x80 | huffman::encoded_len(text.as_bytes()) as u8);
        huffman::encode(text.as_bytes(), out);
    }
}

fn first_block() -> Vec<u8> {
    let mut block = vec![0x83, 0x86];
    for (name, value) in &FIELDS[2..] {
        literal(&mut block, name, value);
    }
    block
}

/// Everything from the table.
const INDEXED_BLOCK: [u8; 7] = [0x83, 0x86, 0xc2, 0xc1, 0xc0, 0xbf, 0xbe];

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
    out.extend_from_slice(&(payload.len() as u32).to_be_bytes()[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
}

struct Server {
    connection: Connection,
    out: Outgoing,
    now: Instant,
    next: u32,
    input: Vec<u8>,
    ok: FieldBlock,
    trailers: FieldBlock,
    pod: Bytes,
    unread: usize,
}

impl Server {
    fn new() -> Self {
        let now = Instant::now();
        let mut server = Self {
            connection: Connection::server(Config::default(), now),
            out: Outgoing::default(),
            now,
            next: 1,
            input: b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
            ok: FieldBlock::forever(&[(":status", "200"), ("content-type", "application/grpc")]),
            trailers: FieldBlock::forever(&[("grpc-status", "0")]),
            pod: Bytes::from(vec![7; 900]),
            unread: 0,
        };
        frame(&mut server.input, 4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]);
        frame(&mut server.input, 4, 1, 0, &[]);
        frame(&mut server.input, 8, 0, 0, &[0x3f, 0, 0, 0]);
        server.request(&first_block());
        server.exchange();
        server
    }

    /// Writes a request of GetPod.
    fn request(&mut self, block: &[u8]) {
        frame(&mut self.input, 1, 4, self.next, block);
        frame(&mut self.input, 0, 1, self.next, &[7; 43]);
        self.next += 2;
    }

    /// Lets the server take the requests and answer them.
    fn exchange(&mut self) {
        self.connection.receive(&self.input, self.now);
        self.input.clear();
        while let Some(event) = self.connection.next_event() {
            if let Event::Data { stream, data, .. } = event {
                self.connection.consume(stream, data.len());
                self.answer(stream);
            }
        }
        self.flush();
    }

    fn answer(&mut self, stream: StreamId) {
        let sent = self
            .connection
            .send_headers(stream, self.ok.clone(), false)
            .and_then(|()| self.connection.send_data(stream, self.pod.clone(), false))
            .and_then(|()| self.connection.send_trailers(stream, self.trailers.clone()));
        assert!(sent.is_ok());
    }

    /// Sends everything; the client reads it and returns the connection's window at times.
    fn flush(&mut self) {
        self.connection.gather(&mut self.out, usize::MAX, self.now);
        black_box(self.out.chunks().count());
        self.unread += self.out.len();
        self.out.advance(self.out.len());
        if self.unread > 1 << 20 {
            frame(&mut self.input, 8, 0, 0, &(self.unread as u32).to_be_bytes());
            self.unread = 0;
        }
    }

    /// Opens streams that stay open, as watches do.
    fn watches(&mut self, count: usize) -> Vec<StreamId> {
        for _ in 0..count {
            self.request(&INDEXED_BLOCK);
        }
        self.connection.receive(&self.input, self.now);
        self.input.clear();
        let mut streams = Vec::new();
        while let Some(event) = self.connection.next_event() {
            if let Event::Request { stream, .. } = event {
                assert!(self.connection.send_headers(stream, self.ok.clone(), false).is_ok());
                streams.push(stream);
            }
        }
        self.flush();
        streams
    }
}

fn exchanges(c: &mut Criterion) {
    let mut group = c.benchmark_group("http2");
    for requests in [1, 8, 32] {
        group.throughput(Throughput::Elements(requests));
        let mut server = Server::new();
        group.bench_function(format!("get_pod_x{requests}"), |b| {
            b.iter(|| {
                // Stream numbers end after 2^30 requests; the connection is made anew long before.
                if server.next > 1 << 30 {
                    server = Server::new();
                }
                for _ in 0..requests {
                    server.request(&INDEXED_BLOCK);
                }
                server.exchange();
                assert_eq!(server.connection.open_streams(), 0);
            });
        });
    }
    group.finish();
}

fn events(c: &mut Criterion) {
    let mut group = c.benchmark_group("http2");
    group.throughput(Throughput::Elements(100));
    group.bench_function("event_to_100_streams", |b| {
        b.iter_batched_ref(
            || {
                let mut server = Server::new();
                let streams = server.watches(100);
                (server, streams)
            },
            |(server, streams)| {
                for _ in 0..10 {
                    for stream in streams.iter() {
                        assert!(server.connection.send_data(*stream, server.pod.clone(), false).is_ok());
                    }
                    server.flush();
                }
            },
            BatchSize::SmallInput,
        );
    });
    let chunk = Bytes::from(vec![1; 64 << 10]);
    group.throughput(Throughput::Bytes(3 << 20));
    group.bench_function("list_of_3_mb", |b| {
        b.iter_batched_ref(
            || {
                let mut server = Server::new();
                let stream = server.watches(1)[0];
                (server, stream)
            },
            |(server, stream)| {
                for _ in 0..48 {
                    assert!(server.connection.send_data(*stream, chunk.clone(), false).is_ok());
                }
                server.flush();
            },
            BatchSize::SmallInput,
        );
    });
    group.finish();
}

struct Discard;

impl Sink for Discard {
    type Mark = ();

    fn examine(&self, _name: &[u8], _value: &[u8]) {}

    fn field(&mut self, name: &[u8], value: &[u8], (): ()) {
        black_box((name, value));
    }
}

fn hpack(c: &mut Criterion) {
    let mut group = c.benchmark_group("hpack");
    let mut decoder = Decoder::new(4096);
    assert!(decoder.decode(&first_block(), &mut Discard).is_ok());
    group.bench_function("decode_indexed_request", |b| {
        b.iter(|| decoder.decode(black_box(&INDEXED_BLOCK), &mut Discard));
    });
    group.bench_function("decode_huffman_request", |b| {
        let block = first_block();
        b.iter(|| decoder.decode(black_box(&block), &mut Discard));
    });
    let text = b"rejected by rate limit: 100 requests per second, burst 10";
    for (name, is_huffman) in [("plain", false), ("huffman", true)] {
        group.bench_function(format!("encode_message_{name}"), |b| {
            b.iter(|| {
                if is_huffman {
                    let mut out = Vec::new();
                    huffman::encode(black_box(text), &mut out);
                    out
                } else {
                    let mut encoder = Encoder::default();
                    encoder.field(b"grpc-message", black_box(text));
                    encoder.finish()
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, exchanges, events, hpack);
criterion_main!(benches);
