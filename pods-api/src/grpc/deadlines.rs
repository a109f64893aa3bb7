//! When the calls of one connection end.

use crate::http2::StreamId;
use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::time::Instant;

/// Deadlines, soonest first. A call that ends before its time leaves its entry behind; such entries are dropped as
/// they come up, or all at once when they outnumber the open calls.
#[derive(Debug, Default)]
pub(super) struct Deadlines {
    heap: BinaryHeap<Entry>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Entry {
    at: Instant,
    stream: StreamId,
}

/// Below this many entries, those left behind are not worth looking for.
const SWEEP_FROM: usize = 64;

impl Deadlines {
    /// Adds a call's deadline. `open` is how many calls are open, `is_open` whether one is.
    pub(super) fn push(
        &mut self,
        at: Instant,
        stream: StreamId,
        open: usize,
        is_open: impl Fn(StreamId) -> bool,
    ) {
        if self.heap.len() >= SWEEP_FROM.max(4 * open) {
            self.heap.retain(|entry| is_open(entry.stream));
        }
        self.heap.push(Entry { at, stream });
    }

    /// The soonest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// Takes out a call whose time is up.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<StreamId> {
        let entry = self.heap.peek().copied().filter(|entry| entry.at <= now)?;
        self.heap.pop();
        Some(entry.stream)
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        self.heap.clear();
    }
}

impl Ord for Entry {
    /// The greatest entry is the soonest: the heap gives the greatest first.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.stream.number()).cmp(&(self.at, self.stream.number()))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
