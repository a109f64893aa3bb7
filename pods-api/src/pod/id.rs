//! Newtypes for every identifier that crosses a module boundary.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;

macro_rules! text_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The identifier's text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl From<&str> for $name {
            fn from(text: &str) -> Self {
                Self(text.into())
            }
        }

        impl From<String> for $name {
            fn from(text: String) -> Self {
                Self(text.into())
            }
        }

        impl std::borrow::Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Debug::fmt(&*self.0, f)
            }
        }
    };
}

text_id! {
    /// `metadata.uid`: names one pod for ever; case-sensitive, ordered by bytes (rule E.4.3).
    PodUid
}
text_id! {
    /// `metadata.namespace`.
    Namespace
}
text_id! {
    /// `metadata.name`.
    PodName
}
text_id! {
    /// The name of this node, lower case (rule A.3.14).
    NodeName
}
text_id! {
    /// A container's ID as its runtime gives it, without the `containerd://` of a pod status.
    ContainerId
}
text_id! {
    /// A pod sandbox's ID as its runtime gives it.
    SandboxId
}

impl Namespace {
    /// Whether a namespace can have that name: an RFC 1123 label.
    #[must_use]
    pub fn is_valid(name: &str) -> bool {
        let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        name.len() <= 63
            && is_edge(name.as_bytes().first())
            && is_edge(name.as_bytes().last())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    }
}

/// A process ID (tgid) in this server's PID namespace; never 0, which is how the kernel says "none that you can see".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(NonZeroU32);

impl Pid {
    /// The process ID of that number; `None` for what names no single process: 0 and below.
    #[must_use]
    pub fn new(number: i32) -> Option<Self> {
        u32::try_from(number).ok().and_then(NonZeroU32::new).map(Self)
    }

    /// The number, as system calls take it: 1 or more.
    #[must_use]
    pub fn as_raw(self) -> i32 {
        self.0.get().cast_signed()
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The kernel's number of a cgroup: the inode of its directory in cgroup2, as `bpf_get_current_cgroup_id` gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CgroupId(pub u64);

impl fmt::Display for CgroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of one change on this server; grows by one with every event, starts anew with the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The first eight bytes of a UID as a number: orders UIDs as their bytes do, wherever it differs.
///
/// Look-ups compare these, which lie together in memory, and follow the pointer to a UID only where they are equal.
/// The UIDs of the API server and those of static pods are random in their first eight bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UidPrefix(u64);

impl UidPrefix {
    pub(super) fn of(uid: &str) -> Self {
        // A shorter UID is filled up with zeros, the least byte: it still sorts before all that it begins.
        let mut prefix = [0; 8];
        let len = uid.len().min(prefix.len());
        prefix[..len].copy_from_slice(&uid.as_bytes()[..len]);
        Self(u64::from_be_bytes(prefix))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_and_below_name_no_process() {
        // PID-3
        assert_eq!(Pid::new(0), None);
        assert_eq!(Pid::new(-1), None);
        assert_eq!(Pid::new(i32::MAX).map(Pid::as_raw), Some(i32::MAX));
    }

    #[test]
    fn prefixes_order_uids_as_their_bytes_do() {
        let mut uids = ["", "\0", "a", "a\0", "ab", "abcdefgh", "abcdefghi", "abcdefgi", "b", "\u{10ffff}"];
        uids.sort_unstable();
        for pair in uids.windows(2) {
            assert!(UidPrefix::of(pair[0]) <= UidPrefix::of(pair[1]), "{pair:?}");
        }
        assert!(UidPrefix::of("abcdefgh") < UidPrefix::of("abcdefgi"));
    }
}
