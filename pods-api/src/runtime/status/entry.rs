//! Status entries that exist already: which of two is the newer, and whether one knows of a given container.

use super::facts::Role;
use super::v1;
use super::view::{Container, RunState, RuntimePod};

/// How far an entry has followed the container that it is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Progress {
    Waiting,
    Running,
    Ended,
    /// Waiting to be started again; the container is in lastState.
    Restarting,
}

impl Progress {
    pub(super) fn of_entry(entry: &v1::ContainerStatus) -> Self {
        if terminated(entry).is_some() {
            Self::Ended
        } else if is_running(entry) {
            Self::Running
        } else if is_waiting_after(entry, bare_id(entry.container_id())) {
            Self::Restarting
        } else {
            Self::Waiting
        }
    }

    /// As [`Progress::of_entry`], for an entry that describes the container `id`.
    fn of_entry_about(entry: &v1::ContainerStatus, id: &str) -> Self {
        if is_waiting_after(entry, id) { Self::Restarting } else { Self::of_entry(entry) }
    }

    fn of_container(container: &Container) -> Self {
        match container.state {
            // Not to know is no progress: what the kubelet made of it stands.
            RunState::Created | RunState::Unknown => Self::Waiting,
            RunState::Running => Self::Running,
            RunState::Exited => Self::Ended,
        }
    }
}

/// The entry for a container of the spec, from the array that its role belongs to.
pub(super) fn find<'a>(
    status: Option<&'a v1::PodStatus>,
    role: Role,
    name: &str,
) -> Option<&'a v1::ContainerStatus> {
    let status = status?;
    let entries = match role {
        Role::Init | Role::Sidecar => &status.init_container_statuses,
        Role::Regular => &status.container_statuses,
        Role::Ephemeral => &status.ephemeral_container_statuses,
    };
    entries.iter().find(|entry| entry.name() == name)
}

/// The newer of two entries of one name; the external one where they are even.
pub(super) fn newer<'a>(
    previous: Option<&'a v1::ContainerStatus>,
    external: Option<&'a v1::ContainerStatus>,
) -> Option<&'a v1::ContainerStatus> {
    let age = |entry: &v1::ContainerStatus| (entry.restart_count(), Progress::of_entry(entry));
    match (previous, external) {
        (Some(previous), Some(external)) if age(previous) > age(external) => Some(previous),
        (previous, external) => external.or(previous),
    }
}

/// Whether what the kubelet said of a container is at least as new as what the runtime says of its newest one.
pub(super) fn stands_against(
    entry: &v1::ContainerStatus,
    newest: &Container,
    runtime: &RuntimePod,
    is_newer_than_read: bool,
) -> bool {
    if describes(entry, newest) {
        return Progress::of_entry_about(entry, newest.id.as_str()) >= Progress::of_container(newest);
    }
    let id = bare_id(entry.container_id());
    // Without an ID the entry is older than any container. With one that the runtime has, it is about an older one.
    let is_unknown_to_runtime =
        !id.is_empty() && runtime.containers().iter().all(|other| other.id.as_str() != id);
    is_unknown_to_runtime && is_newer_than_read && entry.restart_count() > newest.restart_count
}

/// Whether an entry is about this very container: in its state, or as the one that waits to be started again.
pub(super) fn describes(entry: &v1::ContainerStatus, container: &Container) -> bool {
    let id = container.id.as_str();
    if is_waiting_after(entry, id) {
        return true;
    }
    bare_id(entry.container_id()) == id
}

/// Whether an entry waits to be started again after the end of container `id` (rule C.4.12).
pub(super) fn is_waiting_after(entry: &v1::ContainerStatus, id: &str) -> bool {
    let is_about = |last: &v1::ContainerStateTerminated| !id.is_empty() && bare_id(last.container_id()) == id;
    waiting(entry).is_some() && last_terminated(entry).is_some_and(is_about)
}

/// A container ID without its runtime's scheme.
pub(super) fn bare_id(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, bare)| bare)
}

pub(super) fn waiting(entry: &v1::ContainerStatus) -> Option<&v1::ContainerStateWaiting> {
    entry.state.as_ref()?.waiting.as_ref()
}

pub(super) fn is_running(entry: &v1::ContainerStatus) -> bool {
    entry.state.as_ref().is_some_and(|state| state.running.is_some())
}

pub(super) fn terminated(entry: &v1::ContainerStatus) -> Option<&v1::ContainerStateTerminated> {
    entry.state.as_ref()?.terminated.as_ref()
}

pub(super) fn last_terminated(entry: &v1::ContainerStatus) -> Option<&v1::ContainerStateTerminated> {
    entry.last_state.as_ref()?.terminated.as_ref()
}
