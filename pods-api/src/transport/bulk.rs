//! Large send buffers, lent to the few connections that have much to send.
//!
//! A stalled peer keeps its send buffer full of kernel memory, so a thousand of them bound what a buffer may be; but a
//! list of 3 MB through a small buffer costs three times the CPU of one through a large buffer, most of it in waking
//! the two sides for each other. So every connection starts with a small buffer, and a worker lends a large one to at
//! most [`HOLDERS`]. A holder keeps it, for its next list, until another one wants it and the holder's is empty.
//! Measured in `docs/decisions/send-buffers.md`.

use super::driver::{Driver, Slot};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_send_buffer_size;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

/// Connections of one worker that have a large send buffer at a time.
pub(super) const HOLDERS: usize = 16;

/// What a connection must have to send for it: more than its usual buffer takes.
pub(super) const FROM_BYTES: usize = 64 * 1024;

/// A large send buffer, as given to SO_SNDBUF. The kernel cuts it to `net.core.wmem_max`, whose default this is.
const BYTES: usize = 212_992;

/// How long nobody is asked to give its buffer back after all have refused.
const PAUSE: Duration = Duration::from_millis(10);

/// Who has a large send buffer, the oldest first.
#[derive(Debug)]
pub(super) struct Bulk {
    holders: Vec<Slot>,
    usual_bytes: usize,
    refused_at: Option<Instant>,
}

impl Bulk {
    pub(super) fn new(usual_bytes: usize) -> Self {
        Self { holders: Vec::with_capacity(HOLDERS), usual_bytes, refused_at: None }
    }

    /// Lends a large buffer to a connection that has much to send, if there is one.
    pub(super) fn lend(&mut self, slot: Slot, now: Instant, driver: &impl Driver) {
        if self.usual_bytes >= BYTES || self.holders.contains(&slot) {
            return;
        }
        if self.holders.len() == HOLDERS {
            if self.refused_at.is_some_and(|at| now < at + PAUSE) {
                return;
            }
            let emptied =
                self.holders.iter().position(|holder| self.take_back(driver.socket(*holder)) == Ok(true));
            let Some(index) = emptied else {
                self.refused_at = Some(now);
                return;
            };
            self.holders.remove(index);
        }
        if set_socket_send_buffer_size(driver.socket(slot), BYTES).is_ok() {
            self.holders.push(slot);
        }
    }

    /// Takes a holder's large buffer back if there is nearly nothing in it: otherwise what it holds would go on taking
    /// memory that nobody counts.
    fn take_back(&self, socket: BorrowedFd<'_>) -> Result<bool, Errno> {
        set_socket_send_buffer_size(socket, self.usual_bytes)?;
        // A UNIX socket is writable while its buffer, the smaller one now, is filled to a quarter at most.
        let is_empty = poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&Timespec::default()))? == 1;
        if !is_empty {
            set_socket_send_buffer_size(socket, BYTES)?;
        }
        Ok(is_empty)
    }

    /// Forgets a connection that is being closed.
    pub(super) fn forget(&mut self, slot: Slot) {
        self.holders.retain(|holder| *holder != slot);
    }

    /// Follows the connections to the slots that another driver gave them, in pairs of old and new.
    pub(super) fn follow(&mut self, moves: &[(Slot, Slot)]) {
        let moved = moves.iter().filter(|(old, _)| self.holders.contains(old)).map(|(_, new)| *new).collect();
        self.holders = moved;
    }
}
