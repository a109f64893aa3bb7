//! The open streams of a connection, and what is remembered of closed ones (RFC 9113 section 5.1).
//!
//! Streams live in slots that are used again, queues included, so that a request in steady state allocates nothing.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

use bytes::Bytes;

use super::events::StreamId;
use super::flow::{ReceiveWindow, SendWindow};

/// A queue that grew larger than this is freed with its stream instead of kept for the next one.
const KEPT_QUEUE_CAPACITY: usize = 16;
/// How many closed streams are remembered with the way they ended.
const REMEMBERED: usize = 128;

/// What waits to be sent on a stream.
#[derive(Debug)]
pub(crate) enum Item {
    /// An encoded field block: header section or trailers.
    Headers(Bytes),
    /// A part of the body.
    Data(Bytes),
}

/// Where a stream is in the round of senders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing to send.
    Idle,
    /// In the list of those that can send.
    Ready,
    /// In the list of those that wait for the connection's window.
    Starved,
    /// Waits for its own window.
    Blocked,
}

/// An open or half-closed stream.
#[derive(Debug)]
pub(crate) struct Stream {
    /// Zero in a free slot.
    number: u32,
    /// The peer may still send: END_STREAM has not come.
    pub(crate) receiving: bool,
    /// The owner knows of it by an event. Others are answered here (too large a header section).
    pub(crate) announced: bool,
    /// END_STREAM goes with the last item of the queue.
    pub(crate) ending: bool,
    pub(crate) turn: Turn,
    pub(crate) receive_window: ReceiveWindow,
    /// Received bytes that the owner has not consumed.
    pub(crate) unconsumed: u32,
    /// Bytes that content-length still promises.
    pub(crate) content_left: Option<u64>,
    pub(crate) send_window: SendWindow,
    pub(crate) queue: VecDeque<Item>,
    /// Body bytes in the queue.
    pub(crate) queued: usize,
}

/// How a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// Both sides sent END_STREAM, or the peer reset it: nothing more may come.
    ByPeer,
    /// This side reset it: frames that were on their way are ignored.
    ByReset,
}

/// The streams of a connection.
#[derive(Debug)]
pub(crate) struct Streams {
    slots: Vec<Stream>,
    free: Vec<u32>,
    index: HashMap<u32, u32, BuildHasherDefault<NumberHasher>>,
    /// A ring; the oldest is overwritten.
    ended: Vec<(u32, Ended)>,
    next_ended: usize,
}

impl Streams {
    pub(crate) fn new() -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            index: HashMap::default(),
            ended: Vec::new(),
            next_ended: 0,
        }
    }

    /// Bytes of memory that slots, queues and indices take; not what is queued.
    pub(crate) fn held_bytes(&self) -> usize {
        let queues: usize = self.slots.iter().map(|slot| slot.queue.capacity()).sum();
        queues * size_of::<Item>()
            + self.slots.capacity() * size_of::<Stream>()
            + self.index.capacity() * 2 * size_of::<(u32, u32)>()
            + self.ended.capacity() * size_of::<(u32, Ended)>()
    }

    /// How many are open.
    pub(crate) fn len(&self) -> usize {
        self.index.len()
    }

    /// Opens a stream with a number that none ever had.
    pub(crate) fn open(&mut self, number: u32, receive: ReceiveWindow, send: SendWindow) -> StreamId {
        let fresh = |queue| Stream {
            number,
            receiving: true,
            announced: false,
            ending: false,
            turn: Turn::Idle,
            receive_window: receive,
            unconsumed: 0,
            content_left: None,
            send_window: send,
            queue,
            queued: 0,
        };
        let slot = match self.free.pop() {
            Some(slot) => {
                let free = &mut self.slots[slot as usize];
                *free = fresh(std::mem::take(&mut free.queue));
                slot
            }
            None => {
                self.slots.push(fresh(VecDeque::new()));
                self.slots.len() as u32 - 1
            }
        };
        self.index.insert(number, slot);
        StreamId { number, slot }
    }

    /// The stream with a number, if it is open.
    pub(crate) fn find(&self, number: u32) -> Option<StreamId> {
        self.index.get(&number).map(|&slot| StreamId { number, slot })
    }

    pub(crate) fn get(&self, id: StreamId) -> Option<&Stream> {
        self.slots.get(id.slot as usize).filter(|stream| stream.number == id.number)
    }

    pub(crate) fn get_mut(&mut self, id: StreamId) -> Option<&mut Stream> {
        self.slots.get_mut(id.slot as usize).filter(|stream| stream.number == id.number)
    }

    /// Closes a stream and drops what waits on it; returns the received bytes that were never consumed.
    pub(crate) fn close(&mut self, id: StreamId, how: Ended) -> u32 {
        let Some(stream) = self.get_mut(id) else { return 0 };
        stream.number = 0;
        stream.queue.clear();
        if stream.queue.capacity() > KEPT_QUEUE_CAPACITY {
            stream.queue = VecDeque::new();
        }
        let unconsumed = stream.unconsumed;
        self.index.remove(&id.number);
        self.free.push(id.slot);
        self.remember(id.number, how);
        unconsumed
    }

    /// Remembers how a stream ended; also one that was refused before it was opened.
    pub(crate) fn remember(&mut self, number: u32, how: Ended) {
        match self.ended.get_mut(self.next_ended) {
            Some(oldest) => *oldest = (number, how),
            None => self.ended.push((number, how)),
        }
        self.next_ended = (self.next_ended + 1) % REMEMBERED;
    }

    /// How a stream ended, if it did so not long ago.
    pub(crate) fn ended(&self, number: u32) -> Option<Ended> {
        self.ended.iter().find(|(ended, _)| *ended == number).map(|&(_, how)| how)
    }

    /// All open streams, in no order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (StreamId, &mut Stream)> {
        self.slots
            .iter_mut()
            .enumerate()
            .filter(|(_, stream)| stream.number != 0)
            .map(|(slot, stream)| (StreamId { number: stream.number, slot: slot as u32 }, stream))
    }

    /// Closes all.
    pub(crate) fn clear(&mut self) {
        *self = Self::new();
    }
}

/// Hashes stream numbers. They grow by two and a connection chooses them only for itself: an attacker who makes them
/// collide slows down at most a thousand entries of its own.
#[derive(Debug, Default)]
struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(u32::from(byte));
        }
    }

    fn write_u32(&mut self, number: u32) {
        // The golden ratio spreads neighbours over the high bits, which are folded onto the low ones.
        let product = (self.0 ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn open(streams: &mut Streams, number: u32) -> StreamId {
        streams.open(number, ReceiveWindow::new(10), SendWindow::new(10))
    }

    #[test]
    fn a_slot_is_used_again_but_an_old_name_finds_nothing() {
        let mut streams = Streams::new();
        let first = open(&mut streams, 1);
        let other = open(&mut streams, 3);
        streams.close(first, Ended::ByPeer);
        let second = open(&mut streams, 5);
        assert_eq!((second.slot, streams.len()), (first.slot, 2));
        assert!(streams.get(first).is_none());
        assert_eq!(streams.find(1), None);
        assert_eq!(streams.find(5), Some(second));
        assert!(streams.get(other).is_some());
    }

    #[test]
    fn the_ends_of_recent_streams_are_remembered() {
        let mut streams = Streams::new();
        for number in (1..).step_by(2).take(REMEMBERED) {
            let id = open(&mut streams, number);
            streams.close(id, Ended::ByReset);
        }
        assert_eq!(streams.ended(1), Some(Ended::ByReset));
        streams.remember(1001, Ended::ByPeer);
        assert_eq!(streams.ended(1), None);
        assert_eq!(streams.ended(3), Some(Ended::ByReset));
        assert_eq!(streams.ended(1001), Some(Ended::ByPeer));
    }
}
