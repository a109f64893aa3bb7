//! The loop of the `manifest` thread: waits for events and deadlines, decides what to look at, publishes.

use super::ManifestConfig;
use super::directory::{self, NameFilter, PathKind};
use super::files::{Files, Layout};
use super::settle::{Change, Settle};
use super::status::{ManifestReport, ManifestStatus};
use super::watch::{Signal, Watch};
use crate::pod::Update;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a missing path is looked for (rule A.6.2); its parent's events are faster.
const MISSING_RETRY: Duration = Duration::from_secs(1);
/// The longest wait after another error with the path (rule A.6.2).
const MAX_BACKOFF: Duration = Duration::from_secs(20);
/// A path that is missing for less than this is being replaced.
const PATH_ABSENCE: Duration = Duration::from_millis(100);

pub(super) struct Worker<S> {
    config: Arc<ManifestConfig>,
    filter: NameFilter,
    /// Makes an inotify instance; tests make none.
    inotify: fn() -> Result<OwnedFd, Errno>,
    status: Arc<ManifestStatus>,
    sink: S,
    files: Files,
    settle: Settle,
    watch: Option<Watch>,
    next_rescan: Option<Instant>,
    /// When to open the path again.
    retry_at: Option<Instant>,
    backoff: Duration,
    missing_since: Option<Instant>,
    path_problem: Option<String>,
    last_scan: Option<Instant>,
    /// Whether the files may have changed since the last publication.
    is_dirty: bool,
}

impl<S: FnMut(Update)> Worker<S> {
    pub(super) fn new(
        config: ManifestConfig,
        status: Arc<ManifestStatus>,
        inotify: fn() -> Result<OwnedFd, Errno>,
        sink: S,
    ) -> Self {
        let config = Arc::new(config);
        Self {
            filter: NameFilter::new(&config.extensions),
            files: Files::new(Arc::clone(&config), Arc::clone(&status)),
            config,
            inotify,
            status,
            sink,
            settle: Settle::default(),
            watch: None,
            next_rescan: None,
            retry_at: None,
            backoff: MISSING_RETRY,
            missing_since: None,
            path_problem: None,
            last_scan: None,
            is_dirty: false,
        }
    }

    /// Runs until `stop`, an eventfd, is readable.
    pub(super) fn run(mut self, stop: &OwnedFd) {
        self.open(Instant::now());
        loop {
            self.publish(Instant::now());
            if self.wait(stop) {
                return;
            }
            let now = Instant::now();
            self.take_events(now);
            self.take_deadlines(now);
        }
    }

    /// Waits for an event, a deadline or the stop; `true` for the stop.
    fn wait(&self, stop: &OwnedFd) -> bool {
        let deadlines = [self.next_rescan, self.retry_at, self.settle.next_due(), self.files.next_contest()];
        let timeout = deadlines.into_iter().flatten().min().map(|deadline| {
            let wait = deadline.saturating_duration_since(Instant::now());
            Timespec::try_from(wait).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
        });
        let mut fds = vec![PollFd::new(stop, PollFlags::IN)];
        let events = self.watch.as_ref().and_then(Watch::events);
        fds.extend(events.iter().map(|events| PollFd::new(events, PollFlags::IN)));
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) => !fds[0].revents().is_empty(),
            Err(Errno::INTR) => false,
            Err(error) => {
                tracing::error!(%error, "poll failed, manifests are not watched any more");
                true
            }
        }
    }

    fn take_events(&mut self, now: Instant) {
        let Some(watch) = &self.watch else { return };
        let (mut reopen, mut rescan, mut links) = (false, false, false);
        let (settle, filter, kind) = (&mut self.settle, &self.filter, watch.kind());
        let read = watch.read(|signal| match signal {
            Signal::File(name, change) => {
                // The configured file counts whatever its name.
                let counts = kind == PathKind::File || filter.takes(&name);
                rescan |= counts && !settle.on_change(&name, change, now);
            }
            Signal::Path => reopen = true,
            Signal::Links => links = true,
            Signal::Overflow => {
                self.status.overflows.add(1);
                rescan = true;
            }
        });
        if let Err(error) = read {
            tracing::warn!(%error, "reading file events failed");
            reopen = true;
        }
        if links {
            for name in self.files.symlinks() {
                rescan |= !self.settle.on_change(&name, Change::Replaced, now);
            }
        }
        if reopen {
            self.open(now);
        } else if rescan {
            self.scan(now);
        }
    }

    fn take_deadlines(&mut self, now: Instant) {
        let passed = |deadline: Option<Instant>| deadline.is_some_and(|deadline| deadline <= now);
        let due = self.settle.take_due(now);
        if !due.is_empty() {
            // A single file may have become something else.
            if self.watch.as_ref().is_some_and(|watch| watch.kind() == PathKind::File && !watch.is_current())
            {
                return self.open(now);
            }
            for name in due {
                self.files.refresh(&name, now);
            }
            self.is_dirty = true;
        }
        if passed(self.retry_at)
            || (passed(self.next_rescan) && !self.watch.as_ref().is_some_and(Watch::is_current))
        {
            self.open(now);
        } else if passed(self.next_rescan) {
            self.scan(now);
        }
        self.is_dirty |= passed(self.files.next_contest());
    }

    /// Opens the watches anew and scans.
    fn open(&mut self, now: Instant) {
        self.retry_at = None;
        self.next_rescan = None;
        self.settle.clear();
        self.watch = match Watch::open(&self.config.path, (self.inotify)()) {
            Ok(watch) => Some(watch),
            Err(error) => return self.fail(&format!("cannot be watched: {error}"), now),
        };
        match self.watch.as_ref().map(Watch::kind) {
            Some(PathKind::Directory) => {
                self.files.set_layout(Layout::Directory);
                self.scan(now);
            }
            Some(PathKind::File) => {
                self.files.set_layout(Layout::File);
                self.scan(now);
            }
            Some(PathKind::Missing) => self.miss(now),
            Some(PathKind::Other) | None => self.fail("is neither a directory nor a regular file", now),
        }
    }

    /// Looks at every file.
    fn scan(&mut self, now: Instant) {
        let names = match self.watch.as_ref().map(Watch::kind) {
            Some(PathKind::Directory) => directory::candidates(&self.config.path, &self.filter),
            Some(PathKind::File) => {
                Ok(self.config.path.file_name().map(OsString::from).into_iter().collect())
            }
            _ => return,
        };
        let names = match names {
            Ok(names) => names,
            // It went away since; the event for that is on its way, and the retry is there if not.
            Err(error) => return self.fail(&format!("cannot be listed: {error}"), now),
        };
        let (settle, limit) = (&self.settle, self.config.retention);
        self.files.rescan(&names, now, |name| settle.is_settling(name, limit, now));
        self.status.rescans.add(1);
        match self.watch.as_ref().and_then(Watch::blindness) {
            Some(error) => {
                let error = std::io::Error::from(error);
                self.set_problem(&format!(
                    "is scanned every {:?} only, there are no events: {error}",
                    self.config.rescan
                ));
            }
            None if self.path_problem.take().is_some() => {
                tracing::info!(path = %self.config.path.display(), files = names.len(), "manifests are there again");
            }
            None => {}
        }
        (self.missing_since, self.backoff) = (None, MISSING_RETRY);
        self.last_scan = Some(now);
        self.next_rescan = Some(now + self.config.rescan);
        self.is_dirty = true;
    }

    /// The path is missing: no static pods (rule A.1.2), after a moment in which it may come back.
    fn miss(&mut self, now: Instant) {
        let since = *self.missing_since.get_or_insert(now);
        let absence = now.duration_since(since);
        let never_scanned = self.last_scan.is_none();
        if absence < PATH_ABSENCE && !never_scanned {
            self.retry_at = Some(since + PATH_ABSENCE);
            return;
        }
        self.retry_at = Some(now + MISSING_RETRY);
        self.set_problem("does not exist");
        self.files.clear();
        self.last_scan = Some(now);
        self.is_dirty = true;
    }

    /// The path cannot be used: what was published stays.
    fn fail(&mut self, problem: &str, now: Instant) {
        self.set_problem(problem);
        self.retry_at = Some(now + self.backoff);
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
        self.next_rescan = None;
        self.report();
    }

    fn set_problem(&mut self, problem: &str) {
        if self.path_problem.as_deref() != Some(problem) {
            tracing::warn!(path = %self.config.path.display(), "path for manifests {problem}");
            self.path_problem = Some(problem.to_owned());
        }
    }

    fn publish(&mut self, now: Instant) {
        if !self.is_dirty {
            return;
        }
        self.is_dirty = false;
        if let Some(update) = self.files.take_changed(now) {
            (self.sink)(update);
        }
        self.report();
    }

    fn report(&self) {
        let mut report = ManifestReport {
            last_scan: self.last_scan,
            path_problem: self.path_problem.clone(),
            ..ManifestReport::default()
        };
        self.files.report(&mut report);
        self.status.set_report(report);
    }
}
