//! The pins: names in the bpf filesystem under which others find the programs and maps of the agent that runs.
//!
//! Programs and maps are pinned, attachments never: when the agent ends, however it ends, nothing stays attached.
//! A lock on the directory tells the pins of an agent that runs from those of one that is dead; the kernel drops it
//! with the process. Whoever finds the lock taken runs without pins. Runs on the thread that loads the programs.

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

const BPFFS: &str = "/sys/fs/bpf";
/// Where the pins are.
pub(super) const DIRECTORY: &str = "/sys/fs/bpf/pods-api";
/// `f_type` of the bpf filesystem (statfs(2)).
const BPF_FS_MAGIC: u64 = 0xCAFE_4A11;

/// Why there are no pins.
#[derive(Debug, thiserror::Error)]
pub(super) enum PinsError {
    #[error(
        "/sys/fs/bpf is no bpf filesystem and mounting one is refused ({0}): mount it on the host and into the container"
    )]
    NoFilesystem(io::Error),
    #[error("another pods-api has its pins in {DIRECTORY}")]
    Taken,
    #[error("{DIRECTORY}: {0}")]
    Directory(#[from] io::Error),
}

/// The directory, ours until this is dropped; then the pins are removed.
#[derive(Debug)]
pub(super) struct Pins {
    directory: PathBuf,
    /// Holds the lock.
    _lock: OwnedFd,
}

impl Pins {
    /// Takes the directory over, without what a dead agent has left there.
    pub(super) fn take() -> Result<Self, PinsError> {
        ensure_filesystem(Path::new(BPFFS)).map_err(PinsError::NoFilesystem)?;
        Self::take_at(Path::new(DIRECTORY))
    }

    fn take_at(directory: &Path) -> Result<Self, PinsError> {
        // Between opening the directory and locking it, its owner may end and remove it: then once more.
        loop {
            match fs::create_dir(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error.into()),
                _ => {}
            }
            let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let lock = match rustix::fs::open(directory, flags, Mode::empty()) {
                Err(Errno::NOENT) => continue,
                opened => opened.map_err(io::Error::from)?,
            };
            match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Err(Errno::WOULDBLOCK) => return Err(PinsError::Taken),
                locked => locked.map_err(io::Error::from)?,
            }
            let held = rustix::fs::fstat(&lock).map_err(io::Error::from)?;
            match fs::metadata(directory) {
                Ok(named) if named.ino() == held.st_ino => {}
                _ => continue,
            }
            let pins = Self { directory: directory.to_owned(), _lock: lock };
            pins.remove_all()?;
            return Ok(pins);
        }
    }

    /// Where to pin the object of this name.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    fn remove_all(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        let removed = self.remove_all().and_then(|()| fs::remove_dir(&self.directory));
        if let Err(error) = removed {
            tracing::warn!(%error, directory = %self.directory.display(), "pins cannot be removed");
        }
    }
}

/// Mounts the bpf filesystem where it is not mounted. It stays mounted: others may have pins there by the time we end.
fn ensure_filesystem(path: &Path) -> io::Result<()> {
    let is_bpf = |path: &Path| Ok::<_, io::Error>(rustix::fs::statfs(path)?.f_type as u64 == BPF_FS_MAGIC);
    if is_bpf(path)? {
        return Ok(());
    }
    rustix::mount::mount("bpf", path, "bpf", rustix::mount::MountFlags::empty(), Some(c"mode=0700"))?;
    tracing::info!(path = %path.display(), "bpf filesystem mounted");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_of_the_dead_are_replaced_and_ours_are_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("pods-api");
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join("pods_events"), "left by a dead agent").unwrap();
        let pins = Pins::take_at(&directory).unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
        fs::write(pins.path("pods_cgroups"), "ours").unwrap();
        drop(pins);
        assert!(!directory.exists());
    }

    #[test]
    fn second_agent_leaves_the_pins_of_the_first() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("pods-api");
        let first = Pins::take_at(&directory).unwrap();
        fs::write(first.path("pods_cgroups"), "of the first").unwrap();
        assert!(matches!(Pins::take_at(&directory), Err(PinsError::Taken)));
        assert!(first.path("pods_cgroups").exists());
        drop(first);
        assert!(Pins::take_at(&directory).is_ok());
    }
}
