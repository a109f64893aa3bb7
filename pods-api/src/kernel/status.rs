//! What metrics and readiness show of the kernel programs. Written by the `kernel` thread, read by the control thread.

use super::refusal::Refusal;
use aya::maps::{MapData, PerCpuArray, PerCpuValues};
use pods_api_common::{Counters, EventKind};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// What came of loading the programs.
#[derive(Debug, Clone)]
pub enum EbpfState {
    /// They are at work.
    Attached(Arc<EbpfStatus>),
    /// They are not, and everything that they tell is learned later.
    Refused(Arc<Refusal>),
}

impl EbpfState {
    /// What a person wants to know of it, in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        match self {
            Self::Attached(status) => status.summary(),
            Self::Refused(refusal) => format!("not used: {refusal}"),
        }
    }

    /// `attached`, or one word for why not.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Attached(_) => "attached",
            Self::Refused(refusal) => refusal.label(),
        }
    }

    /// The counters, where there are any.
    #[must_use]
    pub fn status(&self) -> Option<&EbpfStatus> {
        match self {
            Self::Attached(status) => Some(status),
            Self::Refused(_) => None,
        }
    }
}

/// The programs' counters and ours.
///
/// The atomics are counts of the `kernel` thread alone, read by scrapes: no order between them is needed.
pub struct EbpfStatus {
    counters: PerCpuArray<MapData, Counters>,
    ring_bytes: u32,
    pins_problem: Option<String>,
    received: [AtomicU64; KINDS.len()],
    map_failures: AtomicU64,
}

/// Kinds of events with their names in metrics, in the order of their numbers.
const KINDS: [(EventKind, &str); 7] = [
    (EventKind::CgroupCreated, "cgroup_created"),
    (EventKind::CgroupPopulated, "cgroup_populated"),
    (EventKind::CgroupReleased, "cgroup_released"),
    (EventKind::ProcessAttached, "process_attached"),
    (EventKind::ProcessExecuted, "process_executed"),
    (EventKind::ProcessExited, "process_exited"),
    (EventKind::OomKilled, "oom_killed"),
];

impl fmt::Debug for EbpfStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EbpfStatus").field("ring_bytes", &self.ring_bytes).finish_non_exhaustive()
    }
}

impl EbpfStatus {
    pub(super) fn new(
        counters: PerCpuArray<MapData, Counters>,
        ring_bytes: u32,
        pins_problem: Option<String>,
    ) -> Self {
        Self {
            counters,
            ring_bytes,
            pins_problem,
            received: Default::default(),
            map_failures: AtomicU64::new(0),
        }
    }

    /// The counters of each CPU, as the programs have them now.
    #[must_use]
    pub fn counters(&self) -> Vec<Counters> {
        let values: Option<PerCpuValues<Counters>> = self.counters.get(&0, 0).ok();
        values.map(|values| values.to_vec()).unwrap_or_default()
    }

    /// Events that the programs could not report.
    pub(super) fn lost(&self) -> u64 {
        self.counters().iter().map(Counters::lost).sum()
    }

    pub(super) fn count_received(&self, kind: EventKind) {
        // Kinds are numbered from 1.
        self.received[kind as usize - 1].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_map_failure(&self) {
        self.map_failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Events read, by kind.
    pub fn received(&self) -> impl Iterator<Item = (&'static str, u64)> {
        KINDS.iter().zip(&self.received).map(|((_, name), count)| (*name, count.load(Ordering::Relaxed)))
    }

    /// Entries that could not be written into the map for others.
    pub fn map_failures(&self) -> u64 {
        self.map_failures.load(Ordering::Relaxed)
    }

    /// What a person wants to know of it, in one line.
    #[must_use]
    pub fn summary(&self) -> String {
        let received: u64 = self.received().map(|(_, count)| count).sum();
        let mut text = format!(
            "attached, ring buffer of {} KiB, {received} events, {} lost",
            self.ring_bytes / 1024,
            self.lost()
        );
        if let Some(problem) = &self.pins_problem {
            text = format!("{text}; not pinned: {problem}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_in_the_order_of_their_numbers() {
        for (index, (kind, _)) in KINDS.iter().enumerate() {
            assert_eq!(*kind as usize, index + 1);
        }
    }
}
