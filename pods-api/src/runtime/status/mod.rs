//! The pod status as a pure function of the pod, the kubelet's own word, what was shown before, and the runtime.
//!
//! What the kubelet says or last wrote (`base`) comes first: only what the runtime knows to be newer is laid over it,
//! and phase and conditions are worked out again from the result. Where there is no such word, all of it is derived.
//! No I/O, no clock: any thread.

mod conditions;
mod containers;
mod convert;
mod divergence;
mod entry;
mod exit;
mod facts;
mod messages;
mod network;
mod phase;
mod probes;
mod qos;
mod resources;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;
mod view;

use std::collections::BTreeMap;
use std::net::IpAddr;

use pods_api_proto::k8s::io::api::core::v1;
use pods_api_proto::k8s::io::apimachinery::pkg::api::resource::Quantity as ApiQuantity;
use pods_api_proto::k8s::io::apimachinery::pkg::apis::meta::v1::Time;

pub use divergence::{Field, divergence};
pub use view::{
    Container, ContainerMount, Exit, Resources, RunState, RuntimePod, Sandbox, SandboxNetwork, UnixNanos,
    User,
};

use facts::{PodFacts, Role};

type ResourceList = BTreeMap<String, ApiQuantity>;

/// What is known of the node itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeFacts {
    /// The node's addresses, first one first; empty where nothing tells them (a node without an API server).
    pub host_ips: Vec<IpAddr>,
}

/// Everything that a pod's status depends on.
#[derive(Debug, Clone, Copy)]
pub struct StatusInputs<'a> {
    /// The pod: metadata and spec count.
    pub pod: &'a v1::Pod,
    /// What the kubelet itself says of the pod's status, or last wrote to the API server.
    pub base: Option<&'a v1::PodStatus>,
    /// `base`, or what it was when there was one last: good for what only the kubelet can know of a container.
    pub last_base: Option<&'a v1::PodStatus>,
    /// Whether `base` came in after the read of `runtime` began: what it alone knows is then no leftover.
    pub is_base_newer: bool,
    /// The status shown last.
    pub previous: Option<&'a v1::PodStatus>,
    /// What the runtime has of the pod.
    pub runtime: &'a RuntimePod,
    /// The runtime's name: the scheme of `containerID`.
    pub runtime_name: &'a str,
    /// The node.
    pub node: &'a NodeFacts,
    /// The time, in seconds since the epoch.
    pub now: i64,
}

/// Works out the pod's status.
///
/// The same inputs give the same status, and a status fed back as `previous` gives itself again.
#[must_use]
pub fn derive(inputs: &StatusInputs<'_>) -> v1::PodStatus {
    let facts = PodFacts::new(inputs.pod);
    Context::new(inputs, &facts, true).status()
}

/// Whether the kubelet speaks of a container that the runtime's answer does not have, while its words are the newer.
#[must_use]
pub fn names_unknown_container(inputs: &StatusInputs<'_>) -> bool {
    let Some(base) = inputs.base.filter(|_| inputs.is_base_newer) else { return false };
    let entries = base.init_container_statuses.iter().chain(&base.container_statuses);
    entries.chain(&base.ephemeral_container_statuses).any(|status| {
        let id = entry::bare_id(status.container_id());
        !id.is_empty() && inputs.runtime.containers().iter().all(|container| container.id.as_str() != id)
    })
}

/// The inputs with the pod read, shared by all rules.
#[derive(Debug)]
struct Context<'a> {
    facts: &'a PodFacts<'a>,
    base: Option<&'a v1::PodStatus>,
    last_base: Option<&'a v1::PodStatus>,
    is_base_newer: bool,
    /// Whether the kubelet's entries stand where the runtime knows nothing newer.
    keeps_base: bool,
    previous: Option<&'a v1::PodStatus>,
    runtime: &'a RuntimePod,
    runtime_name: &'a str,
    node: &'a NodeFacts,
    now: i64,
}

impl<'a> Context<'a> {
    fn new(inputs: &StatusInputs<'a>, facts: &'a PodFacts<'a>, keeps_base: bool) -> Self {
        let StatusInputs {
            base, last_base, is_base_newer, previous, runtime, runtime_name, node, now, ..
        } = *inputs;
        Self { facts, base, last_base, is_base_newer, keeps_base, previous, runtime, runtime_name, node, now }
    }

    fn status(&self) -> v1::PodStatus {
        if let Some(base) = self.base.filter(|_| self.is_base_terminal() && self.runtime.is_absent()) {
            return base.clone();
        }
        let mut statuses = containers::resolve(self);
        let ips = network::pod_ips(self);
        let base_stands = self.base.filter(|base| {
            let shows_ips = ips.as_ref().is_none_or(|ips| network::shows(base, ips));
            let is_taken_back = self.previous.is_some_and(|previous| phase::is_terminal(previous.phase()))
                && !phase::is_terminal(base.phase());
            let agrees = shows_ips && conditions::shows_sandbox(self, base);
            self.keeps_base && !statuses.is_overlaid && agrees && !is_taken_back
        });
        let phase = base_stands.map_or_else(|| phase::phase(self, &statuses), |base| base.phase());
        // An event tells of an end, but not what it means for the phase: that waits for the runtime's own account.
        let has_exits = exit::apply(self.facts, self.runtime, &mut statuses);
        if let Some(base) = base_stands.filter(|_| !has_exits) {
            return base.clone();
        }
        let mut status = self.base.cloned().unwrap_or_default();
        if status.phase() != phase {
            // They told of the phase that was (rule C.7.9).
            status.reason = None;
            status.message = None;
            status.phase = Some(phase.to_owned());
        }
        status.conditions = conditions::conditions(self, &statuses, phase);
        status.start_time = self.start_time();
        status.observed_generation = self.observed_generation();
        if status.qos_class().is_empty() {
            let shown = self.previous.map_or("", |previous| previous.qos_class());
            status.qos_class = Some(if shown.is_empty() { qos::class(self.facts) } else { shown }.to_owned());
        }
        network::set(&mut status, self, ips);
        status.init_container_statuses = statuses.init;
        status.container_statuses = statuses.regular;
        status.ephemeral_container_statuses = statuses.ephemeral;
        messages::limit(
            &mut status,
            self.facts.spec.containers.len() + self.facts.spec.init_containers.len(),
        );
        status
    }

    fn is_base_terminal(&self) -> bool {
        self.base.is_some_and(|base| phase::is_terminal(base.phase()))
    }

    /// Whether a pod that is being deleted has come to its end: nothing of it runs (rule C.7.8), nor has the kubelet
    /// spoken of anything that runs since the runtime was asked.
    fn is_terminated(&self) -> bool {
        let newer = self.base.filter(|_| self.is_base_newer);
        let is_told_to_run = newer.is_some_and(|base| {
            let entries = base.init_container_statuses.iter().chain(&base.container_statuses);
            entries.chain(&base.ephemeral_container_statuses).any(entry::is_running)
        });
        let has_ended = |container: &Container| container.state == RunState::Exited;
        self.facts.is_deleted
            && !is_told_to_run
            && self.runtime.containers().iter().all(has_ended)
            && !self.runtime.sandboxes().iter().any(|sandbox| sandbox.is_ready)
    }

    /// Whether a regular container exists in the active sandbox (rule C.7.1): those of older sandboxes do not count.
    fn has_initialized(&self) -> bool {
        let Some(active) = self.runtime.active_sandbox() else { return false };
        self.facts
            .with_role(Role::Regular)
            .any(|regular| self.runtime.named(regular.name).any(|container| container.sandbox == active.id))
    }

    /// `startTime`: the kubelet's, else the one shown, else when the first sandbox was made (rule C.8.11).
    fn start_time(&self) -> Option<Time> {
        let told = [self.base, self.previous].into_iter().flatten().find_map(|status| status.start_time);
        told.or_else(|| {
            let made = self.runtime.sandboxes().iter().filter_map(|sandbox| sandbox.created_at).min();
            convert::time(made)
        })
    }

    /// The generation that the status is about (rule C.8.8). The kubelet's word is its own: what it has not taken in
    /// yet is not observed. Never falls.
    fn observed_generation(&self) -> Option<i64> {
        let told = match self.base {
            Some(base) => base.observed_generation,
            None => Some(self.facts.generation),
        };
        let shown = self.previous.and_then(|previous| previous.observed_generation);
        told.max(shown).filter(|generation| *generation > 0)
    }

    fn now(&self) -> Time {
        convert::seconds(self.now)
    }
}
