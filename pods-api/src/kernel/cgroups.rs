//! The cgroups of pods, by number and by container.
//!
//! The kernel thread edits its own table and publishes clones of it: persistent maps, so a clone shares everything and
//! readers never wait. Bounded: what containers make below themselves cannot crowd out the containers, and of released
//! cgroups the oldest go first.

use super::cgroup_path::{CgroupRoot, PodPath};
use crate::pod::{CgroupId, ContainerId, Pid};
use imbl::{OrdMap, OrdSet};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Cgroups of pods and containers: far more than a node has.
const MAX_OWN: usize = 32_768;
/// Cgroups that containers made below themselves.
const MAX_NESTED: usize = 16_384;
/// Released cgroups that are kept findable.
const MAX_RELEASED: usize = 8_192;

/// One cgroup of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cgroup {
    /// Its path below the hierarchy's root; names a pod.
    pub(super) path: Arc<str>,
    /// The container or sandbox that it belongs to; `None` for the pod's own.
    pub(super) container: Option<ContainerId>,
    /// Whether a container made it below itself.
    pub(super) is_nested: bool,
    pub(super) is_populated: bool,
    /// Whether an event told of its making, so that the first process to execute anything in it is known for that.
    pub(super) is_seen_from_start: bool,
    /// The first process of the container: the container ends with it.
    pub(super) init: Option<Pid>,
    /// When it was removed, if it was.
    pub(super) released: Option<Instant>,
}

impl Cgroup {
    /// A cgroup by its path; `None` where that names no pod.
    pub(super) fn of(path: &str, root: &CgroupRoot) -> Option<Self> {
        let pod = PodPath::parse(path, root)?;
        Some(Self {
            path: path.into(),
            container: pod.container.map(ContainerId::from),
            is_nested: pod.depth > 0,
            is_populated: false,
            is_seen_from_start: false,
            init: None,
            released: None,
        })
    }

    /// The container, if this is the cgroup that the runtime made for it.
    pub(super) fn own_container(&self) -> Option<&ContainerId> {
        self.container.as_ref().filter(|_| !self.is_nested)
    }
}

/// What readers see.
#[derive(Debug, Clone, Default)]
pub(super) struct Cgroups {
    by_id: OrdMap<CgroupId, Arc<Cgroup>>,
    /// The cgroups that runtimes made for containers and sandboxes.
    by_container: OrdSet<(ContainerId, CgroupId)>,
}

impl Cgroups {
    pub(super) fn get(&self, id: CgroupId) -> Option<&Arc<Cgroup>> {
        self.by_id.get(&id)
    }

    /// The cgroups of containers and sandboxes whose ID begins with `prefix`, in the order of IDs.
    pub(super) fn by_container_prefix<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a ContainerId, &'a Arc<Cgroup>)> {
        self.by_container
            .range((ContainerId::from(prefix), CgroupId(0))..)
            .take_while(move |(container, _)| container.as_str().starts_with(prefix))
            .filter_map(|(container, id)| Some((container, self.by_id.get(id)?)))
    }

    /// How many cgroups there are, released ones included.
    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// How many of them are a container's or sandbox's own.
    pub(super) fn container_count(&self) -> usize {
        self.by_container.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (CgroupId, &Arc<Cgroup>)> {
        self.by_id.iter().map(|(id, cgroup)| (*id, cgroup))
    }
}

/// The kernel thread's table.
#[derive(Debug, Default)]
pub(super) struct CgroupTable {
    cgroups: Cgroups,
    nested: usize,
    /// The order of removal. May hold cgroups whose number is another's since.
    released: VecDeque<(Instant, CgroupId)>,
}

impl CgroupTable {
    pub(super) fn cgroups(&self) -> &Cgroups {
        &self.cgroups
    }

    /// Takes in a cgroup. `false` if it was known, or if there is no room for it.
    pub(super) fn insert(&mut self, id: CgroupId, cgroup: Cgroup) -> bool {
        if let Some(known) = self.cgroups.by_id.get(&id) {
            if known.path == cgroup.path && known.released.is_none() {
                return false;
            }
            self.remove(id);
        }
        let (count, limit) = if cgroup.is_nested {
            (self.nested, MAX_NESTED)
        } else {
            (self.cgroups.by_id.len() - self.nested, MAX_OWN)
        };
        if count >= limit {
            return false;
        }
        self.nested += usize::from(cgroup.is_nested);
        if let Some(container) = cgroup.own_container() {
            self.cgroups.by_container.insert((container.clone(), id));
        }
        self.cgroups.by_id.insert(id, Arc::new(cgroup));
        true
    }

    /// Changes what is known of a cgroup. `None` if it is not known.
    pub(super) fn edit(&mut self, id: CgroupId, edit: impl FnOnce(&mut Cgroup)) -> Option<Arc<Cgroup>> {
        let cgroup = self.cgroups.by_id.get_mut(&id)?;
        edit(Arc::make_mut(cgroup));
        Some(cgroup.clone())
    }

    /// Notes that a cgroup was removed. `None` if that was known, or the cgroup is not.
    pub(super) fn release(&mut self, id: CgroupId, now: Instant) -> Option<Arc<Cgroup>> {
        self.cgroups.by_id.get(&id).filter(|cgroup| cgroup.released.is_none())?;
        self.released.push_back((now, id));
        if self.released.len() > MAX_RELEASED
            && let Some((at, oldest)) = self.released.pop_front()
        {
            self.remove_released(oldest, at);
        }
        self.edit(id, |cgroup| {
            cgroup.released = Some(now);
            cgroup.is_populated = false;
        })
    }

    /// Forgets what was removed `keep` ago or earlier. Returns whether anything was.
    pub(super) fn expire(&mut self, now: Instant, keep: Duration) -> bool {
        let before = self.released.len();
        while let Some((at, id)) = self.released.pop_front_if(|(at, _)| now.duration_since(*at) >= keep) {
            self.remove_released(id, at);
        }
        self.released.len() < before
    }

    /// When the oldest released cgroup was removed.
    pub(super) fn oldest_release(&self) -> Option<Instant> {
        self.released.front().map(|(at, _)| *at)
    }

    fn remove_released(&mut self, id: CgroupId, at: Instant) {
        if self.cgroups.get(id).is_some_and(|cgroup| cgroup.released == Some(at)) {
            self.remove(id);
        }
    }

    fn remove(&mut self, id: CgroupId) {
        let Some(cgroup) = self.cgroups.by_id.remove(&id) else { return };
        self.nested -= usize::from(cgroup.is_nested);
        if let Some(container) = cgroup.own_container() {
            self.cgroups.by_container.remove(&(container.clone(), id));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(table: &mut CgroupTable, id: u64, path: &str) -> bool {
        table.insert(CgroupId(id), Cgroup::of(path, &CgroupRoot::default()).unwrap())
    }

    fn containers(table: &CgroupTable, prefix: &str) -> Vec<String> {
        table.cgroups().by_container_prefix(prefix).map(|(id, _)| id.to_string()).collect()
    }

    #[test]
    fn containers_are_found_by_prefix_and_their_children_are_not_containers() {
        let mut table = CgroupTable::default();
        for (id, name) in [(2, ""), (3, "/ab1"), (4, "/ab2"), (5, "/b"), (6, "/ab1/init"), (7, "/init.scope")]
        {
            assert!(insert(&mut table, id, &format!("/kubepods/podx{name}")));
        }
        assert!(!insert(&mut table, 3, "/kubepods/podx/ab1"), "known already");
        assert_eq!(containers(&table, "ab"), ["ab1", "ab2"]);
        assert_eq!(containers(&table, "ab1"), ["ab1"]);
        assert_eq!(containers(&table, ""), ["ab1", "ab2", "b"]);
        assert!(containers(&table, "c").is_empty());
        let nested = table.cgroups().get(CgroupId(6)).unwrap();
        assert_eq!((nested.container.as_ref().unwrap().as_str(), nested.own_container()), ("ab1", None));
        assert!(Cgroup::of("/system.slice", &CgroupRoot::default()).is_none());
    }

    #[test]
    fn released_cgroups_stay_for_their_time() {
        let (start, keep) = (Instant::now(), Duration::from_secs(60));
        let mut table = CgroupTable::default();
        insert(&mut table, 2, "/kubepods/podx/a");
        insert(&mut table, 3, "/kubepods/podx/b");
        assert!(table.release(CgroupId(2), start).is_some());
        assert!(table.release(CgroupId(2), start).is_none(), "told twice");
        table.release(CgroupId(3), start + Duration::from_secs(30));
        assert!(!table.expire(start + Duration::from_secs(59), keep));
        assert_eq!(containers(&table, ""), ["a", "b"]);
        assert!(table.expire(start + keep, keep));
        assert_eq!(containers(&table, ""), ["b"]);
        assert_eq!(table.oldest_release(), Some(start + Duration::from_secs(30)));
    }

    #[test]
    fn container_that_makes_many_cgroups_does_not_crowd_out_others() {
        let mut table = CgroupTable::default();
        for id in 0..=MAX_NESTED as u64 {
            let has_room = insert(&mut table, id, &format!("/kubepods/podx/a/{id}"));
            assert_eq!(has_room, id < MAX_NESTED as u64);
        }
        assert!(insert(&mut table, 1 << 32, "/kubepods/pody/b"));
        assert_eq!(containers(&table, ""), ["b"]);
    }

    #[test]
    fn number_of_released_cgroups_is_bounded() {
        let start = Instant::now();
        let mut table = CgroupTable::default();
        for id in 0..=MAX_RELEASED as u64 {
            insert(&mut table, id, &format!("/kubepods/podx/{id}"));
            table.release(CgroupId(id), start);
        }
        assert_eq!((table.cgroups().len(), table.released.len()), (MAX_RELEASED, MAX_RELEASED));
        assert!(table.cgroups().get(CgroupId(0)).is_none());
    }
}
