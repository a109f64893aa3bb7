//! What sources tell the store.

use super::id::{Namespace, PodName, PodUid};
use super::live::LiveStatus;
use bytes::Bytes;
use std::sync::Arc;

/// A configured origin of pods. Its text is the name used by `--require`, `/readyz` and metrics. Of a pod that several
/// have, the first one's metadata and spec are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SourceId {
    /// Another server of the Pods API: the kubelet's own.
    Upstream,
    /// The API server.
    ApiServer,
    /// The kubelet's /pods.
    Kubelet,
    /// Static pod manifests.
    Manifest,
    /// The container runtime: knows states, not pods.
    Cri,
}

impl SourceId {
    /// The name of the source in flags, messages and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Upstream => "upstream",
            Self::ApiServer => "apiserver",
            Self::Kubelet => "kubelet",
            Self::Manifest => "manifest",
            Self::Cri => "cri",
        }
    }
}

/// One pod as a source has it.
#[derive(Debug, Clone, PartialEq)]
pub struct SourcePod {
    /// `metadata.uid`.
    pub uid: PodUid,
    /// `metadata.namespace`.
    pub namespace: Namespace,
    /// `metadata.name`.
    pub name: PodName,
    /// Whether this server made the UID up for want of the kubelet's own, which may still replace it (rule A.7.5).
    pub is_uid_provisional: bool,
    /// The encoded core/v1 Pod, in canonical form (fields in order, no singular field twice).
    pub pod: Bytes,
}

/// A message to the store's thread.
#[derive(Debug)]
pub enum Update {
    /// The full set of one source's pods: what it had before and has no more is gone. The first one, even if
    /// empty, makes the source ready.
    Set {
        /// Who says so.
        source: SourceId,
        /// Every pod the source has, each UID once.
        pods: Vec<SourcePod>,
    },
    /// What has changed since a source's last update; its other pods stay. One change set: nobody sees a part of it,
    /// so a pod that gets another UID is never missing.
    Changes {
        /// Who says so.
        source: SourceId,
        /// Pods that are new or have changed, each UID once.
        pods: Vec<SourcePod>,
        /// Pods that are gone; one that is in `pods` too is there.
        gone: Vec<PodUid>,
    },
    /// What the container runtime has of some pods.
    Live {
        /// The pods that have changed.
        pods: Vec<(PodUid, Arc<dyn LiveStatus>)>,
    },
    /// Everything that the container runtime has. The first one makes the source `cri` ready.
    LiveSet {
        /// Every pod of which it has anything, known to a source or not.
        pods: Vec<(PodUid, Arc<dyn LiveStatus>)>,
        /// Stands for every other pod, until the next update names it.
        absent: Arc<dyn LiveStatus>,
    },
}
