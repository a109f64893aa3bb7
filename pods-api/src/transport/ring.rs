//! The io_uring driver: one ring, entered once per round of the worker's loop.
//!
//! Runs on the worker's thread, which alone submits (IORING_SETUP_SINGLE_ISSUER) and in whose calls the kernel does
//! its deferred work (IORING_SETUP_DEFER_TASKRUN): nothing is received or sent while the worker is busy with its
//! connections, so nothing interrupts it.

#![allow(unsafe_code, reason = "hands operations to the kernel and takes descriptors from it")]

use super::Outgoing;
use super::bell::Bell;
use super::buffers::{self, Buffers};
use super::counters::WorkerCounters;
use super::driver::{Driver, Handler, Orphan, Sending, Slot, Wait, is_peer_gone};
use super::op::{Operation, Socket, accept_entry, bell_entry};
use super::probe::{RingError, check_operations, set_up};
use io_uring::types::{CancelBuilder, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::io::Errno;
use slab::Slab;
use std::collections::VecDeque;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::Arc;

/// Completions that one connection can have outstanding: the last of its receive, its send, a wait for hang-up, and
/// a cancellation. What a receive reports before is bounded by the buffers.
const PER_CONNECTION: usize = 4;

/// The kernel's limit for the completion queue.
const MOST_COMPLETIONS: usize = 1 << 16;

/// How long the operations of a failed ring may take to be cancelled.
const PATIENCE: Timespec = Timespec::new().nsec(100_000_000);

/// An io_uring and the connections on it.
pub(super) struct Ring {
    // First, so that the kernel is told to let go before the memory goes.
    ring: IoUring,
    buffers: Buffers,
    sockets: Slab<Socket>,
    /// The listening socket, with its number.
    listening: Option<(u32, Arc<OwnedFd>)>,
    /// Listening sockets whose accept has yet to end.
    retired: Vec<(u32, Arc<OwnedFd>)>,
    next_listening: u32,
    bell: Arc<Bell>,
    /// Connections whose receive found no buffer.
    starved: Vec<Slot>,
    /// Entries for which the submission queue had no room.
    backlog: VecDeque<squeue::Entry>,
    /// Whether the kernel works for this ring only inside `wait` and `submit`.
    is_deferred: bool,
    /// Set once the ring is being given up: operations that were cancelled then say nothing about their connections.
    is_abandoned: bool,
    completions: Vec<Completion>,
    /// Completions that the kernel has dropped so far.
    overflows: u32,
    counters: WorkerCounters,
}

#[derive(Clone, Copy)]
struct Completion {
    operation: Operation,
    result: Result<u32, Errno>,
    flags: u32,
}

impl Ring {
    /// Sets up a ring on the calling thread, which must be the one that uses it.
    pub(super) fn new(
        bell: Arc<Bell>,
        connections: usize,
        counters: WorkerCounters,
    ) -> Result<Self, RingError> {
        let completions = PER_CONNECTION * connections + usize::from(buffers::COUNT) + 64;
        let completions = completions.next_power_of_two().min(MOST_COMPLETIONS) as u32;
        let (ring, is_deferred) = set_up(completions)?;
        check_operations(&ring)?;
        let buffers =
            Buffers::register(&ring).map_err(|cause| RingError::explain("io_uring_register", cause))?;
        let mut ring = Self {
            ring,
            buffers,
            sockets: Slab::new(),
            listening: None,
            retired: Vec::new(),
            next_listening: 0,
            bell,
            starved: Vec::new(),
            backlog: VecDeque::new(),
            is_deferred,
            is_abandoned: false,
            completions: Vec::new(),
            overflows: 0,
            counters,
        };
        ring.watch_bell();
        // Refused here rather than in the worker's first round: some filters allow set-up but not use.
        ring.wait(Wait::Not).map_err(|cause| RingError::explain("io_uring_enter", cause))?;
        Ok(ring)
    }

    fn watch_bell(&mut self) {
        let entry = bell_entry(self.bell.as_fd().as_raw_fd());
        self.push(entry, Operation::Bell);
    }

    /// Queues an operation; it starts with the next `submit` or `wait`.
    fn push(&mut self, entry: squeue::Entry, operation: Operation) {
        let entry = entry.user_data(operation.encode());
        if self.backlog.is_empty() && self.try_push(&entry) {
            return;
        }
        self.backlog.push_back(entry);
        // Its error is not lost: it comes again with the next `wait`.
        let _ = self.enter(0, None);
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        let mut submission = self.ring.submission();
        // SAFETY: what entries point to is a `Socket`'s outgoing bytes and message, which the slab keeps until the
        // operation's last completion (`settle`) or leaks (`drop`); all other entries hold only descriptors, which
        // stay open until the entry has been submitted: a socket's until its `in_flight` is 0, a listener's until
        // its accept has ended, the bell's as long as the ring.
        unsafe { submission.push(entry) }.is_ok()
    }

    fn refill(&mut self) {
        while let Some(entry) = self.backlog.pop_front() {
            if !self.try_push(&entry) {
                self.backlog.push_front(entry);
                return;
            }
        }
    }

    /// Submits what is queued and waits for `want` completions.
    fn enter(&mut self, want: usize, timeout: Option<Timespec>) -> Result<(), Errno> {
        loop {
            self.counters.system_calls.add(1);
            let submitter = self.ring.submitter();
            // The backlog goes first: while there is any, nothing may be waited for.
            let want = if self.backlog.is_empty() { want } else { 0 };
            let entered = match &timeout {
                Some(timeout) => submitter.submit_with_args(want, &SubmitArgs::new().timespec(timeout)),
                None => submitter.submit_and_wait(want),
            };
            match entered.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO)) {
                Ok(_) if self.backlog.is_empty() => return Ok(()),
                Ok(_) => self.refill(),
                // Time is up, a signal, or completions have to be taken first: all known after dispatching.
                Err(Errno::TIME | Errno::INTR | Errno::BUSY | Errno::AGAIN) => return Ok(()),
                Err(cause) => return Err(cause),
            }
        }
    }

    fn has_submissions(&mut self) -> bool {
        !self.backlog.is_empty() || !self.ring.submission().is_empty()
    }

    fn start_receive(&mut self, slot: Slot) {
        let socket = &mut self.sockets[slot.index()];
        socket.in_flight += 1;
        let entry = socket.receive_entry();
        self.push(entry, Operation::Receive(slot));
    }

    fn start_send(&mut self, slot: Slot) {
        let socket = &mut self.sockets[slot.index()];
        socket.in_flight += 1;
        socket.is_sending = true;
        let entry = socket.send_entry();
        self.push(entry, Operation::Send(slot));
    }

    /// Notes an operation's last completion, and frees the entry of a removed connection after the very last.
    fn settle(&mut self, slot: Slot) {
        let socket = &mut self.sockets[slot.index()];
        socket.in_flight -= 1;
        if socket.is_removed && socket.in_flight == 0 {
            self.sockets.remove(slot.index());
        }
    }

    fn complete(&mut self, completion: Completion, handler: &mut impl Handler) {
        let has_more = cqueue::more(completion.flags);
        match completion.operation {
            Operation::Bell if has_more => {}
            Operation::Bell => self.watch_bell(),
            Operation::Accept(number) => self.complete_accept(number, completion, handler),
            Operation::Receive(slot) => self.complete_receive(slot, completion, handler),
            Operation::Send(slot) => self.complete_send(slot, completion.result, handler),
            Operation::Hangup(slot) => self.complete_hangup(slot, completion, handler),
            Operation::Cancel(slot) => self.settle(slot),
            Operation::StopAccept => {}
        }
    }

    fn complete_hangup(&mut self, slot: Slot, completion: Completion, handler: &mut impl Handler) {
        let is_removed = self.sockets[slot.index()].is_removed;
        let has_hung_up = matches!(completion.result, Ok(events) if events & libc::POLLHUP as u32 != 0);
        if has_hung_up && !is_removed {
            handler.lost(slot, None);
        }
        if cqueue::more(completion.flags) {
            return;
        }
        if completion.result.is_ok() && !has_hung_up && !is_removed {
            self.start_hangup(slot);
        }
        self.settle(slot);
    }

    fn start_hangup(&mut self, slot: Slot) {
        let socket = &mut self.sockets[slot.index()];
        socket.in_flight += 1;
        let entry = socket.hangup_entry();
        self.push(entry, Operation::Hangup(slot));
    }

    fn complete_accept(&mut self, number: u32, completion: Completion, handler: &mut impl Handler) {
        if let Ok(descriptor) = completion.result {
            // SAFETY: a successful accept returns a new descriptor, which nobody else owns.
            handler.accepted(unsafe { OwnedFd::from_raw_fd(descriptor as i32) });
        }
        if cqueue::more(completion.flags) {
            return;
        }
        self.retired.retain(|(retired, _)| *retired != number);
        let Some((_, socket)) = self.listening.take_if(|(listening, _)| *listening == number) else { return };
        match completion.result {
            // The kernel may end a multishot without an error, for example when the completion queue was full.
            Ok(_) | Err(Errno::INTR | Errno::CONNABORTED) => self.start_accept(socket),
            Err(cause) => handler.accept_failed(cause),
        }
    }

    fn start_accept(&mut self, socket: Arc<OwnedFd>) {
        let number = self.next_listening;
        self.next_listening = number.wrapping_add(1);
        self.push(accept_entry(socket.as_raw_fd()), Operation::Accept(number));
        self.listening = Some((number, socket));
    }

    fn complete_receive(&mut self, slot: Slot, completion: Completion, handler: &mut impl Handler) {
        let socket = &mut self.sockets[slot.index()];
        let is_removed = socket.is_removed;
        if let Some(buffer) = cqueue::buffer_select(completion.flags) {
            if let Ok(length @ 1..) = completion.result
                && !is_removed
            {
                let length = length as usize;
                self.counters.bytes_received.add_bytes(length);
                handler.received(slot, self.buffers.bytes(buffer, length));
            }
            self.buffers.recycle(buffer);
        }
        if cqueue::more(completion.flags) {
            return;
        }
        if !is_removed {
            match completion.result {
                Ok(0) => {
                    socket.has_ended = true;
                    self.start_hangup(slot);
                    handler.ended(slot);
                }
                Ok(_) => self.start_receive(slot),
                Err(Errno::NOBUFS) => {
                    self.counters.buffer_shortages.add(1);
                    self.starved.push(slot);
                }
                Err(Errno::INTR | Errno::AGAIN) => self.start_receive(slot),
                Err(Errno::CANCELED) if self.is_abandoned => {}
                Err(cause) => handler.lost(slot, Some(cause).filter(|cause| !is_peer_gone(*cause))),
            }
        }
        self.settle(slot);
    }

    fn complete_send(&mut self, slot: Slot, result: Result<u32, Errno>, handler: &mut impl Handler) {
        let socket = &mut self.sockets[slot.index()];
        socket.is_sending = false;
        match result {
            Ok(sent) => {
                let sent = sent as usize;
                socket.outgoing.advance(sent);
                self.counters.bytes_sent.add_bytes(sent);
                if !socket.is_removed {
                    let is_idle = socket.outgoing.is_empty();
                    if !is_idle {
                        self.start_send(slot);
                    }
                    handler.sent(slot, sent, is_idle);
                }
            }
            Err(_) if socket.is_removed => {}
            Err(Errno::CANCELED) if self.is_abandoned => {}
            Err(Errno::INTR | Errno::AGAIN) => self.start_send(slot),
            Err(cause) => handler.lost(slot, Some(cause).filter(|cause| !is_peer_gone(*cause))),
        }
        self.settle(slot);
    }
}

impl Driver for Ring {
    fn listen(&mut self, socket: Arc<OwnedFd>) -> Result<(), Errno> {
        self.stop_listening();
        // With O_NONBLOCK an accept would end with EAGAIN where it is to wait.
        rustix::io::ioctl_fionbio(&socket, false)?;
        self.start_accept(socket);
        Ok(())
    }

    fn stop_listening(&mut self) {
        if let Some((number, socket)) = self.listening.take() {
            let entry = opcode::AsyncCancel::new(Operation::Accept(number).encode()).build();
            self.push(entry, Operation::StopAccept);
            self.retired.push((number, socket));
        }
    }

    fn add(&mut self, socket: OwnedFd) -> Result<Slot, Errno> {
        let slot = Slot(self.sockets.insert(Socket::new(socket, Outgoing::default())) as u32);
        self.start_receive(slot);
        Ok(slot)
    }

    fn socket(&self, slot: Slot) -> BorrowedFd<'_> {
        self.sockets[slot.index()].socket.as_fd()
    }

    fn outgoing(&mut self, slot: Slot) -> Option<&mut Outgoing> {
        let socket = &mut self.sockets[slot.index()];
        (!socket.is_sending).then_some(&mut socket.outgoing)
    }

    fn send(&mut self, slot: Slot) -> Result<Sending, Errno> {
        self.start_send(slot);
        Ok(Sending::Started(0))
    }

    fn remove(&mut self, slot: Slot) {
        let socket = &mut self.sockets[slot.index()];
        socket.is_removed = true;
        if socket.in_flight == 0 {
            self.sockets.remove(slot.index());
        } else {
            socket.in_flight += 1;
            let entry = socket.cancel_entry();
            self.push(entry, Operation::Cancel(slot));
        }
    }

    fn submit(&mut self) -> Result<(), Errno> {
        if self.has_submissions() { self.enter(0, None) } else { Ok(()) }
    }

    fn wait(&mut self, wait: Wait) -> Result<(), Errno> {
        match wait {
            Wait::Not => {
                let submission = self.ring.submission();
                let has_work = submission.taskrun() || submission.cq_overflow();
                drop(submission);
                if has_work || self.has_submissions() { self.enter(0, None) } else { Ok(()) }
            }
            Wait::Forever => self.enter(1, None),
            Wait::For(time) => self.enter(1, Some(Timespec::from(time))),
        }
    }

    fn dispatch(&mut self, handler: &mut impl Handler) {
        let mut completions = std::mem::take(&mut self.completions);
        let queue = self.ring.completion();
        let overflows = queue.overflow();
        self.counters.completion_overflows.add(u64::from(overflows.wrapping_sub(self.overflows)));
        self.overflows = overflows;
        completions.extend(queue.map(|entry| Completion {
            operation: Operation::decode(entry.user_data()),
            result: u32::try_from(entry.result()).map_err(|_| Errno::from_raw_os_error(-entry.result())),
            flags: entry.flags(),
        }));
        for completion in completions.drain(..) {
            self.complete(completion, handler);
        }
        self.completions = completions;
        self.buffers.publish();
        for slot in std::mem::take(&mut self.starved) {
            self.start_receive(slot);
        }
    }

    fn is_quiet(&self) -> bool {
        self.sockets.is_empty()
    }

    fn abandon(&mut self, handler: &mut impl Handler) -> Vec<Orphan> {
        self.is_abandoned = true;
        // Best effort: entering may be refused where registering is not. Where work is not deferred this decides which
        // connections can be kept.
        let cancelled = self.ring.submitter().register_sync_cancel(Some(PATIENCE), CancelBuilder::any());
        tracing::debug!(?cancelled, "cancelled the operations of a failed ring");
        self.dispatch(handler);
        let mut orphans = Vec::new();
        for (index, socket) in std::mem::take(&mut self.sockets) {
            // A deferred operation moves bytes only inside `enter`, which has failed, and all that it moved before is in
            // completions just taken. Not deferred, it may be moving some at this moment.
            let is_accounted = socket.in_flight == 0 || self.is_deferred;
            if is_accounted && !socket.is_removed {
                orphans.push(socket.into_orphan(Slot(index as u32)));
            } else {
                socket.leak();
            }
        }
        self.buffers.leak();
        orphans
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // Nobody will see the completions, so whatever the kernel may still use stays allocated for good. Only a
        // ring that has failed, or was not given the time to end, comes to this.
        for (_, socket) in std::mem::take(&mut self.sockets) {
            socket.leak();
            self.buffers.leak();
        }
    }
}
