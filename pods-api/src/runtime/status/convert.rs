//! The runtime's values in the shape of a pod status.

use super::facts::SpecContainer;
use super::v1;
use super::view::{Container, ContainerMount, RunState, UnixNanos, User};
use crate::runtime::status::Time;

pub(super) const COMPLETED: &str = "Completed";
const ERROR: &str = "Error";
pub(super) const OOM_KILLED: &str = "OOMKilled";
/// The kubelet's reason for the end of a container that it lost sight of.
pub(super) const UNKNOWN: &str = "ContainerStatusUnknown";

/// The end of a container of which no times are known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terminated<'a> {
    pub(super) exit_code: i32,
    pub(super) reason: &'a str,
    pub(super) message: &'a str,
}

/// A text field: empty is absent.
pub(super) fn text(text: &str) -> Option<String> {
    (!text.is_empty()).then(|| text.to_owned())
}

pub(super) fn time(at: Option<UnixNanos>) -> Option<Time> {
    at.map(|at| seconds(at.seconds()))
}

pub(super) fn seconds(seconds: i64) -> Time {
    Time { seconds: Some(seconds), nanos: None }
}

/// `containerID`: the runtime's name and the ID (rule C.2.4).
pub(super) fn container_id(runtime_name: &str, container: &Container) -> String {
    format!("{runtime_name}://{}", container.id)
}

/// A container's state (rule C.4.1). One whose state is unknown waits: what it was before is for the caller to know.
pub(super) fn state(container: &Container, runtime_name: &str) -> v1::ContainerState {
    match container.state {
        RunState::Created | RunState::Unknown => waiting_state("", ""),
        RunState::Running => v1::ContainerState {
            running: Some(v1::ContainerStateRunning { started_at: time(container.started_at) }),
            ..Default::default()
        },
        RunState::Exited => {
            v1::ContainerState { terminated: Some(terminated(container, runtime_name)), ..Default::default() }
        }
    }
}

/// The end of a container. Where the runtime gives no reason, the exit code is one (rule C.4.3); exit code 137 alone
/// never makes it a lack of memory.
pub(super) fn terminated(container: &Container, runtime_name: &str) -> v1::ContainerStateTerminated {
    let reason = reason(&container.reason, container.exit_code);
    v1::ContainerStateTerminated {
        exit_code: Some(container.exit_code),
        signal: None,
        reason: text(reason),
        message: text(&container.message),
        started_at: time(container.started_at),
        finished_at: time(container.finished_at),
        container_id: Some(container_id(runtime_name, container)),
    }
}

/// The reason for an end, where the exit code may be the only one.
fn reason(told: &str, exit_code: i32) -> &str {
    match (told, exit_code) {
        ("", 0) => COMPLETED,
        ("", _) => ERROR,
        (reason, _) => reason,
    }
}

/// Gives an end its reason that only an event has told of, once the runtime has nothing more to say (rule C.4.3).
pub(super) fn settle_reason(terminated: &mut v1::ContainerStateTerminated) {
    terminated.reason = text(reason(terminated.reason(), terminated.exit_code()));
}

pub(super) fn terminated_state(terminated: Terminated<'_>) -> v1::ContainerState {
    v1::ContainerState {
        terminated: Some(v1::ContainerStateTerminated {
            exit_code: Some(terminated.exit_code),
            reason: text(terminated.reason),
            message: text(terminated.message),
            ..Default::default()
        }),
        ..Default::default()
    }
}

pub(super) fn waiting_state(reason: &str, message: &str) -> v1::ContainerState {
    v1::ContainerState {
        waiting: Some(v1::ContainerStateWaiting { reason: text(reason), message: text(message) }),
        ..Default::default()
    }
}

pub(super) fn user(user: &User) -> v1::ContainerUser {
    let linux = v1::LinuxContainerUser {
        uid: Some(user.uid),
        gid: Some(user.gid),
        supplemental_groups: user.groups.clone(),
    };
    v1::ContainerUser { linux: Some(linux) }
}

/// One entry per volume mount of the spec, telling how far its read-only promise reaches (rule C.4.18).
pub(super) fn volume_mounts(
    container: &SpecContainer<'_>,
    mounts: &[ContainerMount],
) -> Vec<v1::VolumeMountStatus> {
    let status = |mount: &v1::VolumeMount| {
        let is_recursive =
            mounts.iter().any(|actual| &*actual.path == mount.mount_path() && actual.is_recursive_read_only);
        let recursive = if is_recursive { "Enabled" } else { "Disabled" };
        v1::VolumeMountStatus {
            name: mount.name.clone(),
            mount_path: mount.mount_path.clone(),
            read_only: mount.read_only,
            recursive_read_only: mount.read_only().then(|| recursive.to_owned()),
            volume_status: None,
        }
    };
    container.volume_mounts.iter().map(status).collect()
}
