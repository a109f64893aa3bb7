//! Lookup by container, process and cgroup, in real cgroups with real processes: as root, below a directory of the
//! test's own in the cgroup2 hierarchy.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::harness::{PATIENCE, Server, Setup, cannot_run, eventually};

const UID: &str = "7c0f6a52-0000-4000-8000-00000000c0d1";
const OTHER: &str = "7c0f6a52-0000-4000-8000-00000000c0d2";
const C1: &str = "aaaa1111aaaa1111aaaa1111aaaa1111aaaa1111aaaa1111aaaa1111aaaa1111";
const C2: &str = "aaaa2222aaaa2222aaaa2222aaaa2222aaaa2222aaaa2222aaaa2222aaaa2222";

/// Cgroups below one of the test's own, which is the server's `--cgroup-root`; removed with everything in it.
struct Cgroups {
    mount: PathBuf,
    root: String,
}

impl Cgroups {
    /// `None`, said aloud, where cgroups cannot be made.
    fn new() -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let is_unified = |line: &&str| line.split(' ').nth(2) == Some("cgroup2");
        let Some(mount) = mounts.lines().find(is_unified).and_then(|line| line.split(' ').nth(1)) else {
            cannot_run("no cgroup2 is mounted");
            return None;
        };
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let cgroups =
            Self { mount: mount.into(), root: format!("/pods-api-test-{}-{number}", std::process::id()) };
        if let Err(error) = fs::create_dir(cgroups.directory("")) {
            cannot_run(&format!("cgroups cannot be made: {error}"));
            return None;
        }
        Some(cgroups)
    }

    fn directory(&self, path: &str) -> PathBuf {
        self.mount.join(format!("{}{path}", self.root).trim_start_matches('/'))
    }

    fn make(&self, path: &str) -> PathBuf {
        let directory = self.directory(path);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    /// A process that waits, in a cgroup.
    fn run(&self, path: &str) -> Process {
        let process = Process::start();
        process.enter(&self.make(path));
        process
    }

    fn serve(&self, manifests: &[(&str, &str)]) -> Server {
        let setup = Setup::new().argument("--cgroup-root").argument(&self.root);
        let setup =
            manifests.iter().fold(setup, |setup, (name, uid)| setup.manifest(&file(name), &pod(name, uid)));
        let server = setup.argument("--rate-limit-burst=10000").start();
        eventually("the first scan of the cgroups", PATIENCE, || {
            server.http("/readyz?verbose").1.contains("cgroups of pods below").then_some(())
        });
        server
    }
}

impl Drop for Cgroups {
    fn drop(&mut self) {
        remove(&self.directory(""));
    }
}

fn remove(cgroup: &Path) {
    for pid in fs::read_to_string(cgroup.join("cgroup.procs")).unwrap_or_default().lines() {
        // Into the root: what is left there ends with its owner.
        let root = cgroup.ancestors().take_while(|path| path.join("cgroup.procs").exists()).last();
        let _ = root.map(|root| fs::write(root.join("cgroup.procs"), pid));
    }
    for child in fs::read_dir(cgroup).into_iter().flatten().filter_map(Result::ok) {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove(&child.path());
        }
    }
    let _ = fs::remove_dir(cgroup);
}

/// A process that waits until it is dropped.
struct Process(Child);

impl Process {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap())
    }

    fn enter(&self, cgroup: &Path) {
        fs::write(cgroup.join("cgroup.procs"), self.pid()).unwrap();
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }

    /// Ends it and waits until the kernel has let go of it.
    fn end(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn file(name: &str) -> String {
    format!("{name}.json")
}

fn pod(name: &str, uid: &str) -> String {
    format!(
        r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "{name}", "namespace": "shop", "uid": "{uid}"}},
            "spec": {{"containers": [{{"name": "main", "image": "registry.example/main:1"}}]}}}}"#
    )
}

fn lookup(key: &[&str], wait: &[&str]) -> Vec<String> {
    [&["lookup", "-o", "name"][..], key, wait].concat().into_iter().map(str::to_owned).collect()
}

/// What a lookup prints: the pod, and the container's ID; or, if it fails, what it says.
fn printed(output: &std::process::Output) -> Result<(String, String), String> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end().to_owned();
    if !output.status.success() {
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        return Err(text(&output.stderr));
    }
    let note = text(&output.stderr);
    let container = note.lines().find_map(|line| line.strip_prefix("container ")?.split(", ").nth(1));
    Ok((text(&output.stdout), container.unwrap_or_default().to_owned()))
}

fn find(server: &Server, key: &[&str]) -> Result<(String, String), String> {
    let arguments = lookup(key, &[]);
    printed(&server.client(&arguments.iter().map(String::as_str).collect::<Vec<_>>()))
}

/// A lookup that waits.
struct Waiting(Child);

impl Waiting {
    fn start(server: &Server, key: &[&str]) -> Self {
        let arguments = lookup(key, &["--wait", "20s"]);
        let mut command = server.client_command(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut waiting = Self(child);
        eventually("the lookup to be under way", PATIENCE, || {
            (waiting.is_connected(server) || waiting.0.try_wait().unwrap().is_some()).then_some(())
        });
        waiting
    }

    /// Whether the server has its connection.
    fn is_connected(&self, server: &Server) -> bool {
        let (_, metrics) = server.http("/metrics");
        metrics.lines().any(|line| {
            line.strip_prefix("pods_api_connections ")
                .is_some_and(|count| count.starts_with(|digit| digit != '0'))
        })
    }

    fn end(self) -> Result<(String, String), String> {
        printed(&self.0.wait_with_output().unwrap())
    }
}

fn is(pod: &str, container: &str) -> Result<(String, String), String> {
    Ok((format!("pod/{pod}-node-1"), container.to_owned()))
}

/// CG-1, CG-4, CG-6: both naming drivers; CRI-3: an ID in each of its forms.
#[test]
fn container_is_found_by_every_key() {
    let Some(cgroups) = Cgroups::new() else { return };
    let escaped = UID.replace('-', "_");
    let systemd = format!(
        "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{escaped}.slice/cri-containerd-{C1}.scope"
    );
    for path in [format!("/kubepods/burstable/pod{UID}/{C1}"), systemd] {
        let process = cgroups.run(&path);
        let server = cgroups.serve(&[("web", UID)]);
        let directory = cgroups.directory(&path);
        let number = fs::metadata(&directory).unwrap().ino().to_string();
        let line = fs::read_to_string(format!("/proc/{}/cgroup", process.pid())).unwrap();
        let line = line.lines().find(|line| line.starts_with("0::")).unwrap();
        let with_scheme = format!("containerd://{C1}");
        for key in [
            &["--pid", &*process.pid()][..],
            &["--cgroup", &format!("{}{path}", cgroups.root)],
            &["--cgroup", line],
            &["--cgroup", directory.to_str().unwrap()],
            &["--cgroup-id", &number],
            &["--container", C1],
            &["--container", &with_scheme],
            &["--container", "aaaa1"],
        ] {
            assert_eq!(find(&server, key), is("web", C1), "{key:?} of {path}");
        }
        let pod = Path::new(&path).parent().unwrap().to_str().unwrap();
        assert_eq!(find(&server, &["--cgroup", &format!("{}{pod}", cgroups.root)]), is("web", ""));
        drop(process);
        remove(&cgroups.directory("/kubepods"));
        remove(&cgroups.directory("/kubepods.slice"));
    }
}

#[test]
fn what_names_no_pod_is_refused_with_the_reason() {
    let Some(cgroups) = Cgroups::new() else { return };
    cgroups.make(&format!("/kubepods/pod{UID}/{C1}"));
    cgroups.make(&format!("/kubepods/pod{OTHER}/{C2}"));
    let server = cgroups.serve(&[("web", UID), ("db", OTHER)]);
    let refused = |key: &[&str]| find(&server, key).unwrap_err();
    let ambiguous = refused(&["--container", "aaaa"]);
    assert!(
        ambiguous.contains("is ambiguous") && ambiguous.contains(C1) && ambiguous.contains("shop/db-node-1")
    );
    let process = Process::start();
    let reason = refused(&["--pid", &process.pid()]);
    assert!(reason.contains("runs in no pod: its cgroup is /"), "{reason}");
    let pid = process.pid();
    process.end();
    let reason = refused(&["--pid", &pid]);
    assert!(reason.contains(&format!("there is no process {pid}")), "{reason}");
    let reason = refused(&["--cgroup", "/system.slice/sshd.service"]);
    assert!(reason.contains(&format!("names no pod below {}", cgroups.root)), "{reason}");
    // Not below the root: the pod of another cluster.
    let reason = refused(&["--cgroup", &format!("/kubepods/pod{UID}/{C1}")]);
    assert!(reason.contains("names no pod below"), "{reason}");
    // A thread of the server itself, which is no process.
    let server_pid = fs::read_dir("/proc").unwrap().filter_map(Result::ok).find_map(|entry| {
        let command = fs::read(entry.path().join("cmdline")).ok()?;
        let socket = server.socket();
        let is_server = command.starts_with(env!("CARGO_BIN_EXE_pods-api").as_bytes())
            && command
                .split(|byte| *byte == 0)
                .any(|argument| argument == socket.as_os_str().as_encoded_bytes());
        is_server.then(|| entry.file_name().into_string().unwrap())
    });
    let server_pid = server_pid.expect("the server runs");
    let thread = fs::read_dir(format!("/proc/{server_pid}/task")).unwrap().filter_map(Result::ok);
    let thread =
        thread.map(|entry| entry.file_name().into_string().unwrap()).find(|tid| *tid != server_pid).unwrap();
    let reason = refused(&["--pid", &thread]);
    assert!(reason.contains(&format!("{thread} is a thread of process {server_pid}")), "{reason}");
}

#[test]
fn lookup_waits_for_cgroups_processes_and_pods_that_are_still_to_come() {
    let Some(cgroups) = Cgroups::new() else { return };
    let path = format!("/kubepods/burstable/pod{UID}/{C1}");
    let server = cgroups.serve(&[("web", UID)]);
    let container = Waiting::start(&server, &["--container", "aaaa1111"]);
    let directory = cgroups.make(&path);
    assert_eq!(container.end(), is("web", C1));
    // A process that is moved in, as the runtime moves a container's first.
    let process = Process::start();
    let waiting = Waiting::start(&server, &["--pid", &process.pid()]);
    process.enter(&directory);
    assert_eq!(waiting.end(), is("web", C1));
    // What the container makes below itself.
    let below = cgroups.make(&format!("{path}/init.scope"));
    let number = fs::metadata(below).unwrap().ino().to_string();
    assert_eq!(Waiting::start(&server, &["--cgroup-id", &number]).end(), is("web", C1));
    // A pod that the node runs before any source tells of it.
    let early = cgroups.run(&format!("/kubepods/pod{OTHER}/{C2}"));
    let reason = find(&server, &["--pid", &early.pid()]).unwrap_err();
    assert!(reason.contains(&format!("a pod with UID {OTHER}, which no source has told of")), "{reason}");
    let waiting = Waiting::start(&server, &["--pid", &early.pid()]);
    server.write_manifest(&file("db"), &pod("db", OTHER));
    assert_eq!(waiting.end(), is("db", C2));
    // One that ends while it is waited for is not waited for any longer.
    let process = Process::start();
    let waiting = Waiting::start(&server, &["--pid", &process.pid()]);
    process.end();
    let reason = waiting.end().unwrap_err();
    assert!(reason.contains("there is no process"), "{reason}");
}

#[test]
fn container_that_is_just_gone_is_found_and_its_pod_too() {
    let Some(cgroups) = Cgroups::new() else { return };
    let path = format!("/kubepods/burstable/pod{UID}/{C1}");
    let server = cgroups.serve(&[("web", UID)]);
    let process = cgroups.run(&path);
    let number = fs::metadata(cgroups.directory(&path)).unwrap().ino().to_string();
    assert_eq!(Waiting::start(&server, &["--container", C1]).end(), is("web", C1));
    process.end();
    remove(&cgroups.directory(&path));
    server.remove_manifest(&file("web"));
    let deleted = eventually("the pod to be gone", PATIENCE, || {
        let output = server.client(&["lookup", "--container", C1]);
        String::from_utf8_lossy(&output.stdout).contains("Deleted").then_some(output)
    });
    assert!(String::from_utf8_lossy(&deleted.stderr).contains("has left this node"));
    assert_eq!(find(&server, &["--cgroup-id", &number]), is("web", C1));
}

/// The outermost pod counts, whatever is made below it (rule D.3.2).
#[test]
fn container_that_names_a_child_after_another_pod_stays_its_own() {
    let Some(cgroups) = Cgroups::new() else { return };
    let path = format!("/kubepods/burstable/pod{UID}/{C1}/kubepods/pod{OTHER}/{C2}");
    let process = cgroups.run(&path);
    let server = cgroups.serve(&[("web", UID), ("db", OTHER)]);
    let number = fs::metadata(cgroups.directory(&path)).unwrap().ino().to_string();
    for key in [&["--pid", &*process.pid()][..], &["--cgroup-id", &number]] {
        assert_eq!(find(&server, key), is("web", C1), "{key:?}");
    }
    let error = find(&server, &["--container", C2]).unwrap_err();
    assert!(error.contains("not found"), "{error}");
}
