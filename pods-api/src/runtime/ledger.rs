//! What is known of the runtime's pods, and what is to be read next.
//!
//! No I/O and no clock: the reconciler asks the runtime and hands in answers, each with the time at which it was asked
//! for, so that an older answer never replaces a newer one (rule C.10.6). Lists tell which pods changed (rule
//! C.10.5), events tell sooner; as the runtime's status calls lag its events by tens of milliseconds, what an event
//! promised is asked for again until it shows.

use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::{Duration, Instant};

use super::cri::{ListedPod, Listing, PodRead};
use super::events::RuntimeEvent;
use super::queue::ReadQueue;
use super::status::{Exit, RunState, RuntimePod};
use crate::pod::{ContainerId, PodUid};

/// Each list brings at most one in this many of the pods that are due for a read anyway: a steady trickle instead of
/// all of them at once.
const REFRESH_SHARE: usize = 10;
/// How long an exit event is believed against a status call that still says RUNNING, and how long what an event
/// promised is waited for.
const SETTLE: Duration = Duration::from_secs(5);
const FIRST_RETRY: Duration = Duration::from_millis(5);
const LAST_RETRY: Duration = Duration::from_millis(500);
/// An end of which the runtime tells, or will tell, before its status calls show it: containerd does so with the exit,
/// cleans up for some 20 ms, and tells of that too. A read in between is wasted; this one is for runtimes that stall.
const END_LAG: Duration = Duration::from_millis(50);
/// When a container that has ended is looked at again: the reason OOMKilled may come after the end.
const LATE_REASON: [Duration; 3] =
    [Duration::from_millis(250), Duration::from_secs(1), Duration::from_secs(5)];
/// Pods that cannot be read are tried again after this, doubled each time up to the last.
const FIRST_FAILURE_RETRY: Duration = Duration::from_millis(100);
const LAST_FAILURE_RETRY: Duration = Duration::from_secs(10);
/// A container that is made but not started, or whose state the runtime does not know, is looked at again after this,
/// doubled each time up to the last: no event tells that it could not be started.
const FIRST_UNSETTLED: Duration = Duration::from_millis(10);
const LAST_UNSETTLED: Duration = Duration::from_secs(10);
/// Exits and promises kept at one time. More than that come only in storms, and relists find what they told.
const MAX_PENDING: usize = 4096;

/// A change of what the runtime has of a pod.
pub(super) type Change = (PodUid, RuntimePod);

/// One pod.
#[derive(Debug, Default)]
struct PodState {
    /// What the lists had when it was last read.
    listed: ListedPod,
    /// `None` until it could be read once.
    view: Option<RuntimePod>,
    /// What a full list has of it and when that was asked for, if nothing has been heard since: spares the read a list
    /// of its own, which costs the runtime a pass over everything that it has.
    fresh: Option<(Instant, ListedPod)>,
    /// Whether something has been heard that no list which is under way need know of; until the read for it begins.
    is_heard: bool,
    /// Whether it is to be read whatever the list says.
    is_suspect: bool,
    /// Whether someone waits for a fresh answer, be it the same as before.
    is_forced: bool,
    failures: u32,
    /// How often in a row it was found unsettled, and when it is looked at again for that.
    unsettled: u32,
    unsettled_until: Option<Instant>,
}

impl PodState {
    fn began(&self) -> Option<Instant> {
        self.view.as_ref().map(RuntimePod::read_began)
    }

    /// Keeps what a list has of it for the next read.
    fn refresh(&mut self, began: Instant, listed: &ListedPod) {
        self.fresh = (!self.is_heard).then(|| (began, listed.clone()));
    }

    fn queue(&self, uid: &PodUid, queue: &mut ReadQueue<PodUid>) {
        if self.failures > 0 { queue.retry(uid.clone()) } else { queue.push(uid.clone()) }
    }
}

/// What an event promised to become visible; of two promises for one container the later in this order counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Promise {
    Known,
    Started,
    Ended,
    Gone,
}

#[derive(Debug)]
struct Awaited {
    promise: Promise,
    until: Instant,
    next: Instant,
    delay: Duration,
}

/// The state of all pods.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pods: HashMap<PodUid, PodState>,
    /// The pod of each container and sandbox: they share the runtime's ID space.
    owners: HashMap<ContainerId, PodUid>,
    exits: HashMap<ContainerId, (Exit, Instant)>,
    awaited: HashMap<ContainerId, Awaited>,
    timers: BTreeSet<(Instant, PodUid)>,
    queue: ReadQueue<PodUid>,
    /// Containers and sandboxes of which only the ID is known: whose are they?
    lookups: ReadQueue<ContainerId>,
    is_relist_wanted: bool,
    /// Pods of the first list that have not been tried yet; `None` before it and after the first pass.
    first_pass: Option<HashSet<PodUid>>,
}

impl Ledger {
    /// Takes in a full list that was asked for at `began`. Returns the pods that are gone.
    ///
    /// Images and resources may change without a change of state: each pod is read about every `refresh` (rule
    /// C.10.5), given ten lists in half that time.
    pub(super) fn take_listing(
        &mut self,
        listing: &Listing,
        began: Instant,
        is_first: bool,
        refresh: Duration,
    ) -> Vec<Change> {
        let mut due = Vec::new();
        for (uid, listed) in &listing.pods {
            let state = self.pods.entry(uid.clone()).or_default();
            let last_read = state.began();
            // Read since the list was asked for: the list is the older of the two.
            if last_read.is_some_and(|read| read > began) {
                continue;
            }
            if last_read.is_none() || state.is_suspect || state.listed != *listed {
                state.refresh(began, listed);
                state.queue(uid, &mut self.queue);
            } else if let Some(read) = last_read.filter(|read| began.duration_since(*read) >= refresh / 2) {
                due.push((read, uid));
            }
            for id in ids(listed) {
                self.owners.insert(id, uid.clone());
            }
        }
        due.sort_unstable();
        for (_, uid) in due.into_iter().take(listing.pods.len().div_ceil(REFRESH_SHARE)) {
            if let Some(state) = self.pods.get_mut(uid) {
                state.refresh(began, &listing.pods[uid]);
                state.queue(uid, &mut self.queue);
            }
        }
        if is_first {
            self.first_pass = Some(listing.pods.keys().cloned().collect());
        } else if let Some(waiting) = &mut self.first_pass {
            // What has left meanwhile is not read any more.
            waiting.retain(|uid| listing.pods.contains_key(uid));
        }
        let is_gone = |uid: &PodUid, state: &PodState| {
            !listing.pods.contains_key(uid) && state.began().is_none_or(|read| read <= began)
        };
        let gone: HashSet<_> =
            self.pods.iter().filter(|(uid, state)| is_gone(uid, state)).map(|(uid, _)| uid.clone()).collect();
        if !gone.is_empty() {
            // Also what lists alone had, of pods that could not be read.
            for (id, _) in self.owners.extract_if(|_, uid| gone.contains(uid)) {
                self.exits.remove(&id);
            }
        }
        let changes = gone.into_iter().filter_map(|uid| self.remove(uid, began)).collect();
        self.drop_kept_promises();
        changes
    }

    /// Forgets a pod of which nothing is listed any more. A read that is still under way began before the list: the
    /// empty pod stays until the next list, so that its answer is known to be old.
    fn remove(&mut self, uid: PodUid, began: Instant) -> Option<Change> {
        let state = self.pods.get_mut(&uid)?;
        if state.view.as_ref().is_some_and(RuntimePod::is_absent) {
            if !self.queue.is_reading(&uid) {
                self.pods.remove(&uid);
            }
            return None;
        }
        state.listed = ListedPod::default();
        state.is_forced = false;
        state.view = Some(RuntimePod::absent(began));
        Some((uid, RuntimePod::absent(began)))
    }

    /// Takes in the answer of a read of one pod. Returns the pod if it changed.
    pub(super) fn take_read(
        &mut self,
        uid: &PodUid,
        began: Instant,
        (listed, read): (ListedPod, PodRead),
        now: Instant,
    ) -> Option<Change> {
        self.queue.finish(uid);
        // What had ended before the first pass is old news; what is found so later has ended just now.
        let is_news = self.first_pass.is_none();
        self.note_tried(uid);
        let state = self.pods.entry(uid.clone()).or_default();
        (state.failures, state.is_suspect) = (0, false);
        if state.began().is_some_and(|newer| newer > began) {
            return None;
        }
        let mut view = read.into_pod(began);
        Self::apply_exits(&mut self.exits, &mut view, now);
        for id in ids(&state.listed).filter(|id| !contains(&listed, id)) {
            self.owners.remove(&id);
            self.exits.remove(&id);
        }
        for id in ids(&listed) {
            self.owners.insert(id, uid.clone());
        }
        state.listed = listed;
        let ended = |view: &RuntimePod, id: &ContainerId| {
            view.containers()
                .iter()
                .any(|container| container.id == *id && container.state == RunState::Exited)
        };
        let has_newly_ended = view.containers().iter().any(|container| {
            container.state == RunState::Exited
                && &*container.reason != "OOMKilled"
                && state.view.as_ref().map_or(is_news, |old| !ended(old, &container.id))
        });
        if has_newly_ended {
            self.timers.extend(LATE_REASON.map(|delay| (now + delay, uid.clone())));
        }
        if view
            .containers()
            .iter()
            .any(|container| matches!(container.state, RunState::Created | RunState::Unknown))
        {
            // One timer at a time, however many reads there are for other reasons.
            if state.unsettled_until.is_none_or(|until| until <= now) {
                let delay = FIRST_UNSETTLED.saturating_mul(1 << state.unsettled.min(10)).min(LAST_UNSETTLED);
                state.unsettled = state.unsettled.saturating_add(1);
                state.unsettled_until = Some(now + delay);
                self.timers.insert((now + delay, uid.clone()));
            }
        } else {
            (state.unsettled, state.unsettled_until) = (0, None);
        }
        let is_change = !state.view.as_ref().is_some_and(|old| old.agrees_with(&view));
        let is_wanted = std::mem::take(&mut state.is_forced) || is_change;
        state.view = Some(view.clone());
        self.drop_kept_promises();
        is_wanted.then(|| (uid.clone(), view))
    }

    /// Takes note that a pod could not be read: what was known of it stays whole (rule C.2.3), and it is tried again.
    /// True once if nothing is known of it but that it is there.
    pub(super) fn take_failure(&mut self, uid: &PodUid, now: Instant) -> bool {
        self.queue.fail(uid);
        self.note_tried(uid);
        let Some(state) = self.pods.get_mut(uid) else { return false };
        state.failures = state.failures.saturating_add(1);
        let delay =
            FIRST_FAILURE_RETRY.saturating_mul(1 << (state.failures - 1).min(10)).min(LAST_FAILURE_RETRY);
        self.timers.insert((now + delay, uid.clone()));
        // It was gone and has come back.
        state.view.take_if(|view| view.is_absent());
        state.view.is_none() && state.failures == 1
    }

    /// An exit that an event told of holds while the status calls lag behind it.
    fn apply_exits(exits: &mut HashMap<ContainerId, (Exit, Instant)>, view: &mut RuntimePod, now: Instant) {
        let told: Vec<_> = view
            .containers()
            .iter()
            .filter_map(|container| {
                exits.get(&container.id).map(|(exit, at)| (container.id.clone(), container.state, *exit, *at))
            })
            .collect();
        for (id, state, exit, at) in told {
            if state == RunState::Exited || now.duration_since(at) >= SETTLE {
                exits.remove(&id);
            } else {
                view.record_exit(&id, exit);
            }
        }
    }

    /// Takes in an event. Returns the pod if the event alone tells something new.
    pub(super) fn take_event(&mut self, event: RuntimeEvent, now: Instant) -> Option<Change> {
        let mut change = None;
        let mut is_early = false;
        let (id, promise) = match event {
            RuntimeEvent::Created(id) => (id, Some(Promise::Known)),
            RuntimeEvent::Started(id) => (id, Some(Promise::Started)),
            RuntimeEvent::Stopped(id) => (id, Some(Promise::Ended)),
            RuntimeEvent::Removed(id) => (id, Some(Promise::Gone)),
            RuntimeEvent::Updated(id) => (id, None),
            RuntimeEvent::OutOfMemory(id) => {
                if let Some(uid) = self.owners.get(&id) {
                    self.timers.extend(LATE_REASON.map(|delay| (now + delay, uid.clone())));
                }
                (id, None)
            }
            RuntimeEvent::Exited(id, exit) => {
                change = self.take_exit(&id, exit, now);
                is_early = self.owners.contains_key(&id);
                (id, Some(Promise::Ended))
            }
        };
        if let Some(promise) = promise {
            let delay = match promise {
                Promise::Ended if is_early => END_LAG,
                // A sandbox is made long before it is ready to be listed, and other events follow until it is.
                Promise::Known => FIRST_RETRY * 4,
                _ => FIRST_RETRY,
            };
            self.await_promise(id.clone(), promise, delay, now);
        }
        if !is_early {
            self.look_at(&id);
        }
        change
    }

    /// Has a container or sandbox looked at after `delay`, and from then on until it shows what was promised. A late event
    /// of its life never replaces the promise of a later one, and of two that promise its end the sooner look stays.
    fn await_promise(&mut self, id: ContainerId, promise: Promise, delay: Duration, now: Instant) {
        let awaited = Awaited { promise, until: now + SETTLE, next: now + delay, delay };
        let is_full = self.awaited.len() >= MAX_PENDING;
        match self.awaited.entry(id) {
            Entry::Occupied(mut held) => {
                let held = held.get_mut();
                let is_sooner = held.promise == Promise::Ended && held.next <= awaited.next;
                if held.promise > promise || (held.promise == promise && is_sooner) {
                    held.until = awaited.until;
                } else {
                    *held = awaited;
                }
            }
            Entry::Vacant(_) if is_full => self.is_relist_wanted = true,
            Entry::Vacant(place) => {
                place.insert(awaited);
            }
        }
    }

    fn take_exit(&mut self, id: &ContainerId, exit: Exit, now: Instant) -> Option<Change> {
        if self.exits.len() < MAX_PENDING {
            self.exits.insert(id.clone(), (exit, now));
        }
        let uid = self.owners.get(id)?;
        let view = self.pods.get_mut(uid)?.view.as_mut()?;
        view.record_exit(id, exit).then(|| (uid.clone(), view.clone()))
    }

    /// Reads the pod of a container or sandbox as soon as possible; looks up whose it is where that is not known.
    pub(super) fn look_at(&mut self, id: &ContainerId) {
        match self.owners.get(id) {
            Some(uid) => Self::wish(&mut self.queue, &mut self.pods, uid),
            None if self.lookups.len() < MAX_PENDING => self.lookups.push(id.clone()),
            None => self.is_relist_wanted = true,
        }
    }

    /// A container or sandbox of a pod is being made: reads the pod if it is known and the container is not. A pod that
    /// is not known is looked for in a list, if `may_list`.
    pub(super) fn expect(&mut self, pod: &PodUid, id: &ContainerId, may_list: bool) {
        if self.owners.contains_key(id) {
            return;
        }
        if self.pods.contains_key(pod) {
            Self::wish(&mut self.queue, &mut self.pods, pod);
        } else {
            self.is_relist_wanted |= may_list;
        }
    }

    /// A container or sandbox has ended: its pod is read until that shows, at once unless the runtime will tell of the
    /// exit too. One that is not known is looked up once: it may have been removed already.
    pub(super) fn expect_end(&mut self, id: ContainerId, is_told_too: bool, now: Instant) {
        if !self.owners.contains_key(&id) {
            self.look_at(&id);
        } else if !is_told_too {
            drop(self.take_event(RuntimeEvent::Stopped(id), now));
        } else {
            self.await_promise(id, Promise::Ended, END_LAG, now);
        }
    }

    /// Lists all as soon as possible.
    pub(super) fn wish_for_list(&mut self) {
        self.is_relist_wanted = true;
    }

    /// The next container or sandbox whose pod is to be looked up, if another lookup may begin.
    pub(super) fn next_lookup(&mut self) -> Option<ContainerId> {
        self.lookups.next()
    }

    /// Takes in whose a container or sandbox is; `None` where the runtime does not have it, or not as a pod's. What an
    /// event promised of it is asked for again. True if the pod is a new one.
    pub(super) fn take_owner(&mut self, id: &ContainerId, owner: Option<PodUid>) -> bool {
        self.lookups.finish(id);
        let Some(uid) = owner else { return false };
        let is_new = !self.pods.contains_key(&uid);
        self.pods.entry(uid.clone()).or_default();
        Self::wish(&mut self.queue, &mut self.pods, &uid);
        is_new
    }

    /// Takes note that a lookup failed: a list tells the same.
    pub(super) fn take_failed_lookup(&mut self, id: &ContainerId) {
        self.lookups.finish(id);
        self.is_relist_wanted = true;
    }

    /// Reads a pod as soon as possible, and reports it even if nothing has changed.
    pub(super) fn force(&mut self, uid: &PodUid) {
        self.pods.entry(uid.clone()).or_default().is_forced = true;
        Self::wish(&mut self.queue, &mut self.pods, uid);
    }

    /// Wishes for a read for a reason that a list asked for before cannot know of.
    fn wish(queue: &mut ReadQueue<PodUid>, pods: &mut HashMap<PodUid, PodState>, uid: &PodUid) {
        let Some(state) = pods.get_mut(uid) else { return };
        (state.fresh, state.is_heard) = (None, true);
        state.queue(uid, queue);
    }

    /// The next pod to read, if another read may begin; with what a list has of it, and when that was asked for.
    pub(super) fn next_read(&mut self) -> Option<(PodUid, Option<(Instant, ListedPod)>)> {
        let uid = self.queue.next()?;
        let fresh = self.pods.get_mut(&uid).and_then(|state| {
            state.is_heard = false;
            state.fresh.take()
        });
        Some((uid, fresh))
    }

    /// Reads every pod anew with the next list: the runtime may have been another one in between.
    pub(super) fn start_over(&mut self) {
        self.queue.abandon();
        self.lookups.abandon();
        self.pods.values_mut().for_each(|state| (state.is_suspect, state.is_heard) = (true, false));
        self.awaited.clear();
        self.is_relist_wanted = true;
    }

    /// Moves what has come due into the queue.
    pub(super) fn advance(&mut self, now: Instant) {
        while let Some((at, uid)) = self.timers.pop_first() {
            if at > now {
                self.timers.insert((at, uid));
                break;
            }
            if self.pods.contains_key(&uid) {
                Self::wish(&mut self.queue, &mut self.pods, &uid);
            }
        }
        self.exits.retain(|_, (_, at)| now.duration_since(*at) <= 2 * SETTLE);
        let mut due = Vec::new();
        self.awaited.retain(|id, awaited| {
            // Once more when it is given up: what was promised is no longer believed then.
            if awaited.next <= now || awaited.until <= now {
                due.push(id.clone());
                awaited.delay = (awaited.delay * 2).min(LAST_RETRY);
                awaited.next = now + awaited.delay;
            }
            awaited.until > now
        });
        due.iter().for_each(|id| self.look_at(id));
    }

    /// When [`Ledger::advance`] has something to do next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let timer = self.timers.first().map(|(at, _)| *at);
        let awaited = self.awaited.values().map(|awaited| awaited.next.min(awaited.until)).min();
        [timer, awaited].into_iter().flatten().min()
    }

    /// Whether a full list is wanted; asking takes the wish back.
    pub(super) fn take_relist_wish(&mut self) -> bool {
        std::mem::take(&mut self.is_relist_wanted)
    }

    /// Every pod with what is known of it, once the first list has been worked off; then never again.
    pub(super) fn take_first_pass(&mut self) -> Option<Vec<(PodUid, Option<RuntimePod>)>> {
        self.first_pass.take_if(|waiting| waiting.is_empty())?;
        Some(self.pods.iter().map(|(uid, state)| (uid.clone(), state.view.clone())).collect())
    }

    fn note_tried(&mut self, uid: &PodUid) {
        if let Some(waiting) = &mut self.first_pass {
            waiting.remove(uid);
        }
    }

    fn drop_kept_promises(&mut self) {
        let (owners, pods) = (&self.owners, &self.pods);
        self.awaited.retain(|id, awaited| {
            let Some(uid) = owners.get(id) else { return awaited.promise != Promise::Gone };
            let view = pods.get(uid).and_then(|state| state.view.as_ref());
            !view.is_some_and(|view| is_kept(awaited.promise, view, id))
        });
    }
}

/// Whether what an event promised of `id` shows in the pod that was read.
fn is_kept(promise: Promise, view: &RuntimePod, id: &ContainerId) -> bool {
    let container = view.containers().iter().find(|container| container.id == *id);
    let sandbox = view.sandboxes().iter().find(|sandbox| sandbox.id.as_str() == id.as_str());
    match promise {
        Promise::Known => container.is_some() || sandbox.is_some(),
        Promise::Started => container.is_some_and(|it| it.state != RunState::Created) || sandbox.is_some(),
        Promise::Ended => {
            container.is_some_and(|it| it.state == RunState::Exited) || sandbox.is_some_and(|it| !it.is_ready)
        }
        Promise::Gone => container.is_none() && sandbox.is_none(),
    }
}

fn ids(listed: &ListedPod) -> impl Iterator<Item = ContainerId> {
    let sandboxes = listed.sandboxes.keys().map(|id| id.as_str().into());
    sandboxes.chain(listed.containers.keys().cloned())
}

fn contains(listed: &ListedPod, id: &ContainerId) -> bool {
    listed.containers.contains_key(id) || listed.sandboxes.contains_key(id.as_str())
}

#[cfg(test)]
#[path = "ledger_tests.rs"]
mod tests;
