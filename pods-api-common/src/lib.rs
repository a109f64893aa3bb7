//! What the kernel programs and the server share: the events in the ring buffer and the entries of the maps.
//!
//! Every type here is `repr(C)` and free of padding, so that its bytes are its value on both sides; assertions below
//! hold that at compile time. All numbers are in the machine's byte order. `docs/bpf-map.md` is the contract for
//! other programs.

#![no_std]
#![deny(unsafe_code)]

mod cgroup;
mod counter;
mod event;
mod layout;

pub use cgroup::{CgroupEntry, ENTRY_VERSION, EntryTooLong, FLAG_CONTAINER, FLAG_NAMED, ProcessEntry};
pub use counter::Counters;
pub use event::{EventHeader, EventKind, MAX_EVENT_BYTES, PATH_BYTES, PathEvent};
pub use layout::{NO_ARGUMENT, field};

/// Map names. At most 15 characters: the kernel cuts off what is longer.
pub mod map {
    /// Ring buffer of [`EventHeader`](crate::EventHeader)s.
    pub const EVENTS: &str = "pods_events";
    /// Per-CPU [`Counters`](crate::Counters), at index 0.
    pub const COUNTERS: &str = "pods_counters";
    /// Cgroup IDs whose processes are reported.
    pub const TRACKED: &str = "pods_tracked";
    /// Processes in them, by thread group ID.
    pub const PROCESSES: &str = "pods_processes";
    /// Cgroup ID to [`CgroupEntry`](crate::CgroupEntry): the map for others to read.
    pub const CGROUPS: &str = "pods_cgroups";
}
