//! The cgroup hierarchies that are mounted here (rule D.1.7): pure v2, v1, or both.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// The v1 hierarchies in which pods are looked for, in this order: a controller may lack a path.
pub(super) const V1_CONTROLLERS: [&str; 4] = ["cpu", "memory", "pids", "name=systemd"];

/// A mounted hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Hierarchy {
    /// Where it is mounted.
    pub(super) mount: PathBuf,
    /// The path, in the hierarchy, of what is mounted; empty for the root.
    pub(super) above: String,
    /// cgroup2: cgroups have numbers that programs in the kernel see, and tell whether they are populated.
    pub(super) is_v2: bool,
}

impl Hierarchy {
    /// Reads what is mounted. The best comes first: cgroup2, then v1 in the order of [`V1_CONTROLLERS`].
    pub(super) fn mounted() -> io::Result<Vec<Self>> {
        Ok(Self::of_mountinfo(&std::fs::read("/proc/self/mountinfo")?))
    }

    fn of_mountinfo(text: &[u8]) -> Vec<Self> {
        let mut found: Vec<_> = text.split(|byte| *byte == b'\n').filter_map(Self::of_line).collect();
        found.sort_by_key(|(rank, _)| *rank);
        // Several mounts of one hierarchy: the one that shows most of it.
        found.dedup_by_key(|(rank, _)| rank.kind);
        found.into_iter().map(|(_, hierarchy)| hierarchy).collect()
    }

    /// Reads a line of mountinfo (proc_pid_mountinfo(5)).
    fn of_line(line: &[u8]) -> Option<(Rank, Self)> {
        let line = String::from_utf8_lossy(line);
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, mount.next()?);
        let mut file_system = file_system.split(' ');
        let kind = match file_system.next()? {
            "cgroup2" => 0,
            "cgroup" => {
                let options = file_system.nth(1)?;
                1 + V1_CONTROLLERS
                    .iter()
                    .position(|controller| options.split(',').any(|option| option == *controller))?
            }
            _ => return None,
        };
        // From inside a cgroup namespace what lies above its root shows as `/..`.
        let levels_above = root.split('/').filter(|part| *part == "..").count();
        let above = if levels_above > 0 { String::new() } else { root.trim_end_matches('/').to_owned() };
        let rank = Rank {
            kind,
            levels_below_top: usize::MAX - levels_above,
            root_bytes: above.len(),
            point_bytes: point.len(),
        };
        Some((rank, Self { mount: unescape(point), above, is_v2: kind == 0 }))
    }

    /// The path in the hierarchy of a directory below the mount.
    pub(super) fn path_of(&self, directory: &Path) -> Option<String> {
        let below = directory.strip_prefix(&self.mount).ok()?.to_str()?;
        Some(if below.is_empty() { self.above.clone() } else { format!("{}/{below}", self.above) })
    }
}

/// The order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    kind: usize,
    levels_below_top: usize,
    root_bytes: usize,
    point_bytes: usize,
}

/// Undoes mountinfo's octal escapes.
fn unescape(text: &str) -> PathBuf {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((byte, tail)) = rest.split_first() {
        let escape =
            tail.get(..3).filter(|_| *byte == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match escape.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) => {
                out.push(escaped);
                rest = &tail[3..];
            }
            None => {
                out.push(*byte);
                rest = tail;
            }
        }
    }
    OsString::from_vec(out).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mounts(text: &str) -> Vec<(String, String, bool)> {
        let of = |hierarchy: Hierarchy| {
            (hierarchy.mount.to_str().unwrap().to_owned(), hierarchy.above, hierarchy.is_v2)
        };
        Hierarchy::of_mountinfo(text.as_bytes()).into_iter().map(of).collect()
    }

    fn mount(point: &str, above: &str, is_v2: bool) -> (String, String, bool) {
        (point.to_owned(), above.to_owned(), is_v2)
    }

    #[test]
    fn every_layout_is_understood_and_the_best_comes_first() {
        // CG-6: v2, hybrid, v1.
        let v2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(mounts(v2), [mount("/sys/fs/cgroup", "", true)]);
        let hybrid = "31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
32 30 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd
33 30 0:29 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
34 30 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
35 30 0:31 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n";
        let expected = [
            mount("/sys/fs/cgroup/unified", "", true),
            mount("/sys/fs/cgroup/cpu,cpuacct", "", false),
            mount("/sys/fs/cgroup/pids", "", false),
            mount("/sys/fs/cgroup/systemd", "", false),
        ];
        assert_eq!(mounts(hybrid), expected);
        let v1: String = hybrid.lines().skip(1).map(|line| format!("{line}\n")).collect();
        assert_eq!(mounts(&v1), expected[1..]);
        assert_eq!(mounts("22 1 8:1 / / rw - ext4 /dev/root rw\nnonsense\n"), []);
    }

    #[test]
    fn mount_that_shows_most_of_a_hierarchy_is_taken() {
        // A container with a private cgroup namespace, into which the node's hierarchy is mounted.
        let text = "40 39 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup rw
41 39 0:26 /../../.. /host/sys/fs/cgroup ro - cgroup2 cgroup2 rw
42 39 0:26 /../.. /other ro - cgroup2 cgroup2 rw\n";
        assert_eq!(mounts(text), [mount("/host/sys/fs/cgroup", "", true)]);
        let text = "43 39 0:26 /kubelet /a\\040b rw - cgroup2 cgroup2 rw\n";
        assert_eq!(mounts(text), [mount("/a b", "/kubelet", true)]);
    }

    #[test]
    fn path_in_the_hierarchy_counts_from_its_root() {
        let hierarchy = Hierarchy { mount: "/cg".into(), above: "/kubelet".into(), is_v2: true };
        assert_eq!(
            hierarchy.path_of(Path::new("/cg/kubepods/podx")).as_deref(),
            Some("/kubelet/kubepods/podx")
        );
        assert_eq!(hierarchy.path_of(Path::new("/cg")).as_deref(), Some("/kubelet"));
        assert_eq!(hierarchy.path_of(Path::new("/other")), None);
    }
}
