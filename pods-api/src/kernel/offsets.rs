//! What the kernel programs must know of the running kernel: from its BTF into their read-only globals.
//!
//! Every argument that a program uses is checked here, so a kernel that has changed a tracepoint is refused by name
//! instead of being read wrongly.

use super::btf::{Argument, Btf, BtfError};
use super::refusal::Refusal;
use pods_api_common::{NO_ARGUMENT, field};
use std::path::Path;

/// Where the kernel describes itself.
pub(super) const BTF_PATH: &str = "/sys/kernel/btf/vmlinux";

/// Globals of the programs and their values.
pub(super) type Globals = Vec<(&'static str, u32)>;

/// Fields, by the global that takes their offset.
const FIELDS: [(&str, &str, &str); 9] = [
    (field::CGROUP_KN, "cgroup", "kn"),
    (field::CGROUP_ROOT, "cgroup", "root"),
    (field::ROOT_HIERARCHY, "cgroup_root", "hierarchy_id"),
    (field::KN_ID, "kernfs_node", "id"),
    (field::TASK_TGID, "task_struct", "tgid"),
    (field::TASK_SIGNAL, "task_struct", "signal"),
    (field::TASK_CGROUPS, "task_struct", "cgroups"),
    (field::CSS_DFL_CGRP, "css_set", "dfl_cgrp"),
    (field::SIGNAL_LIVE, "signal_struct", "live"),
];

const CGROUP: Argument<'_> = Argument::Structure("cgroup");
const TASK: Argument<'_> = Argument::Structure("task_struct");

/// The leading arguments that the programs use. An argument that is there under another type is a refusal.
const TRACEPOINTS: [(&str, &[Argument<'_>]); 6] = [
    ("cgroup_mkdir", &[CGROUP, Argument::Pointer]),
    ("cgroup_rmdir", &[CGROUP]),
    ("cgroup_notify_populated", &[CGROUP, Argument::Pointer, Argument::Value]),
    ("cgroup_attach_task", &[CGROUP, Argument::Pointer, TASK]),
    ("sched_process_exec", &[TASK]),
    ("sched_process_exit", &[TASK]),
];

/// Reads the running kernel's description.
pub(super) fn of_running_kernel() -> Result<Globals, Refusal> {
    let bytes = std::fs::read(Path::new(BTF_PATH)).map_err(|source| match source.kind() {
        std::io::ErrorKind::NotFound => Refusal::NoBtf,
        _ => Refusal::UnreadableBtf(source.to_string()),
    })?;
    from_btf(&bytes)
}

/// Reads a description.
fn from_btf(bytes: &[u8]) -> Result<Globals, Refusal> {
    let strange = |error: BtfError| Refusal::StrangeBtf(error.to_string());
    let btf = Btf::parse(bytes).map_err(strange)?;
    let mut globals = Vec::with_capacity(FIELDS.len() + 2);
    for (global, structure, field) in FIELDS {
        globals.push((global, btf.offset(structure, field).map_err(strange)?));
    }
    for (tracepoint, expected) in TRACEPOINTS {
        if !btf.arguments(tracepoint).map_err(strange)?.starts_with(expected) {
            return Err(Refusal::Tracepoint(tracepoint));
        }
    }
    let exit = btf.arguments("sched_process_exit").map_err(strange)?;
    globals
        .push((field::EXIT_GROUP_DEAD, if exit.get(1) == Some(&Argument::Value) { 1 } else { NO_ARGUMENT }));
    let victim = btf.arguments("mark_victim").map_err(strange)?;
    let victim_is_task = match victim.first() {
        Some(&TASK) => 1,
        Some(Argument::Value) => 0,
        _ => return Err(Refusal::Tracepoint("mark_victim")),
    };
    globals.push((field::VICTIM_IS_TASK, victim_is_task));
    Ok(globals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_kernel_tells_every_global() {
        if !Path::new(BTF_PATH).exists() {
            return crate::testing::cannot_run("the kernel has no BTF to read");
        }
        let globals = of_running_kernel().unwrap();
        assert_eq!(globals.len(), FIELDS.len() + 2);
        let tgid = globals.iter().find(|(name, _)| *name == field::TASK_TGID).unwrap();
        assert!((1..64 << 10).contains(&tgid.1), "{tgid:?}");
    }

    #[test]
    fn bytes_that_are_no_description_are_a_refusal() {
        assert!(matches!(from_btf(b"ELF"), Err(Refusal::StrangeBtf(_))));
    }
}
