//! One HTTP/2 connection of a gRPC client (RFC 9113), sans I/O.

use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use anyhow::{Context as _, bail, ensure};

use super::frame::{self, FrameHeader};
use super::hpack;
use super::message::Assembler;
use super::{Call, Event, Session};

/// Both windows of RFC 9113 section 6.9.2 until somebody changes them.
pub(crate) const STOCK_WINDOW_BYTES: u32 = 65_535;
const STOCK_FRAME_BYTES: u32 = 16_384;
const PREFIX_BYTES: usize = 5;

// gRPC codes this client assigns itself, as the HTTP/2 mapping of gRPC asks.
const UNKNOWN: u32 = 2;
const INTERNAL: u32 = 13;
const UNAVAILABLE: u32 = 14;

/// What this client announces and keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    /// Receive window of each stream and of the connection, in bytes.
    pub(crate) window_bytes: u32,
    /// SETTINGS_MAX_FRAME_SIZE.
    pub(crate) max_frame_bytes: u32,
    /// How many bytes of each message are handed to the caller.
    pub(crate) capture_bytes: usize,
}

impl Settings {
    /// What stock gRPC clients start with.
    pub(crate) fn stock() -> Self {
        Self { window_bytes: STOCK_WINDOW_BYTES, max_frame_bytes: STOCK_FRAME_BYTES, capture_bytes: 0 }
    }
}

/// The state of one connection.
pub(crate) struct Connection {
    settings: Settings,
    out: Vec<u8>,
    reading: Reading,
    /// Start of a frame header or payload whose rest has not arrived.
    partial: Vec<u8>,
    /// Field block of a HEADERS frame that CONTINUATION frames go on with.
    open_block: Option<(FrameHeader, Vec<u8>)>,
    encoder: hpack::Encoder,
    /// Scratch space for a request's field section.
    block: Vec<u8>,
    decoder: hpack::Decoder,
    streams: HashMap<u32, Stream, BuildHasherDefault<StreamHasher>>,
    next_stream: u32,
    draining: bool,
    peer_max_streams: usize,
    peer_stream_window: i64,
    send_window: i64,
    receive_window: i64,
    unreported: u32,
}

enum Reading {
    Header,
    /// Payload of a DATA frame; `padding` bytes at its end are not content.
    Data {
        header: FrameHeader,
        remaining: usize,
        padding: Option<usize>,
    },
    /// Payload of any other frame, gathered whole.
    Whole(FrameHeader),
}

struct Stream {
    tag: u64,
    assembler: Assembler,
    receive_window: i64,
    unreported: u32,
    /// The response's field section has arrived; what comes next is trailers.
    answered: bool,
    status: Option<u32>,
    status_message: String,
}

/// Spreads small stream numbers over the table; they are ours, so no hostile keys.
#[derive(Default)]
struct StreamHasher(u64);

impl Hasher for StreamHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _: &[u8]) {
        unreachable!("stream numbers are hashed as u32");
    }
    fn write_u32(&mut self, stream: u32) {
        self.0 = u64::from(stream).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl Connection {
    pub(crate) fn new(settings: Settings) -> Self {
        let mut out = frame::PREFACE.to_vec();
        let mut announced = vec![(frame::SETTINGS_ENABLE_PUSH, 0)];
        if settings.window_bytes != STOCK_WINDOW_BYTES {
            announced.push((frame::SETTINGS_INITIAL_WINDOW_SIZE, settings.window_bytes));
        }
        if settings.max_frame_bytes != STOCK_FRAME_BYTES {
            announced.push((frame::SETTINGS_MAX_FRAME_SIZE, settings.max_frame_bytes));
        }
        frame::write_settings(&mut out, &announced);
        let receive_window = settings.window_bytes.max(STOCK_WINDOW_BYTES);
        if receive_window > STOCK_WINDOW_BYTES {
            frame::write_window_update(&mut out, 0, receive_window - STOCK_WINDOW_BYTES);
        }
        Self {
            settings,
            out,
            reading: Reading::Header,
            partial: Vec::new(),
            open_block: None,
            encoder: hpack::Encoder::new(),
            block: Vec::new(),
            decoder: hpack::Decoder::new(),
            streams: HashMap::default(),
            next_stream: 1,
            draining: false,
            peer_max_streams: usize::MAX,
            peer_stream_window: i64::from(STOCK_WINDOW_BYTES),
            send_window: i64::from(STOCK_WINDOW_BYTES),
            receive_window: i64::from(receive_window),
            unreported: 0,
        }
    }

    fn begin_frame(&mut self, header: FrameHeader, on: &mut dyn FnMut(Event<'_>)) -> anyhow::Result<()> {
        ensure!(
            header.length <= self.settings.max_frame_bytes as usize,
            "frame of {} bytes exceeds SETTINGS_MAX_FRAME_SIZE",
            header.length
        );
        ensure!(
            self.open_block.is_none() || header.kind == frame::CONTINUATION,
            "frame type {} inside a field block",
            header.kind
        );
        if header.kind != frame::DATA {
            self.reading = Reading::Whole(header);
            if header.length == 0 {
                self.reading = Reading::Header;
                self.whole_frame(header, &[], on)?;
            }
            return Ok(());
        }
        // All of a DATA frame's payload counts against both windows, padding included (RFC 9113 section 6.9.1).
        self.receive_window -= header.length as i64;
        ensure!(self.receive_window >= 0, "server overran the connection window");
        self.unreported += header.length as u32;
        let half = self.settings.window_bytes.max(STOCK_WINDOW_BYTES) / 2;
        if self.unreported > half {
            frame::write_window_update(&mut self.out, 0, self.unreported);
            self.receive_window += i64::from(std::mem::take(&mut self.unreported));
        }
        if let Some(stream) = self.streams.get_mut(&header.stream) {
            stream.receive_window -= header.length as i64;
            ensure!(stream.receive_window >= 0, "server overran the window of stream {}", header.stream);
            stream.unreported += header.length as u32;
            if stream.unreported > self.settings.window_bytes / 2 && !header.has(frame::FLAG_END_STREAM) {
                frame::write_window_update(&mut self.out, header.stream, stream.unreported);
                stream.receive_window += i64::from(std::mem::take(&mut stream.unreported));
            }
        }
        if header.length == 0 {
            self.data_finished(header, on);
            return Ok(());
        }
        let padding = if header.has(frame::FLAG_PADDED) { None } else { Some(0) };
        self.reading = Reading::Data { header, remaining: header.length, padding };
        Ok(())
    }

    /// Takes bytes of a DATA payload and returns how many it used.
    fn data(&mut self, bytes: &[u8], on: &mut dyn FnMut(Event<'_>)) -> anyhow::Result<usize> {
        let Reading::Data { header, remaining, padding } = &mut self.reading else {
            bail!("no DATA frame is open")
        };
        let header = *header;
        let used = match padding {
            None => {
                *padding = Some(usize::from(bytes[0]));
                ensure!(usize::from(bytes[0]) < *remaining, "padding exceeds the DATA frame");
                1
            }
            Some(padding) => {
                let content = bytes.len().min(remaining.saturating_sub(*padding));
                if content > 0 {
                    if let Some(stream) = self.streams.get_mut(&header.stream) {
                        let tag = stream.tag;
                        stream.assembler.push(&bytes[..content], |length, head| {
                            on(Event::Message { tag, length, head });
                        })?;
                    }
                    content
                } else {
                    bytes.len().min(*remaining)
                }
            }
        };
        *remaining -= used;
        if *remaining == 0 {
            self.reading = Reading::Header;
            self.data_finished(header, on);
        }
        Ok(used)
    }

    fn data_finished(&mut self, header: FrameHeader, on: &mut dyn FnMut(Event<'_>)) {
        if header.has(frame::FLAG_END_STREAM) {
            self.end(header.stream, on);
        }
    }

    fn whole_frame(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
        on: &mut dyn FnMut(Event<'_>),
    ) -> anyhow::Result<()> {
        match header.kind {
            frame::HEADERS => {
                let block = without_padding(header, payload)?;
                if header.has(frame::FLAG_END_HEADERS) {
                    self.fields(header, block, on)
                } else {
                    self.open_block = Some((header, block.to_vec()));
                    Ok(())
                }
            }
            frame::CONTINUATION => {
                let Some((first, mut block)) = self.open_block.take() else {
                    bail!("CONTINUATION without HEADERS")
                };
                ensure!(first.stream == header.stream, "CONTINUATION of another stream");
                block.extend_from_slice(payload);
                if header.has(frame::FLAG_END_HEADERS) {
                    self.fields(first, &block, on)
                } else {
                    self.open_block = Some((first, block));
                    Ok(())
                }
            }
            frame::SETTINGS => self.settings_frame(header, payload),
            frame::PING => {
                ensure!(payload.len() == 8, "PING of {} bytes", payload.len());
                if !header.has(frame::FLAG_ACK) {
                    frame::write(&mut self.out, frame::PING, frame::FLAG_ACK, 0, &[payload]);
                }
                Ok(())
            }
            frame::WINDOW_UPDATE => {
                // Requests are a few dozen bytes, far below any stream's window: only the connection's matters.
                if header.stream == 0 {
                    self.send_window += i64::from(read_u32(payload)? & 0x7fff_ffff);
                }
                Ok(())
            }
            frame::RST_STREAM => {
                let code = read_u32(payload)?;
                self.fail(header.stream, rst_status(code), &format!("RST_STREAM with error code {code}"), on);
                Ok(())
            }
            frame::GOAWAY => {
                ensure!(payload.len() >= 8, "GOAWAY of {} bytes", payload.len());
                let (last, code) = (read_u32(payload)? & 0x7fff_ffff, read_u32(&payload[4..])?);
                ensure!(
                    code == 0,
                    "GOAWAY with error code {code}: {}",
                    String::from_utf8_lossy(&payload[8..])
                );
                self.draining = true;
                let refused: Vec<u32> =
                    self.streams.keys().copied().filter(|stream| *stream > last).collect();
                for stream in refused {
                    self.fail(stream, UNAVAILABLE, "server is going away", on);
                }
                Ok(())
            }
            frame::PUSH_PROMISE => bail!("PUSH_PROMISE although push is disabled"),
            frame::PRIORITY => Ok(()),
            // RFC 9113 section 4.1: unknown types are ignored.
            _ => Ok(()),
        }
    }

    fn settings_frame(&mut self, header: FrameHeader, payload: &[u8]) -> anyhow::Result<()> {
        if header.has(frame::FLAG_ACK) {
            return Ok(());
        }
        ensure!(payload.len().is_multiple_of(6), "SETTINGS of {} bytes", payload.len());
        for setting in payload.chunks_exact(6) {
            let value = read_u32(&setting[2..])?;
            match u16::from_be_bytes([setting[0], setting[1]]) {
                frame::SETTINGS_HEADER_TABLE_SIZE => self.encoder.limit_table(value as usize),
                frame::SETTINGS_MAX_CONCURRENT_STREAMS => self.peer_max_streams = value as usize,
                frame::SETTINGS_INITIAL_WINDOW_SIZE => self.peer_stream_window = i64::from(value),
                _ => {}
            }
        }
        frame::write(&mut self.out, frame::SETTINGS, frame::FLAG_ACK, 0, &[]);
        Ok(())
    }

    fn fields(
        &mut self,
        header: FrameHeader,
        block: &[u8],
        on: &mut dyn FnMut(Event<'_>),
    ) -> anyhow::Result<()> {
        let mut stream = self.streams.get_mut(&header.stream);
        let mut http_status = None;
        let mut informational = false;
        self.decoder.decode(block, |name, value| {
            let Some(stream) = stream.as_deref_mut() else { return };
            match name {
                b":status" => {
                    informational = value.first() == Some(&b'1');
                    http_status = (value != b"200").then(|| String::from_utf8_lossy(value).into_owned());
                }
                b"grpc-status" => {
                    let code = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
                    stream.status = Some(code.unwrap_or(UNKNOWN));
                }
                b"grpc-message" => stream.status_message = percent_decode(value),
                _ => {}
            }
        })?;
        if let Some(stream) = stream
            && !informational
        {
            if let Some(status) = http_status {
                stream.status.get_or_insert(UNKNOWN);
                stream.status_message = format!("HTTP status {status}");
            }
            ensure!(
                !stream.answered || header.has(frame::FLAG_END_STREAM),
                "trailers of stream {} do not end it",
                header.stream
            );
            stream.answered = true;
        }
        if header.has(frame::FLAG_END_STREAM) {
            self.end(header.stream, on);
        }
        Ok(())
    }

    fn end(&mut self, stream: u32, on: &mut dyn FnMut(Event<'_>)) {
        let Some(ended) = self.streams.remove(&stream) else { return };
        let (status, message) = match ended.status {
            Some(0) if !ended.assembler.is_at_boundary() => (INTERNAL, "stream ends inside a message"),
            Some(status) => (status, ended.status_message.as_str()),
            None => (UNKNOWN, "stream ends without grpc-status"),
        };
        on(Event::End { tag: ended.tag, status, message });
    }

    fn fail(&mut self, stream: u32, status: u32, message: &str, on: &mut dyn FnMut(Event<'_>)) {
        if let Some(failed) = self.streams.remove(&stream) {
            on(Event::End { tag: failed.tag, status, message });
        }
    }
}

impl Session for Connection {
    fn start(&mut self, call: &Call, tag: u64) -> bool {
        let needed = (PREFIX_BYTES + call.request.len()) as i64;
        if self.draining
            || self.streams.len() >= self.peer_max_streams
            || self.send_window < needed
            || self.peer_stream_window < needed
            || self.next_stream > 0x7fff_ffff
        {
            return false;
        }
        let id = self.next_stream;
        self.next_stream += 2;
        self.send_window -= needed;
        self.block.clear();
        self.encoder.request(&mut self.block, call.method);
        frame::write(&mut self.out, frame::HEADERS, frame::FLAG_END_HEADERS, id, &[&self.block]);
        let mut prefix = [0; PREFIX_BYTES];
        prefix[1..].copy_from_slice(&(call.request.len() as u32).to_be_bytes());
        frame::write(&mut self.out, frame::DATA, frame::FLAG_END_STREAM, id, &[&prefix, &call.request]);
        let stream = Stream {
            tag,
            assembler: Assembler::new(self.settings.capture_bytes),
            receive_window: i64::from(self.settings.window_bytes),
            unreported: 0,
            answered: false,
            status: None,
            status_message: String::new(),
        };
        self.streams.insert(id, stream);
        true
    }

    fn receive(&mut self, mut bytes: &[u8], on: &mut dyn FnMut(Event<'_>)) -> anyhow::Result<()> {
        while !bytes.is_empty() {
            match self.reading {
                Reading::Header => {
                    let Some(header) = gather(&mut self.partial, &mut bytes, frame::HEADER_BYTES) else {
                        break;
                    };
                    let header: &[u8; frame::HEADER_BYTES] =
                        header.as_ref().try_into().expect("gathered as many bytes as asked");
                    let header = FrameHeader::parse(header);
                    self.begin_frame(header, on)?;
                }
                Reading::Data { .. } => {
                    let used = self.data(bytes, on)?;
                    bytes = &bytes[used..];
                }
                Reading::Whole(header) => {
                    let Some(payload) = gather(&mut self.partial, &mut bytes, header.length) else { break };
                    self.reading = Reading::Header;
                    self.whole_frame(header, &payload, on)?;
                }
            }
        }
        Ok(())
    }

    fn output(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }
}

/// Takes `wanted` bytes out of `bytes`, through `partial` when they arrive in pieces; None until all are there.
fn gather<'a>(partial: &mut Vec<u8>, bytes: &mut &'a [u8], wanted: usize) -> Option<Cow<'a, [u8]>> {
    let (taken, rest) = bytes.split_at(bytes.len().min(wanted - partial.len()));
    *bytes = rest;
    if partial.is_empty() && taken.len() == wanted {
        return Some(Cow::Borrowed(taken));
    }
    partial.extend_from_slice(taken);
    (partial.len() == wanted).then(|| Cow::Owned(std::mem::take(partial)))
}

fn without_padding(header: FrameHeader, payload: &[u8]) -> anyhow::Result<&[u8]> {
    let mut block = payload;
    let mut padding = 0;
    if header.has(frame::FLAG_PADDED) {
        let (length, rest) = block.split_first().context("padded HEADERS without pad length")?;
        (padding, block) = (usize::from(*length), rest);
    }
    if header.has(frame::FLAG_PRIORITY) {
        block = block.get(5..).context("HEADERS too short for its priority")?;
    }
    let length = block.len().checked_sub(padding).context("padding exceeds the HEADERS frame")?;
    Ok(&block[..length])
}

fn read_u32(payload: &[u8]) -> anyhow::Result<u32> {
    let bytes = payload.first_chunk().context("frame is too short for its type")?;
    Ok(u32::from_be_bytes(*bytes))
}

/// The gRPC status for a stream the server reset (gRPC over HTTP/2, "HTTP2 Transport Mapping", errors).
fn rst_status(code: u32) -> u32 {
    match code {
        0x7 => UNAVAILABLE, // REFUSED_STREAM
        0x8 => 1,           // CANCEL: cancelled
        0xb => 8,           // ENHANCE_YOUR_CALM: resource exhausted
        _ => INTERNAL,
    }
}

fn percent_decode(value: &[u8]) -> String {
    let mut text = Vec::with_capacity(value.len());
    let mut rest = value;
    while let Some((&byte, tail)) = rest.split_first() {
        let escaped = (byte == b'%')
            .then(|| {
                tail.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok())
            })
            .flatten();
        text.push(escaped.unwrap_or(byte));
        rest = if escaped.is_some() { &tail[2..] } else { tail };
    }
    String::from_utf8_lossy(&text).into_owned()
}

#[cfg(test)]
#[path = "connection_tests.rs"]
mod tests;
