//! Into the ring buffer, and the counting of what did not get there.

use core::mem::size_of;
use core::ptr::from_ref;

use aya_ebpf::helpers::generated::bpf_ringbuf_output;
use pods_api_common::{Counters, EventHeader, EventKind, PATH_BYTES, PathEvent};

use crate::maps::{COUNTERS, EVENTS};

/// Sends an event without a path.
#[inline(always)]
pub fn report(kind: EventKind, cgroup_id: u64, pid: u32, value: u32) {
    let header = EventHeader { kind: kind as u32, path_bytes: 0, cgroup_id, pid, value };
    let outcome = EVENTS.output(header, 0);
    count_outcome(outcome.is_ok());
}

/// Sends the event of a new cgroup with the `length` bytes of path that [`path::read`](crate::path::read) has put
/// into it.
#[inline(always)]
pub fn report_path(event: &mut PathEvent, length: usize, cgroup_id: u64) {
    if length >= PATH_BYTES {
        return count(|counters| &mut counters.path_too_long);
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
        bpf_ringbuf_output(from_ref(&EVENTS).cast_mut().cast(), from_ref(event).cast_mut().cast(), bytes, 0)
    };
    count_outcome(outcome == 0);
}

#[inline(always)]
fn count_outcome(is_sent: bool) {
    if is_sent {
        count(|counters| &mut counters.sent);
    } else {
        // The helper fails for no other reason.
        count(|counters| &mut counters.ring_full);
    }
}

/// Counts one event, as sent or as lost, on this CPU.
#[inline(always)]
pub fn count(field: fn(&mut Counters) -> &mut u64) {
    if let Some(counters) = COUNTERS.get_ptr_mut(0) {
        // SAFETY: this CPU's own value of the map, which lives as long as the program. Where programs on one CPU
        // may interrupt one another, a count may be lost, never the counters.
        let count = field(unsafe { &mut *counters });
        *count = count.wrapping_add(1);
    }
}
