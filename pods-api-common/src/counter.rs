//! What the programs count, per CPU.

use core::mem::size_of;

/// The value of the map `pods_counters`, one for each CPU.
///
/// Every event that passed the filters is counted once, as sent or under the cause it was lost for: so much for the
/// first four. The last two count what a full map makes untold later; the event itself is sent.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Put into the ring buffer.
    pub sent: u64,
    /// The ring buffer was full.
    pub ring_full: u64,
    /// A cgroup whose path is longer than an event can carry; the rest of its life is reported.
    pub path_too_long: u64,
    /// Memory of the kernel could not be read.
    pub read_failed: u64,
    /// The map of tracked cgroups was full: the life of that cgroup goes unreported.
    pub tracked_full: u64,
    /// The process table was full: the end of that process goes unreported.
    pub processes_full: u64,
}

impl Counters {
    /// The causes of loss, with their names in metrics and documents.
    #[must_use]
    pub const fn losses(&self) -> [(&'static str, u64); 5] {
        [
            ("ring_full", self.ring_full),
            ("path_too_long", self.path_too_long),
            ("read_failed", self.read_failed),
            ("tracked_full", self.tracked_full),
            ("processes_full", self.processes_full),
        ]
    }

    /// Events lost. Not what full maps leave untold: reading everything anew would not make room in them.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.ring_full + self.path_too_long + self.read_failed
    }
}

// No padding: the size is that of the fields.
const _: () = assert!(size_of::<Counters>() == 6 * 8);

#[cfg(feature = "user")]
#[allow(unsafe_code, reason = "a marker of plain types, which nothing but `unsafe impl` can set")]
mod plain {
    // SAFETY: `repr(C)`, `Copy`, without padding (asserted above), integers only.
    unsafe impl aya::Pod for super::Counters {}
}

#[cfg(test)]
mod tests {
    use super::Counters;

    #[test]
    fn full_maps_lose_no_event() {
        let counters = Counters { tracked_full: 8, processes_full: 16, ..Counters::default() };
        assert_eq!(counters.lost(), 0);
        let counters = Counters { ring_full: 1, path_too_long: 2, read_failed: 4, ..counters };
        assert_eq!(counters.lost(), 7);
        assert_eq!(
            counters.losses().iter().map(|(_, count)| count).sum::<u64>(),
            31,
            "each has its own label"
        );
    }
}
