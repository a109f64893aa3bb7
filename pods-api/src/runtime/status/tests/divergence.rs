//! Which differences between a derived status and the kubelet's own are counted.

use super::super::testing::*;
use super::super::{Field, divergence};

fn fields(scene: &Scene) -> Option<Vec<Field>> {
    divergence(&scene.inputs())
}

#[test]
fn own_derivation_agrees_with_itself() {
    let runtime = || view().ready("s").exited("a", "a0", 1).running("a", "a1").running("b", "b0");
    let derived = scene(pod().regular("a").regular("b"), runtime()).derive();
    let mut scene = scene(pod().regular("a").regular("b"), runtime());
    assert_eq!(fields(&scene), None, "nothing to compare with");
    scene.base = Some(derived);
    assert_eq!(fields(&scene), Some(vec![]));
    let base = scene.base.as_mut().unwrap();
    base.phase = Some("Pending".to_owned());
    base.container_statuses[0].restart_count = Some(7);
    base.container_statuses[1].image_id = None;
    assert_eq!(fields(&scene), Some(vec![Field::Phase, Field::RestartCount, Field::ImageId]));
}

#[test]
fn what_only_the_kubelet_knows_is_no_difference() {
    let probed = || pod().regular("a").readiness_probe();
    let runtime = || view().ready("s").running("a", "a0");
    let mut base = scene(probed(), runtime()).derive();
    base.container_statuses[0].ready = Some(true);
    for condition in &mut base.conditions {
        condition.status = Some("True".to_owned());
    }
    let mut probed = scene(probed(), runtime());
    probed.base = Some(base);
    assert_eq!(fields(&probed), Some(vec![]));
    // Rule C.4.12: waiting reasons too.
    let crashed = view().ready("s").exited("a", "a0", 1);
    let mut base = scene(pod().regular("a"), crashed.clone()).derive();
    let entry = &mut base.container_statuses[0];
    entry.last_state =
        entry.state.replace(super::super::convert::waiting_state("CrashLoopBackOff", "back-off"));
    let mut waits = scene(pod().regular("a"), crashed);
    waits.base = Some(base);
    assert_eq!(fields(&waits), Some(vec![]));
}

#[test]
fn statuses_of_different_times_are_not_compared() {
    let runs = |id: &'static str| status("Failed").running("a", id);
    let scene_with = |base| scene(pod().regular("a"), view().ready("s").exited("a", "a0", 1)).base(base);
    assert_eq!(fields(&scene_with(runs("a0"))), None, "the kubelet has not seen the end");
    assert_eq!(fields(&scene_with(runs("a1"))), None, "the runtime's answer is older");
    assert!(
        fields(&scene_with(status("Failed").terminated("a", "a0", 1, "Error")))
            .is_some_and(|it| !it.is_empty())
    );
}
