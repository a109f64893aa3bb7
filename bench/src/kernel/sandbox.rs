//! A cgroup that looks like a container's of a pod: what runs in it is the pod's for everyone who looks at cgroups.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

/// The cgroup of a pod with one container in the unified hierarchy; removed on drop.
pub(super) struct PodCgroup {
    container: PathBuf,
    /// How many of its directories, from the innermost, this bench has made.
    made: usize,
}

impl PodCgroup {
    pub(super) fn create(uid: &str) -> anyhow::Result<Self> {
        let whole = Path::new("/sys/fs/cgroup");
        let hybrid = whole.join("unified");
        let root = if whole.join("cgroup.controllers").exists() { whole.to_owned() } else { hybrid };
        let container = root.join(format!("kubepods/burstable/pod{uid}")).join("b".repeat(64));
        let missing = container.ancestors().take_while(|path| !path.exists()).count();
        std::fs::create_dir_all(&container)
            .with_context(|| format!("creating the cgroup {}", container.display()))?;
        Ok(Self { container, made: missing })
    }

    pub(super) fn path(&self) -> &Path {
        &self.container
    }
}

impl Drop for PodCgroup {
    fn drop(&mut self) {
        for path in self.container.ancestors().take(self.made) {
            // Fails where somebody else has come to use it.
            let _ = std::fs::remove_dir(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_of_a_pod_is_removed_with_what_was_made_above_it() {
        let uid = format!("bench-{}", std::process::id());
        let Ok(cgroup) = PodCgroup::create(&uid) else {
            assert!(!rustix::process::geteuid().is_root(), "root can make cgroups");
            return;
        };
        let path = cgroup.path().to_owned();
        assert!(path.join("cgroup.procs").exists());
        drop(cgroup);
        assert!(!path.parent().unwrap().exists());
    }
}
