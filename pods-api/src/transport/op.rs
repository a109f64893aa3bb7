//! The operation slab of a ring: what each connection has in flight, and the memory that belongs to it until then.
//!
//! A send refers to bytes, to an array of their addresses and to a message header. All three live in the connection's
//! [`Socket`], which the slab keeps until the last completion, also when the connection has been removed.

#![allow(unsafe_code, reason = "hands addresses to the kernel")]

use super::Outgoing;
use super::driver::{Orphan, Slot};
use io_uring::types::{CancelBuilder, Fd};
use io_uring::{opcode, squeue};
use std::os::fd::{AsRawFd as _, OwnedFd, RawFd};

/// Pieces sent by one operation: more than a full gather of HTTP/2 frames has.
const VECTORS: usize = 64;

/// What a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// The bell's poll.
    Bell,
    /// A multishot accept, of the numbered listening socket.
    Accept(u32),
    /// A connection's multishot receive.
    Receive(Slot),
    /// A connection's send.
    Send(Slot),
    /// A half-closed connection's wait for the other half.
    Hangup(Slot),
    /// The cancellation of all the operations of a connection.
    Cancel(Slot),
    /// The cancellation of an accept.
    StopAccept,
}

impl Operation {
    /// The operation as the 64 bits that travel through the kernel.
    pub(super) fn encode(self) -> u64 {
        let (kind, number) = match self {
            Self::Bell => (0, 0),
            Self::Accept(number) => (1, number),
            Self::Receive(slot) => (2, slot.0),
            Self::Send(slot) => (3, slot.0),
            Self::Hangup(slot) => (4, slot.0),
            Self::Cancel(slot) => (5, slot.0),
            Self::StopAccept => (6, 0),
        };
        (kind << 32) | u64::from(number)
    }

    /// The operation that [`Operation::encode`] encoded.
    pub(super) fn decode(bits: u64) -> Self {
        let number = bits as u32;
        match bits >> 32 {
            0 => Self::Bell,
            1 => Self::Accept(number),
            2 => Self::Receive(Slot(number)),
            3 => Self::Send(Slot(number)),
            4 => Self::Hangup(Slot(number)),
            5 => Self::Cancel(Slot(number)),
            6 => Self::StopAccept,
            _ => unreachable!("the kernel returns user data as it was given"),
        }
    }
}

/// One connection's entry in the slab.
#[derive(Debug)]
pub(super) struct Socket {
    pub(super) socket: OwnedFd,
    /// Not changed while a send is in flight, except by its completion.
    pub(super) outgoing: Outgoing,
    /// A send is in flight.
    pub(super) is_sending: bool,
    /// Completions still to come, each operation's last one.
    pub(super) in_flight: u32,
    /// The peer has ended its side.
    pub(super) has_ended: bool,
    /// The connection has been removed; the entry waits for its completions.
    pub(super) is_removed: bool,
    message: Option<Box<Message>>,
}

/// What a vectored send refers to besides the bytes; boxed because the slab moves its entries.
struct Message {
    header: libc::msghdr,
    vectors: [libc::iovec; VECTORS],
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Message of {} vectors", self.header.msg_iovlen)
    }
}

impl Socket {
    pub(super) fn new(socket: OwnedFd, outgoing: Outgoing) -> Self {
        Self {
            socket,
            outgoing,
            is_sending: false,
            in_flight: 0,
            has_ended: false,
            is_removed: false,
            message: None,
        }
    }

    /// Hands the connection on. What was in flight has been cancelled, or will be when the ring goes, without touching
    /// any memory: the vectors were copied when the send started, and its bytes go on living with the orphan.
    pub(super) fn into_orphan(self, slot: Slot) -> Orphan {
        Orphan { slot, socket: self.socket, outgoing: self.outgoing, has_ended: self.has_ended }
    }

    /// Closes the socket and leaves for good what a send in flight refers to.
    pub(super) fn leak(self) {
        std::mem::forget((self.outgoing, self.message));
    }

    fn fd(&self) -> Fd {
        Fd(self.socket.as_raw_fd())
    }

    /// A receive that goes on until the peer ends or the buffers do.
    pub(super) fn receive_entry(&self) -> squeue::Entry {
        opcode::RecvMulti::new(self.fd(), super::buffers::GROUP).build()
    }

    /// A wait for the peer to close both halves. A poll for that alone would end at once, because the kernel always
    /// adds EPOLLRDHUP, which the first half has set; so it reports each change, and the first report is stale.
    pub(super) fn hangup_entry(&self) -> squeue::Entry {
        opcode::PollAdd::new(self.fd(), libc::POLLHUP as u32).multi(true).build()
    }

    /// Cancels all operations on the socket.
    pub(super) fn cancel_entry(&self) -> squeue::Entry {
        opcode::AsyncCancel2::new(CancelBuilder::fd(self.fd()).all()).build()
    }

    /// A send of what is outgoing, or its first pieces. The entry points into this slab entry's memory, so neither
    /// may go before the completion.
    pub(super) fn send_entry(&mut self) -> squeue::Entry {
        let fd = self.fd();
        let mut chunks = self.outgoing.chunks();
        let first = chunks.next().expect("there is something to send");
        let Some(second) = chunks.next() else {
            // A piece longer than the length field goes out in several sends.
            let length = u32::try_from(first.len()).unwrap_or(u32::MAX);
            return opcode::Send::new(fd, first.as_ptr(), length).flags(libc::MSG_NOSIGNAL).build();
        };
        let message = self.message.get_or_insert_with(Message::new);
        let mut count = 0;
        for chunk in [first, second].into_iter().chain(chunks).take(VECTORS) {
            message.vectors[count] =
                libc::iovec { iov_base: chunk.as_ptr().cast_mut().cast(), iov_len: chunk.len() };
            count += 1;
        }
        message.header.msg_iov = message.vectors.as_mut_ptr();
        message.header.msg_iovlen = count as _;
        opcode::SendMsg::new(fd, &raw const message.header).flags(libc::MSG_NOSIGNAL as u32).build()
    }
}

impl Message {
    fn new() -> Box<Self> {
        // SAFETY: both are plain C structures of integers and pointers, for which zero is a value: no address, no
        // control data, no vectors. Some C libraries have private padding fields, so they cannot be listed.
        unsafe { Box::<Self>::new_zeroed().assume_init() }
    }
}

/// Accepts connections until it is cancelled or fails.
pub(super) fn accept_entry(socket: RawFd) -> squeue::Entry {
    opcode::AcceptMulti::new(Fd(socket)).flags(libc::SOCK_CLOEXEC).build()
}

/// Reports each time that the bell's descriptor is written to.
pub(super) fn bell_entry(bell: RawFd) -> squeue::Entry {
    opcode::PollAdd::new(Fd(bell), libc::POLLIN as u32).multi(true).build()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_survive_their_trip_through_the_kernel() {
        for number in [0, 1, u32::MAX] {
            let slot = Slot(number);
            for operation in [
                Operation::Bell,
                Operation::Accept(number),
                Operation::Receive(slot),
                Operation::Send(slot),
                Operation::Hangup(slot),
                Operation::Cancel(slot),
                Operation::StopAccept,
            ] {
                assert_eq!(Operation::decode(operation.encode()), operation);
            }
        }
    }
}
