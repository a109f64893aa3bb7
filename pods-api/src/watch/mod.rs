//! The watch engine: one log per view, and a bounded ring of log positions per watcher.
//!
//! The store's thread appends each event once to the log of every view that is watched (`hub`, `log`). A [`Watcher`]
//! belongs to the worker that owns the client's connection; it reads its log at its own pace and gives out frames that
//! all watchers of the view share. The writer's cost does not depend on the number of watchers, and no watcher can
//! delay it or another watcher. No I/O.

mod coalesced;
mod hub;
mod log;
mod registry;
mod ring;
mod shared_sync;
mod sync;
mod view;
mod visibility;
mod watcher;

#[cfg(test)]
#[cfg(feature = "loom")]
mod loom_tests;
#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests;

pub use hub::{Hub, HubConfig, HubStats, Publisher, SubscribeError, WakerId};
pub use registry::{Caller, WatcherId, WatcherInfo};
pub use view::{Contract, DELETED_ANNOTATION, Frame, View};
pub use watcher::{EndReason, Next, WatchOptions, Watcher};
