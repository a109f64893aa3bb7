//! The epoll driver, for kernels and containers that refuse io_uring.
//!
//! Level-triggered: a connection that has more than its share to receive is simply reported again in the next round.
//! Interest in writing is registered only for a socket that is full, because every read of a client would be reported
//! otherwise. Runs on the worker's thread.

use super::Outgoing;
use super::bell::Bell;
use super::counters::{Count, Counters, WorkerCounters};
use super::driver::{Driver, Handler, Orphan, Sending, Slot, Wait, is_peer_gone};
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags};
use slab::Slab;
use std::io::IoSlice;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// What a connection may receive per round.
const RECEIVE_BUDGET: usize = 64 * 1024;

/// Connections accepted per round.
const ACCEPT_BUDGET: usize = 64;

/// Events taken per round.
const EVENTS: usize = 1024;

/// Pieces sent by one system call.
const VECTORS: usize = 64;

const LISTENING: u64 = u64::MAX;
const BELL: u64 = u64::MAX - 1;

/// An epoll set and the connections in it.
pub(super) struct Epoll {
    set: OwnedFd,
    events: Vec<Event>,
    sockets: Slab<Socket>,
    listening: Option<Arc<OwnedFd>>,
    received: Box<[u8]>,
    counters: WorkerCounters,
}

#[derive(Debug)]
struct Socket {
    socket: OwnedFd,
    outgoing: Outgoing,
    /// Whether the socket was full and the rest of `outgoing` waits.
    is_blocked: bool,
    has_ended: bool,
    /// What the set reports at present.
    registered: EventFlags,
}

impl Epoll {
    pub(super) fn new(bell: &Bell, counters: WorkerCounters) -> Result<Self, Errno> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        // Edges, because the bell's count is never read.
        epoll::add(&set, bell, EventData::new_u64(BELL), EventFlags::IN | EventFlags::ET)?;
        Ok(Self {
            set,
            events: Vec::with_capacity(EVENTS),
            sockets: Slab::new(),
            listening: None,
            received: vec![0; RECEIVE_BUDGET].into(),
            counters,
        })
    }

    /// Continues with a connection that another driver had to give up.
    pub(super) fn adopt(&mut self, orphan: Orphan) -> Result<Slot, Errno> {
        let is_blocked = !orphan.outgoing.is_empty();
        self.insert(Socket {
            socket: orphan.socket,
            outgoing: orphan.outgoing,
            is_blocked,
            has_ended: orphan.has_ended,
            registered: EventFlags::empty(),
        })
    }

    fn insert(&mut self, mut socket: Socket) -> Result<Slot, Errno> {
        let entry = self.sockets.vacant_entry();
        let slot = Slot(entry.key() as u32);
        socket.registered = socket.interest();
        epoll::add(&self.set, &socket.socket, EventData::new_u64(slot.0.into()), socket.registered)?;
        entry.insert(socket);
        Ok(slot)
    }

    /// Registers what the socket waits for now, if the set does not know yet.
    fn update_interest(&mut self, slot: Slot) -> Result<(), Errno> {
        let socket = &mut self.sockets[slot.index()];
        let interest = socket.interest();
        if socket.registered != interest {
            self.counters.system_calls.add(1);
            socket.registered = interest;
            epoll::modify(&self.set, &socket.socket, EventData::new_u64(slot.0.into()), interest)?;
        }
        Ok(())
    }

    fn accept(&mut self, handler: &mut impl Handler) {
        for _ in 0..ACCEPT_BUDGET {
            let Some(listening) = &self.listening else { return };
            self.counters.system_calls.add(1);
            match rustix::net::accept_with(listening, SocketFlags::CLOEXEC) {
                Ok(socket) => handler.accepted(socket),
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(cause) => {
                    // Level-triggered, it would be reported without end.
                    self.stop_listening();
                    return handler.accept_failed(cause);
                }
            }
        }
    }

    fn receive(&mut self, slot: Slot, flags: EventFlags, handler: &mut impl Handler) {
        let socket = &mut self.sockets[slot.index()];
        if socket.has_ended {
            // Asked for nothing, so this is the end of the other half too.
            return handler.lost(slot, None);
        }
        self.counters.system_calls.add(1);
        match rustix::net::recv(&socket.socket, &mut self.received[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => {
                socket.has_ended = true;
                match self.update_interest(slot) {
                    _ if flags.contains(EventFlags::HUP) => handler.lost(slot, None),
                    Ok(()) => handler.ended(slot),
                    Err(cause) => handler.lost(slot, Some(cause)),
                }
            }
            Ok((_, length)) => {
                self.counters.bytes_received.add_bytes(length);
                handler.received(slot, &self.received[..length]);
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(cause) => handler.lost(slot, Some(cause).filter(|cause| !is_peer_gone(*cause))),
        }
    }

    /// Continues a blocked send; without one, asks for no more reports of room.
    fn resume_or_rest(&mut self, slot: Slot, handler: &mut impl Handler) {
        let socket = &mut self.sockets[slot.index()];
        if !socket.is_blocked {
            if let Err(cause) = self.update_interest(slot) {
                handler.lost(slot, Some(cause));
            }
            return;
        }
        match socket.send(&self.counters) {
            Ok(sent) => {
                let is_idle = socket.outgoing.is_empty();
                // The set goes on reporting room: a connection that was full once has often more to send at once.
                socket.is_blocked = !is_idle;
                handler.sent(slot, sent, is_idle);
            }
            Err(cause) => handler.lost(slot, Some(cause).filter(|cause| !is_peer_gone(*cause))),
        }
    }
}

impl Socket {
    fn interest(&self) -> EventFlags {
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, !self.has_ended);
        interest.set(EventFlags::OUT, self.is_blocked);
        interest
    }

    /// Writes what is outgoing until all is written or the socket is full; what is left stays.
    fn send(&mut self, counters: &Counters<Count>) -> Result<usize, Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut sent = 0;
        while !self.outgoing.is_empty() {
            let mut vectors = [IoSlice::new(&[]); VECTORS];
            let (mut count, mut offered) = (0, 0);
            for (vector, chunk) in vectors.iter_mut().zip(self.outgoing.chunks()) {
                *vector = IoSlice::new(chunk);
                count += 1;
                offered += chunk.len();
            }
            counters.system_calls.add(1);
            let mut no_control = SendAncillaryBuffer::default();
            match rustix::net::sendmsg(&self.socket, &vectors[..count], &mut no_control, flags) {
                Ok(length) => {
                    self.outgoing.advance(length);
                    sent += length;
                    counters.bytes_sent.add_bytes(length);
                    // It took less than it was offered, so it is full; asking again would only confirm it.
                    if length < offered {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(cause) => return Err(cause),
            }
        }
        Ok(sent)
    }
}

impl Driver for Epoll {
    fn listen(&mut self, socket: Arc<OwnedFd>) -> Result<(), Errno> {
        self.stop_listening();
        rustix::io::ioctl_fionbio(&socket, true)?;
        epoll::add(&self.set, &socket, EventData::new_u64(LISTENING), EventFlags::IN)?;
        self.listening = Some(socket);
        Ok(())
    }

    fn stop_listening(&mut self) {
        if let Some(socket) = self.listening.take()
            && let Err(cause) = epoll::delete(&self.set, &socket)
        {
            tracing::warn!(error = %cause, "could not take the listening socket out of the epoll set");
        }
    }

    fn add(&mut self, socket: OwnedFd) -> Result<Slot, Errno> {
        self.insert(Socket {
            socket,
            outgoing: Outgoing::default(),
            is_blocked: false,
            has_ended: false,
            registered: EventFlags::empty(),
        })
    }

    fn socket(&self, slot: Slot) -> BorrowedFd<'_> {
        self.sockets[slot.index()].socket.as_fd()
    }

    fn outgoing(&mut self, slot: Slot) -> Option<&mut Outgoing> {
        let socket = &mut self.sockets[slot.index()];
        (!socket.is_blocked).then_some(&mut socket.outgoing)
    }

    fn send(&mut self, slot: Slot) -> Result<Sending, Errno> {
        let socket = &mut self.sockets[slot.index()];
        let sent = socket.send(&self.counters)?;
        if socket.outgoing.is_empty() {
            return Ok(Sending::Done(sent));
        }
        socket.is_blocked = true;
        self.update_interest(slot)?;
        Ok(Sending::Started(sent))
    }

    fn remove(&mut self, slot: Slot) {
        // Closing the only descriptor of a socket takes it out of the set.
        self.sockets.remove(slot.index());
    }

    fn submit(&mut self) -> Result<(), Errno> {
        Ok(())
    }

    fn wait(&mut self, wait: Wait) -> Result<(), Errno> {
        let timeout = match wait {
            Wait::Not => Some(Timespec::default()),
            Wait::Forever => None,
            Wait::For(time) => Timespec::try_from(time).ok(),
        };
        self.events.clear();
        self.counters.system_calls.add(1);
        match epoll::wait(&self.set, rustix::buffer::spare_capacity(&mut self.events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(cause) => Err(cause),
        }
    }

    fn dispatch(&mut self, handler: &mut impl Handler) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            let flags = event.flags;
            match event.data.u64() {
                BELL => {}
                LISTENING => self.accept(handler),
                number => {
                    let slot = Slot(number as u32);
                    if flags.intersects(EventFlags::IN | EventFlags::HUP | EventFlags::ERR) {
                        self.receive(slot, flags, handler);
                    }
                    if flags.contains(EventFlags::OUT) {
                        self.resume_or_rest(slot, handler);
                    }
                }
            }
        }
        self.events = events;
    }

    fn is_quiet(&self) -> bool {
        true
    }

    fn abandon(&mut self, _: &mut impl Handler) -> Vec<Orphan> {
        let sockets = std::mem::take(&mut self.sockets);
        let orphan = |(index, socket): (usize, Socket)| Orphan {
            slot: Slot(index as u32),
            socket: socket.socket,
            outgoing: socket.outgoing,
            has_ended: socket.has_ended,
        };
        sockets.into_iter().map(orphan).collect()
    }
}
