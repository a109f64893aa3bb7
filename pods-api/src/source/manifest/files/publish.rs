//! Which pods of the files are published: one for each name and UID, and only what differs from the last time.
//!
//! Runs on the `manifest` thread, as all of [`Files`].

use super::{Files, Layout, Loaded};
use crate::pod::{SourceId, Update};
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::Instant;

impl Files {
    /// What to publish: the full set the first time, then what differs from what was published last (rules A.1.8 and
    /// A.6.3; the kubelet's own source hands on the full set each time, to the same effect).
    pub(in crate::source::manifest) fn take_changed(&mut self, now: Instant) -> Option<Update> {
        self.expire_contests(now);
        // A single file that never was a pod has published nothing yet (rule A.1.9).
        if self.layout == Layout::File && self.published.is_none() && !self.failing.is_empty() {
            return None;
        }
        let is_first = self.published.is_none();
        let mut published = self.published.take().unwrap_or_default();
        let (mut pods, mut gone) = (Vec::new(), Vec::new());
        for name in self.claims.take_touched() {
            let winner = self.winner(&name);
            let before = match &winner {
                Some(loaded) => published.insert(name, Arc::clone(loaded)),
                None => published.remove(&name),
            };
            if let (Some(before), Some(winner)) = (&before, &winner)
                && Arc::ptr_eq(before, winner)
            {
                continue;
            }
            gone.extend(before.map(|before| before.pod.uid.clone()));
            pods.extend(winner);
        }
        self.published = Some(published);
        for uid in &gone {
            self.seen.remove(uid);
        }
        self.seen.extend(pods.iter().map(|loaded| (loaded.pod.uid.clone(), Arc::clone(&loaded.seen))));
        let pods: Vec<_> = pods.iter().map(|loaded| loaded.pod.clone()).collect();
        if is_first {
            Some(Update::Set { source: SourceId::Manifest, pods })
        } else {
            let is_changed = !pods.is_empty() || !gone.is_empty();
            is_changed.then_some(Update::Changes { source: SourceId::Manifest, pods, gone })
        }
    }

    /// The file's pod, unless it has none or another file wins it: one pod is published for each name and for each
    /// UID (rule A.6.3, MAN-1).
    fn winner(&mut self, name: &Arc<OsStr>) -> Option<Arc<Loaded>> {
        let file = self.files.get(&**name);
        let Some((file, loaded)) = file.and_then(|file| Some((file, file.pod.as_ref()?))) else {
            self.losing.remove(name);
            return None;
        };
        let Some(winner) = self.claims.winner_over(name, &loaded.pod) else {
            self.losing.remove(name);
            return Some(Arc::clone(loaded));
        };
        // Nothing is lost yet while it is contested.
        if file.contested_until.is_none() && self.losing.insert(Arc::clone(name)) {
            self.status.duplicates.add(1);
            let (path, winner) = (self.path_of(name), self.path_of(winner));
            tracing::warn!(path = %path.display(), winner = %winner.display(), pod = %loaded.pod.name,
                "two manifests have the same pod, the last path wins");
        }
        None
    }

    fn expire_contests(&mut self, now: Instant) {
        while self.contests.first().is_some_and(|(until, _)| *until <= now)
            && let Some((_, name)) = self.contests.pop_first()
        {
            let pod = self.files.get(&name).and_then(|file| file.pod.clone());
            self.set_pod(&name, pod, None);
        }
    }

    /// When the set changes by time alone.
    pub(in crate::source::manifest) fn next_contest(&self) -> Option<Instant> {
        self.contests.first().map(|(until, _)| *until)
    }
}
