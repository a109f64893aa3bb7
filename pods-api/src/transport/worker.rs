//! A worker's loop: wait, hand out what has arrived, let the protocols speak, send. One thread, one driver.

use super::bell::Bell;
use super::bulk::{self, Bulk};
use super::counters::{Close, Count, Counters};
use super::driver::{Driver, Orphan, Sending, Slot, Wait, is_peer_gone};
use super::epoll::Epoll;
use super::placement::Acceptor;
use super::shared::{Phase, Shared};
use super::table::Table;
use super::{Accept, Protocol};
use rustix::io::Errno;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

/// What one connection may send per round before the others have their turn.
const SEND_BUDGET: usize = 256 * 1024;

/// Connections served between two submissions: with all in one the first of a thousand watchers would wait for the
/// last to be encoded; with one each the system calls cost more than the sends.
pub(super) const EARLY: usize = 16;

/// How long removed connections may take to leave the kernel when the worker ends.
const QUIET_PATIENCE: Duration = Duration::from_secs(1);

/// One worker and the connections it serves.
pub(super) struct Worker<A: Accept> {
    index: usize,
    shared: Arc<Shared>,
    accept: Arc<A>,
    bell: Arc<Bell>,
    waker: Waker,
    table: Table<A::Protocol>,
    bulk: Bulk,
    /// Only the first worker has one.
    acceptor: Option<Acceptor>,
    /// The queue of the round, kept for its memory.
    turn: Vec<Slot>,
    is_draining: bool,
}

impl<A: Accept> Worker<A> {
    pub(super) fn new(index: usize, shared: Arc<Shared>, accept: Arc<A>, acceptor: Option<Acceptor>) -> Self {
        let bell = Arc::clone(shared.bell(index));
        Self {
            index,
            accept,
            waker: Waker::from(Arc::clone(&bell)),
            bell,
            table: Table::new(shared.config().send_stall),
            bulk: Bulk::new(shared.config().send_buffer_bytes),
            shared,
            acceptor,
            turn: Vec::new(),
            is_draining: false,
        }
    }

    /// Starts to accept, if this is the worker that does.
    pub(super) fn begin(&mut self, driver: &mut impl Driver) {
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.resume(driver);
        }
    }

    /// Serves connections until the reactor is shut down.
    ///
    /// # Errors
    /// Fails if the driver does; [`Worker::give_up`] and [`Worker::take_over`] go on with another one.
    pub(super) fn run(&mut self, driver: &mut impl Driver) -> Result<(), Errno> {
        loop {
            let wait = self.next_wait();
            driver.wait(wait)?;
            self.table.now = Instant::now();
            self.count(|counters| &counters.rounds, 1);
            driver.dispatch(&mut self.table);
            if self.bell.answer() {
                self.count(|counters| &counters.wakes, 1);
                self.read_messages(driver);
                self.table.wake();
            }
            self.place_accepted(driver);
            self.table.expire();
            self.take_turns(driver)?;
            if self.is_draining && self.table.open() == 0 {
                return self.finish(driver);
            }
        }
    }

    /// How long to sleep; the bell knows of it from here on.
    fn next_wait(&self) -> Wait {
        if self.table.has_queued() || !self.bell.try_sleep() {
            return Wait::Not;
        }
        let retry = self.acceptor.as_ref().and_then(Acceptor::retry_at);
        match [self.table.next_timer(), retry].into_iter().flatten().min() {
            None => Wait::Forever,
            // The time of this round is old by what the round took; the clock is read only when it matters.
            Some(timer) => match timer.saturating_duration_since(Instant::now()) {
                Duration::ZERO => Wait::Not,
                time => Wait::For(time),
            },
        }
    }

    fn read_messages(&mut self, driver: &mut impl Driver) {
        while let Some(socket) = self.shared.take_connection(self.index) {
            self.open(socket, driver);
        }
        if let Some(acceptor) = &mut self.acceptor
            && let Some(socket) = self.shared.take_listening()
        {
            acceptor.listen(socket, driver, &mut self.table.accepted);
        }
        match self.shared.phase() {
            Phase::Running => {}
            Phase::Draining => self.drain(driver),
            Phase::Closing => {
                self.drain(driver);
                for slot in self.table.slots() {
                    self.close(slot, Close::Cut, driver);
                }
            }
        }
    }

    /// Accepts no more and tells every connection to come to its end.
    fn drain(&mut self, driver: &mut impl Driver) {
        if std::mem::replace(&mut self.is_draining, true) {
            return;
        }
        if let Some(acceptor) = self.acceptor.take() {
            acceptor.stop(driver);
        }
        let now = self.table.now;
        for slot in self.table.slots() {
            if let Some(connection) = self.table.get_mut(slot) {
                connection.protocol.shutdown(now);
            }
            self.table.enqueue(slot);
        }
    }

    /// Gives the accepted sockets to the workers that have the fewest.
    fn place_accepted(&mut self, driver: &mut impl Driver) {
        let Some(acceptor) = &mut self.acceptor else {
            // Accepted while accepting was being stopped: the peer sees what it would have seen a moment later.
            self.table.accepted.clear();
            return;
        };
        if let Some(cause) = self.table.accept_failure.take() {
            acceptor.pause(cause, self.table.now);
        }
        acceptor.retry(self.table.now, driver);
        for socket in std::mem::take(&mut self.table.accepted) {
            match self.acceptor.as_mut().and_then(Acceptor::place) {
                Some(worker) if worker == self.index => self.open(socket, driver),
                Some(worker) => self.shared.give_connection(worker, socket),
                None => drop(socket),
            }
        }
    }

    /// Starts to serve a socket that has been counted as this worker's already.
    fn open(&mut self, socket: OwnedFd, driver: &mut impl Driver) {
        if self.is_draining {
            return self.shared.closed(self.index);
        }
        let send_buffer = self.shared.config().send_buffer_bytes;
        if let Err(error) = rustix::net::sockopt::set_socket_send_buffer_size(&socket, send_buffer) {
            tracing::debug!(%error, "could not set a connection's send buffer");
        }
        let protocol = self.accept.accept(socket.as_fd(), &self.waker, self.table.now);
        match driver.add(socket) {
            Ok(slot) => {
                self.table.insert(slot, protocol);
                self.count(|counters| &counters.connections, 1);
            }
            Err(error) => {
                tracing::warn!(%error, "could not serve an accepted connection");
                self.count(|counters| &counters.closed[Close::Failed as usize], 1);
                self.shared.closed(self.index);
            }
        }
    }

    fn close(&mut self, slot: Slot, cause: Close, driver: &mut impl Driver) {
        if self.table.remove(slot).is_some() {
            driver.remove(slot);
            self.bulk.forget(slot);
            self.count(|counters| &counters.closed[cause as usize], 1);
            self.shared.closed(self.index);
        }
    }

    /// Serves every queued connection once.
    fn take_turns(&mut self, driver: &mut impl Driver) -> Result<(), Errno> {
        let mut turn = std::mem::take(&mut self.turn);
        self.table.take_queue(&mut turn);
        let mut started = 0;
        for slot in turn.drain(..) {
            started += usize::from(self.serve(slot, driver));
            if started == EARLY {
                started = 0;
                driver.submit()?;
            }
        }
        self.turn = turn;
        Ok(())
    }

    /// Lets a connection's protocol speak, and returns whether a send was started that a submission would carry.
    fn serve(&mut self, slot: Slot, driver: &mut impl Driver) -> bool {
        let now = self.table.now;
        let Some(connection) = self.table.get_mut(slot) else { return false };
        if let Some(cause) = connection.closing {
            self.close(slot, cause, driver);
            return false;
        }
        if std::mem::take(&mut connection.has_news) {
            connection.protocol.wake(now);
        }
        let mut budget = SEND_BUDGET;
        let mut has_started = false;
        while let Some(outgoing) = driver.outgoing(slot) {
            if budget == 0 {
                // There may be more; the others come first.
                self.table.enqueue(slot);
                break;
            }
            connection.protocol.gather(outgoing, budget, now);
            if outgoing.is_empty() {
                if connection.protocol.is_done() {
                    self.close(slot, Close::Finished, driver);
                    return false;
                }
                break;
            }
            if outgoing.len() > bulk::FROM_BYTES {
                self.bulk.lend(slot, now, driver);
            }
            match driver.send(slot) {
                Ok(Sending::Done(sent)) => budget = budget.saturating_sub(sent),
                Ok(Sending::Started(_)) => {
                    connection.sending_since = Some(now);
                    has_started = true;
                }
                Err(cause) => {
                    let cause = if is_peer_gone(cause) { Close::PeerGone } else { Close::Failed };
                    self.close(slot, cause, driver);
                    return false;
                }
            }
        }
        self.table.update(slot);
        has_started
    }

    /// Waits for the kernel to let go of what the connections had in flight.
    fn finish(&mut self, driver: &mut impl Driver) -> Result<(), Errno> {
        let deadline = Instant::now() + QUIET_PATIENCE;
        while !driver.is_quiet() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!(worker = self.index, "the kernel still holds closed connections");
                break;
            }
            driver.wait(Wait::For(left))?;
            driver.dispatch(&mut self.table);
            self.table.accepted.clear();
        }
        Ok(())
    }

    /// Takes from a driver that has failed what can go on.
    pub(super) fn give_up(&mut self, driver: &mut impl Driver) -> Vec<Orphan> {
        self.table.now = Instant::now();
        driver.abandon(&mut self.table)
    }

    /// Goes on with the connections that another driver has given up, and returns how many could be kept and how many
    /// not.
    pub(super) fn take_over(&mut self, orphans: Vec<Orphan>, epoll: &mut Epoll) -> (usize, usize) {
        let mut connections = self.table.drain();
        let before = connections.len();
        let mut moves = Vec::new();
        for orphan in orphans {
            let old = orphan.slot;
            let Some(connection) = connections.remove(&old) else { continue };
            match epoll.adopt(orphan) {
                Ok(slot) => {
                    self.table.put_back(slot, connection);
                    moves.push((old, slot));
                }
                Err(error) => tracing::warn!(%error, "could not keep a connection"),
            }
        }
        self.bulk.follow(&moves);
        let (kept, closed) = (moves.len(), before - moves.len());
        for _ in 0..closed {
            self.count(|counters| &counters.closed[Close::DriverFailed as usize], 1);
            self.shared.closed(self.index);
        }
        self.begin(epoll);
        (kept, closed)
    }

    fn count(&self, counter: impl Fn(&Counters<Count>) -> &Count, count: u64) {
        counter(self.shared.counters(self.index)).add(count);
    }
}
