//! What the programs count, per CPU.

/// One slot of the map `pods_counters`.
///
/// Every event that passed the filters is counted once, as sent or under the cause it was lost for, so the slots
/// add up to the events that there were.
#[repr(u32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counter {
    /// Put into the ring buffer.
    Sent = 0,
    /// The ring buffer was full.
    RingFull = 1,
    /// A cgroup whose path is longer than an event can carry; the rest of its life is reported.
    PathTooLong = 2,
    /// Memory of the kernel could not be read.
    ReadFailed = 3,
    /// The map of tracked cgroups was full: the life of that cgroup goes unreported.
    TrackedFull = 4,
    /// The process table was full: the end of that process goes unreported.
    ProcessesFull = 5,
}

impl Counter {
    /// Every slot.
    pub const ALL: [Self; 6] = [
        Self::Sent,
        Self::RingFull,
        Self::PathTooLong,
        Self::ReadFailed,
        Self::TrackedFull,
        Self::ProcessesFull,
    ];

    /// The causes of loss.
    pub const LOSSES: [Self; 5] =
        [Self::RingFull, Self::PathTooLong, Self::ReadFailed, Self::TrackedFull, Self::ProcessesFull];

    /// The name in metrics and documents.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::RingFull => "ring_full",
            Self::PathTooLong => "path_too_long",
            Self::ReadFailed => "read_failed",
            Self::TrackedFull => "tracked_full",
            Self::ProcessesFull => "processes_full",
        }
    }
}
