//! Removing what a node leaves on the machine. What fails here was not there, or is ended by a later step.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::Node;

/// How long a killed process may take to leave its cgroup.
const END_TIME: Duration = Duration::from_secs(5);

impl Node {
    pub(super) fn remove_all_sandboxes(&mut self) {
        let Some(kubelet) = self.kubelet.as_mut() else { return };
        for sandbox in kubelet.sandboxes_of(None).unwrap_or_default() {
            let _ = kubelet.remove_sandbox(&sandbox);
        }
    }

    /// Ends processes that were started for this containerd: their arguments name its socket.
    pub(super) fn end_shims(&self) {
        let socket = self.socket();
        let names_socket = |process: &Path| {
            let arguments = fs::read(process.join("cmdline")).unwrap_or_default();
            arguments
                .split(|byte| *byte == 0)
                .any(|argument| argument == socket.as_os_str().as_encoded_bytes())
        };
        for process in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
            let pid = process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            if let Some(pid) = pid.filter(|_| names_socket(&process.path())) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Removes the cgroups of the pods made here, in every hierarchy. The runtime leaves them.
    pub(super) fn remove_cgroups(&self) {
        let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().filter_map(Result::ok);
        let hierarchies = hierarchies.map(|entry| entry.path()).chain([PathBuf::from("/sys/fs/cgroup")]);
        let sandboxes = self.sandboxes.lock().unwrap();
        for parent in hierarchies.map(|path| path.join("kubepods/burstable")) {
            for config in sandboxes.values() {
                let uid = &config.metadata.as_ref().unwrap().uid;
                remove_cgroup(&parent.join(format!("pod{uid}")));
            }
            // Parents that are empty now were made by this test.
            let _ = fs::remove_dir(&parent);
            let _ = fs::remove_dir(parent.parent().unwrap());
        }
    }
}

/// Removes a cgroup with what is in it. There may be a process that no runtime knows: one that was made for a container
/// when its shim was killed.
fn remove_cgroup(path: &Path) {
    for child in fs::read_dir(path).into_iter().flatten().filter_map(Result::ok) {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&child.path());
        }
    }
    let start = Instant::now();
    while path.exists() && fs::remove_dir(path).is_err() && start.elapsed() < END_TIME {
        let processes = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
        for pid in processes.lines().filter_map(|line| line.parse().ok()).filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

/// Unmounts everything below a directory, innermost first.
pub(super) fn unmount_below(directory: &Path) {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut below: Vec<_> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1).map(PathBuf::from))
        .filter(|mount| mount.starts_with(directory))
        .collect();
    below.sort();
    for mount in below.into_iter().rev() {
        let _ = Command::new("umount").args(["--lazy"]).arg(mount).status();
    }
}
