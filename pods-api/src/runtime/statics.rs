//! The UIDs of static pods: the kubelet's own, as the sandboxes in the runtime carry them.
//!
//! The kubelet hashes a static pod in a way that nobody else can reproduce, so a manifest without a UID first has one
//! of this server's making (rule A.7.5). Manifests pass through here on their way to the store: one that is new or has
//! changed is held back for a short while, until the runtime shows the sandbox that the kubelet made for it. Only what
//! changes is looked at and passed on; a change of the sandboxes alone concerns every manifest. Pure: the reconciler
//! hands in updates, lists and times.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
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
    /// The source's pods, by the UID that the source gave them; `None` before its first set.
    manifests: Option<BTreeMap<PodUid, Manifest>>,
    /// Sandboxes of static pods, newest first.
    sandboxes: Vec<SandboxIdentity>,
    /// The kubelet's identity by the UID of our making.
    adopted: HashMap<PodUid, Identity>,
    /// Which manifest each of the kubelet's UIDs was adopted for. It never fits another one: an edited manifest has
    /// another UID, even while the old sandbox still runs (rule A.7.6).
    taken: HashMap<PodUid, PodUid>,
    /// Until when the pods not shown yet are held back, by the UID of our making.
    held: HashMap<PodUid, Instant>,
    /// Until when the first set may be held back at most, however often the source changes meanwhile.
    first_until: Option<Instant>,
    /// The manifests to look at, by the source's UID.
    dirty: BTreeSet<PodUid>,
    /// UIDs that the store was told and that have left the source.
    gone: Vec<PodUid>,
    /// Whether the store has the first set.
    has_told: bool,
}

/// One of the source's pods.
#[derive(Debug)]
struct Manifest {
    pod: SourcePod,
    /// As what the store has it.
    told: Option<Identity>,
    /// Whether the store has an older version of it.
    is_edited: bool,
}

/// What the kubelet makes up for a static pod.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    uid: PodUid,
    /// The text of `config.seen`; `None` leaves the source's.
    seen: Option<String>,
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
            first_until: None,
            dirty: BTreeSet::new(),
            gone: Vec::new(),
            has_told: false,
        }
    }

    /// Takes what the source of manifests says; anything else passes as it is.
    pub(super) fn take(&mut self, update: Update, now: Instant) -> Option<Update> {
        match update {
            Update::Set { source: SourceId::Manifest, pods } => {
                let there: HashSet<_> = pods.iter().map(|pod| &pod.uid).collect();
                let known = self.manifests.get_or_insert_default().keys();
                let gone = known.filter(|uid| !there.contains(uid)).cloned().collect();
                self.change(pods, gone, now);
            }
            Update::Changes { source: SourceId::Manifest, pods, gone } => self.change(pods, gone, now),
            other => return Some(other),
        }
        self.release(now)
    }

    fn change(&mut self, pods: Vec<SourcePod>, gone: Vec<PodUid>, now: Instant) {
        let usual = now + self.hold_back;
        let first = *self.first_until.get_or_insert(usual);
        let until = if self.has_told { usual } else { first };
        let manifests = self.manifests.get_or_insert_default();
        let there: HashSet<_> = pods.iter().map(|pod| pod.uid.clone()).collect();
        for own in gone.into_iter().filter(|own| !there.contains(own)) {
            self.held.remove(&own);
            self.adopted.remove(&own);
            let told = manifests.remove(&own).and_then(|manifest| manifest.told);
            self.gone.extend(told.map(|told| told.uid));
        }
        for pod in pods {
            let own = pod.uid.clone();
            match manifests.get_mut(&own) {
                Some(manifest) if manifest.pod == pod => continue,
                Some(manifest) => (manifest.pod, manifest.is_edited) = (pod, true),
                None if pod.is_uid_provisional => {
                    self.held.insert(own.clone(), until);
                    manifests.insert(own.clone(), Manifest::new(pod));
                }
                None => {
                    // A manifest that states its UID has it, whichever one it was adopted for.
                    if let Some(other) =
                        self.taken.remove(&own).filter(|other| self.adopted.remove(other).is_some())
                    {
                        self.dirty.insert(other);
                    }
                    manifests.insert(own.clone(), Manifest::new(pod));
                }
            }
            self.dirty.insert(own);
        }
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
            self.dirty.extend(self.manifests.iter().flat_map(BTreeMap::keys).cloned());
        }
    }

    /// What to tell the store, if anything has changed: the full set once, then changes.
    pub(super) fn release(&mut self, now: Instant) -> Option<Update> {
        self.dirty.extend(self.held.extract_if(|_, until| *until <= now).map(|(own, _)| own));
        let dirty = std::mem::take(&mut self.dirty);
        for own in &dirty {
            self.adopt(own);
        }
        if self.has_told {
            let pods: Vec<_> = dirty.iter().filter_map(|own| self.tell(own)).collect();
            let gone = std::mem::take(&mut self.gone);
            let is_changed = !pods.is_empty() || !gone.is_empty();
            return is_changed.then_some(Update::Changes { source: SourceId::Manifest, pods, gone });
        }
        // A first set that leaves pods out would make the source ready without them.
        let manifests = self.manifests.as_ref().filter(|_| self.held.is_empty())?;
        let all: Vec<_> = manifests.keys().cloned().collect();
        self.has_told = true;
        let pods = all.iter().filter_map(|own| self.tell(own)).collect();
        Some(Update::Set { source: SourceId::Manifest, pods })
    }

    /// Whether a new sandbox may tell a manifest's UID.
    pub(super) fn has_provisional(&self) -> bool {
        self.manifests.iter().flat_map(BTreeMap::values).any(|manifest| manifest.pod.is_uid_provisional)
    }

    /// When [`StaticPods::release`] has something to do next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.held.values().min().copied()
    }

    /// Gives a pod the identity of the newest sandbox that fits it.
    fn adopt(&mut self, own: &PodUid) {
        let manifest = self.manifests.as_ref().and_then(|manifests| manifests.get(own));
        let Some(pod) = manifest.map(|manifest| &manifest.pod).filter(|pod| pod.is_uid_provisional) else {
            return;
        };
        let Some(sandbox) = self.candidate(pod) else { return };
        let seen = sandbox.annotations.get(CONFIG_SEEN).cloned();
        let identity = Identity { uid: sandbox.uid.clone(), seen };
        if self.adopted.get(own).is_none_or(|before| before.uid != identity.uid) {
            tracing::info!(namespace = %pod.namespace, name = %pod.name, uid = %identity.uid, "static pod has the kubelet's UID");
        }
        self.taken.insert(identity.uid.clone(), own.clone());
        self.adopted.insert(own.clone(), identity);
        self.held.remove(own);
    }

    /// The pod under its best UID, if the store has it otherwise; `None` also while it is held back.
    fn tell(&mut self, own: &PodUid) -> Option<SourcePod> {
        let manifest = self.manifests.as_mut()?.get_mut(own).filter(|_| !self.held.contains_key(own))?;
        let adopted = self.adopted.get(own);
        let identity = adopted.cloned().unwrap_or_else(|| Identity { uid: own.clone(), seen: None });
        let before = manifest.told.replace(identity);
        let identity = manifest.told.as_ref()?;
        if !std::mem::take(&mut manifest.is_edited) && before.as_ref() == Some(identity) {
            return None;
        }
        self.gone.extend(before.map(|before| before.uid).filter(|uid| *uid != identity.uid));
        Some(match adopted {
            Some(identity) => renamed(&manifest.pod, identity),
            None => manifest.pod.clone(),
        })
    }

    /// The newest sandbox that the kubelet can have made for this manifest, ready ones first.
    fn candidate(&self, pod: &SourcePod) -> Option<&SandboxIdentity> {
        let mut candidates = self
            .sandboxes
            .iter()
            .filter(|sandbox| sandbox.namespace == pod.namespace && sandbox.name == pod.name)
            .filter(|sandbox| self.taken.get(&sandbox.uid).is_none_or(|own| *own == pod.uid))
            .filter(|sandbox| !self.states(&sandbox.uid))
            .peekable();
        candidates.peek()?;
        let decoded = v1::Pod::decode(&*pod.pod).ok()?;
        let metadata = decoded.metadata.unwrap_or_default();
        candidates.find(|sandbox| fits(sandbox, &metadata.labels, &metadata.annotations))
    }

    /// Whether a manifest states that UID.
    fn states(&self, uid: &PodUid) -> bool {
        let manifest = self.manifests.as_ref().and_then(|manifests| manifests.get(uid));
        manifest.is_some_and(|manifest| !manifest.pod.is_uid_provisional)
    }
}

impl Manifest {
    fn new(pod: SourcePod) -> Self {
        Self { pod, told: None, is_edited: false }
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
fn renamed(pod: &SourcePod, Identity { uid, seen }: &Identity) -> SourcePod {
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
#[path = "statics_tests.rs"]
mod tests;
