//! Which streams may send, in which order, and how their queues become frames (RFC 9113 sections 5.2 and 6.9).
//!
//! Streams take turns of one frame. A stream without window leaves the round until its window opens; those that only
//! lack the connection's window wait together for that.

use std::collections::VecDeque;
use std::time::Instant;

use bytes::BytesMut;

use super::connection::Meters;
use super::error::ConnectionError;
use super::events::StreamId;
use super::flow::{DEFAULT_WINDOW, SendWindow};
use super::frame::{FrameHeader, Kind, flag};
use super::settings::PeerSettings;
use super::streams::{Item, Stream, Streams, Turn};
use super::writer::Writer;

/// The most that a stream sends in one turn, whatever frame size the peer allows: others wait meanwhile.
const MAX_TURN: usize = 64 << 10;

/// How many places of closed streams may wait in the lists of turns.
const MAX_STALE: usize = 256;

/// The sending half of a connection's state.
#[derive(Debug)]
pub(super) struct Sender {
    /// Whole frames of the connection itself; they leave first.
    pub(super) control: Vec<u8>,
    peer: PeerSettings,
    window: SendWindow,
    /// Streams that can send, in the order of their turns. Closed ones are skipped when their turn comes.
    round: VecDeque<StreamId>,
    /// Streams that wait for the connection's window, in order.
    starved: VecDeque<StreamId>,
    /// How many entries of the two lists belong to streams that have closed.
    stale: usize,
    /// How many streams wait for a window, their own or the connection's.
    held: usize,
    /// Since when streams wait for a window while no body leaves.
    stalled_since: Option<Instant>,
    /// Small frames are put together here.
    pub(super) buffer: BytesMut,
}

/// What came of a stream's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Everything is sent, END_STREAM too.
    Ended,
    /// Everything is sent so far.
    Drained,
    /// There is more, and it may leave.
    More,
    /// The stream's window is used up.
    Blocked,
    /// The connection's window is used up.
    Starved,
}

impl Sender {
    pub(super) fn new() -> Self {
        Self {
            control: Vec::new(),
            peer: PeerSettings::DEFAULT,
            window: SendWindow::new(DEFAULT_WINDOW),
            round: VecDeque::new(),
            starved: VecDeque::new(),
            stale: 0,
            held: 0,
            stalled_since: None,
            buffer: BytesMut::new(),
        }
    }

    /// Bytes of memory that the lists and buffers take.
    pub(super) fn held_bytes(&self) -> usize {
        let turns = self.round.capacity() + self.starved.capacity();
        self.control.capacity() + self.buffer.capacity() + turns * size_of::<StreamId>()
    }

    /// The send window of a new stream.
    pub(super) fn new_window(&self) -> SendWindow {
        SendWindow::new(self.peer.initial_window)
    }

    /// Applies the peer's SETTINGS; a change of the initial window moves every stream's window (section 6.9.2).
    pub(super) fn apply_settings(
        &mut self,
        payload: &[u8],
        streams: &mut Streams,
    ) -> Result<(), ConnectionError> {
        let before = i64::from(self.peer.initial_window);
        self.peer.apply(payload)?;
        let change = i64::from(self.peer.initial_window) - before;
        if change == 0 {
            return Ok(());
        }
        for (id, stream) in streams.iter_mut() {
            if stream.send_window.shift(change).is_err() {
                return Err(ConnectionError::flow_control("SETTINGS_INITIAL_WINDOW_SIZE overflows a window"));
            }
            if stream.turn == Turn::Blocked && stream.send_window.available() > 0 {
                self.ready(id, stream);
            }
        }
        Ok(())
    }

    /// Widens the connection's window; those that waited for it are back in the round.
    pub(super) fn widen(&mut self, increment: u32, streams: &mut Streams) -> Result<(), ConnectionError> {
        if self.window.shift(i64::from(increment)).is_err() {
            return Err(ConnectionError::flow_control("the connection's window overflows"));
        }
        if self.window.available() > 0 {
            while let Some(id) = self.starved.pop_front() {
                if let Some(stream) = streams.get_mut(id).filter(|stream| stream.turn == Turn::Starved) {
                    self.ready(id, stream);
                }
            }
        }
        Ok(())
    }

    /// Puts a stream at the end of the round, unless it is there.
    pub(super) fn ready(&mut self, id: StreamId, stream: &mut Stream) {
        if stream.turn != Turn::Ready {
            self.leave(stream.turn);
            stream.turn = Turn::Ready;
            self.round.push_back(id);
        }
    }

    /// How many turns are waiting, those of closed streams included.
    #[cfg(test)]
    pub(super) fn turns(&self) -> usize {
        self.round.len() + self.starved.len()
    }

    /// Whether a stream waits for its turn.
    pub(super) fn has_turns(&self) -> bool {
        !self.round.is_empty()
    }

    /// Since when bodies wait for a window while none of them leaves.
    pub(super) fn stalled_since(&self) -> Option<Instant> {
        self.stalled_since.filter(|_| self.held > 0)
    }

    /// Notes whether a round let bodies out.
    pub(super) fn note_progress(&mut self, is_moving: bool, now: Instant) {
        if self.held == 0 {
            self.stalled_since = None;
        } else if is_moving || self.stalled_since.is_none() {
            self.stalled_since = Some(now);
        }
    }

    /// Counts that a stream is no longer where it was.
    pub(super) fn leave(&mut self, turn: Turn) {
        if matches!(turn, Turn::Starved | Turn::Blocked) {
            self.held -= 1;
        }
    }

    /// Notes that a stream has closed. Its place in a list is only taken away when such places are many: a peer that
    /// opens and resets streams while its socket is full must not make the lists grow.
    pub(super) fn forget(&mut self, turn: Turn, streams: &Streams) {
        if matches!(turn, Turn::Ready | Turn::Starved) {
            self.stale += 1;
            if self.stale > MAX_STALE {
                self.round.retain(|&id| streams.get(id).is_some());
                self.starved.retain(|&id| streams.get(id).is_some());
                self.stale = 0;
            }
        }
    }

    /// Takes the stream whose turn it is.
    pub(super) fn next_turn(&mut self, streams: &Streams) -> Option<StreamId> {
        while let Some(id) = self.round.pop_front() {
            if streams.get(id).is_some() {
                return Some(id);
            }
            self.stale = self.stale.saturating_sub(1);
        }
        None
    }

    /// The connection is closed.
    pub(super) fn forget_streams(&mut self) {
        self.round = VecDeque::new();
        self.starved = VecDeque::new();
        self.stale = 0;
        self.held = 0;
    }

    /// Lets a stream send one frame of its body and the field blocks around it, and puts it where it then belongs.
    pub(super) fn turn(
        &mut self,
        id: StreamId,
        stream: &mut Stream,
        writer: &mut Writer<'_>,
        meters: &mut Meters,
    ) -> Outcome {
        let outcome = self.write_turn(id, stream, writer, meters);
        stream.turn = match outcome {
            Outcome::Ended | Outcome::Drained => Turn::Idle,
            Outcome::More => {
                self.round.push_back(id);
                Turn::Ready
            }
            Outcome::Blocked => {
                self.held += 1;
                Turn::Blocked
            }
            Outcome::Starved => {
                self.held += 1;
                self.starved.push_back(id);
                Turn::Starved
            }
        };
        outcome
    }

    fn write_turn(
        &mut self,
        id: StreamId,
        stream: &mut Stream,
        writer: &mut Writer<'_>,
        meters: &mut Meters,
    ) -> Outcome {
        let frame_size = (self.peer.max_frame_size as usize).min(MAX_TURN);
        let mut is_used = false;
        loop {
            match stream.queue.front() {
                None => return Outcome::Drained,
                Some(Item::Headers(_)) => {
                    let Some(Item::Headers(block)) = stream.queue.pop_front() else {
                        return Outcome::Drained;
                    };
                    let end = stream.ending && stream.queue.is_empty();
                    self.write_block(id.number, &block, end, writer);
                    meters.pings.earn(1);
                    if end {
                        return Outcome::Ended;
                    }
                }
                Some(Item::Data(_)) if is_used => return Outcome::More,
                Some(Item::Data(_)) => {
                    let window = stream.send_window.available().min(self.window.available());
                    let Some((length, is_last)) = next_frame(&stream.queue, frame_size.min(window)) else {
                        return match stream.send_window.available() {
                            0 => Outcome::Blocked,
                            _ => Outcome::Starved,
                        };
                    };
                    let end = is_last && stream.ending;
                    self.write_data(id.number, length, end, stream, writer);
                    meters.pings.earn(1);
                    // A client returns the connection's window and the stream's: per frame, or as it reads.
                    meters.window_updates.earn(4 + 2 * (length >> 10) as u32);
                    if end {
                        return Outcome::Ended;
                    }
                    is_used = true;
                }
            }
        }
    }

    /// Writes HEADERS, and CONTINUATION where the block is larger than a frame.
    fn write_block(&mut self, number: u32, block: &[u8], end: bool, writer: &mut Writer<'_>) {
        // RFC 7541 section 4.2: a table size update to zero, since no table is used.
        let update: &[u8] = if std::mem::take(&mut self.peer.must_shrink_table) { &[0x20] } else { &[] };
        let frame_size = self.peer.max_frame_size as usize;
        let (first, mut rest) = block.split_at(block.len().min(frame_size - update.len()));
        let mut flags = if end { flag::END_STREAM } else { 0 };
        flags |= if rest.is_empty() { flag::END_HEADERS } else { 0 };
        let length = update.len() + first.len();
        writer.copy(&FrameHeader { length, kind: Kind::HEADERS, flags, stream: number }.encode());
        writer.copy(update);
        writer.copy(first);
        while !rest.is_empty() {
            let (part, behind) = rest.split_at(rest.len().min(frame_size));
            let flags = if behind.is_empty() { flag::END_HEADERS } else { 0 };
            let header = FrameHeader { length: part.len(), kind: Kind::CONTINUATION, flags, stream: number };
            writer.copy(&header.encode());
            writer.copy(part);
            rest = behind;
        }
    }

    /// Writes a DATA frame from as many pieces as it takes.
    fn write_data(
        &mut self,
        number: u32,
        length: usize,
        end: bool,
        stream: &mut Stream,
        writer: &mut Writer<'_>,
    ) {
        let flags = if end { flag::END_STREAM } else { 0 };
        writer.copy(&FrameHeader { length, kind: Kind::DATA, flags, stream: number }.encode());
        stream.send_window.take(length);
        self.window.take(length);
        stream.queued -= length;
        let mut left = length;
        while let Some(Item::Data(data)) = stream.queue.front_mut() {
            if data.len() > left {
                if left > 0 {
                    writer.share(data.split_to(left));
                }
                return;
            }
            left -= data.len();
            writer.share(std::mem::take(data));
            stream.queue.pop_front();
        }
    }
}

/// How long the next DATA frame is, and whether it takes the last item; none if the limit lets nothing out.
fn next_frame(queue: &VecDeque<Item>, limit: usize) -> Option<(usize, bool)> {
    let mut length = 0;
    for item in queue {
        match item {
            Item::Data(data) if length + data.len() > limit => {
                return (limit > 0).then_some((limit, false));
            }
            Item::Data(data) => length += data.len(),
            Item::Headers(_) => return Some((length, false)),
        }
    }
    Some((length, true))
}
