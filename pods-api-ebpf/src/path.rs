//! The path of a new cgroup: read, and searched for what all pods' paths have in common.

use aya_ebpf::helpers::generated::bpf_probe_read_kernel_str;
use pods_api_common::{PATH_BYTES, PathEvent};

use crate::events::count;
use crate::maps::SCRATCH;

/// The name of the cgroup above all pods, or its end (`/kubelet.slice/kubelet-kubepods.slice`), as one number.
const KUBEPODS: u64 = u64::from_be_bytes(*b"kubepods");

/// Reads `path` into an event. Returns its length without NUL; `PATH_BYTES` if it may have been cut.
#[inline(always)]
pub fn read(path: *const u8) -> Option<(&'static mut PathEvent, usize)> {
    // SAFETY: this CPU's own value of the map, which lives as long as the program; no one else has it (see
    // `SCRATCH`).
    let event = unsafe { &mut *SCRATCH.get_ptr_mut(0)? };
    // SAFETY: the destination is `PATH_BYTES` long; the helper checks the source itself.
    let read =
        unsafe { bpf_probe_read_kernel_str(event.path.as_mut_ptr().cast(), PATH_BYTES as u32, path.cast()) };
    if read <= 0 {
        count(|counters| &mut counters.read_failed);
        return None;
    }
    // The count includes the NUL; a path that fills the buffer may have lost its end.
    let read = read as usize;
    Some((event, if read >= PATH_BYTES { PATH_BYTES } else { read - 1 }))
}

/// Whether `kubepods` occurs in the path.
///
/// Ends at the NUL, not at the length: the compiler would turn that end into a comparison for equality, from which
/// older verifiers learn no bound.
#[inline(always)]
pub fn is_of_pods(event: &PathEvent) -> bool {
    let mut window: u64 = 0;
    for byte in &event.path {
        if *byte == 0 {
            break;
        }
        window = (window << 8) | u64::from(*byte);
        if window == KUBEPODS {
            return true;
        }
    }
    false
}
