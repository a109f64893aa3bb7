//! Events of cgroups without eBPF: inotify on the directories in which pods and containers come and go, and on
//! `cgroup.events` of each container where the hierarchy is v2. Runs on the kernel thread.
//!
//! On v1 there is no `cgroup.events`: a container's end shows when its directory goes. Of a removed cgroup the kernel
//! takes the watch back seldom or never, depending on its version: that is done here.

use super::cgroup_path::{CgroupRoot, PodPath, leads_to_pods};
use super::event::{Feed, KernelEvent};
use super::hierarchy::Hierarchy;
use super::scan::{Scan, children, id_of};
use crate::pod::CgroupId;
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Room for some hundred events at a time.
const BUFFER_BYTES: usize = 16_384;
/// Watches at one time: one for each pod and one for each container. Overflow rule: no more are added, which is told in
/// the report, and rescans find what they would have told.
const MAX_WATCHES: usize = 16_384;
/// The file that says whether a cgroup has processes.
const EVENTS: &str = "cgroup.events";

/// What a watch is on.
#[derive(Debug)]
enum Watched {
    Directory(PathBuf),
    /// `cgroup.events` of a container, and what it said last.
    Events {
        id: CgroupId,
        file: PathBuf,
        is_populated: bool,
    },
}

impl Watched {
    fn path(&self) -> &Path {
        match self {
            Self::Directory(path) | Self::Events { file: path, .. } => path,
        }
    }
}

/// The inotify instance and its watches.
#[derive(Debug)]
pub(super) struct Fallback {
    inotify: OwnedFd,
    hierarchy: Hierarchy,
    root: CgroupRoot,
    watches: HashMap<i32, Watched>,
    /// The watch on each path.
    by_path: HashMap<PathBuf, i32>,
    /// The cgroups of pods that have been told of.
    known: HashMap<PathBuf, CgroupId>,
    /// Events that came up beside reading.
    pending: Vec<KernelEvent>,
    /// Why not everything is watched, if so.
    shortage: Option<Errno>,
}

impl Fallback {
    /// Makes an inotify instance for a hierarchy; nothing is watched yet.
    pub(super) fn new(hierarchy: Hierarchy, root: CgroupRoot) -> io::Result<Self> {
        Ok(Self {
            inotify: inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?,
            hierarchy,
            root,
            watches: HashMap::new(),
            by_path: HashMap::new(),
            known: HashMap::new(),
            pending: Vec::new(),
            shortage: None,
        })
    }

    pub(super) fn hierarchy(&self) -> &Hierarchy {
        &self.hierarchy
    }

    /// Why not everything is watched, if so: the node is out of inotify watches.
    pub(super) fn shortage(&self) -> Option<Errno> {
        self.shortage
    }

    /// Watches what a scan found. What came up between the scan and the watch is told of with the next
    /// [`Feed::drain`].
    pub(super) fn follow(&mut self, scan: &Scan) {
        self.shortage = None;
        self.known.retain(|directory, _| directory.is_dir());
        let vanished: Vec<_> = self.by_path.keys().filter(|path| !path.exists()).cloned().collect();
        for path in vanished {
            self.unwatch(&path);
        }
        self.watch_directory(&self.hierarchy.mount.clone());
        for directory in &scan.above_pods {
            self.watch_directory(directory);
        }
    }

    /// Looks at a directory that has just come up.
    fn enter(&mut self, directory: &Path) {
        let Some(path) = self.hierarchy.path_of(directory) else { return };
        let Some(pod) = PodPath::parse(&path, &self.root) else {
            if leads_to_pods(&path, &self.root) {
                self.watch_directory(directory);
            }
            return;
        };
        let (is_nested, is_container) = (pod.depth > 0, pod.container.is_some());
        if is_nested {
            return;
        }
        // An error: it is gone again.
        let Ok(id) = id_of(directory) else { return };
        if self.known.insert(directory.to_owned(), id) != Some(id) {
            self.pending.push(KernelEvent::CgroupCreated { id, path });
        }
        if !is_container {
            self.watch_directory(directory);
        } else if self.hierarchy.is_v2 {
            self.watch_events(id, directory);
        }
    }

    /// Watches a directory, and enters all that it holds: what is known already is told of no more.
    fn watch_directory(&mut self, directory: &Path) {
        let flags = WatchFlags::CREATE | WatchFlags::DELETE | WatchFlags::MOVED_FROM | WatchFlags::MOVED_TO;
        let watched = Watched::Directory(directory.to_owned());
        self.add(directory, flags | WatchFlags::ONLYDIR, watched);
        // What cannot be read is entered after the next scan.
        for (_, child) in children(directory).unwrap_or_default() {
            self.enter(&child);
        }
    }

    fn watch_events(&mut self, id: CgroupId, directory: &Path) {
        let file = directory.join(EVENTS);
        let watched = Watched::Events { id, file: file.clone(), is_populated: false };
        if let Some(watch) = self.add(&file, WatchFlags::MODIFY, watched) {
            // The watch first: a change after this look is told of.
            self.look_at_events(watch);
        }
    }

    /// Adds a watch. Returns it if it is new.
    fn add(&mut self, path: &Path, flags: WatchFlags, watched: Watched) -> Option<i32> {
        if self.watches.len() >= MAX_WATCHES && !self.by_path.contains_key(path) {
            self.shortage = Some(Errno::NOSPC);
            return None;
        }
        match inotify::add_watch(&self.inotify, path, flags) {
            Ok(watch) if self.watches.contains_key(&watch) => None,
            Ok(watch) => {
                // Another one of this name, whose removal was not told of.
                self.unwatch(path);
                self.watches.insert(watch, watched);
                self.by_path.insert(path.to_owned(), watch);
                Some(watch)
            }
            // Gone again.
            Err(Errno::NOENT | Errno::NOTDIR) => None,
            Err(error) => {
                self.shortage = Some(error);
                None
            }
        }
    }

    /// Takes back the watch on a path, if there is one.
    fn unwatch(&mut self, path: &Path) {
        if let Some(watch) = self.by_path.remove(path) {
            self.watches.remove(&watch);
            // The kernel may have done so by itself.
            let _ = inotify::remove_watch(&self.inotify, watch);
        }
    }

    /// Reads a container's `cgroup.events` and tells if it says something new.
    fn look_at_events(&mut self, watch: i32) {
        let Some(Watched::Events { id, file, is_populated }) = self.watches.get_mut(&watch) else { return };
        let Ok(text) = std::fs::read_to_string(file) else { return };
        let now = text.lines().any(|line| line == "populated 1");
        if std::mem::replace(is_populated, now) != now {
            self.pending.push(KernelEvent::CgroupPopulated { id: *id, is_populated: now });
        }
    }

    fn take(&mut self, watch: i32, flags: ReadFlags, name: Option<&OsStr>) {
        if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
            self.pending.push(KernelEvent::EventsLost { count: 1 });
        } else if flags.contains(ReadFlags::IGNORED) {
            if let Some(watched) = self.watches.remove(&watch) {
                self.by_path.remove(watched.path());
            }
        } else if let (Some(Watched::Directory(directory)), Some(name)) = (self.watches.get(&watch), name) {
            let child = directory.join(name);
            if flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
                self.unwatch(&child);
                self.unwatch(&child.join(EVENTS));
                if let Some(id) = self.known.remove(&child) {
                    self.pending.push(KernelEvent::CgroupReleased { id });
                }
            } else if flags.contains(ReadFlags::ISDIR) {
                self.enter(&child);
            }
        } else {
            self.look_at_events(watch);
        }
    }
}

impl Feed for Fallback {
    fn fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }

    fn drain(&mut self, apply: &mut dyn FnMut(KernelEvent)) -> bool {
        loop {
            let mut buffer = [MaybeUninit::uninit(); BUFFER_BYTES];
            // Copied out: handling an event adds watches.
            let events = read(&self.inotify, &mut buffer);
            self.pending.drain(..).for_each(&mut *apply);
            if events.is_empty() {
                return true;
            }
            for (watch, flags, name) in events {
                self.take(watch, flags, name.as_deref().map(OsStr::from_bytes));
                self.pending.drain(..).for_each(&mut *apply);
            }
        }
    }
}

type Event = (i32, ReadFlags, Option<Vec<u8>>);

/// Reads one buffer full of events; none if there are none.
fn read(inotify: &OwnedFd, buffer: &mut [MaybeUninit<u8>]) -> Vec<Event> {
    let mut reader = inotify::Reader::new(inotify, buffer);
    let mut events = Vec::new();
    loop {
        match reader.next() {
            Ok(event) => {
                events.push((
                    event.wd(),
                    event.events(),
                    event.file_name().map(|name| name.to_bytes().to_vec()),
                ));
            }
            Err(Errno::INTR) => continue,
            // Again: there is no more. No other error can come of a valid descriptor and buffer.
            Err(_) => return events,
        }
        if reader.is_buffer_empty() {
            return events;
        }
    }
}

#[cfg(test)]
#[path = "fallback_tests.rs"]
mod tests;
