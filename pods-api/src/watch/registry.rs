//! Who watches: one registration per open watch, shared between its worker and whoever asks.

use super::log::Log;
use super::shared_sync::SharedSyncs;
use super::sync::{AtomicU8, AtomicU64, Ordering};
use super::view::{Frame, View};
use crate::pod::{Change, Charge, PodUid, Selector};
use crossbeam::utils::CachePadded;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

/// Names one watch of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatcherId(pub u64);

/// Who opened a watch, as far as known; only shown, never acted upon.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// The process ID, 0 where unknown.
    pub pid: i32,
    /// The user ID.
    pub uid: u32,
    /// The path of the executable, empty where unknown.
    pub executable: Arc<str>,
    /// The pod that it runs in, where known.
    pub pod: Option<PodUid>,
}

impl Caller {
    /// Whether two callers are of the same pod or, outside of pods, run the same executable as the same user. One that is
    /// not known is the same as no other.
    #[must_use]
    pub fn is_same_program(&self, other: &Self) -> bool {
        match (&self.pod, &other.pod) {
            (None, None) => {
                self.uid == other.uid && !self.executable.is_empty() && self.executable == other.executable
            }
            (one, other) => one == other,
        }
    }
}

/// What is known of one open watch.
#[derive(Debug, Clone)]
pub struct WatcherInfo {
    /// The watch's name.
    pub id: WatcherId,
    /// What it shows.
    pub view: View,
    /// Which pods it is about; `None` for all.
    pub selector: Option<Arc<Selector>>,
    /// Whether it asked to be coalesced when slow.
    pub coalesce: bool,
    /// Who opened it.
    pub caller: Caller,
    /// When it was opened.
    pub opened: Instant,
    /// Whether the initial sync has been taken whole.
    pub synced: bool,
    /// Messages taken so far.
    pub sent: u64,
    /// Events that wait.
    pub pending: u64,
}

/// An entry of a view's log.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) change: Arc<Change>,
    /// `None` when the view shows no difference: the entry is there for selectors, whose verdict may have changed.
    pub(super) frame: Option<Frame>,
    pub(super) _charge: Option<Charge>,
}

/// What the writer asks of a watcher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Signal {
    None = 0,
    /// Too many bytes are pinned and this watcher is among the oldest readers.
    Cut = 1,
    /// The server stops.
    Close = 2,
}

/// `oldest` of a watcher that pins nothing.
pub(super) const PINS_NOTHING: u64 = u64::MAX;

/// One open watch.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) id: WatcherId,
    pub(super) view: View,
    pub(super) selector: Option<Arc<Selector>>,
    pub(super) coalesce: bool,
    pub(super) caller: Caller,
    pub(super) opened: Instant,
    /// On a cache line of their own: the worker writes them with each frame, others seldom read.
    pub(super) counters: CachePadded<Counters>,
}

/// What the worker tells of its watcher, and the writer's signal to it. All accesses are Relaxed: each value stands
/// alone, and the waker that follows a signal orders it before the worker's look.
#[derive(Debug)]
pub(super) struct Counters {
    pub(super) sent: AtomicU64,
    pub(super) pending: AtomicU64,
    /// The revision of the oldest event or snapshot that the watcher pins.
    pub(super) oldest: AtomicU64,
    synced: AtomicU8,
    signal: AtomicU8,
}

impl Registration {
    pub(super) fn signal(&self) -> Signal {
        match self.counters.signal.load(Ordering::Relaxed) {
            0 => Signal::None,
            1 => Signal::Cut,
            _ => Signal::Close,
        }
    }

    pub(super) fn send_signal(&self, signal: Signal) {
        self.counters.signal.store(signal as u8, Ordering::Relaxed);
    }

    pub(super) fn set_synced(&self) {
        self.counters.synced.store(1, Ordering::Relaxed);
    }

    fn info(&self) -> WatcherInfo {
        WatcherInfo {
            id: self.id,
            view: self.view.clone(),
            selector: self.selector.clone(),
            coalesce: self.coalesce,
            caller: self.caller.clone(),
            opened: self.opened,
            synced: self.counters.synced.load(Ordering::Relaxed) != 0,
            sent: self.counters.sent.load(Ordering::Relaxed),
            pending: self.counters.pending.load(Ordering::Relaxed),
        }
    }
}

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            sent: AtomicU64::new(0),
            pending: AtomicU64::new(0),
            oldest: AtomicU64::new(PINS_NOTHING),
            synced: AtomicU8::new(0),
            signal: AtomicU8::new(Signal::None as u8),
        }
    }
}

/// A log, the view it is for, and what the initial syncs of its watchers share.
#[derive(Debug)]
pub(super) struct ViewLog {
    pub(super) view: View,
    pub(super) log: Log<Entry>,
    pub(super) syncs: SharedSyncs,
}

/// Every log that is watched and every watcher. Guarded by the hub's mutex, which is held for a look-up or an insertion
/// and never while frames are made or sent.
#[derive(Debug, Default)]
pub(super) struct Registry {
    pub(super) closed: bool,
    logs: HashMap<View, (Arc<ViewLog>, usize)>,
    /// The logs of `logs`, for the writer to take away in one step.
    active: Arc<[Arc<ViewLog>]>,
    watchers: HashMap<WatcherId, Arc<Registration>>,
    last_id: u64,
}

impl Registry {
    pub(super) fn active(&self) -> Arc<[Arc<ViewLog>]> {
        self.active.clone()
    }

    pub(super) fn watchers(&self) -> impl Iterator<Item = &Arc<Registration>> {
        self.watchers.values()
    }

    pub(super) fn watcher_count(&self) -> usize {
        self.watchers.len()
    }

    pub(super) fn view_count(&self) -> usize {
        self.logs.len()
    }

    pub(super) fn contains(&self, view: &View) -> bool {
        self.logs.contains_key(view)
    }

    pub(super) fn infos(&self) -> Vec<WatcherInfo> {
        let mut infos: Vec<_> = self.watchers.values().map(|watcher| watcher.info()).collect();
        infos.sort_by_key(|info| info.id);
        infos
    }

    pub(super) fn next_id(&mut self) -> WatcherId {
        self.last_id += 1;
        WatcherId(self.last_id)
    }

    /// Adds a watcher and gives it its view's log, which is made for the first one.
    pub(super) fn insert(&mut self, registration: Arc<Registration>) -> Arc<ViewLog> {
        let view = &registration.view;
        if !self.logs.contains_key(view) {
            let log = ViewLog { view: view.clone(), log: Log::new(), syncs: SharedSyncs::new() };
            let log = Arc::new(log);
            self.logs.insert(view.clone(), (log, 0));
            self.list_active();
        }
        let (log, watchers) = self.logs.get_mut(view).expect("inserted above if it was missing");
        *watchers += 1;
        let log = log.clone();
        self.watchers.insert(registration.id, registration);
        log
    }

    /// Removes a watcher, and its log with the last one.
    pub(super) fn remove(&mut self, registration: &Registration) {
        self.watchers.remove(&registration.id);
        let Some((_, watchers)) = self.logs.get_mut(&registration.view) else { return };
        *watchers -= 1;
        if *watchers == 0 {
            self.logs.remove(&registration.view);
            self.list_active();
        }
    }

    fn list_active(&mut self) {
        self.active = self.logs.values().map(|(log, _)| log.clone()).collect();
    }
}

#[cfg(test)]
mod tests {
    use super::Caller;

    fn caller(executable: &str, pod: Option<&str>) -> Caller {
        Caller { pid: 1, uid: 1000, executable: executable.into(), pod: pod.map(Into::into) }
    }

    #[test]
    fn callers_of_one_pod_or_of_one_known_program_are_the_same() {
        let agent = caller("/bin/agent", None);
        assert!(agent.is_same_program(&agent));
        assert!(!agent.is_same_program(&caller("/bin/other", None)));
        assert!(!agent.is_same_program(&Caller { uid: 1001, ..agent.clone() }));
        assert!(!agent.is_same_program(&caller("/bin/agent", Some("u1"))));
        assert!(caller("/bin/other", Some("u1")).is_same_program(&caller("", Some("u1"))));
        // Of two whose executables could not be read nobody knows.
        assert!(!caller("", None).is_same_program(&caller("", None)));
    }
}
