//! What was there before the programs: the cgroups of pods and the processes in them, put into the programs' maps.
//!
//! So the end of a container that is older than the agent is reported like that of any other. Runs on the `kernel`
//! thread, once, after the programs are attached.

use super::room::is_in_first_pid_namespace;
use aya::maps::{HashMap, MapData};
use pods_api_common::ProcessEntry;
use std::fs;
use std::os::unix::fs::DirEntryExt as _;
use std::path::{Path, PathBuf};

/// As in the programs: below a cgroup whose name ends so lie all pods.
const KUBEPODS: &str = "kubepods";
/// How deep cgroups are looked for.
const MAX_DEPTH: usize = 16;

/// What was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Seeded {
    pub(super) cgroups: usize,
    pub(super) processes: usize,
}

/// Fills the maps. What cannot be read has gone meanwhile; what does not fit is as unknown as it was.
pub(super) fn fill(
    tracked: &mut HashMap<MapData, u64, u32>,
    processes: &mut HashMap<MapData, u32, ProcessEntry>,
) -> Seeded {
    let mut seeded = Seeded::default();
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    // In a PID namespace of our own, processes have other numbers than in the programs' map.
    let are_pids_ours = is_in_first_pid_namespace();
    let mut found = |cgroup: &Path, id| {
        const ONLY_NEW: u64 = 1;
        seeded.cgroups += usize::from(tracked.insert(id, 1, ONLY_NEW).is_ok());
        if !are_pids_ours {
            return;
        }
        let members = fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default();
        for pid in members.lines().filter_map(|line| line.parse::<u32>().ok()) {
            // An event may have known better meanwhile.
            if processes.insert(pid, ProcessEntry { cgroup_id: id }, ONLY_NEW).is_err() {
                continue;
            }
            if Path::new(&format!("/proc/{pid}")).exists() {
                seeded.processes += 1;
            } else {
                // Its end may have come before its entry: nobody else would remove it.
                let _ = processes.remove(&pid);
            }
        }
    };
    // In a container there are two: the node's, and one of which the root is the container's own cgroup.
    for root in cgroup2_mounts(&mounts) {
        walk(&root, false, 0, &mut found);
    }
    seeded
}

/// Where the cgroup2 hierarchy is mounted.
fn cgroup2_mounts(mounts: &str) -> impl Iterator<Item = PathBuf> {
    mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        let (path, kind) = (fields.next()?, fields.next()?);
        (kind == "cgroup2").then(|| PathBuf::from(path))
    })
}

/// Calls `found` for each cgroup of pods below `directory`, with its ID, which is its inode number.
fn walk(directory: &Path, is_of_pods: bool, depth: usize, found: &mut dyn FnMut(&Path, u64)) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        let is_of_pods = is_of_pods || entry.file_name().to_string_lossy().contains(KUBEPODS);
        let path = entry.path();
        if is_of_pods {
            found(&path, entry.ino());
        }
        if depth < MAX_DEPTH {
            walk(&path, is_of_pods, depth + 1, found);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_lies_below_kubepods_is_found() {
        let root = tempfile::tempdir().unwrap();
        for path in ["system.slice/ssh.service", "kubelet.slice/kubelet-kubepods.slice/pod1/c1", "kubepods"] {
            fs::create_dir_all(root.path().join(path)).unwrap();
        }
        let mut names = Vec::new();
        walk(root.path(), false, 0, &mut |path, id| {
            assert_ne!(id, 0);
            names.push(path.file_name().unwrap().to_string_lossy().into_owned());
        });
        names.sort();
        assert_eq!(names, ["c1", "kubelet-kubepods.slice", "kubepods", "pod1"]);
    }

    #[test]
    fn cgroup2_mounts_are_those_of_its_type() {
        let mounts = "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
                      cgroup /sys/fs/cgroup/cpu cgroup rw 0 0\n\
                      cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
                      cgroup2 /host/sys/fs/cgroup cgroup2 ro 0 0\n";
        let found: Vec<_> = cgroup2_mounts(mounts).collect();
        assert_eq!(found, [Path::new("/sys/fs/cgroup/unified"), Path::new("/host/sys/fs/cgroup")]);
    }
}
