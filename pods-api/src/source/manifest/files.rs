//! The manifests as last read, and the pods that follow from them.
//!
//! Owned by the `manifest` thread, which says which names to look at and when. Only a file whose content changed is
//! decoded, and only what follows from it is told: an edit costs the same however many manifests there are. Time is
//! handed in, so that the timing rules are tested without waiting.

mod publish;

use super::ManifestConfig;
use super::claims::Claims;
use super::decode::decode;
use super::directory::{self, Outcome, Stamp};
use super::identity::Origin;
use super::status::{MAX_NAMED, ManifestReport, ManifestStatus};
use crate::pod::{PodUid, SourcePod};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
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
    /// The pods of `files`, by name and UID.
    claims: Claims,
    /// The files with a contest, by its end.
    contests: BTreeSet<(Instant, OsString)>,
    /// The files with a failure.
    failing: BTreeSet<OsString>,
    /// When the pods published last were first seen (rule A.3.10).
    seen: HashMap<PodUid, Arc<str>>,
    /// The pods published last, by file; `None` before the first set.
    published: Option<BTreeMap<Arc<OsStr>, Arc<Loaded>>>,
    /// Names that are no regular files, so that each is told once.
    skipped: HashSet<OsString>,
    /// Files that lose their pod to another one, so that each is warned of once.
    losing: HashSet<Arc<OsStr>>,
}

impl Files {
    pub(super) fn new(config: Arc<ManifestConfig>, status: Arc<ManifestStatus>) -> Self {
        Self {
            config,
            status,
            layout: Layout::Directory,
            files: BTreeMap::new(),
            claims: Claims::default(),
            contests: BTreeSet::new(),
            failing: BTreeSet::new(),
            seen: HashMap::new(),
            published: None,
            skipped: HashSet::new(),
            losing: HashSet::new(),
        }
    }

    /// Says whether the path is a directory or a file; a change forgets every file.
    pub(super) fn set_layout(&mut self, layout: Layout) {
        if self.layout != layout {
            self.layout = layout;
            self.clear();
        }
    }

    /// Forgets every file: the path is missing (rule A.1.2).
    pub(super) fn clear(&mut self) {
        for name in self.files.keys().cloned().collect::<Vec<_>>() {
            self.forget(&name);
        }
    }

    fn forget(&mut self, name: &OsStr) {
        self.set_pod(name, None, None);
        self.failing.remove(name);
        self.files.remove(name);
    }

    /// Gives a file its pod, or takes it away.
    fn set_pod(&mut self, name: &OsStr, pod: Option<Arc<Loaded>>, contested_until: Option<Instant>) {
        let file = self.files.entry(name.to_owned()).or_default();
        if let Some(before) = file.pod.take() {
            self.claims.remove(name, &before.pod);
        }
        if let Some(until) = file.contested_until.take() {
            self.contests.remove(&(until, name.to_owned()));
        }
        if let Some(loaded) = &pod {
            self.claims.insert(name, &loaded.pod, contested_until.is_none());
            self.contests.extend(contested_until.map(|until| (until, name.to_owned())));
            file.contested_until = contested_until;
        }
        file.pod = pod;
    }

    /// Looks at exactly the files `names`, and at those of before that are not among them; `skip` names files that
    /// are being changed.
    pub(super) fn rescan(&mut self, names: &[OsString], now: Instant, skip: impl Fn(&OsStr) -> bool) {
        let listed: HashSet<&OsStr> = names.iter().map(OsString::as_os_str).collect();
        let is_absent = |name: &&OsString| !listed.contains(name.as_os_str()) && !skip(name);
        for name in self.files.keys().filter(is_absent).cloned().collect::<Vec<_>>() {
            self.forget(&name);
        }
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
        let retention = self.config.retention;
        let is_outlived = |name: &&OsString| {
            self.files.get(*name).is_some_and(|file| {
                let failed_at = file.failure.as_ref().map(|failure| failure.since);
                file.pod.is_some() && failed_at.is_some_and(|since| now.duration_since(since) >= retention)
            })
        };
        for name in self.failing.iter().filter(is_outlived).cloned().collect::<Vec<_>>() {
            self.set_pod(&name, None, None);
            let path = self.path_of(&name);
            tracing::warn!(path = %path.display(), "manifest is still not valid, its pod is dropped");
        }
    }

    fn look_at(&mut self, name: &OsStr, now: Instant, trust_stamp: bool) {
        let path = self.path_of(name);
        let known = self.files.get(name).and_then(|file| file.stamp).filter(|_| trust_stamp);
        match directory::read(&path, known.as_ref()) {
            Outcome::Unchanged => {}
            Outcome::Vanished => {
                self.forget(name);
            }
            Outcome::NotAFile(kind) => {
                self.forget(name);
                if self.skipped.insert(name.to_owned()) {
                    tracing::info!(path = %path.display(), ?kind, "not a regular file, skipped");
                }
            }
            Outcome::Failed(reason) => {
                let file = self.files.entry(name.to_owned()).or_default();
                (file.stamp, file.digest) = (None, None);
                self.fail(name, format!("{}: {reason}", path.display()), now);
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
            Err(error) => return self.fail(name, error.describe(path), now),
        };
        let contested = self.published.is_some() && self.claims.has_other(name, &pod.pod);
        let file = self.files.entry(name.to_owned()).or_default();
        if file.failure.take().is_some() {
            self.failing.remove(name);
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
                let contested_until =
                    if before.is_none() && contested { Some(now + CONTEST) } else { file.contested_until };
                let loaded = Arc::new(Loaded { pod: pod.pod, seen: first_seen });
                self.set_pod(name, Some(loaded), contested_until);
            }
        }
    }

    /// Records a failure; the last good pod stays. Warned of once for each reason, which names the file.
    fn fail(&mut self, name: &OsStr, reason: String, now: Instant) {
        let file = self.files.entry(name.to_owned()).or_default();
        let since = file.failure.as_ref().map_or(now, |failure| failure.since);
        if file.failure.as_ref().is_none_or(|failure| failure.reason != reason) {
            self.status.decode_failures.add(1);
            let keeps_pod = file.pod.is_some();
            tracing::warn!(keeps_pod, "manifest is not valid: {reason}");
        }
        file.failure = Some(Failure { since, reason });
        self.failing.insert(name.to_owned());
    }

    fn path_of(&self, name: &OsStr) -> PathBuf {
        match self.layout {
            Layout::Directory => self.config.path.join(name),
            Layout::File => self.config.path.clone(),
        }
    }

    /// The names of the symlinks among the files.
    pub(super) fn symlinks(&self) -> Vec<OsString> {
        let is_symlink = |name: &&OsString| {
            let path = self.path_of(name);
            std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_symlink())
        };
        self.files.keys().filter(is_symlink).cloned().collect()
    }

    /// Adds what is known of the files to a report.
    pub(super) fn report(&self, report: &mut ManifestReport) {
        report.files = self.files.len();
        report.pods = self.published.as_ref().map_or(0, BTreeMap::len);
        report.duplicates = self.losing.len();
        report.failing = self.failing.len();
        for name in self.failing.iter().take(MAX_NAMED) {
            if let Some(failure) = self.files.get(name).and_then(|file| file.failure.as_ref()) {
                report.failures.push((self.path_of(name), failure.reason.clone()));
            }
        }
    }
}

/// The time of day as the annotation has it: RFC 3339 with nanoseconds. In UTC, where the kubelet writes the offset of
/// its local zone: the same instant, without a time zone database on the node.
fn now_text() -> Arc<str> {
    jiff::Timestamp::now().to_string().into()
}

#[cfg(test)]
mod tests;
