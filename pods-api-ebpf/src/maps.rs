//! The maps. Their names, keys and values are in the object's BTF, so `bpftool map dump` shows fields by name.
//!
//! Preallocated, except for the one that no program here touches: before 6.1 the kernel warns of tracing programs
//! that allocate at run time.

use aya_ebpf::bindings::BPF_F_NO_PREALLOC;
use aya_ebpf::btf_maps::{HashMap, PerCpuArray, RingBuf};
use aya_ebpf::macros::btf_map;
use pods_api_common::{CgroupEntry, Counter, EventHeader, PathEvent, ProcessEntry};

/// What the server reads. The loader may choose another size.
#[btf_map(name = "pods_events")]
pub static EVENTS: RingBuf<EventHeader, { 512 * 1024 }> = RingBuf::new();

/// One slot for each [`Counter`].
#[btf_map(name = "pods_counters")]
pub static COUNTERS: PerCpuArray<u64, { Counter::ALL.len() }> = PerCpuArray::new();

/// IDs of the cgroups that lie below one named `kubepods`; the value is 1.
#[btf_map(name = "pods_tracked")]
pub static TRACKED: HashMap<u64, u32, 8192> = HashMap::new();

/// Processes in them that were moved there or have executed a program there, by thread group ID.
#[btf_map(name = "pods_processes")]
pub static PROCESSES: HashMap<u32, ProcessEntry, 16384> = HashMap::new();

/// Written by the server, for others to read.
#[btf_map(name = "pods_cgroups")]
#[used]
pub static CGROUPS: HashMap<u64, CgroupEntry, 8192, { BPF_F_NO_PREALLOC as usize }> = HashMap::new();

/// Where the event of a new cgroup is built: too large for the stack. One program uses it, and the kernel runs that
/// one under a lock.
#[btf_map(name = "pods_scratch")]
pub static SCRATCH: PerCpuArray<PathEvent, 1> = PerCpuArray::new();
