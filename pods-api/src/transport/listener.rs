//! The listening socket: bound safely, noticed when it is deleted, removed on exit.
//!
//! The path belongs to the first live server on it. A lock next to the socket decides between two starting servers, a
//! connection attempt tells a stale socket from a served one, and the socket appears under its name by a rename, when
//! it has its final mode and already listens. Runs on the thread that starts the server and on the one that calls
//! [`Listener::check`]; both may block on the file system, so never on a worker.

mod error;
mod group;
mod occupant;
mod place;

pub use error::BindError;
pub use group::SocketGroup;
pub use occupant::Owner;

use occupant::{Occupant, examine};
use place::{FileId, Place, StartLock};
use rustix::fs::{Gid, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Connections that wait for being accepted; more than any node has clients, so that a restart, when all reconnect
/// at once, refuses none. The kernel cuts it to `net.core.somaxconn`.
const BACKLOG: i32 = 4096;

/// How long a socket must go on refusing connections before it counts as stale: longer than any server needs between
/// its `bind` and its `listen`.
const STALE_AFTER: Duration = Duration::from_millis(50);

/// Where and for whom to listen.
#[derive(Clone, Debug)]
pub struct ListenerConfig {
    /// The socket's path.
    pub path: PathBuf,
    /// The socket's permission bits, exact whatever the umask.
    pub mode: u32,
    /// The group of the socket, and of its directory if that has to be made.
    pub group: Option<SocketGroup>,
}

impl ListenerConfig {
    /// Listens at `path` for the server's own user.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), mode: 0o600, group: None }
    }
}

/// A bound and listening UNIX socket that owns its path.
#[derive(Debug)]
pub struct Listener {
    path: PathBuf,
    access: Access,
    // Before the socket, which keeps the inode's number from being used again until the names are gone.
    bound: Bound,
    socket: Arc<OwnedFd>,
}

/// Who may connect.
#[derive(Clone, Copy, Debug)]
struct Access {
    mode: u32,
    group: Option<Gid>,
}

/// What [`Listener::check`] had to repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebound {
    /// The socket had been deleted.
    SocketDeleted,
    /// The directory had been deleted, or another one put in its place.
    DirectoryReplaced,
    /// Another file was put in the socket's place, and nobody serves it.
    SocketReplaced,
}

/// The names that are ours in the file system; dropping it removes them.
#[derive(Debug)]
struct Bound {
    place: Place,
    socket: FileId,
    lock: Arc<StartLock>,
}

impl Listener {
    /// Binds the socket and listens.
    ///
    /// A missing directory is made with mode 0750; an existing one is never replaced, because clients mount it. A
    /// stale socket is replaced; anything else at the path is left alone.
    ///
    /// # Errors
    /// Fails if another server is alive at the path, if a file of another kind or a symbolic link is in the way, or
    /// if the file system refuses.
    pub fn bind(config: ListenerConfig) -> Result<Self, BindError> {
        let group = config.group.as_ref().map(SocketGroup::resolve).transpose()?;
        let access = Access { mode: config.mode, group };
        let (socket, bound) = bind(&config.path, access)?;
        Ok(Self { path: config.path, access, bound, socket: Arc::new(socket) })
    }

    /// The path as configured.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The listening socket; changes when [`Listener::check`] returns `Some`.
    #[must_use]
    pub fn socket(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.socket)
    }

    /// Looks whether the path still leads to this socket, and binds again at once if not. To be called every one or
    /// two seconds. Connections accepted before stay as they are.
    ///
    /// # Errors
    /// Fails like [`Listener::bind`], in particular if another server has taken the path; the next call tries again.
    pub fn check(&mut self) -> Result<Option<Rebound>, BindError> {
        let here = Place::find(&self.path)?.filter(|place| place.is_same_directory(&self.bound.place));
        let (reason, place) = match here {
            None => (Rebound::DirectoryReplaced, None),
            Some(place) => match place.stat(place.name())? {
                Some(found) if found.id == self.bound.socket => return Ok(None),
                Some(_) => (Rebound::SocketReplaced, Some(place)),
                None => (Rebound::SocketDeleted, Some(place)),
            },
        };
        let (socket, bound) = match place {
            None => bind(&self.path, self.access)?,
            Some(place) => {
                // Another server could lock a new file if ours has lost its name.
                let kept = self.bound.lock.is_named()?;
                let lock = if kept { Arc::clone(&self.bound.lock) } else { place.lock()? };
                bind_at(place, lock, self.access)?
            }
        };
        self.bound = bound;
        self.socket = Arc::new(socket);
        Ok(Some(reason))
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        // The inode number cannot have been reused: the bound socket still holds the inode.
        if matches!(self.place.stat(self.place.name()), Ok(Some(found)) if found.id == self.socket) {
            self.place.remove(self.place.name());
        }
    }
}

fn bind(path: &Path, access: Access) -> Result<(OwnedFd, Bound), BindError> {
    let place = Place::open(path, access.group)?;
    let lock = place.lock()?;
    bind_at(place, lock, access)
}

/// Binds at `place`, whose start lock the caller holds.
fn bind_at(place: Place, lock: Arc<StartLock>, access: Access) -> Result<(OwnedFd, Bound), BindError> {
    let stale = match examine(&place, STALE_AFTER)? {
        Occupant::Nobody => None,
        Occupant::Stale(id) => Some(id),
        Occupant::Server(owner) => return Err(BindError::Served { path: place.path().into(), owner }),
    };
    let temporary = place.temporary_name();
    // Left by a server that was killed between bind and rename; the lock says that none is at it now.
    place.remove(&temporary);
    let made = make(&place, &temporary, access).and_then(|(socket, id)| {
        place.publish(&temporary, stale)?;
        Ok((socket, id))
    });
    let (socket, id) = made.inspect_err(|_| place.remove(&temporary))?;
    if place.is_too_long_for_clients() {
        tracing::warn!(
            path = %place.path().display(),
            limit_bytes = place::SUN_PATH_BYTES - 1,
            "socket path is longer than a UNIX socket address: clients must reach it through a shorter path, \
             such as a bind mount of its directory"
        );
    }
    Ok((socket, Bound { place, socket: id, lock }))
}

/// Makes a listening socket under a temporary name, with its final owner and mode.
fn make(place: &Place, temporary: &OsStr, access: Access) -> Result<(OwnedFd, FileId), BindError> {
    let failed = |action, cause: Errno| place.failed(action, cause.into());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)
        .map_err(|cause| failed("make a socket for", cause))?;
    // The kernel gives the file the mode of the socket, less the umask: so it is never wider than asked for.
    rustix::fs::fchmod(&socket, Mode::from_raw_mode(access.mode & 0o600))
        .map_err(|cause| failed("set the mode of the socket for", cause))?;
    rustix::net::bind(&socket, &place.address(temporary)?).map_err(|cause| failed("bind", cause))?;
    let id = place.set_owner_and_mode(temporary, access.mode, access.group)?;
    rustix::net::listen(&socket, BACKLOG).map_err(|cause| failed("listen at", cause))?;
    Ok((socket, id))
}

#[cfg(test)]
mod tests;
