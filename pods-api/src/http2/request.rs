//! Field blocks as they arrive: requests, trailers, and those that are not wanted (RFC 9113 sections 4.3, 6.2, 8.1).

use std::time::Instant;

use super::connection::{Connection, Drain};
use super::error::{ConnectionError, ErrorCode};
use super::events::{Event, StreamId};
use super::flow::{DEFAULT_WINDOW, ReceiveWindow};
use super::frame::{self, FrameHeader, flag};
use super::headers::{Collector, Message, Section};
use super::repeat::Request;
use super::streams::Ended;

/// A field block may take this many times the header list's limit on the wire. Indexed fields are smaller than they
/// count, so an honest one never does; more would only be kept to be refused.
const BLOCK_FACTOR: usize = 4;

/// The buffer for decoded fields is kept for the next block up to this size.
const KEPT_FIELDS: usize = 4096;

/// A field block whose end has not come.
#[derive(Debug)]
pub(super) struct OpenBlock {
    stream: u32,
    end_stream: bool,
    bytes: Vec<u8>,
    pub(super) since: Instant,
}

impl OpenBlock {
    pub(super) fn held_bytes(&self) -> usize {
        self.bytes.capacity()
    }
}

impl Connection {
    pub(super) fn headers(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ConnectionError> {
        let number = header.stream;
        if number.is_multiple_of(2) {
            return Err(ConnectionError::protocol("HEADERS on a stream that a client cannot open"));
        }
        let mut fragment = frame::without_padding(header, payload)?;
        if header.has(flag::PRIORITY) {
            fragment = fragment
                .get(5..)
                .ok_or(ConnectionError::frame_size("HEADERS is too short for its priority"))?;
        }
        let end_stream = header.has(flag::END_STREAM);
        if header.has(flag::END_HEADERS) {
            return self.field_block(number, end_stream, fragment);
        }
        let bytes = fragment.to_vec();
        self.block = Some(OpenBlock { stream: number, end_stream, bytes, since: self.now });
        Ok(())
    }

    pub(super) fn continuation(
        &mut self,
        header: FrameHeader,
        payload: &[u8],
    ) -> Result<(), ConnectionError> {
        let Some(block) = self.block.as_mut().filter(|block| block.stream == header.stream) else {
            return Err(ConnectionError::protocol("CONTINUATION without HEADERS"));
        };
        if block.bytes.len() + payload.len() > BLOCK_FACTOR * self.config.header_list_limit {
            return Err(ConnectionError::calm("a field block is far too large"));
        }
        block.bytes.extend_from_slice(payload);
        if !header.has(flag::END_HEADERS) {
            // Each honest one but the last fills a frame.
            return if payload.len() < 1024 { self.noise() } else { Ok(()) };
        }
        match self.block.take() {
            Some(block) => self.field_block(block.stream, block.end_stream, &block.bytes),
            None => Ok(()),
        }
    }

    /// Acts on a whole field block. Whatever becomes of it, it is decoded: the compression state must follow.
    fn field_block(&mut self, number: u32, end_stream: bool, block: &[u8]) -> Result<(), ConnectionError> {
        if number > self.last_stream {
            self.last_stream = number;
            return self.request(number, end_stream, block);
        }
        if let Some(stream) = self.streams.find(number) {
            return self.trailers(stream, end_stream, block);
        }
        self.decode(Section::Discarded, block)?;
        match self.streams.ended(number) {
            Some(Ended::ByReset) => self.noise(),
            Some(Ended::ByPeer) => {
                Err(ConnectionError::new(ErrorCode::STREAM_CLOSED, "HEADERS on a closed stream"))
            }
            // Section 5.1.1
            None => Err(ConnectionError::protocol("a stream identifier does not grow")),
        }
    }

    fn request(&mut self, number: u32, end_stream: bool, block: &[u8]) -> Result<(), ConnectionError> {
        let is_refused = self.streams.len() >= self.config.max_concurrent_streams as usize
            || self.pending_heads > self.config.max_pending_heads
            || self.drain == Drain::Final;
        if is_refused {
            self.decode(Section::Discarded, block)?;
            return self.stream_error(number, ErrorCode::REFUSED_STREAM);
        }
        let generation = self.decoder.generation();
        if let Some(request) = self.repeat.get(block, generation) {
            let request = request.clone();
            return self.announce(number, end_stream, request);
        }
        match self.decode(Section::Request, block)? {
            Message::Request(request) => {
                if self.decoder.generation() == generation {
                    self.repeat.note(block, generation, &request);
                }
                self.announce(number, end_stream, request)
            }
            Message::TooLarge => {
                self.charge_reset()?;
                let stream = self.open(number, end_stream);
                let answer = self.config.too_large.clone();
                // The stream was opened in the line above.
                let _ = self.send_headers(stream, answer, true);
                Ok(())
            }
            _ => self.stream_error(number, ErrorCode::PROTOCOL_ERROR),
        }
    }

    fn announce(&mut self, number: u32, end_stream: bool, request: Request) -> Result<(), ConnectionError> {
        let Request { head, content_length } = request;
        if end_stream && content_length.is_some_and(|length| length > 0) {
            return self.stream_error(number, ErrorCode::PROTOCOL_ERROR); // section 8.1.1
        }
        let stream = self.open(number, end_stream);
        if let Some(open) = self.streams.get_mut(stream) {
            open.announced = true;
            open.content_left = content_length;
        }
        self.pending_heads += head.buffer.len();
        self.events.push_back(Event::Request { stream, head, end_stream });
        Ok(())
    }

    fn open(&mut self, number: u32, end_stream: bool) -> StreamId {
        self.leave_idle();
        // Until the peer has acknowledged a smaller window it may count on the default (section 6.9.3).
        let window = match self.settings_acknowledged {
            true => self.config.initial_window,
            false => self.config.initial_window.max(DEFAULT_WINDOW),
        };
        let stream = self.streams.open(number, ReceiveWindow::new(window), self.send.new_window());
        if end_stream && let Some(open) = self.streams.get_mut(stream) {
            open.receiving = false;
        }
        stream
    }

    fn trailers(&mut self, stream: StreamId, end_stream: bool, block: &[u8]) -> Result<(), ConnectionError> {
        let message = self.decode(Section::Trailers, block)?;
        let Some(open) = self.streams.get_mut(stream) else { return Ok(()) };
        if !open.receiving {
            return self.stream_error(stream.number, ErrorCode::STREAM_CLOSED); // section 5.1
        }
        let is_short = open.content_left.is_some_and(|left| left > 0);
        match message {
            Message::Trailers(fields) if end_stream && !is_short => {
                open.receiving = false;
                if open.announced {
                    self.events.push_back(Event::Trailers { stream, fields });
                }
                Ok(())
            }
            _ => self.stream_error(stream.number, ErrorCode::PROTOCOL_ERROR), // sections 8.1, 8.1.1
        }
    }

    fn decode(&mut self, section: Section, block: &[u8]) -> Result<Message, ConnectionError> {
        let mut collector = Collector::new(section, &mut self.fields, self.config.header_list_limit);
        let decoded = self.decoder.decode(block, &mut collector);
        let message = collector.finish(&mut self.arena);
        if self.fields.capacity() > KEPT_FIELDS {
            self.fields = Vec::new();
        }
        match decoded {
            Ok(()) => Ok(message),
            Err(_) => {
                Err(ConnectionError::new(ErrorCode::COMPRESSION_ERROR, "a field block cannot be decoded"))
            }
        }
    }
}
