//! The sending side as the owner sees it: what it queues, and what leaves when it gathers.

use std::time::Instant;

use bytes::Bytes;

use super::block::FieldBlock;
use super::connection::Connection;
use super::error::{ErrorCode, StreamClosed};
use super::events::{Event, StreamId};
use super::frame;
use super::sender::Outcome;
use super::streams::{Ended, Item, Stream, Turn};
use super::writer::Writer;
use crate::transport::Outgoing;

impl Connection {
    /// Queues a response's header section.
    ///
    /// # Errors
    /// If the stream is closed, or its end was queued already.
    pub fn send_headers(
        &mut self,
        stream: StreamId,
        fields: FieldBlock,
        end_stream: bool,
    ) -> Result<(), StreamClosed> {
        self.queue(stream, Item::Headers(fields.into_bytes()), end_stream)
    }

    /// Queues trailers, which end the stream.
    ///
    /// # Errors
    /// If the stream is closed, or its end was queued already.
    pub fn send_trailers(&mut self, stream: StreamId, fields: FieldBlock) -> Result<(), StreamClosed> {
        self.send_headers(stream, fields, true)
    }

    /// Queues a part of a response's body; it leaves as windows allow, by reference unless it is small.
    ///
    /// # Errors
    /// If the stream is closed, or its end was queued already.
    pub fn send_data(&mut self, stream: StreamId, data: Bytes, end_stream: bool) -> Result<(), StreamClosed> {
        self.queue(stream, Item::Data(data), end_stream)
    }

    fn queue(&mut self, id: StreamId, item: Item, end_stream: bool) -> Result<(), StreamClosed> {
        let stream = self.streams.get_mut(id).filter(|stream| !stream.ending).ok_or(StreamClosed)?;
        stream.ending = end_stream;
        let is_needed = match &item {
            Item::Headers(_) => true,
            // An empty part only serves to carry END_STREAM, which any other waiting item can.
            Item::Data(data) => !data.is_empty() || (end_stream && stream.queue.is_empty()),
        };
        if is_needed {
            if let Item::Data(data) = &item {
                stream.queued += data.len();
            }
            stream.queue.push_back(item);
            if stream.turn == Turn::Idle {
                self.send.ready(id, stream);
            }
        }
        Ok(())
    }

    /// Resets a stream: what waits on it is dropped.
    pub fn reset(&mut self, stream: StreamId, code: ErrorCode) {
        if self.streams.get(stream).is_some() {
            frame::append_reset(&mut self.send.control, stream.number, code);
            self.close_stream(stream, Ended::ByReset);
        }
    }

    /// Body bytes that wait on a stream; zero for a closed one.
    #[must_use]
    pub fn queued(&self, stream: StreamId) -> usize {
        self.streams.get(stream).map_or(0, |open| open.queued)
    }

    /// Whether [`Connection::gather`] has something to do.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        !self.send.control.is_empty() || self.send.has_turns()
    }

    /// When complete responses that the peer does not take are given up.
    pub(super) fn stalled_until(&self) -> Option<Instant> {
        self.send.stalled_since().map(|since| since + self.config.stall_timeout)
    }

    /// Resets the complete responses that wait for a window. The time starts anew for what still waits.
    pub(super) fn reset_stalled_responses(&mut self) {
        let is_held = |stream: &Stream| stream.ending && matches!(stream.turn, Turn::Blocked | Turn::Starved);
        let stalled: Vec<StreamId> =
            self.streams.iter_mut().filter(|(_, stream)| is_held(stream)).map(|(id, _)| id).collect();
        for stream in stalled {
            self.reset(stream, ErrorCode::CANCEL);
        }
        self.send.note_progress(true, self.now);
    }

    /// Moves what may leave now into `out`, until it holds about `budget` bytes: control frames first, then the
    /// streams in turn.
    pub fn gather(&mut self, out: &mut Outgoing, budget: usize, now: Instant) {
        self.now = now;
        let mut buffer = std::mem::take(&mut self.send.buffer);
        let mut writer = Writer::new(&mut buffer, out);
        writer.copy(&self.send.control);
        self.send.control.clear();
        let mut is_moving = false;
        while writer.len() < budget
            && let Some(id) = self.send.next_turn(&self.streams)
        {
            let Some(stream) = self.streams.get_mut(id) else { continue };
            let before = stream.queued;
            let outcome = self.send.turn(id, stream, &mut writer, &mut self.meters);
            let low_water = self.config.send_low_water;
            is_moving |= stream.queued < before;
            if before > low_water && stream.queued <= low_water && !stream.ending {
                self.events.push_back(Event::Writable { stream: id });
            }
            if outcome == Outcome::Ended {
                self.end_stream(id);
            }
        }
        // Closing streams may have queued resets.
        writer.copy(&self.send.control);
        self.send.control.clear();
        writer.finish();
        self.send.buffer = buffer;
        self.send.note_progress(is_moving, now);
    }

    /// The response is complete. If the request is not, the peer is told to stop (RFC 9113 section 8.1).
    fn end_stream(&mut self, id: StreamId) {
        let is_receiving = self.streams.get(id).is_some_and(|stream| stream.receiving);
        if is_receiving {
            frame::append_reset(&mut self.send.control, id.number, ErrorCode::NO_ERROR);
        }
        self.close_stream(id, if is_receiving { Ended::ByReset } else { Ended::ByPeer });
    }
}
