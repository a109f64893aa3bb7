//! What a rule lets its callers call and see, in every answer of every service. Each rule here is about the user that
//! runs the tests.

use pods_api_proto::k8s::io::api::core::v1::Pod;
use pods_api_proto::podsapi::v1::NamespacedName;
use pods_api_proto::podsapi::v1::lookup_request::Key;
use pods_api_proto::v1alpha1::EventType;
use prost::Message as _;
use std::process::Stdio;

use super::calls::{CONTRACTS, Calls};
use super::manifest;
use crate::harness::{PATIENCE, Server, Setup, eventually};

const UID: &str = "7c0f6a52-0000-4000-8000-0000000000a1";
const OTHER: &str = "7c0f6a52-0000-4000-8000-0000000000b2";
const NOBODY: &str = "7c0f6a52-0000-4000-8000-0000000000c3";
const SECRET: &str = "s3cr3t";

const INVISIBLE: u32 = 5;
const DENIED: u32 = 7;

const KEYS_OF_IDENTITY: &str = "metadata.name+metadata.namespace+metadata.uid";

/// A server whose one rule is about this user.
fn serving(options: &str) -> Setup {
    let uid = rustix::process::geteuid().as_raw();
    Setup::new().argument("--rate-limit-burst=1000").argument(&format!("--allow=uid={uid}{options}"))
}

/// A server with one pod of the namespace `shop`.
fn serving_web(options: &str) -> Server {
    serving(options).manifest("web.json", &manifest(UID, "shop", SECRET, "1")).start()
}

fn shows(pod: &Pod, text: &str) -> bool {
    let bytes = pod.encode_to_vec();
    bytes.windows(text.len()).any(|part| part == text.as_bytes())
}

fn note(pod: &Pod) -> Option<&str> {
    pod.metadata.as_ref()?.annotations.get("note").map(String::as_str)
}

fn count(server: &Server, metric: &str) -> Option<f64> {
    let (_, text) = server.http("/metrics");
    text.lines().find_map(|line| line.strip_prefix(metric)?.trim().parse().ok())
}

/// What the caller of `fields=…` may see of the pod, and nothing else.
fn is_below_ceiling(pod: &Pod) {
    let metadata = pod.metadata.as_ref().unwrap();
    assert!(metadata.labels.is_empty() && metadata.creation_timestamp.is_none(), "{metadata:?}");
    assert!(metadata.annotations.keys().all(|key| key == "note"), "{metadata:?}");
    assert_eq!((pod.spec.is_none(), pod.status.is_none()), (true, true));
    assert!(!shows(pod, SECRET) && !shows(pod, "registry.example"));
}

#[test]
fn a_ceiling_of_fields_holds_in_every_answer() {
    for contract in CONTRACTS {
        let mut server = serving_web(&format!(",fields={KEYS_OF_IDENTITY}+metadata.annotations.`note`"));
        let mut calls = Calls::connect(&server.socket());
        // Whatever is asked for.
        for fields in [
            &[][..],
            &[("x-kubernetes-fieldmask", "spec,metadata,status")],
            &[("x-kubernetes-fieldmask", "*")],
            &[("x-kubernetes-fieldmask", "metadata.uid,spec.containers.env")],
        ] {
            let pods = calls.list(contract, fields).unwrap();
            assert_eq!(pods.len(), 1);
            is_below_ceiling(&pods[0]);
            is_below_ceiling(&calls.get(contract, UID, fields).unwrap());
        }
        for key in [Key::PodUid(UID.into()), Key::Name(named("shop", "web-node-1"))] {
            let found = calls.lookup(key).unwrap();
            is_below_ceiling(&found.pod.unwrap());
            assert!(!found.deleted);
        }

        let is_typed = contract == "v1alpha1.Pods";
        let first = if is_typed { 2 } else { 1 };
        let stream = calls.watch(contract, &[("x-kubernetes-fieldmask", "spec,metadata")]);
        is_below_ceiling(&calls.events(contract, stream, first)[0].pod);
        // A change of what is hidden is no event; the next message is about the note.
        server.write_manifest("web.json", &manifest(UID, "shop", "an0ther", "1"));
        let changed = "pods_api_events_total{type=\"MODIFIED\"} ";
        eventually("the change", PATIENCE, || (count(&server, changed)? == 1.0).then_some(()));
        server.write_manifest("web.json", &manifest(UID, "shop", "an0ther", "2"));
        let events = calls.events(contract, stream, first + 1);
        is_below_ceiling(&events[first].pod);
        assert_eq!(note(&events[first].pod), Some("2"));
        assert_eq!(events[first].kind, is_typed.then_some(EventType::Modified));

        server.remove_manifest("web.json");
        let last = calls.events(contract, stream, first + 2).pop().unwrap();
        assert_eq!(last.kind, is_typed.then_some(EventType::Deleted));
        is_below_ceiling(&last.pod);
        assert_eq!(last.pod.metadata.as_ref().unwrap().uid.as_deref(), Some(UID));
        // The ceiling leaves out what would mark the end in the documented contract.
        assert!(!shows(&last.pod, "pods-api/deleted"));
        let gone = calls.lookup(Key::PodUid(UID.into())).unwrap();
        assert!(gone.deleted);
        is_below_ceiling(&gone.pod.unwrap());
        assert!(server.stop().success());
    }
}

#[test]
fn profile_no_env_hides_the_environment_in_every_answer() {
    for contract in CONTRACTS {
        let server = serving_web(",profile=no-env");
        let mut calls = Calls::connect(&server.socket());
        let check = |pod: &Pod, is_whole: bool| {
            assert!(!shows(pod, SECRET) && !shows(pod, "TOKEN") && !shows(pod, "an0ther"), "{pod:?}");
            assert_eq!(shows(pod, "registry.example/main"), is_whole);
        };
        check(&calls.list(contract, &[]).unwrap()[0], true);
        check(&calls.get(contract, UID, &[]).unwrap(), true);
        let env = [(
            "x-kubernetes-fieldmask",
            "spec.containers.env,spec.initContainers.env,spec.containers.envFrom",
        )];
        check(&calls.get(contract, UID, &env).unwrap(), false);
        check(&calls.list(contract, &env).unwrap()[0], false);
        check(&calls.lookup(Key::PodUid(UID.into())).unwrap().pod.unwrap(), true);

        let first = if contract == "Pods" { 1 } else { 2 };
        let stream = calls.watch(contract, &[]);
        check(&calls.events(contract, stream, first)[0].pod, true);
        server.write_manifest("web.json", &manifest(UID, "shop", "an0ther", "2"));
        check(&calls.events(contract, stream, first + 1)[first].pod, true);
        server.remove_manifest("web.json");
        let last = calls.events(contract, stream, first + 2).pop().unwrap();
        // A typed DELETED is the identity; the documented one is the whole last state.
        check(&last.pod, contract == "Pods");
        check(&calls.lookup(Key::PodUid(UID.into())).unwrap().pod.unwrap(), true);
    }
}

fn named(namespace: &str, name: &str) -> NamespacedName {
    NamespacedName { namespace: namespace.into(), name: name.into() }
}

#[test]
fn a_pod_out_of_scope_is_not_there() {
    for contract in CONTRACTS {
        let server = serving(",namespaces=shop+web")
            .manifest("web.json", &manifest(UID, "shop", SECRET, "1"))
            .manifest("other.json", &manifest(OTHER, "bank", SECRET, "1"))
            .start();
        let mut calls = Calls::connect(&server.socket());
        let uids = |pods: Vec<Pod>| -> Vec<String> {
            pods.into_iter().map(|pod| pod.metadata.unwrap().uid.unwrap()).collect()
        };
        assert_eq!(uids(calls.list(contract, &[]).unwrap()), [UID]);
        assert_eq!(uids(calls.list(contract, &[("x-pods-api-labels", "app=web")]).unwrap()), [UID]);
        assert!(calls.list(contract, &[("x-pods-api-namespace", "bank")]).unwrap().is_empty());
        // As with a pod that never was.
        for uid in [OTHER, NOBODY] {
            let refused = (INVISIBLE, format!("pod with UID {uid} not found"));
            assert_eq!(calls.get(contract, uid, &[]).unwrap_err(), refused);
            assert_eq!(calls.lookup(Key::PodUid(uid.into())).unwrap_err(), refused);
        }
        let refused = (INVISIBLE, "pod bank/web-node-1 not found".to_owned());
        assert_eq!(calls.lookup(Key::Name(named("bank", "web-node-1"))).unwrap_err(), refused);
        assert!(calls.lookup(Key::Name(named("shop", "web-node-1"))).is_ok());

        let first = if contract == "Pods" { 1 } else { 2 };
        let stream = calls.watch(contract, &[]);
        assert_eq!(uids(vec![calls.events(contract, stream, first).swap_remove(0).pod]), [UID]);
        // Changes and the end of the pod out of scope are no events: the next ones are of the other pod.
        server.write_manifest("other.json", &manifest(OTHER, "bank", SECRET, "2"));
        let events = |kind: &str| format!("pods_api_events_total{{type=\"{kind}\"}} ");
        eventually("the change", PATIENCE, || (count(&server, &events("MODIFIED"))? == 1.0).then_some(()));
        server.remove_manifest("other.json");
        eventually("the end", PATIENCE, || (count(&server, &events("DELETED"))? == 1.0).then_some(()));
        assert_eq!(calls.lookup(Key::PodUid(OTHER.into())).unwrap_err().0, INVISIBLE, "its tombstone too");
        server.write_manifest("web.json", &manifest(UID, "shop", SECRET, "2"));
        assert_eq!(note(&calls.events(contract, stream, first + 1)[first].pod), Some("2"));
        server.remove_manifest("web.json");
        assert_eq!(uids(vec![calls.events(contract, stream, first + 2).pop().unwrap().pod]), [UID]);
    }
}

#[test]
fn nothing_is_found_by_what_may_not_be_seen() {
    let mut server = serving_web(",fields=metadata.uid+metadata.labels.`app`");
    let mut calls = Calls::connect(&server.socket());
    for contract in CONTRACTS {
        assert_eq!(calls.list(contract, &[("x-pods-api-labels", "app=web")]).unwrap().len(), 1);
        for (fields, hidden) in [
            ([("x-pods-api-labels", "tier=front")], "metadata.labels.`tier`"),
            ([("x-pods-api-labels", "app,!tier")], "metadata.labels.`tier`"),
            ([("x-pods-api-namespace", "shop")], "metadata.namespace"),
        ] {
            let (code, message) = calls.list(contract, &fields).unwrap_err();
            assert!(code == DENIED && message.contains(hidden), "{code} {message}");
            let (code, message) = calls.unary(&format!("/{contract}/WatchPods"), &[], &fields).unwrap_err();
            assert!(code == DENIED && message.contains(hidden), "{code} {message}");
        }
    }
    for (key, hidden) in [
        (Key::Name(named("shop", "web-node-1")), "metadata.namespace"),
        (Key::PodIp("10.0.0.1".into()), "status.podIPs"),
    ] {
        let (code, message) = calls.lookup(key).unwrap_err();
        assert!(code == DENIED && message.contains(hidden), "{code} {message}");
    }
    assert!(calls.lookup(Key::PodUid(UID.into())).is_ok());
    // Refused by the policy, so no request to the kubelet's metrics.
    assert_eq!(count(&server, "pods_api_requests_rejected_total{reason=\"policy\"} "), Some(14.0));
    let (_, metrics) = server.http("/metrics");
    assert!(!metrics.contains("status_code=\"PermissionDenied\""), "{metrics}");
    // Nor can pods be told apart by what is left.
    assert!(server.stop().success());
    let log = server.log();
    assert!(log.contains("cannot tell pods apart") && log.contains("metadata.namespace"), "{log}");
}

#[test]
fn only_the_methods_of_the_rule_may_be_called() {
    let server = serving_web(",methods=get+lookup");
    let mut calls = Calls::connect(&server.socket());
    for contract in CONTRACTS {
        assert!(calls.get(contract, UID, &[]).is_ok());
        for (method, missing) in [("ListPods", "list"), ("WatchPods", "watch")] {
            let (code, message) = calls.unary(&format!("/{contract}/{method}"), &[], &[]).unwrap_err();
            assert_eq!(code, DENIED);
            assert!(
                message.contains(",methods=get+lookup\", leaves") && message.contains(missing),
                "{message}"
            );
        }
    }
    assert!(calls.lookup(Key::PodUid(UID.into())).is_ok());
    assert_eq!(calls.watchers().unwrap_err().0, DENIED);
}

#[test]
fn a_caller_that_no_rule_is_about_is_told_so_at_once() {
    let server =
        Setup::new().manifest("web.json", &manifest(UID, "shop", SECRET, "1")).argument("--allow=uid=4242");
    let mut server = server.start();
    let uid = rustix::process::geteuid().as_raw();
    let mut calls = Calls::connect(&server.socket());
    for _ in 0..200 {
        let (code, message) = calls.list("v1alpha1.Pods", &[]).unwrap_err();
        assert_eq!(code, DENIED, "and not the rate limit");
        let expected =
            format!("no --allow rule is about this caller; --allow uid={uid} would be (seen as: uid {uid}, ");
        assert!(message.starts_with(&expected), "{message}");
        assert!(message.contains(&format!("pid {}", std::process::id())), "{message}");
    }
    for path in ["/Pods/GetPod", "/Pods/WatchPods", "/podsapi.v1.Node/Lookup", "/podsapi.v1.Node/Watchers"] {
        assert_eq!(calls.unary(path, &[], &[]).unwrap_err().0, DENIED, "{path}");
    }
    // What shows no pod is open to whoever may connect.
    assert!(calls.unary("/grpc.health.v1.Health/Check", &[], &[]).is_ok());
    let me = calls.who_am_i();
    assert_eq!((me.uid, me.pid, &*me.rule), (uid, std::process::id().cast_signed(), ""));
    assert_eq!(count(&server, "pods_api_requests_rejected_total{reason=\"policy\"} "), Some(204.0));
    let (_, metrics) = server.http("/metrics");
    assert!(!metrics.contains("kubelet_pod_requests_total{"), "{metrics}");
    assert!(server.stop().success());
    let log = server.log();
    assert_eq!(log.matches("call refused by the access policy").count(), 1, "{log}");
}

#[test]
fn a_restricted_caller_sees_its_own_watches_only() {
    for (options, expected) in
        [("", 2), (",namespaces=shop", 1), (",methods=watch", 1), (",profile=no-env", 1)]
    {
        let server = serving_web(options);
        let mut calls = Calls::connect(&server.socket());
        let stream = calls.watch("Pods", &[]);
        calls.events("Pods", stream, 1);
        // Another program of the same user.
        let other =
            server.client_command(&["get", "pods", "-A", "-w"]).stdout(Stdio::null()).spawn().unwrap();
        let _other = Ended(other);
        let open = "pods_api_watchers ";
        eventually("both watches", PATIENCE, || (count(&server, open)? == 2.0).then_some(()));
        let mut calls = Calls::connect(&server.socket());
        let watchers = calls.watchers().unwrap().watchers;
        assert_eq!(watchers.len(), expected, "{options}: {watchers:?}");
        assert!(watchers.iter().any(|watch| watch.pid == std::process::id().cast_signed()), "{watchers:?}");
    }
}

/// A child that does not outlive its test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
