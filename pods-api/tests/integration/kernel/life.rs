//! What the programs tell of containers and processes, event by event.

use std::fs;
use std::process::Command;

use pods_api::kernel::{DEFAULT_RING_BYTES, KernelEvent};
use pods_api::pod::Pid;

use super::pod::{PodCgroups, cgroup_of, id, pid};
use super::{Programs, leaderless};
use crate::harness::{PATIENCE, eventually};

#[test]
fn life_of_a_container_is_told_once_and_in_order() {
    let Some(mut programs) = Programs::load(DEFAULT_RING_BYTES) else { return };
    let cgroups = PodCgroups::new("life");
    let (container, pod, above) = (id(cgroups.container()), id(cgroups.pod()), id(cgroups.above()));
    let paths = [cgroups.above(), cgroups.pod(), cgroups.container()].map(|path| cgroups.path_of(path));
    let mut child = cgroups.shell("exit 3");
    let process = pid(&child);
    assert_eq!(child.wait().unwrap().code(), Some(3));
    cgroups.remove();

    let ours = [above, pod, container];
    let is_last = |event: &KernelEvent| *event == KernelEvent::CgroupReleased { id: above };
    let mut events = programs.events_until("the life to end", |events| events.iter().any(is_last));
    events.retain(|event| cgroup_of(event).is_some_and(|id| ours.contains(&id)));
    // A cgroup is populated together with those above it: from the deepest up, or from the top down in later kernels.
    let populated = |id, is_populated| KernelEvent::CgroupPopulated { id, is_populated };
    let (changes, others): (Vec<_>, Vec<_>) =
        events.iter().cloned().partition(|event| matches!(event, KernelEvent::CgroupPopulated { .. }));
    for id in ours {
        let of_one: Vec<_> = changes.iter().filter(|event| cgroup_of(event) == Some(id)).collect();
        assert_eq!(of_one, [&populated(id, true), &populated(id, false)]);
    }
    let [above_path, pod_path, container_path] = paths;
    let expected = [
        KernelEvent::CgroupCreated { id: above, path: above_path },
        KernelEvent::CgroupCreated { id: pod, path: pod_path },
        KernelEvent::CgroupCreated { id: container, path: container_path },
        KernelEvent::ProcessAttached { cgroup: container, pid: process },
        KernelEvent::ProcessExecuted { cgroup: container, pid: process },
        KernelEvent::ProcessExited { cgroup: container, pid: process },
        KernelEvent::CgroupReleased { id: container },
        KernelEvent::CgroupReleased { id: pod },
        KernelEvent::CgroupReleased { id: above },
    ];
    assert_eq!(others, expected);
    let at = |wanted: &KernelEvent| events.iter().position(|event| event == wanted).unwrap();
    assert!(
        at(&expected[5]) < at(&populated(container, false)),
        "the last process ends before the cgroup is empty"
    );
}

#[test]
fn process_lives_until_its_last_thread_ends() {
    let Some(mut programs) = Programs::load(DEFAULT_RING_BYTES) else { return };
    let cgroups = PodCgroups::new("leaderless");
    let mut child = cgroups.start_in(cgroups.container(), &leaderless::command());
    let process = pid(&child);
    // The first thread has ended: the process is a zombie with another thread.
    eventually("the first thread to end", PATIENCE, || {
        let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
        status.contains("State:\tZ").then_some(())
    });
    assert_eq!(fs::read_dir(format!("/proc/{process}/task")).unwrap().count(), 2);
    let exited = KernelEvent::ProcessExited { cgroup: id(cgroups.container()), pid: process };
    let executed = KernelEvent::ProcessExecuted { cgroup: id(cgroups.container()), pid: process };
    let events = programs.events_until("the execution", |events| events.contains(&executed));
    assert!(!events.contains(&exited), "{events:?}");

    drop(child.stdin.take());
    child.wait().unwrap();
    let events = programs.events_until("the end", |events| events.contains(&exited));
    assert_eq!(events.iter().filter(|event| **event == exited).count(), 1);
}

#[test]
fn end_of_a_process_that_was_only_forked_is_told_once() {
    let Some(mut programs) = Programs::load(DEFAULT_RING_BYTES) else { return };
    let cgroups = PodCgroups::new("forked");
    let directory = tempfile::tempdir().unwrap();
    let number = directory.path().join("pid");
    let script = format!("(:) & echo $! > {}; wait", number.display());
    assert!(cgroups.shell(&script).wait().unwrap().success());
    let forked = Pid::new(fs::read_to_string(&number).unwrap().trim().parse().unwrap()).unwrap();
    let container = id(cgroups.container());
    let events = programs.events_until("the cgroup to be empty", |events| {
        events.contains(&KernelEvent::CgroupPopulated { id: container, is_populated: false })
    });
    let exited = KernelEvent::ProcessExited { cgroup: container, pid: forked };
    assert_eq!(events.iter().filter(|event| **event == exited).count(), 1, "{events:?}");
    assert!(!events.contains(&KernelEvent::ProcessExecuted { cgroup: container, pid: forked }), "{events:?}");
}

#[test]
fn process_older_than_the_programs_is_known() {
    let cgroups = PodCgroups::new("older");
    let mut child = cgroups.shell("read line");
    eventually("the process to be in its cgroup", PATIENCE, || {
        let members = fs::read_to_string(cgroups.container().join("cgroup.procs")).unwrap();
        members.contains(&child.id().to_string()).then_some(())
    });
    let Some(mut programs) = Programs::load(DEFAULT_RING_BYTES) else {
        child.kill().unwrap();
        child.wait().unwrap();
        return;
    };
    drop(child.stdin.take());
    child.wait().unwrap();
    let container = id(cgroups.container());
    let events = programs.events_until("the cgroup to be empty", |events| {
        events.contains(&KernelEvent::CgroupPopulated { id: container, is_populated: false })
    });
    assert!(
        events.contains(&KernelEvent::ProcessExited { cgroup: container, pid: pid(&child) }),
        "{events:?}"
    );
}

#[test]
fn end_of_a_process_that_has_left_its_pod_is_not_told() {
    let Some(mut programs) = Programs::load(DEFAULT_RING_BYTES) else { return };
    let cgroups = PodCgroups::new("left");
    let (container, root) = (id(cgroups.container()), super::pod::cgroup2_mount());
    let mut child = cgroups.shell("read line");
    let process = pid(&child);
    let executed = KernelEvent::ProcessExecuted { cgroup: container, pid: process };
    programs.events_until("the execution", |events| events.contains(&executed));
    fs::write(root.join("cgroup.procs"), process.to_string()).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    // Its end comes before that of the next one.
    let mut next = cgroups.shell("exit 0");
    next.wait().unwrap();
    let exited = |pid| KernelEvent::ProcessExited { cgroup: container, pid };
    let events = programs.events_until("the next one's end", |events| events.contains(&exited(pid(&next))));
    assert!(events.contains(&KernelEvent::ProcessAttached { cgroup: id(&root), pid: process }), "{events:?}");
    assert!(!events.contains(&exited(process)), "{events:?}");
}

#[test]
fn what_a_container_makes_below_itself_is_its_own() {
    let Some(mut programs) = Programs::load(DEFAULT_RING_BYTES) else { return };
    let cgroups = PodCgroups::new("nested");
    let inner = cgroups.container().join("init.scope");
    fs::create_dir(&inner).unwrap();
    let mut child = cgroups.start_in(&inner, Command::new("sh").args(["-c", "exit 0"]));
    child.wait().unwrap();
    let inner = id(&inner);
    programs.events_until("the nested process to end", |events| {
        events.contains(&KernelEvent::ProcessExecuted { cgroup: inner, pid: pid(&child) })
            && events.contains(&KernelEvent::ProcessExited { cgroup: inner, pid: pid(&child) })
    });
}

#[test]
fn processes_of_no_pod_are_not_told_of() {
    let Some(mut programs) = Programs::load(DEFAULT_RING_BYTES) else { return };
    let cgroups = PodCgroups::new("others");
    let mut strangers = Vec::new();
    for _ in 0..20 {
        let mut stranger = Command::new("sh").args(["-c", "exit 0"]).spawn().unwrap();
        strangers.push(pid(&stranger));
        stranger.wait().unwrap();
    }
    let mut child = cgroups.shell("exit 0");
    child.wait().unwrap();
    let exited = KernelEvent::ProcessExited { cgroup: id(cgroups.container()), pid: pid(&child) };
    let events = programs.events_until("the pod's process to end", |events| events.contains(&exited));
    let told = events.iter().filter(|event| match event {
        KernelEvent::ProcessAttached { pid, .. }
        | KernelEvent::ProcessExecuted { pid, .. }
        | KernelEvent::ProcessExited { pid, .. } => strangers.contains(pid),
        _ => false,
    });
    assert_eq!(told.count(), 0);
}

#[test]
fn victim_of_the_oom_killer_is_named_with_its_cgroup() {
    let Some(mut programs) = Programs::load(DEFAULT_RING_BYTES) else { return };
    let cgroups = PodCgroups::new("oom");
    let memory = MemoryLimit::on(&cgroups, 16 << 20);
    // `tail` keeps its input, which has no line, in memory.
    let script = format!(
        "echo $$ > {}/cgroup.procs && head -c 256m /dev/zero | tail -n 1 > /dev/null",
        memory.directory()
    );
    let mut child = cgroups.shell(&script);
    child.wait().unwrap();
    let container = id(cgroups.container());
    programs.events_until("the victim", |events| {
        events
            .iter()
            .any(|event| matches!(event, KernelEvent::OomKilled { cgroup, .. } if *cgroup == container))
    });
}

/// A limit on the container's memory: of its own cgroup where the memory controller is in the cgroup2 hierarchy,
/// else of one beside it in the controller's.
struct MemoryLimit {
    directory: String,
    is_ours: bool,
}

impl MemoryLimit {
    fn on(cgroups: &PodCgroups, bytes: u64) -> Self {
        let v1 = std::path::Path::new("/sys/fs/cgroup/memory");
        if v1.join("memory.limit_in_bytes").exists() {
            let directory = v1.join(format!("pods-api-test-oom-{}", std::process::id()));
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("memory.limit_in_bytes"), bytes.to_string()).unwrap();
            return Self { directory: directory.display().to_string(), is_ours: true };
        }
        let container = cgroups.container();
        for above in [super::pod::cgroup2_mount().as_path(), cgroups.top(), cgroups.above(), cgroups.pod()] {
            fs::write(above.join("cgroup.subtree_control"), "+memory").unwrap();
        }
        fs::write(container.join("memory.max"), bytes.to_string()).unwrap();
        Self { directory: container.display().to_string(), is_ours: false }
    }

    fn directory(&self) -> &str {
        &self.directory
    }
}

impl Drop for MemoryLimit {
    fn drop(&mut self) {
        if self.is_ours {
            eventually("the memory cgroup to be removed", PATIENCE, || fs::remove_dir(&self.directory).ok());
        }
    }
}
