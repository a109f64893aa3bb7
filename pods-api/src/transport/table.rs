//! The connections of one worker: their protocols, who has something to do, and when the next timer runs out.

use super::Protocol;
use super::counters::Close;
use super::driver::{Handler, Slot};
use rustix::io::Errno;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

/// The least time between two calls of a protocol's `timeout`, so that one whose deadline stays in the past cannot
/// occupy the worker.
const TIMER_PAUSE: Duration = Duration::from_millis(1);

/// One connection, without its socket, which is the driver's.
pub(super) struct Connection<P> {
    pub(super) protocol: P,
    /// Why it is to be closed.
    pub(super) closing: Option<Close>,
    /// Whether the protocol is to look for news before anything else.
    pub(super) has_news: bool,
    /// Since when bytes have been on their way without progress.
    pub(super) sending_since: Option<Instant>,
    is_queued: bool,
    /// Its place in the table's list of those that want to be woken.
    wakeable: Option<usize>,
    /// Its entry among the timers.
    timer: Option<Instant>,
}

/// All connections of a worker.
pub(super) struct Table<P> {
    /// By slot.
    connections: Vec<Option<Box<Connection<P>>>>,
    open: usize,
    /// Connections that have something to do, each once.
    queue: Vec<Slot>,
    /// Connections whose protocols look for news when the bell rings.
    wakeable: Vec<Slot>,
    /// At most one entry per connection. It may be early: what it stood for may have moved to later since.
    timers: BTreeSet<(Instant, Slot)>,
    send_stall: Duration,
    /// The time of this round.
    pub(super) now: Instant,
    /// Sockets accepted in this round.
    pub(super) accepted: Vec<OwnedFd>,
    /// Why accepting stopped in this round.
    pub(super) accept_failure: Option<Errno>,
}

impl<P: Protocol> Table<P> {
    pub(super) fn new(send_stall: Duration) -> Self {
        Self {
            connections: Vec::new(),
            open: 0,
            queue: Vec::new(),
            wakeable: Vec::new(),
            timers: BTreeSet::new(),
            send_stall,
            now: Instant::now(),
            accepted: Vec::new(),
            accept_failure: None,
        }
    }

    pub(super) fn open(&self) -> usize {
        self.open
    }

    /// Adds a connection and queues it: servers speak first in some protocols.
    pub(super) fn insert(&mut self, slot: Slot, protocol: P) {
        self.place(
            slot,
            Box::new(Connection {
                protocol,
                closing: None,
                has_news: false,
                sending_since: None,
                is_queued: false,
                wakeable: None,
                timer: None,
            }),
        );
    }

    fn place(&mut self, slot: Slot, connection: Box<Connection<P>>) {
        if self.connections.len() <= slot.index() {
            self.connections.resize_with(slot.index() + 1, || None);
        }
        let previous = self.connections[slot.index()].replace(connection);
        debug_assert!(previous.is_none(), "a slot is reused only after its connection was removed");
        self.open += 1;
        self.enqueue(slot);
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<P> {
        let connection = self.connections[slot.index()].take()?;
        self.open -= 1;
        if let Some(timer) = connection.timer {
            self.timers.remove(&(timer, slot));
        }
        if let Some(index) = connection.wakeable {
            self.forget_wakeable(index);
        }
        Some(connection.protocol)
    }

    /// Takes every connection out, by the slot it had.
    pub(super) fn drain(&mut self) -> BTreeMap<Slot, Box<Connection<P>>> {
        self.queue.clear();
        self.wakeable.clear();
        self.timers.clear();
        self.open = 0;
        let connections = std::mem::take(&mut self.connections).into_iter().enumerate();
        connections.filter_map(|(index, connection)| Some((Slot(index as u32), connection?))).collect()
    }

    /// Puts back, under a new slot, a connection that [`Table::drain`] took out.
    pub(super) fn put_back(&mut self, slot: Slot, mut connection: Box<Connection<P>>) {
        connection.is_queued = false;
        connection.wakeable = None;
        connection.timer = None;
        // What woke it before may have been in the round that failed.
        connection.has_news = true;
        self.place(slot, connection);
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Connection<P>> {
        self.connections.get_mut(slot.index())?.as_deref_mut()
    }

    /// The slots of all connections.
    pub(super) fn slots(&self) -> Vec<Slot> {
        let occupied = self.connections.iter().enumerate().filter(|(_, connection)| connection.is_some());
        occupied.map(|(index, _)| Slot(index as u32)).collect()
    }

    pub(super) fn enqueue(&mut self, slot: Slot) {
        if let Some(connection) = self.connections[slot.index()].as_deref_mut()
            && !std::mem::replace(&mut connection.is_queued, true)
        {
            self.queue.push(slot);
        }
    }

    pub(super) fn has_queued(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Takes the queue; connections queued from now on have their turn in the next round.
    pub(super) fn take_queue(&mut self, into: &mut Vec<Slot>) {
        debug_assert!(into.is_empty());
        std::mem::swap(&mut self.queue, into);
        for slot in into.iter() {
            if let Some(connection) = self.connections[slot.index()].as_deref_mut() {
                connection.is_queued = false;
            }
        }
    }

    /// Queues every connection that wants to be woken, oldest first.
    pub(super) fn wake(&mut self) {
        for index in 0..self.wakeable.len() {
            let slot = self.wakeable[index];
            if let Some(connection) = self.get_mut(slot) {
                connection.has_news = true;
            }
            self.enqueue(slot);
        }
    }

    /// Brings what is registered for a connection in line with what its protocol wants now.
    pub(super) fn update(&mut self, slot: Slot) {
        let (now, send_stall, next) = (self.now, self.send_stall, self.wakeable.len());
        let Some(connection) = self.connections[slot.index()].as_deref_mut() else { return };
        match (connection.protocol.wants_wake(), connection.wakeable) {
            (true, None) => {
                connection.wakeable = Some(next);
                // What it waits for may have come, and the bell been answered, between its wish and this line.
                connection.has_news = true;
                self.wakeable.push(slot);
                self.enqueue(slot);
            }
            (false, Some(index)) => {
                connection.wakeable = None;
                self.forget_wakeable(index);
            }
            _ => {}
        }
        let Some(connection) = self.connections[slot.index()].as_deref_mut() else { return };
        let Some(deadline) = connection.next_deadline(send_stall) else { return };
        // A later deadline is found out when the timer runs out, which spares most requests the two tree operations.
        if connection.timer.is_none_or(|timer| deadline < timer) {
            let deadline = deadline.max(now + TIMER_PAUSE);
            if let Some(timer) = connection.timer.replace(deadline) {
                self.timers.remove(&(timer, slot));
            }
            self.timers.insert((deadline, slot));
        }
    }

    fn forget_wakeable(&mut self, index: usize) {
        self.wakeable.swap_remove(index);
        if let Some(&moved) = self.wakeable.get(index)
            && let Some(connection) = self.get_mut(moved)
        {
            connection.wakeable = Some(index);
        }
    }

    /// When the next timer runs out.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|(timer, _)| *timer)
    }

    /// Runs the timers that have run out.
    pub(super) fn expire(&mut self) {
        let now = self.now;
        while let Some(&(timer, slot)) = self.timers.first()
            && timer <= now
        {
            self.timers.pop_first();
            let send_stall = self.send_stall;
            let Some(connection) = self.get_mut(slot) else { continue };
            connection.timer = None;
            if connection.stalls_at(send_stall).is_some_and(|deadline| deadline <= now) {
                connection.closing.get_or_insert(Close::Stalled);
            }
            if connection.protocol.deadline().is_some_and(|deadline| deadline <= now) {
                connection.protocol.timeout(now);
            }
            // Its turn also brings the timer up to date.
            self.enqueue(slot);
        }
    }
}

impl<P: Protocol> Connection<P> {
    fn stalls_at(&self, send_stall: Duration) -> Option<Instant> {
        self.sending_since.map(|since| since + send_stall)
    }

    fn next_deadline(&self, send_stall: Duration) -> Option<Instant> {
        let stall = self.stalls_at(send_stall);
        [stall, self.protocol.deadline()].into_iter().flatten().min()
    }
}

impl<P: Protocol> Handler for Table<P> {
    fn accepted(&mut self, socket: OwnedFd) {
        self.accepted.push(socket);
    }

    fn accept_failed(&mut self, cause: Errno) {
        self.accept_failure = Some(cause);
    }

    fn received(&mut self, slot: Slot, bytes: &[u8]) {
        let now = self.now;
        if let Some(connection) = self.get_mut(slot) {
            connection.protocol.receive(bytes, now);
            self.enqueue(slot);
        }
    }

    fn ended(&mut self, slot: Slot) {
        let now = self.now;
        if let Some(connection) = self.get_mut(slot) {
            connection.protocol.receive_end(now);
            self.enqueue(slot);
        }
    }

    fn sent(&mut self, slot: Slot, bytes: usize, is_idle: bool) {
        let now = self.now;
        let Some(connection) = self.get_mut(slot) else { return };
        if is_idle {
            connection.sending_since = None;
            self.enqueue(slot);
        } else if bytes > 0 {
            connection.sending_since = Some(now);
        }
    }

    fn lost(&mut self, slot: Slot, cause: Option<Errno>) {
        let Some(connection) = self.get_mut(slot) else { return };
        if let Some(cause) = cause {
            tracing::debug!(error = %cause, "a connection failed");
        }
        connection.closing.get_or_insert(if cause.is_some() { Close::Failed } else { Close::PeerGone });
        self.enqueue(slot);
    }
}
