//! Reads a cgroup hierarchy whole: at the start, and when events were lost. Runs on the kernel thread.

use super::cgroup_path::{CgroupRoot, PodPath, leads_to_pods};
use super::hierarchy::Hierarchy;
use crate::pod::CgroupId;
use std::collections::BTreeSet;
use std::fs::DirEntry;
use std::io;
use std::os::unix::fs::{DirEntryExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

/// The most directories that one scan reads: a bound for hostile hierarchies, far above what a node has.
const MAX_DIRECTORIES: usize = 131_072;
/// The deepest directory that is read; the kernel makes deeper ones only when told to.
const MAX_DEPTH: usize = 64;

/// One pod's cgroup as the scan found it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) id: CgroupId,
    /// Its path in the hierarchy.
    pub(super) path: String,
}

/// What a hierarchy holds.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Every cgroup of a pod, parents before children.
    pub(super) cgroups: Vec<Found>,
    /// The directories in which pods come and go, and those above them.
    pub(super) above_pods: BTreeSet<PathBuf>,
    /// What could not be read and why, the first of it; `None` if the hierarchy was read whole.
    pub(super) missing: Option<String>,
}

/// Reads a hierarchy. Directories that vanish meanwhile are skipped.
pub(super) fn scan(hierarchy: &Hierarchy, root: &CgroupRoot) -> io::Result<Scan> {
    let mut scan = Scan::default();
    // The mount itself must be readable: without it there is nothing to look at, which is for the caller to say.
    let mut directories = vec![(hierarchy.mount.clone(), 0)];
    let mut count = 0;
    std::fs::read_dir(&hierarchy.mount)?;
    while let Some((directory, depth)) = directories.pop() {
        count += 1;
        if count > MAX_DIRECTORIES || depth > MAX_DEPTH {
            scan.missing.get_or_insert_with(|| "the cgroup hierarchy is larger than what is read".to_owned());
            continue;
        }
        let children = match children(&directory) {
            Ok(children) => children,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                scan.missing.get_or_insert_with(|| format!("{}: {error}", directory.display()));
                continue;
            }
        };
        for (id, child) in children {
            // A name that is no UTF-8 names no pod; what lies below it may.
            if let Some(path) = hierarchy.path_of(&child) {
                if PodPath::parse(&path, root).is_some() {
                    scan.cgroups.push(Found { id, path });
                } else if leads_to_pods(&path, root) {
                    note_above(&mut scan.above_pods, &child, &hierarchy.mount);
                }
            }
            directories.push((child, depth + 1));
        }
    }
    Ok(scan)
}

/// The directories in a directory, with their numbers.
pub(super) fn children(directory: &Path) -> io::Result<Vec<(CgroupId, PathBuf)>> {
    let is_directory = |entry: &DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let entries: Vec<_> = std::fs::read_dir(directory)?.collect::<io::Result<_>>()?;
    let directories = entries.iter().filter(|entry| is_directory(entry));
    Ok(directories.map(|entry| (CgroupId(entry.ino()), entry.path())).collect())
}

/// The number of the cgroup of that directory.
pub(super) fn id_of(directory: &Path) -> io::Result<CgroupId> {
    Ok(CgroupId(std::fs::symlink_metadata(directory)?.ino()))
}

fn note_above(above: &mut BTreeSet<PathBuf>, directory: &Path, mount: &Path) {
    for directory in directory.ancestors().take_while(|ancestor| ancestor.starts_with(mount)) {
        if !above.insert(directory.to_owned()) {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{Mode, OFlags};

    /// A directory tree stands in for a mounted hierarchy.
    fn tree(directories: &[&str]) -> (tempfile::TempDir, Hierarchy) {
        let directory = tempfile::tempdir().unwrap();
        for path in directories {
            std::fs::create_dir_all(directory.path().join(path)).unwrap();
        }
        std::fs::write(directory.path().join("cgroup.procs"), "").unwrap();
        let hierarchy = Hierarchy { mount: directory.path().to_owned(), above: String::new(), is_v2: true };
        (directory, hierarchy)
    }

    #[test]
    fn every_cgroup_of_a_pod_is_found_with_its_number() {
        let (directory, hierarchy) = tree(&[
            "kubepods/burstable/podx/c1/below",
            "kubepods/besteffort",
            "kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pody.slice/crio-c2.scope",
            "system.slice/sshd.service",
        ]);
        let scan = scan(&hierarchy, &CgroupRoot::default()).unwrap();
        let mut paths: Vec<_> = scan.cgroups.iter().map(|found| found.path.as_str()).collect();
        paths.sort_unstable();
        let expected = [
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pody.slice",
            "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pody.slice/crio-c2.scope",
            "/kubepods/burstable/podx",
            "/kubepods/burstable/podx/c1",
            "/kubepods/burstable/podx/c1/below",
        ];
        assert_eq!(paths, expected);
        for found in &scan.cgroups {
            assert_eq!(found.id, id_of(&directory.path().join(&found.path[1..])).unwrap());
        }
        let above: Vec<_> = scan.above_pods.iter().filter_map(|path| hierarchy.path_of(path)).collect();
        let expected = [
            "",
            "/kubelet.slice",
            "/kubelet.slice/kubelet-kubepods.slice",
            "/kubepods",
            "/kubepods/besteffort",
            "/kubepods/burstable",
        ];
        assert_eq!(above, expected);
        assert_eq!(scan.missing, None);
    }

    #[test]
    fn directory_that_cannot_be_read_is_not_taken_for_empty() {
        let (directory, hierarchy) = tree(&["kubepods/podx/c1"]);
        // Too long a path for the kernel, made step by step: whoever runs this, it cannot be read.
        let name = "d".repeat(250);
        let mut parent = std::fs::File::open(directory.path()).unwrap();
        for _ in 0..20 {
            rustix::fs::mkdirat(&parent, &name, Mode::RWXU).unwrap();
            parent = rustix::fs::openat(&parent, &name, OFlags::DIRECTORY, Mode::empty()).unwrap().into();
        }
        let scan = scan(&hierarchy, &CgroupRoot::default()).unwrap();
        assert_eq!(scan.cgroups.len(), 2, "the rest is read all the same");
        assert!(scan.missing.unwrap().contains("name too long"));
    }

    #[test]
    fn only_what_lies_below_the_root_counts() {
        let (_directory, hierarchy) = tree(&["kubepods/podouter/n/kubepods/podinner", "kubepods/podother"]);
        let scan = scan(&hierarchy, &CgroupRoot::new("/kubepods/podouter/n")).unwrap();
        let paths: Vec<_> = scan.cgroups.iter().map(|found| found.path.as_str()).collect();
        assert_eq!(paths, ["/kubepods/podouter/n/kubepods/podinner"]);
    }

    #[test]
    fn hierarchy_that_is_not_there_is_an_error() {
        let hierarchy = Hierarchy { mount: "/no/such/mount".into(), above: String::new(), is_v2: true };
        assert!(scan(&hierarchy, &CgroupRoot::default()).is_err());
    }
}
