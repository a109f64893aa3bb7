//! What the runtime room tells of itself: for /readyz, metrics and `pods-api doctor`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::cri::RuntimeVersion;
use super::events::EventSource;
use super::live::Divergences;

/// The state of the connection to the runtime.
#[derive(Debug, Clone, Default)]
pub struct RuntimeReport {
    /// The runtime on the other side; `None` while there is none.
    pub runtime: Option<RuntimeVersion>,
    /// The socket it answers on.
    pub socket: Option<PathBuf>,
    /// Where events come from.
    pub events: EventSource,
    /// When the last full list came in.
    pub last_list: Option<Instant>,
    /// How long it took.
    pub last_list_took: Duration,
    /// Pods of which the runtime has anything.
    pub pods: usize,
    /// What failed last, until it works again.
    pub error: Option<String>,
}

impl RuntimeReport {
    /// One line for a person.
    #[must_use]
    pub fn summary(&self, now: Instant) -> String {
        let error = self.error.as_deref().map_or(String::new(), |error| format!("; {error}"));
        let age = self.last_list.map_or("never listed".to_owned(), |at| {
            format!("listed {:.1} s ago", now.saturating_duration_since(at).as_secs_f64())
        });
        match &self.runtime {
            Some(RuntimeVersion { name, version }) => {
                format!("{name} {version}, events: {}, {age}{error}", self.events.as_str())
            }
            None => format!("no runtime answers, {age}{error}"),
        }
    }
}

/// Counters and the report of the runtime room.
///
/// The counters are written by the `runtime` thread, each on its own: Relaxed. The mutex guards the report between
/// that thread and scrapes; neither holds it longer than a copy takes.
#[derive(Debug, Default)]
pub struct RuntimeStatus {
    report: Mutex<RuntimeReport>,
    divergences: Arc<Divergences>,
    lists: AtomicU64,
    reads: AtomicU64,
    failures: AtomicU64,
    events: AtomicU64,
    streams_lost: AtomicU64,
    hints: AtomicU64,
    hints_dropped: AtomicU64,
    sessions: AtomicU64,
}

/// What [`RuntimeStatus`] counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RuntimeCounts {
    /// Full lists taken.
    pub lists: u64,
    /// Reads of single pods.
    pub reads: u64,
    /// Lists and reads that failed.
    pub failures: u64,
    /// Events of the runtime.
    pub events: u64,
    /// Event streams that ended.
    pub streams_lost: u64,
    /// Hints from elsewhere to look at a container.
    pub hints: u64,
    /// Hints that found the queue full, and were answered with a full list.
    pub hints_dropped: u64,
    /// Connections made to a runtime.
    pub sessions: u64,
}

impl RuntimeStatus {
    /// The connection as it stands.
    #[must_use]
    pub fn report(&self) -> RuntimeReport {
        self.report.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// The counters.
    #[must_use]
    pub fn counts(&self) -> RuntimeCounts {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RuntimeCounts {
            lists: of(&self.lists),
            reads: of(&self.reads),
            failures: of(&self.failures),
            events: of(&self.events),
            streams_lost: of(&self.streams_lost),
            hints: of(&self.hints),
            hints_dropped: of(&self.hints_dropped),
            sessions: of(&self.sessions),
        }
    }

    /// How often derived statuses and the kubelet's differed.
    #[must_use]
    pub fn divergences(&self) -> &Arc<Divergences> {
        &self.divergences
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut RuntimeReport)) {
        change(&mut self.report.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
    }

    pub(super) fn count_list(&self) {
        self.lists.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_failure(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_event(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_lost_stream(&self) {
        self.streams_lost.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_session(&self) {
        self.sessions.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_hint(&self, is_dropped: bool) {
        self.hints.fetch_add(1, Ordering::Relaxed);
        if is_dropped {
            self.hints_dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// An error with its causes, in one line.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
