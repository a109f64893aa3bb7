//! Pods as the server holds them: identifiers, records, the immutable snapshot and its one writer. No I/O.

mod cell;
mod change;
mod chunk;
mod container;
mod id;
mod index;
mod live;
mod masked;
mod merge;
mod place;
mod readiness;
mod record;
mod selector;
mod snapshot;
mod stats;
mod store;
mod table;
#[doc(hidden)]
pub mod testing;
mod tombstone;
mod update;
mod writer;

pub use cell::{Loaded, Published};
pub use change::{Change, ChangeKind};
pub use container::ContainerRef;
pub use id::{CgroupId, ContainerId, Namespace, NodeName, Pid, PodName, PodUid, Revision, SandboxId};
pub use live::{LiveInputs, LiveStatus};
pub use merge::Base;
pub use place::{Locate, Located, Place};
pub use readiness::Readiness;
pub use record::{ByteMeter, Charge, Labels, Record};
pub use selector::{Selector, SelectorError};
pub use snapshot::{ListMessage, Snapshot};
pub use stats::{PUBLISH_SECONDS, PublishHistogram, StoreStats};
pub use store::{PodStore, StoreConfig, StoreThread};
pub use tombstone::{MAX_TOMBSTONES, Tombstone};
pub use update::{SourceId, SourcePod, Update};
pub use writer::{EventSink, Now, Writer};

pub(crate) use masked::append_projection;
pub(crate) use record::put_message_prefix;
pub(crate) use snapshot::SnapshotCursor;
