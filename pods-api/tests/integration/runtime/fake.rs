//! A container runtime of the tests' own: answers what it is told to, in time, late, wrongly or never.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use pods_api_proto::containerd::events::TaskExit;
use pods_api_proto::containerd::services::events::v1 as events;
use pods_api_proto::containerd::services::events::v1::events_server::{Events, EventsServer};
use pods_api_proto::runtime::v1 as cri;
use pods_api_proto::runtime::v1::runtime_service_server::{RuntimeService, RuntimeServiceServer};
use prost::Message as _;
use tokio::sync::{mpsc, oneshot};
use tokio_stream::wrappers::{ReceiverStream, UnixListenerStream};
use tonic::{Code, Request, Response, Status};

type Answer<T> = Result<Response<T>, Status>;
type EventStream<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;

/// What goes wrong with a call.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    Error(Code),
    Hang,
    /// Does what it should, but only after this time.
    Late(Duration),
    /// Fails after this time.
    LateError(Duration, Code),
}

/// What the runtime has and how it behaves.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) sandboxes: Vec<cri::PodSandboxStatus>,
    /// With the ID of the sandbox each is in.
    pub(crate) containers: Vec<(String, cri::ContainerStatus)>,
    /// By call, or by call and ID (`ContainerStatus a0`).
    pub(crate) faults: HashMap<String, Fault>,
    /// How often each call was made.
    pub(crate) calls: BTreeMap<&'static str, u64>,
    pub(crate) has_native_events: bool,
    pub(crate) has_cri_events: bool,
    /// Whether CRI's stream ends as soon as it has begun, without an error: CRI-O's way of having no events.
    pub(crate) ends_cri_events: bool,
    made: HashMap<String, u32>,
    native: Vec<mpsc::Sender<Result<events::Envelope, Status>>>,
    cri: Vec<mpsc::Sender<Result<cri::ContainerEventResponse, Status>>>,
}

impl State {
    /// How many of that name were made before.
    fn next_attempt(&mut self, of: &str) -> u32 {
        let made = self.made.entry(of.to_owned()).or_default();
        *made += 1;
        *made - 1
    }

    /// Adds a ready sandbox of a pod.
    pub(crate) fn sandbox(&mut self, uid: &str, id: &str) -> &mut cri::PodSandboxStatus {
        let attempt = self.next_attempt(uid);
        self.sandboxes.push(cri::PodSandboxStatus {
            id: id.to_owned(),
            metadata: Some(cri::PodSandboxMetadata { uid: uid.to_owned(), attempt, ..Default::default() }),
            created_at: 1_700_000_000_000_000_000 + i64::from(attempt),
            network: Some(cri::PodSandboxNetworkStatus {
                ip: "10.1.2.3".to_owned(),
                additional_ips: Vec::new(),
            }),
            labels: labels(uid, uid),
            ..Default::default()
        });
        self.sandboxes.last_mut().unwrap()
    }

    /// Adds a running container named `a` to the sandbox added last.
    pub(crate) fn container(&mut self, id: &str) -> &mut cri::ContainerStatus {
        let sandbox = self.sandboxes.last().unwrap();
        let (sandbox, mut labels) = (sandbox.id.clone(), sandbox.labels.clone());
        let attempt = self.next_attempt(&format!("{}/a", labels["io.kubernetes.pod.uid"]));
        labels.insert("io.kubernetes.container.name".to_owned(), "a".to_owned());
        let created_at = 1_700_000_000_000_000_000 + i64::from(attempt) * 1_000_000_000;
        let status = cri::ContainerStatus {
            id: id.to_owned(),
            metadata: Some(cri::ContainerMetadata { name: "a".to_owned(), attempt }),
            state: cri::ContainerState::ContainerRunning as i32,
            created_at,
            started_at: created_at,
            labels,
            ..Default::default()
        };
        self.containers.push((sandbox, status));
        &mut self.containers.last_mut().unwrap().1
    }

    /// The container of that ID.
    pub(crate) fn find(&mut self, id: &str) -> &mut cri::ContainerStatus {
        self.containers.iter_mut().map(|(_, status)| status).find(|status| status.id == id).unwrap()
    }

    /// Ends a container.
    pub(crate) fn end(&mut self, id: &str, code: i32, reason: &str) {
        let container = self.find(id);
        container.state = cri::ContainerState::ContainerExited as i32;
        container.finished_at = container.started_at + 1_000_000_000;
        container.exit_code = code;
        container.reason = reason.to_owned();
    }

    /// Removes a pod.
    pub(crate) fn remove(&mut self, uid: &str) {
        self.sandboxes.retain(|sandbox| sandbox.labels["io.kubernetes.pod.uid"] != uid);
        self.containers.retain(|(_, container)| container.labels["io.kubernetes.pod.uid"] != uid);
    }

    /// Sends containerd's event of the end of process `id` in a container.
    pub(crate) fn send_exit(&mut self, container: &str, id: &str, code: u32) {
        let exit = TaskExit {
            container_id: container.to_owned(),
            id: id.to_owned(),
            exit_status: code,
            exited_at: Some(prost_types::Timestamp { seconds: 1_700_000_100, nanos: 0 }),
            ..Default::default()
        };
        self.send_native("/tasks/exit", "containerd.events.TaskExit", exit.encode_to_vec());
    }

    /// Sends containerd's event that something about a container was changed.
    pub(crate) fn send_update(&mut self, container: &str) {
        // The ID is its first field.
        let id = [&[0x0a, u8::try_from(container.len()).unwrap()], container.as_bytes()].concat();
        self.send_native("/containers/update", "containerd.events.ContainerUpdate", id);
    }

    fn send_native(&mut self, topic: &str, name: &str, value: Vec<u8>) {
        let envelope = events::Envelope {
            namespace: "k8s.io".to_owned(),
            topic: topic.to_owned(),
            event: Some(prost_types::Any { type_url: name.to_owned(), value }),
            ..Default::default()
        };
        self.native.retain(|subscriber| subscriber.try_send(Ok(envelope.clone())).is_ok());
    }

    /// Sends CRI's event that a container has stopped.
    pub(crate) fn send_stopped(&mut self, container: &str) {
        let event = cri::ContainerEventResponse {
            container_id: container.to_owned(),
            container_event_type: cri::ContainerEventType::ContainerStoppedEvent as i32,
            ..Default::default()
        };
        self.cri.retain(|subscriber| subscriber.try_send(Ok(event.clone())).is_ok());
    }

    /// Whether anyone follows the native events.
    pub(crate) fn has_native_subscriber(&self) -> bool {
        self.native.iter().any(|subscriber| !subscriber.is_closed())
    }

    /// Whether anyone follows CRI's events.
    pub(crate) fn has_cri_subscriber(&self) -> bool {
        self.cri.iter().any(|subscriber| !subscriber.is_closed())
    }
}

fn labels(uid: &str, name: &str) -> BTreeMap<String, String> {
    [("uid", uid), ("name", name), ("namespace", "default")]
        .map(|(key, value)| (format!("io.kubernetes.pod.{key}"), value.to_owned()))
        .into()
}

/// The running runtime. Dropping it ends it, as a crash would: connections break, the state stays.
pub(crate) struct FakeRuntime {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    socket: PathBuf,
}

impl FakeRuntime {
    /// Serves `state` on a socket.
    pub(crate) fn start(socket: &Path, state: &Arc<Mutex<State>>) -> Self {
        let _ = std::fs::remove_file(socket);
        let (stop, stopped) = oneshot::channel();
        let service = Service(state.clone());
        let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
        listener.set_nonblocking(true).unwrap();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let incoming = UnixListenerStream::new(tokio::net::UnixListener::from_std(listener).unwrap());
                let large = 64 << 20;
                let server = tonic::transport::Server::builder()
                    .add_service(RuntimeServiceServer::new(service.clone()).max_encoding_message_size(large))
                    .add_service(EventsServer::new(service))
                    .serve_with_incoming(incoming);
                tokio::select! {
                    served = server => served.unwrap(),
                    _ = stopped => {}
                }
            });
            runtime.shutdown_background();
        });
        Self { stop: Some(stop), thread: Some(thread), socket: socket.to_owned() }
    }
}

impl Drop for FakeRuntime {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
        let _ = std::fs::remove_file(&self.socket);
    }
}

#[derive(Clone)]
struct Service(Arc<Mutex<State>>);

impl Service {
    /// Counts a call and lets its fault have its way.
    async fn enter(&self, call: &'static str, id: &str) -> Result<(), Status> {
        let fault = {
            let mut state = self.0.lock().unwrap();
            *state.calls.entry(call).or_default() += 1;
            state.faults.get(call).or_else(|| state.faults.get(&format!("{call} {id}"))).copied()
        };
        match fault {
            None => Ok(()),
            Some(Fault::Error(code)) => Err(Status::new(code, "as the test wants it")),
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Late(delay)) => {
                tokio::time::sleep(delay).await;
                Ok(())
            }
            Some(Fault::LateError(delay, code)) => {
                tokio::time::sleep(delay).await;
                Err(Status::new(code, "as the test wants it"))
            }
        }
    }
}

fn selects(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[tonic::async_trait]
impl RuntimeService for Service {
    type GetContainerEventsStream = EventStream<cri::ContainerEventResponse>;

    async fn version(&self, _: Request<cri::VersionRequest>) -> Answer<cri::VersionResponse> {
        self.enter("Version", "").await?;
        let state = self.0.lock().unwrap();
        Ok(Response::new(cri::VersionResponse {
            runtime_name: state.name.clone(),
            runtime_version: state.version.clone(),
            ..Default::default()
        }))
    }

    async fn list_pod_sandbox(
        &self,
        request: Request<cri::ListPodSandboxRequest>,
    ) -> Answer<cri::ListPodSandboxResponse> {
        self.enter("ListPodSandbox", "").await?;
        let filter = request.into_inner().filter.unwrap_or_default();
        let state = self.0.lock().unwrap();
        let is_wanted = |sandbox: &&cri::PodSandboxStatus| {
            (filter.id.is_empty() || filter.id == sandbox.id)
                && selects(&filter.label_selector, &sandbox.labels)
        };
        let items = state.sandboxes.iter().filter(is_wanted);
        let item = |sandbox: &cri::PodSandboxStatus| cri::PodSandbox {
            id: sandbox.id.clone(),
            metadata: sandbox.metadata.clone(),
            state: sandbox.state,
            created_at: sandbox.created_at,
            labels: sandbox.labels.clone(),
            annotations: sandbox.annotations.clone(),
            ..Default::default()
        };
        Ok(Response::new(cri::ListPodSandboxResponse { items: items.map(item).collect() }))
    }

    async fn pod_sandbox_status(
        &self,
        request: Request<cri::PodSandboxStatusRequest>,
    ) -> Answer<cri::PodSandboxStatusResponse> {
        let id = request.into_inner().pod_sandbox_id;
        self.enter("PodSandboxStatus", &id).await?;
        let state = self.0.lock().unwrap();
        let status = state.sandboxes.iter().find(|sandbox| sandbox.id == id).cloned();
        let status = status.ok_or_else(|| Status::not_found(id))?;
        Ok(Response::new(cri::PodSandboxStatusResponse { status: Some(status), ..Default::default() }))
    }

    async fn list_containers(
        &self,
        request: Request<cri::ListContainersRequest>,
    ) -> Answer<cri::ListContainersResponse> {
        self.enter("ListContainers", "").await?;
        let filter = request.into_inner().filter.unwrap_or_default();
        let state = self.0.lock().unwrap();
        let is_wanted = |(_, container): &&(String, cri::ContainerStatus)| {
            (filter.id.is_empty() || filter.id == container.id)
                && selects(&filter.label_selector, &container.labels)
        };
        let containers = state.containers.iter().filter(is_wanted);
        let item = |(sandbox, container): &(String, cri::ContainerStatus)| cri::Container {
            id: container.id.clone(),
            pod_sandbox_id: sandbox.clone(),
            metadata: container.metadata.clone(),
            state: container.state,
            created_at: container.created_at,
            labels: container.labels.clone(),
            ..Default::default()
        };
        Ok(Response::new(cri::ListContainersResponse { containers: containers.map(item).collect() }))
    }

    async fn container_status(
        &self,
        request: Request<cri::ContainerStatusRequest>,
    ) -> Answer<cri::ContainerStatusResponse> {
        let id = request.into_inner().container_id;
        self.enter("ContainerStatus", &id).await?;
        let state = self.0.lock().unwrap();
        let status =
            state.containers.iter().map(|(_, status)| status).find(|status| status.id == id).cloned();
        let status = status.ok_or_else(|| Status::not_found(id))?;
        Ok(Response::new(cri::ContainerStatusResponse { status: Some(status), ..Default::default() }))
    }

    async fn get_container_events(
        &self,
        _: Request<cri::GetEventsRequest>,
    ) -> Answer<Self::GetContainerEventsStream> {
        self.enter("GetContainerEvents", "").await?;
        let mut state = self.0.lock().unwrap();
        if !state.has_cri_events {
            return Err(Status::unimplemented("no events"));
        }
        let (sender, receiver) = mpsc::channel(64);
        if !state.ends_cri_events {
            state.cri.push(sender);
        }
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn run_pod_sandbox(
        &self,
        _: Request<cri::RunPodSandboxRequest>,
    ) -> Answer<cri::RunPodSandboxResponse> {
        Err(read_only())
    }

    async fn stop_pod_sandbox(
        &self,
        _: Request<cri::StopPodSandboxRequest>,
    ) -> Answer<cri::StopPodSandboxResponse> {
        Err(read_only())
    }

    async fn remove_pod_sandbox(
        &self,
        _: Request<cri::RemovePodSandboxRequest>,
    ) -> Answer<cri::RemovePodSandboxResponse> {
        Err(read_only())
    }

    async fn create_container(
        &self,
        _: Request<cri::CreateContainerRequest>,
    ) -> Answer<cri::CreateContainerResponse> {
        Err(read_only())
    }

    async fn start_container(
        &self,
        _: Request<cri::StartContainerRequest>,
    ) -> Answer<cri::StartContainerResponse> {
        Err(read_only())
    }

    async fn stop_container(
        &self,
        _: Request<cri::StopContainerRequest>,
    ) -> Answer<cri::StopContainerResponse> {
        Err(read_only())
    }

    async fn remove_container(
        &self,
        _: Request<cri::RemoveContainerRequest>,
    ) -> Answer<cri::RemoveContainerResponse> {
        Err(read_only())
    }

    async fn update_container_resources(
        &self,
        _: Request<cri::UpdateContainerResourcesRequest>,
    ) -> Answer<cri::UpdateContainerResourcesResponse> {
        Err(read_only())
    }

    async fn status(&self, _: Request<cri::StatusRequest>) -> Answer<cri::StatusResponse> {
        Err(read_only())
    }

    async fn runtime_config(
        &self,
        _: Request<cri::RuntimeConfigRequest>,
    ) -> Answer<cri::RuntimeConfigResponse> {
        Err(read_only())
    }
}

/// The program under test only watches.
fn read_only() -> Status {
    Status::permission_denied("this runtime is only looked at")
}

#[tonic::async_trait]
impl Events for Service {
    type SubscribeStream = EventStream<events::Envelope>;

    async fn subscribe(&self, _: Request<events::SubscribeRequest>) -> Answer<Self::SubscribeStream> {
        self.enter("Subscribe", "").await?;
        let mut state = self.0.lock().unwrap();
        if !state.has_native_events {
            return Err(Status::unimplemented("no events"));
        }
        let (sender, receiver) = mpsc::channel(64);
        state.native.push(sender);
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}
