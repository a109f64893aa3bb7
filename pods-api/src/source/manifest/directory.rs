//! Finds and reads manifests (rules A.1.3 to A.1.7): which entries count, what a symlink leads to, how much is read.

use super::identity::Fnv128a;
use rustix::fs::{FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io::{self, Read as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Rule A.1.7.
pub(super) const MAX_MANIFEST_BYTES: u64 = 10 << 20;

/// A file written to this shortly before it was read may be written again without a new time stamp: the kernel's
/// clock for them ticks every 1 to 10 ms.
const TIMESTAMP_SLACK: Duration = Duration::from_millis(100);

/// What the configured path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PathKind {
    Missing,
    Directory,
    File,
    /// Neither directory nor regular file.
    Other,
}

/// Says what `path` is, symlinks followed.
pub(super) fn kind_of(path: &Path) -> io::Result<PathKind> {
    match rustix::fs::stat(path) {
        Ok(stat) => Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => PathKind::Directory,
            FileType::RegularFile => PathKind::File,
            _ => PathKind::Other,
        }),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(PathKind::Missing),
        Err(error) => Err(error.into()),
    }
}

/// Which names of the directory are manifests.
#[derive(Debug, Clone, Default)]
pub(super) struct NameFilter {
    /// Without the dot; empty takes every name, as the kubelet does.
    extensions: Vec<String>,
}

impl NameFilter {
    pub(super) fn new(extensions: &[String]) -> Self {
        let extensions =
            extensions.iter().map(|extension| extension.trim_start_matches('.').to_owned()).collect();
        Self { extensions }
    }

    /// Rule A.1.3: every name but those that begin with a dot; the extension matters only if it is configured to.
    pub(super) fn takes(&self, name: &OsStr) -> bool {
        if name.as_bytes().first() == Some(&b'.') {
            return false;
        }
        let extension = Path::new(name).extension();
        self.extensions.is_empty()
            || self.extensions.iter().any(|wanted| extension == Some(OsStr::new(wanted)))
    }
}

/// The names of the candidates in a directory, in the order of their bytes (rule A.1.4).
pub(super) fn candidates(directory: &Path, filter: &NameFilter) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let name = entry?.file_name();
        if filter.takes(&name) {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// What identifies the content of a file without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
    /// Whether the file was so young when it was read that an equal stamp proves nothing.
    is_young: bool,
}

impl Stamp {
    fn new(stat: &Stat, read_at: SystemTime) -> Self {
        let modified = (stat.st_mtime, stat.st_mtime_nsec);
        let changed = (stat.st_ctime, stat.st_ctime_nsec);
        let newest = modified.max(changed);
        let seconds = u64::try_from(newest.0).unwrap_or_default();
        let newest = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + Duration::from_nanos(newest.1);
        let is_young = read_at.duration_since(newest).is_ok_and(|age| age < TIMESTAMP_SLACK)
            || newest.duration_since(read_at).is_ok();
        Self { device: stat.st_dev, inode: stat.st_ino, size: stat.st_size, modified, changed, is_young }
    }

    /// Whether a file that now has the stamp `now` is the one that was read.
    fn proves(&self, now: &Self) -> bool {
        !self.is_young && Self { is_young: false, ..*now } == *self
    }
}

/// What reading one candidate gave.
#[derive(Debug)]
pub(super) enum Outcome {
    /// It is gone: no error (rule A.1.5).
    Vanished,
    /// Directory, socket, pipe or device.
    NotAFile(FileType),
    /// It has not changed since it was read with the given stamp.
    Unchanged,
    /// Its bytes.
    Content { bytes: Vec<u8>, digest: u128, stamp: Stamp },
    /// It cannot be read, or is too long.
    Failed(String),
}

/// Reads a candidate unless `known` proves that it has not changed.
pub(super) fn read(path: &Path, known: Option<&Stamp>) -> Outcome {
    try_read(path, known).unwrap_or_else(|error| match error {
        Errno::NOENT | Errno::NOTDIR => Outcome::Vanished,
        error => Outcome::Failed(format!("cannot be read: {}", io::Error::from(error))),
    })
}

fn try_read(path: &Path, known: Option<&Stamp>) -> Result<Outcome, Errno> {
    // Asked before opening: to open a device or a pipe can have effects.
    let stat = rustix::fs::stat(path)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind != FileType::RegularFile {
        return Ok(Outcome::NotAFile(kind));
    }
    let read_at = SystemTime::now();
    if known.is_some_and(|known| known.proves(&Stamp::new(&stat, read_at))) {
        return Ok(Outcome::Unchanged);
    }
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty())?;
    let stat = rustix::fs::fstat(&file)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    if kind != FileType::RegularFile {
        return Ok(Outcome::NotAFile(kind));
    }
    let mut bytes =
        Vec::with_capacity(usize::try_from(stat.st_size.clamp(0, 1 << 20)).unwrap_or_default() + 1);
    let read = std::fs::File::from(file).take(MAX_MANIFEST_BYTES + 1).read_to_end(&mut bytes);
    if let Err(error) = read {
        return Ok(Outcome::Failed(format!("cannot be read: {error}")));
    }
    if bytes.len() as u64 > MAX_MANIFEST_BYTES {
        return Ok(Outcome::Failed(format!("is longer than {} MiB", MAX_MANIFEST_BYTES >> 20)));
    }
    let mut digest = Fnv128a::new();
    digest.write(&bytes);
    Ok(Outcome::Content { bytes, digest: digest.finish(), stamp: Stamp::new(&stat, read_at) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn every_name_without_a_leading_dot_is_a_candidate() {
        // Rules A.1.3 and A.1.4.
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.yaml", "a.yaml.bak", "a.yaml", "a.yaml~", ".a.yaml", "noext", "B.json"] {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let names = candidates(directory.path(), &NameFilter::default()).unwrap();
        assert_eq!(names, ["B.json", "a.yaml", "a.yaml.bak", "a.yaml~", "b.yaml", "noext"]);
        let filter = NameFilter::new(&["yaml".to_owned(), ".json".to_owned()]);
        assert_eq!(candidates(directory.path(), &filter).unwrap(), ["B.json", "a.yaml", "b.yaml"]);
    }

    #[test]
    fn only_regular_files_are_read_through_symlinks_too() {
        // Rule A.1.5.
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "text").unwrap();
        fs::create_dir(at("dir")).unwrap();
        std::os::unix::fs::symlink("file", at("to-file")).unwrap();
        std::os::unix::fs::symlink("nowhere", at("dangling")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RUSR, 0).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        assert!(matches!(read(&at("to-file"), None), Outcome::Content { bytes, .. } if bytes == b"text"));
        assert!(matches!(read(&at("dir"), None), Outcome::NotAFile(FileType::Directory)));
        assert!(matches!(read(&at("pipe"), None), Outcome::NotAFile(FileType::Fifo)));
        assert!(matches!(read(&at("socket"), None), Outcome::NotAFile(FileType::Socket)));
        assert!(matches!(read(&at("dangling"), None), Outcome::Vanished));
        assert!(matches!(read(&at("none"), None), Outcome::Vanished));
        assert!(matches!(read(&at("file").join("x"), None), Outcome::Vanished));
    }

    #[test]
    fn a_manifest_has_at_most_ten_mebibytes() {
        // Rule A.1.7.
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("large");
        let file = fs::File::create(&path).unwrap();
        file.set_len(MAX_MANIFEST_BYTES).unwrap();
        assert!(matches!(read(&path, None), Outcome::Content { .. }));
        file.set_len(MAX_MANIFEST_BYTES + 1).unwrap();
        assert!(matches!(read(&path, None), Outcome::Failed(reason) if reason == "is longer than 10 MiB"));
    }

    #[test]
    fn a_stamp_proves_only_an_old_file_unchanged() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a");
        fs::write(&path, "one").unwrap();
        let stamp_of = |outcome| match outcome {
            Outcome::Content { stamp, .. } => stamp,
            other => panic!("{other:?}"),
        };
        // Just written: the same stamp could hide a second write.
        let young = stamp_of(read(&path, None));
        assert!(matches!(read(&path, Some(&young)), Outcome::Content { .. }));
        let deadline = std::time::Instant::now() + Duration::from_secs(10);
        let old = loop {
            let stamp = stamp_of(read(&path, None));
            if !stamp.is_young {
                break stamp;
            }
            assert!(std::time::Instant::now() < deadline);
        };
        assert!(matches!(read(&path, Some(&old)), Outcome::Unchanged));
        fs::write(&path, "two").unwrap();
        assert!(matches!(read(&path, Some(&old)), Outcome::Content { .. }));
    }
}
