//! The log positions that one watcher still has to send.
//!
//! Belongs to the watcher's worker: no other thread sees it, so it needs neither locks nor atomics. Eight bytes for
//! each waiting event, and as good as none for a watcher that keeps up.

use std::collections::VecDeque;

/// A bounded first-in-first-out queue of log positions.
#[derive(Debug)]
pub(super) struct Ring {
    positions: VecDeque<u64>,
    capacity: usize,
}

impl Ring {
    pub(super) fn new(capacity: usize) -> Self {
        Self { positions: VecDeque::new(), capacity: capacity.max(1) }
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn len(&self) -> usize {
        self.positions.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.positions.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.positions.len() >= self.capacity
    }

    /// Appends a position; the caller has made sure that there is room.
    pub(super) fn push(&mut self, position: u64) {
        debug_assert!(!self.is_full(), "the caller checks for room");
        self.positions.push_back(position);
    }

    /// Takes the oldest position.
    pub(super) fn pop(&mut self) -> Option<u64> {
        self.positions.pop_front()
    }
}
