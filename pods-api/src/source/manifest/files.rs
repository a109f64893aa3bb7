//! The manifests as last read, and the set of pods that follows from them.
//!
//! Owned by the `manifest` thread, which says which names to look at and when. Only a file whose content changed is
//! decoded. Time is handed in, so that the timing rules are tested without waiting.

use super::ManifestConfig;
use super::decode::decode;
use super::directory::{self, Outcome, Stamp};
use super::identity::Origin;
use super::status::{ManifestReport, ManifestStatus};
use crate::pod::{Namespace, PodName, PodUid, SourcePod};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a new file that has the pod of another file waits before it may take its place. Editors keep such a
/// backup copy while they write; a copy that stays is the duplicate of MAN-1.
const CONTEST: Duration = Duration::from_millis(200);

/// One pod and when it was first seen.
#[derive(Debug)]
pub(super) struct Loaded {
    pub(super) pod: SourcePod,
    /// The text of its `config.seen` annotation.
    seen: Arc<str>,
}

/// A candidate file.
#[derive(Debug, Default)]
struct File {
    /// What was last read of it.
    stamp: Option<Stamp>,
    digest: Option<u128>,
    /// Its last good pod.
    pod: Option<Arc<Loaded>>,
    failure: Option<Failure>,
    /// Until then it does not win over another file with the same pod.
    contested_until: Option<Instant>,
}

#[derive(Debug)]
struct Failure {
    since: Instant,
    reason: String,
}

/// Whether the files are entries of a directory or one configured file; they differ in how long a pod outlives its
/// manifest (rule A.1.9).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    Directory,
    File,
}

/// The files of the source. In a directory the key is the name, so that the order is that of the paths (rule A.1.4).
#[derive(Debug)]
pub(super) struct Files {
    config: Arc<ManifestConfig>,
    status: Arc<ManifestStatus>,
    layout: Layout,
    files: BTreeMap<OsString, File>,
    /// When the pods published last were first seen (rule A.3.10).
    seen: HashMap<PodUid, Arc<str>>,
    published: Option<Vec<Arc<Loaded>>>,
    /// Names that are no regular files, so that each is told once.
    skipped: HashSet<OsString>,
    /// Files that lose their pod to another one, so that each is warned of once.
    losing: HashSet<OsString>,
    next_contest: Option<Instant>,
}

impl Files {
    pub(super) fn new(config: Arc<ManifestConfig>, status: Arc<ManifestStatus>) -> Self {
        Self {
            config,
            status,
            layout: Layout::Directory,
            files: BTreeMap::new(),
            seen: HashMap::new(),
            published: None,
            skipped: HashSet::new(),
            losing: HashSet::new(),
            next_contest: None,
        }
    }

    /// Says whether the path is a directory or a file; a change forgets every file.
    pub(super) fn set_layout(&mut self, layout: Layout) {
        if self.layout != layout {
            self.layout = layout;
            self.files.clear();
        }
    }

    /// Forgets every file: the path is missing (rule A.1.2).
    pub(super) fn clear(&mut self) {
        self.files.clear();
    }

    /// Looks at exactly the files `names`, and at those of before that are not among them; `skip` names files that
    /// are being changed.
    pub(super) fn rescan(&mut self, names: &[OsString], now: Instant, skip: impl Fn(&OsStr) -> bool) {
        let listed: HashSet<&OsStr> = names.iter().map(OsString::as_os_str).collect();
        self.files.retain(|name, _| listed.contains(name.as_os_str()) || skip(name));
        self.skipped.retain(|name| listed.contains(name.as_os_str()));
        for name in names {
            if !skip(name) {
                self.look_at(name, now, true);
            }
        }
        self.drop_outlived(now);
    }

    /// Reads one file after an event.
    pub(super) fn refresh(&mut self, name: &OsStr, now: Instant) {
        self.look_at(name, now, false);
    }

    /// A manifest in a directory that stopped decoding keeps its pod until the first scan that comes late enough; a
    /// single file keeps it (rule A.1.9, MAN-4).
    fn drop_outlived(&mut self, now: Instant) {
        if self.layout == Layout::File {
            return;
        }
        for (name, file) in &mut self.files {
            let Some(failure) = &file.failure else { continue };
            if file.pod.is_some() && now.duration_since(failure.since) >= self.config.retention {
                file.pod = None;
                let path = path_of(&self.config.path, self.layout, name);
                tracing::warn!(path = %path.display(), "manifest is still not valid, its pod is dropped");
            }
        }
    }

    fn look_at(&mut self, name: &OsStr, now: Instant, trust_stamp: bool) {
        let path = path_of(&self.config.path, self.layout, name);
        let known = self.files.get(name).and_then(|file| file.stamp).filter(|_| trust_stamp);
        match directory::read(&path, known.as_ref()) {
            Outcome::Unchanged => {}
            Outcome::Vanished => {
                self.files.remove(name);
            }
            Outcome::NotAFile(kind) => {
                self.files.remove(name);
                if self.skipped.insert(name.to_owned()) {
                    tracing::info!(path = %path.display(), ?kind, "not a regular file, skipped");
                }
            }
            Outcome::Failed(reason) => {
                let file = self.files.entry(name.to_owned()).or_default();
                (file.stamp, file.digest) = (None, None);
                self.fail(name, &path, format!("{}: {reason}", path.display()), now);
            }
            Outcome::Content { bytes, digest, stamp } => {
                let file = self.files.entry(name.to_owned()).or_default();
                file.stamp = Some(stamp);
                if file.digest.replace(digest) != Some(digest) {
                    self.load(name, &path, &bytes, now);
                }
            }
        }
    }

    fn load(&mut self, name: &OsStr, path: &Path, bytes: &[u8], now: Instant) {
        let origin = Origin { node_name: &self.config.node_name, path };
        let mut first_seen = Arc::from("");
        let result = decode(bytes, origin, |uid| {
            first_seen = self.seen.get(uid).cloned().unwrap_or_else(now_text);
            first_seen.to_string()
        });
        let pod = match result {
            Ok(pod) => pod,
            Err(error) => return self.fail(name, path, error.describe(path), now),
        };
        let contested = self.published.is_some() && self.has_other(name, &pod.pod);
        let file = self.files.entry(name.to_owned()).or_default();
        if file.failure.take().is_some() {
            tracing::info!(path = %path.display(), "manifest is valid again");
        }
        for notice in &pod.notices {
            tracing::info!(path = %path.display(), line = notice.line, field = %notice.field, "{}", notice.reason);
        }
        tracing::debug!(path = %path.display(), uid = %pod.pod.uid, name = %pod.pod.name, "manifest loaded");
        match &file.pod {
            // Kept as it is, so that nothing seems to have changed.
            Some(loaded) if loaded.pod == pod.pod => {}
            before => {
                if before.is_none() && contested {
                    file.contested_until = Some(now + CONTEST);
                }
                file.pod = Some(Arc::new(Loaded { pod: pod.pod, seen: first_seen }));
            }
        }
    }

    /// Whether another file has a pod of the same name.
    fn has_other(&self, name: &OsStr, pod: &SourcePod) -> bool {
        let mut others = self.files.iter().filter(|(other, _)| other.as_os_str() != name);
        others.any(|(_, file)| {
            file.pod.as_ref().is_some_and(|other| {
                (&other.pod.namespace, &other.pod.name) == (&pod.namespace, &pod.name)
                    || other.pod.uid == pod.uid
            })
        })
    }

    /// Records a failure; the last good pod stays. Warned of once for each reason.
    fn fail(&mut self, name: &OsStr, path: &Path, reason: String, now: Instant) {
        let file = self.files.entry(name.to_owned()).or_default();
        let since = file.failure.as_ref().map_or(now, |failure| failure.since);
        if file.failure.as_ref().is_none_or(|failure| failure.reason != reason) {
            self.status.decode_failures.add(1);
            let keeps_pod = file.pod.is_some();
            tracing::warn!(path = %path.display(), keeps_pod, "manifest is not valid: {reason}");
        }
        file.failure = Some(Failure { since, reason });
    }

    /// The pods to publish if they differ from those published last (rules A.1.8 and A.6.3).
    pub(super) fn take_changed(&mut self, now: Instant) -> Option<Vec<SourcePod>> {
        let pods = self.winners(now);
        let unchanged = self.published.as_ref().is_some_and(|published| {
            published.len() == pods.len()
                && published.iter().zip(&pods).all(|(old, new)| Arc::ptr_eq(old, new))
        });
        // A single file that never was a pod has published nothing yet (rule A.1.9).
        let nothing_yet = self.layout == Layout::File
            && self.published.is_none()
            && self.files.values().any(|file| file.failure.is_some());
        if unchanged || nothing_yet {
            return None;
        }
        self.seen = pods.iter().map(|loaded| (loaded.pod.uid.clone(), Arc::clone(&loaded.seen))).collect();
        let set = pods.iter().map(|loaded| loaded.pod.clone()).collect();
        self.published = Some(pods);
        Some(set)
    }

    /// One pod for each name and for each UID: the last path wins (rule A.6.3, MAN-1).
    fn winners(&mut self, now: Instant) -> Vec<Arc<Loaded>> {
        self.expire_contests(now);
        // Contested files come first, so that they win only what nobody else has.
        let mut order: Vec<_> =
            self.files.iter().filter_map(|(name, file)| Some((name, file, file.pod.as_ref()?))).collect();
        order.sort_by_key(|(_, file, _)| file.contested_until.is_none());
        let beaten_by = beaten_by(order.iter().map(|(_, _, loaded)| &loaded.pod));
        let mut losing = HashSet::new();
        let mut winners = BTreeMap::new();
        for ((name, file, loaded), winner) in order.iter().zip(beaten_by) {
            match winner {
                None => {
                    winners.insert(*name, Arc::clone(loaded));
                }
                Some(_) if file.contested_until.is_some() => {}
                Some(winner) => {
                    losing.insert((*name).clone());
                    if !self.losing.contains(*name) {
                        self.status.duplicates.add(1);
                        let path = path_of(&self.config.path, self.layout, name);
                        let winner = path_of(&self.config.path, self.layout, order[winner].0);
                        tracing::warn!(path = %path.display(), winner = %winner.display(), pod = %loaded.pod.name,
                            "two manifests have the same pod, the last path wins");
                    }
                }
            }
        }
        let winners = winners.into_values().collect();
        self.losing = losing;
        winners
    }

    fn expire_contests(&mut self, now: Instant) {
        for file in self.files.values_mut() {
            file.contested_until = file.contested_until.filter(|&until| until > now);
        }
        self.next_contest = self.files.values().filter_map(|file| file.contested_until).min();
    }

    /// When the set changes by time alone.
    pub(super) fn next_contest(&self) -> Option<Instant> {
        self.next_contest
    }

    /// The names of the symlinks among the files.
    pub(super) fn symlinks(&self) -> Vec<OsString> {
        let is_symlink = |name: &&OsString| {
            let path = path_of(&self.config.path, self.layout, name);
            std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
        };
        self.files.keys().filter(is_symlink).cloned().collect()
    }

    /// Adds what is known of the files to a report.
    pub(super) fn report(&self, report: &mut ManifestReport) {
        report.files = self.files.len();
        report.pods = self.published.as_ref().map_or(0, Vec::len);
        report.duplicates = self.losing.len();
        for (name, file) in &self.files {
            if let Some(failure) = &file.failure {
                report.add_failure(path_of(&self.config.path, self.layout, name), &failure.reason);
            }
        }
    }
}

/// For each pod the last later one that has its name or UID.
fn beaten_by<'a>(pods: impl Iterator<Item = &'a SourcePod>) -> Vec<Option<usize>> {
    let mut by_name: HashMap<(&Namespace, &PodName), usize> = HashMap::new();
    let mut by_uid: HashMap<&PodUid, usize> = HashMap::new();
    let mut beaten_by = Vec::new();
    for (index, pod) in pods.enumerate() {
        beaten_by.push(None);
        let same_name = by_name.insert((&pod.namespace, &pod.name), index);
        for loser in [same_name, by_uid.insert(&pod.uid, index)].into_iter().flatten() {
            beaten_by[loser] = Some(index);
        }
    }
    beaten_by
}

fn path_of(root: &Path, layout: Layout, name: &OsStr) -> PathBuf {
    match layout {
        Layout::Directory => root.join(name),
        Layout::File => root.to_owned(),
    }
}

/// The time of day as the annotation has it: RFC 3339 with nanoseconds. In UTC, where the kubelet writes the offset of
/// its local zone: the same instant, without a time zone database on the node.
fn now_text() -> Arc<str> {
    jiff::Timestamp::now().to_string().into()
}

#[cfg(test)]
mod tests;
