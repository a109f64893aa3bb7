//! Cgroups laid out like those of a pod, made for one test and removed with it.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use pods_api::kernel::KernelEvent;
use pods_api::pod::{CgroupId, Pid};

use crate::harness::{PATIENCE, eventually};

/// A directory named like the one above all pods, with those of one pod and its container.
pub(super) struct PodCgroups {
    /// What is not of pods.
    top: PathBuf,
    container: PathBuf,
    root: PathBuf,
}

impl PodCgroups {
    /// Makes them below the root of the cgroup2 hierarchy. `test` keeps tests apart.
    pub(super) fn new(test: &str) -> Self {
        let root = cgroup2_mount();
        let top = root.join(format!("pods-api-test-{test}-{}", std::process::id()));
        let container =
            top.join("kubepods/pod6b3f0a52-9a1c-4c58-8d1e-0c1f2d3e4a5b").join("c0ffee".repeat(10) + "c0ff");
        fs::create_dir_all(&container).unwrap();
        Self { top, container, root }
    }

    pub(super) fn container(&self) -> &Path {
        &self.container
    }

    pub(super) fn pod(&self) -> &Path {
        self.container.parent().unwrap()
    }

    pub(super) fn above(&self) -> &Path {
        self.pod().parent().unwrap()
    }

    pub(super) fn top(&self) -> &Path {
        &self.top
    }

    /// Path below the root of the hierarchy, as the kernel's events have it.
    pub(super) fn path_of(&self, cgroup: &Path) -> String {
        format!("/{}", cgroup.strip_prefix(&self.root).unwrap().display())
    }

    /// Starts a shell in the container's cgroup.
    pub(super) fn shell(&self, script: &str) -> Child {
        self.start_in(&self.container, Command::new("sh").args(["-c", script]))
    }

    /// Starts a program in a cgroup: moved there before it executes, as container runtimes do.
    pub(super) fn start_in(&self, cgroup: &Path, program: &Command) -> Child {
        let mut shell = Command::new("sh");
        shell.args(["-c", "echo $$ > \"$0\" && exec \"$@\""]).arg(cgroup.join("cgroup.procs"));
        shell.arg(program.get_program()).args(program.get_args());
        for (name, value) in program.get_envs() {
            shell.env(name, value.unwrap_or_default());
        }
        shell.stdin(Stdio::piped()).spawn().unwrap()
    }

    /// Removes everything, the deepest first, as a runtime and the kubelet do.
    pub(super) fn remove(&self) {
        remove_tree(&self.top);
    }
}

impl Drop for PodCgroups {
    fn drop(&mut self) {
        self.remove();
    }
}

fn remove_tree(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove_tree(&entry.path());
    }
    // Processes that were killed are still on their way out.
    eventually("the cgroup to be removed", PATIENCE, || {
        let gone = fs::remove_dir(directory).is_ok() || !directory.exists();
        gone.then_some(())
    });
}

pub(super) fn cgroup2_mount() -> PathBuf {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"));
    mount.and_then(|line| line.split(' ').nth(1)).expect("a cgroup2 hierarchy is mounted").into()
}

/// A cgroup's number: its inode.
pub(super) fn id(cgroup: &Path) -> CgroupId {
    CgroupId(fs::metadata(cgroup).unwrap().ino())
}

pub(super) fn pid(child: &Child) -> Pid {
    Pid::new(i32::try_from(child.id()).unwrap()).unwrap()
}

/// The cgroup that an event is about.
pub(super) fn cgroup_of(event: &KernelEvent) -> Option<CgroupId> {
    match event {
        KernelEvent::CgroupCreated { id, .. }
        | KernelEvent::CgroupPopulated { id, .. }
        | KernelEvent::CgroupReleased { id } => Some(*id),
        KernelEvent::ProcessAttached { cgroup, .. }
        | KernelEvent::ProcessExecuted { cgroup, .. }
        | KernelEvent::ProcessExited { cgroup, .. }
        | KernelEvent::OomKilled { cgroup, .. } => Some(*cgroup),
        KernelEvent::EventsLost { .. } => None,
    }
}
