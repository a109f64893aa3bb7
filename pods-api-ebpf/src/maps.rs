//! The maps. Their names, keys and values are in the object's BTF, so `bpftool map dump` shows fields by name.
//!
//! All are preallocated, four megabytes together: before 6.1 the kernel warns of tracing programs whose maps allocate
//! at run time, our own and those of others that read `pods_cgroups`.

use aya_ebpf::btf_maps::{HashMap, PerCpuArray, RingBuf};
use aya_ebpf::macros::btf_map;
use pods_api_common::{CgroupEntry, Counters, EventHeader, PathEvent, ProcessEntry};

/// What the server reads. The loader may choose another size.
#[btf_map(name = "pods_events")]
pub static EVENTS: RingBuf<EventHeader, { 512 * 1024 }> = RingBuf::new();

/// What was sent, and what was lost for which cause.
#[btf_map(name = "pods_counters")]
pub static COUNTERS: PerCpuArray<Counters, 1> = PerCpuArray::new();

/// IDs of the cgroups that lie below one named `kubepods`; the value is 1.
#[btf_map(name = "pods_tracked")]
pub static TRACKED: HashMap<u64, u32, 8192> = HashMap::new();

/// Processes in them that were moved there or have executed a program there, by thread group ID.
#[btf_map(name = "pods_processes")]
pub static PROCESSES: HashMap<u32, ProcessEntry, 16384> = HashMap::new();

/// Written by the server, for others to read. An entry goes with its cgroup.
#[btf_map(name = "pods_cgroups")]
pub static CGROUPS: HashMap<u64, CgroupEntry, 4096> = HashMap::new();

/// Where the event of a new cgroup is built: too large for the stack. One program uses it, and the kernel runs that
/// one under a lock.
#[btf_map(name = "pods_scratch")]
pub static SCRATCH: PerCpuArray<PathEvent, 1> = PerCpuArray::new();
