//! The receiving side: bytes to frames, and what each frame does (RFC 9113 section 6).
//!
//! A frame that came whole is read where it lies; only the beginning of an incomplete one is copied.

use std::time::Instant;

use super::connection::{Connection, DRAIN_PING, Drain, Phase};
use super::error::{ConnectionError, ErrorCode};
use super::events::{Event, StreamId};
use super::frame::{self, FrameHeader, HEADER_LEN, Kind, PREFACE, flag};
use super::settings;
use super::streams::{Ended, Turn};
use super::writer::cut;

/// The buffer of an incomplete frame is kept for the next one up to this size.
const KEPT_PARTIAL: usize = 4096;

/// What a client of HTTP/1.1 gets, `curl --unix-socket` for example.
const HTTP1_ANSWER: &[u8] = b"HTTP/1.1 505 HTTP Version Not Supported\r\n\
    content-type: text/plain\r\n\
    content-length: 66\r\n\
    connection: close\r\n\
    \r\n\
    this socket speaks gRPC over HTTP/2 with prior knowledge (no TLS)\n";

impl Connection {
    /// Takes bytes that the peer sent, split in any way. Never fails: an error of the peer queues a GOAWAY, and the
    /// connection is then [done](Connection::is_done) when that was gathered.
    pub fn receive(&mut self, bytes: &[u8], now: Instant) {
        self.now = now;
        if self.phase == Phase::Closed {
            return;
        }
        if let Err(error) = self.read(bytes) {
            self.fail(error);
        }
    }

    fn read(&mut self, mut input: &[u8]) -> Result<(), ConnectionError> {
        if let Phase::Preface(matched) = self.phase {
            input = self.preface(matched, input)?;
        }
        if !self.partial.is_empty() {
            input = self.complete_partial(input)?;
        }
        while self.phase != Phase::Closed
            && let Some(header) = input.first_chunk()
        {
            let header = self.frame_header(header)?;
            let Some((frame, rest)) = input.split_at_checked(HEADER_LEN + header.length) else { break };
            self.frame(header, &frame[HEADER_LEN..])?;
            input = rest;
        }
        if self.phase != Phase::Closed {
            self.partial.extend_from_slice(input);
        }
        Ok(())
    }

    /// Matches the client's preface; returns what is behind it.
    fn preface<'a>(&mut self, matched: usize, input: &'a [u8]) -> Result<&'a [u8], ConnectionError> {
        let expected = &PREFACE[matched..];
        let same = input.iter().zip(expected).take_while(|(byte, expected)| byte == expected).count();
        if same == expected.len() {
            self.phase = Phase::Settings;
            settings::announce(&self.config, &mut self.send.control);
            return Ok(&input[same..]);
        }
        let Some(&wrong) = input.get(same) else {
            self.phase = Phase::Preface(matched + same);
            return Ok(&[]);
        };
        // The method of an HTTP/1.1 request: capital letters, up to where HTTP/2 has "PRI".
        if matched + same <= 3 && wrong.is_ascii_uppercase() {
            self.send.control.extend_from_slice(HTTP1_ANSWER);
            self.close(ErrorCode::HTTP_1_1_REQUIRED, "the client speaks HTTP/1.1");
            return Ok(&[]);
        }
        Err(ConnectionError::protocol("the client preface is wrong"))
    }

    /// Completes the frame whose beginning was kept; returns what is behind it.
    fn complete_partial<'a>(&mut self, mut input: &'a [u8]) -> Result<&'a [u8], ConnectionError> {
        let mut partial = std::mem::take(&mut self.partial);
        let mut needed = HEADER_LEN;
        loop {
            let missing = needed.saturating_sub(partial.len()).min(input.len());
            partial.extend_from_slice(&input[..missing]);
            input = &input[missing..];
            let Some(header) = partial.first_chunk().filter(|_| partial.len() >= needed) else {
                self.partial = partial;
                return Ok(input);
            };
            let header = self.frame_header(header)?;
            needed = HEADER_LEN + header.length;
            if partial.len() == needed {
                self.frame(header, &partial[HEADER_LEN..])?;
                if partial.capacity() <= KEPT_PARTIAL {
                    partial.clear();
                    self.partial = partial;
                }
                return Ok(input);
            }
        }
    }

    /// Reads a frame header and refuses a frame that is too large before its payload is kept (section 4.2).
    fn frame_header(&self, bytes: &[u8; HEADER_LEN]) -> Result<FrameHeader, ConnectionError> {
        let header = FrameHeader::parse(bytes);
        if header.length > self.config.max_frame_size as usize {
            return Err(ConnectionError::frame_size("a frame is larger than SETTINGS_MAX_FRAME_SIZE"));
        }
        Ok(header)
    }

    fn frame(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ConnectionError> {
        if self.phase == Phase::Settings && (header.kind != Kind::SETTINGS || header.has(flag::ACK)) {
            return Err(ConnectionError::protocol("the first frame is not SETTINGS"));
        }
        if self.block.is_some() && header.kind != Kind::CONTINUATION {
            return Err(ConnectionError::protocol("a frame interrupts a field block"));
        }
        match header.kind {
            Kind::DATA => self.data(header, payload)?,
            Kind::HEADERS => self.headers(header, payload)?,
            Kind::CONTINUATION => self.continuation(header, payload)?,
            Kind::WINDOW_UPDATE => self.window_update(header, payload)?,
            Kind::RST_STREAM => self.rst_stream(header, payload)?,
            Kind::PING => self.ping(header, payload)?,
            Kind::SETTINGS => self.settings(header, payload)?,
            Kind::PRIORITY => self.priority(header, payload)?,
            Kind::GOAWAY => self.goaway(header, payload)?,
            Kind::PUSH_PROMISE => return Err(ConnectionError::protocol("a client cannot push")),
            _ => self.noise()?,
        }
        if self.send.control.len() > self.config.max_queued_control {
            return Err(ConnectionError::calm("answers are provoked and not read"));
        }
        Ok(())
    }

    /// Charges a frame that does nothing.
    pub(super) fn noise(&mut self) -> Result<(), ConnectionError> {
        if self.meters.noise.take(self.now) {
            Ok(())
        } else {
            Err(ConnectionError::calm("too many frames that do nothing"))
        }
    }

    /// Charges a reset.
    pub(super) fn charge_reset(&mut self) -> Result<(), ConnectionError> {
        if self.meters.resets.take(self.now) { Ok(()) } else { Err(ConnectionError::calm("too many resets")) }
    }

    /// Ends a stream because the peer broke a rule on it (section 5.4.2). Such resets count like the peer's own:
    /// it can provoke them as cheaply.
    pub(super) fn stream_error(&mut self, number: u32, code: ErrorCode) -> Result<(), ConnectionError> {
        self.charge_reset()?;
        frame::append_reset(&mut self.send.control, number, code);
        match self.streams.find(number) {
            Some(stream) => self.drop_stream(stream, code, Ended::ByReset),
            None => self.streams.remember(number, Ended::ByReset),
        }
        Ok(())
    }

    /// Closes a stream and tells the owner, if it knows of it.
    fn drop_stream(&mut self, stream: StreamId, code: ErrorCode, how: Ended) {
        if self.streams.get(stream).is_some_and(|open| open.announced) {
            self.events.push_back(Event::Reset { stream, code });
        }
        self.close_stream(stream, how);
    }

    /// The open stream of a frame; none if it is closed, an error if it never was open (section 5.1).
    pub(super) fn stream_of(&self, header: FrameHeader) -> Result<Option<StreamId>, ConnectionError> {
        let number = header.stream;
        if number == 0 {
            return Err(ConnectionError::protocol("a frame that needs a stream has none"));
        }
        let stream = self.streams.find(number);
        if stream.is_none() && (number > self.last_stream || number.is_multiple_of(2)) {
            return Err(ConnectionError::protocol("a frame for an idle stream"));
        }
        Ok(stream)
    }

    fn data(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ConnectionError> {
        let stream = self.stream_of(header)?;
        if !self.receive_window.receive(payload.len()) {
            return Err(ConnectionError::flow_control("DATA exceeds the connection's window"));
        }
        let data = frame::without_padding(header, payload)?;
        let end_stream = header.has(flag::END_STREAM);
        let flow_len = payload.len() as u32;

        let Some((stream, open)) = stream.and_then(|id| self.streams.get_mut(id).map(|open| (id, open)))
        else {
            self.return_window(flow_len);
            self.noise()?;
            // Section 5.1: what was on its way when we reset the stream is ignored.
            return match self.streams.ended(header.stream) {
                Some(Ended::ByReset) => Ok(()),
                _ => self.stream_error(header.stream, ErrorCode::STREAM_CLOSED),
            };
        };
        let promised = open.content_left.map(|left| left.checked_sub(data.len() as u64));
        let violation = if !open.receiving {
            Some(ErrorCode::STREAM_CLOSED)
        } else if !open.receive_window.receive(payload.len()) {
            Some(ErrorCode::FLOW_CONTROL_ERROR)
        } else if promised == Some(None) || (end_stream && promised.flatten().is_some_and(|left| left > 0)) {
            Some(ErrorCode::PROTOCOL_ERROR) // section 8.1.1
        } else {
            None
        };
        if let Some(code) = violation {
            self.return_window(flow_len);
            return self.stream_error(header.stream, code);
        }

        open.content_left = promised.flatten();
        open.receiving = !end_stream;
        open.unconsumed += flow_len;
        let announced = open.announced;
        // The owner cannot know of the padding, nor consume what nobody reads.
        let unseen = payload.len() - if announced { data.len() } else { 0 };
        self.consume(stream, unseen);
        if data.is_empty() && !end_stream {
            return self.noise();
        }
        if announced {
            let data = cut(&mut self.arena, data);
            self.events.push_back(Event::Data { stream, data, end_stream });
        }
        Ok(())
    }

    fn window_update(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ConnectionError> {
        let increment = frame::u32_payload(payload, "a WINDOW_UPDATE frame is not four bytes")? & 0x7fff_ffff;
        if !self.meters.window_updates.take(self.now) {
            return Err(ConnectionError::calm("too many WINDOW_UPDATE frames"));
        }
        if header.stream == 0 {
            if increment == 0 {
                return Err(ConnectionError::protocol("a WINDOW_UPDATE of zero"));
            }
            return self.send.widen(increment, &mut self.streams);
        }
        let Some(stream) = self.stream_of(header)? else { return Ok(()) };
        if increment == 0 {
            return self.stream_error(header.stream, ErrorCode::PROTOCOL_ERROR);
        }
        let Some(open) = self.streams.get_mut(stream) else { return Ok(()) };
        if open.send_window.shift(i64::from(increment)).is_err() {
            return self.stream_error(header.stream, ErrorCode::FLOW_CONTROL_ERROR);
        }
        if open.turn == Turn::Blocked && open.send_window.available() > 0 {
            self.send.ready(stream, open);
        }
        Ok(())
    }

    fn rst_stream(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ConnectionError> {
        let code = frame::u32_payload(payload, "an RST_STREAM frame is not four bytes")?;
        let Some(stream) = self.stream_of(header)? else { return self.noise() };
        self.charge_reset()?;
        self.drop_stream(stream, ErrorCode::from_u32(code), Ended::ByPeer);
        Ok(())
    }

    fn ping(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::protocol("a PING on a stream"));
        }
        if payload.len() != 8 {
            return Err(ConnectionError::frame_size("a PING is not eight bytes"));
        }
        if header.has(flag::ACK) {
            return match self.drain {
                Drain::Announced { .. } if payload == DRAIN_PING => {
                    self.fix_last_stream();
                    Ok(())
                }
                _ => self.noise(),
            };
        }
        if !self.meters.pings.take(self.now) {
            return Err(ConnectionError::calm("too many pings"));
        }
        frame::append(&mut self.send.control, Kind::PING, flag::ACK, 0, payload);
        Ok(())
    }

    fn settings(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::protocol("SETTINGS on a stream"));
        }
        if header.has(flag::ACK) {
            if !payload.is_empty() {
                return Err(ConnectionError::frame_size("an acknowledgement of SETTINGS has a payload"));
            }
            if self.settings_acknowledged {
                return Err(ConnectionError::protocol("an acknowledgement without SETTINGS"));
            }
            self.handshake_done();
            return Ok(());
        }
        if !self.meters.settings.take(self.now) {
            return Err(ConnectionError::calm("too many SETTINGS frames"));
        }
        self.send.apply_settings(payload, &mut self.streams)?;
        frame::append(&mut self.send.control, Kind::SETTINGS, flag::ACK, 0, &[]);
        if self.phase == Phase::Settings {
            self.phase = Phase::Open;
        }
        Ok(())
    }

    /// Priorities are deprecated (section 5.3.2) and have no effect here.
    fn priority(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ConnectionError> {
        if header.stream == 0 {
            return Err(ConnectionError::protocol("PRIORITY without a stream"));
        }
        if payload.len() == 5 {
            return self.noise();
        }
        match self.streams.find(header.stream) {
            Some(_) => self.stream_error(header.stream, ErrorCode::FRAME_SIZE_ERROR),
            None => Err(ConnectionError::frame_size("a PRIORITY frame is not five bytes")),
        }
    }

    /// The client leaves: what runs is finished, then the connection ends.
    fn goaway(&mut self, header: FrameHeader, payload: &[u8]) -> Result<(), ConnectionError> {
        if header.stream != 0 {
            return Err(ConnectionError::protocol("GOAWAY on a stream"));
        }
        if payload.len() < 8 {
            return Err(ConnectionError::frame_size("a GOAWAY frame is shorter than eight bytes"));
        }
        self.noise()?;
        self.fix_last_stream();
        Ok(())
    }
}
