//! Newtypes for every identifier that crosses a module boundary.

use std::fmt;
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
    /// `metadata.uid`: names one pod for ever; case-sensitive, ordered by bytes (semantics E.4.3).
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
    /// The name of this node, lower case (semantics A.3.14).
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

/// The number of one change on this server; grows by one with every event, starts anew with the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
