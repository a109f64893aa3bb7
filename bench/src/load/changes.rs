//! Makes a server see changes of its pods.
//!
//! A change is a file moved into a directory the server watches: a manifest for pods-api, an encoded pod for the
//! comparison servers. The file is written beforehand, so what a change costs at its moment is one rename.

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use anyhow::{Context as _, ensure};

use crate::generate::{SEQUENCE_DIGITS, Template};

/// How a server wants to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ChangeFormat {
    /// Static pod manifests, as pods-api and a kubelet read them.
    Manifests,
    /// Encoded pods named `<uid>.pb`, as the comparison servers read them.
    Encoded,
}

/// The pods that can be changed, and where.
pub(crate) struct Changes {
    directory: PathBuf,
    staging: PathBuf,
    documents: Vec<(String, Template)>,
    next: u64,
}

/// A number for a run's first change that no earlier run has used, so that no change repeats what a pod already is:
/// milliseconds, cut to the annotation's digits.
pub(crate) fn fresh_sequence() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    (now.as_millis() % 10u128.pow(SEQUENCE_DIGITS as u32)) as u64
}

impl Drop for Changes {
    fn drop(&mut self) {
        // What was staged and never published; nothing to do if it cannot be removed.
        let _ = std::fs::remove_dir_all(&self.staging);
    }
}

/// A change that is one rename away from being seen.
pub(crate) struct Staged {
    pub(crate) sequence: u64,
    /// Which of the pods it changes.
    pub(crate) pod: usize,
    from: PathBuf,
    to: PathBuf,
}

impl Changes {
    /// `staging` must be on the file system of `directory`, and not inside it; `first` numbers the first change.
    pub(crate) fn new(
        directory: &Path,
        staging: &Path,
        documents: Vec<(String, Template)>,
        first: u64,
    ) -> anyhow::Result<Self> {
        ensure!(!documents.is_empty(), "no pod that could be changed");
        for path in [directory, staging] {
            std::fs::create_dir_all(path).with_context(|| format!("creating {}", path.display()))?;
        }
        Ok(Self { directory: directory.to_owned(), staging: staging.to_owned(), documents, next: first })
    }

    /// Writes every pod as it is before the first change.
    pub(crate) fn write_all(&self) -> anyhow::Result<()> {
        for (name, document) in &self.documents {
            std::fs::write(self.directory.join(name), document.bytes(0))
                .with_context(|| format!("writing {name}"))?;
        }
        Ok(())
    }

    #[cfg(test)]
    fn pods(&self) -> usize {
        self.documents.len()
    }

    /// Prepares the next change; the pods take turns.
    pub(crate) fn stage(&mut self) -> anyhow::Result<Staged> {
        let sequence = self.next;
        let pod = sequence as usize % self.documents.len();
        let (name, document) = &self.documents[pod];
        let from = self.staging.join(format!("{sequence}-{name}"));
        std::fs::write(&from, document.bytes(sequence))
            .with_context(|| format!("writing {}", from.display()))?;
        self.next += 1;
        Ok(Staged { sequence, pod, from, to: self.directory.join(name) })
    }
}

impl Staged {
    /// Makes the change visible and returns when that began.
    pub(crate) fn publish(self) -> anyhow::Result<Instant> {
        let at = Instant::now();
        std::fs::rename(&self.from, &self.to)
            .with_context(|| format!("moving {} into place", self.to.display()))?;
        Ok(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Plan, manifest, shapes};

    #[test]
    fn changes_take_turns_and_count_up() {
        let directory = tempfile::tempdir().unwrap();
        let documents = shapes(Plan { pods: 3, pod_bytes: 3_000, seed: 1 }, false)
            .iter()
            .map(|shape| (format!("{}.json", shape.index), manifest(shape)))
            .collect();
        let (target, staging) = (directory.path().join("manifests"), directory.path().join("staging"));
        let mut changes = Changes::new(&target, &staging, documents, 1).unwrap();
        changes.write_all().unwrap();
        assert_eq!(std::fs::read_dir(&target).unwrap().count(), changes.pods());
        for sequence in 1..=4 {
            let staged = changes.stage().unwrap();
            assert_eq!(staged.sequence, sequence);
            staged.publish().unwrap();
        }
        assert_eq!(std::fs::read_dir(&staging).unwrap().count(), 0);
        drop(changes);
        assert!(!staging.exists());
        let changed = std::fs::read_to_string(target.join("1.json")).unwrap();
        assert!(changed.contains("000000000004"), "the fourth change is the second of pod 1");
    }
}
