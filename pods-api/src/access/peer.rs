//! The process at the other end of a connection.
//!
//! Credentials are those of the process that connected (SO_PEERCRED), also when it passes its socket on. Read once,
//! when the connection is accepted, on its worker's thread.
//!
//! Unsafe: rustix reads the credentials into a type whose process ID cannot be 0, but the kernel does report 0 for a
//! process of another PID namespace; so the socket option is read here.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// Who connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The process ID in our PID namespace; `None` where the kernel has none for us: another PID namespace, or a
    /// process that is gone (PID-3: never taken for process 0).
    pub pid: Option<i32>,
    /// The effective user at connect time.
    pub uid: u32,
    /// The effective group at connect time.
    pub gid: u32,
    /// The executable's path, where it can be read.
    pub executable: Option<Arc<str>>,
}

/// What a rate limit is counted against: callers with the same key share one bucket (SOCK-7).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeerKey {
    uid: u32,
    executable: Option<Arc<str>>,
}

impl Peer {
    /// Reads the peer of a connected UNIX socket. A socket without credentials is an unknown peer with the overflow
    /// user's ID, which owns nothing.
    #[must_use]
    pub fn of(socket: BorrowedFd<'_>) -> Self {
        const OVERFLOW_ID: u32 = 65534;
        let Some(credentials) = credentials(socket) else {
            return Self { pid: None, uid: OVERFLOW_ID, gid: OVERFLOW_ID, executable: None };
        };
        let pid = Some(credentials.pid).filter(|pid| *pid > 0);
        Self { pid, uid: credentials.uid, gid: credentials.gid, executable: pid.and_then(executable) }
    }

    /// The key of the caller's rate limit.
    #[must_use]
    pub fn key(&self) -> PeerKey {
        PeerKey { uid: self.uid, executable: self.executable.clone() }
    }
}

fn credentials(socket: BorrowedFd<'_>) -> Option<libc::ucred> {
    let mut credentials = MaybeUninit::<libc::ucred>::uninit();
    let mut length = libc::socklen_t::try_from(size_of::<libc::ucred>()).expect("12 bytes");
    // SAFETY: `credentials` is valid for writes of `length` bytes, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            credentials.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 || length as usize != size_of::<libc::ucred>() {
        return None;
    }
    // SAFETY: the kernel has written all of the structure, and any bytes are a valid `ucred`.
    Some(unsafe { credentials.assume_init() })
}

fn executable(pid: i32) -> Option<Arc<str>> {
    let link = rustix::fs::readlink(format!("/proc/{pid}/exe"), Vec::new()).ok()?;
    Some(OsStr::from_bytes(link.as_bytes()).to_string_lossy().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn the_peer_of_a_socket_pair_is_this_process() {
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let peer = Peer::of(one.as_fd());
        assert_eq!(peer.pid, i32::try_from(std::process::id()).ok());
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        let exe = std::env::current_exe().unwrap();
        assert_eq!(peer.executable.as_deref(), exe.to_str());
        assert_eq!(peer.key(), Peer::of(one.as_fd()).key());
    }

    #[test]
    fn what_has_no_credentials_is_unknown() {
        let file = std::fs::File::open("/dev/null").unwrap();
        let peer = Peer::of(file.as_fd());
        assert_eq!((peer.pid, peer.uid, peer.executable), (None, 65534, None));
    }
}
