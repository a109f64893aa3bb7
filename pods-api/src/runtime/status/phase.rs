//! The pod's phase (rules C.7).

use super::containers::ContainerStatuses;
use super::entry;
use super::facts::{PodFacts, Role, SpecContainer};
use super::view::{Container, RunState};
use super::{Context, v1};

pub(super) const PENDING: &str = "Pending";
pub(super) const RUNNING: &str = "Running";
pub(super) const SUCCEEDED: &str = "Succeeded";
pub(super) const FAILED: &str = "Failed";

/// Whether a phase is final.
pub(super) fn is_terminal(phase: &str) -> bool {
    matches!(phase, SUCCEEDED | FAILED)
}

/// The phase to show, given the container statuses and what was shown before.
pub(super) fn phase(context: &Context<'_>, statuses: &ContainerStatuses) -> &'static str {
    if let Some(terminal) = recorded_terminal(context) {
        return terminal;
    }
    let shown = context.previous.or(context.base).map_or("", |old| old.phase());
    let tally = Tally::new(context, statuses);
    let is_terminated = context.is_terminated();
    let computed = tally.decide(context.facts, is_terminated);
    // When a deleted pod has come to its end, nothing of it is pending or running any more (rule C.7.7).
    if is_terminated && !context.facts.is_static && !is_terminal(computed) {
        return FAILED;
    }
    // A final phase waits for the last container (rule C.7.7).
    if is_terminal(computed) && runs_a_container(context) {
        return match shown {
            PENDING => PENDING,
            RUNNING => RUNNING,
            _ if context.has_initialized() => RUNNING,
            _ => PENDING,
        };
    }
    // A pod does not go back to Pending (rule E.7.9) unless it really starts over: in a new sandbox, with its init
    // containers before it, as after a reboot of the node.
    if computed == PENDING && shown == RUNNING && !tally.starts_over(context) {
        return RUNNING;
    }
    computed
}

/// A final phase once recorded is never taken back (rules B.3.4, C.7.7).
fn recorded_terminal(context: &Context<'_>) -> Option<&'static str> {
    [context.base, context.previous].into_iter().flatten().find_map(|status| match status.phase() {
        SUCCEEDED => Some(SUCCEEDED),
        FAILED => Some(FAILED),
        _ => None,
    })
}

/// Whether a container may still run, by the runtime's own account: an exit event alone does not move the phase.
fn runs_a_container(context: &Context<'_>) -> bool {
    let runs = |container: &Container| matches!(container.state, RunState::Running | RunState::Unknown);
    context.runtime.containers().iter().any(runs)
}

/// How many containers are in which state.
#[derive(Debug, Default)]
struct Tally {
    has_failed_init: bool,
    pending_init: usize,
    pending_sidecars: usize,
    has_initialized: bool,
    running: usize,
    waiting: usize,
    unknown: usize,
    stopped: usize,
    succeeded: usize,
    /// Stopped ones that the kubelet starts again.
    restarting: usize,
}

impl Tally {
    fn new(context: &Context<'_>, statuses: &ContainerStatuses) -> Self {
        let mut tally = Self { has_initialized: context.has_initialized(), ..Self::default() };
        for container in &context.facts.containers {
            let status = statuses.find(container);
            match container.role {
                Role::Init => tally.add_init(context.facts, container, status),
                Role::Sidecar => tally.add_sidecar(status),
                Role::Regular => tally.add_regular(context.facts, container, status),
                Role::Ephemeral => {}
            }
        }
        tally
    }

    /// Rule C.7.2.
    fn add_init(
        &mut self,
        facts: &PodFacts<'_>,
        container: &SpecContainer<'_>,
        status: Option<&v1::ContainerStatus>,
    ) {
        let ended = status.and_then(|status| {
            entry::terminated(status)
                .or_else(|| entry::waiting(status).and_then(|_| entry::last_terminated(status)))
        });
        match ended.map(|ended| ended.exit_code()) {
            Some(0) => {}
            Some(code) => self.has_failed_init |= !facts.restarts(container, code),
            None => self.pending_init += 1,
        }
    }

    /// Rule C.7.3. The kubelet takes note of a sidecar's `started` one round late; here it counts at once.
    fn add_sidecar(&mut self, status: Option<&v1::ContainerStatus>) {
        let Some(status) = status else {
            self.unknown += 1;
            return;
        };
        if entry::is_running(status) {
            self.running += 1;
            self.pending_sidecars += usize::from(!status.started());
        } else if entry::waiting(status).is_some() {
            if entry::last_terminated(status).is_none() {
                self.pending_sidecars += 1;
                self.waiting += 1;
            }
        } else if entry::terminated(status).is_none() {
            self.pending_sidecars += 1;
            self.unknown += 1;
        }
    }

    /// Rule C.7.4.
    fn add_regular(
        &mut self,
        facts: &PodFacts<'_>,
        container: &SpecContainer<'_>,
        status: Option<&v1::ContainerStatus>,
    ) {
        let Some(status) = status else {
            self.unknown += 1;
            return;
        };
        if entry::is_running(status) {
            self.running += 1;
        } else if let Some(ended) = entry::terminated(status) {
            self.stopped += 1;
            self.succeeded += usize::from(ended.exit_code() == 0);
            self.restarting += usize::from(facts.restarts(container, ended.exit_code()));
        } else if entry::waiting(status).is_some() {
            match entry::last_terminated(status) {
                // It ended and waits for its next start.
                Some(last) => {
                    self.stopped += 1;
                    let restarts =
                        facts.restarts(container, last.exit_code()) || !facts.never_restarts(container);
                    self.restarting += usize::from(restarts);
                }
                None => self.waiting += 1,
            }
        } else {
            self.unknown += 1;
        }
    }

    fn is_uninitialized(&self) -> bool {
        self.pending_init > 0 || (self.pending_sidecars > 0 && !self.has_initialized)
    }

    /// Rule C.7.5: the first that matches.
    fn decide(&self, facts: &PodFacts<'_>, is_terminated: bool) -> &'static str {
        if self.has_failed_init {
            FAILED
        } else if self.is_uninitialized() || self.waiting > 0 {
            PENDING
        } else if self.running > 0 && self.unknown == 0 {
            RUNNING
        } else if self.running == 0 && self.stopped > 0 && self.unknown == 0 {
            let ended = if self.succeeded == self.stopped { SUCCEEDED } else { FAILED };
            let is_final = (is_terminated && !facts.is_static) || self.restarting == 0;
            if is_final { ended } else { RUNNING }
        } else {
            PENDING
        }
    }

    /// Whether the pod runs its init containers anew in a sandbox that replaced its first one.
    fn starts_over(&self, context: &Context<'_>) -> bool {
        self.is_uninitialized() && context.runtime.active_sandbox().is_some_and(|active| active.attempt > 0)
    }
}
