//! Finds out who, if anybody, serves the socket that is already at the path.

use super::BindError;
use super::place::{FileId, Place};
use rustix::fs::FileType;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// What is at the path.
#[derive(Debug)]
pub(super) enum Occupant {
    /// Nothing.
    Nobody,
    /// A socket that no process listens at.
    Stale(FileId),
    /// A socket that a process listens at.
    Server(Owner),
}

/// The process that listens at a socket, as far as the kernel tells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Its process ID, unless it is in a PID namespace that this process cannot see.
    pub pid: Option<u32>,
    /// Its executable, or its name where the executable is hidden.
    pub executable: Option<PathBuf>,
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.pid, &self.executable) {
            (Some(pid), Some(executable)) => write!(f, "{} (pid {pid})", executable.display()),
            (Some(pid), None) => write!(f, "pid {pid}"),
            _ => f.write_str("a process outside this PID namespace"),
        }
    }
}

/// Looks at what is at the path. A socket is stale if it refuses connections now and still does after `stale_after`:
/// a server that has just bound it refuses them as well, until it listens.
pub(super) fn examine(place: &Place, stale_after: Duration) -> Result<Occupant, BindError> {
    let mut refused = None;
    loop {
        let Some(found) = place.stat(place.name())? else { return Ok(Occupant::Nobody) };
        match found.kind {
            FileType::Socket => {}
            FileType::Symlink => return Err(BindError::Symlink { path: place.path().into() }),
            other => return Err(BindError::InTheWay { path: place.path().into(), kind: name_of(other) }),
        }
        match connect(place)? {
            Answer::Gone => refused = None,
            Answer::Served(owner) => return Ok(Occupant::Server(owner)),
            Answer::Refused if refused == Some(found.id) => return Ok(Occupant::Stale(found.id)),
            Answer::Refused => {
                refused = Some(found.id);
                std::thread::sleep(stale_after);
            }
        }
    }
}

enum Answer {
    Served(Owner),
    Refused,
    Gone,
}

fn connect(place: &Place) -> Result<Answer, BindError> {
    let failed = |cause: Errno| place.failed("find out who serves", cause.into());
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(failed)?;
    match rustix::net::connect(&probe, &place.address(place.name())?) {
        Ok(()) => {
            let peer = rustix::net::sockopt::socket_peercred(&probe).map_err(failed)?;
            Ok(Answer::Served(owner(peer.pid.as_raw_pid())))
        }
        // A full backlog: somebody listens, but is behind.
        Err(Errno::AGAIN) => Ok(Answer::Served(Owner::default())),
        Err(Errno::CONNREFUSED) => Ok(Answer::Refused),
        Err(Errno::NOENT) => Ok(Answer::Gone),
        Err(Errno::PROTOTYPE) => {
            Err(BindError::InTheWay { path: place.path().into(), kind: "a datagram socket" })
        }
        Err(cause) => Err(failed(cause)),
    }
}

fn owner(pid: i32) -> Owner {
    let Some(pid) = u32::try_from(pid).ok().filter(|pid| *pid > 0) else { return Owner::default() };
    let executable = std::fs::read_link(format!("/proc/{pid}/exe"))
        .or_else(|_| std::fs::read_to_string(format!("/proc/{pid}/comm")).map(|name| name.trim_end().into()))
        .ok();
    Owner { pid: Some(pid), executable }
}

fn name_of(kind: FileType) -> &'static str {
    match kind {
        FileType::RegularFile => "a regular file",
        FileType::Directory => "a directory",
        FileType::Fifo => "a named pipe",
        _ => "a device or unknown file",
    }
}
