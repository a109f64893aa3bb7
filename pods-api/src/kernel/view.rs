//! What the kernel room shows to everyone else: its tables, its report and its counters.

use super::cgroups::Cgroups;
use super::processes::Processes;
use crate::pod::{Loaded, Published};
use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Waker;
use std::time::Instant;

/// The tables at one moment.
#[derive(Debug, Clone, Default)]
pub(super) struct Tables {
    pub(super) cgroups: Cgroups,
    pub(super) processes: Processes,
    /// Whether the numbers of cgroups are those that programs in the kernel see.
    pub(super) is_v2: bool,
}

/// The room as it stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KernelReport {
    /// Where events come from, e.g. `inotify`; `None` if from nowhere.
    pub events: Option<&'static str>,
    /// Where the hierarchy that is followed is mounted; `None` if there is none.
    pub hierarchy: Option<String>,
    /// What does not work, and what follows from that.
    pub problem: Option<String>,
    /// When the hierarchy was read last as a whole.
    pub last_scan: Option<Instant>,
    /// Whether the thread has ended without being told to.
    pub has_failed: bool,
}

/// What the room counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct KernelCounts {
    /// Cgroups of pods that are known, those that were just removed included.
    pub cgroups: usize,
    /// Those of them that a runtime made for a container or sandbox.
    pub containers: usize,
    /// Processes of pods that events told of.
    pub processes: usize,
    /// Events taken.
    pub events: u64,
    /// Events that were lost.
    pub lost: u64,
    /// Times that the hierarchy was read as a whole.
    pub scans: u64,
    /// Containers whose pod no source has told of in time.
    pub unknown: u64,
}

/// Tables, report and counters.
///
/// The kernel thread writes; requests and scrapes read. Counters stand each on their own: Relaxed.
#[derive(Debug)]
pub struct KernelView {
    tables: Published<Tables>,
    /// Guards the report between the thread and scrapes; held for a copy.
    report: Mutex<KernelReport>,
    /// Woken after each publication; held while they are, which no waker of ours blocks in.
    wakers: Mutex<Vec<Waker>>,
    /// Set by whoever wants the hierarchy read anew, cleared by the thread. Relaxed: `bell` orders it.
    is_scan_wanted: AtomicBool,
    /// Rung to wake the thread.
    pub(super) bell: OwnedFd,
    pub(super) events: AtomicU64,
    pub(super) lost: AtomicU64,
    pub(super) scans: AtomicU64,
    pub(super) unknown: AtomicU64,
}

impl KernelView {
    pub(super) fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            tables: Published::new(Arc::default()),
            report: Mutex::default(),
            wakers: Mutex::default(),
            is_scan_wanted: AtomicBool::new(false),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            events: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            scans: AtomicU64::new(0),
            unknown: AtomicU64::new(0),
        }))
    }

    /// The room as it stands.
    #[must_use]
    pub fn report(&self) -> KernelReport {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> KernelCounts {
        let tables = self.tables.load();
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        KernelCounts {
            cgroups: tables.cgroups.len(),
            containers: tables.cgroups.container_count(),
            processes: tables.processes.len(),
            events: of(&self.events),
            lost: of(&self.lost),
            scans: of(&self.scans),
            unknown: of(&self.unknown),
        }
    }

    /// One line for a person.
    #[must_use]
    pub fn summary(&self, now: Instant) -> String {
        let (report, counts) = (self.report(), self.counts());
        if report.has_failed {
            return "the kernel thread has failed: containers' ends are seen later, through the runtime"
                .to_owned();
        }
        let mut text = match &report.hierarchy {
            Some(mount) => format!(
                "{} cgroups of pods below {mount}, {} of containers, events: {}",
                counts.cgroups,
                counts.containers,
                report.events.unwrap_or("none")
            ),
            None => "no cgroup hierarchy".to_owned(),
        };
        if let Some(scan) = report.last_scan {
            text = format!("{text}, read {} s ago", now.saturating_duration_since(scan).as_secs());
        }
        if counts.lost > 0 {
            text = format!("{text}, {} events lost", counts.lost);
        }
        if let Some(problem) = &report.problem {
            text = format!("{text}; {problem}");
        }
        text
    }

    pub(super) fn tables(&self) -> Loaded<Tables> {
        self.tables.load()
    }

    pub(super) fn add_waker(&self, waker: &Waker) {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker.clone());
    }

    /// Has the hierarchy read anew soon.
    pub(super) fn request_scan(&self) {
        self.is_scan_wanted.store(true, Ordering::Relaxed);
        self.ring();
    }

    pub(super) fn take_scan_wish(&self) -> bool {
        self.is_scan_wanted.swap(false, Ordering::Relaxed)
    }

    pub(super) fn ring(&self) {
        // Fails only when it has been rung 2^64 times without being heard: it rings already.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut KernelReport)) {
        change(&mut self.report.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn publish(&self, tables: Tables) {
        self.tables.store(Arc::new(tables));
        for waker in self.wakers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            waker.wake_by_ref();
        }
    }
}
