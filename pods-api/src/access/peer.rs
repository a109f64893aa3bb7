//! The process at the other end of a connection.
//!
//! Credentials are those of the process that connected, also when it passes its socket on (PID-2). Read once, when the
//! connection is accepted, on its worker's thread. Whatever is read by a process ID is read under a pidfd of the peer
//! (SO_PEERPIDFD) and kept only if that process is still there afterwards, so that it is never that of another process
//! which got the number meanwhile (PID-1).
//!
//! Unsafe: rustix reads credentials into a type whose process ID cannot be 0, but the kernel does report 0 for a
//! process of another PID namespace; and it has neither SO_PEERPIDFD nor SO_PEERGROUPS. So socket options are read
//! here.
#![allow(unsafe_code)]

use super::identity::{Identify, Identity};
use super::process::Process;
use crate::pod::{Pid, PodUid};
use rustix::io::Errno;
use smallvec::SmallVec;
use std::fmt;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

/// What a socket without credentials is taken for: the overflow user and group, which own nothing.
const OVERFLOW_ID: u32 = 65534;

/// The most supplementary groups of a process (NGROUPS_MAX).
const MAX_GROUPS: usize = 65536;

/// Who connected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    /// The process ID at connect time; `None` where the kernel has none for us: a process of another PID namespace
    /// (PID-3: never taken for process 0).
    pub pid: Option<Pid>,
    /// The effective user at connect time.
    pub uid: u32,
    /// The effective group at connect time.
    pub gid: u32,
    /// The supplementary groups at connect time.
    pub groups: SmallVec<[u32; 4]>,
    /// The executable's path, where it could be read of this very process.
    pub executable: Option<Arc<str>>,
    /// Where it runs; unknown unless it was made sure of this very process.
    pub identity: Identity,
}

/// What a rate limit is counted against: callers with the same key share one bucket (SOCK-7).
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PeerKey {
    /// All processes of a pod.
    Pod(PodUid),
    /// The processes of a user that run the same executable.
    Program {
        /// The effective user.
        uid: u32,
        /// The executable's path, where known.
        executable: Option<Arc<str>>,
    },
}

impl Peer {
    /// Reads the peer of a connected UNIX socket. A socket without credentials is an unknown peer with the overflow
    /// user's ID.
    #[must_use]
    pub fn of(socket: BorrowedFd<'_>, identify: &dyn Identify) -> Self {
        // struct ucred is pid, uid and gid, each of 32 bits.
        let mut credentials = [0; 3];
        let Ok(3) = option(socket, libc::SO_PEERCRED, &mut credentials) else {
            return Self::unknown(OVERFLOW_ID, OVERFLOW_ID);
        };
        let [pid, uid, gid] = credentials;
        let mut peer = Self::unknown(uid, gid);
        peer.groups = groups(socket);
        peer.pid = Pid::new(pid.cast_signed());
        if let Some(pid) = peer.pid
            && let Some(process) = process(socket, pid)
            && let Some((executable, identity)) = process.read(identify)
        {
            peer.executable = executable;
            peer.identity = identity;
        }
        peer
    }

    /// A peer of which nothing is known but its user and group.
    #[must_use]
    pub fn unknown(uid: u32, gid: u32) -> Self {
        let groups = SmallVec::new();
        Self { pid: None, uid, gid, groups, executable: None, identity: Identity::Unknown }
    }

    /// The UID of the pod that the caller runs in.
    #[must_use]
    pub fn pod(&self) -> Option<&PodUid> {
        match &self.identity {
            Identity::Pod { uid, .. } => Some(uid),
            Identity::Host | Identity::Unknown => None,
        }
    }

    /// Whether it is sure which process connected and whether it runs in a pod.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.identity != Identity::Unknown
    }

    /// Whether the caller is a member of a group, by its effective or a supplementary one.
    #[must_use]
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.groups.contains(&gid)
    }

    /// The key of the caller's rate limit.
    #[must_use]
    pub fn key(&self) -> PeerKey {
        match self.pod() {
            Some(uid) => PeerKey::Pod(uid.clone()),
            None => PeerKey::Program { uid: self.uid, executable: self.executable.clone() },
        }
    }
}

impl fmt::Display for Peer {
    /// What the caller was seen as, in words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "uid {}, gid {}", self.uid, self.gid)?;
        match self.pid {
            Some(pid) => write!(f, ", pid {pid}")?,
            None => f.write_str(", no pid in the server's PID namespace")?,
        }
        if let Some(executable) = &self.executable {
            write!(f, ", {executable}")?;
        }
        match &self.identity {
            Identity::Pod { uid, .. } => write!(f, ", pod UID {uid}"),
            Identity::Host => f.write_str(", in no pod"),
            Identity::Unknown => f.write_str(", unknown whether in a pod"),
        }
    }
}

/// The process itself. Where the kernel has no SO_PEERPIDFD, only one that was there before this server is made sure
/// of: it has had its number since before anybody could connect.
fn process(socket: BorrowedFd<'_>, pid: Pid) -> Option<Process> {
    let mut pidfd = [0];
    match option(socket, libc::SO_PEERPIDFD, &mut pidfd) {
        Ok(1) => {
            // SAFETY: the kernel has just made this descriptor for us, and nobody else knows it.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd[0].cast_signed()) };
            Some(Process::new(pid, pidfd))
        }
        Err(Errno::NOPROTOOPT) => Process::older_than_this_one(pid),
        // Already gone and waited for, or we are out of descriptors.
        _ => None,
    }
}

fn groups(socket: BorrowedFd<'_>) -> SmallVec<[u32; 4]> {
    let mut groups = SmallVec::from_elem(0, 32);
    let mut read = option(socket, libc::SO_PEERGROUPS, &mut groups);
    if read == Err(Errno::RANGE) {
        groups.resize(MAX_GROUPS, 0);
        read = option(socket, libc::SO_PEERGROUPS, &mut groups);
    }
    groups.truncate(read.unwrap_or(0));
    groups.shrink_to_fit();
    groups
}

/// Reads an option of a socket that is a row of 32-bit numbers; returns how many.
fn option(socket: BorrowedFd<'_>, name: libc::c_int, values: &mut [u32]) -> Result<usize, Errno> {
    let mut length = libc::socklen_t::try_from(size_of_val(values)).expect("at most 256 KiB");
    // SAFETY: `values` is valid for writes of `length` bytes, any bytes are valid numbers, and both outlive the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        Ok(length as usize / size_of::<u32>())
    } else {
        Err(Errno::from_io_error(&std::io::Error::last_os_error()).expect("the kernel gave an error number"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::identity::Nowhere;
    use super::*;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[derive(Debug)]
    struct InPod;

    impl Identify for InPod {
        fn identify(&self, pid: Pid, _: BorrowedFd<'_>) -> Identity {
            assert_eq!(Some(pid), Pid::new(std::process::id().cast_signed()));
            Identity::Pod { uid: "pod-1".into(), container: None }
        }
    }

    #[test]
    fn the_peer_of_a_socket_pair_is_this_process() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of(one.as_fd(), &Nowhere);
        assert_eq!(peer.pid, Pid::new(std::process::id().cast_signed()));
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert_eq!(peer.gid, rustix::process::getegid().as_raw());
        let exe = std::env::current_exe().unwrap();
        assert_eq!(peer.executable.as_deref(), exe.to_str());
        let mut groups: Vec<u32> =
            rustix::process::getgroups().unwrap().into_iter().map(|group| group.as_raw()).collect();
        groups.sort_unstable();
        assert_eq!(peer.groups.to_vec(), groups);
        assert_eq!(peer.key(), Peer::of(one.as_fd(), &Nowhere).key());
    }

    #[test]
    fn processes_of_one_pod_share_a_key_and_others_one_per_user_and_program() {
        let (one, _other) = UnixStream::pair().unwrap();
        let peer = Peer::of(one.as_fd(), &InPod);
        assert_eq!(peer.key(), PeerKey::Pod("pod-1".into()));
        let host = Peer { identity: Identity::Host, ..peer };
        let key = host.key();
        assert_eq!(key, PeerKey::Program { uid: host.uid, executable: host.executable });
    }

    #[test]
    fn what_has_no_credentials_is_unknown() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(Peer::of(file.as_fd(), &InPod), Peer::unknown(65534, 65534));
    }

    #[test]
    fn a_peer_says_what_it_was_seen_as() {
        let mut peer = Peer::unknown(1000, 100);
        assert_eq!(
            peer.to_string(),
            "uid 1000, gid 100, no pid in the server's PID namespace, unknown whether in a pod"
        );
        peer.pid = Pid::new(7);
        peer.executable = Some("/bin/agent".into());
        peer.identity = Identity::Host;
        assert_eq!(peer.to_string(), "uid 1000, gid 100, pid 7, /bin/agent, in no pod");
    }
}
