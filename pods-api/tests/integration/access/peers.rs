//! Who a caller is taken for: never for another. Needs root, to be other users, make cgroups and PID namespaces.

use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, connect, socket};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use super::calls::Calls;
use super::cgroup::{Cgroups, Driver, within};
use super::manifest;
use crate::harness::{PATIENCE, Server, Setup, cannot_run, eventually, succeed};
use crate::raw::Raw;
use pods_api_proto::podsapi::v1::WhoAmIResponse;
use pods_api_proto::podsapi::v1::lookup_request::Key;

const POD: &str = "7c0f6a52-0000-4000-8000-0000000000a1";
const OTHER: &str = "7c0f6a52-0000-4000-8000-0000000000b2";
const CONTAINER: &str = "c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00c0ffee00";
const DECOY: &str = "decade00decade00decade00decade00decade00decade00decade00decade00";

/// Set for a run of this binary that is to connect its stdin to that path.
const CONNECT_TO: &str = "TEST_CONNECTS_STDIN_TO";
/// Set, beside it, for one that is to stay then.
const AND_STAY: &str = "TEST_STAYS_CONNECTED";
/// Set for a run of this binary within a PID namespace.
const INSIDE: &str = "TEST_RUNS_IN_PID_NAMESPACE";

fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        cannot_run("only root can be other users and make cgroups");
    }
    is_root
}

/// A child that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn who_am_i(command: &mut Command) -> serde_json::Value {
    serde_json::from_str(&succeed(command)).unwrap()
}

/// This binary, running one test only.
fn this_test(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command
}

/// What a run of this binary does that has been told to connect; whether it was.
fn has_connected() -> bool {
    let Some(path) = std::env::var_os(CONNECT_TO) else { return false };
    let address = SocketAddrUnix::new(Path::new(&path)).unwrap();
    connect(std::io::stdin(), &address).unwrap();
    eprintln!("connected");
    if std::env::var_os(AND_STAY).is_some() {
        loop {
            std::thread::park();
        }
    }
    true
}

/// A connection made by one process and used by another: the child in the cgroup connects, this one keeps the socket.
/// `stays` is whether the child is still there.
fn connected_by(test: &str, server: &Server, cgroup: &Path, stays: bool) -> (UnixStream, Running) {
    let ours: OwnedFd = socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap();
    let mut command = this_test(test);
    command.env(CONNECT_TO, server.socket());
    if stays {
        command.env(AND_STAY, "1");
    }
    let mut command = within(cgroup, &command);
    command.stdin(ours.try_clone().unwrap()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = Running(command.spawn().unwrap());
    let said = BufReader::new(child.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.into_iter().any(|line| line == "connected"), "the child connects");
    if !stays {
        assert!(child.0.wait().unwrap().success());
    }
    (ours.into(), child)
}

fn ask(connection: UnixStream) -> WhoAmIResponse {
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    Calls::over(Raw::over(connection, &[])).who_am_i()
}

/// Stops the server, so that it accepts nobody, until dropped.
struct Stopped(Pid);

impl Stopped {
    fn new(server: &Server) -> Self {
        let pid = Pid::from_raw(server.pid().cast_signed()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        let stat = format!("/proc/{}/stat", server.pid());
        eventually("the server to be stopped", PATIENCE, || {
            let stat = fs::read_to_string(&stat).unwrap();
            stat.rsplit_once(") ").unwrap().1.starts_with('T').then_some(())
        });
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

fn serving(cgroups: &Cgroups) -> Setup {
    Setup::new()
        .manifest("web.json", &manifest(POD, "shop", "s3cr3t", "1"))
        .manifest("other.json", &manifest(OTHER, "bank", "s3cr3t", "1"))
        .argument(&format!("--cgroup-root={}", cgroups.root()))
}

fn on_both_transports(test: impl Fn(&str)) {
    ["--transport=io_uring", "--transport=epoll"].into_iter().for_each(test);
}

#[test]
fn another_user_is_admitted_by_a_group_and_else_told_as_whom_it_was_seen() {
    if !is_root() {
        return;
    }
    let serving = |rule: &str| {
        let server = Setup::new()
            .manifest("web.json", &manifest(POD, "shop", "s3cr3t", "1"))
            .argument("--socket-group=4242")
            .argument("--socket-mode=0660")
            .argument(&format!("--allow={rule}"))
            .start();
        // The test's directory is closed to others, and so may be the one with the binary.
        let directory = server.manifests().parent().unwrap().to_owned();
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o711)).unwrap();
        let program = directory.join("pods-api");
        fs::copy(env!("CARGO_BIN_EXE_pods-api"), &program).unwrap();
        (server, program)
    };
    let as_nobody = |server: &Server, program: &PathBuf, arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65533", "--groups=4242"]).arg(program).args(arguments);
        command.arg("--socket").arg(server.socket()).stdin(Stdio::null());
        command
    };
    let (server, program) = serving("uid=0");
    let output = as_nobody(&server, &program, &["get", "pods", "-A"]).output().unwrap();
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success());
    assert!(message.contains("--allow uid=65534 would be") && message.contains("gid 65533"), "{message}");
    assert!(message.contains(", in no pod"), "{message}");
    let me = who_am_i(&mut as_nobody(&server, &program, &["whoami", "-o", "json"]));
    assert_eq!((&me["uid"], &me["gid"], &me["rule"]), (&65534.into(), &65533.into(), &"".into()));
    assert_eq!(me["executable"], program.to_str().unwrap(), "SYS_PTRACE is kept for this");

    for rule in ["uid=65534", "gid=65533", "gid=4242"] {
        let (server, program) = serving(rule);
        assert!(succeed(&mut as_nobody(&server, &program, &["get", "pods", "-A"])).contains("web"));
        // Root is not meant.
        let refused = server.client(&["get", "pods", "-A"]);
        assert!(String::from_utf8_lossy(&refused.stderr).contains("--allow uid=0 would be"));
    }
}

#[test]
fn a_caller_in_a_pods_cgroup_is_in_that_pod() {
    if !is_root() {
        return;
    }
    for driver in [Driver::Cgroupfs, Driver::Systemd] {
        let cgroups = Cgroups::new();
        let server = serving(&cgroups).argument("--allow=namespace=shop;pod-uid=nobody;uid=0").start();
        let me =
            |cgroup: &Path| who_am_i(&mut within(cgroup, &server.client_command(&["whoami", "-o", "json"])));
        let caller = me(&cgroups.container(driver, POD, CONTAINER));
        assert_eq!((&caller["known"], &caller["podUid"]), (&true.into(), &POD.into()), "{driver:?}");
        assert_eq!((&caller["podNamespace"], &caller["podName"]), (&"shop".into(), &"web-node-1".into()));
        assert_eq!((&caller["containerId"], &caller["rule"]), (&CONTAINER.into(), &"namespace=shop".into()));
        let caller = me(&cgroups.container(driver, OTHER, CONTAINER));
        assert_eq!((&caller["podUid"], &caller["rule"]), (&OTHER.into(), &"uid=0".into()));
        // Beside the pods.
        let caller = me(&cgroups.make("system.slice/agent.service"));
        assert_eq!(
            (&caller["known"], &caller["podUid"], &caller["rule"]),
            (&true.into(), &"".into(), &"uid=0".into())
        );
        // What a user makes is not sure to be a pod's, nor the host's.
        let caller = me(&cgroups
            .make(&format!("user.slice/user-1000.slice/user@1000.service/kubepods/pod{POD}/{CONTAINER}")));
        assert_eq!(
            (&caller["known"], &caller["podUid"], &caller["rule"]),
            (&false.into(), &"".into(), &"".into())
        );
        // What a container makes below itself is still its own, whatever it is named.
        let own = cgroups.container(driver, POD, CONTAINER);
        for path in [
            format!("kubepods/burstable/pod{OTHER}/{DECOY}"),
            format!(
                "kubepods.slice/kubepods-pod{}.slice/cri-containerd-{DECOY}.scope",
                OTHER.replace('-', "_")
            ),
            format!("pod{OTHER}/{DECOY}"),
        ] {
            let decoy = own.join(path);
            fs::create_dir_all(&decoy).unwrap();
            let caller = me(&decoy);
            assert_eq!((&caller["podUid"], &caller["containerId"]), (&POD.into(), &CONTAINER.into()));
        }
    }
}

#[test]
fn a_server_in_a_cgroup_namespace_of_its_own_takes_nobody_for_another() {
    // As in a DaemonSet: the node's hierarchy is mounted, but paths are seen from the server's own container.
    if !is_root() {
        return;
    }
    for driver in [Driver::Cgroupfs, Driver::Systemd] {
        let cgroups = Cgroups::new();
        let own = cgroups.container(driver, OTHER, DECOY);
        let server = serving(&cgroups)
            .within(&[
                "sh",
                "-c",
                "echo $$ > \"$0/cgroup.procs\" && exec unshare --cgroup \"$@\"",
                own.to_str().unwrap(),
            ])
            .start();
        let me =
            |cgroup: &Path| who_am_i(&mut within(cgroup, &server.client_command(&["whoami", "-o", "json"])));
        let in_pod = |caller: &serde_json::Value, pod: &str, container: &str| {
            assert_eq!((&caller["known"], &caller["podUid"]), (&true.into(), &pod.into()), "{driver:?}");
            assert_eq!(caller["containerId"], container);
        };
        in_pod(&me(&cgroups.container(driver, POD, CONTAINER)), POD, CONTAINER);
        // Beside the server and below it.
        in_pod(&me(&cgroups.container(driver, OTHER, CONTAINER)), OTHER, CONTAINER);
        let below = own.join(format!("kubepods/burstable/pod{POD}/{CONTAINER}"));
        fs::create_dir_all(&below).unwrap();
        in_pod(&me(&below), OTHER, DECOY);
        let caller = me(&cgroups.make("system.slice/agent.service"));
        assert_eq!((&caller["known"], &caller["podUid"]), (&true.into(), &"".into()));
    }
}

#[test]
fn a_rule_about_a_namespace_waits_for_the_pod_and_holds_back_later_rules() {
    if has_connected() || !is_root() {
        return;
    }
    const NEW: &str = "7c0f6a52-0000-4000-8000-0000000000e5";
    let cgroups = Cgroups::new();
    let server = serving(&cgroups)
        .argument("--allow=namespace=late,fields=metadata.uid;uid=0")
        // It is asked until something has changed.
        .argument("--rate-limit-qps=1000000")
        .argument("--rate-limit-burst=1000000")
        .start();
    let cgroup = cgroups.container(Driver::Cgroupfs, NEW, CONTAINER);
    let name = "access::peers::a_rule_about_a_namespace_waits_for_the_pod_and_holds_back_later_rules";
    let (connection, _stays) = connected_by(name, &server, &cgroup, true);
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut calls = Calls::over(Raw::over(connection, &[]));
    let (code, message) = calls.list("v1alpha1.Pods", &[]).unwrap_err();
    assert!(code == 7 && message.contains("pod is not known to this server"), "{message}");
    assert_eq!(calls.who_am_i().rule, "");
    server.write_manifest("late.json", &manifest(NEW, "late", "s3cr3t", "1"));
    // On the same connection.
    let pods = eventually("the pod to be known", PATIENCE, || calls.list("v1alpha1.Pods", &[]).ok());
    assert!(pods.iter().all(|pod| pod.spec.is_none()), "{pods:?}");
    assert_eq!(calls.who_am_i().rule, "namespace=late,fields=metadata.uid");
    // Decided for good, also when the pod has gone.
    server.remove_manifest("late.json");
    eventually("the pod to be gone", PATIENCE, || {
        (calls.list("v1alpha1.Pods", &[]).unwrap().len() == 2).then_some(())
    });
}

#[test]
fn before_the_sources_have_delivered_a_rule_about_a_namespace_says_so() {
    if !is_root() {
        return;
    }
    let cgroups = Cgroups::new();
    let server = Setup::new()
        .device_as_manifests()
        .argument(&format!("--cgroup-root={}", cgroups.root()))
        .argument("--allow=namespace=shop")
        .spawn();
    eventually("the socket", PATIENCE, || server.socket().exists().then_some(()));
    let list =
        |command: &mut Command| String::from_utf8_lossy(&command.output().unwrap().stderr).into_owned();
    let mut command = server.client_command(&["get", "pods", "-A"]);
    let inside = list(&mut within(&cgroups.container(Driver::Cgroupfs, POD, CONTAINER), &command));
    assert!(inside.contains("Kubelet is initializing: waiting for manifest"), "{inside}");
    // Who is in no pod need not wait for being refused.
    let outside = list(&mut command);
    assert!(outside.contains("no --allow rule is about this caller"), "{outside}");
}

#[test]
fn decisions_name_the_process_that_connected() {
    // PID-2
    if has_connected() || !is_root() {
        return;
    }
    on_both_transports(|transport| {
        let cgroups = Cgroups::new();
        let server = serving(&cgroups).argument(transport).start();
        let cgroup = cgroups.container(Driver::Cgroupfs, POD, CONTAINER);
        let name = "access::peers::decisions_name_the_process_that_connected";
        let (connection, connector) = connected_by(name, &server, &cgroup, true);
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut calls = Calls::over(Raw::over(connection, &[]));
        let me = calls.who_am_i();
        assert_eq!((me.known, &*me.pod_uid, me.pid), (true, POD, connector.0.id().cast_signed()));
        // And go on doing so when it is gone.
        drop(connector);
        assert_eq!(calls.who_am_i(), me);
    });
}

#[test]
fn a_peer_that_is_gone_when_it_is_looked_at_is_unknown() {
    // PID-1
    if has_connected() || !is_root() {
        return;
    }
    let name = "access::peers::a_peer_that_is_gone_when_it_is_looked_at_is_unknown";
    on_both_transports(|transport| {
        let cgroups = Cgroups::new();
        let server =
            serving(&cgroups).argument(transport).argument("--allow=unknown,methods=get;uid=0").start();
        let cgroup = cgroups.container(Driver::Cgroupfs, POD, CONTAINER);
        for stays in [true, false] {
            let stopped = Stopped::new(&server);
            let (connection, connector) = connected_by(name, &server, &cgroup, stays);
            drop(stopped);
            let me = ask(connection);
            let (pod, rule) = if stays { (POD, "uid=0") } else { ("", "unknown,methods=get") };
            assert_eq!((me.known, &*me.pod_uid, &*me.rule), (stays, pod, rule), "{transport} {stays}");
            assert_eq!((me.uid, me.executable.is_empty()), (0, !stays));
            assert_eq!(me.pid, connector.0.id().cast_signed(), "as recorded at connect time");
        }
    });
}

#[test]
fn a_pod_does_not_escape_its_rule_by_being_gone() {
    // PID-1
    if has_connected() || !is_root() {
        return;
    }
    let name = "access::peers::a_pod_does_not_escape_its_rule_by_being_gone";
    on_both_transports(|transport| {
        let cgroups = Cgroups::new();
        let server = serving(&cgroups)
            .argument(transport)
            .argument("--allow=namespace=shop,methods=get;uid=0")
            .start();
        let stopped = Stopped::new(&server);
        let cgroup = cgroups.container(Driver::Cgroupfs, POD, CONTAINER);
        let (connection, _gone) = connected_by(name, &server, &cgroup, false);
        drop(stopped);
        connection.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut calls = Calls::over(Raw::over(connection, &[]));
        let (code, message) = calls.list("v1alpha1.Pods", &[]).unwrap_err();
        assert!(code == 7 && message.contains("not sure whether this caller runs in a pod"), "{message}");
        assert!(
            message.contains("namespace=shop,methods=get") && !message.contains("try again"),
            "{message}"
        );
        let me = calls.who_am_i();
        assert_eq!((me.known, &*me.rule), (false, ""));
        // A process of the host passes the rule over.
        assert!(succeed(&mut server.client_command(&["get", "pods", "-A"])).contains("web"));
    });
}

/// Runs a test again as the first process but one of a PID namespace, with a `/proc` of its own.
fn in_pid_namespace(name: &str) {
    let inside = this_test(name);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--mount-proc", "--kill-child"]).arg(inside.get_program());
    let output = command.args(inside.get_args()).env(INSIDE, "1").stdin(Stdio::null()).output().unwrap();
    let said =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn a_recycled_process_id_is_never_another_pods() {
    // PID-1
    let name = "access::peers::a_recycled_process_id_is_never_another_pods";
    if has_connected() || !is_root() {
        return;
    }
    if std::env::var_os(INSIDE).is_none() {
        return in_pid_namespace(name);
    }
    on_both_transports(|transport| {
        let cgroups = Cgroups::new();
        let server = serving(&cgroups).argument(transport).argument("--allow=unknown;namespace=bank").start();
        let (pod, other) = (
            cgroups.container(Driver::Cgroupfs, POD, CONTAINER),
            cgroups.container(Driver::Cgroupfs, OTHER, DECOY),
        );
        let stopped = Stopped::new(&server);
        let (connection, gone) = connected_by(name, &server, &pod, false);
        // The next process gets the number of the one that has connected and ended.
        let victim = (0..100).find_map(|_| {
            fs::write("/proc/sys/kernel/ns_last_pid", (gone.0.id() - 1).to_string()).unwrap();
            let mut sleep = Command::new("sleep");
            let child = within(&other, sleep.arg("600")).stdin(Stdio::null()).spawn().unwrap();
            let child = Running(child);
            (child.0.id() == gone.0.id()).then_some(child)
        });
        let victim = victim.expect("numbers are given out in order");
        let membership = format!("/proc/{}/cgroup", victim.0.id());
        eventually("the victim to be in its pod", PATIENCE, || {
            fs::read_to_string(&membership).unwrap().contains(OTHER).then_some(())
        });
        drop(stopped);
        let me = ask(connection);
        assert_eq!((me.known, &*me.pod_uid, &*me.rule), (false, "", "unknown"), "{transport}");
        assert_eq!(me.pid, victim.0.id().cast_signed(), "the number is the victim's now");
        // The victim's pod itself is known by its cgroup.
        let (connection, _stays) = connected_by(name, &server, &other, true);
        let me = ask(connection);
        assert_eq!((me.known, &*me.pod_uid, &*me.rule), (true, OTHER, "namespace=bank"));
    });
}

#[test]
fn a_caller_that_the_server_cannot_see_is_unknown_and_not_process_zero() {
    // PID-3: a caller outside of the server's PID namespace, whose own processes have the same small numbers.
    if !is_root() {
        return;
    }
    let server = Setup::new()
        .manifest("web.json", &manifest(POD, "shop", "s3cr3t", "1"))
        .within(&["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"])
        .argument("--allow=unknown,methods=get;uid=0")
        .start();
    let me = ask(UnixStream::connect(server.socket()).unwrap());
    assert_eq!((me.known, me.pid, me.uid), (false, 0, 0));
    assert_eq!((&*me.executable, &*me.pod_uid, &*me.rule), ("", "", "unknown,methods=get"));
    // With the wrong /proc, of the machine's PID namespace, nothing is read either: numbers name others there.
    let server = Setup::new()
        .manifest("web.json", &manifest(POD, "shop", "s3cr3t", "1"))
        .within(&["unshare", "--pid", "--fork", "--kill-child"])
        .start();
    let me = ask(UnixStream::connect(server.socket()).unwrap());
    assert_eq!((me.known, me.pid, &*me.executable), (false, 0, ""));
    let mut calls = Calls::connect(&server.socket());
    let (code, message) = calls.lookup(Key::Pid(1)).unwrap_err();
    assert!(code == 5 && message.contains("/proc is of another PID namespace"), "{message}");
}
