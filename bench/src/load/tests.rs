//! The load engine against the comparison servers: every byte and every count, no timing.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::watchers::Watchers;
use super::*;
use crate::client::{Call, STOCK_WINDOW_BYTES, Settings};
use crate::commands::encoded_documents;
use crate::generate::{self, Plan};
use crate::servers::{Kind, Options};

const PODS: Plan = Plan { pods: 40, pod_bytes: 6_000, seed: 9 };
const LIMIT: Duration = Duration::from_secs(20);

/// A comparison server on a thread of its own; it lives as long as the test's process.
struct Running {
    directory: tempfile::TempDir,
    target: Target,
}

fn start(kind: Kind) -> Running {
    let directory = tempfile::tempdir().unwrap();
    let changes = directory.path().join("changes");
    std::fs::create_dir(&changes).unwrap();
    let options = Options {
        kind,
        socket: directory.path().join("sock"),
        dump: None,
        pods: PODS.pods,
        pod_bytes: PODS.pod_bytes,
        seed: PODS.seed,
        changes: Some(changes),
        batch: 64,
    };
    let socket = options.socket.clone();
    std::thread::spawn(move || crate::servers::run(&options).unwrap());
    let deadline = Instant::now() + LIMIT;
    while std::os::unix::net::UnixStream::connect(&socket).is_err() {
        assert!(Instant::now() < deadline, "{kind:?} does not listen");
        std::thread::sleep(Duration::from_millis(2));
    }
    let protocol = if kind == Kind::Floor { Protocol::Floor } else { Protocol::Http2 };
    let target = Target {
        socket,
        protocol,
        settings: Settings::stock(),
        pid: Some(std::process::id()),
        count_syscalls: false,
    };
    Running { directory, target }
}

fn changes(server: &Running) -> Changes {
    let documents = encoded_documents(&list_pods(&server.target).unwrap()).unwrap();
    let path = |name: &str| -> PathBuf { server.directory.path().join(name) };
    Changes::new(&path("changes"), &path("staging"), documents, 1).unwrap()
}

/// The generated pods in the order of List: by UID.
fn expected() -> Vec<(String, usize)> {
    let shapes = generate::shapes(PODS, true);
    let mut pods: Vec<_> =
        shapes.iter().map(|shape| (shape.uid.clone(), generate::encode(shape).len())).collect();
    pods.sort();
    pods
}

fn identities(pods: &[Bytes]) -> Vec<(String, usize)> {
    pods.iter().map(|pod| (uid_of(pod).unwrap(), pod.len())).collect()
}

fn plan(calls: Vec<Call>, connections: usize, streams: usize, pace: Pace) -> RequestPlan {
    RequestPlan {
        calls,
        connections,
        streams,
        pace,
        warm_up: Duration::ZERO,
        duration: LIMIT,
        requests: Some(300),
    }
}

fn list_is_whole_and_sorted_by_uid(kind: Kind) {
    let mut server = start(kind);
    // A window below one frame, the stock one, and one that holds everything.
    for window_bytes in [1_024, STOCK_WINDOW_BYTES, 1 << 30] {
        server.target.settings.window_bytes = window_bytes;
        assert_eq!(identities(&list_pods(&server.target).unwrap()), expected());
    }
}

fn every_request_is_answered_once(kind: Kind) {
    let server = start(kind);
    let calls: Vec<Call> = expected().iter().map(|(uid, _)| Call::get(uid)).collect();
    let total: usize = expected().iter().map(|(_, bytes)| bytes).sum();
    for (connections, streams) in [(1, 1), (1, 8), (7, 5)] {
        let outcome =
            request(&server.target, &plan(calls.clone(), connections, streams, Pace::Closed)).unwrap();
        assert!(outcome.failed.is_empty(), "{outcome:?}");
        // Answers that arrive together with the last one are counted too.
        assert!((300..300 + connections as u64 * streams as u64).contains(&outcome.answered), "{outcome:?}");
        assert_eq!(outcome.latency.count, outcome.answered);
        let mean = outcome.message_bytes as f64 / outcome.answered as f64;
        assert!((mean / (total as f64 / PODS.pods as f64) - 1.0).abs() < 0.05, "{mean}");
        assert!(outcome.server.unwrap().cpu_nanos > 0);
    }
}

fn watch_syncs_and_then_shows_each_change(kind: Kind, streams: usize) {
    let server = start(kind);
    let mut changes = changes(&server);
    let mut watchers = Watchers::open(&server.target, 3, streams).unwrap();
    watchers.sync(LIMIT).unwrap();
    for watcher in watchers.all() {
        assert_eq!((watcher.added, watcher.changes), (PODS.pods as u64, 0));
    }
    let mut seen = Vec::new();
    for sequence in 1..=5 {
        changes.stage().unwrap().publish().unwrap();
        let deadline = Instant::now() + LIMIT;
        while seen.iter().filter(|seen| **seen == Some(sequence)).count() < 3 * streams {
            assert!(Instant::now() < deadline, "change {sequence} is missing: {seen:?}");
            watchers.receive(LIMIT, &mut |delivery| seen.push(delivery.sequence)).unwrap();
        }
    }
    assert_eq!(seen.len(), 5 * 3 * streams, "each watch shows each change once");
    assert_eq!(watchers.ended(), 0);
}

fn whole_workloads_count_right(kind: Kind) {
    let server = start(kind);
    let mut changes = changes(&server);
    let plan = FanoutPlan { connections: 4, streams: 1, warm_up: 1, changes: 6, rate: 200.0 };
    let outcome = fan_out(&server.target, &mut changes, plan).unwrap();
    assert_eq!((outcome.watches, outcome.deliveries, outcome.ended), (4, 24, 0));
    assert_eq!((outcome.first.count, outcome.last.count, outcome.each.count), (6, 6, 24));
    assert!(outcome.first.max <= outcome.last.max);

    let intake = fan_out(&server.target, &mut changes, FanoutPlan { connections: 0, ..plan }).unwrap();
    assert_eq!((intake.watches, intake.deliveries), (0, 0));

    let burst = FanoutPlan { rate: f64::INFINITY, changes: 30, ..plan };
    let outcome = fan_out(&server.target, &mut changes, burst).unwrap();
    assert_eq!((outcome.deliveries, outcome.ended), (120, 0));

    let after = list_after_event(&server.target, &mut changes, 4).unwrap();
    assert_eq!((after.lists, after.list.count, after.event.count), (4, 4, 4));

    let sync = first_sync(&server.target, 5, 1).unwrap();
    assert_eq!((sync.watches, sync.pods, sync.synced.count), (5, 5 * PODS.pods as u64, 5));
    assert!(sync.memory.unwrap().resident > 0);
}

/// Runs a check against one server, under a name of its own.
macro_rules! against {
    ($server:ident, $kind:expr, $streams:expr) => {
        mod $server {
            use super::*;

            #[test]
            fn list_is_whole_and_sorted_by_uid() {
                super::list_is_whole_and_sorted_by_uid($kind);
            }

            #[test]
            fn every_request_is_answered_once() {
                super::every_request_is_answered_once($kind);
            }

            #[test]
            fn watch_syncs_and_then_shows_each_change() {
                super::watch_syncs_and_then_shows_each_change($kind, $streams);
            }

            #[test]
            fn whole_workloads_count_right() {
                super::whole_workloads_count_right($kind);
            }
        }
    };
}

against!(floor, Kind::Floor, 1);
against!(tonic, Kind::Tonic, 4);
against!(tokio_uring, Kind::TokioUring, 4);

#[test]
fn unknown_uid_is_a_failure_with_its_code() {
    let server = start(Kind::Tonic);
    let mut plan = plan(vec![Call::get("no-such-uid")], 1, 1, Pace::Closed);
    plan.requests = Some(3);
    let outcome = request(&server.target, &plan).unwrap();
    assert_eq!((outcome.answered, outcome.failed.get(&5)), (0, Some(&3)), "NOT_FOUND is code 5");
}

#[test]
fn open_loop_sends_every_request_that_is_due() {
    let server = start(Kind::Tonic);
    let mut plan = plan(vec![Call::list()], 2, 4, Pace::Open { rate: 400.0, poisson: false });
    plan.duration = Duration::from_millis(500);
    plan.requests = None;
    let outcome = request(&server.target, &plan).unwrap();
    assert_eq!(outcome.answered + outcome.unfinished, 200);
    assert_eq!(outcome.latency.count, 200);
}

#[test]
fn stalled_server_is_charged_for_requests_it_kept_from_being_sent() {
    // A server that takes connections and never answers: with one stream on one connection only the first request
    // can be sent, yet every request that was due must show in the latencies.
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("sock");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let target = Target {
        socket,
        protocol: Protocol::Http2,
        settings: Settings::stock(),
        pid: None,
        count_syscalls: false,
    };
    let mut plan = plan(vec![Call::list()], 1, 1, Pace::Open { rate: 100.0, poisson: false });
    plan.duration = Duration::from_millis(200);
    plan.requests = None;
    let outcome = request(&target, &plan).unwrap();
    drop(listener);
    assert_eq!((outcome.answered, outcome.unfinished, outcome.latency.count), (0, 20, 20));
    let spread = outcome.latency.max - outcome.latency.curve[0].1;
    assert!(spread > 150_000_000, "the first request has waited 190 ms longer than the last: {spread} ns");
}

#[test]
fn each_connection_is_answered_once() {
    for kind in [Kind::Floor, Kind::Tonic] {
        let server = start(kind);
        let uid = uid_of(&list_pods(&server.target).unwrap()[0]).unwrap();
        let outcome = connect(&server.target, &Call::get(&uid), 20).unwrap();
        assert_eq!((outcome.connections, outcome.latency.count), (20, 20), "{kind:?}");
        assert!(outcome.server.unwrap().cpu_nanos > 0);
        // What the floor answers then is nobody's business.
        assert!(kind == Kind::Floor || connect(&server.target, &Call::get("unknown"), 1).is_err());
    }
}
