//! Pods as the server holds them: identifiers, records, the immutable snapshot and its one writer. No I/O.

mod id;
mod selector;
mod update;

pub use id::{Namespace, NodeName, PodName, PodUid, Revision};
pub use selector::{Selector, SelectorError};
pub use update::{SourceId, SourcePod, Update};
