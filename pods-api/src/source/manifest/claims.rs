//! Which files have which pod, and which of several with the same one wins (rule A.6.3, MAN-1).
//!
//! A file wins if it is the last to have its pod's name and the last to have its UID. Both are kept in order, so that
//! an edit of one file costs the same however many others there are. Owned by the `manifest` thread.

use crate::pod::{Namespace, PodName, PodUid, SourcePod};
use std::collections::{BTreeSet, HashMap};
use std::ffi::OsStr;
use std::hash::Hash;
use std::sync::Arc;

/// The pods of the files. In a directory the files' names sort as their paths do (rule A.1.4).
#[derive(Debug, Default)]
pub(super) struct Claims {
    by_name: Groups<(Namespace, PodName)>,
    by_uid: Groups<PodUid>,
    /// Files that may win or lose since [`Claims::take_touched`].
    touched: BTreeSet<Arc<OsStr>>,
}

type Groups<K> = HashMap<K, BTreeSet<Claim>>;

/// One file's claim to a name or UID. The greatest one of a group wins: contested ones only what nobody else has, of
/// the others the last path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Claim {
    is_settled: bool,
    file: Arc<OsStr>,
}

impl Claims {
    /// Notes that `file`, which had no pod, has `pod` now. One that is not settled wins only what no other file has.
    pub(super) fn insert(&mut self, file: &OsStr, pod: &SourcePod, is_settled: bool) {
        let claim = Claim { is_settled, file: file.into() };
        self.touched.insert(Arc::clone(&claim.file));
        let Self { by_name, by_uid, touched } = self;
        insert(by_name, name_of(pod), claim.clone(), touched);
        insert(by_uid, pod.uid.clone(), claim, touched);
    }

    /// Notes that `file` does not have `pod` any more.
    pub(super) fn remove(&mut self, file: &OsStr, pod: &SourcePod) {
        let file: Arc<OsStr> = file.into();
        let Self { by_name, by_uid, touched } = self;
        remove(by_name, &name_of(pod), &file, touched);
        remove(by_uid, &pod.uid, &file, touched);
        touched.insert(file);
    }

    /// The file to which `file`, which has `pod`, loses it.
    pub(super) fn winner_over(&self, file: &OsStr, pod: &SourcePod) -> Option<&Arc<OsStr>> {
        let lasts = [self.by_name.get(&name_of(pod)), self.by_uid.get(&pod.uid)];
        lasts
            .into_iter()
            .flatten()
            .filter_map(BTreeSet::last)
            .map(|claim| &claim.file)
            .find(|last| ***last != *file)
    }

    /// Whether a file other than `file` has a pod of that name or UID.
    pub(super) fn has_other(&self, file: &OsStr, pod: &SourcePod) -> bool {
        let groups = [self.by_name.get(&name_of(pod)), self.by_uid.get(&pod.uid)];
        // Of any two claims one is another file's.
        groups.into_iter().flatten().any(|group| group.iter().take(2).any(|claim| *claim.file != *file))
    }

    /// The files that may have come to win or lose since the last call, in order.
    pub(super) fn take_touched(&mut self) -> BTreeSet<Arc<OsStr>> {
        std::mem::take(&mut self.touched)
    }
}

fn name_of(pod: &SourcePod) -> (Namespace, PodName) {
    (pod.namespace.clone(), pod.name.clone())
}

fn insert<K: Eq + Hash>(groups: &mut Groups<K>, key: K, claim: Claim, touched: &mut BTreeSet<Arc<OsStr>>) {
    let group = groups.entry(key).or_default();
    touched.extend(group.last().map(|last| Arc::clone(&last.file)));
    group.insert(claim);
}

fn remove<K: Eq + Hash>(
    groups: &mut Groups<K>,
    key: &K,
    file: &Arc<OsStr>,
    touched: &mut BTreeSet<Arc<OsStr>>,
) {
    let Some(group) = groups.get_mut(key) else { return };
    for is_settled in [false, true] {
        group.remove(&Claim { is_settled, file: Arc::clone(file) });
    }
    match group.last() {
        Some(last) => drop(touched.insert(Arc::clone(&last.file))),
        None => drop(groups.remove(key)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn pod(name: u8, uid: u8) -> SourcePod {
        SourcePod {
            uid: uid.to_string().into(),
            namespace: "default".into(),
            name: name.to_string().into(),
            is_uid_provisional: false,
            pod: Bytes::new(),
        }
    }

    /// Who wins, found by comparing each file with each later one.
    fn winners(files: &BTreeMap<String, (SourcePod, bool)>) -> BTreeSet<String> {
        let mut order: Vec<_> = files.iter().collect();
        order.sort_by_key(|(_, (_, is_settled))| *is_settled);
        let is_same = |a: &SourcePod, b: &SourcePod| a.name == b.name || a.uid == b.uid;
        let wins = |index: usize| {
            !order[index + 1..].iter().any(|(_, (other, _))| is_same(other, &order[index].1.0))
        };
        (0..order.len()).filter(|&index| wins(index)).map(|index| order[index].0.clone()).collect()
    }

    proptest! {
        #[test]
        fn winners_follow_from_the_touched_files_alone(
            edits in prop::collection::vec((0..6u8, prop::option::of((0..3u8, 0..3u8, any::<bool>()))), 1..60),
        ) {
            let (mut claims, mut files, mut winning) = (Claims::default(), BTreeMap::new(), BTreeSet::new());
            for (file, edit) in edits {
                let file = file.to_string();
                if let Some((before, _)) = files.remove(&file) {
                    claims.remove(OsStr::new(&file), &before);
                }
                if let Some((name, uid, is_settled)) = edit {
                    let pod = pod(name, uid);
                    let others = files.values().any(|(other, _): &(SourcePod, bool)| {
                        other.name == pod.name || other.uid == pod.uid
                    });
                    prop_assert_eq!(claims.has_other(OsStr::new(&file), &pod), others);
                    claims.insert(OsStr::new(&file), &pod, is_settled);
                    files.insert(file, (pod, is_settled));
                }
                for touched in claims.take_touched() {
                    let touched = touched.to_str().unwrap();
                    let wins = files
                        .get(touched)
                        .is_some_and(|(pod, _)| claims.winner_over(OsStr::new(touched), pod).is_none());
                    if wins {
                        winning.insert(touched.to_owned());
                    } else {
                        winning.remove(touched);
                    }
                }
                prop_assert_eq!(&winning, &winners(&files));
            }
        }
    }

    #[test]
    fn an_edit_touches_a_bounded_number_of_files() {
        let mut claims = Claims::default();
        for file in 0..1_000 {
            // All have one name, so that a search through the group would show.
            claims.insert(OsStr::new(&file.to_string()), &pod(0, 0), true);
        }
        claims.take_touched();
        claims.insert(OsStr::new("5000"), &pod(0, 1), true);
        assert!(claims.take_touched().len() <= 2);
        claims.remove(OsStr::new("5000"), &pod(0, 1));
        assert!(claims.take_touched().len() <= 2);
    }
}
