//! The client commands against the server, as a person or a script runs them.

use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::net::UnixListener;
use std::process::{Child, Output, Stdio};

use crate::harness::{PATIENCE, Server, Setup, binary, eventually, succeed};

const UID: &str = "7c0f6a52-0000-4000-8000-00000000c001";

fn manifest(version: &str) -> String {
    format!(
        r#"{{"apiVersion": "v1", "kind": "Pod",
            "metadata": {{"name": "web", "namespace": "shop", "uid": "{UID}", "labels": {{"version": "{version}"}}}},
            "spec": {{"containers": [{{"name": "main", "image": "registry.example/main:1"}}]}}}}"#
    )
}

fn serving_web() -> Server {
    Setup::new().manifest("web.json", &manifest("1")).start()
}

/// The cells of each line.
fn cells(text: &str) -> Vec<Vec<&str>> {
    text.lines().map(|line| line.split_whitespace().collect()).collect()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

#[test]
fn get_pods_prints_the_columns_of_kubectl() {
    let server = serving_web();
    let table = succeed(&mut server.client_command(&["get", "pods", "--namespace", "shop"]));
    let rows = cells(&table);
    assert_eq!(rows[0], ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    assert_eq!(rows[1][..4], ["web-node-1", "0/1", "Pending", "0"]);
    assert_eq!(rows.len(), 2, "{table}");
}

#[test]
fn get_pods_shows_every_namespace_only_when_asked() {
    let server = serving_web();
    let all = succeed(&mut server.client_command(&["get", "pods", "-A", "-o", "wide"]));
    let rows = cells(&all);
    assert_eq!(rows[0], ["NAMESPACE", "NAME", "READY", "STATUS", "RESTARTS", "AGE", "IP", "NODE", "UID"]);
    assert_eq!((rows[1][0], *rows[1].last().unwrap()), ("shop", UID));
    let none = server.client(&["get", "pods"]);
    assert!(none.status.success() && none.stdout.is_empty());
    assert!(stderr(&none).contains("-A"), "{}", stderr(&none));
}

#[test]
fn get_pods_prints_whole_pods_for_programs() {
    let server = serving_web();
    let list = json(&succeed(&mut server.client_command(&["get", "pods", "-A", "-o", "json"])));
    assert_eq!((&list["apiVersion"], &list["kind"]), (&"v1".into(), &"List".into()));
    let pod = json(&succeed(&mut server.client_command(&["get", "pods", UID, "-o", "json"])));
    assert_eq!((&pod["apiVersion"], &pod["kind"]), (&"v1".into(), &"Pod".into()));
    assert_eq!(pod["metadata"]["labels"]["version"], "1");
    assert_eq!(list["items"], serde_json::json!([pod]));
    let yaml = succeed(&mut server.client_command(&["get", "pods", UID, "-o", "yaml"]));
    assert!(yaml.lines().any(|line| line == format!("  uid: {UID}")), "{yaml}");
    // A string that YAML would read as a number stays a string.
    assert!(yaml.contains("version: \"1\"") || yaml.contains("version: '1'"), "{yaml}");
    assert_eq!(succeed(&mut server.client_command(&["get", "pods", "-A", "-o", "name"])), "pod/web-node-1\n");
}

#[test]
fn get_pods_asks_for_what_it_shows() {
    let server = serving_web();
    let shown =
        succeed(&mut server.client_command(&["get", "pods", "-A", "-l", "version in (1,2)", "-o", "name"]));
    assert_eq!(shown, "pod/web-node-1\n");
    let hidden = succeed(&mut server.client_command(&["get", "pods", "-A", "-l", "version=3", "-o", "name"]));
    assert_eq!(hidden, "");
    let fields =
        ["get", "pods", "-n", "shop", "-o", "json", "--fields", "metadata.name,spec.containers.image"];
    let list = json(&succeed(&mut server.client_command(&fields)));
    let pod = &list["items"][0];
    assert_eq!(pod["metadata"], serde_json::json!({"name": "web-node-1"}));
    assert_eq!(pod["spec"]["containers"][0]["image"], "registry.example/main:1");
    for (arguments, expected) in [
        (&["--fields", "spec.nope", "-o", "json"][..], "spec.nope"),
        (&["--fields", "spec"], "add -o json"),
        (&["-l", "app in b"], "expected `(`"),
    ] {
        let output = server.client(&[&["get", "pods"], arguments].concat());
        assert!(!output.status.success() && stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn get_pods_of_an_unknown_uid_fails_with_the_servers_words() {
    let unknown = UID.replace('7', "8");
    let output = serving_web().client(&["get", "pods", &unknown]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output), format!("error: pod with UID {unknown} not found\n"));
}

#[test]
fn get_pods_takes_a_name_with_its_namespace() {
    let server = serving_web();
    let row = succeed(&mut server.client_command(&["get", "pods", "web-node-1", "-n", "shop", "-o", "name"]));
    assert_eq!(row, "pod/web-node-1\n");
    let fields = ["get", "pod", "web-node-1", "-n", "shop", "-o", "json", "--fields", "metadata.uid"];
    let pod = json(&succeed(&mut server.client_command(&fields)));
    assert_eq!(pod["metadata"], serde_json::json!({"uid": UID}));
    let elsewhere = server.client(&["get", "pods", "web-node-1", "-n", "default"]);
    assert_eq!(elsewhere.status.code(), Some(1));
    assert!(stderr(&elsewhere).contains("no pod web-node-1 in namespace default"), "{}", stderr(&elsewhere));
    let bare = server.client(&["get", "pods", "web-node-1"]);
    assert_eq!(bare.status.code(), Some(1));
    for hint in ["get pods web-node-1 -n NAMESPACE", "lookup NAMESPACE/web-node-1"] {
        assert!(stderr(&bare).contains(hint), "{}", stderr(&bare));
    }
}

/// A client command that goes on, and the lines it prints.
struct Watching {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Watching {
    fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut child =
            server.client_command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                // Ends with the child's output, or with the test that no longer listens.
                if sender.send(line.unwrap()).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line is printed")
    }

    /// Waits for the command's end: its exit code and what it said on stderr.
    fn end(&mut self) -> (Option<i32>, String) {
        let status = eventually("the watch to end", PATIENCE, || self.child.try_wait().unwrap());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (status.code(), said)
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn watch_shows_each_change_and_says_why_it_ends() {
    let mut server = serving_web();
    let mut watching = Watching::start(&server, &["get", "pods", "-n", "shop", "-w", "-o", "json"]);
    let event = |watching: &Watching| {
        let event = json(&watching.line());
        let object = &event["object"]["metadata"];
        (
            event["type"].as_str().unwrap().to_owned(),
            object["uid"].as_str().unwrap().to_owned(),
            object["labels"]["version"].as_str().map(str::to_owned),
        )
    };
    let seen =
        |kind: &str, version: Option<&str>| (kind.to_owned(), UID.to_owned(), version.map(str::to_owned));
    assert_eq!(event(&watching), seen("ADDED", Some("1")));
    server.write_manifest("web.json", &manifest("2"));
    assert_eq!(event(&watching), seen("MODIFIED", Some("2")));
    server.remove_manifest("web.json");
    assert_eq!(event(&watching), seen("DELETED", None));
    assert!(server.stop().success());
    let (code, said) = watching.end();
    assert_eq!(code, Some(1));
    assert!(said.starts_with("error: the watch ended: the server went away"), "{said}");
}

#[test]
fn watched_table_keeps_the_last_row_of_a_deleted_pod() {
    let server = serving_web();
    let watching = Watching::start(&server, &["get", "pods", "-A", "-w"]);
    let row = |watching: &Watching| {
        watching.line().split_whitespace().take(4).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row(&watching), ["NAMESPACE", "NAME", "READY", "STATUS"]);
    assert_eq!(row(&watching), ["shop", "web-node-1", "0/1", "Pending"]);
    server.remove_manifest("web.json");
    assert_eq!(row(&watching), ["shop", "web-node-1", "0/1", "Deleted"]);
}

#[test]
fn lookup_finds_a_pod_by_uid_and_name_and_its_tombstone() {
    let server = serving_web();
    for key in [&[UID][..], &["--name", "shop/web-node-1"][..]] {
        let arguments = [&["lookup", "-o", "name"][..], key].concat();
        assert_eq!(succeed(&mut server.client_command(&arguments)), "pod/web-node-1\n");
    }
    server.remove_manifest("web.json");
    let deleted = eventually("the pod to be gone", PATIENCE, || {
        let output = server.client(&["lookup", UID]);
        String::from_utf8_lossy(&output.stdout).contains("Deleted").then_some(output)
    });
    // WATCH-8
    assert!(stderr(&deleted).contains("has left this node"), "{}", stderr(&deleted));
    assert_eq!(server.client(&["get", "pods", UID]).status.code(), Some(1));
}

#[test]
fn lookup_waits_for_a_pod_that_is_still_to_come() {
    let server = Setup::new().start();
    let mut waiting =
        Watching::start(&server, &["lookup", "--name", "shop/web-node-1", "--wait", "20s", "-o", "name"]);
    server.write_manifest("web.json", &manifest("1"));
    assert_eq!(waiting.line(), "pod/web-node-1");
    assert_eq!(waiting.end().0, Some(0));
    let absent = server.client(&["lookup", "--name", "shop/absent", "--wait", "10ms"]);
    assert_eq!(absent.status.code(), Some(1));
}

#[test]
fn reader_that_goes_away_is_no_error() {
    let server = serving_web();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = server.client_command(&["get", "pods", "-A"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), stderr(&output).as_str()), (Some(0), ""));
}

#[test]
fn unreachable_server_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("pods-api.sock");
    let get = || binary().args(["get", "pods", "--socket"]).arg(&socket).output().unwrap();
    let missing = get();
    assert_eq!(missing.status.code(), Some(1));
    assert!(stderr(&missing).contains("is the server running?"), "{}", stderr(&missing));
    drop(UnixListener::bind(&socket).unwrap());
    let stale = get();
    assert_eq!(stale.status.code(), Some(1));
    assert!(stderr(&stale).contains("nothing listens"), "{}", stderr(&stale));
}

#[test]
fn wrong_usage_exits_with_64() {
    for arguments in [&["get"][..], &["lookup"][..], &["get", "pods", "-o", "xml"][..]] {
        assert_eq!(binary().args(arguments).output().unwrap().status.code(), Some(64), "{arguments:?}");
    }
}

#[test]
fn what_cannot_be_meant_is_refused_before_connecting() {
    for (arguments, expected) in [
        (&["get", "pods", "--fields", "spec"][..], "add -o json"),
        (
            &["get", "deployments", "-A"],
            "no resource \"deployments\" here: the server knows the pods of its node",
        ),
        (&["doctor", "--admin", "localhost"], "give one like 127.0.0.1:9477"),
    ] {
        let output = binary().args(arguments).env("PODS_API_SOCKET", "/no/such/socket").output().unwrap();
        assert_eq!(output.status.code(), Some(64), "{arguments:?}");
        assert!(
            stderr(&output).contains(expected) && !stderr(&output).contains("'po'"),
            "{}",
            stderr(&output)
        );
    }
}

#[test]
fn doctor_of_a_server_without_an_admin_listener_says_so() {
    let output = binary().arg("doctor").env("PODS_API_ADMIN", "none").output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("the server has no admin listener"), "{}", stderr(&output));
}

#[test]
fn completion_scripts_know_the_commands() {
    for shell in ["bash", "zsh", "fish"] {
        let script = succeed(binary().args(["completion", shell]));
        assert!(script.contains("lookup") && script.contains("serve"), "{shell}: {script}");
    }
}

#[test]
fn doctor_tells_what_a_server_waits_for() {
    let server = serving_web();
    let ask = |server: &Server| {
        let admin = server.admin().expect("the admin address is logged").to_string();
        binary().args(["doctor", "--admin", &admin]).output().unwrap()
    };
    let text = succeed(binary().args(["doctor", "--admin", &server.admin().unwrap().to_string()]));
    assert!(
        text.contains("[+]source/manifest ok") && text.contains("no container runtime is asked"),
        "{text}"
    );

    let waiting = Setup::new().argument("--cri-socket=/no/such/runtime.sock").spawn();
    eventually("the admin listener", PATIENCE, || waiting.admin());
    eventually("the runtime to be missed", PATIENCE, || {
        let output = ask(&waiting);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_told = text.contains("[-]source/cri failed: no runtime answers")
            && text.contains("cannot connect to /no/such/runtime.sock");
        assert_eq!((output.status.code(), &*stderr(&output)), (Some(1), "error: the server is not ready\n"));
        is_told.then_some(())
    });

    let nobody = binary().args(["doctor", "--admin", "127.0.0.1:1"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(1));
    assert!(stderr(&nobody).contains("is the server running"), "{}", stderr(&nobody));
}
