use super::super::scan::scan;
use super::*;
use crate::testing::cannot_run;
use std::os::fd::AsRawFd as _;

/// A directory tree stands in for a mounted hierarchy: inotify behaves the same.
struct Tree {
    directory: tempfile::TempDir,
    fallback: Fallback,
}

impl Tree {
    fn new(is_v2: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy { mount: directory.path().to_owned(), above: String::new(), is_v2 };
        let fallback = Fallback::new(hierarchy, CgroupRoot::default()).unwrap();
        Self { directory, fallback }
    }

    fn make(&self, path: &str) {
        let mut made = self.directory.path().to_owned();
        for part in path.split('/') {
            made.push(part);
            if !made.is_dir() {
                std::fs::create_dir(&made).unwrap();
            }
        }
    }

    fn write(&self, path: &str, text: &str) {
        std::fs::write(self.directory.path().join(path), text).unwrap();
    }

    fn remove(&self, path: &str) {
        std::fs::remove_dir_all(self.directory.path().join(path)).unwrap();
    }

    fn follow(&mut self) {
        let scan = scan(&self.fallback.hierarchy, &self.fallback.root).unwrap();
        self.fallback.follow(&scan);
    }

    /// The events since the last call, cgroups named by their paths.
    fn events(&mut self, names: &mut HashMap<CgroupId, String>) -> Vec<String> {
        let mut told = Vec::new();
        self.fallback.drain(&mut |event| {
            told.push(match event {
                KernelEvent::CgroupCreated { id, path } => {
                    names.insert(id, path.clone());
                    format!("+{path}")
                }
                KernelEvent::CgroupReleased { id } => format!("-{}", names[&id]),
                KernelEvent::CgroupPopulated { id, is_populated } => {
                    format!("{}={is_populated}", names[&id])
                }
                other => format!("{other:?}"),
            });
        });
        told
    }
}

#[test]
fn pods_and_containers_are_told_of_from_their_coming_to_their_going() {
    let mut names = HashMap::new();
    let mut tree = Tree::new(true);
    tree.make("kubepods/burstable/podx");
    tree.follow();
    assert_eq!(tree.events(&mut names), ["+/kubepods/burstable/podx"]);
    tree.make("kubepods/burstable/podx/c1");
    assert_eq!(tree.events(&mut names), ["+/kubepods/burstable/podx/c1"]);
    // A whole pod at once: what was made before the watch stood is found by looking.
    tree.make("kubepods/pody/c2/below");
    tree.make("system.slice/sshd.service");
    assert_eq!(tree.events(&mut names), ["+/kubepods/pody", "+/kubepods/pody/c2"]);
    tree.remove("kubepods/burstable/podx/c1");
    assert_eq!(tree.events(&mut names), ["-/kubepods/burstable/podx/c1"]);
    tree.follow();
    assert_eq!(tree.events(&mut names), [] as [&str; 0], "a scan tells nothing twice");
    tree.remove("kubepods/pody");
    let mut events = tree.events(&mut names);
    events.sort_unstable();
    assert_eq!(events, ["-/kubepods/pody", "-/kubepods/pody/c2"]);
}

#[test]
fn pods_that_come_with_the_directory_above_them_are_seen() {
    let mut names = HashMap::new();
    let mut tree = Tree::new(false);
    tree.follow();
    tree.make("kubepods.slice/kubepods-podx.slice/crio-c1.scope");
    let events =
        ["+/kubepods.slice/kubepods-podx.slice", "+/kubepods.slice/kubepods-podx.slice/crio-c1.scope"];
    assert_eq!(tree.events(&mut names), events);
}

#[test]
fn end_of_a_containers_last_process_is_told_of() {
    let mut names = HashMap::new();
    let mut tree = Tree::new(true);
    tree.make("kubepods/podx/c1");
    tree.write("kubepods/podx/c1/cgroup.events", "populated 1\nfrozen 0\n");
    tree.follow();
    let c1 = "/kubepods/podx/c1";
    assert_eq!(tree.events(&mut names), ["+/kubepods/podx", &format!("+{c1}"), &format!("{c1}=true")]);
    tree.write("kubepods/podx/c1/cgroup.events", "populated 1\nfrozen 1\n");
    assert_eq!(tree.events(&mut names), [] as [&str; 0]);
    tree.write("kubepods/podx/c1/cgroup.events", "populated 0\nfrozen 0\n");
    assert_eq!(tree.events(&mut names), [format!("{c1}=false")]);
}

#[test]
fn events_that_the_kernel_drops_are_told_of() {
    let limit: usize =
        std::fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap().trim().parse().unwrap();
    let mut tree = Tree::new(true);
    tree.make("kubepods");
    tree.follow();
    // Two events each.
    let [one, other] = ["a", "b"].map(|name| tree.directory.path().join("kubepods").join(name));
    std::fs::create_dir(&one).unwrap();
    for _ in 0..=limit / 4 {
        std::fs::rename(&one, &other).unwrap();
        std::fs::rename(&other, &one).unwrap();
    }
    let mut lost = 0;
    tree.fallback.drain(&mut |event| lost += u64::from(matches!(event, KernelEvent::EventsLost { .. })));
    assert_eq!(lost, 1);
}

/// A cgroup2 directory of this test's own; `None` where none can be made.
struct RealCgroup(PathBuf);

impl RealCgroup {
    fn new() -> Option<Self> {
        let hierarchy = Hierarchy::mounted().unwrap().into_iter().find(|hierarchy| hierarchy.is_v2)?;
        let directory = hierarchy.mount.join(format!("pods-api-test-watches-{}", std::process::id()));
        std::fs::create_dir(&directory).ok().map(|()| Self(directory))
    }
}

impl Drop for RealCgroup {
    fn drop(&mut self) {
        remove_tree(&self.0);
    }
}

/// Removes cgroups, the deepest first; their files go with them.
fn remove_tree(directory: &Path) {
    for (_, child) in children(directory).unwrap_or_default() {
        remove_tree(&child);
    }
    let _ = std::fs::remove_dir(directory);
}

#[test]
fn watches_on_removed_cgroups_are_taken_back() {
    let Some(cgroup) = RealCgroup::new() else {
        return cannot_run("no cgroup2 hierarchy in which cgroups can be made");
    };
    let hierarchy = Hierarchy { mount: cgroup.0.clone(), above: String::new(), is_v2: true };
    let mut fallback = Fallback::new(hierarchy, CgroupRoot::default()).unwrap();
    let pod = cgroup.0.join("kubepods/podx");
    std::fs::create_dir_all(&pod).unwrap();
    let follow = |fallback: &mut Fallback| {
        let scan = scan(&fallback.hierarchy, &fallback.root).unwrap();
        fallback.follow(&scan);
    };
    follow(&mut fallback);
    fallback.drain(&mut |_| ());
    let watches_in_kernel = |fallback: &Fallback| {
        let path = format!("/proc/self/fdinfo/{}", fallback.inotify.as_raw_fd());
        std::fs::read_to_string(path).unwrap().matches("inotify wd:").count()
    };
    let count =
        |fallback: &Fallback| (fallback.watches.len(), fallback.by_path.len(), watches_in_kernel(fallback));
    let baseline = count(&fallback);
    assert_eq!(baseline, (3, 3, 3), "the mount, kubepods and the pod");
    let mut ends = 0;
    for number in 0..100 {
        let container = pod.join(format!("c{number}"));
        std::fs::create_dir(&container).unwrap();
        fallback.drain(&mut |_| ());
        assert_eq!(count(&fallback), (4, 4, 4));
        std::fs::remove_dir(&container).unwrap();
        fallback.drain(&mut |event| ends += u64::from(matches!(event, KernelEvent::CgroupReleased { .. })));
    }
    assert_eq!((ends, count(&fallback)), (100, baseline));
    // Its events are never read: the next scan finds out.
    std::fs::create_dir(pod.join("c")).unwrap();
    fallback.drain(&mut |_| ());
    std::fs::remove_dir(pod.join("c")).unwrap();
    follow(&mut fallback);
    assert_eq!(count(&fallback), baseline);
}
