//! The connection as its owner sees it: what it holds, how it begins and how it ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::BytesMut;

use super::config::Config;
use super::error::{ConnectionError, ErrorCode};
use super::events::{Event, StreamId};
use super::flow::{DEFAULT_WINDOW, ReceiveWindow};
use super::frame::{self, Kind};
use super::headers::Class;
use super::hpack::Decoder;
use super::rates::Meter;
use super::repeat::Repeat;
use super::request::OpenBlock;
use super::sender::Sender;
use super::streams::{Ended, Streams};

/// How long the peer may take to answer the PING of a graceful shutdown before it counts as answered.
const DRAIN_PING_TIMEOUT: Duration = Duration::from_secs(1);
/// Marks the PING of a graceful shutdown.
pub(super) const DRAIN_PING: [u8; 8] = *b"draining";
/// The last stream identifier of a GOAWAY that refuses nothing yet (RFC 9113 section 6.8).
const NO_LAST_STREAM: u32 = 0x7fff_ffff;
/// A queue of events is kept up to this capacity; a peer that fills one read with tiny frames makes a long one.
const KEPT_EVENTS: usize = 256;
/// Credit that useful work can earn in advance for WINDOW_UPDATEs.
const WINDOW_UPDATE_CREDIT: u32 = 1 << 20;

/// How far the connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// So many bytes of the client's preface have come.
    Preface(usize),
    /// The preface is complete; the next frame must be SETTINGS.
    Settings,
    Open,
    /// Nothing is read any more; what is queued may still leave.
    Closed,
}

/// How far a graceful shutdown is (RFC 9113 section 6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drain {
    No,
    /// The peer knows; requests that it sent before it knew are still taken.
    Announced {
        until: Instant,
    },
    /// The last stream is fixed: later ones are refused.
    Final,
}

/// Counts what may be abused.
#[derive(Debug)]
pub(super) struct Meters {
    pub(super) pings: Meter,
    pub(super) settings: Meter,
    pub(super) resets: Meter,
    pub(super) window_updates: Meter,
    pub(super) noise: Meter,
}

/// The server side of one HTTP/2 connection.
#[derive(Debug)]
pub struct Connection {
    pub(super) config: Arc<Config>,
    pub(super) phase: Phase,
    pub(super) drain: Drain,
    /// The latest time that the owner told.
    pub(super) now: Instant,
    pub(super) events: VecDeque<Event>,
    /// Bytes of the request heads in `events`.
    pub(super) pending_heads: usize,
    /// The beginning of a frame whose rest has not come.
    pub(super) partial: Vec<u8>,
    /// A field block that goes on in CONTINUATION frames.
    pub(super) block: Option<OpenBlock>,
    pub(super) decoder: Decoder<Class>,
    pub(super) repeat: Repeat,
    /// The fields of the block that is decoded.
    pub(super) fields: Vec<u8>,
    /// Request heads and bodies are cut from this buffer, so that they cost no allocation each.
    pub(super) arena: BytesMut,
    pub(super) streams: Streams,
    /// The highest stream identifier that the peer used.
    pub(super) last_stream: u32,
    pub(super) receive_window: ReceiveWindow,
    pub(super) settings_acknowledged: bool,
    pub(super) meters: Meters,
    pub(super) send: Sender,
    /// Until when the handshake must be complete; none afterwards.
    handshake_until: Option<Instant>,
    idle_since: Option<Instant>,
}

impl Connection {
    /// The state of a connection that was just accepted. Our SETTINGS leave as soon as the client's preface has
    /// come: a client of HTTP/1.1 then gets an answer that it understands.
    #[must_use]
    pub fn server(config: impl Into<Arc<Config>>, now: Instant) -> Self {
        let config = config.into();
        Self {
            phase: Phase::Preface(0),
            drain: Drain::No,
            now,
            events: VecDeque::new(),
            pending_heads: 0,
            partial: Vec::new(),
            block: None,
            decoder: Decoder::new(config.header_table_size),
            repeat: Repeat::default(),
            fields: Vec::new(),
            arena: BytesMut::new(),
            streams: Streams::new(),
            last_stream: 0,
            receive_window: ReceiveWindow::new(config.connection_window.max(DEFAULT_WINDOW)),
            settings_acknowledged: false,
            meters: Meters {
                pings: Meter::new(config.pings, config.pings.burst, now),
                settings: Meter::new(config.settings, 0, now),
                resets: Meter::new(config.resets, 0, now),
                window_updates: Meter::new(config.window_updates, WINDOW_UPDATE_CREDIT, now),
                noise: Meter::new(config.noise, 0, now),
            },
            send: Sender::new(),
            handshake_until: Some(now + config.handshake_timeout),
            idle_since: Some(now),
            config,
        }
    }

    /// Takes the next event. To be called until there is none, after [`Connection::receive`] and after
    /// [`Connection::gather`].
    pub fn next_event(&mut self) -> Option<Event> {
        let Some(event) = self.events.pop_front() else {
            if self.events.capacity() > KEPT_EVENTS {
                self.events = VecDeque::new();
            }
            return None;
        };
        if let Event::Request { head, .. } = &event {
            self.pending_heads -= head.buffer.len();
        }
        Some(event)
    }

    /// Tells that the owner has consumed bytes of a request's body, so that the peer may send more.
    pub fn consume(&mut self, stream: StreamId, bytes: usize) {
        let Some(open) = self.streams.get_mut(stream) else { return };
        let bytes = open.unconsumed.min(u32::try_from(bytes).unwrap_or(u32::MAX));
        open.unconsumed -= bytes;
        if open.receiving
            && let Some(increment) = open.receive_window.consume(bytes)
        {
            frame::append_window_update(&mut self.send.control, stream.number, increment);
        }
        self.return_window(bytes);
    }

    /// How many streams are open or wait for their response to leave.
    #[must_use]
    pub fn open_streams(&self) -> usize {
        self.streams.len()
    }

    /// Bytes of memory that the connection holds, except bodies: those of requests in events that were not taken, and
    /// those of responses, which [`Connection::queued`] tells.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let block = self.block.as_ref().map_or(0, OpenBlock::held_bytes);
        size_of::<Self>()
            + self.events.capacity() * size_of::<Event>()
            + self.pending_heads
            + self.partial.capacity()
            + block
            + self.decoder.held_bytes()
            + self.repeat.held_bytes()
            + self.fields.capacity()
            + self.arena.capacity()
            + self.streams.held_bytes()
            + self.send.held_bytes()
    }

    /// Begins a graceful shutdown (RFC 9113 section 6.8): the peer is told, requests that were on their way are
    /// taken for about a round trip, and the connection ends with its last stream.
    pub fn shutdown(&mut self, now: Instant) {
        self.now = now;
        if self.drain != Drain::No || self.phase == Phase::Closed {
            return;
        }
        if let Phase::Preface(_) = self.phase {
            self.close(ErrorCode::NO_ERROR, "the server is shutting down");
            return;
        }
        self.drain = Drain::Announced { until: now + DRAIN_PING_TIMEOUT };
        frame::append_goaway(&mut self.send.control, NO_LAST_STREAM, ErrorCode::NO_ERROR, "");
        frame::append(&mut self.send.control, Kind::PING, 0, 0, &DRAIN_PING);
    }

    /// The second stage of a graceful shutdown.
    pub(super) fn fix_last_stream(&mut self) {
        if self.drain != Drain::Final {
            self.drain = Drain::Final;
            frame::append_goaway(&mut self.send.control, self.last_stream, ErrorCode::NO_ERROR, "");
        }
        self.close_if_drained();
    }

    /// When [`Connection::timeout`] wants to be called, if at all.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        if self.phase == Phase::Closed {
            return None;
        }
        let block = self.block.as_ref().map(|block| block.since + self.config.header_timeout);
        let drain = match self.drain {
            Drain::Announced { until } => Some(until),
            Drain::No | Drain::Final => None,
        };
        let idle = self.idle_since.zip(self.config.idle_timeout).map(|(since, timeout)| since + timeout);
        let idle = idle.filter(|_| self.drain == Drain::No);
        [self.handshake_until, block, drain, idle, self.stalled_until()].into_iter().flatten().min()
    }

    /// Acts on deadlines that have passed.
    pub fn timeout(&mut self, now: Instant) {
        self.now = now;
        if self.deadline().is_none_or(|deadline| deadline > now) {
            return;
        }
        if self.stalled_until().is_some_and(|until| until <= now) {
            self.reset_stalled_responses();
        } else if self.handshake_until.is_some_and(|until| until <= now) {
            self.fail(ConnectionError::new(ErrorCode::SETTINGS_TIMEOUT, "the handshake took too long"));
        } else if self.block.as_ref().is_some_and(|block| block.since + self.config.header_timeout <= now) {
            self.fail(ConnectionError::calm("a field block took too long"));
        } else if matches!(self.drain, Drain::Announced { .. }) {
            self.fix_last_stream();
        } else {
            self.shutdown(now);
        }
    }

    /// Whether the connection can be closed once everything gathered has been sent.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Closed && self.send.control.is_empty()
    }

    /// Ends the connection because the peer will send no more: a client that has gone cannot be told anything, and
    /// HTTP/2 knows no half-closed connection.
    pub fn receive_end(&mut self, now: Instant) {
        self.now = now;
        if self.phase != Phase::Closed {
            self.close(ErrorCode::NO_ERROR, "the peer closed the connection");
            self.send.control.clear();
        }
    }

    /// Ends the connection with a GOAWAY that says why.
    pub(super) fn fail(&mut self, error: ConnectionError) {
        frame::append_goaway(&mut self.send.control, self.last_stream, error.code, error.reason);
        self.close(error.code, error.reason);
    }

    /// Drops all state but what is queued for the connection itself.
    pub(super) fn close(&mut self, code: ErrorCode, reason: &'static str) {
        self.phase = Phase::Closed;
        self.streams.clear();
        self.send.forget_streams();
        self.partial = Vec::new();
        self.block = None;
        self.events.push_back(Event::ConnectionClosed { code, reason });
    }

    /// Ends a drained connection.
    pub(super) fn close_if_drained(&mut self) {
        if self.drain == Drain::Final && self.streams.len() == 0 && self.phase != Phase::Closed {
            self.close(ErrorCode::NO_ERROR, "the connection was drained");
        }
    }

    /// Closes a stream, and the connection if that was the last one to wait for.
    pub(super) fn close_stream(&mut self, stream: StreamId, how: Ended) {
        let Some(turn) = self.streams.get(stream).map(|open| open.turn) else { return };
        self.send.leave(turn);
        let unconsumed = self.streams.close(stream, how);
        self.send.forget(turn, &self.streams);
        self.return_window(unconsumed);
        if self.streams.len() == 0 {
            self.idle_since = Some(self.now);
            self.close_if_drained();
        }
    }

    /// Counts received bytes as consumed on the connection's window.
    pub(super) fn return_window(&mut self, bytes: u32) {
        if let Some(increment) = self.receive_window.consume(bytes) {
            frame::append_window_update(&mut self.send.control, 0, increment);
        }
    }

    /// Notes that a stream was opened.
    pub(super) fn leave_idle(&mut self) {
        self.idle_since = None;
    }

    /// Our SETTINGS were acknowledged.
    pub(super) fn handshake_done(&mut self) {
        self.settings_acknowledged = true;
        self.handshake_until = None;
        self.decoder.set_limit(self.config.header_table_size);
    }
}
