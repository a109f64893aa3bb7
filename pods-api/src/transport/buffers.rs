//! The receive buffers of one ring: memory that the kernel fills and gives back in completions.
//!
//! A buffer belongs to the kernel from [`Buffers::recycle`] and [`Buffers::publish`] until a completion names it. The
//! worker hands the bytes on at once and recycles, so a connection that is silent holds no buffer.

#![allow(unsafe_code, reason = "shares memory with the kernel")]

use io_uring::IoUring;
use io_uring::types::BufRingEntry;
use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

/// The one group of buffers of a ring.
pub(super) const GROUP: u16 = 0;

/// Buffers of a ring; a power of two, as the kernel wants.
pub(super) const COUNT: u16 = 256;

/// A buffer's size: a request of any client fits into one; 1 MiB of buffers per worker in all.
const BYTES: usize = 4096;

const RING_BYTES: usize = COUNT as usize * size_of::<BufRingEntry>();
const MEMORY_BYTES: usize = COUNT as usize * BYTES;

const _: () = assert!(COUNT.is_power_of_two());
// The layout that the kernel reads: struct io_uring_buf.
const _: () = assert!(size_of::<BufRingEntry>() == 16);

/// A registered ring of provided buffers.
#[derive(Debug)]
pub(super) struct Buffers {
    entries: Mapping,
    memory: Mapping,
    /// The next entry to fill, and how far the kernel has been told; both wrap around.
    tail: u16,
}

/// Pages of its own, zeroed.
#[derive(Debug)]
struct Mapping {
    start: NonNull<c_void>,
    length: usize,
}

impl Buffers {
    /// Maps the buffers and gives all of them to the kernel.
    pub(super) fn register(ring: &IoUring) -> Result<Self, Errno> {
        let mut buffers =
            Self { entries: Mapping::new(RING_BYTES)?, memory: Mapping::new(MEMORY_BYTES)?, tail: 0 };
        let (submitter, address) = (ring.submitter(), buffers.entries.address());
        // SAFETY: the address is that of a page-aligned mapping of COUNT entries, which lives until the ring has been
        // closed (`Ring` drops the ring first, or leaks the mapping).
        let registered = unsafe { submitter.register_buf_ring_with_flags(address, COUNT, GROUP, 0) };
        registered.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        for buffer in 0..COUNT {
            buffers.recycle(buffer);
        }
        buffers.publish();
        Ok(buffers)
    }

    /// The first `length` bytes of a buffer that a completion has named.
    pub(super) fn bytes(&self, buffer: u16, length: usize) -> &[u8] {
        assert!(buffer < COUNT && length <= BYTES, "the kernel names only buffers that it was given");
        // SAFETY: the offset is within the mapping.
        let start = unsafe { self.memory.start.cast::<u8>().add(usize::from(buffer) * BYTES) };
        // SAFETY: the mapping is initialised (zeroed, then written by the kernel), the range is within it, and the
        // kernel does not write to the buffer until `publish`, which needs `&mut self`.
        unsafe { std::slice::from_raw_parts(start.as_ptr(), length) }
    }

    /// Queues a buffer to be given back.
    pub(super) fn recycle(&mut self, buffer: u16) {
        assert!(buffer < COUNT, "only buffers of this ring come back");
        let index = usize::from(self.tail % COUNT);
        let address = self.memory.address() + (usize::from(buffer) * BYTES) as u64;
        // SAFETY: the index is within the mapping.
        let entry = unsafe { self.entries.start.cast::<BufRingEntry>().add(index) };
        // SAFETY: aligned, initialised (zeroed), and not read by the kernel until the tail has passed it. At most
        // COUNT buffers exist, so it is not one that the kernel has yet to take. The kernel overwrites `resv` of no
        // entry; that of the first is the tail, which the setters leave alone.
        let entry = unsafe { &mut *entry.as_ptr() };
        entry.set_addr(address);
        entry.set_len(BYTES as u32);
        entry.set_bid(buffer);
        self.tail = self.tail.wrapping_add(1);
    }

    /// Gives the queued buffers to the kernel.
    pub(super) fn publish(&mut self) {
        let entries = self.entries.start.cast::<BufRingEntry>();
        // SAFETY: the address is that of the first entry of a registered ring.
        let tail = unsafe { BufRingEntry::tail(entries.as_ptr()) };
        // SAFETY: valid and aligned for as long as the mapping; all accesses of the tail on this side go through it.
        let tail = unsafe { AtomicU16::from_ptr(tail.cast_mut()) };
        // Release: pairs with the kernel's smp_load_acquire of the tail when it selects a buffer.
        tail.store(self.tail, Ordering::Release);
    }

    /// Never unmaps the buffers: for a ring whose receives may still be running when nobody watches any more.
    pub(super) fn leak(&mut self) {
        self.entries.length = 0;
        self.memory.length = 0;
    }
}

impl Mapping {
    fn new(length: usize) -> Result<Self, Errno> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), length, protection, flags) }?;
        Ok(Self { start: NonNull::new(start).expect("the kernel maps nothing at address 0 unasked"), length })
    }

    fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if self.length == 0 {
            return;
        }
        // SAFETY: mapped by `new`, unmapped once, and no slice of it outlives the owner.
        let unmapped = unsafe { munmap(self.start.as_ptr(), self.length) };
        debug_assert_eq!(unmapped, Ok(()));
    }
}
