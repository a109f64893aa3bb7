//! What a kubelet asks of its runtime: sandboxes and containers, labelled and annotated as the kubelet does.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pods_api_proto::runtime::v1 as cri;
use pods_api_proto::runtime::v1::runtime_service_client::RuntimeServiceClient;
use tokio::runtime::Runtime;
use tonic::Status;
use tonic::transport::Channel;

use super::{IMAGE, client};

/// No call of a runtime that lives takes as long.
const DEADLINE: Duration = Duration::from_secs(30);

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
    /// Runs a command.
    pub(crate) fn shell(name: &'a str, command: &'a [&'a str]) -> Self {
        Self { name, attempt: 0, command, memory_limit: 0 }
    }
}

/// What differs between sandboxes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SandboxOptions<'a> {
    pub(crate) is_host_network: bool,
    pub(crate) annotations: &'a [(&'a str, &'a str)],
}

/// The configurations of all sandboxes ever made, by ID: containers need them, and cleaning up.
pub(crate) type Sandboxes = Arc<Mutex<BTreeMap<String, cri::PodSandboxConfig>>>;

/// One connection to the runtime, for one thread. A call that the runtime refuses, or that its end cuts off, is an
/// error.
pub(crate) struct Kubelet {
    client: RuntimeServiceClient<Channel>,
    executor: Runtime,
    directory: PathBuf,
    sandboxes: Sandboxes,
}

impl Kubelet {
    /// Connects; `None` while the runtime does not answer. Logs and message files go below `directory`.
    pub(crate) fn connect(socket: &Path, directory: &Path, sandboxes: &Sandboxes) -> Option<Self> {
        let executor = client::executor();
        let client = executor.block_on(async {
            let channel = client::connect(socket).await.ok()?;
            let mut client = RuntimeServiceClient::new(channel).max_decoding_message_size(16 << 20);
            client.list_containers(cri::ListContainersRequest::default()).await.ok()?;
            Some(client)
        })?;
        Some(Self { client, executor, directory: directory.to_owned(), sandboxes: sandboxes.clone() })
    }

    fn call<T>(
        &mut self,
        call: impl AsyncFnOnce(&mut RuntimeServiceClient<Channel>) -> Result<tonic::Response<T>, Status>,
    ) -> Result<T, Status> {
        let bounded = async { tokio::time::timeout(DEADLINE, call(&mut self.client)).await };
        match self.executor.block_on(bounded) {
            Ok(answer) => answer.map(tonic::Response::into_inner),
            Err(_) => Err(Status::deadline_exceeded("the runtime does not answer")),
        }
    }

    /// The runtime's version.
    pub(crate) fn version(&mut self) -> Result<String, Status> {
        let request = cri::VersionRequest { version: "v1".to_owned() };
        Ok(self.call(async |client| client.version(request).await)?.runtime_version)
    }

    /// Makes a sandbox; returns its ID.
    pub(crate) fn sandbox(
        &mut self,
        uid: &str,
        name: &str,
        attempt: u32,
        options: SandboxOptions<'_>,
    ) -> Result<String, Status> {
        let annotations =
            options.annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let mode = if options.is_host_network { cri::NamespaceMode::Node } else { cri::NamespaceMode::Pod };
        let logs = self.directory.join("logs").join(uid);
        let config = cri::PodSandboxConfig {
            metadata: Some(cri::PodSandboxMetadata {
                name: name.to_owned(),
                uid: uid.to_owned(),
                namespace: "default".to_owned(),
                attempt,
            }),
            log_directory: logs.to_str().unwrap().to_owned(),
            labels: labels(uid, name),
            annotations,
            linux: Some(cri::LinuxPodSandboxConfig {
                cgroup_parent: format!("/kubepods/burstable/pod{uid}"),
                security_context: Some(cri::LinuxSandboxSecurityContext {
                    namespace_options: Some(cri::NamespaceOption {
                        network: mode as i32,
                        // The default is one PID namespace for the pod, in which the shim kills what is left with
                        // runc, some 15 ms, before it tells of a container's end: unless a pod shares its processes
                        // the kubelet asks for a namespace of each container's own.
                        pid: cri::NamespaceMode::Container as i32,
                        ..Default::default()
                    }),
                    ..Default::default()
                }),
                ..Default::default()
            }),
            ..Default::default()
        };
        // The kubelet's part: the runtime opens log files, but makes no directory for them.
        fs::create_dir_all(&logs).unwrap();
        let request = cri::RunPodSandboxRequest { config: Some(config.clone()), ..Default::default() };
        let answer = self.call(async |client| client.run_pod_sandbox(request).await);
        // One that failed may have left its cgroup: it is remembered too.
        let id = answer.as_ref().map_or_else(|_| uid.to_owned(), |answer| answer.pod_sandbox_id.clone());
        self.sandboxes.lock().unwrap().insert(id.clone(), config);
        answer.map(|_| id)
    }

    /// Makes a container; returns its ID.
    pub(crate) fn create(&mut self, sandbox: &str, recipe: &Recipe<'_>) -> Result<String, Status> {
        let sandbox_config = self.sandboxes.lock().unwrap()[sandbox].clone();
        let mut labels = sandbox_config.labels.clone();
        labels.insert("io.kubernetes.container.name".to_owned(), recipe.name.to_owned());
        let message_file = self.message_file(sandbox, recipe);
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
                // The runtime does not take them from the sandbox.
                security_context: Some(cri::LinuxContainerSecurityContext {
                    namespace_options: namespace_options(&sandbox_config),
                    ..Default::default()
                }),
            }),
            ..Default::default()
        };
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: sandbox.to_owned(),
            config: Some(config),
            sandbox_config: Some(sandbox_config),
        };
        Ok(self.call(async |client| client.create_container(request).await)?.container_id)
    }

    /// The file on this host that the container has as `/dev/termination-log`.
    pub(crate) fn message_file(&self, sandbox: &str, recipe: &Recipe<'_>) -> PathBuf {
        self.directory.join(format!("message-{sandbox}-{}-{}", recipe.name, recipe.attempt))
    }

    /// Starts a container.
    pub(crate) fn start(&mut self, container: &str) -> Result<(), Status> {
        let request = cri::StartContainerRequest { container_id: container.to_owned() };
        self.call(async |client| client.start_container(request).await).map(drop)
    }

    /// Stops a container at once.
    pub(crate) fn stop(&mut self, container: &str) -> Result<(), Status> {
        let request = cri::StopContainerRequest { container_id: container.to_owned(), timeout: 0 };
        self.call(async |client| client.stop_container(request).await).map(drop)
    }

    /// The exit code and reason of a container; `None` while the runtime does not say that it has ended.
    pub(crate) fn end_of(&mut self, container: &str) -> Result<Option<(i32, String)>, Status> {
        let request = cri::ContainerStatusRequest { container_id: container.to_owned(), verbose: false };
        let status = self.call(async |client| client.container_status(request).await)?.status;
        let status = status.filter(|status| status.state() == cri::ContainerState::ContainerExited);
        Ok(status.map(|status| (status.exit_code, status.reason)))
    }

    /// Changes a running container's memory limit, as an in-place resize does.
    pub(crate) fn resize(&mut self, container: &str, memory_limit: i64) -> Result<(), Status> {
        let linux =
            cri::LinuxContainerResources { memory_limit_in_bytes: memory_limit, ..Default::default() };
        let request = cri::UpdateContainerResourcesRequest {
            container_id: container.to_owned(),
            linux: Some(linux),
            ..Default::default()
        };
        self.call(async |client| client.update_container_resources(request).await).map(drop)
    }

    /// Removes a container that has ended.
    pub(crate) fn remove(&mut self, container: &str) -> Result<(), Status> {
        let request = cri::RemoveContainerRequest { container_id: container.to_owned() };
        self.call(async |client| client.remove_container(request).await).map(drop)
    }

    pub(crate) fn stop_sandbox(&mut self, sandbox: &str) -> Result<(), Status> {
        let request = cri::StopPodSandboxRequest { pod_sandbox_id: sandbox.to_owned() };
        self.call(async |client| client.stop_pod_sandbox(request).await).map(drop)
    }

    /// Stops a sandbox and removes it with its containers.
    pub(crate) fn remove_sandbox(&mut self, sandbox: &str) -> Result<(), Status> {
        self.stop_sandbox(sandbox)?;
        let request = cri::RemovePodSandboxRequest { pod_sandbox_id: sandbox.to_owned() };
        self.call(async |client| client.remove_pod_sandbox(request).await).map(drop)
    }

    /// The IDs of all sandboxes of a pod, or of all pods.
    pub(crate) fn sandboxes_of(&mut self, uid: Option<&str>) -> Result<Vec<String>, Status> {
        let request = cri::ListPodSandboxRequest::default();
        let items = self.call(async |client| client.list_pod_sandbox(request).await)?.items;
        let is_wanted = |sandbox: &cri::PodSandbox| {
            uid.is_none_or(|uid| sandbox.labels.get("io.kubernetes.pod.uid").map(String::as_str) == Some(uid))
        };
        Ok(items.into_iter().filter(is_wanted).map(|sandbox| sandbox.id).collect())
    }

    /// The first address that the runtime gave a sandbox.
    pub(crate) fn ip(&mut self, sandbox: &str) -> Result<String, Status> {
        let request = cri::PodSandboxStatusRequest { pod_sandbox_id: sandbox.to_owned(), verbose: false };
        let answer = self.call(async |client| client.pod_sandbox_status(request).await)?;
        Ok(answer.status.and_then(|status| status.network).map(|network| network.ip).unwrap_or_default())
    }
}

fn namespace_options(sandbox: &cri::PodSandboxConfig) -> Option<cri::NamespaceOption> {
    sandbox.linux.as_ref()?.security_context.as_ref()?.namespace_options.clone()
}

fn labels(uid: &str, name: &str) -> BTreeMap<String, String> {
    [("uid", uid), ("name", name), ("namespace", "default")]
        .map(|(key, value)| (format!("io.kubernetes.pod.{key}"), value.to_owned()))
        .into()
}
