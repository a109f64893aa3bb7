//! Into the ring buffer, and the counting of what did not get there.

use core::mem::size_of;
use core::ptr::from_ref;

use aya_ebpf::helpers::generated::bpf_ringbuf_output;
use pods_api_common::{Counter, EventHeader, EventKind, PATH_BYTES, PathEvent};

use crate::maps::{COUNTERS, EVENTS};

/// Sends an event without a path.
#[inline(always)]
pub fn report(kind: EventKind, cgroup_id: u64, pid: u32, value: u32) {
    let header = EventHeader { kind: kind as u32, path_bytes: 0, cgroup_id, pid, value };
    let outcome = EVENTS.output(header, 0);
    count(if outcome.is_ok() { Counter::Sent } else { Counter::RingFull });
}

/// Sends the event of a new cgroup with the `length` bytes of path that [`path::read`](crate::path::read) has put
/// into it.
#[inline(always)]
pub fn report_path(event: &mut PathEvent, length: usize, cgroup_id: u64) {
    if length >= PATH_BYTES {
        return count(Counter::PathTooLong);
    }
    event.header = EventHeader {
        kind: EventKind::CgroupCreated as u32,
        path_bytes: length as u32,
        cgroup_id,
        pid: 0,
        value: 0,
    };
    let bytes = (size_of::<EventHeader>() + length) as u64;
    // SAFETY: the event is a whole map value of which the header and `length` bytes of the path are sent; `length`
    // is less than the path's size.
    let outcome = unsafe {
        bpf_ringbuf_output(
            from_ref(&EVENTS).cast_mut().cast(),
            from_ref(event).cast_mut().cast(),
            bytes,
            0,
        )
    };
    count(if outcome == 0 { Counter::Sent } else { Counter::RingFull });
}

/// Counts on this CPU.
#[inline(always)]
pub fn count(counter: Counter) {
    if let Some(slot) = COUNTERS.get_ptr_mut(counter as u32) {
        // SAFETY: this CPU's own slot of the map, which lives as long as the program. Programs on one CPU do not
        // interrupt one another but for an exit's in an interrupt, which has no effect on a count: the kernel
        // compiles the addition to one instruction.
        unsafe { *slot = (*slot).wrapping_add(1) };
    }
}
