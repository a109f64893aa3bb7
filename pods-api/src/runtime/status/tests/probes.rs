//! `started` and `ready` (rules C.5, C.6).

use super::super::testing::*;

#[test]
fn probes_are_neither_invented_nor_inherited() {
    let plain = || pod().regular("a");
    let readiness = || plain().readiness_probe();
    let startup = || plain().startup_probe();
    let runs = || view().ready("s").running("a", "a0");
    let replaced = || view().ready("s").exited("a", "a0", 1).running("a", "a1");
    check(
        &[
            ("C.6.1", "no probes", scene(plain(), runs()), "a running a0 r0 ready started"),
            ("C.6.4", "readiness probe, no word", scene(readiness(), runs()), "a running a0 r0 started"),
            ("C.6.4", "startup probe, no word", scene(startup(), runs()), "a running a0 r0"),
            ("C.6.2", "both, no word", scene(startup().readiness_probe(), runs()), "a running a0 r0"),
            (
                "C.6.2",
                "the kubelet's word of this container",
                scene(readiness(), runs()).base(status("Running").running("a", "a0").ready()),
                "a running a0 r0 ready started",
            ),
            // kubernetes issues 141155 and 141473: readiness inherited by a replacement.
            (
                "C.6.2",
                "the kubelet's word of the container before",
                scene(readiness(), replaced()).base(status("Running").running("a", "a0").ready()),
                "a running a1 r1 started last=1/Error(a0)",
            ),
            (
                "C.6.2",
                "the same with a startup probe",
                scene(startup(), replaced()).base(status("Running").running("a", "a0").ready()),
                "a running a1 r1 last=1/Error(a0)",
            ),
            (
                "C.6.3",
                "not running is not ready, whatever the kubelet says",
                scene(readiness(), view().ready("s").exited("a", "a0", 0))
                    .base(status("Running").running("a", "a0").ready()),
                "a 0/Completed a0 r0",
            ),
            (
                "C.6.5",
                "once started, started while it runs",
                scene(startup(), runs()).previous(status("Running").running("a", "a0").started()),
                "a running a0 r0 ready started",
            ),
            (
                "C.6.5",
                "but not its replacement",
                scene(startup(), replaced()).previous(status("Running").running("a", "a0").started()),
                "a running a1 r1 last=1/Error(a0)",
            ),
            // STAT-1: this server was restarted; readiness is the kubelet's to tell, and an old answer is none.
            (
                "C.6.2",
                "readiness shown before is no source",
                scene(readiness(), runs()).previous(status("Running").running("a", "a0").ready()),
                "a running a0 r0 started",
            ),
            (
                "C.6.2",
                "an entry that does not run",
                scene(readiness(), runs())
                    .base(status("Running").waiting("a", "a0", "").with(|entry| entry.ready = Some(true))),
                "a running a0 r0 started",
            ),
        ],
        containers,
    );
}

#[test]
fn roles_have_their_own_readiness() {
    let s = || view().ready("s");
    check(
        &[
            (
                "C.5.5",
                "init container runs",
                scene(pod().init("i").regular("a"), s().running("i", "i0")),
                "i running i0 r0 started | a waiting(PodInitializing) r0",
            ),
            (
                "C.5.5",
                "init container done",
                scene(pod().init("i").regular("a"), s().exited("i", "i0", 0)),
                "i 0/Completed i0 r0 ready | a waiting(PodInitializing) r0",
            ),
            (
                "C.5.5",
                "init container failed",
                scene(pod().init("i").regular("a"), s().exited("i", "i0", 1)),
                "i 1/Error i0 r0 | a waiting(PodInitializing) r0",
            ),
            (
                "C.5.1",
                "sidecar as a regular one",
                scene(pod().sidecar("s").regular("a"), s().running("s", "s0")),
                "s running s0 r0 ready started | a waiting(PodInitializing) r0",
            ),
            (
                "C.6.4",
                "sidecar with a readiness probe",
                scene(pod().sidecar("s").readiness_probe().regular("a"), s().running("s", "s0")),
                "s running s0 r0 started | a waiting(PodInitializing) r0",
            ),
            (
                "C.5.6",
                "ephemeral container",
                scene(pod().regular("a").ephemeral("e"), s().running("a", "a0").running("e", "e0")),
                "a running a0 r0 ready started | e running e0 r0",
            ),
        ],
        containers,
    );
    let status = scene(pod().regular("a").ephemeral("e"), s().running("a", "a0").running("e", "e0")).derive();
    // Rules C.5.1 and C.5.6: `started` is always set, but never for ephemeral containers.
    assert_eq!(status.container_statuses[0].started, Some(true));
    assert_eq!(status.ephemeral_container_statuses[0].started, None);
}
