//! Events in the ring buffer: a header, and after that of a new cgroup its path.

use core::mem::size_of;

/// Longest path that an event carries, with its NUL. The deepest layout known (a node in a container in a node) has
/// 330 bytes; a longer one is counted as lost and found by a scan.
pub const PATH_BYTES: usize = 512;

/// The most bytes that one event has.
pub const MAX_EVENT_BYTES: usize = size_of::<PathEvent>();

/// What has happened.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventKind {
    /// A cgroup was made; its path follows the header.
    CgroupCreated = 1,
    /// A cgroup has its first process (`value` 1) or lost its last (`value` 0).
    CgroupPopulated = 2,
    /// A cgroup's directory was removed.
    CgroupReleased = 3,
    /// A process was moved into a cgroup.
    ProcessAttached = 4,
    /// A process of a tracked cgroup executed a program.
    ProcessExecuted = 5,
    /// The last thread of a process ended.
    ProcessExited = 6,
    /// The OOM killer chose a process.
    OomKilled = 7,
}

impl EventKind {
    const fn from_raw(raw: u32) -> Option<Self> {
        Some(match raw {
            1 => Self::CgroupCreated,
            2 => Self::CgroupPopulated,
            3 => Self::CgroupReleased,
            4 => Self::ProcessAttached,
            5 => Self::ProcessExecuted,
            6 => Self::ProcessExited,
            7 => Self::OomKilled,
            _ => return None,
        })
    }
}

/// How every event begins.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventHeader {
    /// An [`EventKind`], as a number.
    pub kind: u32,
    /// Bytes of path that follow, without NUL.
    pub path_bytes: u32,
    /// The cgroup's ID in the cgroup2 hierarchy.
    pub cgroup_id: u64,
    /// Thread group ID in the initial PID namespace; 0 in events of cgroups.
    pub pid: u32,
    /// What depends on the kind.
    pub value: u32,
}

impl EventHeader {
    /// Reads one event. `None` means that it was not made by the programs of this version.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<(EventKind, Self, &[u8])> {
        let (kind, rest) = bytes.split_first_chunk()?;
        let (path_bytes, rest) = rest.split_first_chunk()?;
        let (cgroup_id, rest) = rest.split_first_chunk()?;
        let (pid, rest) = rest.split_first_chunk()?;
        let (value, rest) = rest.split_first_chunk()?;
        let header = Self {
            kind: u32::from_ne_bytes(*kind),
            path_bytes: u32::from_ne_bytes(*path_bytes),
            cgroup_id: u64::from_ne_bytes(*cgroup_id),
            pid: u32::from_ne_bytes(*pid),
            value: u32::from_ne_bytes(*value),
        };
        let path = rest.get(..usize::try_from(header.path_bytes).ok()?)?;
        Some((EventKind::from_raw(header.kind)?, header, path))
    }
}

/// The event of a new cgroup, as the program builds it; only the used part of the path is sent.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct PathEvent {
    /// The common part.
    pub header: EventHeader,
    /// Path below the root of the cgroup2 hierarchy.
    pub path: [u8; PATH_BYTES],
}

// No padding: the size is that of the fields.
const _: () = assert!(size_of::<EventHeader>() == 4 + 4 + 8 + 4 + 4);
const _: () = assert!(size_of::<PathEvent>() == size_of::<EventHeader>() + PATH_BYTES);

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use std::vec::Vec;

    fn event(kind: u32, path: &str) -> Vec<u8> {
        let mut bytes = kind.to_ne_bytes().to_vec();
        bytes.extend((path.len() as u32).to_ne_bytes());
        bytes.extend(77_u64.to_ne_bytes());
        bytes.extend(12_u32.to_ne_bytes());
        bytes.extend(1_u32.to_ne_bytes());
        bytes.extend(path.as_bytes());
        bytes
    }

    #[test]
    fn every_kind_is_read_back() {
        for kind in 1..=7 {
            let bytes = event(kind, "/kubepods");
            let (read, header, path) = EventHeader::parse(&bytes).unwrap();
            assert_eq!((read as u32, header.cgroup_id, header.pid, header.value), (kind, 77, 12, 1));
            assert_eq!(path, b"/kubepods");
        }
    }

    #[test]
    fn foreign_and_cut_events_are_refused() {
        assert_eq!(EventHeader::parse(&event(0, "")), None);
        assert_eq!(EventHeader::parse(&event(8, "")), None);
        let bytes = event(1, "/kubepods");
        for end in 0..bytes.len() {
            assert_eq!(EventHeader::parse(&bytes[..end]), None, "{end}");
        }
    }
}
