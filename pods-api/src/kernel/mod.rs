//! What the kernel tells of pods: their cgroups and processes. Everything but `cgroup_path` (pure) runs on the
//! `kernel` thread.

pub mod btf;
mod cgroup_path;
mod event;
mod load;
mod logger;
mod object;
mod offsets;
mod pins;
mod refusal;
mod ring;
mod seed;
mod shared_map;
mod status;

pub use cgroup_path::{CgroupRoot, MAX_PATH_BYTES, PodPath, QosClass, UidText};
pub use event::{CgroupEntry, CgroupMap, Feed, KernelEvent};
pub use load::{DEFAULT_RING_BYTES, EbpfConfig, EbpfMode, KernelPrograms, load};
pub use object::is_built_with_ebpf;
pub use refusal::Refusal;
pub use ring::Ring;
pub use shared_map::SharedMap;
pub use status::EbpfStatus;
