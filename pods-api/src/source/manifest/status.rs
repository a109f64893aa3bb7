//! What the source tells others about itself: for /readyz, metrics and tests.

use arc_swap::ArcSwap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Failing files that a report names; the rest is only counted.
pub(super) const MAX_NAMED: usize = 32;

/// The state of the manifest source. Written by its thread alone; readers load a report and never wait.
#[derive(Debug, Default)]
pub struct ManifestStatus {
    report: ArcSwap<ManifestReport>,
    pub(super) decode_failures: Counter,
    pub(super) duplicates: Counter,
    pub(super) rescans: Counter,
    pub(super) overflows: Counter,
}

/// One view of the source.
#[derive(Debug, Clone, Default)]
pub struct ManifestReport {
    /// When the path was last scanned in full; `None` before the first time.
    pub last_scan: Option<Instant>,
    /// That the path is missing, cannot be used, or cannot be watched for changes.
    pub path_problem: Option<String>,
    /// Candidate files.
    pub files: usize,
    /// Pods published.
    pub pods: usize,
    /// Files that cannot be read or decoded.
    pub failing: usize,
    /// The first of them in path order, with the reason, which begins with the path.
    pub failures: Vec<(PathBuf, String)>,
    /// Files whose pod another file has too and wins (MAN-1).
    pub duplicates: usize,
}

impl ManifestStatus {
    /// The newest report.
    #[must_use]
    pub fn report(&self) -> Arc<ManifestReport> {
        self.report.load_full()
    }

    pub(super) fn set_report(&self, report: ManifestReport) {
        self.report.store(Arc::new(report));
    }

    /// Manifests that could not be read or decoded, once for each new reason.
    #[must_use]
    pub fn decode_failures_total(&self) -> u64 {
        self.decode_failures.get()
    }

    /// Files found to have a pod that another file has too.
    #[must_use]
    pub fn duplicates_total(&self) -> u64 {
        self.duplicates.get()
    }

    /// Full scans.
    #[must_use]
    pub fn rescans_total(&self) -> u64 {
        self.rescans.get()
    }

    /// Overflows of the kernel's event queue; each was followed by a full scan.
    #[must_use]
    pub fn overflows_total(&self) -> u64 {
        self.overflows.get()
    }
}

/// A count that one thread raises and any thread reads. Relaxed: it orders nothing else.
#[derive(Debug, Default)]
pub(super) struct Counter(AtomicU64);

impl Counter {
    pub(super) fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
