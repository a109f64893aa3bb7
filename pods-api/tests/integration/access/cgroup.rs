//! Cgroups named as those of pods, below a root of the test's own. Dropping them ends what runs in them and removes
//! them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::harness::{PATIENCE, eventually};

/// How a kubelet names cgroups.
#[derive(Debug, Clone, Copy)]
pub(super) enum Driver {
    Cgroupfs,
    Systemd,
}

pub(super) struct Cgroups {
    root: PathBuf,
    mount: PathBuf,
}

impl Cgroups {
    /// A root below the mount of cgroup2.
    pub(super) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let is_cgroup2 = |line: &&str| line.contains(" - cgroup2 ");
        let line = mounts.lines().find(is_cgroup2).expect("cgroup2 is mounted");
        let mount = PathBuf::from(line.split(' ').nth(4).unwrap());
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let root = mount.join(format!("pods-api-test-{}-{number}", std::process::id()));
        fs::create_dir(&root).unwrap();
        Self { root, mount }
    }

    /// The root, as `--cgroup-root` takes it.
    pub(super) fn root(&self) -> String {
        format!("/{}", self.root.strip_prefix(&self.mount).unwrap().display())
    }

    /// Makes the cgroup of a container.
    pub(super) fn container(&self, driver: Driver, pod: &str, container: &str) -> PathBuf {
        let path = match driver {
            Driver::Cgroupfs => format!("kubepods/burstable/pod{pod}/{container}"),
            Driver::Systemd => {
                let slice = format!("kubepods-burstable-pod{}.slice", pod.replace('-', "_"));
                format!("kubepods.slice/kubepods-burstable.slice/{slice}/cri-containerd-{container}.scope")
            }
        };
        self.make(&path)
    }

    /// Makes a cgroup of any path below the root.
    pub(super) fn make(&self, path: &str) -> PathBuf {
        let path = self.root.join(path);
        fs::create_dir_all(&path).unwrap();
        path
    }
}

/// The command, run from within a cgroup: its process is moved there before the program begins.
pub(super) fn within(cgroup: &Path, command: &Command) -> Command {
    let mut moved = Command::new("sh");
    moved.args(["-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\""]).arg(cgroup);
    moved.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => moved.env(name, value),
            None => moved.env_remove(name),
        };
    }
    moved
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        // Linux 5.14 and later; what runs there is only what the test has started.
        let _ = fs::write(self.root.join("cgroup.kill"), "1");
        let remove = || remove(&self.root).ok();
        if std::thread::panicking() {
            let start = std::time::Instant::now();
            while remove().is_none() && start.elapsed() < PATIENCE {
                std::thread::yield_now();
            }
        } else {
            eventually("the cgroups to be empty", PATIENCE, remove);
        }
    }
}

/// Removes a cgroup and those below it.
fn remove(cgroup: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(cgroup)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            remove(&entry.path())?;
        }
    }
    fs::remove_dir(cgroup)
}
