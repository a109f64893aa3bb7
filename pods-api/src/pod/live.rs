//! What the container runtime adds to the sources' pods: their live status, and whether one may leave yet.
//!
//! The store's thread owns this. What the runtime says comes as trait objects, so that this room knows nothing of
//! container runtimes: they are kept by UID and asked again whenever the source's pod changes, so that a status is
//! always about the newest of both.

use super::container::ContainerRef;
use super::id::PodUid;
use super::merge::Base;
use super::record::Record;
use super::update::SourcePod;
use super::writer::Now;
use crate::wire::DecodeError;
use crate::wire::splice::PodEdit;
use crate::wire::varint::Fields;
use bytes::Bytes;
use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

/// What Kubernetes gives a pod to end when its spec says nothing, in seconds.
const DEFAULT_GRACE_PERIOD_SECONDS: i64 = 30;

/// What the runtime has of one pod.
pub trait LiveStatus: Debug + Send + Sync {
    /// The encoded PodStatus to show; `None` where none can be worked out, and the source's stands.
    fn status(&self, inputs: &LiveInputs<'_>) -> Option<Bytes>;

    /// Whether the runtime still runs anything of the pod, so that it cannot leave.
    fn is_running(&self) -> bool;

    /// The containers and sandboxes that the runtime has of the pod.
    fn containers(&self) -> Vec<ContainerRef> {
        Vec::new()
    }

    /// Whether the runtime has nothing of the pod, so that there is nothing to remember of it either.
    fn is_absent(&self) -> bool;
}

/// What a live status is worked out from, beside the runtime.
#[derive(Debug, Clone, Copy)]
pub struct LiveInputs<'a> {
    /// The encoded Pod as the source has it.
    pub pod: &'a [u8],
    /// What the kubelet said of the pod's status, if a source of its words has the pod.
    pub base: Option<&'a Base>,
    /// What the kubelet said last, also if its source has dropped the pod since: nobody else runs the probes.
    pub last_base: Option<&'a Base>,
    /// The encoded Pod shown last.
    pub previous: Option<&'a [u8]>,
    /// The time.
    pub now: Now,
}

/// What the runtime says of all pods, and the pods that stay on its account.
#[derive(Debug, Default)]
pub(super) struct Live {
    views: HashMap<PodUid, Arc<dyn LiveStatus>>,
    /// Stands for a pod of which the runtime has nothing; there once all that it has is known.
    absent: Option<Arc<dyn LiveStatus>>,
    /// The kubelet's last word on each pod that it ever had one on.
    bases: HashMap<PodUid, Base>,
    /// Pods that no source has any more while the runtime still runs them.
    leaving: HashMap<PodUid, SourcePod>,
}

impl Live {
    /// Takes in what the runtime has of some pods. Returns their UIDs.
    pub(super) fn update(&mut self, pods: Vec<(PodUid, Arc<dyn LiveStatus>)>) -> Vec<PodUid> {
        let uids = pods.iter().map(|(uid, _)| uid.clone()).collect();
        self.views.extend(pods);
        uids
    }

    /// Takes in everything that the runtime has; `absent` stands for all other pods.
    pub(super) fn replace(&mut self, pods: Vec<(PodUid, Arc<dyn LiveStatus>)>, absent: Arc<dyn LiveStatus>) {
        self.views = pods.into_iter().collect();
        self.absent = Some(absent);
    }

    /// The UIDs of the pods that stay on the runtime's account.
    pub(super) fn leaving(&self) -> impl Iterator<Item = &PodUid> {
        self.leaving.keys()
    }

    /// What is to be served of a pod: the source's, or, while the runtime still runs it, what was served last with a
    /// deletion timestamp. A source that has the pod again takes it back.
    pub(super) fn stay(
        &mut self,
        uid: &PodUid,
        served: Option<SourcePod>,
        shown: Option<&Record>,
        now: Now,
    ) -> Option<SourcePod> {
        if served.is_some() {
            self.leaving.remove(uid);
            return served;
        }
        if !self.view(uid).is_some_and(|view| view.is_running()) {
            self.leaving.remove(uid);
            self.bases.remove(uid);
            if self.views.get(uid).is_some_and(|view| view.is_absent()) {
                self.views.remove(uid);
            }
            return None;
        }
        if !self.leaving.contains_key(uid) {
            let shown = shown?;
            let pod = SourcePod {
                uid: uid.clone(),
                namespace: shown.namespace().clone(),
                name: shown.name().clone(),
                is_uid_provisional: false,
                pod: with_deletion_timestamp(&shown.pod(), now).unwrap_or_else(|_| shown.pod()),
            };
            self.leaving.insert(uid.clone(), pod);
        }
        self.leaving.get(uid).cloned()
    }

    /// The pod with its live status in it, or as it is where the runtime has not been read yet.
    pub(super) fn overlay(
        &mut self,
        pod: SourcePod,
        base: Option<&Base>,
        shown: Option<&Record>,
        now: Now,
    ) -> SourcePod {
        if let Some(base) = base {
            self.bases.insert(pod.uid.clone(), base.clone());
        }
        let Some(view) = self.view(&pod.uid) else { return pod };
        let last_base = self.bases.get(&pod.uid);
        let base = base.or(last_base.filter(|_| self.leaving.contains_key(&pod.uid)));
        let previous = shown.map(Record::pod);
        let inputs = LiveInputs { pod: &pod.pod, base, last_base, previous: previous.as_deref(), now };
        let Some(status) = view.status(&inputs) else { return pod };
        match PodEdit::new(&pod.pod).status(&status).finish() {
            Ok(bytes) => SourcePod { pod: bytes, ..pod },
            // Unreadable pods are the writer's to report.
            Err(_) => pod,
        }
    }

    /// The containers and sandboxes that the runtime has of a pod.
    pub(super) fn containers(&self, uid: &PodUid) -> Vec<ContainerRef> {
        self.views.get(uid).map(|view| view.containers()).unwrap_or_default()
    }

    fn view(&self, uid: &PodUid) -> Option<&Arc<dyn LiveStatus>> {
        self.views.get(uid).or(self.absent.as_ref())
    }
}

/// The pod with `metadata.deletionTimestamp`: its own, else the end of its grace period as of now.
fn with_deletion_timestamp(pod: &Bytes, now: Now) -> Result<Bytes, DecodeError> {
    const METADATA: u32 = 1;
    const SPEC: u32 = 2;
    const DELETION_TIMESTAMP: u32 = 9;
    const TERMINATION_GRACE_PERIOD_SECONDS: u32 = 4;
    let mut grace = DEFAULT_GRACE_PERIOD_SECONDS;
    for field in Fields::new(pod) {
        let field = field?;
        let Some(message) = field.bytes() else { continue };
        for inner in Fields::new(message) {
            let inner = inner?;
            match (field.number, inner.number, inner.varint()) {
                (METADATA, DELETION_TIMESTAMP, None) => return Ok(pod.clone()),
                // An int64 in two's complement; a negative one is as good as none.
                (SPEC, TERMINATION_GRACE_PERIOD_SECONDS, Some(seconds)) => grace = (seconds as i64).max(0),
                _ => {}
            }
        }
    }
    PodEdit::new(pod).deletion_timestamp(now.unix_seconds.saturating_add(grace)).finish()
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
