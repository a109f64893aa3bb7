//! Joins the store with the watchers: subscription on one side, publication on the other.
//!
//! **Nothing lost, nothing twice.** The store publishes a snapshot first and then has [`Publisher::publish`] append its
//! events. A subscriber first registers with its log and takes a place in it, and only then loads the snapshot; it
//! skips entries that are not newer. Both sides take the registry's mutex in between: if the writer took it first, the
//! subscriber loads that snapshot or a later one; if the subscriber did, the writer appends to its log.

use super::registry::{Counters, Entry, PINS_NOTHING, Registration, Registry, Signal, WatcherInfo};
use super::sync::{Mutex, Ordering};
use super::view::View;
use super::watcher::{WatchOptions, Watcher};
use crate::pod::{ByteMeter, Change, EventSink, Published, Snapshot};
use crossbeam::utils::CachePadded;
use std::sync::Arc;
use std::sync::atomic::AtomicU64 as StatCounter;
use std::task::Waker;
use std::time::Instant;

/// The bounds of the watch engine.
#[derive(Debug, Clone, Copy)]
pub struct HubConfig {
    /// Watches open at once.
    pub max_watchers: usize,
    /// Distinct views watched at once.
    pub max_views: usize,
    /// Bytes of pods and frames that are kept only because a watcher has not read them yet. Beyond it the watchers that
    /// are furthest behind are ended.
    pub max_pinned_bytes: usize,
}

impl Default for HubConfig {
    fn default() -> Self {
        Self { max_watchers: 4096, max_views: 256, max_pinned_bytes: 256 * 1024 * 1024 }
    }
}

/// Why a watch cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SubscribeError {
    /// The limit of open watches is reached.
    #[error("too many watches: the limit is {limit}")]
    TooManyWatchers {
        /// The limit.
        limit: usize,
    },
    /// The limit of distinct views is reached.
    #[error("too many distinct field masks: the limit is {limit}")]
    TooManyViews {
        /// The limit.
        limit: usize,
    },
    /// The server stops.
    #[error("the server is shutting down")]
    Closed,
}

/// What the hub counts. Relaxed: each value stands alone.
#[derive(Debug, Default)]
pub struct HubStats {
    dropped: StatCounter,
    cut_for_memory: StatCounter,
    coalesced: StatCounter,
    pinned_bytes: StatCounter,
}

impl HubStats {
    /// Watches that were ended because they lagged (`kubelet_pod_watch_events_dropped_total` counts each once, as the
    /// kubelet does).
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Those of [`HubStats::dropped`] that were ended to free memory.
    #[must_use]
    pub fn cut_for_memory(&self) -> u64 {
        self.cut_for_memory.load(Ordering::Relaxed)
    }

    /// How often a watch turned from single events to the newest state per pod.
    #[must_use]
    pub fn coalesced(&self) -> u64 {
        self.coalesced.load(Ordering::Relaxed)
    }

    /// The bytes pinned by watchers at the last publication.
    #[must_use]
    pub fn pinned_bytes(&self) -> u64 {
        self.pinned_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn count_dropped(&self, for_memory: bool) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        if for_memory {
            self.cut_for_memory.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn count_coalesced(&self) {
        self.coalesced.fetch_add(1, Ordering::Relaxed);
    }
}

/// Names a registered waker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WakerId(u64);

/// Where watches are opened. Cheap to clone; used by every worker.
#[derive(Debug, Clone)]
pub struct Hub {
    shared: Arc<Shared>,
}

#[derive(Debug)]
pub(super) struct Shared {
    snapshot: Arc<Published<Snapshot>>,
    pub(super) meter: ByteMeter,
    config: HubConfig,
    registry: Mutex<Registry>,
    wakers: Mutex<Wakers>,
    pub(super) stats: HubStats,
}

/// Who is woken after a publication; guarded by its mutex, which nobody holds while waking.
#[derive(Debug, Default)]
struct Wakers {
    /// The waker, its name, and how often it was added.
    registered: Vec<(Waker, WakerId, usize)>,
    list: Arc<[Waker]>,
    last_id: u64,
}

/// The writer's end of the hub. Owned by the store's thread: there is one, and it is not cloned.
#[derive(Debug)]
pub struct Publisher {
    shared: Arc<Shared>,
}

impl Hub {
    /// Makes the hub of the server, for the snapshots published in `snapshot` and the bytes counted in `meter`.
    #[must_use]
    pub fn new(snapshot: Arc<Published<Snapshot>>, meter: ByteMeter, config: HubConfig) -> (Self, Publisher) {
        let shared = Arc::new(Shared {
            snapshot,
            meter,
            config,
            registry: Mutex::new(Registry::default()),
            wakers: Mutex::new(Wakers::default()),
            stats: HubStats::default(),
        });
        (Self { shared: shared.clone() }, Publisher { shared })
    }

    /// Opens a watch. It begins with the snapshot of this moment and misses nothing after it.
    ///
    /// # Errors
    /// When a limit is reached or the server stops.
    pub fn subscribe(&self, view: View, options: WatchOptions) -> Result<Watcher, SubscribeError> {
        let HubConfig { max_watchers, max_views, .. } = self.shared.config;
        let mut registry = self.shared.registry.lock().expect(REGISTRY_HOLDERS);
        if registry.closed {
            return Err(SubscribeError::Closed);
        }
        if registry.watcher_count() >= max_watchers {
            return Err(SubscribeError::TooManyWatchers { limit: max_watchers });
        }
        if !registry.contains(&view) && registry.view_count() >= max_views {
            return Err(SubscribeError::TooManyViews { limit: max_views });
        }
        let registration = Arc::new(Registration {
            id: registry.next_id(),
            view,
            selector: options.selector,
            coalesce: options.coalesce,
            caller: options.caller,
            opened: Instant::now(),
            counters: CachePadded::new(Counters::new()),
        });
        let log = registry.insert(registration.clone());
        drop(registry);
        // First the place in the log, then the snapshot; see the module's description.
        let reader = log.log.reader();
        let snapshot = self.shared.snapshot.load_full();
        Ok(Watcher::new(self.shared.clone(), registration, log, reader, snapshot, options.ring))
    }

    /// Has `waker` woken after each publication, until [`Hub::remove_waker`]. Wakers that wake the same task are kept
    /// once, so that connections may register their worker's and the writer still wakes each worker once.
    pub fn add_waker(&self, waker: &Waker) -> WakerId {
        let mut wakers = self.shared.wakers.lock().expect(WAKER_HOLDERS);
        if let Some((_, id, count)) = wakers.registered.iter_mut().find(|(known, ..)| known.will_wake(waker))
        {
            *count += 1;
            return *id;
        }
        wakers.last_id += 1;
        let id = WakerId(wakers.last_id);
        wakers.registered.push((waker.clone(), id, 1));
        wakers.list();
        id
    }

    /// Undoes one [`Hub::add_waker`].
    pub fn remove_waker(&self, id: WakerId) {
        let mut wakers = self.shared.wakers.lock().expect(WAKER_HOLDERS);
        let Some(index) = wakers.registered.iter().position(|(_, known, _)| *known == id) else { return };
        wakers.registered[index].2 -= 1;
        if wakers.registered[index].2 == 0 {
            wakers.registered.swap_remove(index);
            wakers.list();
        }
    }

    /// Ends every watch with [`EndReason::Shutdown`](super::EndReason::Shutdown) and opens no more.
    pub fn close(&self) {
        let mut registry = self.shared.registry.lock().expect(REGISTRY_HOLDERS);
        registry.closed = true;
        registry.watchers().for_each(|watcher| watcher.send_signal(Signal::Close));
        drop(registry);
        self.shared.wake();
    }

    /// The open watches, in the order in which they were opened.
    #[must_use]
    pub fn watchers(&self) -> Vec<WatcherInfo> {
        self.shared.registry.lock().expect(REGISTRY_HOLDERS).infos()
    }

    /// How many watches are open.
    #[must_use]
    pub fn watcher_count(&self) -> usize {
        self.shared.registry.lock().expect(REGISTRY_HOLDERS).watcher_count()
    }

    /// How many distinct views are watched.
    #[must_use]
    pub fn view_count(&self) -> usize {
        self.shared.registry.lock().expect(REGISTRY_HOLDERS).view_count()
    }

    /// What the hub counts.
    #[must_use]
    pub fn stats(&self) -> &HubStats {
        &self.shared.stats
    }
}

const REGISTRY_HOLDERS: &str = "no holder of the registry panics";
const WAKER_HOLDERS: &str = "no holder of the wakers panics";

impl Wakers {
    fn list(&mut self) {
        self.list = self.registered.iter().map(|(waker, ..)| waker.clone()).collect();
    }
}

impl Shared {
    fn wake(&self) {
        let wakers = self.wakers.lock().expect(WAKER_HOLDERS).list.clone();
        wakers.iter().for_each(Waker::wake_by_ref);
    }

    /// Takes a watcher off the registry.
    pub(super) fn leave(&self, registration: &Registration) {
        self.registry.lock().expect(REGISTRY_HOLDERS).remove(registration);
    }
}

impl EventSink for Publisher {
    fn publish(&mut self, snapshot: &Snapshot, changes: &[Arc<Change>]) {
        let logs = self.shared.registry.lock().expect(REGISTRY_HOLDERS).active();
        for log in logs.iter() {
            changes
                .iter()
                .filter_map(|change| self.entry(&log.view, change))
                .for_each(|entry| log.log.append(entry));
        }
        self.bound_pinned_bytes(snapshot);
        if !changes.is_empty() {
            self.shared.wake();
        }
    }
}

impl Publisher {
    /// What is appended to a view's log for a change: nothing, if it shows no difference and cannot change what a
    /// selector says.
    fn entry(&self, view: &View, change: &Arc<Change>) -> Option<Entry> {
        let frame = view.event(change);
        if frame.is_none()
            && let (Some(old), Some(new)) = (change.old(), change.new_state())
            && old.labels() == new.labels()
        {
            return None;
        }
        let own_bytes = frame.as_ref().map_or(0, |frame| frame.own_bytes(change.record()));
        let charge = (own_bytes > 0).then(|| self.shared.meter.charge(own_bytes));
        Some(Entry { change: change.clone(), frame, _charge: charge })
    }

    /// Ends the watchers that are furthest behind when too much is kept for watchers. Those it has told before must be
    /// gone before it tells more, because only then their bytes are free.
    fn bound_pinned_bytes(&self, snapshot: &Snapshot) {
        let pinned = self.shared.meter.bytes().saturating_sub(snapshot.held_bytes());
        self.shared.stats.pinned_bytes.store(pinned as u64, Ordering::Relaxed);
        if pinned <= self.shared.config.max_pinned_bytes {
            return;
        }
        let registry = self.shared.registry.lock().expect(REGISTRY_HOLDERS);
        let oldest_of = |watcher: &Arc<Registration>| watcher.counters.oldest.load(Ordering::Relaxed);
        let is_told = |watcher: &Arc<Registration>| {
            watcher.signal() != Signal::None && oldest_of(watcher) != PINS_NOTHING
        };
        let Some(oldest) = registry.watchers().map(oldest_of).min().filter(|oldest| *oldest != PINS_NOTHING)
        else {
            return;
        };
        if registry.watchers().any(is_told) {
            return;
        }
        // The last eighth of the way back: many watchers may stand at about the same place, and ending one of them
        // would free nothing.
        let behind = snapshot.revision().0.saturating_sub(oldest);
        let reach = oldest + behind / 8;
        registry.watchers().filter(|watcher| oldest_of(watcher) <= reach).for_each(|watcher| {
            watcher.send_signal(Signal::Cut);
        });
    }
}
