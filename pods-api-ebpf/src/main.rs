//! The kernel side of pods-api: raw tracepoints that tell the server what happens to the cgroups and processes of
//! pods.
//!
//! Raw tracepoints, because they need no tracefs and, unlike BTF tracepoints on kernels before 5.17, may look at
//! every argument. What an argument is and where a field lies comes from the running kernel's BTF, in read-only
//! globals (`kernel`): nothing about a kernel is compiled in. Filters come before anything is put into the ring
//! buffer; what passes them and is lost is counted (`events`).

#![no_std]
#![no_main]

mod events;
mod kernel;
mod maps;
mod path;

use aya_ebpf::helpers::bpf_get_current_pid_tgid;
use aya_ebpf::macros::raw_tracepoint;
use aya_ebpf::programs::RawTracePointContext;
use aya_log_ebpf::debug;
use pods_api_common::{EventKind, ProcessEntry};

use crate::events::{count, report, report_path};
use crate::kernel::{Cgroup, Task, current_tracked_cgroup};
use crate::maps::{CGROUPS, PROCESSES, TRACKED};

/// `cgroup_mkdir(struct cgroup *cgrp, const char *path)`
///
/// The only event that is filtered by text: a pod's cgroups, in whatever layout, lie below one named `kubepods`.
/// From here on they are known by their ID.
#[raw_tracepoint(tracepoint = "cgroup_mkdir")]
fn pods_mkdir(ctx: RawTracePointContext) -> Option<()> {
    let cgroup = Cgroup::of_cgroup2(ctx.arg(0))?;
    let (event, length) = path::read(ctx.arg(1))?;
    if !path::is_of_pods(event) {
        return None;
    }
    let id = cgroup.id()?;
    if TRACKED.insert(id, 1, 0).is_err() {
        count(|counters| &mut counters.tracked_full);
    }
    report_path(event, length, id);
    debug!(&ctx, "cgroup {} created", id);
    Some(())
}

/// `cgroup_rmdir(struct cgroup *cgrp, const char *path)`
///
/// Not `cgroup_release`: that one waits for the last reference, and a memory controller with pages still charged
/// keeps one for as long as it likes.
#[raw_tracepoint(tracepoint = "cgroup_rmdir")]
fn pods_rmdir(ctx: RawTracePointContext) -> Option<()> {
    let id = Cgroup::of_cgroup2(ctx.arg(0))?.id()?;
    // There is none for a cgroup that is of no container or pod.
    let _ = CGROUPS.remove(id);
    // Whoever removes the entry reports it: once.
    TRACKED.remove(id).ok()?;
    report(EventKind::CgroupReleased, id, 0, 0);
    debug!(&ctx, "cgroup {} removed", id);
    Some(())
}

/// `cgroup_notify_populated(struct cgroup *cgrp, const char *path, int val)`
#[raw_tracepoint(tracepoint = "cgroup_notify_populated")]
fn pods_populated(ctx: RawTracePointContext) -> Option<()> {
    let id = Cgroup::of_cgroup2(ctx.arg(0))?.tracked_id()?;
    let value = u32::from(ctx.arg::<u32>(2) != 0);
    report(EventKind::CgroupPopulated, id, 0, value);
    debug!(&ctx, "cgroup {} populated {}", id, value);
    Some(())
}

/// `cgroup_attach_task(struct cgroup *dst_cgrp, const char *path, struct task_struct *task, bool threadgroup)`
///
/// Fires once for a whole process, with its leader, or once for a thread that is moved alone: one that leaves does
/// not take its process along.
#[raw_tracepoint(tracepoint = "cgroup_attach_task")]
fn pods_attach(ctx: RawTracePointContext) -> Option<()> {
    let cgroup = Cgroup::of_cgroup2(ctx.arg(0))?;
    let id = cgroup.id()?;
    let pid = Task(ctx.arg(2)).tgid()?;
    if kernel::is_tracked(id) {
        remember(pid, id);
    } else if ctx.arg::<u8>(3) != 0 {
        // It leaves its pod, if it was in one.
        PROCESSES.remove(pid).ok()?;
    } else {
        return None;
    }
    report(EventKind::ProcessAttached, id, pid, 0);
    debug!(&ctx, "process {} attached to cgroup {}", pid, id);
    Some(())
}

/// `sched_process_exec(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm)`
///
/// `p` is the current task.
#[raw_tracepoint(tracepoint = "sched_process_exec")]
fn pods_exec(ctx: RawTracePointContext) -> Option<()> {
    let id = current_tracked_cgroup()?;
    let pid = current_tgid();
    remember(pid, id);
    report(EventKind::ProcessExecuted, id, pid, 0);
    debug!(&ctx, "process {} executed in cgroup {}", pid, id);
    Some(())
}

/// `sched_process_exit(struct task_struct *p, bool group_dead)`, the second argument on newer kernels
///
/// Fires for each thread; of interest is the one that leaves no other. That is seldom the leader's: a leader may
/// end long before its process does.
#[raw_tracepoint(tracepoint = "sched_process_exit")]
fn pods_exit(ctx: RawTracePointContext) -> Option<()> {
    let pid = current_tgid();
    // SAFETY: the entry is copied at once; should it be replaced meanwhile, by a move of the process to another
    // cgroup, either ID is true of some moment of its end.
    let known = unsafe { PROCESSES.get(pid) }.map(|entry| entry.cgroup_id);
    // A process that was forked there and has executed nothing has no entry.
    let Some(id) = known.or_else(current_tracked_cgroup) else { return None };
    if !kernel::is_group_dead(&ctx)? {
        return None;
    }
    // Two last threads on two CPUs may both find none left; whoever removes the entry reports it: once.
    if known.is_some() {
        PROCESSES.remove(pid).ok()?;
    }
    report(EventKind::ProcessExited, id, pid, 0);
    debug!(&ctx, "process {} of cgroup {} exited", pid, id);
    Some(())
}

/// `mark_victim(struct task_struct *task, uid_t uid)`, or `mark_victim(int pid)` on older kernels
#[raw_tracepoint(tracepoint = "mark_victim")]
fn pods_oom(ctx: RawTracePointContext) -> Option<()> {
    let (id, pid) = kernel::oom_victim(&ctx)?;
    report(EventKind::OomKilled, id, pid, 0);
    debug!(&ctx, "process {} of cgroup {} chosen by the OOM killer", pid, id);
    Some(())
}

fn remember(pid: u32, cgroup_id: u64) {
    if PROCESSES.insert(pid, ProcessEntry { cgroup_id }, 0).is_err() {
        count(|counters| &mut counters.processes_full);
    }
}

#[inline(always)]
fn current_tgid() -> u32 {
    (bpf_get_current_pid_tgid() >> 32) as u32
}

#[panic_handler]
fn panic(_info: &core::panic::PanicInfo<'_>) -> ! {
    // The verifier refuses programs that could come here.
    loop {}
}

/// What the kernel asks of programs that read its memory.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 4] = *b"GPL\0";
