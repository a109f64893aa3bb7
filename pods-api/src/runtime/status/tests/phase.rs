//! The phase (rules C.7).

use super::super::testing::*;

#[test]
fn phase_follows_the_containers() {
    let ab = || pod().regular("a").regular("b");
    let never = |pod: PodBuilder| pod.policy("Never");
    let s = || view().ready("s");
    let text = |status: &super::super::v1::PodStatus| status.phase().to_owned();
    check(
        &[
            ("C.7.10", "nothing known", scene(ab(), view()), "Pending"),
            ("C.7.5 rule 3", "none made", scene(ab(), s()), "Pending"),
            ("C.7.5 rule 3", "one waits that never ran", scene(ab(), s().running("a", "a0")), "Pending"),
            (
                "C.7.5 rule 3",
                "one made, not started",
                scene(ab(), s().running("a", "a0").created("b", "b0")),
                "Pending",
            ),
            ("C.7.5 rule 4", "both run", scene(ab(), s().running("a", "a0").running("b", "b0")), "Running"),
            (
                "C.7.5 rule 4",
                "one ended, one runs",
                scene(never(ab()), s().exited("a", "a0", 1).running("b", "b0")),
                "Running",
            ),
            (
                "C.7.6 a",
                "one waits after a crash, one runs",
                scene(ab(), s().exited("a", "a0", 1).running("b", "b0")).base(
                    status("Running")
                        .waiting("a", "a0", "CrashLoopBackOff")
                        .last("a0", 1, "Error")
                        .running("b", "b-"),
                ),
                "Running",
            ),
            (
                "C.7.6 b",
                "all crashed, Always",
                scene(ab(), s().exited("a", "a0", 1).exited("b", "b0", 1)),
                "Running",
            ),
            (
                "C.7.6 c",
                "ImagePullBackOff beside a running one",
                scene(ab(), s().running("a", "a0")).base(status("Pending").waiting(
                    "b",
                    "",
                    "ImagePullBackOff",
                )),
                "Pending",
            ),
            (
                "C.7.6 d",
                "Never, 0 and 1",
                scene(never(ab()), s().exited("a", "a0", 0).exited("b", "b0", 1)),
                "Failed",
            ),
            (
                "C.7.5 rule 5c",
                "Never, 0 and 0",
                scene(never(ab()), s().exited("a", "a0", 0).exited("b", "b0", 0)),
                "Succeeded",
            ),
            (
                "C.7.6 e",
                "OnFailure, exit 1",
                scene(ab().policy("OnFailure"), s().exited("a", "a0", 1).exited("b", "b0", 0)),
                "Running",
            ),
            (
                "C.7.5 rule 5c",
                "OnFailure, exit 0",
                scene(ab().policy("OnFailure"), s().exited("a", "a0", 0).exited("b", "b0", 0)),
                "Succeeded",
            ),
            (
                "C.7.5 rule 5b",
                "Always, exit 0",
                scene(ab(), s().exited("a", "a0", 0).exited("b", "b0", 0)),
                "Running",
            ),
            (
                "C.7.6 f",
                "static pod after the node's shutdown",
                scene(pod().regular("a").static_pod().deleted(), view().stopped("s").exited("a", "a0", 0)),
                "Running",
            ),
            (
                "C.7.5",
                "ephemeral containers never count",
                scene(
                    never(pod().regular("a").ephemeral("e")),
                    s().exited("a", "a0", 0).exited("e", "e0", 1),
                ),
                "Succeeded",
            ),
            (
                "C.4.11",
                "a rule starts it again in a pod that never restarts",
                scene(never(pod().regular("a").restart_rule("In", &[42])), s().exited("a", "a0", 42)),
                "Running",
            ),
            (
                "C.4.11",
                "no rule for this exit code",
                scene(never(pod().regular("a").restart_rule("NotIn", &[42])), s().exited("a", "a0", 42)),
                "Failed",
            ),
            (
                "C.4.11",
                "a container's own policy",
                scene(pod().regular("a").container_policy("Never"), s().exited("a", "a0", 0)),
                "Succeeded",
            ),
            (
                "C.4.6",
                "a lost container of a pod that never restarts",
                scene(never(pod().regular("a")), s()).previous(status("Running").running("a", "a0")),
                "Failed",
            ),
            (
                "C.4.6",
                "a lost container that is started again",
                scene(pod().regular("a"), s()).previous(status("Running").running("a", "a0")),
                "Running",
            ),
        ],
        text,
    );
}

#[test]
fn init_containers_come_first() {
    let i = || pod().init("i").regular("a");
    let sidecar = || pod().sidecar("s").regular("a");
    let s = || view().ready("s");
    let text = |status: &super::super::v1::PodStatus| status.phase().to_owned();
    check(
        &[
            ("C.7.2", "not made", scene(i(), s()), "Pending"),
            ("C.7.2", "running", scene(i(), s().running("i", "i0")), "Pending"),
            ("C.7.2", "failed for good", scene(i().policy("Never"), s().exited("i", "i0", 1)), "Failed"),
            ("C.7.2", "failed, started again", scene(i(), s().exited("i", "i0", 1)), "Pending"),
            (
                "C.7.2",
                "failed, OnFailure",
                scene(i().policy("OnFailure"), s().exited("i", "i0", 1)),
                "Pending",
            ),
            (
                "C.7.2",
                "failed, but a rule starts it again",
                scene(
                    pod().init("i").restart_rule("In", &[1]).policy("Never").regular("a"),
                    s().exited("i", "i0", 1),
                ),
                "Pending",
            ),
            ("C.7.2", "done, the regular one waits", scene(i(), s().exited("i", "i0", 0)), "Pending"),
            (
                "C.7.2",
                "done, the regular one runs",
                scene(i(), s().exited("i", "i0", 0).running("a", "a0")),
                "Running",
            ),
            (
                "C.7.2",
                "waiting after a failure",
                scene(i().policy("Never"), s().exited("i", "i0", 1)).base(
                    status("Pending").waiting("i", "i0", "CrashLoopBackOff").last("i0", 1, "Error").of_init(),
                ),
                "Failed",
            ),
            (
                "C.7.3",
                "sidecar runs, the regular one waits",
                scene(sidecar(), s().running("s", "s0")),
                "Pending",
            ),
            ("C.7.3", "both run", scene(sidecar(), s().running("s", "s0").running("a", "a0")), "Running"),
            (
                "C.7.3",
                "a sidecar not started holds back until a regular one exists",
                scene(pod().sidecar("s").startup_probe().regular("a"), s().running("s", "s0")),
                "Pending",
            ),
            (
                "C.7.3",
                "then no more",
                scene(
                    pod().sidecar("s").startup_probe().regular("a"),
                    s().running("s", "s0").running("a", "a0"),
                ),
                "Running",
            ),
            (
                "C.7.6 h",
                "regular ones done, sidecar runs",
                scene(sidecar().policy("Never"), s().running("s", "s0").exited("a", "a0", 0)),
                "Running",
            ),
            (
                "C.7.3",
                "a sidecar's end is ignored",
                scene(sidecar().policy("Never"), s().exited("s", "s0", 1).exited("a", "a0", 0)),
                "Succeeded",
            ),
            // STAT-6: after a reboot only the new sandbox counts.
            (
                "C.7.1",
                "init containers run anew in a new sandbox",
                scene(
                    i(),
                    view()
                        .stopped("s0")
                        .exited("i", "i0", 0)
                        .exited("a", "a0", 255)
                        .ready("s1")
                        .running("i", "i1"),
                )
                .previous(status("Running").running("a", "a0")),
                "Pending",
            ),
            (
                "C.7.1",
                "a sidecar in the new sandbox, regular one only in the old",
                scene(
                    pod().sidecar("s").startup_probe().regular("a"),
                    view()
                        .stopped("s0")
                        .exited("s", "x0", 0)
                        .exited("a", "a0", 255)
                        .ready("s1")
                        .running("s", "x1"),
                )
                .previous(status("Running").running("a", "a0")),
                "Pending",
            ),
        ],
        text,
    );
}

#[test]
fn final_phases_stay_and_wait_for_the_last_container() {
    let a = || pod().regular("a").policy("Never");
    let s = || view().ready("s");
    let text = |status: &super::super::v1::PodStatus| status.phase().to_owned();
    let evicted = || status("Failed").change(|status| status.reason = Some("Evicted".to_owned()));
    check(
        &[
            (
                "B.3.4",
                "the kubelet said Failed, it still runs",
                scene(a(), s().running("a", "a0")).base(evicted()),
                "Failed",
            ),
            (
                "B.3.4",
                "shown before as Succeeded",
                scene(a(), s().running("a", "a0")).previous(status("Succeeded")),
                "Succeeded",
            ),
            (
                "B.3.4",
                "the kubelet has not caught up",
                scene(a(), s().exited("a", "a0", 1))
                    .base(status("Running").terminated("a", "a0", 1, "Error").pod_ips(&["10.0.0.1"]))
                    .previous(status("Failed").terminated("a", "a0", 1, "Error")),
                "Failed",
            ),
            (
                "C.7.7",
                "an old container still runs",
                scene(a(), s().running("a", "a0").exited("a", "a1", 1))
                    .previous(status("Running").running("a", "a0")),
                "Running",
            ),
            (
                "C.7.7",
                "an ephemeral container still runs",
                scene(a().ephemeral("e"), s().exited("a", "a0", 0).running("e", "e0")),
                "Running",
            ),
            (
                "C.7.5 rule 5a",
                "deleted, all exited 0",
                scene(pod().regular("a").deleted(), view().stopped("s").exited("a", "a0", 0)),
                "Succeeded",
            ),
            (
                "C.7.5 rule 5a",
                "deleted, exit 143",
                scene(pod().regular("a").deleted(), view().stopped("s").exited("a", "a0", 143)),
                "Failed",
            ),
            (
                "C.7.8",
                "deleted, sandbox still ready",
                scene(pod().regular("a").deleted(), s().exited("a", "a0", 0)),
                "Running",
            ),
            (
                "C.7.8",
                "deleted, one still runs",
                scene(
                    pod().regular("a").regular("b").deleted(),
                    view().stopped("s").exited("a", "a0", 0).running("b", "b0"),
                ),
                "Running",
            ),
            (
                "C.7.8",
                "deleted, the kubelet has newer word of one that runs",
                scene(pod().regular("a").deleted(), view())
                    .newer_base(status("Running").running("a", "a0").ready()),
                "Running",
            ),
            ("C.7.7", "deleted before anything ran", scene(pod().regular("a").deleted(), view()), "Failed"),
            (
                "E.7.9",
                "no way back to Pending for a state that the runtime lost",
                scene(pod().regular("a").regular("b"), s().running("a", "a0").unknown("b", "b0"))
                    .previous(status("Running").running("a", "a0").waiting("b", "b0", "")),
                "Running",
            ),
        ],
        text,
    );
    // Rule B.3.6: what the kubelet said of an eviction stays.
    let status = scene(a(), s().exited("a", "a0", 137)).base(evicted()).derive();
    assert_eq!((status.reason(), containers(&status).as_str()), ("Evicted", "a 137/Error a0 r0"));
}
