//! An independent client (the h2 crate) over a pipe in memory.

use std::future::poll_fn;
use std::time::Instant;

use bytes::Bytes;
use h2::client::{self, SendRequest};
use h2::{Reason, RecvStream};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::task::JoinSet;

use super::super::{Config, Connection, ErrorCode, Event, FieldBlock, StreamId};
use crate::transport::Outgoing;

const GATHER_BUDGET: usize = 32 << 10;

/// Serves what the path asks for: `/echo` returns the body, `/<n>` returns n bytes, `/hang` never answers.
struct Server {
    connection: Connection,
    echoing: Vec<(StreamId, Vec<u8>)>,
    /// Streams with this many bytes still to be sent, in pieces as the stream becomes writable.
    feeding: Vec<(StreamId, usize)>,
    resets: Vec<ErrorCode>,
}

const PIECE: usize = 40_000;
static PATTERN: [u8; PIECE] = {
    let mut pattern = [0; PIECE];
    let mut at = 0;
    while at < PIECE {
        pattern[at] = (at % 251) as u8;
        at += 1;
    }
    pattern
};

fn ok() -> FieldBlock {
    FieldBlock::new(&[(":status", "200"), ("content-type", "application/grpc")])
}

fn trailers() -> FieldBlock {
    FieldBlock::new(&[("grpc-status", "0"), ("grpc-message", "fine")])
}

impl Server {
    fn new(config: Config) -> Self {
        let connection = Connection::server(config, Instant::now());
        Self { connection, echoing: Vec::new(), feeding: Vec::new(), resets: Vec::new() }
    }

    fn handle_events(&mut self) {
        while let Some(event) = self.connection.next_event() {
            match event {
                Event::Request { stream, head, .. } => match head.path() {
                    b"/hang" => {}
                    b"/echo" => self.echoing.push((stream, Vec::new())),
                    path => {
                        let size = std::str::from_utf8(&path[1..]).unwrap().parse().unwrap();
                        self.connection.send_headers(stream, ok(), false).unwrap();
                        self.feeding.push((stream, size));
                    }
                },
                Event::Data { stream, data, end_stream } => {
                    self.connection.consume(stream, data.len());
                    if let Some((_, body)) = self.echoing.iter_mut().find(|(id, _)| *id == stream) {
                        body.extend_from_slice(&data);
                    }
                    if end_stream {
                        self.echo(stream);
                    }
                }
                Event::Trailers { stream, fields } => {
                    assert_eq!(fields.iter().next(), Some((&b"last"[..], &b"words"[..])));
                    self.echo(stream);
                }
                Event::Reset { stream, code } => {
                    self.resets.push(code);
                    self.feeding.retain(|(id, _)| *id != stream);
                }
                Event::Writable { .. } | Event::ConnectionClosed { .. } => {}
            }
        }
        self.feed();
    }

    fn echo(&mut self, stream: StreamId) {
        if let Some(at) = self.echoing.iter().position(|(id, _)| *id == stream) {
            let (_, body) = self.echoing.swap_remove(at);
            self.connection.send_headers(stream, ok(), false).unwrap();
            self.connection.send_data(stream, body.into(), false).unwrap();
            self.connection.send_trailers(stream, trailers()).unwrap();
        }
    }

    fn feed(&mut self) {
        let connection = &mut self.connection;
        let low_water = Config::default().send_low_water;
        self.feeding.retain_mut(|(stream, left)| {
            while *left > 0 && connection.queued(*stream) <= low_water {
                let piece = PIECE.min(*left);
                *left -= piece;
                connection.send_data(*stream, Bytes::from_static(&PATTERN[..piece]), false).unwrap();
            }
            if *left == 0 {
                connection.send_trailers(*stream, trailers()).unwrap();
            }
            *left > 0
        });
    }

    async fn serve(mut self, pipe: DuplexStream) -> Self {
        let (mut reader, mut writer) = tokio::io::split(pipe);
        let mut buffer = vec![0; 8192];
        let mut out = Outgoing::default();
        loop {
            self.handle_events();
            self.connection.gather(&mut out, GATHER_BUDGET, Instant::now());
            if out.is_empty() && self.connection.is_done() {
                return self;
            }
            let next = out.chunks().next().cloned();
            tokio::select! {
                read = reader.read(&mut buffer) => match read.unwrap() {
                    0 => self.connection.receive_end(Instant::now()),
                    length => self.connection.receive(&buffer[..length], Instant::now()),
                },
                sent = async { writer.write(&next.clone().unwrap_or_default()).await }, if next.is_some() => {
                    match sent {
                        Ok(length) => out.advance(length),
                        // The client has gone, and with it what it did not read.
                        Err(_) => {
                            out.advance(out.len());
                            self.connection.receive_end(Instant::now());
                        }
                    }
                }
            }
        }
    }
}

async fn connect(builder: &client::Builder, config: Config) -> (SendRequest<Bytes>, JoinSet<Option<Server>>) {
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let mut tasks = JoinSet::new();
    tasks.spawn(async { Some(Server::new(config).serve(theirs).await) });
    let (sender, connection) = builder.handshake(ours).await.unwrap();
    tasks.spawn(async {
        connection.await.unwrap();
        None
    });
    (sender.ready().await.unwrap(), tasks)
}

/// Ends the client and returns the server.
async fn finish(sender: SendRequest<Bytes>, tasks: JoinSet<Option<Server>>) -> Server {
    drop(sender);
    tasks.join_all().await.into_iter().flatten().next().unwrap()
}

fn get(path: &str) -> Request<()> {
    Request::post(format!("http://localhost{path}")).header("te", "trailers").body(()).unwrap()
}

/// Reads a body, giving its bytes back to the window, and checks the trailers.
async fn read(response: Response<RecvStream>) -> Vec<u8> {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "application/grpc");
    let mut stream = response.into_body();
    let mut body = Vec::new();
    while let Some(data) = stream.data().await {
        let data = data.unwrap();
        body.extend_from_slice(&data);
        stream.flow_control().release_capacity(data.len()).unwrap();
    }
    let trailers = stream.trailers().await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], "0");
    assert_eq!(trailers["grpc-message"], "fine");
    body
}

fn pattern(size: usize) -> Vec<u8> {
    PATTERN.iter().copied().cycle().take(size).collect()
}

#[tokio::test]
async fn responses_of_every_size_arrive_whole() {
    let (mut sender, tasks) = connect(&client::Builder::new(), Config::default()).await;
    for size in [0, 1, 1024, 1025, 16_384, 16_385, 65_535, 65_536, 3 << 20] {
        let (response, _) = sender.send_request(get(&format!("/{size}")), true).unwrap();
        assert!(read(response.await.unwrap()).await == pattern(size), "{size} bytes");
        sender = sender.ready().await.unwrap();
    }
    let server = finish(sender, tasks).await;
    assert_eq!(server.connection.open_streams(), 0);
}

#[tokio::test]
async fn windows_of_any_size_let_everything_through() {
    for window in [1, 2, 100, 16_383] {
        let mut builder = client::Builder::new();
        builder.initial_window_size(window).initial_connection_window_size(window.max(65_535));
        let (mut sender, tasks) = connect(&builder, Config::default()).await;
        let size = (window as usize * 300).min(200_000);
        let responses: Vec<_> =
            (0..3).map(|_| sender.send_request(get(&format!("/{size}")), true).unwrap().0).collect();
        let mut reading = JoinSet::new();
        for response in responses {
            reading.spawn(async { read(response.await.unwrap()).await });
        }
        for body in reading.join_all().await {
            assert!(body == pattern(size), "window {window}");
        }
        finish(sender, tasks).await;
    }
}

#[tokio::test]
async fn request_bodies_of_every_size_are_taken() {
    let (mut sender, tasks) = connect(&client::Builder::new(), Config::default()).await;
    for size in [0, 5, 16_384, 65_536, 3 << 20] {
        let (response, mut stream) = sender.send_request(get("/echo"), false).unwrap();
        let mut body = Bytes::from(pattern(size));
        while !body.is_empty() {
            stream.reserve_capacity(body.len());
            let granted = poll_fn(|context| stream.poll_capacity(context)).await.unwrap().unwrap();
            stream.send_data(body.split_to(granted), false).unwrap();
        }
        let mut words = HeaderMap::new();
        words.insert("last", HeaderValue::from_static("words"));
        stream.send_trailers(words).unwrap();
        assert!(read(response.await.unwrap()).await == pattern(size), "{size} bytes");
        sender = sender.ready().await.unwrap();
    }
    finish(sender, tasks).await;
}

#[tokio::test]
async fn a_thousand_streams_share_a_connection() {
    let (mut sender, tasks) = connect(&client::Builder::new(), Config::default()).await;
    let mut reading = JoinSet::new();
    for size in 0..1000 {
        let (response, _) = sender.send_request(get(&format!("/{}", size * 20)), true).unwrap();
        reading.spawn(async move { assert!(read(response.await.unwrap()).await == pattern(size * 20)) });
        sender = sender.ready().await.unwrap();
    }
    reading.join_all().await;
    finish(sender, tasks).await;
}

#[tokio::test]
async fn cancelled_requests_leave_nothing_behind() {
    let (mut sender, tasks) = connect(&client::Builder::new(), Config::default()).await;
    let (response, mut stream) = sender.send_request(get("/hang"), true).unwrap();
    tokio::task::yield_now().await;
    stream.send_reset(Reason::CANCEL);
    drop(stream);
    assert_eq!(response.await.unwrap_err().reason(), Some(Reason::CANCEL));
    sender = sender.ready().await.unwrap();
    // In the middle of a body, with the rest waiting for the window.
    let (response, mut stream) = sender.send_request(get("/3000000"), true).unwrap();
    let mut body = response.await.unwrap().into_body();
    body.data().await.unwrap().unwrap();
    stream.send_reset(Reason::CANCEL);
    drop((body, stream));
    sender = sender.ready().await.unwrap();
    let (response, _) = sender.send_request(get("/10"), true).unwrap();
    assert_eq!(read(response.await.unwrap()).await, pattern(10));
    let server = finish(sender, tasks).await;
    assert_eq!(server.resets, [ErrorCode::CANCEL, ErrorCode::CANCEL]);
    assert_eq!(server.connection.open_streams(), 0);
}

#[tokio::test]
async fn a_client_without_a_header_table_reads_our_blocks() {
    let mut builder = client::Builder::new();
    builder.header_table_size(0);
    let (mut sender, tasks) = connect(&builder, Config::default()).await;
    for _ in 0..3 {
        let (response, _) = sender.send_request(get("/10"), true).unwrap();
        assert_eq!(read(response.await.unwrap()).await, pattern(10));
        sender = sender.ready().await.unwrap();
    }
    finish(sender, tasks).await;
}

#[tokio::test]
async fn large_metadata_comes_in_continuation_frames() {
    let (mut sender, tasks) = connect(&client::Builder::new(), Config::default()).await;
    for (length, status) in [(40_000, 200), (100_000, 431)] {
        let mut request = get("/10");
        request.headers_mut().insert("large", HeaderValue::from_str(&"x".repeat(length)).unwrap());
        let (response, _) = sender.send_request(request, true).unwrap();
        assert_eq!(response.await.unwrap().status(), status);
        sender = sender.ready().await.unwrap();
    }
    finish(sender, tasks).await;
}
