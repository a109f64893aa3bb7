//! Writes the map `pods_cgroups`, from which other programs learn whose a cgroup is (docs/bpf-map.md), and mends what
//! the programs keep for themselves. Lives on the `kernel` thread, the only writer besides the programs.

use super::event::{CgroupEntry, CgroupMap};
use super::status::EbpfStatus;
use crate::pod::{CgroupId, Pid};
use aya::maps::{HashMap, MapData, MapError};
use pods_api_common::ProcessEntry;
use std::fmt;
use std::sync::Arc;
use tracing::warn;

/// The map for others.
pub struct SharedMap {
    cgroups: HashMap<MapData, u64, pods_api_common::CgroupEntry>,
    tracked: HashMap<MapData, u64, u32>,
    processes: HashMap<MapData, u32, ProcessEntry>,
    status: Arc<EbpfStatus>,
    /// Whether the last attempt has failed and was warned of: one warning tells of all until one succeeds.
    is_failing: bool,
}

impl fmt::Debug for SharedMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedMap")
    }
}

impl SharedMap {
    pub(super) fn new(
        cgroups: HashMap<MapData, u64, pods_api_common::CgroupEntry>,
        tracked: HashMap<MapData, u64, u32>,
        processes: HashMap<MapData, u32, ProcessEntry>,
        status: Arc<EbpfStatus>,
    ) -> Self {
        Self { cgroups, tracked, processes, status, is_failing: false }
    }

    /// Counts an attempt that failed, and warns of the first one.
    fn note(&mut self, id: CgroupId, outcome: Result<(), MapError>) -> bool {
        let Err(error) = outcome else {
            self.is_failing = false;
            return true;
        };
        self.status.count_map_failure();
        if !std::mem::replace(&mut self.is_failing, true) {
            warn!(cgroup = id.0, %error, "cgroup cannot be put into the kernel's maps; it is tried again");
        }
        false
    }
}

impl CgroupMap for SharedMap {
    fn put(&mut self, id: CgroupId, entry: &CgroupEntry) -> bool {
        let container = entry.container.as_ref().map(|container| container.as_str());
        let name = entry.name.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        let mut outcome = Ok(());
        match pods_api_common::CgroupEntry::new(entry.pod.as_str(), container, name) {
            Ok(value) => outcome = self.cgroups.insert(id.0, value, 0),
            Err(too_long) => {
                // It will be no shorter another time.
                self.status.count_map_failure();
                warn!(cgroup = id.0, "the {} of a cgroup is too long for the map of cgroups", too_long.0);
            }
        }
        // Known to the programs already, unless its beginning was missed.
        let outcome = self.tracked.insert(id.0, 1, 0).and(outcome);
        self.note(id, outcome)
    }

    fn track(&mut self, id: CgroupId) -> bool {
        let outcome = self.tracked.insert(id.0, 1, 0);
        self.note(id, outcome)
    }

    fn remove(&mut self, id: CgroupId) {
        // Either may have gone before: that is what was wanted.
        let _ = self.cgroups.remove(&id.0);
        let _ = self.tracked.remove(&id.0);
    }

    fn sweep_processes(&mut self, is_alive: &dyn Fn(Pid) -> bool) {
        let is_gone = |number: &u32| {
            i32::try_from(*number).ok().and_then(Pid::new).is_none_or(|process| !is_alive(process))
        };
        // First read to the end: a removal would begin the iteration anew. A number that is given away anew in between
        // loses its entry, and the end of that process is told of by its cgroup.
        let gone: Vec<_> = self.processes.keys().filter_map(Result::ok).filter(is_gone).collect();
        for number in gone {
            let _ = self.processes.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::{DEFAULT_RING_BYTES, EbpfConfig, EbpfMode, load};
    use super::super::object::embedded;
    use super::*;
    use crate::testing::cannot_run;

    #[test]
    fn processes_that_are_no_more_lose_their_entry() {
        if embedded().is_none() || !rustix::process::geteuid().is_root() {
            return cannot_run("not root, or built without eBPF");
        }
        let config = EbpfConfig { mode: EbpfMode::Require, ring_bytes: DEFAULT_RING_BYTES, is_pinned: false };
        let mut map = load(&config).unwrap().map;
        // Numbers beyond those that the kernel gives away.
        let first = 1 << 23;
        for number in first..first + 1000 {
            map.processes.insert(number, ProcessEntry { cgroup_id: 1 }, 0).unwrap();
        }
        map.sweep_processes(&|process| process.as_raw() != first as i32 + 7);
        let left = |number| map.processes.get(&number, 0).is_ok();
        assert_eq!((first..first + 1000).filter(|number| !left(*number)).collect::<Vec<_>>(), [first + 7]);
        map.sweep_processes(&|process| process.as_raw() < first as i32);
        assert!(!map.processes.keys().any(|number| number.is_ok_and(|number| number >= first)));
    }
}
