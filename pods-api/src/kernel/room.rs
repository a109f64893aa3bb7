//! The one `kernel` thread: waits for events, reads the hierarchy when it must, and keeps time for the tracker.
//!
//! Nothing that fails here takes the server down: without events there are rescans, without a hierarchy the container
//! runtime tells of ends, later; all of it shows in the report.

use super::cgroup_path::CgroupRoot;
use super::event::{CgroupMap, Feed, KernelEvent};
use super::fallback::Fallback;
use super::hierarchy::Hierarchy;
use super::scan::{Scan, scan};
use super::tracker::{Hint, Tracker};
use super::view::KernelView;
use crate::pod::{Pid, PodStore};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::fmt;
use std::io;
use std::os::fd::AsFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Scans that others wish for are not made more often than this.
const MIN_SCAN_INTERVAL: Duration = Duration::from_secs(1);
/// And so that they take at most one part in so many of this thread's time: with a thousand pods a scan takes half a
/// second, and any caller may wish for one.
const MIN_SCAN_REST: u32 = 10;
/// The time between scans while events tell of everything: what they told of wrongly is mended. inotify does not see
/// what containers make below themselves, which is looked for when somebody asks, nor a `kubepods` that comes deep down.
const SCAN_INTERVAL: Duration = Duration::from_secs(300);
/// With fewer inotify watches than there are cgroups.
const SCAN_INTERVAL_WITH_SHORTAGE: Duration = Duration::from_secs(30);
/// Without any events.
const SCAN_INTERVAL_WITHOUT_EVENTS: Duration = Duration::from_secs(5);
/// After events the next ones are let gather for this long: a busy node's thousands a second are then read some at a
/// time, and the kernel, which finds nobody waiting, spares the waking that costs it far more than the event itself.
const GATHER: Duration = Duration::from_millis(4);
/// The number of the machine's first PID namespace, whose process numbers the kernel's events carry.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// A feed and what it is called.
pub type NamedFeed = (&'static str, Box<dyn Feed>);

/// How the kernel side is watched.
pub struct KernelConfig {
    /// Where pods lie.
    pub root: CgroupRoot,
    /// How long removed cgroups stay findable.
    pub keep: Duration,
    /// Events from the kernel; without, inotify is used.
    pub feed: Option<NamedFeed>,
    /// The node's map in the kernel.
    pub map: Option<Box<dyn CgroupMap>>,
    /// Takes what the container runtime should be asked about. Must not block.
    pub hint: Box<dyn FnMut(Hint) + Send>,
    /// The pods, for their names.
    pub store: PodStore,
}

impl fmt::Debug for KernelConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KernelConfig")
            .field("root", &self.root)
            .field("feed", &self.feed)
            .finish_non_exhaustive()
    }
}

/// The running room. Dropping it stops it.
#[derive(Debug)]
pub struct KernelRoom {
    view: Arc<KernelView>,
    /// Tells the thread to end; the view's bell makes it look. Relaxed: the bell orders it.
    is_stopping: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl KernelRoom {
    /// Starts the `kernel` thread.
    ///
    /// # Errors
    /// The thread or its bell cannot be made. That nothing can be watched is no error: it shows in the report.
    pub fn spawn(config: KernelConfig) -> io::Result<Self> {
        Self::spawn_over(config, Hierarchy::mounted)
    }

    fn spawn_over(
        config: KernelConfig,
        mounted: impl Fn() -> io::Result<Vec<Hierarchy>> + Send + 'static,
    ) -> io::Result<Self> {
        let view = KernelView::new()?;
        let is_stopping = Arc::new(AtomicBool::new(false));
        let tracker = Tracker::new(config.root.clone(), config.keep, config.map, config.hint, view.clone());
        let mut room = Room {
            root: config.root,
            tracker,
            feed: config.feed,
            fallback: None,
            store: config.store,
            view: view.clone(),
            is_stopping: is_stopping.clone(),
            mounted: Box::new(mounted),
            are_pids_ours: is_in_first_pid_namespace(),
            is_v2: false,
            last_scan: None,
            scan_took: Duration::ZERO,
            next_scan: Instant::now(),
        };
        let thread = thread::Builder::new().name("kernel".to_owned()).spawn(move || {
            // The room shares nothing but its view, whose parts are each whole at any time.
            if catch_unwind(AssertUnwindSafe(|| room.run())).is_err() {
                tracing::error!("the kernel thread has panicked: cgroups are no longer watched");
                room.view.change(|report| report.has_failed = true);
            }
        })?;
        Ok(Self { view, is_stopping, thread: Some(thread) })
    }

    /// What the room shows.
    #[must_use]
    pub fn view(&self) -> &Arc<KernelView> {
        &self.view
    }
}

impl Drop for KernelRoom {
    fn drop(&mut self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        self.view.ring();
        if let Some(thread) = self.thread.take() {
            // A panic has been reported by the thread itself.
            let _ = thread.join();
        }
    }
}

/// How far the events of the kernel's programs were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Drained {
    /// There were none.
    Idle,
    /// There were some, all of which were read.
    Busy,
    /// There are more.
    Partly,
}

/// Everything that the thread owns.
struct Room {
    root: CgroupRoot,
    tracker: Tracker<Box<dyn FnMut(Hint) + Send>>,
    feed: Option<NamedFeed>,
    fallback: Option<Fallback>,
    store: PodStore,
    view: Arc<KernelView>,
    is_stopping: Arc<AtomicBool>,
    mounted: Box<dyn Fn() -> io::Result<Vec<Hierarchy>> + Send>,
    /// Whether the numbers in the kernel's events are those of our PID namespace.
    are_pids_ours: bool,
    /// Whether what is followed is cgroup2, which alone the kernel's events are about.
    is_v2: bool,
    last_scan: Option<Instant>,
    scan_took: Duration,
    next_scan: Instant,
}

impl Room {
    fn run(&mut self) {
        while !self.is_stopping.load(Ordering::Relaxed) {
            let mut drained = self.drain();
            if self.view.take_scan_wish() | self.tracker.take_scan_wish() {
                let rest = MIN_SCAN_INTERVAL.max(self.scan_took * MIN_SCAN_REST);
                let soonest = self.last_scan.map_or_else(Instant::now, |last| last + rest);
                self.next_scan = self.next_scan.min(soonest);
            }
            // Events that are older than a scan come before it: of what they tell, it knows the end.
            if drained != Drained::Partly && self.next_scan <= Instant::now() {
                self.scan();
                drained = drained.max(self.drain());
            }
            self.tracker.advance(Instant::now(), &self.store.load());
            if drained != Drained::Partly {
                self.wait(drained == Drained::Busy);
            }
        }
    }

    /// Hands the events that are there to the tracker, of the kernel's programs so many at a time.
    fn drain(&mut self) -> Drained {
        let (pods, now) = (self.store.load(), Instant::now());
        let (mut is_busy, mut is_all) = (false, true);
        let Self { tracker, feed, fallback, is_v2, are_pids_ours, .. } = self;
        if let Some((_, feed)) = feed {
            is_all = feed.drain(&mut |event| {
                is_busy = true;
                let is_of_processes = matches!(
                    event,
                    KernelEvent::ProcessAttached { .. }
                        | KernelEvent::ProcessExecuted { .. }
                        | KernelEvent::ProcessExited { .. }
                );
                // Of pods in v1 hierarchies only losses matter.
                let is_meant = *is_v2 && (*are_pids_ours || !is_of_processes);
                if is_meant || matches!(event, KernelEvent::EventsLost { .. }) {
                    tracker.apply(event, now, &pods);
                }
            });
        }
        if let Some(fallback) = fallback {
            fallback.drain(&mut |event| tracker.apply(event, now, &pods));
        }
        match (is_all, is_busy) {
            (false, _) => Drained::Partly,
            (true, true) => Drained::Busy,
            (true, false) => Drained::Idle,
        }
    }

    /// Reads the hierarchy in which the pods are, and watches it.
    fn scan(&mut self) {
        let now = Instant::now();
        let mut problems = Vec::new();
        let found = self.choose(&mut problems);
        self.view.scans.fetch_add(1, Ordering::Relaxed);
        self.last_scan = Some(now);
        if let Some((hierarchy, scan)) = &found {
            self.is_v2 = hierarchy.is_v2;
            self.tracker.take_scan(scan, hierarchy.is_v2, now, &self.store.load());
            if let Some(missing) = &scan.missing {
                problems.push(format!("the cgroup hierarchy is not read whole: {missing}"));
            }
            self.follow(hierarchy, scan, &mut problems);
        }
        if self.feed.is_some() {
            if self.are_pids_ours {
                self.tracker.sweep(now, |pid: Pid| Path::new(&format!("/proc/{pid}")).exists());
            } else {
                problems.push(
                    "this server runs in a PID namespace of its own (hostPID), so that processes which have ended are \
                     not found by number"
                        .to_owned(),
                );
            }
        }
        let events = match (&self.feed, &self.fallback) {
            (Some((name, _)), None) => Some(*name),
            (_, Some(_)) => Some("inotify"),
            (None, None) => None,
        };
        let is_short = self.fallback.as_ref().is_some_and(|fallback| fallback.shortage().is_some());
        self.next_scan = now
            + match events {
                Some(_) if is_short => SCAN_INTERVAL_WITH_SHORTAGE,
                Some(_) => SCAN_INTERVAL,
                None => SCAN_INTERVAL_WITHOUT_EVENTS,
            };
        self.scan_took = now.elapsed();
        let mount = found.map(|(hierarchy, _)| hierarchy.mount.display().to_string());
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        let before = self.view.report();
        if (&before.hierarchy, &before.problem, before.events) != (&mount, &problem, events) {
            tracing::info!(hierarchy = mount, events, problem, "cgroups are followed");
        }
        self.view.change(|report| {
            report.hierarchy = mount;
            report.problem = problem;
            report.events = events;
            report.last_scan = Some(now);
        });
    }

    /// The hierarchy in which there are pods; without pods, the best there is.
    fn choose(&self, problems: &mut Vec<String>) -> Option<(Hierarchy, Scan)> {
        let mounted = (self.mounted)().unwrap_or_else(|error| {
            problems.push(format!("/proc/self/mountinfo: {error}"));
            Vec::new()
        });
        let mut best = None;
        for hierarchy in mounted {
            match scan(&hierarchy, &self.root) {
                Ok(scan) if !scan.cgroups.is_empty() => return Some((hierarchy, scan)),
                Ok(scan) => best = best.or(Some((hierarchy, scan))),
                Err(error) => problems.push(format!("{}: {error}", hierarchy.mount.display())),
            }
        }
        if best.is_none() {
            problems.push("no cgroup hierarchy can be read; mount the node's /sys/fs/cgroup".to_owned());
        }
        best
    }

    /// Has inotify watch a hierarchy that the kernel's events are not about.
    fn follow(&mut self, hierarchy: &Hierarchy, scan: &Scan, problems: &mut Vec<String>) {
        if hierarchy.is_v2 && self.feed.is_some() {
            self.fallback = None;
            return;
        }
        if self.fallback.as_ref().is_none_or(|fallback| fallback.hierarchy() != hierarchy) {
            self.fallback = match Fallback::new(hierarchy.clone(), self.root.clone()) {
                Ok(fallback) => Some(fallback),
                Err(error) => {
                    problems.push(format!("inotify: {error}; raise fs.inotify.max_user_instances"));
                    None
                }
            };
        }
        let Some(fallback) = &mut self.fallback else { return };
        fallback.follow(scan);
        if let Some(error) = fallback.shortage() {
            problems.push(format!(
                "not all cgroups are watched: {error}; raise fs.inotify.max_user_watches, or let eBPF be loaded"
            ));
        }
    }

    /// Waits for events, the bell, or what comes due; after events, for more of them to gather.
    fn wait(&self, is_busy: bool) {
        let due = self.tracker.next_due().map_or(self.next_scan, |due| due.min(self.next_scan));
        let time = due.saturating_duration_since(Instant::now());
        let time = if is_busy { time.min(GATHER) } else { time };
        let mut fds = vec![PollFd::new(&self.view.bell, PollFlags::IN)];
        let feed = self.feed.iter().filter(|_| !is_busy);
        fds.extend(feed.map(|(_, feed)| PollFd::from_borrowed_fd(feed.fd(), PollFlags::IN)));
        fds.extend(
            self.fallback.iter().map(|fallback| PollFd::from_borrowed_fd(fallback.fd(), PollFlags::IN)),
        );
        let timeout = Timespec { tv_sec: time.as_secs().cast_signed(), tv_nsec: time.subsec_nanos().into() };
        // An error is an interruption: the loop looks at everything anyway.
        let _ = poll(&mut fds, Some(&timeout));
        let _ = rustix::io::read(self.view.bell.as_fd(), &mut [0; 8]);
    }
}

pub(super) fn is_in_first_pid_namespace() -> bool {
    std::fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == FIRST_PID_NAMESPACE)
}

#[cfg(test)]
#[path = "room_tests.rs"]
mod tests;
