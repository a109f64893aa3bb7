//! What several sources say, made into one set of pods.
//!
//! Each source's pods are kept apart; a UID that several sources have is served as the first of them in the order of
//! [`SourceId`] has it. Pure: the store's thread calls it and applies the result.

use super::id::PodUid;
use super::update::{SourceId, SourcePod};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The pods of every source.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pods: BTreeMap<SourceId, HashMap<PodUid, SourcePod>>,
}

/// The UIDs whose served state an update may have changed, and what each is now. In UID order.
pub(super) type Effects = Vec<(PodUid, Option<SourcePod>)>;

impl Sources {
    /// Replaces the pods of one source. Of a UID that occurs twice the last one counts.
    pub(super) fn set(&mut self, source: SourceId, pods: Vec<SourcePod>) -> Effects {
        let new: HashMap<_, _> = pods.into_iter().map(|pod| (pod.uid.clone(), pod)).collect();
        let old = self.pods.entry(source).or_default();
        let mut touched: BTreeSet<_> = old.keys().filter(|uid| !new.contains_key(*uid)).cloned().collect();
        touched
            .extend(new.iter().filter(|(uid, pod)| old.get(*uid) != Some(pod)).map(|(uid, _)| uid.clone()));
        *old = new;
        touched.into_iter().map(|uid| (uid.clone(), self.served(&uid))).collect()
    }

    /// Adds or replaces one pod of a source.
    pub(super) fn upsert(&mut self, source: SourceId, pod: SourcePod) -> Effects {
        let uid = pod.uid.clone();
        let old = self.pods.entry(source).or_default();
        if old.get(&uid) == Some(&pod) {
            return Effects::new();
        }
        old.insert(uid.clone(), pod);
        vec![(uid.clone(), self.served(&uid))]
    }

    /// Removes one pod of a source.
    pub(super) fn remove(&mut self, source: SourceId, uid: PodUid) -> Effects {
        let Some(_) = self.pods.get_mut(&source).and_then(|pods| pods.remove(&uid)) else {
            return Effects::new();
        };
        let served = self.served(&uid);
        vec![(uid, served)]
    }

    /// Lets the sources that gave `pod` hold these shared bytes of it, so that each pod is in memory once.
    pub(super) fn share(&mut self, uid: &PodUid, pod: &Bytes) {
        for held in self.pods.values_mut().filter_map(|pods| pods.get_mut(uid)) {
            if held.pod == *pod {
                held.pod = pod.clone();
            }
        }
    }

    /// What is served of that UID.
    pub(super) fn served(&self, uid: &PodUid) -> Option<SourcePod> {
        self.pods.values().find_map(|pods| pods.get(uid)).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::PodSketch;

    fn pods(sketches: &[(&str, u64)]) -> Vec<SourcePod> {
        sketches
            .iter()
            .map(|(uid, generation)| PodSketch::new(uid).generation(*generation).source_pod())
            .collect()
    }

    #[test]
    fn only_what_differs_is_touched() {
        let mut sources = Sources::default();
        assert_eq!(sources.set(SourceId::Manifest, pods(&[("b", 1), ("a", 1), ("c", 1)])).len(), 3);
        assert_eq!(sources.set(SourceId::Manifest, pods(&[("a", 1), ("b", 1), ("c", 1)])), []);
        let effects = sources.set(SourceId::Manifest, pods(&[("a", 1), ("b", 2), ("d", 1)]));
        let summary: Vec<_> = effects.iter().map(|(uid, pod)| (uid.as_str(), pod.is_some())).collect();
        assert_eq!(summary, [("b", true), ("c", false), ("d", true)]);
    }

    #[test]
    fn single_pods_come_and_go() {
        let mut sources = Sources::default();
        let pod = pods(&[("a", 1)]).remove(0);
        assert_eq!(sources.upsert(SourceId::Manifest, pod.clone()), [("a".into(), Some(pod.clone()))]);
        assert_eq!(sources.upsert(SourceId::Manifest, pod), []);
        assert_eq!(sources.remove(SourceId::Manifest, "a".into()), [("a".into(), None)]);
        assert_eq!(sources.remove(SourceId::Manifest, "a".into()), []);
    }

    #[test]
    fn of_a_uid_given_twice_the_last_counts() {
        let mut sources = Sources::default();
        let effects = sources.set(SourceId::Manifest, pods(&[("a", 1), ("a", 2)]));
        assert_eq!(effects, [("a".into(), pods(&[("a", 2)]).pop())]);
    }
}
