//! gRPC over HTTP/2 as clients of every kind speak it, over both drivers.

use pods_api_proto::v1alpha1::{GetPodRequest, ListPodsResponse, WatchPodsEvent};
use prost::Message as _;
use std::collections::HashMap;

use crate::harness::{PATIENCE, Server, Setup, eventually};
use crate::raw::{DATA, INITIAL_WINDOW_SIZE, PING, RST_STREAM, Raw};

const LIST: &str = "/v1alpha1.Pods/ListPods";
const GET: &str = "/v1alpha1.Pods/GetPod";
const WATCH: &str = "/v1alpha1.Pods/WatchPods";

const CANCEL: [u8; 4] = 8u32.to_be_bytes();

fn on_both_drivers(test: impl Fn(&Server)) {
    for driver in ["io_uring", "epoll"] {
        let server = Setup::new()
            .examples()
            .argument("--rate-limit-qps=1000000")
            .argument("--rate-limit-burst=1000000")
            .argument(&format!("--transport={driver}"))
            .start();
        test(&server);
    }
}

fn listed(body: &[Vec<u8>]) -> usize {
    ListPodsResponse::decode(&*body[0]).unwrap().pods.len()
}

fn metric(server: &Server, line: &str) -> Option<f64> {
    let (_, text) = server.http("/metrics");
    text.lines().find_map(|found| found.strip_prefix(line)?.trim().parse().ok())
}

fn no_watcher_is_left(server: &Server) {
    eventually("the watch to be forgotten", PATIENCE, || {
        (metric(server, "pods_api_watchers ") == Some(0.0)).then_some(())
    });
}

#[test]
fn every_authority_a_client_sends_on_a_unix_socket_is_welcome() {
    // GRPC-1, GRPC-2: C-core and Swift percent-encode the path, Java and old Go send it raw, others leave it out.
    on_both_drivers(|server| {
        let path = server.socket().to_str().unwrap().to_owned();
        let encoded = path.replace('/', "%2F");
        for authority in [
            None,
            Some(""),
            Some("localhost"),
            Some(&*path),
            Some(&*encoded),
            Some("pods-api.sock"),
            Some("\u{e9}"),
        ] {
            let mut client = Raw::connect(&server.socket());
            let stream = client.call_as(authority, LIST, &[], &[]);
            let answer = client.finish(stream);
            assert_eq!(answer.status(), ("0", ""), "{authority:?}");
            assert_eq!(listed(&answer.messages()), 6);
        }
    });
}

#[test]
fn what_is_not_grpc_is_answered_decently() {
    on_both_drivers(|server| {
        let mut client = Raw::connect(&server.socket());
        let head = |method| [(":method", method), (":scheme", "http"), (":path", "/"), (":authority", "x")];
        let stream = client.headers(&head("GET"), true);
        let answer = client.finish(stream);
        assert_eq!((answer.field(":status"), answer.field("allow")), ("405", "POST"));
        assert!(String::from_utf8_lossy(&answer.body).contains("gRPC"));
        let stream = client.headers(&head("HEAD"), true);
        let answer = client.finish(stream);
        assert_eq!((answer.field(":status"), answer.body.len()), ("405", 0));
        let stream = client.headers(&[&head("POST")[..], &[("content-type", "text/html")]].concat(), true);
        assert_eq!(client.finish(stream).field(":status"), "415");
        assert_eq!(client.run("/v1.Pods/ListPods", &[], &[]).status(), ("12", "unknown service v1.Pods"));
        assert_eq!(
            client.run("/Pods/Nothing", &[], &[]).status(),
            ("12", "unknown method Nothing for service Pods")
        );
        assert_eq!(client.run("/podsapi.v1.Node/Nothing", &[], &[]).field("grpc-status"), "12");
        assert_eq!(client.run(LIST, &[], &[]).field("grpc-status"), "0", "the connection is fine");
    });
}

#[test]
fn encodings_are_refused_by_name_and_never_used_unasked() {
    on_both_drivers(|server| {
        let mut client = Raw::connect(&server.socket());
        // GRPC-7
        let answer = client.run(LIST, &[], &[("grpc-encoding", "snappy")]);
        assert_eq!((answer.field("grpc-status"), answer.field("grpc-accept-encoding")), ("12", "identity"));
        // GRPC-8
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", LIST),
            (":authority", "x"),
            ("content-type", "application/grpc"),
        ];
        let stream = client.headers(&fields, false);
        client.last_data(stream, &[1, 0, 0, 0, 0]);
        assert_eq!(client.finish(stream).field("grpc-status"), "13");
        // GRPC-9
        let answer = client.run(LIST, &[], &[("grpc-accept-encoding", "gzip")]);
        assert_eq!((answer.field("grpc-status"), answer.field("grpc-encoding")), ("0", ""));
        assert_eq!(listed(&answer.messages()), 6);
    });
}

#[test]
fn a_message_may_be_split_anywhere() {
    on_both_drivers(|server| {
        let mut client = Raw::connect(&server.socket());
        let request = GetPodRequest { pod_uid: "nobody".into() }.encode_to_vec();
        let message = [&[0, 0, 0, 0, u8::try_from(request.len()).unwrap()], &*request].concat();
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":path", GET),
            (":authority", "x"),
            ("content-type", "application/grpc"),
        ];
        let stream = client.headers(&fields, false);
        for byte in &message {
            client.frame(DATA, 0, stream, &[*byte]);
        }
        client.last_data(stream, &[]);
        // rule E.4.4
        assert_eq!(client.finish(stream).status(), ("5", "pod with UID nobody not found"));
        // A stream that ends before its message does.
        let stream = client.headers(&fields, false);
        client.last_data(stream, &message[..4]);
        assert_eq!(client.finish(stream).status(), ("13", "the request has no message"));
    });
}

#[test]
fn an_empty_uid_is_not_found_like_any_other() {
    // rule E.4.4
    on_both_drivers(|server| {
        let answer = Raw::connect(&server.socket()).run(GET, &[], &[]);
        assert_eq!(answer.status(), ("5", "pod with UID  not found"));
    });
}

#[test]
fn a_deadline_ends_a_watch_and_frees_it() {
    // GRPC-10
    on_both_drivers(|server| {
        let answer = Raw::connect(&server.socket()).run(WATCH, &[], &[("grpc-timeout", "100m")]);
        assert_eq!(answer.status(), ("4", "deadline exceeded"));
        assert_eq!(answer.messages().len(), 7, "six pods and the marker");
        no_watcher_is_left(server);
        let counted = "kubelet_pod_requests_watch_total{server_api_version=\"v1alpha1\",status_code=\"DeadlineExceeded\"}";
        assert_eq!(metric(server, counted), Some(1.0));
    });
}

#[test]
fn a_deadline_resets_a_call_whose_client_does_not_read() {
    on_both_drivers(|server| {
        let mut client = Raw::with_settings(&server.socket(), &[(INITIAL_WINDOW_SIZE, 10)]);
        client.opens_windows = false;
        for path in [LIST, WATCH] {
            let answer = client.run(path, &[], &[("grpc-timeout", "100m")]);
            assert_eq!((answer.reset, answer.body.len()), (Some(8), 10), "{path}");
        }
        no_watcher_is_left(server);
    });
}

#[test]
fn a_reset_and_a_lost_connection_end_watches_as_cancelled() {
    // MET-3, WATCH-5
    on_both_drivers(|server| {
        let mut client = Raw::connect(&server.socket());
        let stream = client.call(WATCH, &[], &[]);
        client.read().unwrap();
        client.frame(RST_STREAM, 0, stream, &CANCEL);
        no_watcher_is_left(server);
        client.call(WATCH, &[], &[]);
        client.read().unwrap();
        drop(client);
        no_watcher_is_left(server);
        let counted =
            "kubelet_pod_requests_watch_total{server_api_version=\"v1alpha1\",status_code=\"Canceled\"}";
        eventually("both to be counted", PATIENCE, || (metric(server, counted) == Some(2.0)).then_some(()));
    });
}

#[test]
fn a_thousand_streams_share_a_connection() {
    on_both_drivers(|server| {
        let mut client = Raw::connect(&server.socket());
        let streams: Vec<u32> = (0..1000).map(|_| client.call(WATCH, &[], &[])).collect();
        let mut answers = HashMap::new();
        client.read_until(&streams, 7, &mut answers);
        server.remove_manifest("etcd.yaml");
        client.read_until(&streams, 8, &mut answers);
        let last = answers[&streams[999]].messages().pop().unwrap();
        assert_eq!(WatchPodsEvent::decode(&*last).unwrap().r#type, 3);
    });
}

#[test]
fn tiny_windows_are_obeyed_to_the_byte() {
    on_both_drivers(|server| {
        let whole = Raw::connect(&server.socket()).run(LIST, &[], &[]).body;
        let mut client = Raw::with_settings(&server.socket(), &[(INITIAL_WINDOW_SIZE, 1)]);
        client.opens_windows = false;
        let stream = client.call(LIST, &[], &[]);
        let mut answers = HashMap::new();
        let mut step = 1;
        loop {
            let frame = client.read().expect("the server keeps the connection");
            if frame.kind == DATA {
                assert!(frame.payload.len() <= step as usize, "no more than the window");
                step = step % 500 + 1;
                client.widen(0, step);
                client.widen(stream, step);
            }
            if client.take(&frame, &mut answers).is_some() {
                break;
            }
        }
        assert_eq!(answers[&stream].body, whole);
    });
}

#[test]
fn keepalive_pings_without_streams_are_welcome() {
    // GRPC-6: what a client sends in five minutes, in one go.
    on_both_drivers(|server| {
        let mut client = Raw::connect(&server.socket());
        for number in 0..30u64 {
            client.frame(PING, 0, 0, &number.to_be_bytes());
            let pong = std::iter::from_fn(|| client.read()).find(|frame| frame.kind == PING).unwrap();
            assert_eq!((pong.flags, pong.payload), (1, number.to_be_bytes().to_vec()));
        }
        assert_eq!(client.run(LIST, &[], &[]).field("grpc-status"), "0");
    });
}

/// System calls are counted by the workers themselves: those that move bytes or wait.
#[test]
fn calls_and_events_cost_few_system_calls() {
    const CALLS: u32 = 200;
    const WATCHERS: usize = 100;
    for (driver, per_call, per_event) in [("io_uring", 2.2, 0.2), ("epoll", 3.2, 1.3)] {
        let server = Setup::new()
            .examples()
            .argument("--rate-limit-qps=1000000")
            .argument("--rate-limit-burst=1000000")
            .argument("--workers=1")
            .argument(&format!("--transport={driver}"))
            .start();
        let calls = || metric(&server, "pods_api_worker_system_calls_total ").unwrap();
        let mut client = Raw::connect(&server.socket());
        client.run(LIST, &[], &[]);
        for (path, name) in [(GET, "GetPod"), (LIST, "ListPods")] {
            let before = calls();
            for _ in 0..CALLS {
                client.run_at_once(path);
            }
            let cost = (calls() - before) / f64::from(CALLS);
            eprintln!("{driver}: {cost:.2} system calls per {name}");
            // The client's windows are returned in frames of their own, which take up to one more.
            assert!(cost <= per_call + 1.0, "{driver}: {cost} system calls per {name}");
        }
        let mut watchers: Vec<_> = (0..WATCHERS)
            .map(|_| {
                let mut client = Raw::connect(&server.socket());
                let stream = client.call(WATCH, &[], &[]);
                let mut answers = HashMap::new();
                // Windows are left alone from here on: 64 KiB hold what follows.
                client.opens_windows = false;
                client.read_until(&[stream], 7, &mut answers);
                (client, stream, answers)
            })
            .collect();
        let before = calls();
        server.remove_manifest("etcd.yaml");
        for (client, stream, answers) in &mut watchers {
            client.read_until(&[*stream], 8, answers);
        }
        let cost = (calls() - before) / WATCHERS as f64;
        eprintln!("{driver}: {cost:.3} system calls per delivered event");
        assert!(cost <= per_event, "{driver}: {cost} system calls per delivered event");
    }
}

#[test]
fn a_noisy_caller_is_limited_with_a_delay_and_not_counted() {
    // rules E.3.1 and E.3.2
    let server = Setup::new().examples().argument("--rate-limit-qps=1").start();
    let mut client = Raw::connect(&server.socket());
    let answers: Vec<_> = (0..15).map(|_| client.run(LIST, &[], &[])).collect();
    let rejected: Vec<_> = answers.iter().filter(|answer| answer.field("grpc-status") == "8").collect();
    assert!((3..=5).contains(&rejected.len()), "10 at once, then one a second: {}", rejected.len());
    assert_eq!(rejected[0].status(), ("8", "rejected by rate limit"));
    assert!(!rejected[0].field("grpc-status-details-bin").is_empty(), "RetryInfo");
    let counted = "kubelet_pod_requests_list_total{server_api_version=\"v1alpha1\",status_code=";
    assert_eq!(metric(&server, &format!("{counted}\"OK\"}}")), Some((15 - rejected.len()) as f64));
    assert_eq!(metric(&server, &format!("{counted}\"ResourceExhausted\"}}")), None);
    assert_eq!(
        metric(&server, "pods_api_requests_rejected_total{reason=\"rate_limit\"}"),
        Some(rejected.len() as f64)
    );
    // Watches are not limited.
    assert_eq!(client.run(WATCH, &[], &[("grpc-timeout", "50m")]).field("grpc-status"), "4");
}

#[test]
fn calls_before_the_first_sync_name_the_source() {
    // rules A.1.2 and E.4.2, SOCK-8: a path that is neither file nor directory never delivers.
    let server = Setup::new().device_as_manifests().spawn();
    eventually("the server to serve", PATIENCE, || server.admin());
    let mut client = Raw::connect(&server.socket());
    for path in
        [LIST, GET, WATCH, "/Pods/ListPods", "/Pods/GetPod", "/Pods/WatchPods", "/podsapi.v1.Node/Lookup"]
    {
        let answer = client.run(path, &[], &[]);
        assert_eq!(answer.status(), ("9", "Kubelet is initializing: waiting for manifest"), "{path}");
    }
    let (code, text) = server.http("/readyz");
    assert!(code == 503 && text.contains("[-]source/manifest failed"), "{code} {text}");
    let counted =
        "kubelet_pod_requests_total{server_api_version=\"v1alpha1\",status_code=\"FailedPrecondition\"}";
    assert_eq!(metric(&server, counted), Some(3.0));
}

#[test]
fn a_stopping_server_ends_watches_as_unavailable_and_exits_in_order() {
    for driver in ["io_uring", "epoll"] {
        let mut server = Setup::new().examples().argument(&format!("--transport={driver}")).start();
        let mut client = Raw::connect(&server.socket());
        let stream = client.call(WATCH, &[], &[]);
        let mut answers = HashMap::new();
        client.read_until(&[stream], 7, &mut answers);
        let reader = std::thread::spawn(move || {
            while let Some(frame) = client.read() {
                if frame.kind != crate::raw::GOAWAY {
                    client.take(&frame, &mut answers);
                }
            }
            answers.remove(&stream).unwrap()
        });
        assert_eq!(server.stop().code(), Some(0));
        assert_eq!(reader.join().unwrap().status(), ("14", "the server is shutting down"));
        assert!(!server.socket().exists(), "our socket is removed");
    }
}
