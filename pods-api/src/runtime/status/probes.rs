//! `started` and `ready`: what can be said without running the probes (rules C.5 and C.6).

use super::entry::{self, bare_id};
use super::facts::{Role, SpecContainer};
use super::view::Container;
use super::{Context, v1};

/// What a status says of a container's probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Probes {
    /// Absent for ephemeral containers, which have none.
    pub(super) is_started: Option<bool>,
    pub(super) is_ready: bool,
}

/// What is known of a container's probes, given its new state. A result that only a probe can give is taken from the
/// kubelet's last status, be it dropped by its source since, and only from an entry about this very container while it
/// runs (rule C.6.2): readiness is neither invented nor inherited by a replacement.
pub(super) fn started_and_ready(
    context: &Context<'_>,
    container: &SpecContainer<'_>,
    newest: &Container,
    state: &v1::ContainerState,
) -> Probes {
    let is_running = state.running.is_some();
    match container.role {
        Role::Ephemeral => return Probes { is_started: None, is_ready: false },
        Role::Init => {
            let is_done = state.terminated.as_ref().is_some_and(|terminated| terminated.exit_code() == 0);
            return Probes { is_started: Some(is_running), is_ready: is_done };
        }
        Role::Sidecar | Role::Regular => {}
    }
    if !is_running {
        return Probes { is_started: Some(false), is_ready: false };
    }
    let is_about_it = |entry: &&v1::ContainerStatus| {
        entry::is_running(entry) && bare_id(entry.container_id()) == newest.id.as_str()
    };
    let external = entry::find(context.last_base, container.role, container.name).filter(is_about_it);
    // Once started, a container is started until it ends (rule C.6.5).
    let was_started = entry::find(context.previous, container.role, container.name)
        .filter(is_about_it)
        .is_some_and(|previous| previous.started());
    let is_started =
        !container.has_startup_probe || was_started || external.is_some_and(|entry| entry.started());
    let is_probed_ready = !container.has_readiness_probe || external.is_some_and(|entry| entry.ready());
    Probes { is_started: Some(is_started), is_ready: is_started && is_probed_ready }
}
