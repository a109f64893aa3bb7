//! The containers and sandboxes of a pod by ID: what its status names, and what the runtime has beyond that.

use super::id::ContainerId;
use crate::wire::PodView;
use smallvec::SmallVec;

/// A container or sandbox of a pod.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContainerRef {
    /// Its ID, without the runtime's scheme.
    pub id: ContainerId,
    /// Whether it is the pod's sandbox: it stands for the pod, and is none of its containers.
    pub is_sandbox: bool,
}

/// All that a pod's status names, and all that the runtime has of it, each once.
pub(super) fn containers_of(pod: &PodView<'_>, live: &[ContainerRef]) -> Box<[ContainerRef]> {
    let mut ids: SmallVec<[&str; 8]> = pod.container_ids().filter(|id| !id.is_empty()).collect();
    ids.retain(|id| live.iter().all(|known| known.id.as_str() != *id));
    ids.sort_unstable();
    ids.dedup();
    let told = ids.into_iter().map(|id| ContainerRef { id: id.into(), is_sandbox: false });
    told.chain(live.iter().cloned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::PodSketch;

    #[test]
    fn containers_are_known_from_the_status_and_from_the_runtime() {
        let sandbox = ContainerRef { id: "s".into(), is_sandbox: true };
        let pod =
            PodSketch::new("u").container_id("containerd://b").container_id("a").container_id("").encode();
        let view = PodView::parse(&pod).unwrap();
        let of = |live: &[ContainerRef]| {
            containers_of(&view, live).iter().map(|it| (it.id.to_string(), it.is_sandbox)).collect::<Vec<_>>()
        };
        assert_eq!(of(&[]), [("a".to_owned(), false), ("b".to_owned(), false)]);
        let twice = [ContainerRef { id: "b".into(), is_sandbox: false }, sandbox];
        assert_eq!(of(&twice), [("a".to_owned(), false), ("b".to_owned(), false), ("s".to_owned(), true)]);
    }
}
