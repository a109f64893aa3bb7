//! What runtimes do at their worst.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pods_api::runtime::SocketChoice;
use pods_api_proto::runtime::v1 as cri;
use tonic::Code;

use super::bench::{Bench, DEADLINE};
use super::fake::{FakeRuntime, Fault, State};
use crate::harness::{PATIENCE, eventually};

const NEVER: Duration = Duration::from_secs(3600);
const OFTEN: Duration = Duration::from_millis(30);

#[test]
fn odd_states_times_and_labels_do_no_harm() {
    let bench = Bench::new(|state| {
        // CRI-1.
        state.sandbox("unknown", "s1").created_at = 0;
        let container = state.container("a1");
        container.state = cri::ContainerState::ContainerUnknown as i32;
        (container.created_at, container.started_at) = (0, -5);
        state.sandbox("times", "s2").created_at = i64::MAX;
        let container = state.container("a2");
        (container.created_at, container.started_at) = (i64::MIN, i64::MAX);
        // Rule C.1.5: not the kubelet's.
        state.sandbox("ours", "s3").labels.remove("io.kubernetes.pod.uid");
        state.sandboxes.last_mut().unwrap().labels.insert("io.kubernetes.pod.uid".to_owned(), String::new());
        // A state that does not exist yet, no metadata, no network.
        let sandbox = state.sandbox("future", "s4");
        (sandbox.metadata, sandbox.network) = (None, None);
        let container = state.container("a4");
        (container.metadata, container.state) = (None, 77);
    });
    let bench = bench.start(OFTEN);
    bench.pods(&["unknown", "times", "ours", "future"]);
    bench.wait_ready();
    bench.wait_for("unknown", "Pending a:waiting() r0");
    bench.wait_for("times", "Running a:running(a2) r0 ready");
    bench.wait_for("ours", "Pending a:waiting(ContainerCreating) r0");
    bench.wait_for("future", "Pending a:waiting() r0");
    let json = |uid: &str| {
        let record = bench.store.load().get(uid).cloned().unwrap();
        format!("{:?}", <pods_api_proto::k8s::io::api::core::v1::Pod as prost::Message>::decode(record.pod()))
    };
    assert!(!json("unknown").contains("seconds: Some(0)"), "no time is 1970");
}

#[test]
fn newest_of_two_sandboxes_counts_in_either_order() {
    // CRI-2.
    for is_reversed in [false, true] {
        let bench = Bench::new(|state| {
            state.sandbox("p", "old").state = cri::PodSandboxState::SandboxNotready as i32;
            state.container("a0");
            state.end("a0", 255, "Unknown");
            state.sandbox("p", "new");
            state.container("a1");
            if is_reversed {
                state.sandboxes.reverse();
                state.containers.reverse();
            }
        });
        let bench = bench.start(OFTEN);
        bench.pods(&["p"]);
        bench.wait_ready();
        bench.wait_for("p", "Running a:running(a1) r1 ready last=255/Unknown");
        assert_eq!(bench.store.load().len(), 1);
    }
}

#[test]
fn three_thousand_sandboxes_pass_in_one_message() {
    // CRI-5: far over the 4 MiB of gRPC's default.
    const PODS: usize = 3_000;
    let bench = Bench::new(|state| {
        for number in 0..PODS {
            let sandbox = state.sandbox(&format!("p{number}"), &format!("s{number}"));
            sandbox.annotations.insert("padding".to_owned(), "x".repeat(3_000));
            state.container(&format!("a{number}"));
        }
    });
    let start = Instant::now();
    let bench = bench.start(Duration::from_secs(3));
    let uids: Vec<String> = (0..PODS).map(|number| format!("p{number}")).collect();
    bench.pods(&uids.iter().map(String::as_str).collect::<Vec<_>>());
    eventually("3,000 pods", 3 * PATIENCE, || bench.store.readiness().is_ready().then_some(()));
    for number in [0, 1_499, 2_999] {
        bench.wait_for(&format!("p{number}"), &format!("Running a:running(a{number}) r0 ready"));
    }
    eprintln!("{PODS} sandboxes read in {:?}", start.elapsed());
    // The list alone tells what changed: few reads, however many pods.
    let status = bench.room.as_ref().unwrap().status().clone();
    let reads = status.counts().reads;
    bench.with(|state| state.end("a7", 1, "Error"));
    bench.wait_for("p7", "Running a:1/Error(a7) r0");
    assert!(status.counts().reads - reads < 10, "{} reads for one change", status.counts().reads - reads);
}

#[test]
fn failing_call_leaves_one_pod_as_it_was_and_the_others_alone() {
    // Rule C.2.3.
    let bench = Bench::new(|state| {
        for (uid, id) in [("p", "a0"), ("q", "b0")] {
            state.sandbox(uid, &format!("sandbox-{uid}"));
            state.container(id);
        }
    });
    let bench = bench.start(OFTEN);
    bench.pods(&["p", "q"]);
    bench.wait_for("p", "Running a:running(a0) r0 ready");
    bench.wait_for("q", "Running a:running(b0) r0 ready");
    bench.with(|state| {
        state.faults.insert("ContainerStatus a0".to_owned(), Fault::Error(Code::Internal));
        state.end("a0", 1, "Error");
        state.end("b0", 1, "Error");
    });
    bench.wait_for("q", "Running a:1/Error(b0) r0");
    assert_eq!(bench.shown("p"), "Running a:running(a0) r0 ready");
    let status = bench.room.as_ref().unwrap().status().clone();
    eventually("failures", PATIENCE, || (status.counts().failures >= 2).then_some(()));
    assert_eq!(status.counts().sessions, 1, "one call's failure is not the connection's");
    bench.with(|state| state.faults.clear());
    bench.wait_for("p", "Running a:1/Error(a0) r0");
}

#[test]
fn hanging_calls_hold_up_nothing_else() {
    let bench = Bench::new(|state| {
        for (uid, id) in [("p", "a0"), ("q", "b0")] {
            state.sandbox(uid, &format!("sandbox-{uid}"));
            state.container(id);
        }
        // From the first pass on, one container's status hangs.
        state.faults.insert("ContainerStatus a0".to_owned(), Fault::Hang);
    });
    let bench = bench.start(OFTEN);
    bench.pods(&["p", "q"]);
    bench.wait_ready();
    bench.wait_for("q", "Running a:running(b0) r0 ready");
    assert_eq!(bench.shown("p"), "", "not read yet: the source's own status, and there is none");
    // Now every list hangs too: events and reads go on.
    bench.wait_for_events();
    bench.with(|state| {
        state.faults.insert("ListPodSandbox".to_owned(), Fault::Hang);
    });
    let start = Instant::now();
    bench.with(|state| {
        state.end("b0", 2, "Error");
        state.send_exit("b0", "b0", 2);
    });
    bench.wait_for("q", "Running a:2/(b0) r0");
    assert!(start.elapsed() < DEADLINE, "the event waited for a hanging call");
    bench.with(|state| state.faults.clear());
    bench.wait_for("q", "Running a:2/Error(b0) r0");
    bench.wait_for("p", "Running a:running(a0) r0 ready");
}

#[test]
fn runtime_that_calls_one_pod_unavailable_is_there_for_the_others() {
    // A shim that is gone: containerd answers for it with UNAVAILABLE.
    let bench = Bench::new(|state| {
        for (uid, id) in [("p", "a0"), ("q", "b0")] {
            state.sandbox(uid, &format!("sandbox-{uid}"));
            state.container(id);
        }
        state.faults.insert("PodSandboxStatus sandbox-p".to_owned(), Fault::Error(Code::Unavailable));
    });
    let bench = bench.start(OFTEN);
    bench.pods(&["p", "q"]);
    bench.wait_ready();
    bench.wait_for("q", "Running a:running(b0) r0 ready");
    let status = bench.room.as_ref().unwrap().status().clone();
    eventually("failures", PATIENCE, || (status.counts().failures >= 3).then_some(()));
    assert_eq!(status.counts().sessions, 1, "an answer is no lost connection");
    bench.with(|state| state.faults.clear());
    bench.wait_for("p", "Running a:running(a0) r0 ready");
}

#[test]
fn list_that_fails_is_taken_again_soon_although_events_stand() {
    let bench = Bench::new(|state| {
        state.sandbox("p", "s");
        state.container("a0");
    });
    // Without the first list there is nothing to be ready with.
    bench.with(|state| {
        state.faults.insert("ListContainers".to_owned(), Fault::Error(Code::Unavailable));
    });
    let bench = bench.start(NEVER);
    bench.pods(&["p"]);
    bench.wait_for_events();
    let status = bench.room.as_ref().unwrap().status().clone();
    eventually("lists that fail", PATIENCE, || (status.counts().failures >= 2).then_some(()));
    bench.with(|state| state.faults.clear());
    bench.wait_for("p", "Running a:running(a0) r0 ready");
    assert_eq!(status.counts().sessions, 1);
}

#[test]
fn runtime_that_fails_lists_is_not_asked_for_more_of_them() {
    let bench = Bench::with_one_running(NEVER);
    bench.wait_for_events();
    bench.with(|state| {
        state.faults.insert("ListContainers".to_owned(), Fault::Error(Code::Internal));
    });
    let status = bench.room.as_ref().unwrap().status().clone();
    let hints = bench.room.as_ref().unwrap().hints();
    let (start, mut sent) = (Instant::now(), 0);
    // Each is looked up in vain, and then wishes for a list.
    while start.elapsed() < Duration::from_millis(500) {
        hints.ended(format!("unheard-of-{sent}").as_str().into());
        sent += 1;
        eventually("its failure", PATIENCE, || (status.counts().failures >= sent).then_some(()));
    }
    let lists = status.counts().failures - sent;
    assert!(sent > 20 && lists < 10, "{lists} lists for {sent} hints");
    bench.with(|state| {
        state.faults.clear();
        state.end("a0", 1, "Error");
    });
    hints.look_at_everything();
    bench.wait_for("p", "Running a:1/Error(a0) r0");
}

#[test]
fn wish_for_a_list_made_while_one_is_about_to_fail_waits_too() {
    let bench = Bench::with_one_running(NEVER);
    bench.wait_for_events();
    bench.with(|state| {
        let fault = Fault::LateError(Duration::from_millis(100), Code::Internal);
        state.faults.insert("ListPodSandbox".to_owned(), fault);
    });
    let hints = bench.room.as_ref().unwrap().hints();
    let (start, before) = (Instant::now(), bench.calls("ListPodSandbox"));
    while start.elapsed() < Duration::from_millis(1_500) {
        hints.look_at_everything();
        std::thread::sleep(Duration::from_millis(2));
    }
    // Each takes 100 ms, and after it there are none for 200 ms.
    let lists = bench.calls("ListPodSandbox") - before;
    assert!((2..=6).contains(&lists), "{lists} lists");
}

#[test]
fn stream_that_ends_at_once_without_a_word_is_none() {
    let bench = Bench::new(|state| {
        // CRI-O as it is by default.
        (state.name, state.version) = ("cri-o".to_owned(), "1.30.0".to_owned());
        (state.has_cri_events, state.ends_cri_events) = (true, true);
        state.sandbox("p", "s");
        state.container("a0");
    });
    let bench = bench.start(NEVER);
    bench.pods(&["p"]);
    bench.wait_for("p", "Running a:running(a0) r0 ready");
    eventually("the stream to be tried", PATIENCE, || (bench.calls("GetContainerEvents") > 0).then_some(()));
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(1) {
        let calls = (bench.calls("GetContainerEvents"), bench.calls("ListPodSandbox"));
        assert!(calls.0 <= 2 && calls.1 <= 6, "{calls:?} subscriptions and lists");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(bench.room.as_ref().unwrap().status().report().events.as_str(), "none");
}

#[test]
fn new_pod_that_cannot_be_read_stays_when_its_source_drops_it() {
    // Rule C.2.3: it is there, whatever runs in it.
    let bench = Bench::with_one_running(OFTEN);
    bench.wait_ready();
    bench.with(|state| {
        state.faults.insert("ContainerStatus a9".to_owned(), Fault::Hang);
        state.sandbox("p9", "s9");
        state.container("a9");
    });
    bench.pods(&["p9"]);
    let status = bench.room.as_ref().unwrap().status().clone();
    eventually("a failure", PATIENCE, || (status.counts().failures > 0).then_some(()));
    eventually("p9", PATIENCE, || bench.store.load().get("p9").map(|_| ()));
    bench.pods(&[]);
    let deletion = || {
        let pods = bench.store.load();
        let pod = <pods_api_proto::k8s::io::api::core::v1::Pod as prost::Message>::decode(
            pods.get("p9").expect("it runs").pod(),
        );
        pod.unwrap().metadata.unwrap().deletion_timestamp
    };
    eventually("its deletion timestamp", PATIENCE, deletion);
    bench.with(|state| {
        state.faults.clear();
        state.remove("p9");
    });
    bench.wait_for("p9", "none");
}

#[test]
fn event_lost_before_the_runtime_takes_up_the_subscription_is_made_good() {
    let bench = Bench::new(|state| {
        state.sandbox("p", "s");
        state.container("a0");
        // Longer than a refusal is waited for: the stream is taken to stand before it does.
        state.faults.insert("Subscribe".to_owned(), Fault::Late(Duration::from_secs(2)));
    });
    let bench = bench.start_with(|config| {
        (config.list_interval, config.list_interval_with_events) = (NEVER, NEVER);
        config.second_list = Duration::from_millis(900);
    });
    bench.pods(&["p"]);
    bench.wait_for("p", "Running a:running(a0) r0 ready");
    bench.wait_for_events();
    let lists = bench.calls("ListContainers");
    eventually("the list that follows", PATIENCE, || {
        (bench.calls("ListContainers") > lists || bench.calls("ListContainers") >= 2).then_some(())
    });
    bench.with(|state| {
        assert!(!state.has_native_subscriber());
        state.end("a0", 3, "Error");
        state.send_exit("a0", "a0", 3);
    });
    bench.wait_for("p", "Running a:3/Error(a0) r0");
}

#[test]
fn runtime_that_goes_away_changes_nothing_until_it_is_back() {
    let mut bench = Bench::new(|state| {
        state.sandbox("p", "s");
        state.container("a0");
        state.sandbox("q", "t");
        state.container("b0");
    })
    .start(OFTEN);
    bench.pods(&["p", "q"]);
    bench.wait_for("p", "Running a:running(a0) r0 ready");
    bench.wait_for("q", "Running a:running(b0) r0 ready");
    let status = bench.room.as_ref().unwrap().status().clone();
    for round in 1..=3_u64 {
        let told = bench.history("p").len();
        bench.kill_runtime();
        eventually("the loss to be noticed", PATIENCE, || status.report().runtime.is_none().then_some(()));
        assert_eq!(
            (bench.shown("p").as_str(), bench.history("p").len()),
            ("Running a:running(a0) r0 ready", told)
        );
        assert!(bench.store.readiness().is_ready(), "ready once, ready for ever");
        bench.with(|state| {
            state.end(&format!("b{}", round - 1), 1, "Error");
            state.container(&format!("b{round}"));
        });
        bench.start_runtime();
        bench.wait_for("q", &format!("Running a:running(b{round}) r{round} ready last=1/Error"));
        assert_eq!(bench.history("p").len(), told, "nothing false was told of p");
        assert_eq!(status.counts().sessions, round + 1);
    }
    // A pod that ended meanwhile is found to be gone.
    bench.pods(&["p"]);
    bench.kill_runtime();
    bench.with(|state| state.remove("q"));
    bench.start_runtime();
    bench.wait_for("q", "none");
}

#[test]
fn no_other_runtime_answers_for_the_one_with_the_pods() {
    let bench = Bench::new(|state| {
        state.sandbox("p", "s");
        state.container("a0");
    });
    let (ours, other) = (bench.socket("cri.sock"), bench.socket("other.sock"));
    // Of a node that was moved from one runtime to another, and has both.
    let mut empty = State::default();
    (empty.name, empty.version) = ("cri-o".to_owned(), "1.30.0".to_owned());
    let _other = FakeRuntime::start(&other, &Arc::new(Mutex::new(empty)));
    let mut bench = bench.start_with(|config| {
        config.list_interval = OFTEN;
        config.socket = SocketChoice::FirstThatAnswers(vec![ours.clone(), other]);
    });
    bench.pods(&["p"]);
    bench.wait_for("p", "Running a:running(a0) r0 ready");
    let told = bench.history("p").len();
    bench.kill_runtime();
    let status = bench.room.as_ref().unwrap().status().clone();
    let refused = format!("cannot connect to {}", ours.display());
    eventually("a refusal", PATIENCE, || status.report().error.filter(|error| error.contains(&refused)));
    bench.start_runtime();
    eventually("the second session", PATIENCE, || (status.counts().sessions == 2).then_some(()));
    bench.with(|state| state.end("a0", 1, "Error"));
    bench.wait_for("p", "Running a:1/Error(a0) r0");
    assert_eq!(bench.history("p").len(), told + 1, "{:?}", bench.history("p"));
}

#[test]
fn without_a_runtime_nothing_is_ready() {
    let mut bench = Bench::new(|_| {});
    bench.kill_runtime();
    let mut bench = bench.start(OFTEN);
    bench.pods(&["p"]);
    let status = bench.room.as_ref().unwrap().status().clone();
    let error = eventually("an error", PATIENCE, || status.report().error);
    assert!(error.contains("cannot connect to"), "{error}");
    assert!(!bench.store.readiness().is_ready());
    eventually("nothing but the runtime to be missing", PATIENCE, || {
        (bench.store.readiness().waiting_for() == ["cri"]).then_some(())
    });
    bench.start_runtime();
    bench.wait_ready();
    bench.wait_for("p", "Pending a:waiting(ContainerCreating) r0");
}
