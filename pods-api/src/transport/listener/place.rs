//! The directory and the names in it that a listener uses.
//!
//! Everything happens relative to one open directory. Its last component is not followed if it is a symbolic link,
//! nor is the socket itself; links further up are, because many nodes have /var/lib/kubelet elsewhere.

use super::BindError;
use super::occupant::{Occupant, examine};
use rustix::fs::{AtFlags, CWD, FileType, FlockOperation, Gid, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The size of a UNIX socket address's path with its closing NUL, unix(7).
pub(super) const SUN_PATH_BYTES: usize = 108;

/// The longest file name: what an address of the form /proc/self/fd/N/.NAME.new leaves with a seven-digit N.
const NAME_BYTES: usize = SUN_PATH_BYTES - 1 - "/proc/self/fd/1234567/..new".len();

/// The directory's mode when it has to be made (rule E.2.2).
const DIRECTORY_MODE: u32 = 0o750;

/// How long to wait for a server that is just starting, or just ending, to let go of the lock.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// Tells one file from all others that exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) id: FileId,
    pub(super) kind: FileType,
}

/// A name in an open directory.
#[derive(Clone, Debug)]
pub(super) struct Place {
    path: PathBuf,
    directory: Arc<OwnedFd>,
    id: FileId,
}

/// The right to bind at a place, held from before the socket is bound until after it has been removed. The kernel
/// takes it from a process that dies; the file that such a process leaves is only a name.
#[derive(Debug)]
pub(super) struct StartLock {
    place: Place,
    id: FileId,
    file: File,
}

impl Place {
    /// Opens the directory of `path`, and makes it if it is missing.
    pub(super) fn open(path: &Path, group: Option<Gid>) -> Result<Self, BindError> {
        let path = absolute(path)?;
        let parent = parent(&path);
        match open_directory(parent)? {
            Some(directory) => Self::new(path, directory),
            None => {
                make_directory(parent, group)?;
                let directory = open_directory(parent)?.ok_or_else(|| BindError::Io {
                    action: "open",
                    path: parent.into(),
                    cause: Errno::NOENT.into(),
                })?;
                Self::new(path, directory)
            }
        }
    }

    /// Opens the directory of `path`, if there is one.
    pub(super) fn find(path: &Path) -> Result<Option<Self>, BindError> {
        let path = absolute(path)?;
        open_directory(parent(&path))?.map(|directory| Self::new(path, directory)).transpose()
    }

    fn new(path: PathBuf, directory: OwnedFd) -> Result<Self, BindError> {
        let status = rustix::fs::fstat(&directory).map_err(|cause| BindError::Io {
            action: "stat",
            path: parent(&path).into(),
            cause: cause.into(),
        })?;
        Ok(Self { id: file_id(&status), path, directory: Arc::new(directory) })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The socket's file name.
    pub(super) fn name(&self) -> &OsStr {
        self.path.file_name().expect("checked when the place was opened")
    }

    /// The name under which the socket is prepared.
    pub(super) fn temporary_name(&self) -> OsString {
        self.derived_name(".new")
    }

    /// The name of the start lock.
    pub(super) fn lock_name(&self) -> OsString {
        self.derived_name(".lock")
    }

    fn derived_name(&self, suffix: &str) -> OsString {
        let mut name = OsString::from(".");
        name.push(self.name());
        name.push(suffix);
        name
    }

    pub(super) fn is_same_directory(&self, other: &Self) -> bool {
        self.id == other.id
    }

    /// Whether clients cannot put the path into a socket address.
    pub(super) fn is_too_long_for_clients(&self) -> bool {
        self.path.as_os_str().len() >= SUN_PATH_BYTES
    }

    /// An address for a name in the directory. It goes through the open directory: no length of the path matters, and
    /// no directory put in its place meanwhile is used.
    pub(super) fn address(&self, name: &OsStr) -> Result<SocketAddrUnix, BindError> {
        let mut path = format!("/proc/self/fd/{}/", self.directory.as_raw_fd()).into_bytes();
        path.extend_from_slice(name.as_bytes());
        SocketAddrUnix::new(path).map_err(|cause| self.failed("address", cause.into()))
    }

    pub(super) fn stat(&self, name: &OsStr) -> Result<Option<Found>, BindError> {
        match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(status) => {
                Ok(Some(Found { id: file_id(&status), kind: FileType::from_raw_mode(status.st_mode) }))
            }
            Err(Errno::NOENT) => Ok(None),
            Err(cause) => Err(self.failed("stat", cause.into())),
        }
    }

    /// Removes a name; that it may be gone already is no error.
    pub(super) fn remove(&self, name: &OsStr) {
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(cause) => {
                let error = io::Error::from(cause);
                tracing::warn!(path = %self.path.with_file_name(name).display(), %error, "could not remove a file");
            }
        }
    }

    /// Gives the socket at `name` its group and its exact mode.
    pub(super) fn set_owner_and_mode(
        &self,
        name: &OsStr,
        mode: u32,
        group: Option<Gid>,
    ) -> Result<FileId, BindError> {
        let failed = |action, cause: Errno| self.failed(action, cause.into());
        // Held by a descriptor, the file cannot be changed for another one between the calls.
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&self.directory, name, flags, Mode::empty())
            .map_err(|cause| failed("open the new socket for", cause))?;
        let status = rustix::fs::fstat(&file).map_err(|cause| failed("stat the new socket for", cause))?;
        if FileType::from_raw_mode(status.st_mode) != FileType::Socket {
            return Err(failed("find the new socket for", Errno::NOTSOCK));
        }
        // The group first: the other way round the wrong group could connect for a moment.
        if group.is_some() {
            rustix::fs::chownat(&file, "", None, group, AtFlags::EMPTY_PATH)
                .map_err(|cause| failed("set the group of", cause))?;
        }
        // There is no chmod of an O_PATH descriptor before Linux 6.6; its name in /proc does the same.
        let own_name = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::chmod(own_name, Mode::from_raw_mode(mode))
            .map_err(|cause| failed("set the mode of", cause))?;
        Ok(file_id(&status))
    }

    /// Renames the prepared socket to its name, over nothing but the `stale` socket.
    pub(super) fn publish(&self, temporary: &OsStr, stale: Option<FileId>) -> Result<(), BindError> {
        let renamed = match stale {
            None => {
                let flags = RenameFlags::NOREPLACE;
                match rustix::fs::renameat_with(
                    &self.directory,
                    temporary,
                    &self.directory,
                    self.name(),
                    flags,
                ) {
                    // File systems without it, such as NFS: the lock still keeps our own kind out.
                    Err(Errno::INVAL | Errno::NOSYS) => self.rename(temporary),
                    other => other,
                }
            }
            Some(id) => match self.stat(self.name())? {
                Some(found) if found.id != id => Err(Errno::EXIST),
                _ => self.rename(temporary),
            },
        };
        renamed.map_err(|cause| self.failed("rename the new socket to", cause.into()))
    }

    fn rename(&self, temporary: &OsStr) -> Result<(), Errno> {
        rustix::fs::renameat(&self.directory, temporary, &self.directory, self.name())
    }

    /// Takes the start lock.
    pub(super) fn lock(&self) -> Result<Arc<StartLock>, BindError> {
        let deadline = Instant::now() + LOCK_PATIENCE;
        loop {
            if let Some(lock) = StartLock::try_new(self)? {
                return Ok(Arc::new(lock));
            }
            if let Occupant::Server(owner) = examine(self, Duration::ZERO)? {
                return Err(BindError::Served { path: self.path.clone(), owner });
            }
            if Instant::now() >= deadline {
                return Err(BindError::Locked {
                    path: self.path_of(&self.lock_name()),
                    pid: self.lock_owner(),
                });
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn lock_owner(&self) -> Option<u32> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = rustix::fs::openat(&self.directory, self.lock_name(), flags, Mode::empty()).ok()?;
        let mut text = String::new();
        File::from(file).take(16).read_to_string(&mut text).ok()?;
        text.trim().parse().ok()
    }

    fn path_of(&self, name: &OsStr) -> PathBuf {
        self.path.with_file_name(name)
    }

    pub(super) fn failed(&self, action: &'static str, cause: io::Error) -> BindError {
        BindError::Io { action, path: self.path.clone(), cause }
    }
}

impl StartLock {
    /// Takes the lock unless another process has it.
    fn try_new(place: &Place) -> Result<Option<Self>, BindError> {
        let failed = |action, cause: Errno| place.failed(action, cause.into());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let name = place.lock_name();
        let file = match rustix::fs::openat(&place.directory, &name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => File::from(file),
            Err(Errno::LOOP) => return Err(BindError::Symlink { path: place.path_of(&name) }),
            Err(cause) => return Err(failed("open the lock of", cause)),
        };
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => return Ok(None),
            Err(cause) => return Err(failed("lock", cause)),
        }
        let id = rustix::fs::fstat(&file).map_err(|cause| failed("stat the lock of", cause))?;
        let lock = Self { place: place.clone(), id: file_id(&id), file };
        // A server that ends removes the file before it lets go of the lock: then this one locks nothing.
        if !lock.is_named()? {
            return Ok(None);
        }
        // For the message of the next one that finds it locked; a full disk must not keep the server from starting.
        if let Err(error) = lock.note_owner() {
            tracing::debug!(%error, "could not note the process ID in the lock file");
        }
        Ok(Some(lock))
    }

    fn note_owner(&self) -> io::Result<()> {
        self.file.set_len(0)?;
        writeln!(&self.file, "{}", std::process::id())
    }

    /// Whether the locked file still has its name.
    pub(super) fn is_named(&self) -> Result<bool, BindError> {
        Ok(self.place.stat(&self.place.lock_name())?.is_some_and(|named| named.id == self.id))
    }
}

impl Drop for StartLock {
    fn drop(&mut self) {
        if matches!(self.is_named(), Ok(true)) {
            self.place.remove(&self.place.lock_name());
        }
    }
}

/// Makes the path absolute and sees that a socket can have its file name.
fn absolute(path: &Path) -> Result<PathBuf, BindError> {
    let name = path.file_name().ok_or_else(|| BindError::NoName { path: path.into() })?;
    if name.len() > NAME_BYTES {
        return Err(BindError::NameTooLong { path: path.into(), length: name.len(), limit: NAME_BYTES });
    }
    std::path::absolute(path).map_err(|cause| BindError::Io { action: "resolve", path: path.into(), cause })
}

fn parent(path: &Path) -> &Path {
    path.parent().expect("an absolute path with a file name has a parent")
}

fn open_directory(path: &Path) -> Result<Option<OwnedFd>, BindError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
        Ok(directory) => Ok(Some(directory)),
        Err(Errno::NOENT) => Ok(None),
        // O_DIRECTORY answers first, also for a link.
        Err(Errno::NOTDIR | Errno::LOOP) if path.is_symlink() => {
            Err(BindError::Symlink { path: path.into() })
        }
        Err(Errno::NOTDIR) => Err(BindError::NotADirectory { path: path.into() }),
        Err(cause) => Err(BindError::Io { action: "open", path: path.into(), cause: cause.into() }),
    }
}

/// Makes a directory and those above it that are missing. The umask can only take from the mode until it is set
/// exactly, so there is no moment in which it is wider.
fn make_directory(path: &Path, group: Option<Gid>) -> Result<(), BindError> {
    let failed = |action, cause: Errno| BindError::Io { action, path: path.into(), cause: cause.into() };
    if let Some(above) = path.parent()
        && !above.exists()
    {
        make_directory(above, group)?;
    }
    match rustix::fs::mkdir(path, Mode::from_raw_mode(DIRECTORY_MODE)) {
        Ok(()) => {}
        // Somebody else was faster: then it is theirs, with their mode.
        Err(Errno::EXIST) => return Ok(()),
        Err(cause) => return Err(failed("make the directory", cause)),
    }
    let directory = open_directory(path)?.ok_or_else(|| failed("open the directory", Errno::NOENT))?;
    let directory = directory.as_fd();
    if group.is_some() {
        rustix::fs::fchown(directory, None, group).map_err(|cause| failed("set the group of", cause))?;
    }
    rustix::fs::fchmod(directory, Mode::from_raw_mode(DIRECTORY_MODE))
        .map_err(|cause| failed("set the mode of", cause))
}

fn file_id(status: &rustix::fs::Stat) -> FileId {
    FileId { device: status.st_dev, inode: status.st_ino }
}
