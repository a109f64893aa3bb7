//! Where a derived status and the kubelet's own differ: the proof of the rules on real nodes.

use super::facts::PodFacts;
use super::{Context, StatusInputs, entry, v1};

/// A part of the status that is compared; its name is a metric label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// `phase`.
    Phase,
    /// `podIPs`.
    PodIps,
    /// `qosClass`.
    QosClass,
    /// The status of a condition of the kubelet's.
    Conditions,
    /// The kind of a container's state, and what it ended with.
    State,
    /// What a container's last state ended with.
    LastState,
    /// `ready`.
    Ready,
    /// `started`.
    Started,
    /// `restartCount`.
    RestartCount,
    /// `containerID`.
    ContainerId,
    /// `image`.
    Image,
    /// `imageID`.
    ImageId,
}

impl Field {
    /// Every field, in the order in which they are counted.
    pub const ALL: [Self; 12] = [
        Self::Phase,
        Self::PodIps,
        Self::QosClass,
        Self::Conditions,
        Self::State,
        Self::LastState,
        Self::Ready,
        Self::Started,
        Self::RestartCount,
        Self::ContainerId,
        Self::Image,
        Self::ImageId,
    ];

    /// The field's name in metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Phase => "phase",
            Self::PodIps => "podIPs",
            Self::QosClass => "qosClass",
            Self::Conditions => "conditions",
            Self::State => "state",
            Self::LastState => "lastState",
            Self::Ready => "ready",
            Self::Started => "started",
            Self::RestartCount => "restartCount",
            Self::ContainerId => "containerID",
            Self::Image => "image",
            Self::ImageId => "imageID",
        }
    }
}

/// The fields in which the kubelet's status differs from the one derived from the runtime, each once.
///
/// `None` without a base, and while base and runtime are not of one time: where one of them has not seen a container
/// that the other shows, the difference says nothing about the rules.
#[must_use]
pub fn divergence(inputs: &StatusInputs<'_>) -> Option<Vec<Field>> {
    let base = inputs.base?;
    let facts = PodFacts::new(inputs.pod);
    if !is_of_one_time(base, inputs, &facts) {
        return None;
    }
    // What only the kubelet knows (probes, waiting reasons) is taken from it here too; what it shares with the
    // runtime is derived anew.
    let derived = Context { previous: None, ..Context::new(inputs, &facts, false) }.status();
    let mut fields = Vec::new();
    let mut note = |field: Field, differs: bool| {
        if differs && !fields.contains(&field) {
            fields.push(field);
        }
    };
    note(Field::Phase, derived.phase() != base.phase());
    note(Field::PodIps, derived.pod_i_ps != base.pod_i_ps);
    note(Field::QosClass, super::qos::class(&facts) != base.qos_class() && !base.qos_class().is_empty());
    note(Field::Conditions, conditions(&derived) != conditions(base));
    for container in &facts.containers {
        let of = |status| entry::find(Some(status), container.role, container.name);
        let (Some(derived), Some(base)) = (of(&derived), of(base)) else {
            note(Field::State, of(&derived).is_some() != of(base).is_some());
            continue;
        };
        note(Field::State, state(derived.state.as_ref()) != state(base.state.as_ref()));
        note(Field::LastState, state(derived.last_state.as_ref()) != state(base.last_state.as_ref()));
        note(Field::Ready, derived.ready() != base.ready());
        note(Field::Started, derived.started() != base.started());
        // The derived count is never below the kubelet's; the runtime's own one tells whether they agree.
        let newest = inputs.runtime.named(container.name).next();
        note(Field::RestartCount, newest.is_some_and(|newest| newest.restart_count != base.restart_count()));
        note(Field::ContainerId, derived.container_id() != base.container_id());
        note(Field::Image, derived.image() != base.image());
        note(Field::ImageId, derived.image_id() != base.image_id());
    }
    Some(fields)
}

/// Whether the kubelet's newest container of each name is the runtime's too.
fn is_of_one_time(base: &v1::PodStatus, inputs: &StatusInputs<'_>, facts: &PodFacts<'_>) -> bool {
    !inputs.runtime.is_absent()
        && facts.containers.iter().all(|container| {
            let newest = inputs.runtime.named(container.name).next();
            let entry = entry::find(Some(base), container.role, container.name);
            match (newest, entry) {
                (Some(newest), Some(entry)) => {
                    entry::stands_against(entry, newest, inputs.runtime, false)
                        && entry::describes(entry, newest)
                }
                (None, Some(entry)) => entry.container_id().is_empty(),
                (newest, None) => newest.is_none(),
            }
        })
}

/// The kubelet's own conditions by type, without their times.
fn conditions(status: &v1::PodStatus) -> Vec<(&str, &str)> {
    const COMPARED: [&str; 5] =
        ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];
    let of = |kind: &&'static str| {
        let condition = status.conditions.iter().find(|condition| condition.r#type() == *kind)?;
        Some((*kind, condition.status()))
    };
    COMPARED.iter().filter_map(of).collect()
}

/// What two states must agree in.
fn state(state: Option<&v1::ContainerState>) -> (bool, bool, Option<(i32, &str, &str)>) {
    let Some(state) = state else { return (false, false, None) };
    let terminated = state.terminated.as_ref();
    let ended = terminated.map(|ended| (ended.exit_code(), ended.reason(), ended.container_id()));
    (state.waiting.is_some(), state.running.is_some(), ended)
}
