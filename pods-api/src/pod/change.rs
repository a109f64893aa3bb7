//! One event: what happened to one pod at one revision.

use super::id::Revision;
use super::record::Record;
use std::sync::Arc;

/// What happened to the pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// The pod is new on this node.
    Added,
    /// The pod's bytes changed.
    Modified,
    /// The pod has left this node.
    Deleted,
}

impl ChangeKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Added, Self::Modified, Self::Deleted];

    /// The kind as the Pods API and metrics call it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
        }
    }
}

/// A change of one pod. Immutable and shared by all logs.
#[derive(Debug)]
pub struct Change {
    revision: Revision,
    unix_seconds: i64,
    states: States,
}

#[derive(Debug)]
enum States {
    Added { new: Arc<Record> },
    Modified { old: Arc<Record>, new: Arc<Record> },
    Deleted { old: Arc<Record> },
}

impl Change {
    /// The pod is new; the revision is its record's.
    #[must_use]
    pub fn added(new: Arc<Record>, unix_seconds: i64) -> Self {
        Self { revision: new.revision(), unix_seconds, states: States::Added { new } }
    }

    /// The pod changed; the revision is the new record's.
    #[must_use]
    pub fn modified(old: Arc<Record>, new: Arc<Record>, unix_seconds: i64) -> Self {
        Self { revision: new.revision(), unix_seconds, states: States::Modified { old, new } }
    }

    /// The pod has left.
    #[must_use]
    pub fn deleted(old: Arc<Record>, revision: Revision, unix_seconds: i64) -> Self {
        Self { revision, unix_seconds, states: States::Deleted { old } }
    }

    /// The number of this event.
    #[must_use]
    pub fn revision(&self) -> Revision {
        self.revision
    }

    /// What happened.
    #[must_use]
    pub fn kind(&self) -> ChangeKind {
        match self.states {
            States::Added { .. } => ChangeKind::Added,
            States::Modified { .. } => ChangeKind::Modified,
            States::Deleted { .. } => ChangeKind::Deleted,
        }
    }

    /// The state before, unless the pod is new.
    #[must_use]
    pub fn old(&self) -> Option<&Arc<Record>> {
        match &self.states {
            States::Added { .. } => None,
            States::Modified { old, .. } | States::Deleted { old } => Some(old),
        }
    }

    /// The state after, unless the pod has left.
    #[must_use]
    pub fn new_state(&self) -> Option<&Arc<Record>> {
        match &self.states {
            States::Added { new } | States::Modified { new, .. } => Some(new),
            States::Deleted { .. } => None,
        }
    }

    /// The newest state there is: the last one of a pod that has left.
    #[must_use]
    pub fn record(&self) -> &Arc<Record> {
        match &self.states {
            States::Added { new } | States::Modified { new, .. } => new,
            States::Deleted { old } => old,
        }
    }

    /// When it happened, in seconds since 1970.
    #[must_use]
    pub fn unix_seconds(&self) -> i64 {
        self.unix_seconds
    }
}
