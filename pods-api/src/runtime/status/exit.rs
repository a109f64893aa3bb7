//! What an exit event alone may change: that container's state, its probes, and the conditions that follow. Phase,
//! reason, restart count and lastState wait until the runtime's status calls have been read.

use super::containers::ContainerStatuses;
use super::entry::{self, bare_id};
use super::facts::{PodFacts, Role};
use super::view::{Container, Exit, RuntimePod};
use super::{convert, v1};

/// Ends the containers of which an event has told the end. False if there is none.
pub(super) fn apply(facts: &PodFacts<'_>, runtime: &RuntimePod, statuses: &mut ContainerStatuses) -> bool {
    let mut is_changed = false;
    for container in &facts.containers {
        let Some(newest) = runtime.named(container.name).next() else { continue };
        let Some(exit) = newest.unconfirmed_exit else { continue };
        let entries = match container.role {
            Role::Init | Role::Sidecar => &mut statuses.init,
            Role::Regular => &mut statuses.regular,
            Role::Ephemeral => &mut statuses.ephemeral,
        };
        let status = entries.iter_mut().find(|status| status.name() == container.name);
        if let Some(status) = status.filter(|status| is_about(status, newest)) {
            end(status, container.role, newest, exit);
            is_changed = true;
        }
    }
    is_changed
}

/// Whether an entry shows this container as not ended yet.
fn is_about(status: &v1::ContainerStatus, newest: &Container) -> bool {
    bare_id(status.container_id()) == newest.id.as_str()
        && entry::terminated(status).is_none()
        && !entry::is_waiting_after(status, newest.id.as_str())
}

fn end(status: &mut v1::ContainerStatus, role: Role, container: &Container, exit: Exit) {
    let shown_start =
        status.state.as_ref().and_then(|state| state.running.as_ref()).and_then(|run| run.started_at);
    let terminated = v1::ContainerStateTerminated {
        exit_code: Some(exit.code),
        started_at: shown_start.or_else(|| convert::time(container.started_at)),
        finished_at: convert::time(exit.at),
        container_id: status.container_id.clone(),
        ..Default::default()
    };
    status.state = Some(v1::ContainerState { terminated: Some(terminated), ..Default::default() });
    status.ready = Some(role == Role::Init && exit.code == 0);
    if role != Role::Ephemeral {
        status.started = Some(false);
    }
}
