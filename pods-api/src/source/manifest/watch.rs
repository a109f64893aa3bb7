//! The inotify watches of the source (rules A.6.1 and A.6.2): on the directory for its entries, and on the parent of the
//! path for the path itself, which may be missing, removed, made anew, or a symlink that is pointed elsewhere.

use super::directory::{PathKind, kind_of};
use super::settle::Change;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Room for at least 15 events with the longest names; a busy directory is read in several turns.
const BUFFER_BYTES: usize = 4_096;

/// The kubelet's atomic writer points this symlink at each new version of a volume's files.
const VERSION_LINK: &str = "..data";

/// What the events mean.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// Something happened to a candidate name.
    File(OsString, Change),
    /// The path itself changed: watch and scan anew.
    Path,
    /// The targets of symlinks changed.
    Links,
    /// The kernel dropped events.
    Overflow,
}

/// Open watches on one path.
pub(super) struct Watch {
    /// Where events come from, or why none do: dense nodes run out of inotify instances and watches.
    inotify: Result<OwnedFd, Errno>,
    path: PathBuf,
    kind: PathKind,
    /// The directory's watch and identity; `None` if the path is a file or missing.
    directory: Option<(i32, Identity)>,
    /// The watch on the path's parent; `None` if there is no such directory or it may not be read.
    parent: Option<i32>,
}

/// Makes an inotify instance.
pub(super) fn inotify() -> Result<OwnedFd, Errno> {
    inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)
}

type Identity = (u64, u64);

impl Watch {
    /// Watches `path`, an absolute path, whatever it is. Without events (`inotify` failed, or the directory cannot be
    /// watched) the result still says what the path is, so that it can be scanned.
    pub(super) fn open(path: &Path, inotify: Result<OwnedFd, Errno>) -> io::Result<Self> {
        let mut watch =
            Self { inotify, path: path.to_owned(), kind: PathKind::Missing, directory: None, parent: None };
        let add = |inotify: &OwnedFd, path: &Path| {
            let entries = WatchFlags::CREATE
                | WatchFlags::MOVED_TO
                | WatchFlags::MOVED_FROM
                | WatchFlags::DELETE
                | WatchFlags::MODIFY
                | WatchFlags::CLOSE_WRITE
                | WatchFlags::ATTRIB;
            let itself = WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF | WatchFlags::ONLYDIR;
            inotify::add_watch(inotify, path, entries | itself)
        };
        // The parent first: what happens to the path after this is seen.
        if let (Ok(inotify), Some(parent)) = (&watch.inotify, path.parent()) {
            watch.parent = add(inotify, parent).ok();
        }
        watch.kind = kind_of(path)?;
        if watch.kind == PathKind::Directory
            && let Ok(inotify) = &watch.inotify
        {
            // In this order: if the path changes in between, the identity is that of the newer directory, and the
            // parent's event or the next rescan opens the watch again.
            match add(inotify, path) {
                Ok(id) => watch.directory = Some((id, identity(path)?)),
                Err(error) => watch.inotify = Err(error),
            }
        }
        Ok(watch)
    }

    /// Why there are no events, if there are none.
    pub(super) fn blindness(&self) -> Option<Errno> {
        self.inotify.as_ref().err().copied()
    }

    /// What to wait for before [`Watch::read`].
    pub(super) fn events(&self) -> Option<BorrowedFd<'_>> {
        self.inotify.as_ref().ok().map(AsFd::as_fd)
    }

    /// What the path was when it was opened.
    pub(super) fn kind(&self) -> PathKind {
        self.kind
    }

    /// Whether the path still leads to what is watched.
    pub(super) fn is_current(&self) -> bool {
        let kind = kind_of(&self.path).unwrap_or(PathKind::Other);
        self.inotify.is_ok()
            && kind == self.kind
            && self
                .directory
                .as_ref()
                .is_none_or(|(_, watched)| identity(&self.path).is_ok_and(|now| now == *watched))
    }

    /// Reads the events that are there; never waits.
    pub(super) fn read(&self, mut on_signal: impl FnMut(Signal)) -> io::Result<()> {
        let Ok(inotify) = &self.inotify else { return Ok(()) };
        let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = inotify::Reader::new(inotify, &mut buffer);
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let flags = event.events();
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                on_signal(Signal::Overflow);
                continue;
            }
            let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
            let watch = event.wd();
            if let Some(signal) = self.signal_of(watch, flags, name) {
                on_signal(signal);
            }
        }
    }

    fn signal_of(&self, watch: i32, flags: ReadFlags, name: Option<&OsStr>) -> Option<Signal> {
        let lost = ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF | ReadFlags::IGNORED | ReadFlags::UNMOUNT;
        if flags.intersects(lost) {
            return Some(Signal::Path);
        }
        let name = name?;
        if self.directory.as_ref().is_some_and(|(directory, _)| *directory == watch) {
            if name == VERSION_LINK {
                return Some(Signal::Links);
            }
            if name.as_bytes().first() == Some(&b'.') {
                return None;
            }
            return Some(Signal::File(name.to_owned(), change_of(flags, &self.path.join(name))?));
        }
        if self.parent != Some(watch) {
            return None;
        }
        let is_path = self.path.file_name() == Some(name);
        match self.kind {
            PathKind::File if is_path => Some(Signal::File(name.to_owned(), change_of(flags, &self.path)?)),
            PathKind::File if name == VERSION_LINK => Some(Signal::Links),
            // Changes inside the directory come from its own watch; here only the name matters.
            _ if is_path
                && !flags.intersects(ReadFlags::MODIFY | ReadFlags::CLOSE_WRITE | ReadFlags::ATTRIB) =>
            {
                Some(Signal::Path)
            }
            _ => None,
        }
    }
}

fn identity(path: &Path) -> io::Result<Identity> {
    let metadata = std::fs::metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Rule A.6.2, refined: a name that appears is complete at once only if it is a link.
fn change_of(flags: ReadFlags, path: &Path) -> Option<Change> {
    if flags.contains(ReadFlags::CREATE) {
        let is_link = |metadata: std::fs::Metadata| metadata.is_symlink() || metadata.nlink() > 1;
        return Some(if std::fs::symlink_metadata(path).is_ok_and(is_link) {
            Change::Replaced
        } else {
            Change::Writing
        });
    }
    if flags.contains(ReadFlags::MOVED_TO) || flags.contains(ReadFlags::ATTRIB) {
        return Some(Change::Replaced);
    }
    if flags.contains(ReadFlags::CLOSE_WRITE) {
        return Some(Change::Written);
    }
    if flags.contains(ReadFlags::MODIFY) {
        return Some(Change::Writing);
    }
    flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM).then_some(Change::Gone)
}
