//! Container statuses: what the runtime shows, laid over what the kubelet said where it is newer (rules C.4).

use super::convert::{self, Terminated, UNKNOWN};
use super::entry::{self, bare_id};
use super::facts::{Role, SpecContainer};
use super::view::{Container, RunState};
use super::{Context, probes, resources, v1};

const LOST_WHEN_TERMINATED: &str = "The container could not be located when the pod was terminated";
// The two blanks are the kubelet's.
const LOST_WHEN_DELETED: &str =
    "The container could not be located when the pod was deleted.  The container used to be Running";
const INIT_REMOVED: &str = "Unable to get init container status from container runtime and pod has been initialized, \
                            treat it as exited normally";
/// The kubelet's exit code for a container that it lost sight of.
const LOST_EXIT_CODE: i32 = 137;

/// The container statuses of a pod, in the order that a pod status has them (rule C.4.14).
#[derive(Debug, Default)]
pub(super) struct ContainerStatuses {
    pub(super) init: Vec<v1::ContainerStatus>,
    pub(super) regular: Vec<v1::ContainerStatus>,
    pub(super) ephemeral: Vec<v1::ContainerStatus>,
    /// Whether anything differs from the kubelet's own entries.
    pub(super) is_overlaid: bool,
}

impl ContainerStatuses {
    pub(super) fn find(&self, container: &SpecContainer<'_>) -> Option<&v1::ContainerStatus> {
        let entries = match container.role {
            Role::Init | Role::Sidecar => &self.init,
            Role::Regular => &self.regular,
            Role::Ephemeral => &self.ephemeral,
        };
        entries.iter().find(|status| status.name() == container.name)
    }
}

/// Works out the status of every container of the spec.
pub(super) fn resolve(context: &Context<'_>) -> ContainerStatuses {
    let mut statuses = ContainerStatuses::default();
    for container in &context.facts.containers {
        let (status, is_overlaid) = resolve_one(context, container);
        statuses.is_overlaid |= is_overlaid;
        match container.role {
            Role::Init | Role::Sidecar => statuses.init.push(status),
            Role::Regular => statuses.regular.push(status),
            Role::Ephemeral => statuses.ephemeral.push(status),
        }
    }
    finish_removed_init_containers(context, &mut statuses);
    if context.is_terminated() {
        end_lost_containers(context, &mut statuses);
    }
    statuses.regular.sort_by(|a, b| a.name.cmp(&b.name));
    statuses.ephemeral.sort_by(|a, b| a.name.cmp(&b.name));
    statuses
}

/// One container's status, and whether it is not the kubelet's own entry.
fn resolve_one(context: &Context<'_>, container: &SpecContainer<'_>) -> (v1::ContainerStatus, bool) {
    let external = entry::find(context.base, container.role, container.name);
    let previous = entry::find(context.previous, container.role, container.name);
    let old = entry::newer(previous, external);
    let newest = context.runtime.named(container.name).next();
    let kept = external.filter(|external| {
        context.keeps_base
            && match newest {
                Some(newest) => {
                    entry::stands_against(external, newest, context.runtime, context.is_base_newer)
                }
                None => old == Some(*external) && stands_alone(context, external),
            }
    });
    match (kept, newest) {
        (Some(kept), newest) => keep(kept, old, newest),
        (None, Some(newest)) => (from_runtime(context, container, newest, external, old), true),
        (None, None) => (absent(context, container, old), true),
    }
}

/// Whether the kubelet's entry stands although the runtime has no container of that name (rule C.11.3).
fn stands_alone(context: &Context<'_>, external: &v1::ContainerStatus) -> bool {
    !entry::is_running(external) || context.is_base_newer || context.is_base_terminal()
}

/// The kubelet's entry, with what it may learn only later: a higher restart count, and that memory ran out.
fn keep(
    kept: &v1::ContainerStatus,
    old: Option<&v1::ContainerStatus>,
    newest: Option<&Container>,
) -> (v1::ContainerStatus, bool) {
    let mut status = kept.clone();
    let mut is_overlaid = false;
    let restart_count = old.map_or(0, |old| old.restart_count()).max(kept.restart_count());
    if restart_count != kept.restart_count() {
        status.restart_count = Some(restart_count);
        is_overlaid = true;
    }
    if let Some(newest) = newest.filter(|newest| &*newest.reason == convert::OOM_KILLED) {
        let states = [status.state.as_mut(), status.last_state.as_mut()];
        for terminated in states.into_iter().flatten().filter_map(|state| state.terminated.as_mut()) {
            let is_same = bare_id(terminated.container_id()) == newest.id.as_str();
            if is_same && terminated.reason() != convert::OOM_KILLED {
                terminated.reason = Some(convert::OOM_KILLED.to_owned());
                is_overlaid = true;
            }
        }
    }
    (status, is_overlaid)
}

fn from_runtime(
    context: &Context<'_>,
    container: &SpecContainer<'_>,
    newest: &Container,
    external: Option<&v1::ContainerStatus>,
    old: Option<&v1::ContainerStatus>,
) -> v1::ContainerStatus {
    let scheme = context.runtime_name;
    let mut restart_count = newest.restart_count.max(old.map_or(0, |old| old.restart_count()));
    let mut last_terminated = last_terminated(context, container, newest, old);
    let state = match newest.state {
        RunState::Unknown => match old.and_then(|old| lost_state(old, newest)) {
            Some((lost, is_news)) => {
                restart_count += i32::from(is_news);
                convert::terminated_state(lost)
            }
            None => convert::waiting_state("", ""),
        },
        _ => convert::state(newest, scheme),
    };
    // Why the kubelet waits to start it again is beyond the runtime's knowledge: its reason stays while the
    // runtime shows nothing newer (rule C.4.12).
    let kubelet_waits = external
        .filter(|external| entry::is_waiting_after(external, newest.id.as_str()))
        .and_then(entry::waiting);
    let state = match (kubelet_waits, state) {
        (Some(waiting), v1::ContainerState { terminated: Some(terminated), .. }) => {
            last_terminated = Some(terminated);
            convert::waiting_state(waiting.reason(), waiting.message())
        }
        (_, state) => state,
    };
    let is_running = state.running.is_some();
    let old_volume_mounts = old.map(|old| old.volume_mounts.clone()).filter(|mounts| !mounts.is_empty());
    let probes = probes::started_and_ready(context, container, newest, &state);
    v1::ContainerStatus {
        name: Some(container.name.to_owned()),
        last_state: Some(v1::ContainerState { terminated: last_terminated, ..Default::default() }),
        state: Some(state),
        ready: Some(probes.is_ready),
        restart_count: Some(restart_count),
        image: convert::text(if newest.image.is_empty() { container.image } else { &newest.image }),
        image_id: convert::text(&newest.image_ref),
        container_id: Some(convert::container_id(scheme, newest)),
        started: probes.is_started,
        allocated_resources: resources::allocated(container),
        resources: resources::in_force(container, newest, is_running, old),
        volume_mounts: old_volume_mounts.unwrap_or_else(|| convert::volume_mounts(container, &newest.mounts)),
        user: newest.user.as_ref().map(convert::user),
        allocated_resources_status: old.map_or_else(Vec::new, |old| old.allocated_resources_status.clone()),
        stop_signal: newest.stop_signal.as_deref().filter(|_| container.names_stop_signal).map(str::to_owned),
    }
}

/// What lastState shows: the second newest container, else what the old status knew (rules C.4.7, C.4.13).
fn last_terminated(
    context: &Context<'_>,
    container: &SpecContainer<'_>,
    newest: &Container,
    old: Option<&v1::ContainerStatus>,
) -> Option<v1::ContainerStateTerminated> {
    let is_other = |terminated: &&v1::ContainerStateTerminated| {
        terminated.container_id().is_empty() || bare_id(terminated.container_id()) != newest.id.as_str()
    };
    let second =
        context.runtime.named(container.name).nth(1).filter(|second| second.state == RunState::Exited);
    if let Some(second) = second {
        return Some(convert::terminated(second, context.runtime_name));
    }
    let old = old?;
    // The container that the old status was about is gone from the runtime, and this one took its place.
    let replaced = entry::terminated(old).filter(|_| bare_id(old.container_id()) != newest.id.as_str());
    let mut last = replaced.or_else(|| entry::last_terminated(old)).filter(is_other).cloned();
    last.iter_mut().for_each(convert::settle_reason);
    last
}

/// What becomes of a container whose state the runtime has lost (rule C.4.2), and whether that is news.
fn lost_state(old: &v1::ContainerStatus, newest: &Container) -> Option<(Terminated<'static>, bool)> {
    let lost = Terminated { exit_code: LOST_EXIT_CODE, reason: UNKNOWN, message: LOST_WHEN_TERMINATED };
    let was_lost_before = entry::terminated(old).is_some_and(|state| state.reason() == UNKNOWN)
        && bare_id(old.container_id()) == newest.id.as_str();
    (entry::is_running(old) || was_lost_before).then_some((lost, !was_lost_before))
}

/// A container of the spec of which the runtime has nothing (rules C.4.4 to C.4.6).
fn absent(
    context: &Context<'_>,
    container: &SpecContainer<'_>,
    old: Option<&v1::ContainerStatus>,
) -> v1::ContainerStatus {
    if let Some(ended) = old.filter(|old| entry::terminated(old).is_some()) {
        let mut ended = ended.clone();
        ended.state.iter_mut().filter_map(|state| state.terminated.as_mut()).for_each(convert::settle_reason);
        return ended;
    }
    let reason = if context.facts.has_init_containers() { "PodInitializing" } else { "ContainerCreating" };
    let mut status = v1::ContainerStatus {
        name: Some(container.name.to_owned()),
        state: Some(convert::waiting_state(reason, "")),
        last_state: Some(old.and_then(|old| old.last_state.clone()).unwrap_or_default()),
        ready: Some(false),
        restart_count: Some(old.map_or(0, |old| old.restart_count())),
        image: convert::text(container.image),
        started: (container.role != Role::Ephemeral).then_some(false),
        allocated_resources: resources::allocated(container),
        resources: container.resources.cloned(),
        volume_mounts: convert::volume_mounts(container, &[]),
        ..Default::default()
    };
    let Some(old) = old else { return status };
    if !old.volume_mounts.is_empty() {
        status.volume_mounts.clone_from(&old.volume_mounts);
    }
    if entry::is_running(old) && entry::last_terminated(old).is_none() {
        let lost = Terminated { exit_code: LOST_EXIT_CODE, reason: UNKNOWN, message: LOST_WHEN_DELETED };
        status.last_state = Some(convert::terminated_state(lost));
        status.restart_count = Some(old.restart_count() + i32::from(!context.facts.is_deleted));
    }
    status
}

/// Init containers that were removed after they had done their work (rule C.4.9).
fn finish_removed_init_containers(context: &Context<'_>, statuses: &mut ContainerStatuses) {
    if !statuses.init.iter().any(|status| entry::waiting(status).is_some()) {
        return;
    }
    let is_initialized = statuses.regular.iter().any(|status| entry::waiting(status).is_none())
        || context
            .facts
            .with_role(Role::Regular)
            .any(|regular| context.runtime.named(regular.name).next().is_some());
    if !is_initialized {
        return;
    }
    for container in context.facts.with_role(Role::Init) {
        let is_removed = context.runtime.named(container.name).next().is_none();
        let status = statuses.init.iter_mut().find(|status| status.name() == container.name);
        let Some(status) = status.filter(|status| is_removed && entry::waiting(status).is_some()) else {
            continue;
        };
        let done = Terminated { exit_code: 0, reason: convert::COMPLETED, message: INIT_REMOVED };
        status.state = Some(convert::terminated_state(done));
        status.ready = Some(true);
        statuses.is_overlaid = true;
    }
}

/// Ends what has no end when all of a deleted pod has ended (rule C.7.11).
fn end_lost_containers(context: &Context<'_>, statuses: &mut ContainerStatuses) {
    let is_initialized = context.facts.with_role(Role::Regular).any(|regular| {
        context.runtime.named(regular.name).next().is_some()
            || statuses.find(regular).is_some_and(|status| entry::waiting(status).is_none())
    });
    let ContainerStatuses { init, regular, is_overlaid, .. } = statuses;
    for status in init.iter_mut().chain(regular) {
        let is_waiting = entry::waiting(status).is_some();
        if entry::terminated(status).is_some() || (is_waiting && !is_initialized) {
            continue;
        }
        let lost = Terminated { exit_code: LOST_EXIT_CODE, reason: UNKNOWN, message: LOST_WHEN_TERMINATED };
        status.state = Some(convert::terminated_state(lost));
        status.ready = Some(false);
        status.started = Some(false);
        *is_overlaid = true;
    }
}
