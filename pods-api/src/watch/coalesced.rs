//! What a watcher that fell behind still has to learn: the newest state of each pod that changed.
//!
//! Bounded by the pods that the client has plus those of this node, however long the client does not read. Belongs to
//! the watcher's worker.

use crate::pod::{Change, PodUid, Record};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The pods that changed, in the order in which they first did.
#[derive(Debug, Default)]
pub(super) struct Coalesced {
    turns: HashMap<PodUid, u64>,
    pods: BTreeMap<u64, PodState>,
    next_turn: u64,
}

/// What the client has of one pod, and what is.
#[derive(Debug)]
pub(super) struct PodState {
    /// The state that the client has; `None` when it does not have the pod.
    pub(super) client_has: Option<Arc<Record>>,
    /// The newest change.
    pub(super) latest: Arc<Change>,
    /// Whether the client is to have the pod after that change.
    pub(super) is_visible: bool,
}

impl Coalesced {
    /// Takes in the next change. `was_visible` and `is_visible` say whether the client sees the pod before and after.
    pub(super) fn fold(&mut self, change: &Arc<Change>, was_visible: bool, is_visible: bool) {
        let uid = change.record().uid();
        if let Some(turn) = self.turns.get(uid) {
            let pod = self.pods.get_mut(turn).expect("every turn has its pod");
            if pod.client_has.is_none() && !is_visible {
                // The pod came and went unseen: nothing to tell (rule E.7.12 is about clients that hold it).
                self.pods.remove(turn);
                self.turns.remove(uid);
                return;
            }
            pod.latest = change.clone();
            pod.is_visible = is_visible;
            return;
        }
        let client_has = if was_visible { change.old().cloned() } else { None };
        self.turns.insert(uid.clone(), self.next_turn);
        self.pods.insert(self.next_turn, PodState { client_has, latest: change.clone(), is_visible });
        self.next_turn += 1;
    }

    /// Takes the pod that has waited longest. A pod that is deleted and one of the same name that follows it keep
    /// their order: the new one cannot have changed before the old one left.
    pub(super) fn pop(&mut self) -> Option<PodState> {
        let (_, pod) = self.pods.pop_first()?;
        self.turns.remove(pod.latest.record().uid());
        Some(pod)
    }

    pub(super) fn len(&self) -> usize {
        self.pods.len()
    }
}
