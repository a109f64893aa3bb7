//! What events mean: keeps the tables, fills the kernel's map, and hints at containers to look at.
//!
//! No I/O and no clock of its own: the kernel thread hands in events, scans and the time.

use super::cgroup_path::{CgroupRoot, PodPath};
use super::cgroups::{Cgroup, CgroupTable};
use super::event::{CgroupEntry, CgroupMap, KernelEvent};
use super::processes::ProcessTable;
use super::resolve::resolve;
use super::scan::Found;
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
/// Cgroups that wait for their pod's name at one time. Overflow rule: no more wait; their entry has no name.
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

/// A cgroup whose pod no source has told of yet.
#[derive(Debug)]
struct Waiting {
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
    /// The node's map in the kernel, if it is there.
    map: Option<Box<dyn CgroupMap>>,
    hint: H,
    view: Arc<KernelView>,
    is_v2: bool,
    is_changed: bool,
    is_scan_wanted: bool,
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
            map,
            hint,
            view,
            is_v2: false,
            is_changed: false,
            is_scan_wanted: false,
        }
    }

    /// Takes in an event.
    pub(super) fn apply(&mut self, event: KernelEvent, now: Instant, pods: &Snapshot) {
        self.view.events.fetch_add(1, Ordering::Relaxed);
        match event {
            KernelEvent::CgroupCreated { id, path } => self.create(id, &path, true, now, pods),
            KernelEvent::CgroupPopulated { id, is_populated } => self.populate(id, is_populated),
            KernelEvent::CgroupReleased { id } => self.release(id, now),
            KernelEvent::ProcessAttached { cgroup, pid } => self.note_process(cgroup, pid),
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
                (self.hint)(Hint::Everything);
            }
        }
    }

    /// Takes in everything that a hierarchy holds; what it does not hold is gone.
    pub(super) fn take_scan(&mut self, found: &[Found], is_v2: bool, now: Instant, pods: &Snapshot) {
        if std::mem::replace(&mut self.is_v2, is_v2) != is_v2 {
            self.is_changed = true;
        }
        let there: HashSet<_> = found.iter().map(|found| found.id).collect();
        let is_gone = |(id, cgroup): (CgroupId, &Arc<Cgroup>)| {
            (cgroup.released.is_none() && !there.contains(&id)).then_some(id)
        };
        let gone: Vec<_> = self.cgroups.cgroups().iter().filter_map(is_gone).collect();
        for id in gone {
            self.release(id, now);
        }
        for found in found {
            self.create(found.id, &found.path, false, now, pods);
        }
    }

    /// Ends the processes of which `is_alive` does not know: events of their end may have been lost.
    pub(super) fn sweep(&mut self, now: Instant, is_alive: impl Fn(Pid) -> bool) {
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
        [release, self.processes.next_expiry(), waiting].into_iter().flatten().min()
    }

    /// Whether everything is to be read anew; asking takes the wish back.
    pub(super) fn take_scan_wish(&mut self) -> bool {
        std::mem::take(&mut self.is_scan_wanted)
    }

    fn create(&mut self, id: CgroupId, path: &str, is_seen_from_start: bool, now: Instant, pods: &Snapshot) {
        let Some(mut cgroup) = Cgroup::of(path, &self.root) else { return };
        cgroup.is_seen_from_start = is_seen_from_start;
        let container = cgroup.own_container().cloned();
        if !self.cgroups.insert(id, cgroup) {
            return;
        }
        self.is_changed = true;
        let pod = self.pod_of(path, pods);
        if let (Some(pod), Some(container)) = (&pod, &container) {
            (self.hint)(Hint::Appeared(pod.clone(), container.clone()));
        }
        if !self.tell_map(id, pods) && self.waiting.len() < MAX_WAITING {
            let waiting =
                Waiting { next: now + FIRST_RETRY, delay: FIRST_RETRY, until: Some(now + RESOLVE_FOR) };
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
        if let Some(map) = &mut self.map {
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

    /// Tries again to learn whose a cgroup is.
    fn resolve_again(&mut self, id: CgroupId, now: Instant, pods: &Snapshot) {
        if self.tell_map(id, pods) {
            self.waiting.remove(&id);
            return;
        }
        let Some(waiting) = self.waiting.get_mut(&id) else { return };
        waiting.delay = (waiting.delay * 2).min(LAST_RETRY);
        waiting.next = now + waiting.delay;
        let Some(until) = waiting.until else { return };
        let Some(cgroup) = self.cgroups.cgroups().get(id) else { return };
        let (path, container) = (cgroup.path.clone(), cgroup.own_container().cloned());
        if until > now {
            if let (Some(pod), Some(container)) = (self.pod_of(&path, pods), container) {
                (self.hint)(Hint::Appeared(pod, container));
            }
            return;
        }
        waiting.until = None;
        if container.is_some() {
            tracing::debug!(cgroup = &*path, "no source knows the pod of this cgroup");
            self.view.unknown.fetch_add(1, Ordering::Relaxed);
        }
        if self.map.is_none() {
            // Nobody waits for the name.
            self.waiting.remove(&id);
        }
    }

    /// Writes what is known of a cgroup into the kernel's map. Returns whether that is all there is to know.
    fn tell_map(&mut self, id: CgroupId, pods: &Snapshot) -> bool {
        let Some(cgroup) = self.cgroups.cgroups().get(id) else { return true };
        let Some(pod) = self.pod_of(&cgroup.path, pods) else { return false };
        let name = pods.get(pod.as_str()).map(|record| (record.namespace().clone(), record.name().clone()));
        let is_all = name.is_some();
        let is_told_before = !is_all && self.waiting.contains_key(&id);
        if let (Some(map), false) = (&mut self.map, is_told_before) {
            map.put(id, &CgroupEntry { pod, container: cgroup.container.clone(), name });
        }
        is_all
    }

    fn pod_of(&self, path: &str, pods: &Snapshot) -> Option<PodUid> {
        resolve(PodPath::parse(path, &self.root)?.uid, pods)
    }
}

#[cfg(test)]
#[path = "tracker_tests.rs"]
mod tests;
