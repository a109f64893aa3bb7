//! The client of a container runtime's CRI: lists and statuses, each call with a deadline.
//!
//! One [`Session`] is one connection. It does not reconnect: what was known before a runtime went away must be read
//! anew, so whoever holds the session has to see that it ended. Runs on the `runtime` thread.

mod connect;
mod convert;
mod message;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pods_api_proto::runtime::v1 as cri;
use pods_api_proto::runtime::v1::runtime_service_client::RuntimeServiceClient;
use tonic::transport::Channel;
use tonic::{Code, Status};

use super::status::{Container, RuntimePod, Sandbox};
use crate::pod::{ContainerId, PodUid, SandboxId};
pub use connect::{DEFAULT_SOCKETS, SocketChoice};
pub(super) use convert::SandboxIdentity;

/// A list of 3,000 sandboxes with long annotations passes the 4 MiB that gRPC libraries default to.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// The label that every container and sandbox of a pod carries (rule C.1.1).
pub(super) const UID_LABEL: &str = "io.kubernetes.pod.uid";

/// Why the runtime could not be asked.
#[derive(Debug, thiserror::Error)]
pub enum CriError {
    /// Nobody answers on the socket.
    #[error("cannot connect to {}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// What the system or the peer said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The runtime refused a call.
    #[error("{call} failed")]
    Call {
        /// The call's name.
        call: &'static str,
        /// What the runtime said.
        #[source]
        source: Box<Status>,
    },
    /// The runtime did not answer in time: a stuck unmount can hold a call for ever.
    #[error("{call} did not return within {deadline:?}")]
    Deadline {
        /// The call's name.
        call: &'static str,
        /// How long was waited.
        deadline: Duration,
    },
    /// Asking the runtime ran into a bug of this program.
    #[error("a task that asked the runtime has panicked")]
    Panicked,
}

impl CriError {
    /// Whether the connection is gone, as opposed to one call that failed.
    #[must_use]
    pub(super) fn ends_session(&self) -> bool {
        match self {
            // After a panic nobody knows what was being asked for: all is asked anew.
            Self::Connect { .. } | Self::Panicked => true,
            Self::Deadline { .. } => false,
            // A status that the peer did not send has the transport's error as its source. One that it did send is an
            // answer, even UNAVAILABLE: a runtime says so of a single sandbox whose shim is gone.
            Self::Call { source, .. } => std::error::Error::source(&**source).is_some(),
        }
    }

    fn is_not_found(&self) -> bool {
        matches!(self, Self::Call { source, .. } if source.code() == Code::NotFound)
    }
}

/// What a runtime says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuntimeVersion {
    /// Its name, the scheme of `containerID`: `containerd`, `cri-o`.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// What one pod UID has in the runtime by the lists alone: the key by which changes are noticed (rule C.10.5).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ListedPod {
    /// State by sandbox ID.
    pub(super) sandboxes: BTreeMap<SandboxId, i32>,
    /// Sandbox and state by container ID. The sandbox is known from the list alone: a status does not name it.
    pub(super) containers: BTreeMap<ContainerId, (SandboxId, i32)>,
}

impl ListedPod {
    fn add_sandbox(&mut self, sandbox: &cri::PodSandbox) {
        self.sandboxes.insert(sandbox.id.as_str().into(), sandbox.state);
    }

    fn add_container(&mut self, container: cri::Container) {
        let value = (container.pod_sandbox_id.into(), container.state);
        self.containers.insert(container.id.into(), value);
    }
}

/// Everything that the runtime lists.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub(super) pods: BTreeMap<PodUid, ListedPod>,
    /// Who the sandboxes are, for static pods.
    pub(super) sandboxes: Vec<SandboxIdentity>,
}

/// What a read of one pod found.
#[derive(Debug, Default)]
pub(super) struct PodRead {
    pub(super) sandboxes: Vec<Sandbox>,
    pub(super) containers: Vec<Container>,
}

impl PodRead {
    pub(super) fn into_pod(self, began: Instant) -> RuntimePod {
        RuntimePod::new(began, self.sandboxes, self.containers)
    }
}

/// One connection to a runtime. Cheap to clone.
#[derive(Debug, Clone)]
pub(super) struct Session {
    client: RuntimeServiceClient<Channel>,
    channel: Channel,
    socket: PathBuf,
    version: RuntimeVersion,
    deadline: Duration,
}

impl Session {
    /// Connects to the first socket of the choice that a runtime answers on.
    pub(super) async fn open(choice: &SocketChoice, deadline: Duration) -> Result<Self, CriError> {
        let mut first_error = None;
        for socket in choice.candidates() {
            match Self::connect(socket, deadline).await {
                Ok(session) => return Ok(session),
                // The first candidate's error is the one to report: it is the likeliest to be meant.
                Err(error) => first_error = first_error.or(Some(error)),
            }
        }
        Err(first_error.expect("a choice has at least one candidate"))
    }

    async fn connect(socket: &Path, deadline: Duration) -> Result<Self, CriError> {
        let channel = connect::connect(socket, deadline).await?;
        let client = RuntimeServiceClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let version = RuntimeVersion { name: String::new(), version: String::new() };
        let mut session = Self { client, channel, socket: socket.to_owned(), version, deadline };
        let mut client = session.client();
        let request = cri::VersionRequest { version: "v1".to_owned() };
        let answer = session.bounded("Version", client.version(request)).await?;
        session.version = RuntimeVersion { name: answer.runtime_name, version: answer.runtime_version };
        Ok(session)
    }

    /// The runtime's name and version.
    pub(super) fn version(&self) -> &RuntimeVersion {
        &self.version
    }

    /// The socket that it answers on.
    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    /// The connection, for other services on it.
    pub(super) fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub(super) fn client(&self) -> RuntimeServiceClient<Channel> {
        self.client.clone()
    }

    /// Lists all sandboxes and containers of pods. What carries no pod UID is not a pod's (rule C.1.5).
    pub(super) async fn list(&self) -> Result<Listing, CriError> {
        let (sandboxes, containers) = self.both_lists(Default::default(), Default::default()).await?;
        let mut listing = Listing::default();
        for sandbox in sandboxes.items {
            let Some(uid) = convert::uid(&sandbox.labels) else { continue };
            listing.pods.entry(uid).or_default().add_sandbox(&sandbox);
            listing.sandboxes.extend(SandboxIdentity::new(sandbox));
        }
        for container in containers.containers {
            let Some(uid) = convert::uid(&container.labels) else { continue };
            listing.pods.entry(uid).or_default().add_container(container);
        }
        Ok(listing)
    }

    /// What the lists have of one pod.
    pub(super) async fn list_pod(&self, uid: &PodUid) -> Result<ListedPod, CriError> {
        let selector = BTreeMap::from([(UID_LABEL.to_owned(), uid.to_string())]);
        let filter = cri::PodSandboxFilter { label_selector: selector.clone(), ..Default::default() };
        let sandboxes = cri::ListPodSandboxRequest { filter: Some(filter) };
        let filter = cri::ContainerFilter { label_selector: selector, ..Default::default() };
        let containers = cri::ListContainersRequest { filter: Some(filter) };
        let (sandboxes, containers) = self.both_lists(sandboxes, containers).await?;
        // A runtime that ignores the filter must not mix pods.
        let is_of_pod =
            |labels: &BTreeMap<String, String>| labels.get(UID_LABEL).is_some_and(|of| of == uid.as_str());
        let mut listed = ListedPod::default();
        for sandbox in sandboxes.items.iter().filter(|sandbox| is_of_pod(&sandbox.labels)) {
            listed.add_sandbox(sandbox);
        }
        for container in containers.containers.into_iter().filter(|container| is_of_pod(&container.labels)) {
            listed.add_container(container);
        }
        Ok(listed)
    }

    /// Whose a container or sandbox is, by its ID alone. `None` where the runtime has none of that ID, or none of a
    /// pod. Asked by lists of one: they cost the runtime far less than lists of all, and, unlike a status call for what
    /// it does not have yet, no line of error in its log.
    pub(super) async fn owner(&self, id: &ContainerId) -> Result<Option<PodUid>, CriError> {
        let filter = cri::PodSandboxFilter { id: id.to_string(), ..Default::default() };
        let sandboxes = cri::ListPodSandboxRequest { filter: Some(filter) };
        let filter = cri::ContainerFilter { id: id.to_string(), ..Default::default() };
        let containers = cri::ListContainersRequest { filter: Some(filter) };
        let (sandboxes, containers) = self.both_lists(sandboxes, containers).await?;
        let sandbox = sandboxes.items.iter().find(|sandbox| sandbox.id == id.as_str());
        let container = containers.containers.iter().find(|container| container.id == id.as_str());
        let labels = sandbox.map(|it| &it.labels).or_else(|| container.map(|it| &it.labels));
        Ok(labels.and_then(convert::uid))
    }

    async fn both_lists(
        &self,
        sandboxes: cri::ListPodSandboxRequest,
        containers: cri::ListContainersRequest,
    ) -> Result<(cri::ListPodSandboxResponse, cri::ListContainersResponse), CriError> {
        let (mut client, mut other) = (self.client(), self.client());
        tokio::try_join!(
            self.bounded("ListPodSandbox", client.list_pod_sandbox(sandboxes)),
            self.bounded("ListContainers", other.list_containers(containers)),
        )
    }

    /// Reads the status of everything that was listed of one pod. What is gone by now is left out; any other failure
    /// fails the whole pod, so that no partial status is ever shown (rule C.2.3).
    pub(super) async fn read(&self, listed: &ListedPod) -> Result<PodRead, CriError> {
        let mut read = PodRead::default();
        for id in listed.sandboxes.keys() {
            let mut client = self.client();
            let request = cri::PodSandboxStatusRequest { pod_sandbox_id: id.to_string(), verbose: false };
            let answer = self.bounded("PodSandboxStatus", client.pod_sandbox_status(request)).await;
            read.sandboxes.extend(found(answer)?.and_then(|answer| answer.status).map(convert::sandbox));
        }
        for (id, (sandbox, _)) in &listed.containers {
            let mut client = self.client();
            let request = cri::ContainerStatusRequest { container_id: id.to_string(), verbose: false };
            let answer = self.bounded("ContainerStatus", client.container_status(request)).await;
            let Some(status) = found(answer)?.and_then(|answer| answer.status) else { continue };
            let message = message::termination_message(&status, self.deadline).await;
            read.containers.push(convert::container(status, sandbox.clone(), message));
        }
        Ok(read)
    }

    /// Awaits one call for no longer than the deadline, whatever becomes of it on the other side.
    async fn bounded<T>(
        &self,
        call: &'static str,
        answer: impl Future<Output = Result<tonic::Response<T>, Status>>,
    ) -> Result<T, CriError> {
        match tokio::time::timeout(self.deadline, answer).await {
            Ok(Ok(response)) => Ok(response.into_inner()),
            Ok(Err(status)) => Err(CriError::Call { call, source: Box::new(status) }),
            Err(_) => Err(CriError::Deadline { call, deadline: self.deadline }),
        }
    }
}

/// An answer, or nothing where the runtime has none of that any more.
fn found<T>(answer: Result<T, CriError>) -> Result<Option<T>, CriError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}
