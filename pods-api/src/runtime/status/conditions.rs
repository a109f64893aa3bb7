//! The pod's conditions (rules C.8).

use super::containers::ContainerStatuses;
use super::facts::{PodFacts, Role};
use super::view::{RuntimePod, SandboxNetwork, UnixNanos};
use super::{Context, Time, convert, entry, phase, v1};

const READY_TO_START: &str = "PodReadyToStartContainers";
const INITIALIZED: &str = "Initialized";
const READY: &str = "Ready";
const CONTAINERS_READY: &str = "ContainersReady";
const SCHEDULED: &str = "PodScheduled";
/// Conditions of the kubelet that the runtime knows nothing of: copied, but kept in their place.
const RESIZE: [&str; 2] = ["PodResizePending", "PodResizeInProgress"];
const ALL_RESTARTING: &str = "AllContainersRestarting";

/// A condition before it has its times.
#[derive(Debug, Default, PartialEq, Eq)]
struct Verdict {
    is_true: bool,
    reason: &'static str,
    message: String,
}

impl Verdict {
    fn yes() -> Self {
        Self { is_true: true, ..Self::default() }
    }

    fn no(reason: &'static str, message: String) -> Self {
        Self { is_true: false, reason, message }
    }
}

/// Every condition of the pod, one per type, in the kubelet's order (rule C.8.1).
pub(super) fn conditions(
    context: &Context<'_>,
    statuses: &ContainerStatuses,
    phase: &str,
) -> Vec<v1::PodCondition> {
    let foreign = |condition: &&v1::PodCondition| {
        let kind = condition.r#type();
        !RESIZE.contains(&kind)
            && ![READY_TO_START, INITIALIZED, READY, CONTAINERS_READY, SCHEDULED, ALL_RESTARTING]
                .contains(&kind)
    };
    let external = context.base.map_or(&[][..], |base| &base.conditions);
    let mut conditions: Vec<_> = external.iter().filter(foreign).cloned().collect();
    conditions.extend(RESIZE.iter().filter_map(|kind| find(Some(external), kind)).cloned());

    let containers_ready = containers_ready(context.facts, statuses, phase);
    let ready = ready(context.facts, &containers_ready, &conditions);
    let stamp = Stamp { context };
    let own = [
        (READY_TO_START, ready_to_start(context.facts, context.runtime)),
        (INITIALIZED, initialized(context.facts, statuses, phase)),
        (READY, ready),
        (CONTAINERS_READY, containers_ready),
        (SCHEDULED, Verdict::yes()),
    ];
    conditions.extend(own.into_iter().map(|(kind, verdict)| stamp.condition(kind, &verdict)));
    conditions.extend(find(Some(external), ALL_RESTARTING).cloned());
    conditions
}

fn find<'a>(conditions: Option<&'a [v1::PodCondition]>, kind: &str) -> Option<&'a v1::PodCondition> {
    conditions?.iter().find(|condition| condition.r#type() == kind)
}

/// Rules C.3.8 and C.8.7: the newest sandbox is the only ready one, and its network is what the spec asks for.
fn ready_to_start(facts: &PodFacts<'_>, runtime: &RuntimePod) -> Verdict {
    let ready = runtime.sandboxes().iter().filter(|sandbox| sandbox.is_ready).count();
    let expected = if facts.is_host_network() { SandboxNetwork::Node } else { SandboxNetwork::Pod };
    let is_fit = runtime.active_sandbox().is_some_and(|active| {
        ready == 1
            && active.network.is_none_or(|network| network == expected)
            && (facts.is_host_network() || !active.has_network_status || !active.ips.is_empty())
    });
    Verdict { is_true: is_fit, ..Verdict::default() }
}

/// Whether the kubelet's word on the sandbox is what the runtime shows, or newer (rule C.11.1): a sandbox may end alone.
pub(super) fn shows_sandbox(context: &Context<'_>, base: &v1::PodStatus) -> bool {
    context.is_base_newer
        || find(Some(&base.conditions), READY_TO_START).is_none_or(|told| {
            (told.status() == "True") == ready_to_start(context.facts, context.runtime).is_true
        })
}

/// Rule C.8.4. Sidecars come first: they do in the spec.
fn containers_ready(facts: &PodFacts<'_>, statuses: &ContainerStatuses, phase: &str) -> Verdict {
    let mut unknown = Vec::new();
    let mut unready = Vec::new();
    for container in facts.with_role(Role::Sidecar).chain(facts.with_role(Role::Regular)) {
        match statuses.find(container) {
            None => unknown.push(container.name),
            Some(status) if !status.ready() => unready.push(container.name),
            Some(_) => {}
        }
    }
    if phase == phase::SUCCEEDED && unknown.is_empty() {
        return Verdict::no("PodCompleted", String::new());
    }
    if phase == phase::FAILED {
        return Verdict::no("PodFailed", String::new());
    }
    let message =
        list(&[("containers with unknown status", &unknown), ("containers with unready status", &unready)]);
    if message.is_empty() { Verdict::yes() } else { Verdict::no("ContainersNotReady", message) }
}

/// Rule C.8.5.
fn ready(facts: &PodFacts<'_>, containers_ready: &Verdict, external: &[v1::PodCondition]) -> Verdict {
    if !containers_ready.is_true {
        return Verdict::no(containers_ready.reason, containers_ready.message.clone());
    }
    let mut unready = Vec::new();
    for gate in &facts.spec.readiness_gates {
        let kind = gate.condition_type();
        match find(Some(external), kind) {
            None => {
                unready.push(format!(
                    "corresponding condition of pod readiness gate \"{kind}\" does not exist."
                ));
            }
            Some(condition) if condition.status() != "True" => unready.push(format!(
                "the status of pod readiness gate \"{kind}\" is not \"True\", but {}",
                condition.status()
            )),
            Some(_) => {}
        }
    }
    if unready.is_empty() {
        Verdict::yes()
    } else {
        Verdict::no("ReadinessGatesNotReady", unready.join(", "))
    }
}

/// Rule C.8.6.
fn initialized(facts: &PodFacts<'_>, statuses: &ContainerStatuses, phase: &str) -> Verdict {
    let mut unknown = Vec::new();
    let mut incomplete = Vec::new();
    for container in &facts.containers {
        let is_done = match (container.role, statuses.find(container)) {
            (Role::Regular | Role::Ephemeral, _) => continue,
            (_, None) => {
                unknown.push(container.name);
                continue;
            }
            (Role::Sidecar, Some(status)) => status.started(),
            (_, Some(status)) => status.ready(),
        };
        if !is_done {
            incomplete.push(container.name);
        }
    }
    if phase == phase::SUCCEEDED && unknown.is_empty() && facts.has_init_containers() {
        return Verdict { is_true: true, reason: "PodCompleted", message: String::new() };
    }
    let has_begun =
        |status: &v1::ContainerStatus| entry::is_running(status) || entry::terminated(status).is_some();
    if statuses.regular.iter().any(has_begun) {
        return Verdict::yes();
    }
    let message = list(&[
        ("containers with unknown status", &unknown),
        ("containers with incomplete status", &incomplete),
    ]);
    if message.is_empty() { Verdict::yes() } else { Verdict::no("ContainersNotInitialized", message) }
}

/// `what: [a b], other: [c]`, leaving out what has no names.
fn list(parts: &[(&str, &[&str])]) -> String {
    let parts = parts.iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> = parts.map(|(what, names)| format!("{what}: [{}]", names.join(" "))).collect();
    parts.join(", ")
}

/// Gives verdicts their times.
#[derive(Debug)]
struct Stamp<'a> {
    context: &'a Context<'a>,
}

impl Stamp<'_> {
    fn condition(&self, kind: &str, verdict: &Verdict) -> v1::PodCondition {
        let status = if verdict.is_true { "True" } else { "False" };
        v1::PodCondition {
            r#type: Some(kind.to_owned()),
            status: Some(status.to_owned()),
            last_probe_time: None,
            last_transition_time: self.transition_time(kind, verdict.is_true, status),
            reason: convert::text(verdict.reason),
            message: convert::text(&verdict.message),
            observed_generation: self.context.observed_generation(),
        }
    }

    /// The time of the last change of status: that of the old condition while its status holds, else now
    /// (rule C.8.9). Of a condition never seen before the runtime's own times tell more than the clock, and stay the
    /// same when this server starts anew (rule C.8.12).
    fn transition_time(&self, kind: &str, is_true: bool, status: &str) -> Option<Time> {
        let of = |pod: Option<&'_ v1::PodStatus>| {
            pod.and_then(|pod| find(Some(&pod.conditions), kind))
                .map(|old| (old.status() == status, old.last_transition_time))
        };
        match of(self.context.previous).or_else(|| of(self.context.base)) {
            Some((true, Some(time))) => Some(time),
            Some((true, None)) | None => Some(self.first_time(kind, is_true)),
            Some((false, _)) => Some(self.context.now()),
        }
    }

    fn first_time(&self, kind: &str, is_true: bool) -> Time {
        let runtime = self.context.runtime;
        let from_runtime = match (kind, is_true) {
            (READY_TO_START, true) => runtime.active_sandbox().and_then(|active| active.created_at),
            (INITIALIZED, true) => {
                let init = self.context.facts.with_role(Role::Init);
                init.filter_map(|init| runtime.named(init.name).next()?.finished_at).max()
            }
            (READY | CONTAINERS_READY, true) => latest(runtime.containers().iter().map(|c| c.started_at)),
            (READY | CONTAINERS_READY, false) => latest(runtime.containers().iter().map(|c| c.finished_at)),
            _ => None,
        };
        convert::time(from_runtime)
            .or_else(|| self.context.start_time())
            .unwrap_or_else(|| self.context.now())
    }
}

fn latest(times: impl Iterator<Item = Option<UnixNanos>>) -> Option<UnixNanos> {
    times.flatten().max()
}
