//! Conditions (rules C.8).

use super::super::super::status::{SandboxNetwork, StatusInputs, derive};
use super::super::testing::*;

#[test]
fn containers_ready_and_ready() {
    let ab = || pod().regular("b").regular("a");
    let s = || view().ready("s");
    check(
        &[
            ("C.8.4", "all run", scene(ab(), s().running("a", "a0").running("b", "b0")), "True"),
            (
                "C.8.4",
                "none ready, in the order of the spec",
                scene(ab(), s()),
                "False ContainersNotReady containers with unready status: [b a]",
            ),
            (
                "C.8.4",
                "sidecars first",
                scene(ab().sidecar("s"), s()),
                "False ContainersNotReady containers with unready status: [s b a]",
            ),
            (
                "C.8.4",
                "init and ephemeral containers do not count",
                scene(
                    ab().init("i").ephemeral("e"),
                    s().running("a", "a0").running("b", "b0").exited("i", "i0", 0),
                ),
                "True",
            ),
            (
                "C.8.4",
                "one ended",
                scene(ab(), s().exited("a", "a0", 1).running("b", "b0")),
                "False ContainersNotReady containers with unready status: [a]",
            ),
            (
                "C.8.10",
                "completed",
                scene(ab().policy("Never"), s().exited("a", "a0", 0).exited("b", "b0", 0)),
                "False PodCompleted",
            ),
            (
                "C.8.10",
                "failed",
                scene(ab().policy("Never"), s().exited("a", "a0", 1).exited("b", "b0", 0)),
                "False PodFailed",
            ),
            (
                "C.8.10",
                "final, though it still runs",
                scene(ab(), s().running("a", "a0").running("b", "b0")).base(status("Failed")),
                "False PodFailed",
            ),
        ],
        |status| {
            // Rule C.8.5: without gates Ready says what ContainersReady says.
            assert_eq!(condition(status, "Ready"), condition(status, "ContainersReady"));
            condition(status, "ContainersReady")
        },
    );
}

#[test]
fn readiness_gates_hold_ready_back() {
    let gated = || pod().regular("a").gate("example.com/one").gate("example.com/two");
    let s = || view().ready("s").running("a", "a0");
    check(
        &[
            (
                "C.8.5",
                "no such conditions",
                scene(gated(), s()),
                "False ReadinessGatesNotReady corresponding condition of pod readiness gate \"example.com/one\" does \
                 not exist., corresponding condition of pod readiness gate \"example.com/two\" does not exist.",
            ),
            (
                "C.8.5",
                "one is false",
                scene(gated(), s()).base(
                    status("Running").condition("example.com/one", "True", 1).condition(
                        "example.com/two",
                        "False",
                        1,
                    ),
                ),
                "False ReadinessGatesNotReady the status of pod readiness gate \"example.com/two\" is not \"True\", \
                 but False",
            ),
            (
                "C.8.5",
                "all true",
                scene(gated(), s()).base(
                    status("Running").condition("example.com/one", "True", 1).condition(
                        "example.com/two",
                        "True",
                        1,
                    ),
                ),
                "True",
            ),
            (
                "C.8.5",
                "containers come first",
                scene(gated(), view().ready("s")),
                "False ContainersNotReady containers with unready status: [a]",
            ),
        ],
        |status| condition(status, "Ready"),
    );
}

#[test]
fn initialized() {
    let i = || pod().init("i").sidecar("s").regular("a");
    let s = || view().ready("s");
    check(
        &[
            ("C.8.6", "no init containers", scene(pod().regular("a"), view()), "True"),
            (
                "C.8.6",
                "none done",
                scene(i(), s()),
                "False ContainersNotInitialized containers with incomplete status: [i s]",
            ),
            (
                "C.8.6",
                "init done, sidecar not started",
                scene(i(), s().exited("i", "i0", 0)),
                "False ContainersNotInitialized containers with incomplete status: [s]",
            ),
            (
                "C.8.6",
                "init done, sidecar started",
                scene(i(), s().exited("i", "i0", 0).running("s", "s0")),
                "True",
            ),
            (
                "C.8.6",
                "a sidecar need not be ready",
                scene(pod().sidecar("s").readiness_probe().regular("a"), s().running("s", "s0")),
                "True",
            ),
            ("C.8.6", "a regular one runs", scene(i(), s().running("a", "a0")), "True"),
            ("C.8.6", "a regular one ended", scene(i(), s().exited("a", "a0", 1)), "True"),
            (
                "C.8.6",
                "completed",
                scene(
                    pod().init("i").regular("a").policy("Never"),
                    s().exited("i", "i0", 0).exited("a", "a0", 0),
                ),
                "True PodCompleted",
            ),
        ],
        |status| condition(status, "Initialized"),
    );
}

#[test]
fn sandbox_is_ready_to_start_containers() {
    let a = || pod().regular("a");
    check(
        &[
            ("C.3.8", "one ready", scene(a(), view().ready("s")), "True"),
            ("C.3.8", "none", scene(a(), view()), "False"),
            ("C.8.7", "stopped", scene(a(), view().stopped("s")), "False"),
            ("C.3.8", "two ready", scene(a(), view().ready("s0").ready("s1")), "False"),
            ("C.3.8", "an old one stopped", scene(a(), view().stopped("s0").ready("s1")), "True"),
            ("C.3.8", "newest not ready", scene(a(), view().ready("s0").stopped("s1")), "False"),
            ("C.3.8", "no address", scene(a(), view().ready("s").ips(&[])), "False"),
            (
                "C.3.8",
                "no network status at all",
                scene(a(), view().ready("s").ips(&[]).sandbox(|s| s.has_network_status = false)),
                "True",
            ),
            (
                "C.3.8",
                "host network needs no address",
                scene(
                    a().host_network(),
                    view().ready("s").ips(&[]).sandbox(|s| s.network = Some(SandboxNetwork::Node)),
                ),
                "True",
            ),
            (
                "C.3.8",
                "another network than the spec's",
                scene(a().host_network(), view().ready("s")),
                "False",
            ),
            (
                "C.3.8",
                "network mode unknown",
                scene(a(), view().ready("s").sandbox(|s| s.network = None)),
                "True",
            ),
        ],
        |status| condition(status, "PodReadyToStartContainers"),
    );
}

#[test]
fn times_change_with_the_status_only() {
    let a = || pod().regular("a");
    let runs = || view().ready("s").running("a", "a0");
    let ready_time = |scene: Scene| transition(&scene.derive(), "Ready");
    // Rule C.8.9.
    assert_eq!(
        ready_time(scene(a(), runs()).previous(status("Running").condition("Ready", "True", 5))),
        Some(5)
    );
    assert_eq!(
        ready_time(scene(a(), runs()).previous(status("Running").condition("Ready", "False", 5))),
        Some(NOW)
    );
    let both = scene(a(), runs())
        .base(status("Running").condition("Ready", "True", 3))
        .previous(status("Running").condition("Ready", "False", 5));
    assert_eq!(ready_time(both), Some(NOW), "what was shown last decides");
    assert_eq!(ready_time(scene(a(), runs()).base(status("Running").condition("Ready", "True", 3))), Some(3));
    // Rule C.8.12: the runtime's times where nothing was shown before.
    assert_eq!(ready_time(scene(a(), runs())), Some(1_000));
    assert_eq!(ready_time(scene(a(), view().ready("s").exited("a", "a0", 1))), Some(1_050));
    let status =
        scene(pod().init("i").regular("a"), view().ready("s").exited("i", "i0", 0).running("a", "a0"))
            .derive();
    assert_eq!(transition(&status, "Initialized"), Some(1_050));
    assert_eq!(transition(&status, "PodReadyToStartContainers"), Some(100));
    assert_eq!(transition(&status, "PodScheduled"), Some(100));
    assert_eq!(transition(&scene(a(), view()).derive(), "Ready"), Some(NOW), "nothing tells of any time");
}

#[test]
fn every_type_occurs_once_in_the_kubelets_order() {
    // Rules C.8.1, C.8.2.
    let base = status("Running")
        .condition("Ready", "True", 1)
        .condition("DisruptionTarget", "True", 2)
        .condition("example.com/gate", "Unknown", 3)
        .condition("PodResizePending", "True", 4)
        .condition("PodScheduled", "True", 5);
    let status =
        scene(pod().regular("a").generation(7), view().ready("s").running("a", "a0")).base(base).derive();
    let kinds: Vec<_> = status.conditions.iter().map(|condition| condition.r#type()).collect();
    assert_eq!(
        kinds,
        [
            "DisruptionTarget",
            "example.com/gate",
            "PodResizePending",
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodScheduled",
        ]
    );
    assert_eq!(transition(&status, "DisruptionTarget"), Some(2));
    // Rule C.8.3: the scheduler's time is kept.
    assert_eq!(
        (condition(&status, "PodScheduled").as_str(), transition(&status, "PodScheduled")),
        ("True", Some(5))
    );
}

#[test]
fn conditions_carry_the_observed_generation() {
    // Rule C.8.8.
    let runs = || view().ready("s").running("a", "a0");
    let status = scene(pod().regular("a").generation(7), runs()).derive();
    assert_eq!(status.observed_generation, Some(7));
    assert!(status.conditions.iter().all(|condition| condition.observed_generation == Some(7)));
    // Rule A.7.9: static pods have none.
    let status = scene(pod().regular("a").static_pod(), runs()).derive();
    assert_eq!((status.observed_generation, status.conditions[0].observed_generation), (None, None));
    assert!(status.conditions.iter().all(|condition| condition.last_probe_time.is_none()));
    let lower = scene(pod().regular("a").generation(7), runs()).previous(
        super::super::testing::status("Running").change(|status| status.observed_generation = Some(9)),
    );
    assert_eq!(lower.derive().observed_generation, Some(9), "never falls");
}

#[test]
fn clock_that_jumps_moves_neither_the_order_nor_what_was_shown() {
    // STAT-10: half a century back and forth, in the runtime's times and in our own.
    const HALF_A_CENTURY: i64 = 50 * 365 * 86_400;
    let view = view()
        .ready("s0")
        .sandbox(|first| (first.is_ready, first.created_at) = (false, at(HALF_A_CENTURY)))
        .ready("s1")
        .sandbox(|second| second.created_at = at(1))
        .exited("a", "a0", 1)
        .with(|first| first.created_at = at(2 * HALF_A_CENTURY))
        .exited("a", "a1", 2)
        .with(|second| (second.created_at, second.finished_at) = (at(1), at(HALF_A_CENTURY)))
        .running("a", "a2")
        .with(|third| (third.created_at, third.started_at) = (at(HALF_A_CENTURY), None));
    let scene = scene(pod().regular("a"), view);
    let first = scene.derive();
    assert_eq!(containers(&first), "a running a2 r2 ready started last=2/Error(a1)");
    assert_eq!(condition(&first, "PodReadyToStartContainers"), "True");
    for now in [NOW - HALF_A_CENTURY, 0, NOW + HALF_A_CENTURY, i64::MIN, i64::MAX] {
        let later = derive(&StatusInputs { previous: Some(&first), now, ..scene.inputs() });
        assert_eq!(later, first, "at {now}");
    }
}
