//! Why a socket could not be bound, in words that say what to do.

use super::Owner;
use std::io;
use std::path::PathBuf;

/// The socket could not be bound.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The path has no last component that could name a socket.
    #[error("{path:?} names no file: give the socket a path such as /run/pods-api/pods-api.sock (--socket)")]
    NoName {
        /// The path as configured.
        path: PathBuf,
    },
    /// The file name does not fit into a socket address.
    #[error(
        "the file name of {path:?} has {length} bytes, but {limit} is the most that a socket can be bound to"
    )]
    NameTooLong {
        /// The path as configured.
        path: PathBuf,
        /// The file name's length in bytes.
        length: usize,
        /// The longest name that works, in bytes.
        limit: usize,
    },
    /// A live server listens at the path.
    #[error(
        "{path:?} is already served by {owner}: stop that server, or choose another path with --socket (a kubelet \
         that serves the Pods API itself keeps this one)"
    )]
    Served {
        /// The path as configured.
        path: PathBuf,
        /// Who listens there.
        owner: Owner,
    },
    /// Another server holds the start lock: it is starting, or its socket has been deleted.
    #[error("another pods-api{} holds {path:?}: stop it, or choose another path with --socket", .pid.map_or(String::new(), |pid| format!(" (pid {pid})")))]
    Locked {
        /// The lock file.
        path: PathBuf,
        /// Who wrote its process ID there.
        pid: Option<u32>,
    },
    /// The path, or the directory that holds it, is a symbolic link.
    #[error(
        "{path:?} is a symbolic link, which is not followed: remove it, or give the path it leads to (--socket)"
    )]
    Symlink {
        /// The link.
        path: PathBuf,
    },
    /// A file that is not a stream socket is in the way.
    #[error("{path:?} is {kind}, which is left alone: remove it, or choose another path with --socket")]
    InTheWay {
        /// The path as configured.
        path: PathBuf,
        /// What is there, with its article.
        kind: &'static str,
    },
    /// The parent is not a directory.
    #[error("{path:?} is not a directory: choose another path with --socket")]
    NotADirectory {
        /// The socket's parent.
        path: PathBuf,
    },
    /// The group does not exist.
    #[error("no group {name:?} in /etc/group: give its number (--socket-group)")]
    UnknownGroup {
        /// The name as configured.
        name: String,
    },
    /// The system refused.
    #[error("could not {action} {path:?}")]
    Io {
        /// What was tried.
        action: &'static str,
        /// With which file.
        path: PathBuf,
        /// Why it failed.
        #[source]
        cause: io::Error,
    },
}

impl BindError {
    /// Whether another start with the same configuration would fail in the same way, whatever else runs.
    #[must_use]
    pub fn is_of_configuration(&self) -> bool {
        match self {
            Self::NoName { .. }
            | Self::NameTooLong { .. }
            | Self::Symlink { .. }
            | Self::NotADirectory { .. }
            | Self::UnknownGroup { .. } => true,
            Self::Served { .. } | Self::Locked { .. } | Self::InTheWay { .. } | Self::Io { .. } => false,
        }
    }
}
