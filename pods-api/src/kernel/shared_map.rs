//! Writes the map `pods_cgroups`, from which other programs learn whose a cgroup is (docs/bpf-map.md). Lives on the
//! `kernel` thread, its only writer.

use super::event::{CgroupEntry, CgroupMap};
use super::status::EbpfStatus;
use crate::pod::CgroupId;
use aya::maps::{HashMap, MapData};
use std::fmt;
use std::sync::Arc;
use tracing::warn;

/// The map for others.
pub struct SharedMap {
    cgroups: HashMap<MapData, u64, pods_api_common::CgroupEntry>,
    tracked: HashMap<MapData, u64, u32>,
    status: Arc<EbpfStatus>,
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
        status: Arc<EbpfStatus>,
    ) -> Self {
        Self { cgroups, tracked, status }
    }

    fn failed(&self, id: CgroupId, reason: &dyn fmt::Display) {
        self.status.count_map_failure();
        warn!(cgroup = id.0, %reason, "cgroup cannot be put into the map of cgroups");
    }
}

impl CgroupMap for SharedMap {
    fn put(&mut self, id: CgroupId, entry: &CgroupEntry) {
        let container = entry.container.as_ref().map(|container| container.as_str());
        let name = entry.name.as_ref().map(|(namespace, name)| (namespace.as_str(), name.as_str()));
        match pods_api_common::CgroupEntry::new(entry.pod.as_str(), container, name) {
            Ok(value) => {
                if let Err(error) = self.cgroups.insert(id.0, value, 0) {
                    self.failed(id, &error);
                }
            }
            Err(too_long) => self.failed(id, &format_args!("its {} is too long", too_long.0)),
        }
        // Known to the programs already, unless its beginning was missed.
        if let Err(error) = self.tracked.insert(id.0, 1, 0) {
            self.failed(id, &error);
        }
    }

    fn remove(&mut self, id: CgroupId) {
        // Either may have gone before: that is what was wanted.
        let _ = self.cgroups.remove(&id.0);
        let _ = self.tracked.remove(&id.0);
    }
}
