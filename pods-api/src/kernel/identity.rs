//! Where processes, cgroups and containers are: `/proc` under a pidfd, and the kernel room's tables. Any thread.

use super::cgroup_path::{CgroupRoot, MAX_PATH_BYTES, PodPath, ProcLine};
use super::hierarchy::V1_CONTROLLERS;
use super::namespace::CgroupNamespace;
use super::resolve::resolve;
use super::view::KernelView;
use crate::access::{Identify, Identity, has_proc_of_this_namespace, is_alive};
use crate::pod::{CgroupId, ContainerId, Locate, Located, Pid, Place, PodStore, Snapshot};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, pidfd_open};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::task::Waker;

/// The most that is read of /proc/PID/cgroup: a line for each hierarchy, which are few, of at most PATH_MAX.
const MAX_FILE_BYTES: u64 = 64 * 1024;

/// Finds the pods of processes, cgroups and containers.
#[derive(Debug, Clone)]
pub struct Locator {
    root: CgroupRoot,
    namespace: CgroupNamespace,
    view: Arc<KernelView>,
    store: PodStore,
}

/// What /proc/PID/cgroup says.
#[derive(Debug, PartialEq, Eq)]
enum Membership {
    In(Place),
    /// In no pod; with a path to show.
    Outside(String),
    /// In a pod that nobody knows, in a cgroup that a user named as those of pods are, or beyond what our cgroup namespace
    /// shows or can be read.
    Unsure(String),
}

impl Membership {
    /// Reads the lines: cgroup2's first, then v1's in the order of rule D.1.7; the first that names a pod counts.
    fn of(text: &str, root: &CgroupRoot, namespace: &CgroupNamespace, pods: &Snapshot) -> Self {
        let mut lines: Vec<_> = text.lines().filter_map(ProcLine::parse).collect();
        let is_unified = |line: &ProcLine<'_>| line.hierarchy == 0 && line.controllers.is_empty();
        let whole = lines.iter().find(|line| is_unified(line)).and_then(|line| namespace.whole(line.path));
        if let (Some(whole), Some(line)) = (&whole, lines.iter_mut().find(|line| is_unified(line))) {
            line.path = whole;
        }
        let of_controller = |wanted: &str| {
            lines.iter().find(move |line| line.controllers.split(',').any(|controller| controller == wanted))
        };
        let unified = lines.iter().find(|line| is_unified(line));
        let mut shown = "";
        let mut is_sure = false;
        let mut is_cut_off = false;
        for line in unified.into_iter().chain(V1_CONTROLLERS.into_iter().filter_map(of_controller)) {
            if let Some(pod) = PodPath::parse(line.path, root) {
                return match resolve(pod.uid, pods) {
                    Some(uid) => {
                        Self::In(Place { pod: uid, container: pod.container.map(ContainerId::from) })
                    }
                    None => Self::Unsure(line.path.to_owned()),
                };
            }
            if line.path.len() > MAX_PATH_BYTES || PodPath::is_of_user(line.path, root) {
                return Self::Unsure(line.path.to_owned());
            }
            is_sure = true;
            is_cut_off |= line.path.starts_with("/..");
            // The longest one tells most.
            shown = [shown, line.path].into_iter().max_by_key(|path| path.len()).expect("there are two");
        }
        let shown = shown.to_owned();
        // Of a file without a line that could name a pod nothing follows.
        if is_sure && !is_cut_off { Self::Outside(shown) } else { Self::Unsure(shown) }
    }
}

impl Locator {
    /// Looks below `root`, from this process's cgroup namespace; `view` is the kernel room's, `store` knows unusual UIDs.
    #[must_use]
    pub fn new(root: CgroupRoot, view: Arc<KernelView>, store: PodStore) -> Self {
        Self { root, namespace: CgroupNamespace::of_this_process(), view, store }
    }

    /// Where the process of the pidfd runs; `None` if that cannot be read, or the process ended meanwhile.
    fn membership(&self, pid: Pid, pidfd: BorrowedFd<'_>, pods: &Snapshot) -> Option<Membership> {
        let mut text = String::new();
        let file = File::open(format!("/proc/{pid}/cgroup")).ok()?;
        let length = file.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
        // A longer one is not read to its end, where a pod may be named.
        if length as u64 == MAX_FILE_BYTES {
            return None;
        }
        // Alive after the read: its number was not given away before, so that the file was its own (PID-1).
        is_alive(pidfd).then(|| Membership::of(&text, &self.root, &self.namespace, pods))
    }

    /// A process that has ended: what events told of it just now.
    fn ended(&self, pid: Pid, pods: &Snapshot) -> Located {
        let tables = self.view.tables();
        match tables.processes.get(pid).and_then(|process| tables.cgroups.get(process.cgroup)) {
            Some(cgroup) => self.cgroup_path(&cgroup.path, pods),
            None => Located::Never(format!("there is no process {pid} in this server's PID namespace")),
        }
    }
}

impl Identify for Locator {
    fn identify(&self, pid: Pid, pidfd: BorrowedFd<'_>) -> Identity {
        match self.membership(pid, pidfd, &self.store.load()) {
            Some(Membership::In(Place { pod, container })) => Identity::Pod { uid: pod, container },
            Some(Membership::Outside(_)) => Identity::Host,
            Some(Membership::Unsure(_)) | None => Identity::Unknown,
        }
    }
}

impl Locate for Locator {
    fn process(&self, pid: Pid, pods: &Snapshot) -> Located {
        if !has_proc_of_this_namespace() {
            return Located::Never("this server's /proc is of another PID namespace than its own".into());
        }
        let raw = rustix::process::Pid::from_raw(pid.as_raw()).expect("a Pid is not 0");
        let pidfd = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(pidfd) => pidfd,
            Err(Errno::SRCH) => return self.ended(pid, pods),
            // A thread that is not its group's first: EINVAL, and from Linux 6.9 on ENOENT.
            Err(error) => {
                return Located::Never(match thread_group(pid) {
                    Some(group) if group != pid => {
                        format!("{pid} is a thread of process {group}; look that one up")
                    }
                    _ => format!("process {pid} cannot be looked at: {error}"),
                });
            }
        };
        match self.membership(pid, pidfd.as_fd(), pods) {
            Some(Membership::In(place)) => Located::In(place),
            Some(Membership::Outside(path)) => {
                Located::NotYet(format!("process {pid} runs in no pod: its cgroup is {path}"))
            }
            Some(Membership::Unsure(path)) => Located::NotYet(format!(
                "nobody can tell the pod of process {pid}: its cgroup is {path}, of a pod that is not known, made by a \
                 user, or out of sight of this server's cgroup namespace"
            )),
            None if !is_alive(pidfd.as_fd()) => self.ended(pid, pods),
            None => Located::NotYet(format!("the cgroup of process {pid} cannot be read")),
        }
    }

    fn cgroup(&self, id: CgroupId, pods: &Snapshot) -> Located {
        let tables = self.view.tables();
        if let Some(cgroup) = tables.cgroups.get(id).filter(|_| tables.is_v2) {
            return self.cgroup_path(&cgroup.path, pods);
        }
        let report = self.view.report();
        if report.last_scan.is_some() && !tables.is_v2 {
            return Located::Never(
                "cgroups have numbers in cgroup v2 only, and the pods of this node are in v1".into(),
            );
        }
        // One that a container made below itself, or that no event told of.
        self.view.request_scan();
        Located::NotYet(format!("no pod has a cgroup {id}"))
    }

    fn cgroup_path(&self, path: &str, pods: &Snapshot) -> Located {
        // What a shell shows is below the mount.
        let mount = self.view.report().hierarchy;
        let path = mount.and_then(|mount| path.strip_prefix(&*mount)).unwrap_or(path);
        let Some(pod) = PodPath::parse(path, &self.root) else {
            if PodPath::is_of_user(path, &self.root) {
                return Located::Never(format!(
                    "the cgroup path {path:?} is in user.slice, where users name cgroups as they like; if the node's \
                     pods are there, --cgroup-root must say where"
                ));
            }
            return Located::Never(format!("the cgroup path {path:?} names no pod below {}", self.root));
        };
        match resolve(pod.uid, pods) {
            Some(uid) => Located::In(Place { pod: uid, container: pod.container.map(ContainerId::from) }),
            None => Located::NotYet(format!("the pod of the cgroup path {path:?} is not known")),
        }
    }

    fn containers(&self, prefix: &str, limit: usize, pods: &Snapshot) -> Vec<Place> {
        let tables = self.view.tables();
        let place = |(container, path): (&ContainerId, &str)| {
            let pod = resolve(PodPath::parse(path, &self.root)?.uid, pods)?;
            Some(Place { pod, container: Some(container.clone()) })
        };
        let found = tables.cgroups.by_container_prefix(prefix);
        let mut places: Vec<_> =
            found.filter_map(|(id, cgroup)| place((id, &cgroup.path))).take(limit).collect();
        // A container that was made anew under its old ID has two cgroups for a while.
        places.dedup();
        places
    }

    fn add_waker(&self, waker: &Waker) {
        self.view.add_waker(waker);
    }
}

/// The process that a thread belongs to.
fn thread_group(thread: Pid) -> Option<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    group.trim().parse().ok().and_then(Pid::new)
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
