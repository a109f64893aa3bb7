//! Arbitrary bytes as a kernel's type description: an error or an answer, in bounded time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use pods_api::kernel::btf::Btf;

fuzz_target!(|data: &[u8]| {
    if let Ok(btf) = Btf::parse(data) {
        let _ = btf.offset("task_struct", "tgid");
        let _ = btf.offset("cgroup", "kn");
        let _ = btf.arguments("cgroup_mkdir");
        let _ = btf.arguments("sched_process_exit");
    }
});
