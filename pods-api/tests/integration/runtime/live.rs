//! Status follows the runtime: by lists, by events, and by the kubelet's word where that is newer.

use std::time::Duration;

use pods_api_proto::k8s::io::api::core::v1;
use pods_api_proto::k8s::io::apimachinery::pkg::api::resource::Quantity;
use pods_api_proto::runtime::v1 as cri;

use super::bench::{Bench, pod};
use crate::harness::{PATIENCE, eventually};

/// So rare that only events can have found a change.
const NEVER: Duration = Duration::from_secs(3600);
const OFTEN: Duration = Duration::from_millis(30);

#[test]
fn list_finds_what_changed() {
    // CRI-6: this runtime is no Go server, and refuses an `:authority` that is a path.
    let bench = Bench::new(|state| {
        state.sandbox("p", "s");
        state.container("a0");
        state.has_native_events = false;
    });
    let bench = bench.start(OFTEN);
    bench.pods(&["p", "later"]);
    bench.wait_ready();
    bench.wait_for("p", "Running a:running(a0) r0 ready");
    bench.wait_for("later", "Pending a:waiting(ContainerCreating) r0");
    bench.with(|state| state.end("a0", 3, "Error"));
    bench.wait_for("p", "Running a:3/Error(a0) r0");
    bench.with(|state| {
        state.container("a1");
    });
    bench.wait_for("p", "Running a:running(a1) r1 ready last=3/Error");
    bench.with(|state| {
        state.sandbox("later", "t");
        state.container("b0");
    });
    bench.wait_for("later", "Running a:running(b0) r0 ready");
    // Nothing that was told on the way was false.
    let expected = [
        "Running a:running(a0) r0 ready",
        "Running a:3/Error(a0) r0",
        "Running a:running(a1) r1 ready last=3/Error",
    ];
    let history = bench.history("p");
    assert_eq!(history[history.len() - 3..], expected);
}

#[test]
fn exit_event_is_shown_before_the_runtime_admits_it() {
    let bench = Bench::with_one_running(NEVER);
    bench.wait_for_events();
    // A process executed in the container ends: nothing happens, whatever comes after it.
    bench.with(|state| state.send_exit("a0", "exec-1", 9));
    bench.with(|state| state.send_exit("a0", "a0", 7));
    // The runtime still says RUNNING: code and time are shown, the reason is not.
    bench.wait_for("p", "Running a:7/(a0) r0");
    let reads = bench.calls("ContainerStatus");
    eventually("reads that still find it running", PATIENCE, || {
        (bench.calls("ContainerStatus") > reads + 3).then_some(())
    });
    assert_eq!(bench.shown("p"), "Running a:7/(a0) r0");
    bench.with(|state| state.end("a0", 7, "Error"));
    bench.wait_for("p", "Running a:7/Error(a0) r0");
    let history = bench.history("p");
    let ends = history.iter().position(|text| text.contains("7/")).unwrap();
    assert_eq!(history[ends..], ["Running a:7/(a0) r0", "Running a:7/Error(a0) r0"], "{history:?}");
}

#[test]
fn late_reason_is_a_correction() {
    // STAT-4: no event tells of it.
    let bench = Bench::with_one_running(NEVER);
    bench.wait_for_events();
    bench.with(|state| {
        state.end("a0", 137, "Error");
        state.send_exit("a0", "a0", 137);
    });
    bench.wait_for("p", "Running a:137/Error(a0) r0");
    bench.with(|state| state.find("a0").reason = "OOMKilled".to_owned());
    bench.wait_for("p", "Running a:137/OOMKilled(a0) r0");
}

#[test]
fn pod_leaves_when_source_and_runtime_are_done_with_it() {
    let bench = Bench::with_one_running(OFTEN);
    bench.pods(&[]);
    let deletion = || {
        let record = bench.store.load().get("p").cloned()?;
        let pod: v1::Pod = prost::Message::decode(record.pod()).unwrap();
        pod.metadata.unwrap().deletion_timestamp
    };
    eventually("a deletion timestamp", PATIENCE, deletion);
    bench.with(|state| {
        state.end("a0", 143, "Error");
        state.sandboxes[0].state = cri::PodSandboxState::SandboxNotready as i32;
    });
    bench.wait_for("p", "none");
    let history = bench.history("p");
    assert_eq!(history.last().map(String::as_str), Some("deleted"));
    assert!(
        !history.iter().any(|text| text.starts_with("Pending") && text.contains("running")),
        "{history:?}"
    );
}

#[test]
fn kubelets_word_of_an_unknown_container_is_checked() {
    let bench = Bench::with_one_running(NEVER);
    let with_word = |id: &str, restarts: i32| {
        let mut pod = pod("p");
        let running = v1::ContainerStateRunning::default();
        let entry = v1::ContainerStatus {
            name: Some("a".to_owned()),
            container_id: Some(format!("containerd://{id}")),
            restart_count: Some(restarts),
            ready: Some(true),
            started: Some(true),
            state: Some(v1::ContainerState { running: Some(running), ..Default::default() }),
            ..Default::default()
        };
        let status = pod.status.get_or_insert_default();
        status.phase = Some("Running".to_owned());
        status.container_statuses.push(entry);
        pod
    };
    // The kubelet knows of a restart first: its word stands, and the runtime is asked at once.
    bench.with(|state| {
        state.end("a0", 1, "Error");
        state.container("a1");
    });
    bench.source(&[with_word("a1", 1)]);
    eventually("the runtime's own account", PATIENCE, || {
        bench.shown("p").contains("running(a1) r1").then_some(())
    });
    // A word of a container that never was: once the runtime has been asked, it does not stand.
    bench.source(&[with_word("ghost", 2)]);
    bench.wait_for("p", "Running a:running(a1) r2 ready last=1/Error");
}

#[test]
fn events_come_from_where_the_runtime_has_them() {
    let follows = |name: &str, version: &str, has_native: bool, has_cri: bool| {
        let bench = Bench::new(|state| {
            (state.name, state.version) = (name.to_owned(), version.to_owned());
            (state.has_native_events, state.has_cri_events) = (has_native, has_cri);
            state.sandbox("p", "s");
            state.container("a0");
        });
        let bench = bench.start(OFTEN);
        bench.pods(&["p"]);
        bench.wait_for("p", "Running a:running(a0) r0 ready");
        let status = bench.room.as_ref().unwrap().status().clone();
        if has_native || has_cri {
            eventually("a decision", PATIENCE, || {
                let is_decided =
                    status.report().events.as_str() != "none" || status.counts().streams_lost > 0;
                is_decided.then_some(())
            });
        }
        let lists = status.counts().lists;
        eventually("lists", PATIENCE, || (status.counts().lists > lists + 2).then_some(()));
        (status.report().events.as_str(), bench.calls("GetContainerEvents"))
    };
    assert_eq!(follows("containerd", "1.6.20", true, false), ("containerd", 0));
    // 1.7 would split its CRI events between the kubelet and this server.
    assert_eq!(follows("containerd", "1.7.24", false, true), ("none", 0));
    assert_eq!(follows("containerd", "v2.1.3", true, true), ("containerd", 0));
    assert_eq!(follows("cri-o", "1.30.1", false, true), ("cri", 1));
    assert_eq!(follows("cri-o", "1.30.1", false, false), ("none", 1));
}

#[test]
fn limits_changed_in_place_are_shown_at_once() {
    // Rule C.4.16: neither a list nor any state tells of it.
    let bench = Bench::new(|state| {
        state.sandbox("p", "s");
        state.container("a0");
    });
    let bench = bench.start(NEVER);
    let mut pod = pod("p");
    let quantity = |text: &str| Quantity { string: Some(text.to_owned()) };
    let limits = [("memory".to_owned(), quantity("64Mi"))].into();
    pod.spec.as_mut().unwrap().containers[0].resources =
        Some(v1::ResourceRequirements { limits, ..Default::default() });
    bench.source(&[pod]);
    bench.wait_for("p", "Running a:running(a0) r0 ready");
    bench.wait_for_events();
    let limit = || {
        let record = bench.store.load().get("p").cloned()?;
        let pod: v1::Pod = prost::Message::decode(record.pod()).unwrap();
        Some(pod.status?.container_statuses[0].resources.as_ref()?.limits["memory"].string().to_owned())
    };
    assert_eq!(limit().as_deref(), Some("64Mi"));
    bench.with(|state| {
        let linux = cri::LinuxContainerResources { memory_limit_in_bytes: 128 << 20, ..Default::default() };
        state.find("a0").resources = Some(cri::ContainerResources { linux: Some(linux) });
        state.send_update("a0");
    });
    eventually("the new limit", PATIENCE, || limit().filter(|limit| limit == "128Mi"));
}

#[test]
fn cri_events_are_used_where_native_ones_are_refused() {
    let bench = Bench::new(|state| {
        state.version = "v2.1.3".to_owned();
        (state.has_native_events, state.has_cri_events) = (false, true);
        state.sandbox("p", "s");
        state.container("a0");
    });
    let bench = bench.start(NEVER);
    bench.pods(&["p"]);
    bench.wait_for("p", "Running a:running(a0) r0 ready");
    bench.wait_for_events();
    assert!(bench.with(|state| state.has_cri_subscriber() && !state.has_native_subscriber()));
    bench.with(|state| {
        state.end("a0", 5, "Error");
        state.send_stopped("a0");
    });
    bench.wait_for("p", "Running a:5/Error(a0) r0");
}

#[test]
fn hint_makes_a_change_known() {
    let bench = Bench::with_one_running(NEVER);
    bench.with(|state| state.end("a0", 4, "Error"));
    let hints = bench.room.as_ref().unwrap().hints();
    hints.ended("a0".into());
    bench.wait_for("p", "Running a:4/Error(a0) r0");
    // Of a container that nobody has heard of, the runtime is asked whose it is: all are listed for no single one.
    bench.with(|state| {
        state.container("a1");
    });
    let lists = bench.room.as_ref().unwrap().status().counts().lists;
    hints.ended("a1".into());
    bench.wait_for("p", "Running a:running(a1) r1 ready last=4/Error");
    bench.with(|state| {
        state.sandbox("q", "t");
        state.container("b0");
    });
    bench.pods(&["p", "q"]);
    hints.ended("t".into());
    bench.wait_for("q", "Running a:running(b0) r0 ready");
    assert_eq!(bench.room.as_ref().unwrap().status().counts().lists, lists);
    // More at once than the queue holds: a list answers for what was dropped.
    bench.with(|state| state.end("a1", 6, "Error"));
    for number in 0..100_000 {
        hints.ended(format!("nothing-{number}").as_str().into());
    }
    bench.wait_for("p", "Running a:6/Error(a1) r1 last=4/Error");
    let counts = bench.room.as_ref().unwrap().status().counts();
    assert!(counts.hints >= 100_000 && counts.hints_dropped > 0, "{counts:?}");
}
