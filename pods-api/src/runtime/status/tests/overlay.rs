//! The kubelet's word and what the runtime knows to be newer (rules C.4.12, C.11).

use super::super::testing::*;

#[test]
fn kubelets_word_stands_where_the_runtime_knows_nothing_newer() {
    let a = || pod().regular("a");
    let crash =
        || status("Running").waiting("a", "a1", "CrashLoopBackOff").restarts(1).last("a1", 2, "Error");
    let base_running = || status("Running").running("a", "a0").ready();
    let runs = || view().ready("s").running("a", "a0");
    check(
        &[
            (
                "C.11.1",
                "same container, same state",
                scene(a(), runs()).base(base_running()),
                "a running a0 r0 ready started",
            ),
            (
                "C.6.2",
                "probes are the kubelet's",
                scene(a().readiness_probe(), runs()).base(status("Running").running("a", "a0").started()),
                "a running a0 r0 started",
            ),
            (
                "C.4.12",
                "CrashLoopBackOff of the newest container",
                scene(a(), view().ready("s").exited("a", "a0", 1).exited("a", "a1", 2)).base(crash()),
                "a waiting(CrashLoopBackOff) a1 r1 last=2/Error(a1)",
            ),
            (
                "C.4.12",
                "ImagePullBackOff without a container",
                scene(a(), view().ready("s")).base(status("Pending").waiting("a", "", "ImagePullBackOff")),
                "a waiting(ImagePullBackOff) r0",
            ),
            (
                "C.4.13",
                "a higher count shown before",
                scene(a(), runs())
                    .base(base_running())
                    .previous(status("Running").running("a", "a0").restarts(3)),
                "a running a0 r3 ready started",
            ),
            // STAT-4: the reason came after the exit, and the kubelet read too early.
            (
                "C.4.3",
                "late lack of memory",
                scene(a(), view().ready("s").exited("a", "a0", 137).reason("OOMKilled"))
                    .base(status("Running").terminated("a", "a0", 137, "Error")),
                "a 137/OOMKilled a0 r0",
            ),
            (
                "C.4.3",
                "late lack of memory in the last state",
                scene(a(), view().ready("s").exited("a", "a1", 137).restarts(1).reason("OOMKilled")).base(
                    status("Running")
                        .waiting("a", "a1", "CrashLoopBackOff")
                        .restarts(1)
                        .last("a1", 137, "Error"),
                ),
                "a waiting(CrashLoopBackOff) a1 r1 last=137/OOMKilled(a1)",
            ),
            (
                "C.4.2",
                "the runtime does not know: the kubelet does",
                scene(a(), view().ready("s").unknown("a", "a0")).base(base_running()),
                "a running a0 r0 ready started",
            ),
            (
                "C.11.3",
                "a running container newer than the read",
                scene(a(), view().ready("s")).newer_base(base_running()),
                "a running a0 r0 ready started",
            ),
            (
                "C.11.3",
                "a restarted container newer than the read",
                scene(a(), view().ready("s").exited("a", "a0", 1)).newer_base(
                    status("Running").running("a", "a1").ready().restarts(1).last("a0", 1, "Error"),
                ),
                "a running a1 r1 ready started last=1/Error(a0)",
            ),
            (
                "B.3.4",
                "a final status without runtime objects",
                scene(a(), view()).base(status("Failed").running("a", "a0")),
                "a running a0 r0",
            ),
            // Rule B.3.5: a pod rejected at admission has no containers to tell of.
            ("B.3.5", "rejected at admission", scene(a(), view()).base(status("Failed")), ""),
        ],
        containers,
    );
}

#[test]
fn runtimes_newer_knowledge_is_laid_over() {
    let a = || pod().regular("a");
    let base_running = || status("Running").running("a", "a0").ready();
    check(
        &[
            (
                "C.6.3",
                "it ended",
                scene(a(), view().ready("s").exited("a", "a0", 7)).base(base_running()),
                "a 7/Error a0 r0",
            ),
            (
                "C.4.12",
                "it was started again after the back-off",
                scene(a(), view().ready("s").exited("a", "a0", 1).running("a", "a1"))
                    .base(status("Running").waiting("a", "a0", "CrashLoopBackOff").last("a0", 1, "Error")),
                "a running a1 r1 ready started last=1/Error(a0)",
            ),
            (
                "C.4.7",
                "another container of that name",
                scene(a(), view().ready("s").exited("a", "a0", 0).running("a", "a1")).base(base_running()),
                "a running a1 r1 ready started last=0/Completed(a0)",
            ),
            (
                "C.4.1",
                "the first one began",
                scene(a(), view().ready("s").running("a", "a0")).base(status("Pending").waiting(
                    "a",
                    "",
                    "ContainerCreating",
                )),
                "a running a0 r0 ready started",
            ),
            (
                "C.4.1",
                "the next one is made, not started",
                scene(a(), view().ready("s").exited("a", "a0", 1).created("a", "a1"))
                    .base(status("Running").waiting("a", "a0", "CrashLoopBackOff").last("a0", 1, "Error")),
                "a waiting() a1 r1 last=1/Error(a0)",
            ),
            (
                "C.4.1",
                "it runs, the kubelet saw it made",
                scene(a(), view().ready("s").exited("a", "a0", 1).running("a", "a1"))
                    .base(status("Running").waiting("a", "a1", "").restarts(1).last("a0", 1, "Error")),
                "a running a1 r1 ready started last=1/Error(a0)",
            ),
            (
                "C.11.3",
                "gone from the runtime since the kubelet wrote",
                scene(a(), view().ready("s")).base(base_running()),
                "a waiting(ContainerCreating) r1 last=137/ContainerStatusUnknown()",
            ),
            (
                "C.4.7",
                "the kubelet's container is gone, an older one is not: the runtime has the last word",
                scene(a(), view().ready("s").running("a", "b").restarts(2)).base(base_running()),
                "a running b r2 ready started",
            ),
            // STAT-9: an old kubelet shows its static pods as pending for ever.
            (
                "B.5.3",
                "static pod pending for ever",
                scene(a().static_pod(), view().ready("s").running("a", "a0")).base(status("Pending")),
                "a running a0 r0 ready started",
            ),
            (
                "C.4.5",
                "what was laid over before is not forgotten with the container",
                scene(a().policy("Never"), view().ready("s"))
                    .base(base_running())
                    .previous(status("Running").terminated("a", "a0", 7, "Error")),
                "a 7/Error a0 r0",
            ),
            (
                "C.11.1",
                "one container newer, the other as the kubelet says",
                scene(a().regular("b"), view().ready("s").exited("a", "a0", 1).running("b", "b0"))
                    .base(base_running().running("b", "b0").started()),
                "a 1/Error a0 r0, b running b0 r0 started",
            ),
        ],
        containers,
    );
}

#[test]
fn fields_of_the_kubelet_survive_an_overlay() {
    let base = status("Running").running("a", "a0").ready().host_ips(&["192.0.2.1"]).change(|status| {
        status.nominated_node_name = Some("n".to_owned());
        status.resize = Some("Proposed".to_owned());
        status.start_time = Some(super::super::convert::seconds(42));
        status.qos_class = Some("Guaranteed".to_owned());
        status.observed_generation = Some(3);
        status.message = Some("from the kubelet".to_owned());
    });
    let scene = scene(pod().regular("a").generation(4), view().ready("s").exited("a", "a0", 1)).base(base);
    let status = scene.derive();
    // Rules C.4.20, C.9.1, C.8.11, C.3.6.
    assert_eq!(
        (status.nominated_node_name(), status.resize(), status.qos_class()),
        ("n", "Proposed", "Guaranteed")
    );
    assert_eq!((status.start_time.unwrap().seconds(), status.host_i_ps.len()), (42, 1));
    // Rule C.8.8: what the kubelet has not taken in is not observed.
    assert_eq!(status.observed_generation(), 3);
    // Rule C.7.9: the phase is the same, so its message is too.
    assert_eq!((status.phase(), status.message()), ("Running", "from the kubelet"));
}

#[test]
fn message_of_another_phase_is_dropped() {
    // Rule C.7.9.
    let base = status("Running").running("a", "a0").change(|status| status.reason = Some("Odd".to_owned()));
    let status =
        scene(pod().regular("a").policy("Never"), view().ready("s").exited("a", "a0", 1)).base(base).derive();
    assert_eq!((status.phase(), status.reason()), ("Failed", ""));
}

#[test]
fn sandbox_may_end_alone() {
    // Rule C.11.1.
    let base = || {
        status("Running").running("a", "a0").ready().started().condition(
            "PodReadyToStartContainers",
            "True",
            5,
        )
    };
    let text = |status: &super::super::v1::PodStatus| {
        format!("{} / {}", condition(status, "PodReadyToStartContainers"), containers(status))
    };
    let (runs, sandbox_ended) =
        (|| view().ready("s").running("a", "a0"), || view().stopped("s").running("a", "a0"));
    check(
        &[
            (
                "C.11.1",
                "the kubelet has not heard",
                scene(pod().regular("a"), sandbox_ended()).base(base()),
                "False / a running a0 r0 ready started",
            ),
            (
                "C.11.1",
                "the kubelet's word is the newer",
                scene(pod().regular("a"), sandbox_ended()).newer_base(base()),
                "True / a running a0 r0 ready started",
            ),
            (
                "C.11.1",
                "it is there",
                scene(pod().regular("a"), runs()).base(base()),
                "True / a running a0 r0 ready started",
            ),
        ],
        text,
    );
}
