//! What the kernel tells of pods: their cgroups and processes.
//!
//! `cgroup_path` and `resolve` are pure; `identity` answers on any thread, from `/proc` and from published tables; `load`
//! runs once, before the first thread; everything else runs on the `kernel` thread.

pub mod btf;
mod cgroup_path;
mod cgroups;
mod event;
mod fallback;
mod hierarchy;
mod identity;
mod load;
mod logger;
mod namespace;
mod object;
mod offsets;
mod pins;
mod processes;
mod refusal;
mod resolve;
mod ring;
mod room;
mod scan;
mod seed;
mod shared_map;
mod status;
mod tracker;
mod view;

pub use cgroup_path::{CgroupRoot, MAX_PATH_BYTES, PodPath, QosClass, UidText};
pub use event::{CgroupEntry, CgroupMap, Feed, KernelEvent};
pub use identity::Locator;
pub use load::{DEFAULT_RING_BYTES, EbpfConfig, EbpfMode, KernelPrograms, load, load_as_configured};
pub use object::is_built_with_ebpf;
pub use refusal::{Refusal, does_map_access_need_capability};
pub use ring::Ring;
pub use room::{KernelConfig, KernelRoom, NamedFeed};
pub use shared_map::SharedMap;
pub use status::{EbpfState, EbpfStatus};
pub use tracker::Hint;
pub use view::{KernelCounts, KernelReport, KernelView};
