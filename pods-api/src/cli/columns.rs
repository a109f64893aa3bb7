//! One pod as the columns that `kubectl get pods` shows. Pure: pod and time in, text out.
//!
//! STATUS, READY and RESTARTS follow kubectl's reading of a pod, so that both tools say the same of the same pod.

use k8s::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodSpec, PodStatus,
};
use k8s::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use pods_api_proto::k8s::io as k8s;

/// Where the kubelet (and this server) notes when a static pod's manifest was first seen.
const CONFIG_SEEN: &str = "kubernetes.io/config.seen";
const UNKNOWN: &str = "<unknown>";
const NONE: &str = "<none>";

/// The cells of one pod, as printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Row {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) ready: String,
    pub(super) status: String,
    pub(super) restarts: String,
    pub(super) age: String,
    pub(super) ip: String,
    pub(super) node: String,
    pub(super) uid: String,
}

impl Row {
    /// Reads the cells off `pod`; `now` is in seconds since the epoch.
    pub(super) fn of(pod: &Pod, now: i64) -> Self {
        let (default_meta, default_spec, default_status) =
            (ObjectMeta::default(), PodSpec::default(), PodStatus::default());
        let meta = pod.metadata.as_ref().unwrap_or(&default_meta);
        let spec = pod.spec.as_ref().unwrap_or(&default_spec);
        let status = pod.status.as_ref().unwrap_or(&default_status);
        let summary = Summary::of(meta, spec, status);
        Self {
            namespace: meta.namespace().to_owned(),
            name: meta.name().to_owned(),
            ready: format!("{}/{}", summary.ready, summary.containers),
            restarts: match summary.last_restart {
                Some(at) if summary.restarts > 0 => format!("{} ({} ago)", summary.restarts, span(now - at)),
                _ => summary.restarts.to_string(),
            },
            status: summary.reason,
            age: started(meta, status).map_or_else(|| UNKNOWN.to_owned(), |at| span(now - at)),
            ip: or_none(status.pod_ip()),
            node: or_none(spec.node_name()),
            uid: meta.uid().to_owned(),
        }
    }
}

/// What the statuses of all containers come to.
struct Summary {
    reason: String,
    ready: usize,
    containers: usize,
    restarts: i64,
    last_restart: Option<i64>,
}

impl Summary {
    fn of(meta: &ObjectMeta, spec: &PodSpec, status: &PodStatus) -> Self {
        let sidecars = spec.init_containers.iter().filter(|init| init.restart_policy() == "Always").count();
        let mut summary = Self {
            reason: first_of([status.reason(), status.phase()]),
            ready: 0,
            containers: spec.containers.len() + sidecars,
            restarts: 0,
            last_restart: None,
        };
        if status
            .conditions
            .iter()
            .any(|it| it.r#type() == "PodScheduled" && it.reason() == "SchedulingGated")
        {
            summary.reason = "SchedulingGated".to_owned();
        }
        let initializing = summary.read_init_containers(spec, status);
        if !initializing || is_true(status, "Initialized") {
            summary.read_containers(status);
        }
        if meta.deletion_timestamp.is_some() {
            if status.reason() == "NodeLost" {
                "Unknown".clone_into(&mut summary.reason);
            } else if !matches!(status.phase(), "Succeeded" | "Failed") {
                "Terminating".clone_into(&mut summary.reason);
            }
        }
        summary
    }

    /// Goes through the init containers up to the one at work; false when all have done their part. Restarts of
    /// ordinary init containers are shown only while they run, those of sidecars always.
    fn read_init_containers(&mut self, spec: &PodSpec, status: &PodStatus) -> bool {
        let mut of_sidecars = Restarts::default();
        let mut of_all = Restarts::default();
        let mut working = None;
        for (index, container) in status.init_container_statuses.iter().enumerate() {
            let is_sidecar = spec
                .init_containers
                .iter()
                .any(|init| init.name() == container.name() && init.restart_policy() == "Always");
            of_all.add(container);
            if is_sidecar {
                of_sidecars.add(container);
            }
            let terminated = terminated(container.state.as_ref());
            if terminated.is_some_and(|state| state.exit_code() == 0) {
                continue;
            }
            if is_sidecar && container.started() {
                self.ready += usize::from(container.ready());
                continue;
            }
            working = Some(match (terminated, waiting_reason(container)) {
                (Some(state), _) => format!("Init:{}", exit_reason(state)),
                (None, Some(reason)) if reason != "PodInitializing" => format!("Init:{reason}"),
                _ => format!("Init:{index}/{}", spec.init_containers.len()),
            });
            break;
        }
        let initializing = working.is_some();
        let shown = if initializing && !is_true(status, "Initialized") { of_all } else { of_sidecars };
        (self.restarts, self.last_restart) = (shown.count, shown.last);
        if let Some(reason) = working {
            self.reason = reason;
        }
        initializing
    }

    /// The first container that has something to say gives the reason.
    fn read_containers(&mut self, status: &PodStatus) {
        let mut restarts = Restarts { count: self.restarts, last: self.last_restart };
        let mut is_running = false;
        for container in status.container_statuses.iter().rev() {
            restarts.add(container);
            if let Some(reason) = waiting_reason(container) {
                reason.clone_into(&mut self.reason);
            } else if let Some(state) = terminated(container.state.as_ref()) {
                self.reason = exit_reason(state);
            } else if container.ready()
                && container.state.as_ref().is_some_and(|state| state.running.is_some())
            {
                is_running = true;
                self.ready += 1;
            }
        }
        (self.restarts, self.last_restart) = (restarts.count, restarts.last);
        // One container has completed while others run: the pod has not.
        if self.reason == "Completed" && is_running {
            let reason = if is_true(status, "Ready") { "Running" } else { "NotReady" };
            reason.clone_into(&mut self.reason);
        }
    }
}

#[derive(Default)]
struct Restarts {
    count: i64,
    last: Option<i64>,
}

impl Restarts {
    fn add(&mut self, container: &ContainerStatus) {
        self.count += i64::from(container.restart_count());
        let ended =
            terminated(container.last_state.as_ref()).and_then(|state| seconds(state.finished_at.as_ref()));
        self.last = self.last.max(ended);
    }
}

fn terminated(state: Option<&ContainerState>) -> Option<&ContainerStateTerminated> {
    state.and_then(|state| state.terminated.as_ref())
}

fn waiting_reason(container: &ContainerStatus) -> Option<&str> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    Some(waiting.reason()).filter(|reason| !reason.is_empty())
}

fn exit_reason(state: &ContainerStateTerminated) -> String {
    match (state.reason(), state.signal()) {
        ("", 0) => format!("ExitCode:{}", state.exit_code()),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn is_true(status: &PodStatus, condition: &str) -> bool {
    status.conditions.iter().any(|it| it.r#type() == condition && it.status() == "True")
}

/// Since when the pod exists. Static pods have no creationTimestamp of their own; their status or, before they have
/// one, the annotation of their source says it.
fn started(meta: &ObjectMeta, status: &PodStatus) -> Option<i64> {
    seconds(meta.creation_timestamp.as_ref()).or_else(|| seconds(status.start_time.as_ref())).or_else(|| {
        let seen: jiff::Timestamp = meta.annotations.get(CONFIG_SEEN)?.parse().ok()?;
        Some(seen.as_second())
    })
}

fn seconds(time: Option<&Time>) -> Option<i64> {
    time.and_then(|time| time.seconds)
}

fn first_of(texts: [&str; 2]) -> String {
    texts.into_iter().find(|text| !text.is_empty()).unwrap_or_default().to_owned()
}

fn or_none(text: &str) -> String {
    if text.is_empty() { NONE.to_owned() } else { text.to_owned() }
}

/// A length of time in at most two units, coarser the longer it is, as kubectl prints ages.
fn span(seconds: i64) -> String {
    // A clock that differs a little from the node's is no reason to alarm anyone.
    let seconds = seconds.max(0);
    let two = |whole: i64, unit: char, part: i64, part_unit: char| match part {
        0 => format!("{whole}{unit}"),
        _ => format!("{whole}{unit}{part}{part_unit}"),
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
#[path = "columns_tests.rs"]
mod tests;
