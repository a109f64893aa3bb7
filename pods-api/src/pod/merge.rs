//! What several sources say, made into one set of pods.
//!
//! Each source's pods are kept apart; a UID that several sources have is served as the first of them in the order of
//! [`SourceId`] has it. Pure: the store's thread calls it and applies the result.

use super::id::PodUid;
use super::update::{SourceId, SourcePod};
use crate::wire::varint::Fields;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Instant;

/// The pods of every source.
#[derive(Debug, Default)]
pub(super) struct Sources {
    pods: BTreeMap<SourceId, HashMap<PodUid, Held>>,
}

/// A source's pod, and since when it is as it is.
#[derive(Debug)]
struct Held {
    pod: SourcePod,
    received: Instant,
}

/// The kubelet's word on a pod's status.
#[derive(Debug, Clone)]
pub struct Base {
    /// The encoded Pod that has it.
    pub pod: Bytes,
    /// When it came in.
    pub received: Instant,
}

/// The UIDs whose served state an update may have changed, and what each is now. In UID order.
pub(super) type Effects = Vec<(PodUid, Option<SourcePod>)>;

impl Sources {
    /// Replaces the pods of one source. Of a UID that occurs twice the last one counts.
    pub(super) fn set(&mut self, source: SourceId, pods: Vec<SourcePod>, now: Instant) -> Effects {
        let held = self.pods.entry(source).or_default();
        let mut old = std::mem::take(held);
        let mut touched = BTreeSet::new();
        for pod in pods {
            let uid = pod.uid.clone();
            match old.remove(&uid).filter(|old| old.pod == pod) {
                Some(same) => held.insert(uid, same),
                None => {
                    touched.insert(uid.clone());
                    held.insert(uid, Held { pod, received: now })
                }
            };
        }
        touched.extend(old.into_keys());
        touched.into_iter().map(|uid| (uid.clone(), self.served(&uid))).collect()
    }

    /// Adds, replaces and removes single pods of one source. Its cost does not depend on how many others there are.
    pub(super) fn change(
        &mut self,
        source: SourceId,
        pods: Vec<SourcePod>,
        gone: Vec<PodUid>,
        now: Instant,
    ) -> Effects {
        let held = self.pods.entry(source).or_default();
        let mut touched = BTreeSet::new();
        for uid in gone {
            if held.remove(&uid).is_some() {
                touched.insert(uid);
            }
        }
        for pod in pods {
            let uid = pod.uid.clone();
            if held.get(&uid).is_none_or(|old| old.pod != pod) {
                held.insert(uid.clone(), Held { pod, received: now });
                touched.insert(uid);
            }
        }
        touched.into_iter().map(|uid| (uid.clone(), self.served(&uid))).collect()
    }

    /// Lets the sources that gave `pod` hold these shared bytes of it, so that each pod is in memory once.
    pub(super) fn share(&mut self, uid: &PodUid, pod: &Bytes) {
        for held in self.pods.values_mut().filter_map(|pods| pods.get_mut(uid)) {
            if held.pod.pod == *pod {
                held.pod.pod = pod.clone();
            }
        }
    }

    /// What is served of that UID.
    pub(super) fn served(&self, uid: &PodUid) -> Option<SourcePod> {
        self.pods.values().find_map(|pods| pods.get(uid)).map(|held| held.pod.clone())
    }

    /// The UIDs of every pod that a source has, each once.
    pub(super) fn uids(&self) -> BTreeSet<PodUid> {
        self.pods.values().flat_map(HashMap::keys).cloned().collect()
    }

    /// The kubelet's word on that UID's status: from the kubelet itself before what it wrote to the API server; its
    /// /pods tells of static pods at first hand, of all others only what came back from the API server (rule B.5.3).
    pub(super) fn base(&self, uid: &PodUid) -> Option<Base> {
        let of = |source| self.pods.get(&source).and_then(|pods| pods.get(uid));
        let kubelet = of(SourceId::Kubelet);
        let held = of(SourceId::Upstream)
            .or_else(|| kubelet.filter(|held| is_static(&held.pod.pod)))
            .or_else(|| of(SourceId::ApiServer))
            .or(kubelet)?;
        Some(Base { pod: held.pod.pod.clone(), received: held.received })
    }
}

/// Whether the pod comes from the kubelet's own configuration, not from the API server (rule A.3.12).
fn is_static(pod: &[u8]) -> bool {
    const METADATA: u32 = 1;
    const ANNOTATIONS: u32 = 12;
    const CONFIG_SOURCE: &[u8] = b"kubernetes.io/config.source";
    let messages = |bytes, number| {
        let of_number = move |field: crate::wire::varint::Field<'_>| field.number == number;
        Fields::new(bytes)
            .filter_map(Result::ok)
            .filter(move |field| of_number(*field))
            .filter_map(|field| field.bytes())
    };
    messages(pod, METADATA).flat_map(|metadata| messages(metadata, ANNOTATIONS)).any(|entry| {
        messages(entry, 1).any(|key| key == CONFIG_SOURCE) && !messages(entry, 2).any(|value| value == b"api")
    })
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
        assert_eq!(
            sources.set(SourceId::Manifest, pods(&[("b", 1), ("a", 1), ("c", 1)]), Instant::now()).len(),
            3
        );
        assert_eq!(
            sources.set(SourceId::Manifest, pods(&[("a", 1), ("b", 1), ("c", 1)]), Instant::now()),
            []
        );
        let effects = sources.set(SourceId::Manifest, pods(&[("a", 1), ("b", 2), ("d", 1)]), Instant::now());
        let summary: Vec<_> = effects.iter().map(|(uid, pod)| (uid.as_str(), pod.is_some())).collect();
        assert_eq!(summary, [("b", true), ("c", false), ("d", true)]);
    }

    #[test]
    fn single_pods_come_and_go() {
        let mut sources = Sources::default();
        let mut change = |generations: &[(&str, u64)], gone: &[&str]| {
            let gone = gone.iter().map(|&uid| uid.into()).collect();
            let effects = sources.change(SourceId::Manifest, pods(generations), gone, Instant::now());
            effects.iter().map(|(uid, pod)| (uid.to_string(), pod.is_some())).collect::<Vec<_>>()
        };
        let effect = |uid: &str, is_there| (uid.to_owned(), is_there);
        assert_eq!(change(&[("b", 1), ("a", 1)], &[]), [effect("a", true), effect("b", true)]);
        assert_eq!(change(&[("a", 1)], &["unknown"]), []);
        // One change set, in which a pod takes the place of another one.
        assert_eq!(change(&[("c", 1)], &["a"]), [effect("a", false), effect("c", true)]);
        assert_eq!(change(&[("b", 2)], &["b"]), [effect("b", true)], "what is given is there");
    }

    #[test]
    fn of_a_uid_given_twice_the_last_counts() {
        let mut sources = Sources::default();
        let effects = sources.set(SourceId::Manifest, pods(&[("a", 1), ("a", 2)]), Instant::now());
        assert_eq!(effects, [("a".into(), pods(&[("a", 2)]).pop())]);
    }
}
