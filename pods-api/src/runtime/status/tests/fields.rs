//! The lesser fields of a status.

use super::super::testing::*;
use super::super::{Resources, User, v1};

fn only(scene: &Scene) -> v1::ContainerStatus {
    scene.derive().container_statuses.remove(0)
}

#[test]
fn image_id_and_times_are_the_runtimes() {
    let entry = only(&scene(pod().regular("a"), view().ready("s").exited("a", "a0", 1)));
    // Rule C.2.4.
    assert_eq!(
        (entry.image(), entry.image_id(), entry.container_id()),
        ("docker.io/library/a:1", "sha256:a", "containerd://a0")
    );
    // Rule C.2.6: whole seconds.
    let ended = entry.state.unwrap().terminated.unwrap();
    assert_eq!((ended.started_at.unwrap().seconds, ended.started_at.unwrap().nanos), (Some(1_000), None));
    assert_eq!(ended.finished_at.unwrap().seconds(), 1_050);
    // Rule C.2.9.
    assert_eq!(ended.signal, None);
}

#[test]
fn times_of_zero_are_no_times() {
    // CRI-1.
    let odd = view().ready("s").sandbox(|s| s.created_at = None).exited("a", "a0", 1).with(|a| {
        (a.created_at, a.started_at, a.finished_at) = (at(-1), at(-1), super::super::UnixNanos::new(0));
    });
    let status = scene(pod().regular("a"), odd).derive();
    let ended = status.container_statuses[0].state.as_ref().unwrap().terminated.as_ref().unwrap();
    assert_eq!((ended.started_at, ended.finished_at, status.start_time), (None, None, None));
}

#[test]
fn start_time_is_the_kubelets_else_the_first_sandboxs() {
    // Rule C.8.11.
    let two = || view().stopped("s0").ready("s1");
    let start = |scene: Scene| scene.derive().start_time.map(|time| time.seconds());
    let told = |seconds| {
        status("Pending").change(move |s| s.start_time = Some(super::super::convert::seconds(seconds)))
    };
    assert_eq!(start(scene(pod().regular("a"), two())), Some(100));
    assert_eq!(start(scene(pod().regular("a"), view())), None);
    assert_eq!(start(scene(pod().regular("a"), two()).previous(told(50))), Some(50));
    assert_eq!(start(scene(pod().regular("a"), two()).previous(told(50)).base(told(40))), Some(40));
}

#[test]
fn qos_class_once_shown_stays() {
    // Rule C.9.1.
    let shown = |class: &'static str| status("Pending").change(move |s| s.qos_class = Some(class.to_owned()));
    let class = |scene: Scene| scene.derive().qos_class().to_owned();
    assert_eq!(class(scene(pod().regular("a"), view())), "BestEffort");
    assert_eq!(class(scene(pod().regular("a"), view()).previous(shown("Burstable"))), "Burstable");
    assert_eq!(
        class(scene(pod().regular("a"), view()).previous(shown("Burstable")).base(shown("Guaranteed"))),
        "Guaranteed"
    );
}

#[test]
fn resources_are_the_specs_unless_the_runtime_says_otherwise() {
    let spec = [("l.cpu", "500m"), ("l.memory", "64Mi"), ("r.cpu", "100m"), ("r.memory", "32Mi")];
    let actual = |resources: Resources| {
        let runtime = view().ready("s").running("a", "a0").with(|a| a.resources = Some(resources));
        let resources = only(&scene(pod().regular("a").resources(&spec), runtime)).resources.unwrap();
        let text = |list: &super::super::ResourceList| {
            list.iter()
                .map(|(name, value)| format!("{name}={}", value.string()))
                .collect::<Vec<_>>()
                .join(",")
        };
        format!("{} {}", text(&resources.limits), text(&resources.requests))
    };
    let same = Resources { cpu_period: 100_000, cpu_quota: 50_000, cpu_shares: 102, memory_limit: 64 << 20 };
    let as_in_spec = "cpu=500m,memory=64Mi cpu=100m,memory=32Mi";
    // Rule C.4.16: shares are rounded down from thousandths, and 102 of them are 100m.
    assert_eq!(actual(same), as_in_spec);
    assert_eq!(actual(Resources::default()), as_in_spec, "nothing said");
    let resized = Resources { cpu_quota: 100_000, cpu_shares: 512, memory_limit: 128 << 20, ..same };
    assert_eq!(actual(resized), "cpu=1,memory=128Mi cpu=500m,memory=32Mi");
    // Not running: the spec's.
    let ended = view().ready("s").exited("a", "a0", 0).with(|a| a.resources = Some(resized));
    let entry = only(&scene(pod().regular("a").resources(&spec), ended));
    assert_eq!(entry.resources, Some(requirements(&spec)));
    // Rule C.4.15.
    assert_eq!(entry.allocated_resources, requirements(&spec).requests);
    // Without limits in the spec none appear.
    let runtime = view().ready("s").running("a", "a0").with(|a| a.resources = Some(resized));
    let entry = only(&scene(pod().regular("a").resources(&[("r.cpu", "1")]), runtime));
    assert!(entry.resources.unwrap().limits.is_empty());
}

#[test]
fn tiny_cpu_values_are_the_specs() {
    // Rule C.4.16: a cgroup cannot express them.
    let tiny = Resources { cpu_period: 100_000, cpu_quota: 1_000, cpu_shares: 2, memory_limit: 0 };
    let runtime = view().ready("s").running("a", "a0").with(|a| a.resources = Some(tiny));
    let spec = [("l.cpu", "5m"), ("r.cpu", "1m")];
    let entry = only(&scene(pod().regular("a").resources(&spec), runtime));
    assert_eq!(entry.resources, Some(requirements(&spec)));
}

#[test]
fn user_and_stop_signal_come_from_the_runtime() {
    let user = User { uid: 65_534, gid: 65_534, groups: vec![7] };
    let runtime = || {
        view().ready("s").running("a", "a0").with(|a| {
            a.user = Some(user.clone());
            a.stop_signal = Some("SIGUSR1".into());
        })
    };
    let entry = only(&scene(pod().regular("a"), runtime()));
    // Rule C.4.17.
    assert_eq!(entry.user.unwrap().linux.unwrap().uid, Some(65_534));
    // Rule C.4.19: only where the pod names one does the kubelet tell it.
    assert_eq!(entry.stop_signal, None);
    let named = pod().regular("a").with(|container| {
        container.lifecycle =
            Some(v1::Lifecycle { stop_signal: Some("SIGUSR1".to_owned()), ..Default::default() });
    });
    assert_eq!(only(&scene(named, runtime())).stop_signal.as_deref(), Some("SIGUSR1"));
}

#[test]
fn volume_mounts_tell_how_far_read_only_reaches() {
    // Rule C.4.18.
    let mounts = |scene: &Scene| -> Vec<String> {
        let entry = only(scene);
        entry
            .volume_mounts
            .iter()
            .map(|m| format!("{} {}", m.mount_path(), m.recursive_read_only()))
            .collect()
    };
    let spec = || pod().regular("a").mount("/rw", false).mount("/ro", true).mount("/rro", true);
    let runtime = || view().ready("s").running("a", "a0").mounted("/ro", false).mounted("/rro", true);
    assert_eq!(mounts(&scene(spec(), runtime())), ["/rw ", "/ro Disabled", "/rro Enabled"]);
    assert_eq!(mounts(&scene(spec(), view())), ["/rw ", "/ro Disabled", "/rro Disabled"]);
    let kept = v1::VolumeMountStatus { mount_path: Some("/as-before".to_owned()), ..Default::default() };
    let before = status("Running").running("a", "a0").with(|entry| entry.volume_mounts = vec![kept]);
    assert_eq!(mounts(&scene(spec(), runtime()).previous(before)), ["/as-before "]);
}

#[test]
fn termination_messages_share_a_bound() {
    // Rule C.2.8.
    let long = "ä".repeat(10_000);
    let runtime = |names: &[&str]| {
        names.iter().fold(view().ready("s"), |view, name| {
            view.exited(name, &format!("{name}0"), 1)
                .with(|container| container.message = long.as_str().into())
        })
    };
    let message = |scene: &Scene| {
        let entry = only(scene);
        entry.state.unwrap().terminated.unwrap().message.unwrap().len()
    };
    assert_eq!(message(&scene(pod().regular("a"), runtime(&["a"]))), 12_288);
    let four = pod().regular("a").regular("b").regular("c").init("i").init("j");
    assert_eq!(message(&scene(four, runtime(&["a", "b"]))), 2_456, "a fifth, at a character's border");
}
