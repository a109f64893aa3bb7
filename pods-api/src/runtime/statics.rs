//! The UIDs of static pods: the kubelet's own, as the sandboxes in the runtime carry them.
//!
//! The kubelet hashes a static pod in a way that nobody else can reproduce, so a manifest without a UID first has one
//! of this server's making (rule A.7.5). Manifests pass through here on their way to the store: one that is new or has
//! changed is held back for a short while, until the runtime shows the sandbox that the kubelet made for it. Pure: the
//! reconciler hands in sets, lists and times.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use pods_api_proto::k8s::io::api::core::v1;
use prost::Message as _;

use super::cri::SandboxIdentity;
use crate::pod::{PodUid, SourceId, SourcePod, Update};
use crate::wire::splice::PodEdit;

const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
const CONFIG_HASH: &str = "kubernetes.io/config.hash";
const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
/// Annotations that the kubelet makes up itself.
const CONFIG_PREFIX: &str = "kubernetes.io/config.";
/// Labels and annotations that the kubelet and runtimes add to a sandbox.
const RUNTIME_PREFIX: &str = "io.kubernetes.";

/// The static pods, between their source and the store.
#[derive(Debug)]
pub(super) struct StaticPods {
    hold_back: Duration,
    /// The source's last set; `None` before its first.
    manifests: Option<Vec<SourcePod>>,
    /// Sandboxes of static pods, newest first.
    sandboxes: Vec<SandboxIdentity>,
    /// The kubelet's UID and `config.seen` by the UID of our making.
    adopted: HashMap<PodUid, (PodUid, Option<String>)>,
    /// Which manifest each of the kubelet's UIDs was adopted for. It never fits another one: an edited manifest has
    /// another UID, even while the old sandbox still runs (rule A.7.6).
    taken: HashMap<PodUid, PodUid>,
    /// Until when the pods not shown yet are held back, by the UID of our making.
    held: HashMap<PodUid, Instant>,
    /// What the store was told last.
    told: Option<Vec<SourcePod>>,
    is_dirty: bool,
}

impl StaticPods {
    pub(super) fn new(hold_back: Duration) -> Self {
        Self {
            hold_back,
            manifests: None,
            sandboxes: Vec::new(),
            adopted: HashMap::new(),
            taken: HashMap::new(),
            held: HashMap::new(),
            told: None,
            is_dirty: false,
        }
    }

    /// Takes a set of manifests; anything else passes as it is.
    pub(super) fn take(&mut self, update: Update, now: Instant) -> Option<Update> {
        let Update::Set { source: SourceId::Manifest, pods } = update else { return Some(update) };
        for pod in pods.iter().filter(|pod| pod.is_uid_provisional) {
            let is_new = !self.has(&pod.uid) && !self.adopted.contains_key(&pod.uid);
            if is_new {
                self.held.entry(pod.uid.clone()).or_insert(now + self.hold_back);
            }
        }
        self.manifests = Some(pods);
        let manifests = self.manifests.as_deref().unwrap_or_default();
        let is_there = |uid: &PodUid| manifests.iter().any(|pod| pod.uid == *uid);
        self.held.retain(|uid, _| is_there(uid));
        self.adopted.retain(|uid, _| is_there(uid));
        self.is_dirty = true;
        self.release(now)
    }

    fn has(&self, uid: &PodUid) -> bool {
        self.manifests.iter().flatten().any(|pod| pod.uid == *uid)
    }

    /// Takes in the sandboxes of a full list.
    pub(super) fn take_sandboxes(&mut self, sandboxes: &[SandboxIdentity]) {
        let is_static = |sandbox: &&SandboxIdentity| {
            sandbox.annotations.get(CONFIG_SOURCE).is_some_and(|source| source == "file")
        };
        let mut sandboxes: Vec<_> = sandboxes.iter().filter(is_static).cloned().collect();
        sandboxes.sort_by(|a, b| (b.is_ready, b.created_at, &b.uid).cmp(&(a.is_ready, a.created_at, &a.uid)));
        if sandboxes != self.sandboxes {
            self.sandboxes = sandboxes;
            // UIDs that have left the runtime cannot come up again.
            let sandboxes = &self.sandboxes;
            let adopted = &self.adopted;
            self.taken.retain(|uid, own| {
                adopted.contains_key(own) || sandboxes.iter().any(|sandbox| sandbox.uid == *uid)
            });
            self.is_dirty = true;
        }
    }

    /// The set to tell the store, if it has changed.
    pub(super) fn release(&mut self, now: Instant) -> Option<Update> {
        let held_before = self.held.len();
        self.held.retain(|_, until| *until > now);
        if !std::mem::take(&mut self.is_dirty) && self.held.len() == held_before {
            return None;
        }
        let manifests = self.manifests.take()?;
        let pods: Vec<_> = manifests.iter().filter_map(|pod| self.resolve(pod)).collect();
        self.manifests = Some(manifests);
        // A first set that leaves pods out would make the source ready without them.
        let is_first_incomplete = self.told.is_none() && !self.held.is_empty();
        if is_first_incomplete || self.told.as_ref() == Some(&pods) {
            return None;
        }
        self.told = Some(pods.clone());
        Some(Update::Set { source: SourceId::Manifest, pods })
    }

    /// When [`StaticPods::release`] has something to do next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.held.values().min().copied()
    }

    /// The pod under its best UID; `None` while it is held back.
    fn resolve(&mut self, pod: &SourcePod) -> Option<SourcePod> {
        if !pod.is_uid_provisional {
            return Some(pod.clone());
        }
        if let Some(sandbox) = self.candidate(pod) {
            let seen = sandbox.annotations.get(CONFIG_SEEN).cloned();
            let uid = sandbox.uid.clone();
            self.taken.insert(uid.clone(), pod.uid.clone());
            let before = self.adopted.insert(pod.uid.clone(), (uid.clone(), seen));
            if before.is_none_or(|(before, _)| before != uid) {
                tracing::info!(namespace = %pod.namespace, name = %pod.name, %uid, "static pod has the kubelet's UID");
            }
            self.held.remove(&pod.uid);
        }
        match self.adopted.get(&pod.uid) {
            Some((uid, seen)) => Some(renamed(pod, uid, seen.as_deref())),
            None if self.held.contains_key(&pod.uid) => None,
            None => Some(pod.clone()),
        }
    }

    /// The newest sandbox that the kubelet can have made for this manifest, ready ones first.
    fn candidate(&self, pod: &SourcePod) -> Option<&SandboxIdentity> {
        let mut candidates = self
            .sandboxes
            .iter()
            .filter(|sandbox| sandbox.namespace == pod.namespace && sandbox.name == pod.name)
            .filter(|sandbox| self.taken.get(&sandbox.uid).is_none_or(|own| *own == pod.uid))
            .peekable();
        candidates.peek()?;
        let decoded = v1::Pod::decode(&*pod.pod).ok()?;
        let metadata = decoded.metadata.unwrap_or_default();
        candidates.find(|sandbox| fits(sandbox, &metadata.labels, &metadata.annotations))
    }
}

/// Whether a sandbox shows no sign of having been made from another version of the manifest (rule A.7.6).
fn fits(
    sandbox: &SandboxIdentity,
    labels: &BTreeMap<String, String>,
    annotations: &BTreeMap<String, String>,
) -> bool {
    let is_pods_own =
        |(key, _): &(&String, &String)| !key.starts_with(RUNTIME_PREFIX) && !key.starts_with(CONFIG_PREFIX);
    let agree = |a: &BTreeMap<String, String>, b: &BTreeMap<String, String>| {
        a.iter().filter(is_pods_own).eq(b.iter().filter(is_pods_own))
    };
    agree(&sandbox.labels, labels) && agree(&sandbox.annotations, annotations)
}

/// The pod under the kubelet's UID, with the annotations that go with it (rules A.3.7, A.3.10).
fn renamed(pod: &SourcePod, uid: &PodUid, seen: Option<&str>) -> SourcePod {
    let mut edit = PodEdit::new(&pod.pod);
    edit.uid(uid.as_str()).annotation(CONFIG_HASH, uid.as_str());
    if let Some(seen) = seen {
        edit.annotation(CONFIG_SEEN, seen);
    }
    match edit.finish() {
        Ok(bytes) => SourcePod { uid: uid.clone(), is_uid_provisional: false, pod: bytes, ..pod.clone() },
        // The source has encoded these bytes itself: the store would refuse them too, and say so.
        Err(_) => pod.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{Namespace, PodName};
    use crate::runtime::status::UnixNanos;

    const HOLD_BACK: Duration = Duration::from_secs(5);

    fn manifest(own: &str, name: &str, label: &str) -> SourcePod {
        let mut pod = v1::Pod::default();
        let metadata = pod.metadata.get_or_insert_default();
        metadata.name = Some(name.to_owned());
        metadata.uid = Some(own.to_owned());
        metadata.labels.insert("version".to_owned(), label.to_owned());
        metadata.annotations.insert(CONFIG_HASH.to_owned(), own.to_owned());
        metadata.annotations.insert(CONFIG_SEEN.to_owned(), "ours".to_owned());
        SourcePod {
            uid: own.into(),
            namespace: Namespace::from("default"),
            name: PodName::from(name),
            is_uid_provisional: true,
            pod: pod.encode_to_vec().into(),
        }
    }

    fn sandbox(uid: &str, name: &str, label: &str, created: i64) -> SandboxIdentity {
        let text = |entries: &[(&str, &str)]| {
            entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        SandboxIdentity {
            uid: uid.into(),
            namespace: Namespace::from("default"),
            name: PodName::from(name),
            is_ready: true,
            created_at: UnixNanos::new(created),
            labels: text(&[("version", label), ("io.kubernetes.pod.uid", uid)]),
            annotations: text(&[(CONFIG_SOURCE, "file"), (CONFIG_SEEN, "the kubelet's"), (CONFIG_HASH, uid)]),
        }
    }

    fn set(pods: &[SourcePod]) -> Update {
        Update::Set { source: SourceId::Manifest, pods: pods.to_vec() }
    }

    fn uids(update: Option<Update>) -> Option<Vec<String>> {
        let Update::Set { pods, .. } = update? else { panic!("a set") };
        Some(pods.iter().map(|pod| pod.uid.to_string()).collect())
    }

    fn some(uids: &[&str]) -> Option<Vec<String>> {
        Some(uids.iter().map(|uid| (*uid).to_owned()).collect())
    }

    #[test]
    fn runtimes_uid_is_adopted_with_its_annotations() {
        // MAN-8, rule A.7.5.
        let (mut statics, now) = (StaticPods::new(HOLD_BACK), Instant::now());
        statics.take_sandboxes(&[sandbox("kubelet", "etcd-n", "1", 5)]);
        let update = statics.take(set(&[manifest("own", "etcd-n", "1")]), now);
        let Some(Update::Set { pods, .. }) = update else { panic!("told at once") };
        let metadata = v1::Pod::decode(&*pods[0].pod).unwrap().metadata.unwrap();
        assert_eq!((pods[0].uid.as_str(), metadata.uid()), ("kubelet", "kubelet"));
        assert_eq!(
            (&*metadata.annotations[CONFIG_HASH], &*metadata.annotations[CONFIG_SEEN]),
            ("kubelet", "the kubelet's")
        );
        assert_eq!(uids(statics.take(set(&[manifest("own", "etcd-n", "1")]), now)), None, "the same again");
    }

    #[test]
    fn first_set_waits_for_the_runtime_but_not_for_ever() {
        let (mut statics, now) = (StaticPods::new(HOLD_BACK), Instant::now());
        assert_eq!(uids(statics.take(set(&[manifest("a", "a", "1"), manifest("b", "b", "1")]), now)), None);
        statics.take_sandboxes(&[sandbox("kubelet-a", "a", "1", 5)]);
        assert_eq!(uids(statics.release(now)), None, "a set without b would be incomplete");
        assert_eq!(statics.next_due(), Some(now + HOLD_BACK));
        assert_eq!(uids(statics.release(now + HOLD_BACK)), some(&["kubelet-a", "b"]));
        assert_eq!(statics.next_due(), None);
        // The better UID comes later: the old one is gone from the same set (no duplicates).
        statics.take_sandboxes(&[sandbox("kubelet-b", "b", "1", 6), sandbox("kubelet-a", "a", "1", 5)]);
        assert_eq!(uids(statics.release(now + 2 * HOLD_BACK)), some(&["kubelet-a", "kubelet-b"]));
    }

    #[test]
    fn edited_manifest_does_not_get_the_old_sandboxs_uid() {
        // Rule A.7.6, with an edit that the sandbox does not show.
        let (mut statics, now) = (StaticPods::new(HOLD_BACK), Instant::now());
        statics.take_sandboxes(&[sandbox("old", "a", "1", 5)]);
        assert_eq!(uids(statics.take(set(&[manifest("v1", "a", "1"), manifest("x", "x", "1")]), now)), None);
        assert_eq!(uids(statics.release(now + HOLD_BACK)), some(&["old", "x"]));
        let now = now + HOLD_BACK;
        let edited = || set(&[manifest("v2", "a", "1"), manifest("x", "x", "1")]);
        assert_eq!(uids(statics.take(edited(), now)), some(&["x"]), "held back");
        statics.take_sandboxes(&[sandbox("new", "a", "1", 9), sandbox("old", "a", "1", 5)]);
        assert_eq!(uids(statics.release(now)), some(&["new", "x"]));
    }

    #[test]
    fn sandbox_of_another_version_is_told_by_its_labels() {
        let (mut statics, now) = (StaticPods::new(HOLD_BACK), Instant::now());
        statics.take_sandboxes(&[sandbox("old", "a", "1", 5)]);
        statics.take(set(&[manifest("v2", "a", "2")]), now);
        assert_eq!(uids(statics.release(now + HOLD_BACK)), some(&["v2"]));
        statics.take_sandboxes(&[sandbox("old", "a", "1", 5), sandbox("new", "a", "2", 9)]);
        assert_eq!(uids(statics.release(now + HOLD_BACK)), some(&["new"]));
    }

    #[test]
    fn newest_ready_sandbox_wins_and_others_do_not_count() {
        let now = Instant::now();
        let with = |sandboxes: &[SandboxIdentity]| {
            let mut statics = StaticPods::new(HOLD_BACK);
            statics.take_sandboxes(sandboxes);
            statics.take(set(&[manifest("own", "a", "1")]), now);
            statics.told.map_or("held".to_owned(), |told| told[0].uid.to_string())
        };
        let stopped = |mut sandbox: SandboxIdentity| {
            sandbox.is_ready = false;
            sandbox
        };
        let api = |mut sandbox: SandboxIdentity| {
            sandbox.annotations.insert(CONFIG_SOURCE.to_owned(), "api".to_owned());
            sandbox
        };
        assert_eq!(with(&[sandbox("older", "a", "1", 5), sandbox("newer", "a", "1", 6)]), "newer");
        assert_eq!(with(&[sandbox("ready", "a", "1", 5), stopped(sandbox("newer", "a", "1", 6))]), "ready");
        assert_eq!(with(&[stopped(sandbox("stopped", "a", "1", 6))]), "stopped");
        assert_eq!(with(&[api(sandbox("mirror", "a", "1", 6))]), "held");
        assert_eq!(with(&[sandbox("other", "b", "1", 6)]), "held");
    }

    #[test]
    fn adopted_uid_stays_when_the_sandbox_is_gone_and_follows_the_kubelet() {
        let (mut statics, now) = (StaticPods::new(HOLD_BACK), Instant::now());
        statics.take_sandboxes(&[sandbox("one", "a", "1", 5)]);
        assert_eq!(uids(statics.take(set(&[manifest("own", "a", "1")]), now)), some(&["one"]));
        statics.take_sandboxes(&[]);
        assert_eq!(uids(statics.release(now)), None);
        // MAN-8: another version of the kubelet hashes the same manifest to another UID.
        statics.take_sandboxes(&[sandbox("two", "a", "1", 9)]);
        assert_eq!(uids(statics.release(now)), some(&["two"]));
    }

    #[test]
    fn explicit_uids_and_other_updates_pass() {
        let (mut statics, now) = (StaticPods::new(HOLD_BACK), Instant::now());
        let explicit = SourcePod { is_uid_provisional: false, ..manifest("explicit", "a", "1") };
        assert_eq!(uids(statics.take(set(&[explicit]), now)), some(&["explicit"]));
        assert_eq!(uids(statics.take(set(&[]), now)), some(&[]));
        let other = Update::Remove { source: SourceId::ApiServer, uid: "u".into() };
        assert!(matches!(statics.take(other, now), Some(Update::Remove { .. })));
    }
}
