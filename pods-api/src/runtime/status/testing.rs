//! Builders for the status tests: a pod, what the runtime has of it, a status, and short texts to compare with.

use std::time::Instant;

use super::view::{
    Container, ContainerMount, Exit, RunState, RuntimePod, Sandbox, SandboxNetwork, UnixNanos,
};
use super::{ApiQuantity, NodeFacts, StatusInputs, Time, convert, derive, entry, v1};

/// The time at which scenes are looked at.
pub(in crate::runtime) const NOW: i64 = 10_000;

pub(in crate::runtime) fn at(seconds: i64) -> Option<UnixNanos> {
    UnixNanos::new(seconds * 1_000_000_000 + 999_999_999)
}

// ---------------------------------------------------------------------------------------------------- the pod

/// Builds a pod; what follows a container applies to it.
#[derive(Debug, Clone, Default)]
pub(in crate::runtime) struct PodBuilder {
    pod: v1::Pod,
}

pub(in crate::runtime) fn pod() -> PodBuilder {
    let mut builder = PodBuilder::default();
    builder.spec().restart_policy = Some("Always".to_owned());
    builder
}

impl PodBuilder {
    fn spec(&mut self) -> &mut v1::PodSpec {
        self.pod.spec.get_or_insert_default()
    }

    pub(in crate::runtime) fn build(self) -> v1::Pod {
        self.pod
    }

    pub(in crate::runtime) fn regular(mut self, name: &str) -> Self {
        self.spec().containers.push(container(name));
        self
    }

    pub(in crate::runtime) fn init(mut self, name: &str) -> Self {
        self.spec().init_containers.push(container(name));
        self
    }

    pub(in crate::runtime) fn sidecar(mut self, name: &str) -> Self {
        let sidecar = v1::Container { restart_policy: Some("Always".to_owned()), ..container(name) };
        self.spec().init_containers.push(sidecar);
        self
    }

    pub(in crate::runtime) fn ephemeral(mut self, name: &str) -> Self {
        let common = v1::EphemeralContainerCommon {
            name: Some(name.to_owned()),
            image: Some(format!("{name}:1")),
            ..Default::default()
        };
        let ephemeral =
            v1::EphemeralContainer { ephemeral_container_common: Some(common), ..Default::default() };
        self.spec().ephemeral_containers.push(ephemeral);
        self
    }

    /// Changes the regular container added last, or the init container if there is no regular one yet.
    pub(in crate::runtime) fn with(mut self, change: impl FnOnce(&mut v1::Container)) -> Self {
        let spec = self.spec();
        let last = match spec.containers.last_mut() {
            Some(last) => last,
            None => spec.init_containers.last_mut().unwrap(),
        };
        change(last);
        self
    }

    pub(in crate::runtime) fn resources(self, resources: &[(&str, &str)]) -> Self {
        self.with(|container| container.resources = Some(requirements(resources)))
    }

    pub(in crate::runtime) fn startup_probe(self) -> Self {
        self.with(|container| container.startup_probe = Some(v1::Probe::default()))
    }

    pub(in crate::runtime) fn readiness_probe(self) -> Self {
        self.with(|container| container.readiness_probe = Some(v1::Probe::default()))
    }

    pub(in crate::runtime) fn mount(self, path: &str, is_read_only: bool) -> Self {
        self.with(|container| {
            container.volume_mounts.push(v1::VolumeMount {
                name: Some("volume".to_owned()),
                mount_path: Some(path.to_owned()),
                read_only: Some(is_read_only),
                ..Default::default()
            });
        })
    }

    pub(in crate::runtime) fn restart_rule(self, operator: &str, codes: &[i32]) -> Self {
        self.with(|container| {
            container.restart_policy_rules.push(v1::ContainerRestartRule {
                action: Some("Restart".to_owned()),
                exit_codes: Some(v1::ContainerRestartRuleOnExitCodes {
                    operator: Some(operator.to_owned()),
                    values: codes.to_vec(),
                }),
            });
        })
    }

    pub(in crate::runtime) fn container_policy(self, policy: &str) -> Self {
        self.with(|container| container.restart_policy = Some(policy.to_owned()))
    }

    pub(in crate::runtime) fn policy(mut self, policy: &str) -> Self {
        self.spec().restart_policy = Some(policy.to_owned());
        self
    }

    pub(in crate::runtime) fn host_network(mut self) -> Self {
        self.spec().host_network = Some(true);
        self
    }

    pub(in crate::runtime) fn gate(mut self, kind: &str) -> Self {
        self.spec().readiness_gates.push(v1::PodReadinessGate { condition_type: Some(kind.to_owned()) });
        self
    }

    pub(in crate::runtime) fn deleted(mut self) -> Self {
        self.pod.metadata.get_or_insert_default().deletion_timestamp = Some(convert::seconds(NOW));
        self
    }

    pub(in crate::runtime) fn static_pod(mut self) -> Self {
        let annotations = &mut self.pod.metadata.get_or_insert_default().annotations;
        annotations.insert("kubernetes.io/config.source".to_owned(), "file".to_owned());
        self
    }

    pub(in crate::runtime) fn generation(mut self, generation: i64) -> Self {
        self.pod.metadata.get_or_insert_default().generation = Some(generation);
        self
    }
}

fn container(name: &str) -> v1::Container {
    v1::Container { name: Some(name.to_owned()), image: Some(format!("{name}:1")), ..Default::default() }
}

/// Requirements from `l.NAME` (a limit) and `r.NAME` (a request) with their quantities.
pub(in crate::runtime) fn requirements(resources: &[(&str, &str)]) -> v1::ResourceRequirements {
    let mut requirements = v1::ResourceRequirements::default();
    for (name, quantity) in resources {
        let quantity = ApiQuantity { string: Some((*quantity).to_owned()) };
        let (list, name) = match name.split_once('.').unwrap() {
            ("l", name) => (&mut requirements.limits, name),
            (_, name) => (&mut requirements.requests, name),
        };
        list.insert(name.to_owned(), quantity);
    }
    requirements
}

// ------------------------------------------------------------------------------------------------ the runtime

/// Builds what the runtime has of a pod; a container goes into the sandbox before it.
#[derive(Debug, Clone, Default)]
pub(in crate::runtime) struct View {
    sandboxes: Vec<Sandbox>,
    containers: Vec<Container>,
}

pub(in crate::runtime) fn view() -> View {
    View::default()
}

impl View {
    pub(in crate::runtime) fn build(self) -> RuntimePod {
        RuntimePod::new(Instant::now(), self.sandboxes, self.containers)
    }

    /// A ready sandbox with the address 10.0.0.N, where N counts the sandboxes from 1.
    pub(in crate::runtime) fn ready(mut self, id: &str) -> Self {
        let attempt = self.sandboxes.len() as u32;
        self.sandboxes.push(Sandbox {
            id: id.into(),
            attempt,
            created_at: at(100 + 100 * i64::from(attempt)),
            is_ready: true,
            network: Some(SandboxNetwork::Pod),
            has_network_status: true,
            ips: vec![[10, 0, 0, attempt as u8 + 1].into()],
        });
        self
    }

    pub(in crate::runtime) fn stopped(self, id: &str) -> Self {
        self.ready(id).sandbox(|sandbox| {
            sandbox.is_ready = false;
            sandbox.ips.clear();
        })
    }

    pub(in crate::runtime) fn sandbox(mut self, change: impl FnOnce(&mut Sandbox)) -> Self {
        change(self.sandboxes.last_mut().unwrap());
        self
    }

    pub(in crate::runtime) fn ips(self, ips: &[&str]) -> Self {
        self.sandbox(|sandbox| sandbox.ips = ips.iter().map(|ip| ip.parse().unwrap()).collect())
    }

    fn container(mut self, name: &str, id: &str, state: RunState) -> Self {
        let attempt = self.containers.iter().filter(|other| &*other.name == name).count();
        let start = 1_000 + 100 * attempt as i64;
        self.containers.push(Container {
            id: id.into(),
            sandbox: self.sandboxes.last().map_or_else(|| "gone".into(), |sandbox| sandbox.id.clone()),
            name: name.into(),
            attempt: attempt as u32,
            restart_count: attempt as i32,
            state,
            created_at: at(start),
            started_at: None,
            finished_at: None,
            exit_code: 0,
            reason: "".into(),
            message: "".into(),
            image: format!("docker.io/library/{name}:1").into(),
            image_ref: format!("sha256:{name}").into(),
            resources: None,
            user: None,
            mounts: Vec::new(),
            stop_signal: None,
            unconfirmed_exit: None,
        });
        self
    }

    /// Changes the container added last.
    pub(in crate::runtime) fn with(mut self, change: impl FnOnce(&mut Container)) -> Self {
        change(self.containers.last_mut().unwrap());
        self
    }

    pub(in crate::runtime) fn created(self, name: &str, id: &str) -> Self {
        self.container(name, id, RunState::Created)
    }

    pub(in crate::runtime) fn running(self, name: &str, id: &str) -> Self {
        self.container(name, id, RunState::Running)
            .with(|container| container.started_at = container.created_at)
    }

    pub(in crate::runtime) fn exited(self, name: &str, id: &str, code: i32) -> Self {
        self.running(name, id).with(|container| {
            container.state = RunState::Exited;
            container.finished_at = UnixNanos::new(
                container.created_at.map_or(0, UnixNanos::seconds) * 1_000_000_000 + 50_000_000_000,
            );
            container.exit_code = code;
        })
    }

    pub(in crate::runtime) fn unknown(self, name: &str, id: &str) -> Self {
        self.container(name, id, RunState::Unknown)
    }

    pub(in crate::runtime) fn reason(self, reason: &str) -> Self {
        self.with(|container| container.reason = reason.into())
    }

    pub(in crate::runtime) fn restarts(self, count: i32) -> Self {
        self.with(|container| {
            container.restart_count = count;
            container.attempt = count as u32;
        })
    }

    pub(in crate::runtime) fn mounted(self, path: &str, is_recursive_read_only: bool) -> Self {
        self.with(|container| {
            container.mounts.push(ContainerMount { path: path.into(), is_recursive_read_only });
        })
    }

    /// The container added last has ended, says an event.
    pub(in crate::runtime) fn event_exit(self, code: i32) -> Self {
        self.with(|container| container.unconfirmed_exit = Some(Exit { code, at: at(9_000) }))
    }
}

// ------------------------------------------------------------------------------------------------- the status

/// Builds a status; what follows an entry applies to it.
#[derive(Debug, Clone, Default)]
pub(in crate::runtime) struct StatusBuilder {
    status: v1::PodStatus,
    last_is_init: bool,
}

pub(in crate::runtime) fn status(phase: &str) -> StatusBuilder {
    let status = v1::PodStatus { phase: Some(phase.to_owned()), ..Default::default() };
    StatusBuilder { status, last_is_init: false }
}

impl StatusBuilder {
    pub(in crate::runtime) fn build(self) -> v1::PodStatus {
        self.status
    }

    fn entry(mut self, is_init: bool, name: &str, id: &str, state: v1::ContainerState) -> Self {
        self.last_is_init = is_init;
        let entries = if is_init {
            &mut self.status.init_container_statuses
        } else {
            &mut self.status.container_statuses
        };
        entries.push(v1::ContainerStatus {
            name: Some(name.to_owned()),
            state: Some(state),
            container_id: (!id.is_empty()).then(|| format!("containerd://{id}")),
            restart_count: Some(0),
            ready: Some(false),
            started: Some(false),
            image: Some("as the kubelet shows it".to_owned()),
            ..Default::default()
        });
        self
    }

    /// Makes the entry added last one of an init container.
    pub(in crate::runtime) fn of_init(mut self) -> Self {
        self.last_is_init = true;
        let entry = self.status.container_statuses.pop().unwrap();
        self.status.init_container_statuses.push(entry);
        self
    }

    pub(in crate::runtime) fn with(mut self, change: impl FnOnce(&mut v1::ContainerStatus)) -> Self {
        let Self { status, last_is_init } = &mut self;
        let entries =
            if *last_is_init { &mut status.init_container_statuses } else { &mut status.container_statuses };
        change(entries.last_mut().unwrap());
        self
    }

    pub(in crate::runtime) fn change(mut self, change: impl FnOnce(&mut v1::PodStatus)) -> Self {
        change(&mut self.status);
        self
    }

    pub(in crate::runtime) fn waiting(self, name: &str, id: &str, reason: &str) -> Self {
        self.entry(false, name, id, convert::waiting_state(reason, ""))
    }

    pub(in crate::runtime) fn running(self, name: &str, id: &str) -> Self {
        let running = v1::ContainerStateRunning { started_at: Some(convert::seconds(1_000)) };
        self.entry(false, name, id, v1::ContainerState { running: Some(running), ..Default::default() })
    }

    pub(in crate::runtime) fn terminated(self, name: &str, id: &str, code: i32, reason: &str) -> Self {
        self.entry(false, name, id, terminated_state(id, code, reason))
    }

    pub(in crate::runtime) fn last(self, id: &str, code: i32, reason: &str) -> Self {
        self.with(|entry| entry.last_state = Some(terminated_state(id, code, reason)))
    }

    pub(in crate::runtime) fn restarts(self, count: i32) -> Self {
        self.with(|entry| entry.restart_count = Some(count))
    }

    pub(in crate::runtime) fn started(self) -> Self {
        self.with(|entry| entry.started = Some(true))
    }

    pub(in crate::runtime) fn ready(self) -> Self {
        self.started().with(|entry| entry.ready = Some(true))
    }

    pub(in crate::runtime) fn pod_ips(self, ips: &[&str]) -> Self {
        self.change(|status| {
            status.pod_ip = ips.first().map(|ip| (*ip).to_owned());
            status.pod_i_ps = ips.iter().map(|ip| v1::PodIp { ip: Some((*ip).to_owned()) }).collect();
        })
    }

    pub(in crate::runtime) fn host_ips(self, ips: &[&str]) -> Self {
        self.change(|status| {
            status.host_i_ps = ips.iter().map(|ip| v1::HostIp { ip: Some((*ip).to_owned()) }).collect();
        })
    }

    pub(in crate::runtime) fn condition(self, kind: &str, value: &str, seconds: i64) -> Self {
        self.change(|status| {
            status.conditions.push(v1::PodCondition {
                r#type: Some(kind.to_owned()),
                status: Some(value.to_owned()),
                last_transition_time: Some(convert::seconds(seconds)),
                ..Default::default()
            });
        })
    }
}

fn terminated_state(id: &str, code: i32, reason: &str) -> v1::ContainerState {
    let terminated = v1::ContainerStateTerminated {
        exit_code: Some(code),
        reason: Some(reason.to_owned()),
        container_id: (!id.is_empty()).then(|| format!("containerd://{id}")),
        ..Default::default()
    };
    v1::ContainerState { terminated: Some(terminated), ..Default::default() }
}

// -------------------------------------------------------------------------------------------------- the scene

/// All inputs of one derivation.
#[derive(Debug, Clone)]
pub(in crate::runtime) struct Scene {
    pub(in crate::runtime) pod: v1::Pod,
    pub(in crate::runtime) runtime: RuntimePod,
    pub(in crate::runtime) base: Option<v1::PodStatus>,
    pub(in crate::runtime) is_base_newer: bool,
    pub(in crate::runtime) previous: Option<v1::PodStatus>,
    pub(in crate::runtime) node: NodeFacts,
}

pub(in crate::runtime) fn scene(pod: PodBuilder, runtime: View) -> Scene {
    let (pod, runtime) = (pod.build(), runtime.build());
    Scene { pod, runtime, base: None, is_base_newer: false, previous: None, node: NodeFacts::default() }
}

impl Scene {
    pub(in crate::runtime) fn base(mut self, status: StatusBuilder) -> Self {
        self.base = Some(status.build());
        self
    }

    pub(in crate::runtime) fn newer_base(self, status: StatusBuilder) -> Self {
        Self { is_base_newer: true, ..self.base(status) }
    }

    pub(in crate::runtime) fn previous(mut self, status: StatusBuilder) -> Self {
        self.previous = Some(status.build());
        self
    }

    pub(in crate::runtime) fn node_ips(mut self, ips: &[&str]) -> Self {
        self.node.host_ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
        self
    }

    pub(in crate::runtime) fn inputs(&self) -> StatusInputs<'_> {
        StatusInputs {
            pod: &self.pod,
            base: self.base.as_ref(),
            last_base: self.base.as_ref(),
            is_base_newer: self.is_base_newer,
            previous: self.previous.as_ref(),
            runtime: &self.runtime,
            runtime_name: "containerd",
            node: &self.node,
            now: NOW,
        }
    }

    pub(in crate::runtime) fn derive(&self) -> v1::PodStatus {
        let status = derive(&self.inputs());
        let again = derive(&StatusInputs { previous: Some(&status), ..self.inputs() });
        assert_eq!(again, status, "a status fed back must give itself");
        status
    }
}

// -------------------------------------------------------------------------------------------------- the texts

/// One container's status as a short text, such as `a running a1 r1 ready started last=7/Error(a0)`.
pub(in crate::runtime) fn describe(status: &v1::ContainerStatus) -> String {
    let mut text = status.name().to_owned();
    if let Some(waiting) = entry::waiting(status) {
        text += &format!(" waiting({})", waiting.reason());
    }
    if entry::is_running(status) {
        text += " running";
    }
    if let Some(terminated) = entry::terminated(status) {
        text += &format!(" {}/{}", terminated.exit_code(), terminated.reason());
    }
    let id = entry::bare_id(status.container_id());
    if !id.is_empty() {
        text += &format!(" {id}");
    }
    text += &format!(" r{}", status.restart_count());
    if status.ready() {
        text += " ready";
    }
    if status.started() {
        text += " started";
    }
    if let Some(last) = entry::last_terminated(status) {
        text +=
            &format!(" last={}/{}({})", last.exit_code(), last.reason(), entry::bare_id(last.container_id()));
    }
    text
}

/// Every container's status: init containers, `|`, regular ones, `|`, ephemeral ones; empty groups left out.
pub(in crate::runtime) fn containers(status: &v1::PodStatus) -> String {
    let groups =
        [&status.init_container_statuses, &status.container_statuses, &status.ephemeral_container_statuses];
    let group =
        |entries: &Vec<v1::ContainerStatus>| entries.iter().map(describe).collect::<Vec<_>>().join(", ");
    groups.into_iter().filter(|entries| !entries.is_empty()).map(group).collect::<Vec<_>>().join(" | ")
}

/// A condition as `status reason message`.
pub(in crate::runtime) fn condition(status: &v1::PodStatus, kind: &str) -> String {
    let mut found = status.conditions.iter().filter(|condition| condition.r#type() == kind);
    let condition = found.next().unwrap_or_else(|| panic!("no condition {kind}"));
    assert!(found.next().is_none(), "condition {kind} occurs twice");
    [condition.status(), condition.reason(), condition.message()].join(" ").trim_end().to_owned()
}

/// When a condition last changed.
pub(in crate::runtime) fn transition(status: &v1::PodStatus, kind: &str) -> Option<i64> {
    let condition = status.conditions.iter().find(|condition| condition.r#type() == kind)?;
    condition.last_transition_time.map(|time: Time| time.seconds())
}

pub(in crate::runtime) fn ips(status: &v1::PodStatus) -> Vec<&str> {
    let ips: Vec<_> = status.pod_i_ps.iter().map(|pod| pod.ip()).collect();
    assert_eq!(status.pod_ip(), ips.first().copied().unwrap_or_default(), "podIP is the first of podIPs");
    ips
}

/// A row of a table of cases: the rule, what happens, the scene, and what is to come out.
pub(in crate::runtime) type Case = (&'static str, &'static str, Scene, &'static str);

/// Derives every case's status and compares its text, telling of all rows that differ at once.
pub(in crate::runtime) fn check(cases: &[Case], text: impl Fn(&v1::PodStatus) -> String) {
    let differences: Vec<String> = cases
        .iter()
        .filter_map(|(rule, what, scene, expected)| {
            let actual = text(&scene.derive());
            (actual != *expected)
                .then(|| format!("rule {rule}, {what}:\n  is      {actual}\n  must be {expected}"))
        })
        .collect();
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}
