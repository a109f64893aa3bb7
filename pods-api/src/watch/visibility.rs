//! What a change is to one client: its selector decides which pods it sees, and so what is sent.
//!
//! Pure but for the frames it makes; called by the watcher, on the worker thread.

use super::coalesced::PodState;
use super::registry::{Entry, ViewLog};
use super::view::Frame;
use crate::pod::{Change, Record, Selector};

/// Whether the watcher's client sees a pod before and after a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Visibility {
    pub(super) before: bool,
    pub(super) after: bool,
}

impl ViewLog {
    /// The frame of an entry: the shared one, unless a selector makes the change something else for this client.
    pub(super) fn frame(&self, entry: &Entry, visibility: Visibility) -> Frame {
        let change: &Change = &entry.change;
        let record = change.record();
        match (visibility, &entry.frame) {
            (Visibility { before: true, after: false }, Some(frame)) if change.new_state().is_none() => {
                frame.clone()
            }
            (Visibility { before: true, after: false }, _) => {
                self.view.deleted(record, change.unix_seconds())
            }
            (Visibility { before: false, .. }, Some(frame)) if change.old().is_none() => frame.clone(),
            (Visibility { before: false, .. }, _) => self.view.added(record),
            (_, Some(frame)) => frame.clone(),
            (_, None) => self.view.modified(record),
        }
    }

    pub(super) fn coalesced_frame(&self, pod: &PodState) -> Option<Frame> {
        let record = pod.latest.record();
        match (&pod.client_has, pod.is_visible) {
            (Some(old), true) => (!self.view.is_same(old, record)).then(|| self.view.modified(record)),
            (Some(_), false) => Some(self.view.deleted(record, pod.latest.unix_seconds())),
            (None, true) => Some(self.view.added(record)),
            (None, false) => None,
        }
    }
}

pub(super) fn is_selected(selector: Option<&Selector>, record: &Record) -> bool {
    selector.is_none_or(|selector| record.is_selected_by(selector))
}

/// How a change looks to a client; `None` when the client is not concerned.
pub(super) fn visibility(selector: Option<&Selector>, entry: &Entry) -> Option<Visibility> {
    let before = entry.change.old().is_some_and(|old| is_selected(selector, old));
    let after = entry.change.new_state().is_some_and(|new| is_selected(selector, new));
    let is_shown = before != after || (before && entry.frame.is_some());
    is_shown.then_some(Visibility { before, after })
}
