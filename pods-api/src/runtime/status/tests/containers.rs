//! Container states where no kubelet's word exists (rules C.4).

use super::super::testing::*;

#[test]
fn state_follows_the_newest_container() {
    let a = || pod().regular("a");
    check(
        &[
            (
                "C.4.1",
                "running",
                scene(a(), view().ready("s").running("a", "a0")),
                "a running a0 r0 ready started",
            ),
            (
                "C.4.1",
                "created waits without a reason",
                scene(a(), view().ready("s").created("a", "a0")),
                "a waiting() a0 r0",
            ),
            (
                "C.4.1",
                "exited",
                scene(a(), view().ready("s").exited("a", "a0", 7).reason("Error")),
                "a 7/Error a0 r0",
            ),
            (
                "C.4.3",
                "no reason, exit 0",
                scene(a(), view().ready("s").exited("a", "a0", 0)),
                "a 0/Completed a0 r0",
            ),
            (
                "C.4.3",
                "no reason, exit 1",
                scene(a(), view().ready("s").exited("a", "a0", 1)),
                "a 1/Error a0 r0",
            ),
            (
                "C.4.3",
                "StartError",
                scene(a(), view().ready("s").exited("a", "a0", 128).reason("StartError")),
                "a 128/StartError a0 r0",
            ),
            (
                "C.4.3",
                "a child killed for memory under a shell that exits 0",
                scene(a(), view().ready("s").exited("a", "a0", 0).reason("OOMKilled")),
                "a 0/OOMKilled a0 r0",
            ),
            // STAT-5: 137 alone is no lack of memory.
            ("C.4.3", "kill -9", scene(a(), view().ready("s").exited("a", "a0", 137)), "a 137/Error a0 r0"),
            (
                "C.4.7",
                "the second newest is the last state",
                scene(a(), view().ready("s").exited("a", "a0", 1).running("a", "a1")),
                "a running a1 r1 ready started last=1/Error(a0)",
            ),
            (
                "C.4.7",
                "older ones are ignored",
                scene(a(), view().ready("s").exited("a", "a0", 1).exited("a", "a1", 2).exited("a", "a2", 3)),
                "a 3/Error a2 r2 last=2/Error(a1)",
            ),
            (
                "C.4.8",
                "containers of an old sandbox count",
                scene(a(), view().stopped("s0").exited("a", "a0", 255).ready("s1").running("a", "a1")),
                "a running a1 r1 ready started last=255/Error(a0)",
            ),
            // CRI-2: whatever order and creation times they come in, the newer attempt is current.
            (
                "C.2.2",
                "a clock set back",
                scene(
                    a(),
                    view().ready("s").running("a", "a1").restarts(1).exited("a", "a0", 2).restarts(0).with(
                        |old| {
                            old.created_at = at(5_000);
                        },
                    ),
                ),
                "a running a1 r1 ready started last=2/Error(a0)",
            ),
            (
                "C.2.2",
                "equal attempts: the later one",
                scene(
                    a(),
                    view().ready("s").running("a", "b").restarts(0).exited("a", "c", 2).restarts(0).with(
                        |old| {
                            old.created_at = at(1);
                        },
                    ),
                ),
                "a running b r0 ready started last=2/Error(c)",
            ),
            (
                "C.1.8",
                "names outside the spec are ignored",
                scene(a(), view().ready("s").running("POD", "p")),
                "a waiting(ContainerCreating) r0",
            ),
            (
                "C.2.5",
                "the restart count is the annotation's",
                scene(a(), view().ready("s").running("a", "a0").with(|c| c.restart_count = 9)),
                "a running a0 r9 ready started",
            ),
        ],
        containers,
    );
}

#[test]
fn container_without_a_trace_waits() {
    let two = || pod().regular("b").regular("a");
    check(
        &[
            ("C.4.4", "nothing yet", scene(pod().regular("a"), view()), "a waiting(ContainerCreating) r0"),
            (
                "C.4.4",
                "init containers first, the init container itself too",
                scene(pod().init("i").regular("a"), view()),
                "i waiting(PodInitializing) r0 | a waiting(PodInitializing) r0",
            ),
            (
                "C.4.4",
                "ephemeral ones too",
                scene(pod().regular("a").ephemeral("e"), view().ready("s").running("a", "a0")),
                "a running a0 r0 ready started | e waiting(ContainerCreating) r0",
            ),
            (
                "C.4.14",
                "regular ones by name",
                scene(two(), view()),
                "a waiting(ContainerCreating) r0, b waiting(ContainerCreating) r0",
            ),
            (
                "C.4.14",
                "init containers as in the spec",
                scene(pod().init("z").init("y").regular("a"), view()),
                "z waiting(PodInitializing) r0, y waiting(PodInitializing) r0 | a waiting(PodInitializing) r0",
            ),
            (
                "C.4.5",
                "an end once seen stays",
                scene(pod().regular("a"), view().ready("s")).previous(
                    status("Running").terminated("a", "a0", 3, "Error").restarts(2).last("a-", 1, "Error"),
                ),
                "a 3/Error a0 r2 last=1/Error(a-)",
            ),
            (
                "C.4.5",
                "count and last state stay",
                scene(pod().regular("a"), view()).previous(
                    status("Pending")
                        .waiting("a", "", "ContainerCreating")
                        .restarts(4)
                        .last("a3", 1, "Error"),
                ),
                "a waiting(ContainerCreating) r4 last=1/Error(a3)",
            ),
        ],
        containers,
    );
}

#[test]
fn container_that_got_lost_is_told_of() {
    let was_running = || status("Running").running("a", "a0").ready();
    check(
        &[
            (
                "C.4.6",
                "removed while it ran",
                scene(pod().regular("a"), view().ready("s")).previous(was_running()),
                "a waiting(ContainerCreating) r1 last=137/ContainerStatusUnknown()",
            ),
            (
                "C.4.6",
                "of a deleted pod: no restart",
                scene(pod().regular("a").deleted(), view().ready("s")).previous(was_running()),
                "a waiting(ContainerCreating) r0 last=137/ContainerStatusUnknown()",
            ),
            (
                "C.4.6",
                "with a last state: that one stays",
                scene(pod().regular("a"), view().ready("s"))
                    .previous(was_running().restarts(1).last("a-", 2, "Error")),
                "a waiting(ContainerCreating) r1 last=2/Error(a-)",
            ),
            (
                "C.4.2",
                "unknown, was running",
                scene(pod().regular("a"), view().ready("s").unknown("a", "a0")).previous(was_running()),
                "a 137/ContainerStatusUnknown a0 r1",
            ),
            (
                "C.4.2",
                "unknown, and never seen running",
                scene(pod().regular("a"), view().ready("s").unknown("a", "a0")),
                "a waiting() a0 r0",
            ),
            (
                "C.4.9",
                "an init container that was cleaned away",
                scene(pod().init("i").regular("a"), view().ready("s").running("a", "a0")),
                "i 0/Completed r0 ready | a running a0 r0 ready started",
            ),
            (
                "C.4.9",
                "but not while the pod is not initialised",
                scene(pod().init("i").init("j").regular("a"), view().ready("s").running("j", "j0")),
                "i waiting(PodInitializing) r0, j running j0 r0 started | a waiting(PodInitializing) r0",
            ),
            (
                "C.4.9",
                "and never a sidecar",
                scene(pod().sidecar("s").regular("a"), view().ready("s").running("a", "a0")),
                "s waiting(PodInitializing) r0 | a running a0 r0 ready started",
            ),
            (
                "C.7.11",
                "at the end of a deleted pod",
                scene(
                    pod().regular("a").regular("b").deleted(),
                    view()
                        .stopped("s")
                        .exited("a", "a0", 0)
                        .created("b", "b0")
                        .with(|b| b.state = super::super::RunState::Exited),
                ),
                "a 0/Completed a0 r0, b 0/Completed b0 r0",
            ),
            (
                "C.7.11",
                "what was never seen to end",
                scene(pod().regular("a").regular("b").deleted(), view().stopped("s").exited("a", "a0", 0)),
                "a 0/Completed a0 r0, b 137/ContainerStatusUnknown r0",
            ),
            (
                "C.7.11",
                "a pod that was not initialised keeps waiting",
                scene(pod().init("i").regular("a").deleted(), view().stopped("s").exited("i", "i0", 1)),
                "i 1/Error i0 r0 | a waiting(PodInitializing) r0",
            ),
        ],
        containers,
    );
}

#[test]
fn restart_count_never_falls() {
    check(
        &[
            // STAT-2: dead containers removed, state wiped.
            (
                "C.4.13",
                "the runtime forgot",
                scene(pod().regular("a"), view().ready("s").running("a", "new").restarts(0))
                    .previous(status("Running").terminated("a", "a5", 1, "Error").restarts(5)),
                "a running new r5 ready started last=1/Error(a5)",
            ),
            (
                "C.4.13",
                "the old container was removed: its end becomes the last state",
                scene(pod().regular("a"), view().ready("s").running("a", "a6").restarts(6))
                    .previous(status("Running").terminated("a", "a5", 1, "Error").restarts(5)),
                "a running a6 r6 ready started last=1/Error(a5)",
            ),
            (
                "C.4.7",
                "the only one keeps the last state shown before",
                scene(pod().regular("a"), view().ready("s").running("a", "a6").restarts(6))
                    .previous(status("Running").running("a", "a6").restarts(6).last("a5", 1, "Error")),
                "a running a6 r6 ready started last=1/Error(a5)",
            ),
            // STAT-3: the mirror pod is deleted, and with it the API server's word.
            (
                "C.4.13",
                "the word that told of restarts is gone",
                scene(pod().regular("a").static_pod(), view().ready("s").running("a", "a0").restarts(0))
                    .previous(status("Running").running("a", "a0").restarts(4).last("z", 1, "Error")),
                "a running a0 r4 ready started last=1/Error(z)",
            ),
            // STAT-8: a regular container crashed beside a running sidecar.
            (
                "C.4.13",
                "count follows the runtime",
                scene(
                    pod().sidecar("s").regular("a"),
                    view().ready("s").running("s", "s0").exited("a", "a0", 1).exited("a", "a1", 1),
                ),
                "s running s0 r0 ready started | a 1/Error a1 r1 last=1/Error(a0)",
            ),
            // STAT-7: a sidecar that restarted in a pod that never restarts.
            (
                "C.4.7",
                "sidecar again",
                scene(
                    pod().sidecar("s").regular("a").policy("Never"),
                    view().ready("s").exited("s", "s0", 1).running("s", "s1").running("a", "a0"),
                ),
                "s running s1 r1 ready started last=1/Error(s0) | a running a0 r0 ready started",
            ),
        ],
        containers,
    );
}
