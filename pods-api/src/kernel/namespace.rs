//! The server's cgroup namespace: a container with one of its own sees the cgroups of others from where it stands,
//! `/../../kubepods-podX.slice/…`, and those below itself as if they were at the top. Found once, at the start.
//!
//! The way back needs the path of the namespace's root. It is nowhere told inside, but where the node's hierarchy is
//! mounted into the container, one of its directories holds this very process.

use super::hierarchy::Hierarchy;
use std::fs;
use std::path::{Path, PathBuf};

/// The kernel's own cgroup namespace has this inode (PROC_CGROUP_INIT_INO): there every path is whole.
const INITIAL_NAMESPACE: u64 = 0xEFFF_FFFB;

/// The most directories that are looked into; a node has a few for each container and service.
const MAX_DIRECTORIES: usize = 100_000;

/// What cgroup2 paths in `/proc/PID/cgroup` are relative to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct CgroupNamespace {
    /// The components of the path of the namespace's root; none where paths are whole.
    root: Vec<String>,
}

impl CgroupNamespace {
    /// Finds the namespace of this process. Where its root cannot be found, it is taken for the top: paths that lead
    /// above it then have no whole form.
    pub(super) fn of_this_process() -> Self {
        let is_initial =
            rustix::fs::stat("/proc/self/ns/cgroup").is_ok_and(|status| status.st_ino == INITIAL_NAMESPACE);
        if is_initial {
            return Self::default();
        }
        Self::find().unwrap_or_default()
    }

    fn find() -> Option<Self> {
        let hierarchy = Hierarchy::mounted().ok()?.into_iter().find(|hierarchy| hierarchy.is_v2)?;
        let own = directory_of(std::process::id(), &hierarchy.mount)?;
        let text = fs::read_to_string("/proc/self/cgroup").ok()?;
        let seen = text.lines().find_map(|line| line.strip_prefix("0::"))?;
        Some(Self { root: root_of(&hierarchy.path_of(&own)?, seen)? })
    }

    /// The whole path of one that is seen in this namespace; `None` if it cannot be known.
    pub(super) fn whole(&self, seen: &str) -> Option<String> {
        let seen: Vec<_> = components(seen).collect();
        let levels = seen.iter().take_while(|part| **part == "..").count();
        let above = self.root.len().checked_sub(levels)?;
        let below = seen[levels..].iter().copied();
        let parts: Vec<_> = self.root[..above].iter().map(String::as_str).chain(below).collect();
        Some(format!("/{}", parts.join("/")))
    }
}

fn components(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty())
}

/// The namespace's root: a process's whole path without what is seen of it inside.
fn root_of(whole: &str, seen: &str) -> Option<Vec<String>> {
    let mut root: Vec<_> = components(whole).map(str::to_owned).collect();
    let seen: Vec<_> = components(seen).collect();
    let rest = root.len().checked_sub(seen.len())?;
    (root[rest..] == seen[..]).then(|| {
        root.truncate(rest);
        root
    })
}

/// The directory below `top` that holds the process.
fn directory_of(process: u32, top: &Path) -> Option<PathBuf> {
    let wanted = process.to_string();
    let mut waiting = vec![top.to_owned()];
    for _ in 0..MAX_DIRECTORIES {
        let directory = waiting.pop()?;
        // That of a threaded cgroup cannot be read: its processes are listed above it.
        let processes = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
        if processes.lines().any(|line| line == wanted) {
            return Some(directory);
        }
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        let below = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        waiting.extend(below.map(|entry| entry.path()));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn namespace(whole: &str, seen: &str) -> Option<CgroupNamespace> {
        root_of(whole, seen).map(|root| CgroupNamespace { root })
    }

    #[test]
    fn paths_seen_from_a_container_become_whole() {
        let inside = namespace("/kubepods.slice/kubepods-podx.slice/cri-containerd-a.scope", "/").unwrap();
        for (seen, whole) in [
            ("/", "/kubepods.slice/kubepods-podx.slice/cri-containerd-a.scope"),
            ("/init", "/kubepods.slice/kubepods-podx.slice/cri-containerd-a.scope/init"),
            ("/../cri-containerd-b.scope", "/kubepods.slice/kubepods-podx.slice/cri-containerd-b.scope"),
            ("/../../kubepods-pody.slice/c", "/kubepods.slice/kubepods-pody.slice/c"),
            ("/../../../system.slice", "/system.slice"),
        ] {
            assert_eq!(inside.whole(seen).as_deref(), Some(whole), "{seen}");
        }
        assert_eq!(inside.whole("/../../../../x"), None, "above the top");
    }

    #[test]
    fn the_root_is_what_stands_before_the_path_seen_inside() {
        assert_eq!(namespace("/a/b/init", "/init"), namespace("/a/b", "/"));
        assert_eq!(namespace("/system.slice/agent", "/system.slice/agent"), Some(CgroupNamespace::default()));
        assert_eq!(namespace("/a/b", "/c"), None);
        assert_eq!(namespace("/a", "/b/a"), None);
    }

    #[test]
    fn whole_paths_stay_as_they_are_and_cut_off_ones_stay_unknown() {
        let top = CgroupNamespace::default();
        assert_eq!(top.whole("/kubepods/podx/c").as_deref(), Some("/kubepods/podx/c"));
        assert_eq!(top.whole("/../kubepods/podx/c"), None);
    }
}
