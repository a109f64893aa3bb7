//! What events mean: keeps the tables, fills the kernel's map, and hints at containers to look at.
//!
//! No I/O and no clock of its own: the kernel thread hands in events, scans and the time.

use super::cgroup_path::{CgroupRoot, PodPath};
use super::cgroups::{Cgroup, CgroupTable};
use super::event::{CgroupEntry, CgroupMap, KernelEvent};
use super::processes::ProcessTable;
use super::resolve::resolve;
use super::scan::Scan;
use super::view::{KernelView, Tables};
use crate::pod::{CgroupId, ContainerId, Pid, PodUid, Snapshot};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a cgroup whose pod is not known is hinted at (BPF-7). Its pod is found by whoever asks later.
const RESOLVE_FOR: Duration = Duration::from_secs(10);
const FIRST_RETRY: Duration = Duration::from_millis(10);
const LAST_RETRY: Duration = Duration::from_secs(1);
/// How often the cgroups are looked at whose pods nobody knew in time, or for which the kernel's map had no room: all of
/// them at once, as they may be every cgroup of the node.
const LATE_RETRY: Duration = Duration::from_secs(5);
/// Between two hints at everything: each costs the runtime a full list.
const EVERYTHING_INTERVAL: Duration = Duration::from_secs(1);
/// Cgroups that wait for their pod's name, or for room in the kernel's map, at one time. Overflow rule: no more wait;
/// their entry has no name, or there is none.
const MAX_WAITING: usize = 8_192;

/// What the container runtime should be asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hint {
    /// A container or sandbox of this pod has come up.
    Appeared(PodUid, ContainerId),
    /// The last process, or the first one, of a container has ended.
    Ended(ContainerId),
    /// A process of a container was killed for want of memory.
    OutOfMemory(ContainerId),
    /// Events were lost: anything may have happened.
    Everything,
}

/// A cgroup whose pod no source has told of yet, or for which the kernel's map has no room.
#[derive(Debug)]
struct Waiting {
    /// Whether the kernel's map has what is known already.
    is_told: bool,
    next: Instant,
    delay: Duration,
    /// Until when it is hinted at; `None` afterwards.
    until: Option<Instant>,
}

/// The tables and where their contents go.
pub(super) struct Tracker<H> {
    root: CgroupRoot,
    keep: Duration,
    cgroups: CgroupTable,
    processes: ProcessTable,
    waiting: BTreeMap<CgroupId, Waiting>,
    /// When those of them are looked at next that are no longer hinted at.
    late_round: Option<Instant>,
    /// The node's map in the kernel, if it is there.
    map: Option<Box<dyn CgroupMap>>,
    hint: H,
    view: Arc<KernelView>,
    is_v2: bool,
    is_changed: bool,
    is_scan_wanted: bool,
    /// Whether events were lost since everything was hinted at last.
    is_everything_wanted: bool,
    last_everything: Option<Instant>,
}

/// How much the kernel's map has been told of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Told {
    /// All that there is to know.
    All,
    /// All but what no source has told of yet.
    Part,
    Nothing,
}

impl<H: FnMut(Hint)> Tracker<H> {
    /// Starts with nothing. Released cgroups stay findable for `keep`.
    pub(super) fn new(
        root: CgroupRoot,
        keep: Duration,
        map: Option<Box<dyn CgroupMap>>,
        hint: H,
        view: Arc<KernelView>,
    ) -> Self {
        Self {
            root,
            keep,
            cgroups: CgroupTable::default(),
            processes: ProcessTable::default(),
            waiting: BTreeMap::new(),
            late_round: None,
            map,
            hint,
            view,
            is_v2: false,
            is_changed: false,
            is_scan_wanted: false,
            is_everything_wanted: false,
            last_everything: None,
        }
    }

    /// Takes in an event.
    pub(super) fn apply(&mut self, event: KernelEvent, now: Instant, pods: &Snapshot) {
        self.view.events.fetch_add(1, Ordering::Relaxed);
        match event {
            KernelEvent::CgroupCreated { id, path } => self.create(id, &path, true, now, pods),
            KernelEvent::CgroupPopulated { id, is_populated } => self.populate(id, is_populated),
            KernelEvent::CgroupReleased { id } => self.release(id, now),
            KernelEvent::ProcessAttached { cgroup, pid } => self.attach(cgroup, pid),
            KernelEvent::ProcessExecuted { cgroup, pid } => self.execute(cgroup, pid),
            KernelEvent::ProcessExited { cgroup, pid } => self.exit(cgroup, pid, now),
            KernelEvent::OomKilled { cgroup, .. } => {
                let cgroup = self.cgroups.cgroups().get(cgroup);
                if let Some(container) = cgroup.and_then(|cgroup| cgroup.container.clone()) {
                    (self.hint)(Hint::OutOfMemory(container));
                }
            }
            KernelEvent::EventsLost { count } => {
                self.view.lost.fetch_add(count, Ordering::Relaxed);
                self.is_scan_wanted = true;
                self.is_everything_wanted = true;
            }
        }
    }

    /// Takes in what a hierarchy holds. What it does not hold is gone, if it was read whole.
    pub(super) fn take_scan(&mut self, scan: &Scan, is_v2: bool, now: Instant, pods: &Snapshot) {
        // Numbers of one kind of hierarchy say nothing in the other.
        let is_other = self.is_v2 != is_v2;
        let is_whole = scan.missing.is_none();
        let there: HashSet<_> = scan.cgroups.iter().map(|found| found.id).collect();
        let is_gone = |(id, cgroup): (CgroupId, &Arc<Cgroup>)| {
            let is_missed = is_other || (is_whole && !there.contains(&id));
            (cgroup.released.is_none() && is_missed).then_some(id)
        };
        let gone: Vec<_> = self.cgroups.cgroups().iter().filter_map(is_gone).collect();
        for id in gone {
            self.release(id, now);
        }
        self.is_v2 = is_v2;
        self.is_changed |= is_other;
        for found in &scan.cgroups {
            self.create(found.id, &found.path, false, now, pods);
        }
    }

    /// Ends the processes of which `is_alive` does not know: events of their end may have been lost.
    pub(super) fn sweep(&mut self, now: Instant, is_alive: impl Fn(Pid) -> bool) {
        if let Some(map) = &mut self.map {
            map.sweep_processes(&is_alive);
        }
        self.processes.sweep(now, is_alive);
        self.is_changed = true;
    }

    /// Does what has come due, and publishes what has changed.
    pub(super) fn advance(&mut self, now: Instant, pods: &Snapshot) {
        self.is_changed |= self.cgroups.expire(now, self.keep);
        self.is_changed |= self.processes.expire(now);
        let due: Vec<_> =
            self.waiting.iter().filter(|(_, waiting)| waiting.next <= now).map(|(id, _)| *id).collect();
        for id in due {
            self.resolve_again(id, now, pods);
        }
        if self.is_everything_wanted && self.next_everything().is_none_or(|next| next <= now) {
            self.is_everything_wanted = false;
            self.last_everything = Some(now);
            (self.hint)(Hint::Everything);
        }
        if std::mem::take(&mut self.is_changed) {
            self.view.publish(Tables {
                cgroups: self.cgroups.cgroups().clone(),
                processes: self.processes.processes().clone(),
                is_v2: self.is_v2,
            });
        }
    }

    /// When [`Tracker::advance`] has something to do next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let release = self.cgroups.oldest_release().map(|at| at + self.keep);
        let waiting = self.waiting.values().map(|waiting| waiting.next).min();
        let everything = self.next_everything().filter(|_| self.is_everything_wanted);
        [release, self.processes.next_expiry(), waiting, everything].into_iter().flatten().min()
    }

    /// When everything may be hinted at again; `None` if it never was.
    fn next_everything(&self) -> Option<Instant> {
        self.last_everything.map(|last| last + EVERYTHING_INTERVAL)
    }

    /// Whether everything is to be read anew; asking takes the wish back.
    pub(super) fn take_scan_wish(&mut self) -> bool {
        std::mem::take(&mut self.is_scan_wanted)
    }

    fn create(&mut self, id: CgroupId, path: &str, is_seen_from_start: bool, now: Instant, pods: &Snapshot) {
        let Some(mut cgroup) = Cgroup::of(path, &self.root) else { return };
        cgroup.is_seen_from_start = is_seen_from_start;
        // One that was there before most likely has processes; should it not, its removal is hinted at in vain.
        cgroup.is_populated = !is_seen_from_start;
        let container = cgroup.own_container().cloned();
        if !self.cgroups.insert(id, cgroup) {
            return;
        }
        self.is_changed = true;
        let pod = self.pod_of(path, pods);
        if let (Some(pod), Some(container)) = (&pod, &container) {
            (self.hint)(Hint::Appeared(pod.clone(), container.clone()));
        }
        let told = self.tell_map(id, pods);
        if told != Told::All && self.waiting.len() < MAX_WAITING {
            let waiting = Waiting {
                is_told: told == Told::Part,
                next: now + FIRST_RETRY,
                delay: FIRST_RETRY,
                until: Some(now + RESOLVE_FOR),
            };
            self.waiting.insert(id, waiting);
        }
    }

    fn populate(&mut self, id: CgroupId, is_populated: bool) {
        let Some(known) = self.cgroups.cgroups().get(id) else { return };
        if known.is_populated == is_populated {
            return;
        }
        self.is_changed = true;
        let cgroup = self.cgroups.edit(id, |cgroup| cgroup.is_populated = is_populated);
        if let Some(container) = cgroup.as_deref().and_then(Cgroup::own_container).filter(|_| !is_populated) {
            (self.hint)(Hint::Ended(container.clone()));
        }
    }

    fn release(&mut self, id: CgroupId, now: Instant) {
        let was_populated = self.cgroups.cgroups().get(id).is_some_and(|cgroup| cgroup.is_populated);
        let Some(cgroup) = self.cgroups.release(id, now) else { return };
        self.is_changed = true;
        self.waiting.remove(&id);
        if let Some(map) = self.map.as_mut().filter(|_| self.is_v2) {
            map.remove(id);
        }
        // On v1 nothing tells of the end before this; else this only matters if that event was lost.
        if let Some(container) = cgroup.own_container().filter(|_| was_populated || !self.is_v2) {
            (self.hint)(Hint::Ended(container.clone()));
        }
    }

    fn execute(&mut self, id: CgroupId, pid: Pid) {
        self.note_process(id, pid);
        let Some(cgroup) = self.cgroups.cgroups().get(id) else { return };
        // The runtime moves processes of its own in, which prepare the container and end; the first one that executes
        // a program there is the container's.
        if cgroup.own_container().is_some() && cgroup.is_seen_from_start && cgroup.init.is_none() {
            self.cgroups.edit(id, |cgroup| cgroup.init = Some(pid));
        }
    }

    fn attach(&mut self, cgroup: CgroupId, pid: Pid) {
        if self.cgroups.cgroups().get(cgroup).is_some() {
            self.note_process(cgroup, pid);
        } else {
            // It has left its pod: what becomes of it is nothing to anyone.
            self.is_changed |= self.processes.remove(pid);
        }
    }

    fn note_process(&mut self, cgroup: CgroupId, pid: Pid) {
        if self.cgroups.cgroups().get(cgroup).is_some() {
            self.is_changed |= self.processes.insert(pid, cgroup);
        }
    }

    fn exit(&mut self, id: CgroupId, pid: Pid, now: Instant) {
        // Of a process that forked and never executed this is the first that is heard.
        self.note_process(id, pid);
        self.is_changed |= self.processes.end(pid, now);
        let Some(cgroup) = self.cgroups.cgroups().get(id).filter(|cgroup| cgroup.init == Some(pid)) else {
            return;
        };
        if let Some(container) = cgroup.own_container().cloned() {
            (self.hint)(Hint::Ended(container));
        }
    }

    /// Tries again to learn whose a cgroup is, and to tell it.
    fn resolve_again(&mut self, id: CgroupId, now: Instant, pods: &Snapshot) {
        let told = self.tell_map(id, pods);
        if told == Told::All {
            self.waiting.remove(&id);
            return;
        }
        let Some(cgroup) = self.cgroups.cgroups().get(id) else { return };
        let (path, container) = (cgroup.path.clone(), cgroup.own_container().cloned());
        let pod = self.pod_of(&path, pods);
        let is_known = pod.as_ref().is_some_and(|pod| pods.get(pod.as_str()).is_some());
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        waiting.is_told |= told == Told::Part;
        // One whose pod is known waits for room in the map alone.
        let until = waiting.until.filter(|_| !is_known);
        if let Some(until) = until
            && until > now
        {
            waiting.delay = (waiting.delay * 2).min(LAST_RETRY);
            waiting.next = now + waiting.delay;
            if let (Some(pod), Some(container)) = (pod, container) {
                (self.hint)(Hint::Appeared(pod, container));
            }
            return;
        }
        waiting.until = None;
        waiting.next = *self.late_round.insert(match self.late_round {
            Some(round) if round > now => round,
            _ => now + LATE_RETRY,
        });
        if until.is_none() {
            return;
        }
        if container.is_some() {
            tracing::debug!(cgroup = &*path, "no source knows the pod of this cgroup");
            self.view.unknown.fetch_add(1, Ordering::Relaxed);
        }
        if self.map.is_none() || !self.is_v2 {
            // Nobody waits for the name.
            self.waiting.remove(&id);
        }
    }

    /// Writes what is known of a cgroup into the kernel's map: of one in cgroup2, whose numbers programs in the kernel
    /// see.
    fn tell_map(&mut self, id: CgroupId, pods: &Snapshot) -> Told {
        let Some(cgroup) = self.cgroups.cgroups().get(id) else { return Told::All };
        let (is_nested, container) = (cgroup.is_nested, cgroup.container.clone());
        let pod = self.pod_of(&cgroup.path, pods);
        let map = self.map.as_mut().filter(|_| self.is_v2);
        if is_nested {
            let is_done = map.is_none_or(|map| map.track(id));
            return if is_done { Told::All } else { Told::Nothing };
        }
        let Some(pod) = pod else { return Told::Nothing };
        let name = pods.get(pod.as_str()).map(|record| (record.namespace().clone(), record.name().clone()));
        let is_all = name.is_some();
        let is_told_before = !is_all && self.waiting.get(&id).is_some_and(|waiting| waiting.is_told);
        let is_done =
            is_told_before || map.is_none_or(|map| map.put(id, &CgroupEntry { pod, container, name }));
        match (is_done, is_all) {
            (false, _) => Told::Nothing,
            (true, false) => Told::Part,
            (true, true) => Told::All,
        }
    }

    fn pod_of(&self, path: &str, pods: &Snapshot) -> Option<PodUid> {
        resolve(PodPath::parse(path, &self.root)?.uid, pods)
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
