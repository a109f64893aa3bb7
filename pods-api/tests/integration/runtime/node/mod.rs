//! A real containerd with everything of its own in a temporary directory, and what a kubelet would ask it to do.
//! Needs nothing of the tests around it: the bench uses it too.
//!
//! Dropping a [`Node`] removes every sandbox, ends containerd and whatever it left, and cleans up what the runtime never
//! does: pod cgroups, the bridge, mounts.

mod cleaning;
mod client;
mod kubelet;
mod wait;

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

pub(crate) use client::{connect, executor};
pub(crate) use kubelet::{Kubelet, Recipe, SandboxOptions, Sandboxes};
pub(crate) use wait::{PATIENCE, eventually, root, succeed};

pub(crate) const IMAGE: &str = "localhost/shell:1";
const PAUSE: &str = "localhost/pause:1";
/// Names a directory with another containerd than the installed one: `cargo xtask test --runtimes all`.
const OTHER_CONTAINERD: &str = "PODS_API_TEST_CONTAINERD";
const PROGRAMS: [&str; 5] = ["containerd", "ctr", "runc", "ip", "python3"];
const BUSYBOX: &str = "/bin/busybox";
/// One node at a time in a process, as they share the cgroups above their pods. Between processes the test runner's
/// group sees to that.
static ONLY: Mutex<()> = Mutex::new(());
const PLUGINS: &str = "/usr/lib/cni";

/// What this machine lacks for a container runtime, if anything.
pub(crate) fn missing() -> Option<String> {
    let has = |program: &&str| {
        let found = Command::new("which").arg(program).stdout(Stdio::null()).status();
        found.is_ok_and(|status| status.success())
    };
    if !rustix::process::geteuid().is_root() {
        return Some("containers are made by root".to_owned());
    }
    if let Some(program) = PROGRAMS.iter().find(|program| !has(program)) {
        return Some(format!("{program} is not installed"));
    }
    let paths = [BUSYBOX, "/usr/lib/cni/bridge"];
    paths.iter().find(|path| !Path::new(path).exists()).map(|path| format!("{path} does not exist"))
}

/// A containerd and its client.
pub(crate) struct Node {
    directory: TempDir,
    containerd: Option<Child>,
    kubelet: Option<Kubelet>,
    bridge: String,
    sandboxes: Sandboxes,
    /// Last, so that it is given back after everything has been removed.
    _only: MutexGuard<'static, ()>,
}

impl Node {
    /// Starts containerd and loads the images.
    pub(crate) fn start() -> Self {
        let only = ONLY.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = tempfile::Builder::new().prefix("pods-api-cri-").tempdir().unwrap();
        // Interface names have at most 15 characters.
        let bridge = format!("pt{}", std::process::id());
        let sandboxes = Sandboxes::default();
        let mut node = Self { directory, containerd: None, kubelet: None, bridge, sandboxes, _only: only };
        node.configure();
        node.spawn();
        for (reference, entrypoint) in [(PAUSE, r#"["/bin/busybox", "sleep", "1000000"]"#), (IMAGE, "[]")] {
            let archive = node.path("image.tar");
            succeed(
                Command::new("python3")
                    .arg(root().join("pods-api/tests/runtime/mkimage.py"))
                    .arg(&archive)
                    .args([reference, entrypoint, "/bin/busybox=/bin/busybox", "/bin/sh->busybox"]),
            );
            succeed(node.ctr().args(["images", "import"]).arg(&archive));
        }
        node
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path("containerd.sock")
    }

    fn ctr(&self) -> Command {
        let mut ctr = program("ctr");
        ctr.arg("--address").arg(self.socket()).args(["--namespace", "k8s.io"]);
        ctr
    }

    fn configure(&self) {
        let directory = self.directory.path().display();
        fs::create_dir(self.path("cni")).unwrap();
        let network = format!(
            r#"{{"cniVersion": "0.4.0", "name": "test", "plugins": [{{
                "type": "bridge", "bridge": "{}", "isGateway": false, "ipMasq": false,
                "ipam": {{"type": "host-local", "dataDir": "{directory}/ipam", "ranges": [[{{"subnet": "10.213.0.0/16"}}]]}}
            }}]}}"#,
            self.bridge
        );
        fs::write(self.path("cni/10-test.conflist"), network).unwrap();
        // Without AppArmor and huge pages, which test machines may lack, and without lowering the OOM score, which
        // needs a capability that containers lack. containerd 2 reads this older format too.
        let config = format!(
            r#"version = 2
root = "{directory}/root"
state = "{directory}/state"
[grpc]
  address = "{directory}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{directory}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  disable_apparmor = true
  disable_hugetlb_controller = true
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{PLUGINS}"
    conf_dir = "{directory}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"#
        );
        fs::write(self.path("config.toml"), config).unwrap();
    }

    /// Starts containerd and waits until its CRI answers.
    pub(crate) fn spawn(&mut self) {
        let log = File::options().create(true).append(true).open(self.path("log")).unwrap();
        let child = program("containerd")
            .arg("--config")
            .arg(self.path("config.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.containerd = Some(child);
        self.kubelet = Some(eventually("containerd to answer", PATIENCE, || self.connect()));
    }

    /// Another connection to the runtime, for another thread; `None` while it does not answer.
    pub(crate) fn connect(&self) -> Option<Kubelet> {
        self.connector()()
    }

    /// Makes connections to the runtime, also on other threads, and after containerd was started anew.
    pub(crate) fn connector(&self) -> impl Fn() -> Option<Kubelet> + Send + 'static {
        let (socket, directory) = (self.socket(), self.directory.path().to_owned());
        let sandboxes = self.sandboxes.clone();
        move || Kubelet::connect(&socket, &directory, &sandboxes)
    }

    /// Kills containerd. Containers go on: their shims do not depend on it.
    pub(crate) fn kill(&mut self) {
        self.kubelet = None;
        if let Some(mut containerd) = self.containerd.take() {
            containerd.kill().unwrap();
            containerd.wait().unwrap();
        }
    }

    /// The process ID of containerd.
    pub(crate) fn pid(&self) -> u32 {
        self.containerd.as_ref().expect("containerd runs").id()
    }

    /// The node's own connection.
    pub(crate) fn kubelet(&mut self) -> &mut Kubelet {
        self.kubelet.as_mut().expect("containerd runs")
    }

    /// Makes a sandbox as the kubelet does. `annotations` are the pod's.
    pub(crate) fn sandbox(
        &mut self,
        uid: &str,
        name: &str,
        attempt: u32,
        options: SandboxOptions<'_>,
    ) -> String {
        self.kubelet().sandbox(uid, name, attempt, options).unwrap()
    }

    /// Makes a container as the kubelet does.
    pub(crate) fn create(&mut self, sandbox: &str, recipe: &Recipe<'_>) -> String {
        self.kubelet().create(sandbox, recipe).unwrap()
    }

    /// Starts a container; false where the runtime cannot.
    pub(crate) fn try_start(&mut self, container: &str) -> bool {
        self.kubelet().start(container).is_ok()
    }

    /// Makes and starts a container.
    pub(crate) fn run(&mut self, sandbox: &str, recipe: &Recipe<'_>) -> String {
        let id = self.create(sandbox, recipe);
        let started = self.kubelet().start(&id);
        assert!(started.is_ok(), "{recipe:?} must start: {started:?}");
        id
    }

    /// Stops a container at once.
    pub(crate) fn stop(&mut self, container: &str) {
        self.kubelet().stop(container).unwrap();
    }

    /// Runs a script in a container to its end.
    pub(crate) fn execute(&self, container: &str, script: &str) {
        succeed(self.ctr().args(["tasks", "exec", "--exec-id", "test", container, "/bin/sh", "-c", script]));
    }

    pub(crate) fn stop_sandbox(&mut self, sandbox: &str) {
        self.kubelet().stop_sandbox(sandbox).unwrap();
    }

    pub(crate) fn remove_sandbox(&mut self, sandbox: &str) {
        self.kubelet().remove_sandbox(sandbox).unwrap();
    }

    /// The first address that the runtime gave a sandbox.
    pub(crate) fn ip(&mut self, sandbox: &str) -> String {
        self.kubelet().ip(sandbox).unwrap()
    }
}

/// One of containerd's programs, of the version under test.
fn program(name: &str) -> Command {
    let Some(directory) = std::env::var_os(OTHER_CONTAINERD).map(PathBuf::from) else {
        return Command::new(name);
    };
    let mut command = Command::new(directory.join(name));
    // containerd looks for its shim on the PATH, and for runc, which stays the installed one.
    let mut path = OsString::from(directory);
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap_or_default());
    command.env("PATH", path);
    command
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = fs::read_to_string(self.path("log")).unwrap_or_default();
            let tail: Vec<_> = log.lines().rev().take(20).collect();
            eprintln!("containerd's log, last line first:\n{}", tail.join("\n"));
        }
        self.remove_all_sandboxes();
        self.kill();
        self.end_shims();
        cleaning::unmount_below(self.directory.path());
        self.remove_cgroups();
        let _ = Command::new("ip").args(["link", "delete", &self.bridge]).stderr(Stdio::null()).status();
    }
}
