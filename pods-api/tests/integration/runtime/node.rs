//! A real containerd with everything of its own in a temporary directory, and what a kubelet would ask it to do.
//!
//! Dropping a [`Node`] removes every sandbox, ends containerd and whatever it left, and cleans up what the runtime never
//! does: pod cgroups, the bridge, mounts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pods_api_proto::runtime::v1 as cri;
use pods_api_proto::runtime::v1::runtime_service_client::RuntimeServiceClient;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tonic::transport::Channel;

use super::client;
use crate::harness::{PATIENCE, eventually, root, succeed};

pub(crate) const IMAGE: &str = "localhost/shell:1";
const PAUSE: &str = "localhost/pause:1";
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

/// How to make one container.
#[derive(Debug, Clone)]
pub(crate) struct Recipe<'a> {
    pub(crate) name: &'a str,
    /// The restart count it is made with.
    pub(crate) attempt: u32,
    pub(crate) command: &'a [&'a str],
    pub(crate) memory_limit: i64,
}

impl<'a> Recipe<'a> {
    /// Runs a shell script.
    pub(crate) fn shell(name: &'a str, command: &'a [&'a str]) -> Self {
        Self { name, attempt: 0, command, memory_limit: 0 }
    }
}

/// A containerd and its clients.
pub(crate) struct Node {
    directory: TempDir,
    containerd: Option<Child>,
    client: Option<RuntimeServiceClient<Channel>>,
    executor: Runtime,
    bridge: String,
    configs: BTreeMap<String, cri::PodSandboxConfig>,
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
        let mut node = Self {
            directory,
            containerd: None,
            client: None,
            executor: client::executor(),
            bridge,
            configs: BTreeMap::new(),
            _only: only,
        };
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
        let mut ctr = Command::new("ctr");
        ctr.arg("--address").arg(self.socket()).args(["--namespace", "k8s.io"]);
        ctr
    }

    fn configure(&self) {
        let directory = self.directory.path().display();
        fs::create_dir(self.path("cni")).unwrap();
        let network = format!(
            r#"{{"cniVersion": "0.4.0", "name": "test", "plugins": [{{
                "type": "bridge", "bridge": "{}", "isGateway": false, "ipMasq": false,
                "ipam": {{"type": "host-local", "dataDir": "{directory}/ipam", "ranges": [[{{"subnet": "10.213.7.0/24"}}]]}}
            }}]}}"#,
            self.bridge
        );
        fs::write(self.path("cni/10-test.conflist"), network).unwrap();
        // Without AppArmor and huge pages, which test machines may lack, and without lowering the OOM score, which
        // needs a capability that containers lack.
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
        let child = Command::new("containerd")
            .arg("--config")
            .arg(self.path("config.toml"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        self.containerd = Some(child);
        let socket = self.socket();
        let client = eventually("containerd to answer", PATIENCE, || {
            self.executor.block_on(async {
                let mut client = RuntimeServiceClient::new(client::connect(&socket).await.ok()?);
                client.list_containers(cri::ListContainersRequest::default()).await.ok()?;
                Some(client)
            })
        });
        self.client = Some(client);
    }

    /// Kills containerd. Containers go on: their shims do not depend on it.
    pub(crate) fn kill(&mut self) {
        self.client = None;
        if let Some(mut containerd) = self.containerd.take() {
            containerd.kill().unwrap();
            containerd.wait().unwrap();
        }
    }

    fn call<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut RuntimeServiceClient<Channel>) -> Result<tonic::Response<T>, tonic::Status>,
    ) -> T {
        let client = self.client.as_mut().expect("containerd runs");
        let answer = self.executor.block_on(async {
            tokio::time::timeout(Duration::from_secs(30), call(client))
                .await
                .expect("containerd answers in time")
        });
        answer.unwrap_or_else(|status| panic!("containerd: {status}")).into_inner()
    }

    /// Makes a sandbox as the kubelet does. `annotations` are the pod's.
    pub(crate) fn sandbox(
        &mut self,
        uid: &str,
        name: &str,
        attempt: u32,
        options: SandboxOptions<'_>,
    ) -> String {
        let annotations =
            options.annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mode = if options.is_host_network { cri::NamespaceMode::Node } else { cri::NamespaceMode::Pod };
        let config = cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: name.to_owned(),
                uid: uid.to_owned(),
                namespace: "default".to_owned(),
                attempt,
            }),
            log_directory: self.path(&format!("logs/{uid}")).to_str().unwrap().to_owned(),
            labels: labels(uid, name),
            annotations,
            linux: Some(cri::LinuxPodSandboxConfig {
                cgroup_parent: format!("/kubepods/burstable/pod{uid}"),
                security_context: Some(cri::LinuxSandboxSecurityContext {
                    namespace_options: Some(cri::NamespaceOption {
                        network: mode as i32,
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        // The kubelet's part: the runtime opens log files, but makes no directory for them.
        fs::create_dir_all(&config.log_directory).unwrap();
        let request = cri::RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
        let id = self.call(async |client| client.run_pod_sandbox(request).await).pod_sandbox_id;
        self.configs.insert(id.clone(), config);
        id
    }

    /// Makes a container as the kubelet does.
    pub(crate) fn create(&mut self, sandbox: &str, recipe: &Recipe<'_>) -> String {
        let sandbox_config = self.configs[sandbox].clone();
        let mut labels = sandbox_config.labels.clone();
        labels.insert("io.kubernetes.container.name".to_owned(), recipe.name.to_owned());
        let message_file = self.path(&format!("message-{sandbox}-{}-{}", recipe.name, recipe.attempt));
        File::create(&message_file).unwrap();
        let annotations = [
            ("restartCount", recipe.attempt.to_string()),
            ("terminationMessagePath", "/dev/termination-log".to_owned()),
            ("terminationMessagePolicy", "File".to_owned()),
            ("hash", "1234abcd".to_owned()),
        ];
        let config = cri::ContainerConfig {
            metadata: Some(cri::ContainerMetadata { name: recipe.name.to_owned(), attempt: recipe.attempt }),
            image: Some(cri::ImageSpec { image: IMAGE.to_owned(), ..Default::default() }),
            command: recipe.command.iter().map(|part| (*part).to_owned()).collect(),
            mounts: vec![cri::Mount {
                container_path: "/dev/termination-log".to_owned(),
                host_path: message_file.to_str().unwrap().to_owned(),
                ..Default::default()
            }],
            labels,
            annotations: annotations
                .map(|(key, value)| (format!("io.kubernetes.container.{key}"), value))
                .into(),
            log_path: format!("{}-{}.log", recipe.name, recipe.attempt),
            linux: Some(cri::LinuxContainerConfig {
                resources: Some(cri::LinuxContainerResources {
                    memory_limit_in_bytes: recipe.memory_limit,
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        self.call(async |client| client.create_container(request).await).container_id
    }

    /// Starts a container; false where the runtime cannot.
    pub(crate) fn try_start(&mut self, container: &str) -> bool {
        let request = cri::StartContainerRequest { container_id: container.to_owned() };
        let client = self.client.as_mut().expect("containerd runs");
        self.executor.block_on(client.start_container(request)).is_ok()
    }

    /// Makes and starts a container.
    pub(crate) fn run(&mut self, sandbox: &str, recipe: &Recipe<'_>) -> String {
        let id = self.create(sandbox, recipe);
        assert!(self.try_start(&id), "{recipe:?} must start");
        id
    }

    /// Stops a container at once.
    pub(crate) fn stop(&mut self, container: &str) {
        let request = cri::StopContainerRequest { container_id: container.to_owned(), timeout: 0 };
        self.call(async |client| client.stop_container(request).await);
    }

    /// Runs a script in a container to its end.
    pub(crate) fn execute(&self, container: &str, script: &str) {
        succeed(self.ctr().args(["tasks", "exec", "--exec-id", "test", container, "/bin/sh", "-c", script]));
    }

    pub(crate) fn stop_sandbox(&mut self, sandbox: &str) {
        let request = cri::StopPodSandboxRequest { pod_sandbox_id: sandbox.to_owned() };
        self.call(async |client| client.stop_pod_sandbox(request).await);
    }

    pub(crate) fn remove_sandbox(&mut self, sandbox: &str) {
        self.stop_sandbox(sandbox);
        let request = cri::RemovePodSandboxRequest { pod_sandbox_id: sandbox.to_owned() };
        self.call(async |client| client.remove_pod_sandbox(request).await);
    }

    /// The first address that the runtime gave a sandbox.
    pub(crate) fn ip(&mut self, sandbox: &str) -> String {
        let request = cri::PodSandboxStatusRequest { pod_sandbox_id: sandbox.to_owned(), verbose: false };
        let answer = self.call(async |client| client.pod_sandbox_status(request).await);
        answer.status.and_then(|status| status.network).map(|network| network.ip).unwrap_or_default()
    }

    fn remove_all_sandboxes(&mut self) {
        let Some(client) = self.client.as_mut() else { return };
        self.executor.block_on(async {
            let Ok(list) = client.list_pod_sandbox(cri::ListPodSandboxRequest::default()).await else {
                return;
            };
            for sandbox in list.into_inner().items {
                // What fails here is ended by the steps that follow.
                let id = sandbox.id;
                let _ =
                    client.stop_pod_sandbox(cri::StopPodSandboxRequest { pod_sandbox_id: id.clone() }).await;
                let _ = client.remove_pod_sandbox(cri::RemovePodSandboxRequest { pod_sandbox_id: id }).await;
            }
        });
    }

    /// Ends processes that were started for this containerd: their arguments name its socket.
    fn end_shims(&self) {
        let socket = self.socket();
        let names_socket = |process: &Path| {
            let arguments = fs::read(process.join("cmdline")).unwrap_or_default();
            arguments
                .split(|byte| *byte == 0)
                .any(|argument| argument == socket.as_os_str().as_encoded_bytes())
        };
        for process in fs::read_dir("/proc").unwrap().filter_map(Result::ok) {
            let pid = process.file_name().to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
            if let Some(pid) = pid.filter(|_| names_socket(&process.path())) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
    }

    /// Removes the cgroups of the pods made here, in every hierarchy. The runtime leaves them.
    fn remove_cgroups(&self) {
        let hierarchies = fs::read_dir("/sys/fs/cgroup").into_iter().flatten().filter_map(Result::ok);
        let hierarchies = hierarchies.map(|entry| entry.path()).chain([PathBuf::from("/sys/fs/cgroup")]);
        for parent in hierarchies.map(|path| path.join("kubepods/burstable")) {
            for config in self.configs.values() {
                let uid = &config.metadata.as_ref().unwrap().uid;
                remove_cgroup(&parent.join(format!("pod{uid}")));
            }
            // Parents that are empty now were made by this test.
            let _ = fs::remove_dir(&parent);
            let _ = fs::remove_dir(parent.parent().unwrap());
        }
    }
}

fn remove_cgroup(path: &Path) {
    for child in fs::read_dir(path).into_iter().flatten().filter_map(Result::ok) {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&child.path());
        }
    }
    let _ = fs::remove_dir(path);
}

/// What differs between sandboxes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SandboxOptions<'a> {
    pub(crate) is_host_network: bool,
    pub(crate) annotations: &'a [(&'a str, &'a str)],
}

fn labels(uid: &str, name: &str) -> BTreeMap<String, String> {
    [("uid", uid), ("name", name), ("namespace", "default")]
        .map(|(key, value)| (format!("io.kubernetes.pod.{key}"), value.to_owned()))
        .into()
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
        for mount in mounts_below(self.directory.path()) {
            let _ = Command::new("umount").args(["--lazy"]).arg(mount).status();
        }
        self.remove_cgroups();
        let _ = Command::new("ip").args(["link", "delete", &self.bridge]).stderr(Stdio::null()).status();
    }
}

/// The mount points below a directory, innermost first.
fn mounts_below(directory: &Path) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let mut below: Vec<_> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1).map(PathBuf::from))
        .filter(|mount| mount.starts_with(directory))
        .collect();
    below.sort();
    below.reverse();
    below
}
