//! Who is calling, and what they may: the peer of a connection as the kernel recorded it, where its process runs, and
//! the rules that decide. Enforced by `grpc`; only `peer` and `process` ask the system.

mod grant;
mod identity;
mod peer;
mod policy;
mod process;
mod rule;

pub use grant::{Grant, Operation, Operations};
pub use identity::{Identify, Identity, Nowhere};
pub use peer::{Peer, PeerKey};
pub use policy::{Decision, Policy};
pub(crate) use process::{has_proc_of_this_namespace, is_alive};
pub use rule::{Rule, RuleError, Subject};
