//! A memory cgroup of our own around a server: its peak counts kernel memory (socket buffers) too, which the
//! resident set does not show. Needs the right to create cgroups; without it there is simply no such figure.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A cgroup that is removed on drop.
pub(crate) struct MemoryCgroup {
    path: PathBuf,
    peak_file: &'static str,
}

/// Tells the cgroups of one process apart; only uniqueness matters.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl MemoryCgroup {
    /// Creates a cgroup below our own, on cgroup v2 or v1; None where that is not possible.
    pub(crate) fn create() -> Option<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("pods-bench-{}-{number}", std::process::id());
        let (parent, peak_file) = own.lines().find_map(memory_hierarchy)?;
        remove_abandoned(&parent);
        let path = parent.join(name);
        std::fs::create_dir(&path).ok()?;
        let cgroup = Self { path, peak_file };
        // A v2 cgroup without the memory controller has no peak to read.
        cgroup.peak_bytes().is_some().then_some(cgroup)
    }

    /// Moves a process in; its later threads and children follow.
    pub(crate) fn add(&self, pid: u32) -> bool {
        std::fs::write(self.path.join("cgroup.procs"), pid.to_string()).is_ok()
    }

    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        std::fs::read_to_string(self.path.join(self.peak_file)).ok()?.trim().parse().ok()
    }
}

impl Drop for MemoryCgroup {
    fn drop(&mut self) {
        // Fails while a process is inside; the owner ends its server first.
        let _ = std::fs::remove_dir(&self.path);
    }
}

/// Removes the cgroups of benches that were killed.
fn remove_abandoned(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix("pods-bench-")?.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // One that still holds a process stays, whoever it belongs to.
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

/// The directory of our own memory cgroup and the name of its peak file, from a line of /proc/self/cgroup.
fn memory_hierarchy(line: &str) -> Option<(PathBuf, &'static str)> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?.trim_start_matches('/'));
    if controllers.split(',').any(|controller| controller == "memory") {
        return Some((Path::new("/sys/fs/cgroup/memory").join(path), "memory.max_usage_in_bytes"));
    }
    let unified = Path::new("/sys/fs/cgroup").join(path);
    (controllers.is_empty() && unified.join("memory.current").exists()).then_some((unified, "memory.peak"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_the_memory_controller_is_found() {
        assert_eq!(
            memory_hierarchy("4:memory:/a/b"),
            Some((PathBuf::from("/sys/fs/cgroup/memory/a/b"), "memory.max_usage_in_bytes"))
        );
        assert_eq!(memory_hierarchy("1:cpu:/"), None);
        assert_eq!(memory_hierarchy("nonsense"), None);
    }

    #[test]
    fn cgroup_is_removed_on_drop() {
        // Without the right to make cgroups there is nothing to check but that this is no error.
        let Some(cgroup) = MemoryCgroup::create() else { return };
        let path = cgroup.path.clone();
        assert!(path.is_dir());
        drop(cgroup);
        assert!(!path.exists());
    }
}
