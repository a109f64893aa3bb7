//! What the container runtime says of one pod: the input of the status rules, free of CRI's wire types.
//!
//! Pure data. Newest comes first in both lists, so that "newest" and "second newest" of the rules are positions.

use std::cmp::Reverse;
use std::net::IpAddr;
use std::time::Instant;

use crate::pod::{ContainerId, SandboxId};

/// A point in time as the runtime gives it; an absent, zero or negative one is "not yet" and never 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnixNanos(i64);

impl UnixNanos {
    /// The time `nanos` nanoseconds after the epoch; `None` for what runtimes send in place of no time.
    #[must_use]
    pub fn new(nanos: i64) -> Option<Self> {
        (nanos > 0).then_some(Self(nanos))
    }

    /// Whole seconds since the epoch: what API times carry (rule C.2.6).
    #[must_use]
    pub fn seconds(self) -> i64 {
        self.0 / 1_000_000_000
    }
}

/// Whether a sandbox has a network namespace of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SandboxNetwork {
    /// Its own.
    Pod,
    /// The node's.
    Node,
}

/// One pod sandbox.
#[derive(Debug, Clone, PartialEq)]
pub struct Sandbox {
    /// The sandbox's ID.
    pub id: SandboxId,
    /// The number of sandboxes made for this pod before it.
    pub attempt: u32,
    /// When it was made.
    pub created_at: Option<UnixNanos>,
    /// READY as opposed to NOTREADY.
    pub is_ready: bool,
    /// Its network mode; `None` where the runtime does not say.
    pub network: Option<SandboxNetwork>,
    /// Whether the runtime gave a network status at all, filled in or not.
    pub has_network_status: bool,
    /// Its addresses in the runtime's order; empty as a whole if one of them was no address (rule C.3.3).
    pub ips: Vec<IpAddr>,
}

/// The state of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunState {
    /// Made, not started.
    Created,
    /// Its first process runs.
    Running,
    /// Its first process has ended.
    Exited,
    /// The runtime does not know.
    Unknown,
}

/// The end of a container's first process, as told by an event before the runtime's status calls say so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// The exit code.
    pub code: i32,
    /// When it ended.
    pub at: Option<UnixNanos>,
}

/// A mount as far as a pod status shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerMount {
    /// The path inside the container.
    pub path: Box<str>,
    /// Whether the mount is read-only including all mounts below it.
    pub is_recursive_read_only: bool,
}

/// The user that a container's first process runs as.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// The user ID.
    pub uid: i64,
    /// The group ID.
    pub gid: i64,
    /// The supplementary group IDs.
    pub groups: Vec<i64>,
}

/// Resource limits as they are in force; `None` or zero where the runtime gives none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resources {
    /// The CFS period in microseconds.
    pub cpu_period: i64,
    /// The CFS quota in microseconds per period.
    pub cpu_quota: i64,
    /// The relative CPU weight.
    pub cpu_shares: i64,
    /// The memory limit in bytes.
    pub memory_limit: i64,
}

/// One container, running or not.
#[derive(Debug, Clone, PartialEq)]
pub struct Container {
    /// The container's ID.
    pub id: ContainerId,
    /// The sandbox it was made in.
    pub sandbox: SandboxId,
    /// Its name in the pod spec.
    pub name: Box<str>,
    /// The number of containers made for this name before it.
    pub attempt: u32,
    /// The restart count that it was made with (rule C.2.5).
    pub restart_count: i32,
    /// Its state.
    pub state: RunState,
    /// When it was made.
    pub created_at: Option<UnixNanos>,
    /// When it was started.
    pub started_at: Option<UnixNanos>,
    /// When it ended.
    pub finished_at: Option<UnixNanos>,
    /// The exit code; meaningful once it has ended.
    pub exit_code: i32,
    /// The runtime's reason for its state.
    pub reason: Box<str>,
    /// The runtime's message, termination message included.
    pub message: Box<str>,
    /// The image as a pod status shows it.
    pub image: Box<str>,
    /// The image's digest reference.
    pub image_ref: Box<str>,
    /// The resources in force, if the runtime says.
    pub resources: Option<Resources>,
    /// Its user, if the runtime says.
    pub user: Option<User>,
    /// Its mounts.
    pub mounts: Vec<ContainerMount>,
    /// Its stop signal, such as `SIGTERM`, if the runtime says.
    pub stop_signal: Option<Box<str>>,
    /// Its end, while the state above does not show it yet.
    pub unconfirmed_exit: Option<Exit>,
}

/// Everything the runtime has of one pod UID.
#[derive(Debug, Clone, PartialEq)]
pub struct RuntimePod {
    sandboxes: Vec<Sandbox>,
    containers: Vec<Container>,
    read_began: Instant,
}

impl RuntimePod {
    /// What a read that began at `read_began` found, in any order.
    ///
    /// Later attempts are newer (a clock set back must not make an old sandbox current), then later creation
    /// times, then greater IDs, so that the order is total (rule C.2.2).
    #[must_use]
    pub fn new(read_began: Instant, mut sandboxes: Vec<Sandbox>, mut containers: Vec<Container>) -> Self {
        sandboxes.sort_by_cached_key(|s| Reverse((s.attempt, s.created_at, s.id.clone())));
        containers.sort_by_cached_key(|c| Reverse((c.attempt, c.created_at, c.id.clone())));
        Self { sandboxes, containers, read_began }
    }

    /// A pod of which the runtime has nothing.
    #[must_use]
    pub fn absent(read_began: Instant) -> Self {
        Self { sandboxes: Vec::new(), containers: Vec::new(), read_began }
    }

    /// When the read began that this is the answer to.
    #[must_use]
    pub fn read_began(&self) -> Instant {
        self.read_began
    }

    /// The sandboxes, newest first.
    #[must_use]
    pub fn sandboxes(&self) -> &[Sandbox] {
        &self.sandboxes
    }

    /// The containers, newest first.
    #[must_use]
    pub fn containers(&self) -> &[Container] {
        &self.containers
    }

    /// The newest sandbox, if it is ready: the only one whose addresses and containers count (rule C.3.2).
    #[must_use]
    pub fn active_sandbox(&self) -> Option<&Sandbox> {
        self.sandboxes.first().filter(|sandbox| sandbox.is_ready)
    }

    /// The containers of one name, newest first.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Container> {
        self.containers.iter().filter(move |container| &*container.name == name)
    }

    /// Whether both say the same of the pod, whenever they were read.
    #[must_use]
    pub fn agrees_with(&self, other: &Self) -> bool {
        self.sandboxes == other.sandboxes && self.containers == other.containers
    }

    /// Whether the runtime has nothing of the pod.
    #[must_use]
    pub fn is_absent(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// Whether anything of the pod still runs or holds its sandbox.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.sandboxes.iter().any(|sandbox| sandbox.is_ready) || self.runs_a_container()
    }

    /// Whether a container of the pod may still run. One whose state is unknown may.
    #[must_use]
    pub fn runs_a_container(&self) -> bool {
        self.containers.iter().any(|container| {
            matches!(container.state, RunState::Running | RunState::Unknown)
                && container.unconfirmed_exit.is_none()
        })
    }

    /// Records the end of a container before the runtime's status calls show it. False if the container is not the
    /// newest of its name, is not known to run, or has its end recorded already.
    pub fn record_exit(&mut self, id: &ContainerId, exit: Exit) -> bool {
        let Some(index) = self.containers.iter().position(|container| container.id == *id) else {
            return false;
        };
        let name = &self.containers[index].name;
        if self.containers[..index].iter().any(|newer| newer.name == *name) {
            return false;
        }
        let container = &mut self.containers[index];
        let is_news = matches!(container.state, RunState::Created | RunState::Running)
            && container.unconfirmed_exit.is_none();
        if is_news {
            container.unconfirmed_exit = Some(exit);
        }
        is_news
    }
}
