//! What must hold whatever the runtime and the kubelet come up with.

use super::super::entry;
use super::super::testing::*;
use super::super::{RunState, StatusInputs, derive, v1};
use proptest::prelude::*;
use prost::Message as _;

const NAMES: [&str; 4] = ["i", "s", "a", "b"];

/// One container that the runtime has: name, attempt, state, exit code, whether an event told of its end.
type Drawn = (usize, u32, u8, i32, bool);

fn spec(policy: usize, is_deleted: bool, is_probed: bool) -> PodBuilder {
    let pod = pod().init("i").sidecar("s").regular("a").regular("b").ephemeral("e");
    let pod = if is_probed { pod.readiness_probe() } else { pod };
    let pod = if is_deleted { pod.deleted() } else { pod };
    pod.policy(["Always", "OnFailure", "Never"][policy])
}

fn runtime(sandboxes: &[bool], containers: &[Drawn]) -> View {
    let view = sandboxes.iter().enumerate().fold(view(), |view, (index, is_ready)| {
        let id = format!("sandbox{index}");
        if *is_ready { view.ready(&id) } else { view.stopped(&id) }
    });
    containers.iter().enumerate().fold(view, |view, (index, (name, attempt, state, code, has_event))| {
        let (name, id) = (NAMES[*name], format!("c{index}"));
        let view = match state {
            0 => view.created(name, &id),
            1 => view.running(name, &id),
            2 => view.exited(name, &id, *code),
            _ => view.unknown(name, &id),
        };
        let view = view.restarts(*attempt as i32);
        if *has_event { view.event_exit(*code) } else { view }
    })
}

fn drawn() -> impl Strategy<Value = (Vec<bool>, Vec<Drawn>)> {
    let container = (0..NAMES.len(), 0_u32..4, 0_u8..4, 0_i32..3, any::<bool>());
    (prop::collection::vec(any::<bool>(), 0..3), prop::collection::vec(container, 0..8))
}

fn counts(status: &v1::PodStatus) -> Vec<(String, i32)> {
    let entries = status.init_container_statuses.iter().chain(&status.container_statuses);
    entries.map(|entry| (entry.name().to_owned(), entry.restart_count())).collect()
}

fn check_shape(status: &v1::PodStatus) {
    // Rule C.7.10.
    assert!(["Pending", "Running", "Succeeded", "Failed"].contains(&status.phase()), "{:?}", status.phase);
    let mut kinds: Vec<_> = status.conditions.iter().map(|condition| condition.r#type()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    assert_eq!(kinds.len(), status.conditions.len(), "one condition per type");
    let entries = status.init_container_statuses.iter().chain(&status.container_statuses);
    for entry in entries.chain(&status.ephemeral_container_statuses) {
        let state = entry.state.as_ref().unwrap();
        let states = [state.waiting.is_some(), state.running.is_some(), state.terminated.is_some()];
        assert_eq!(states.iter().filter(|is_set| **is_set).count(), 1, "one state: {entry:?}");
        let is_init = entry.name() == "i";
        assert!(is_init || !entry.ready() || state.running.is_some(), "ready only while running: {entry:?}");
    }
    let bytes = status.encode_to_vec();
    assert_eq!(v1::PodStatus::decode(&*bytes).unwrap(), *status);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// A pod's life in random steps: each status is well formed and stable, restart counts never fall, a final phase
    /// stays, and Running goes back to Pending only if the pod starts over in a new sandbox.
    #[test]
    fn life_of_a_pod(
        policy in 0_usize..3,
        is_probed in any::<bool>(),
        steps in prop::collection::vec((drawn(), any::<bool>()), 1..6),
    ) {
        let mut previous: Option<v1::PodStatus> = None;
        let mut is_deleted = false;
        for ((sandboxes, containers), deletes) in steps {
            is_deleted |= deletes;
            let mut scene = scene(spec(policy, is_deleted, is_probed), runtime(&sandboxes, &containers));
            scene.previous = previous.take();
            let status = scene.derive();
            check_shape(&status);
            if let Some(before) = &scene.previous {
                // Rule C.4.13.
                for ((name, before), (_, after)) in counts(before).iter().zip(counts(&status)) {
                    prop_assert!(after >= *before, "{name} fell from {before} to {after}");
                }
                // Rules B.3.4, E.7.9.
                if matches!(before.phase(), "Succeeded" | "Failed") {
                    prop_assert_eq!(before.phase(), status.phase());
                }
                let starts_over = scene.runtime.active_sandbox().is_some_and(|active| active.attempt > 0);
                if before.phase() == "Running" && status.phase() == "Pending" {
                    prop_assert!(starts_over);
                }
                if before.conditions.iter().all(|old| {
                    status.conditions.iter().any(|new| new.r#type == old.r#type && new.status == old.status)
                }) {
                    // Rule C.8.9.
                    for condition in &status.conditions {
                        let old = before.conditions.iter().find(|old| old.r#type == condition.r#type).unwrap();
                        prop_assert_eq!(old.last_transition_time, condition.last_transition_time);
                    }
                }
            }
            previous = Some(status);
        }
    }

    /// Whatever the kubelet said before, the result is well formed and stable, and knows every running container.
    #[test]
    fn any_base_on_any_runtime(
        policy in 0_usize..3,
        before in drawn(),
        now in drawn(),
        is_base_newer in any::<bool>(),
        is_base_old_status in any::<bool>(),
    ) {
        let base = scene(spec(policy, false, true), runtime(&before.0, &before.1)).derive();
        let mut scene = scene(spec(policy, false, true), runtime(&now.0, &now.1));
        scene.previous = is_base_old_status.then(|| base.clone());
        scene.base = Some(base);
        scene.is_base_newer = is_base_newer;
        let status = scene.derive();
        check_shape(&status);
        for name in NAMES {
            let Some(newest) = scene.runtime.named(name).next() else { continue };
            if newest.state == RunState::Running && newest.unconfirmed_exit.is_none() && !is_base_newer {
                let mut entries = status.init_container_statuses.iter().chain(&status.container_statuses);
                let entry = entries.find(|entry| entry.name() == name).unwrap();
                // A container whose end the kubelet knows does not run again, whatever the runtime says.
                let ends = [entry::terminated(entry), entry::last_terminated(entry)];
                let has_ended = ends.into_iter().flatten().any(|end| {
                    entry::bare_id(end.container_id()) == newest.id.as_str()
                });
                prop_assert!(has_ended || entry::bare_id(entry.container_id()) == newest.id.as_str());
            }
        }
    }

    /// The order in which a runtime lists things does not matter.
    #[test]
    fn order_of_the_answer_does_not_matter(drawn in drawn(), seed in any::<prop::sample::Index>()) {
        let forward = scene(spec(0, false, false), runtime(&drawn.0, &drawn.1));
        let turned = {
            let mut containers = forward.runtime.containers().to_vec();
            let mut sandboxes = forward.runtime.sandboxes().to_vec();
            let at = seed.index(containers.len() + 1);
            containers.rotate_left(at);
            sandboxes.reverse();
            super::super::RuntimePod::new(forward.runtime.read_began(), sandboxes, containers)
        };
        let status = derive(&StatusInputs { runtime: &turned, ..forward.inputs() });
        prop_assert_eq!(status, forward.derive());
    }
}
