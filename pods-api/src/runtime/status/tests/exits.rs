//! What an exit event alone may change.

use super::super::testing::*;

#[test]
fn event_ends_the_container_and_nothing_else() {
    let a = || pod().regular("a");
    let s = || view().ready("s");
    check(
        &[
            ("exit event", "regular", scene(a(), s().running("a", "a0").event_exit(7)), "a 7/ a0 r0"),
            (
                "exit event",
                "restart count and last state wait",
                scene(a(), s().exited("a", "a0", 1).running("a", "a1").event_exit(2)),
                "a 2/ a1 r1 last=1/Error(a0)",
            ),
            (
                "C.5.5",
                "an init container with exit 0 is ready",
                scene(pod().init("i").regular("a"), s().running("i", "i0").event_exit(0)),
                "i 0/ i0 r0 ready | a waiting(PodInitializing) r0",
            ),
            (
                "C.5.5",
                "an init container that failed is not",
                scene(pod().init("i").regular("a"), s().running("i", "i0").event_exit(1)),
                "i 1/ i0 r0 | a waiting(PodInitializing) r0",
            ),
            (
                "exit event",
                "the kubelet still says that it runs",
                scene(a(), s().running("a", "a0").event_exit(7))
                    .base(status("Running").running("a", "a0").ready()),
                "a 7/ a0 r0",
            ),
            (
                "exit event",
                "the kubelet knew first",
                scene(a(), s().running("a", "a0").event_exit(7))
                    .base(status("Running").terminated("a", "a0", 7, "Error")),
                "a 7/Error a0 r0",
            ),
            (
                "exit event",
                "of a container that was only known as made",
                scene(a(), s().created("a", "a0").event_exit(127)),
                "a 127/ a0 r0",
            ),
            (
                "C.4.3",
                "removed before the runtime gave a reason",
                scene(a(), s()).previous(status("Running").terminated("a", "a0", 7, "")),
                "a 7/Error a0 r0",
            ),
            (
                "C.4.3",
                "replaced before the runtime gave a reason",
                scene(a(), s().running("a", "a1").restarts(1))
                    .previous(status("Running").terminated("a", "a0", 0, "")),
                "a running a1 r1 ready started last=0/Completed(a0)",
            ),
        ],
        containers,
    );
}

#[test]
fn event_moves_conditions_but_not_the_phase() {
    let text = |status: &super::super::v1::PodStatus| {
        format!("{} / {}", status.phase(), condition(status, "ContainersReady"))
    };
    let one = || view().ready("s").running("a", "a0").event_exit(0);
    check(
        &[
            (
                "exit event",
                "the phase stays",
                scene(pod().regular("a").policy("Never"), one()),
                "Running / False ContainersNotReady containers with unready status: [a]",
            ),
            (
                "exit event",
                "also beside the kubelet's word",
                scene(pod().regular("a").policy("Never"), one())
                    .base(status("Pending").running("a", "a0").pod_ips(&["10.0.0.1"])),
                "Pending / False ContainersNotReady containers with unready status: [a]",
            ),
            (
                "exit event",
                "also when an ephemeral container was the last to run",
                scene(
                    pod().regular("a").policy("Never").ephemeral("e"),
                    view().ready("s").exited("a", "a0", 0).running("e", "e0").event_exit(0),
                ),
                "Running / False ContainersNotReady containers with unready status: [a]",
            ),
        ],
        text,
    );
    let init =
        scene(pod().init("i").regular("a"), view().ready("s").running("i", "i0").event_exit(0)).derive();
    assert_eq!((init.phase(), condition(&init, "Initialized").as_str()), ("Pending", "True"));
}

#[test]
fn event_gives_code_and_time() {
    let status = scene(pod().regular("a"), view().ready("s").running("a", "a0").event_exit(9)).derive();
    let ended = status.container_statuses[0].state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((ended.exit_code(), ended.started_at.unwrap().seconds()), (9, 1_000));
    assert_eq!((ended.finished_at.unwrap().seconds(), ended.container_id()), (9_000, "containerd://a0"));
}

#[test]
fn event_counts_for_the_newest_container_that_is_not_known_to_have_ended() {
    use super::super::Exit;
    let exit = Exit { code: 1, at: None };
    let mut runtime = view().ready("s").exited("a", "a0", 0).running("a", "a1").build();
    assert!(!runtime.record_exit(&"a0".into(), exit), "not the newest");
    assert!(!runtime.record_exit(&"unheard of".into(), exit));
    assert!(runtime.record_exit(&"a1".into(), exit));
    assert!(!runtime.record_exit(&"a1".into(), Exit { code: 2, at: None }), "once");
    assert!(!runtime.runs_a_container());
    let mut runtime = view().ready("s").exited("a", "a0", 0).build();
    assert!(!runtime.record_exit(&"a0".into(), exit), "known already");
}
