//! One client's watch: what to send next.
//!
//! Owned by the worker of the client's connection; nothing here is shared but the registration's counters. A watch runs
//! through an initial sync, read from one snapshot at the client's pace, and then the log's entries in order.
//! Meanwhile [`Watcher::fill`] moves the positions of new entries into the watcher's ring.
//!
//! **When the ring is full** the watch ends with [`EndReason::Lagged`] after what the ring holds has been taken; or, if
//! the client asked for it or is still in its initial sync, it goes on with the newest state of each pod that changed,
//! and returns to single events once it has caught up. A watcher that had taken everything is not lagging because a
//! larger burst arrives at once: the rest of the burst waits in the log, and only what comes after it counts.

use super::coalesced::Coalesced;
use super::hub::Shared;
use super::log::Reader;
use super::registry::{Caller, Entry, PINS_NOTHING, Registration, Signal, ViewLog, WatcherId};
use super::ring::Ring;
use super::shared_sync::SharedSync;
use super::sync::Ordering;
use super::view::Frame;
use super::visibility::{Visibility, is_selected, visibility};
use crate::pod::{Revision, Selector, Snapshot, SnapshotCursor};
use std::sync::Arc;

/// What a client asked for, beside its view.
#[derive(Debug, Clone)]
pub struct WatchOptions {
    /// Events that may wait before the watcher counts as slow.
    pub ring: usize,
    /// Whether a slow watcher gets the newest state per pod instead of being ended.
    pub coalesce: bool,
    /// Which pods the watch is about; `None` for all.
    pub selector: Option<Arc<Selector>>,
    /// Who opens the watch.
    pub caller: Caller,
}

impl Default for WatchOptions {
    fn default() -> Self {
        Self { ring: 1024, coalesce: false, selector: None, caller: Caller::default() }
    }
}

/// Why a watch ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
    /// The client did not keep up: RESOURCE_EXHAUSTED, `watch client channel closed`.
    Lagged,
    /// The server stops: UNAVAILABLE.
    Shutdown,
}

/// What to send next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A message.
    Frame(Frame),
    /// Nothing until the next publication.
    Idle,
    /// The watch is over. Said again on every later call.
    End(EndReason),
}

/// One open watch. Dropping it closes it.
#[derive(Debug)]
pub struct Watcher {
    shared: Arc<Shared>,
    registration: Arc<Registration>,
    log: Arc<ViewLog>,
    /// The revision of the snapshot that the watch began with.
    since: Revision,
    phase: Phase,
    backlog: Backlog,
    /// `None` once the watch takes in nothing more: nothing of the log is held.
    tail: Option<Reader<Entry>>,
    /// The log position up to which a full ring is the trace of one burst and not of a slow client.
    burst_until: u64,
}

#[derive(Debug)]
enum Phase {
    /// Sending the pods of the snapshot. `shared` holds the frames that watches of selected fields share.
    InitialSync {
        cursor: SnapshotCursor,
        shared: Option<Arc<SharedSync>>,
    },
    /// Everything of the snapshot has been taken, the marker not yet.
    SyncComplete,
    Live,
    Ended(EndReason),
}

#[derive(Debug)]
enum Backlog {
    /// Every event, in order. `head` stands at or before the ring's first position and keeps the segments from there.
    Exact { ring: Ring, head: Reader<Entry> },
    /// The newest state of each pod that changed.
    Coalesced { pods: Coalesced, ring_capacity: usize },
}

impl Watcher {
    pub(super) fn new(
        shared: Arc<Shared>,
        registration: Arc<Registration>,
        log: Arc<ViewLog>,
        reader: Reader<Entry>,
        snapshot: Arc<Snapshot>,
        ring: usize,
    ) -> Self {
        let since = snapshot.revision();
        registration.counters.oldest.store(since.0, Ordering::Relaxed);
        let is_masked = !log.view.mask().is_all();
        let phase = Phase::InitialSync {
            cursor: SnapshotCursor::new(snapshot),
            shared: is_masked.then(|| log.syncs.join(&shared.meter)),
        };
        Self {
            shared,
            registration,
            log,
            since,
            phase,
            backlog: Backlog::Exact { ring: Ring::new(ring), head: reader.clone() },
            tail: Some(reader),
            burst_until: 0,
        }
    }

    /// The watch's name.
    #[must_use]
    pub fn id(&self) -> WatcherId {
        self.registration.id
    }

    /// The revision of the snapshot that the watch began with.
    #[must_use]
    pub fn since(&self) -> Revision {
        self.since
    }

    /// Whether the initial sync has been taken whole, the marker included.
    #[must_use]
    pub fn synced(&self) -> bool {
        matches!(self.phase, Phase::Live)
    }

    /// Messages taken so far.
    #[must_use]
    pub fn sent(&self) -> u64 {
        self.registration.counters.sent.load(Ordering::Relaxed)
    }

    /// Events that wait beyond the initial sync, as of the last [`Watcher::fill`].
    #[must_use]
    pub fn pending(&self) -> usize {
        match &self.backlog {
            Backlog::Exact { ring, .. } => ring.len(),
            Backlog::Coalesced { pods, .. } => pods.len(),
        }
    }

    /// Takes in what has been published. Called when the worker is woken, also while the client does not read; costs
    /// two loads when there is nothing new.
    pub fn fill(&mut self) {
        if self.obey_signal() {
            return;
        }
        let Some(mut tail) = self.tail.take() else { return };
        if self.take_in(&mut tail) {
            self.tail = Some(tail);
        }
        self.registration.counters.pending.store(self.pending() as u64, Ordering::Relaxed);
    }

    /// The next message to send, if any.
    #[allow(clippy::should_implement_trait)] // `Idle` is not the end, so a watch is no iterator.
    pub fn next(&mut self) -> Next {
        if self.obey_signal() {
            return self.ended();
        }
        loop {
            match &mut self.phase {
                Phase::InitialSync { cursor, shared } => match cursor.next() {
                    Some(record) if is_selected(self.registration.selector.as_deref(), &record) => {
                        let view = &self.log.view;
                        let frame = match shared {
                            Some(shared) => shared.added(view, &record),
                            None => view.added(&record),
                        };
                        return self.give(frame);
                    }
                    Some(_) => {}
                    None => self.phase = Phase::SyncComplete,
                },
                Phase::SyncComplete => {
                    self.phase = Phase::Live;
                    self.registration.set_synced();
                    if self.pending() == 0 {
                        self.pin(PINS_NOTHING);
                    }
                    if let Some(frame) = self.log.view.initial_sync_complete() {
                        return self.give(frame);
                    }
                }
                Phase::Live => match self.next_waiting() {
                    Some(frame) => return self.give(frame),
                    None if self.tail.is_none() => self.end(EndReason::Lagged),
                    None => {
                        self.fill();
                        if matches!(self.phase, Phase::Live) && self.pending() == 0 && self.tail.is_some() {
                            return Next::Idle;
                        }
                    }
                },
                Phase::Ended(_) => return self.ended(),
            }
        }
    }

    fn give(&self, frame: Frame) -> Next {
        let sent = &self.registration.counters.sent;
        // Relaxed, and no read-modify-write: only this worker writes it.
        sent.store(sent.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        Next::Frame(frame)
    }

    /// Moves new entries into the backlog. Returns false when the watch takes in no more because it lags.
    fn take_in(&mut self, tail: &mut Reader<Entry>) -> bool {
        if let Backlog::Exact { ring, .. } = &self.backlog
            && ring.is_empty()
        {
            let (position, appended) = (tail.position(), self.log.log.appended());
            let capacity = ring.capacity() as u64;
            let is_burst = appended.saturating_sub(position) > capacity;
            self.burst_until = capacity + if is_burst { appended } else { position };
        }
        let selector = self.registration.selector.as_deref();
        loop {
            let position = tail.position();
            let Some(entry) = tail.peek() else { break };
            if entry.change.revision() <= self.since {
                tail.advance();
                continue;
            }
            let Some(Visibility { before, after }) = visibility(selector, entry) else {
                tail.advance();
                continue;
            };
            match &mut self.backlog {
                Backlog::Coalesced { pods, .. } => pods.fold(&entry.change, before, after),
                Backlog::Exact { ring, .. } if !ring.is_full() => {
                    if ring.is_empty() && matches!(self.phase, Phase::Live) {
                        self.registration.counters.oldest.store(entry.change.revision().0, Ordering::Relaxed);
                    }
                    ring.push(position);
                }
                Backlog::Exact { .. } if self.log.log.appended() <= self.burst_until => return true,
                Backlog::Exact { ring, head }
                    if self.registration.coalesce || !matches!(self.phase, Phase::Live) =>
                {
                    let pods = coalesce(ring, head, selector);
                    self.shared.stats.count_coalesced();
                    self.backlog = Backlog::Coalesced { pods, ring_capacity: ring.capacity() };
                    continue;
                }
                Backlog::Exact { .. } => {
                    self.shared.stats.count_dropped(false);
                    return false;
                }
            }
            tail.advance();
        }
        if let Backlog::Exact { ring, head } = &mut self.backlog
            && ring.is_empty()
        {
            // A watcher that waits for nothing keeps nothing.
            head.catch_up_with(tail);
        }
        true
    }

    /// The next frame of the backlog; `None` when it is empty.
    fn next_waiting(&mut self) -> Option<Frame> {
        loop {
            match &mut self.backlog {
                Backlog::Exact { ring, head } => {
                    let Some(position) = ring.pop() else {
                        self.pin(PINS_NOTHING);
                        return None;
                    };
                    head.seek(position);
                    let entry = head.peek().expect("the ring holds positions of appended entries");
                    // A lower bound for what is still pinned: the next entry is not older.
                    self.registration.counters.oldest.store(entry.change.revision().0, Ordering::Relaxed);
                    let selector = self.registration.selector.as_deref();
                    let visibility = visibility(selector, entry).expect("filled in as visible");
                    return Some(self.log.frame(entry, visibility));
                }
                Backlog::Coalesced { pods, ring_capacity } => {
                    let Some(pod) = pods.pop() else {
                        let (ring, tail) = (Ring::new(*ring_capacity), self.tail.clone());
                        self.pin(PINS_NOTHING);
                        self.backlog = Backlog::Exact {
                            ring,
                            head: tail.expect("a coalesced watch takes in everything"),
                        };
                        return None;
                    };
                    if let Some(frame) = self.log.coalesced_frame(&pod) {
                        return Some(frame);
                    }
                }
            }
        }
    }

    fn pin(&self, oldest: u64) {
        self.registration.counters.oldest.store(oldest, Ordering::Relaxed);
    }

    /// Ends the watch if the writer asks for it.
    fn obey_signal(&mut self) -> bool {
        match self.registration.signal() {
            Signal::None => matches!(self.phase, Phase::Ended(_)),
            _ if matches!(self.phase, Phase::Ended(_)) => true,
            Signal::Cut => {
                // One that lags already has been counted.
                if self.tail.is_some() {
                    self.shared.stats.count_dropped(true);
                }
                self.end(EndReason::Lagged);
                true
            }
            Signal::Close => {
                self.end(EndReason::Shutdown);
                true
            }
        }
    }

    /// Lets go of everything at once: the stream may stay open for as long as its client does not read.
    fn end(&mut self, reason: EndReason) {
        self.phase = Phase::Ended(reason);
        self.tail = None;
        self.backlog = Backlog::Coalesced { pods: Coalesced::default(), ring_capacity: 0 };
        self.pin(PINS_NOTHING);
        self.registration.counters.pending.store(0, Ordering::Relaxed);
    }

    fn ended(&self) -> Next {
        match self.phase {
            Phase::Ended(reason) => Next::End(reason),
            _ => Next::Idle,
        }
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.shared.leave(&self.registration);
    }
}

/// Turns single events into the newest state of each pod.
fn coalesce(ring: &mut Ring, head: &mut Reader<Entry>, selector: Option<&Selector>) -> Coalesced {
    let mut pods = Coalesced::default();
    while let Some(position) = ring.pop() {
        head.seek(position);
        let entry = head.peek().expect("the ring holds positions of appended entries");
        let Visibility { before, after } = visibility(selector, entry).expect("filled in as visible");
        pods.fold(&entry.change, before, after);
    }
    pods
}
