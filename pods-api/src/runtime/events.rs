//! What the runtime tells by itself: containerd's native event stream, or CRI's GetContainerEvents.
//!
//! containerd broadcasts its native events to any number of subscribers. CRI's stream is another matter: containerd 1.7
//! splits it among its subscribers, so that this server would rob the kubelet. It is used with other runtimes, and
//! with containerd from 2.0 on, where it is broadcast too, should the native service be refused.
//!
//! Events are hints; only the exit of a container's own first process is taken at its word. Runs on the `runtime`
//! thread.

use std::time::{Duration, Instant};

use pods_api_proto::containerd::events::{TaskCreate, TaskDelete, TaskExit, TaskOom, TaskStart};
use pods_api_proto::containerd::services::events::v1::events_client::EventsClient;
use pods_api_proto::containerd::services::events::v1::{Envelope, SubscribeRequest};
use pods_api_proto::runtime::v1 as cri;
use prost::Message as _;
use tokio::sync::mpsc;
use tonic::{Code, Status};

use super::cri::{RuntimeVersion, Session};
use super::status::{Exit, UnixNanos};
use crate::pod::ContainerId;

const CONTAINERD: &str = "containerd";
/// The namespace of what the CRI made.
const KUBERNETES_NAMESPACE: &str = "k8s.io";
const FILTERS: [&str; 2] = [
    "namespace==k8s.io,topic~=\"^/tasks/(create|start|exit|oom|delete)$\"",
    "namespace==k8s.io,topic~=\"^/containers/(create|update|delete)$\"",
];
/// A server that offers a stream says nothing until its first event, one that does not refuses at once: after this
/// time without a refusal the stream stands. CRI-O, as it is by default, refuses with an empty stream.
const REFUSAL_WINDOW: Duration = Duration::from_secs(1);

/// Where events come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EventSource {
    /// Nowhere: relists alone.
    #[default]
    None,
    /// containerd's native service.
    Containerd,
    /// CRI's GetContainerEvents.
    Cri,
}

impl EventSource {
    /// Its name in logs, /readyz and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Containerd => "containerd",
            Self::Cri => "cri",
        }
    }
}

/// What happened to a container or sandbox, by its ID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RuntimeEvent {
    /// It was made.
    Created(ContainerId),
    /// Its first process runs.
    Started(ContainerId),
    /// Its first process has ended.
    Exited(ContainerId, Exit),
    /// It ended, without a word on how.
    Stopped(ContainerId),
    /// Memory ran out in it.
    OutOfMemory(ContainerId),
    /// It was removed.
    Removed(ContainerId),
    /// Something about it was changed, such as its limits.
    Updated(ContainerId),
}

/// What a stream task tells the reconciler.
#[derive(Debug)]
pub(super) enum StreamNews {
    /// The stream stands: from here on nothing is missed.
    Up(EventSource),
    Event(RuntimeEvent),
    /// The stream is over, or was refused.
    Down(EventSource, Status),
}

/// The streams to try with a runtime, best first.
pub(super) fn sources(version: &RuntimeVersion) -> &'static [EventSource] {
    let is_containerd = version.name == CONTAINERD;
    let major =
        version.version.trim_start_matches('v').split('.').next().and_then(|major| major.parse::<u32>().ok());
    match (is_containerd, major) {
        (true, Some(2..)) => &[EventSource::Containerd, EventSource::Cri],
        (true, _) => &[EventSource::Containerd],
        (false, _) => &[EventSource::Cri],
    }
}

/// Whether a refusal is for good: the runtime has no such service or does not grant it.
pub(super) fn is_refusal(status: &Status) -> bool {
    matches!(status.code(), Code::Unimplemented | Code::PermissionDenied | Code::Unauthenticated)
}

/// Forwards one stream until it ends. Ends silently when nobody listens any more.
///
/// `news` is bounded: where the reconciler is behind, this waits, and the runtime's own queue takes the events.
pub(super) async fn follow(session: Session, source: EventSource, news: mpsc::Sender<StreamNews>) {
    let result = match source {
        EventSource::Containerd => {
            let mut client = EventsClient::new(session.channel());
            let request = SubscribeRequest { filters: FILTERS.map(str::to_owned).to_vec() };
            forward(source, client.subscribe(request), native_event, &news).await
        }
        EventSource::Cri => {
            let mut client = session.client();
            forward(source, client.get_container_events(cri::GetEventsRequest {}), cri_event, &news).await
        }
        EventSource::None => return,
    };
    let status = result.err().unwrap_or_else(|| Status::unavailable("the runtime ended the stream"));
    // Err: the reconciler is gone, and with it the interest.
    let _ = news.send(StreamNews::Down(source, status)).await;
}

async fn forward<T>(
    source: EventSource,
    subscribing: impl Future<Output = Result<tonic::Response<tonic::Streaming<T>>, Status>>,
    convert: impl Fn(T) -> Option<RuntimeEvent>,
    news: &mpsc::Sender<StreamNews>,
) -> Result<(), Status> {
    let began = Instant::now();
    let mut subscribing = std::pin::pin!(subscribing);
    let mut is_up = false;
    let response = match tokio::time::timeout(REFUSAL_WINDOW, &mut subscribing).await {
        Ok(response) => response?,
        Err(_) => {
            is_up = true;
            if news.send(StreamNews::Up(source)).await.is_err() {
                return Ok(());
            }
            subscribing.await?
        }
    };
    let mut stream = response.into_inner();
    if !is_up && news.send(StreamNews::Up(source)).await.is_err() {
        return Ok(());
    }
    let mut is_silent = true;
    while let Some(message) = stream.message().await? {
        is_silent = false;
        let Some(event) = convert(message) else { continue };
        if news.send(StreamNews::Event(event)).await.is_err() {
            return Ok(());
        }
    }
    // Counted from the request on: many servers answer only with their first event, or with the end.
    if is_silent && began.elapsed() < REFUSAL_WINDOW {
        return Err(Status::unimplemented("the runtime ended the stream at once"));
    }
    Ok(())
}

/// Reads one of containerd's events; `None` for what tells nothing of a container's life.
fn native_event(envelope: Envelope) -> Option<RuntimeEvent> {
    if envelope.namespace != KUBERNETES_NAMESPACE {
        return None;
    }
    let payload = envelope.event?;
    // The part before the name differs between versions.
    let name = payload.type_url.rsplit(['.', '/']).next()?;
    let bytes = &*payload.value;
    match name {
        "TaskCreate" => {
            TaskCreate::decode(bytes).ok().map(|task| RuntimeEvent::Created(task.container_id.into()))
        }
        "TaskStart" => {
            TaskStart::decode(bytes).ok().map(|task| RuntimeEvent::Started(task.container_id.into()))
        }
        "TaskExit" => task_exit(TaskExit::decode(bytes).ok()?),
        "TaskDelete" => task_delete(TaskDelete::decode(bytes).ok()?),
        "TaskOOM" => {
            TaskOom::decode(bytes).ok().map(|task| RuntimeEvent::OutOfMemory(task.container_id.into()))
        }
        "ContainerCreate" => container_id(bytes).map(RuntimeEvent::Created),
        "ContainerUpdate" => container_id(bytes).map(RuntimeEvent::Updated),
        "ContainerDelete" => container_id(bytes).map(RuntimeEvent::Removed),
        _ => None,
    }
}

/// The exit of the container's own process; that of a process executed in it has another id.
fn task_exit(exit: TaskExit) -> Option<RuntimeEvent> {
    if exit.id != exit.container_id {
        return None;
    }
    let at =
        exit.exited_at.map(|at| at.seconds.saturating_mul(1_000_000_000).saturating_add(at.nanos.into()));
    let exit_event = Exit { code: exit.exit_status.cast_signed(), at: at.and_then(UnixNanos::new) };
    Some(RuntimeEvent::Exited(exit.container_id.into(), exit_event))
}

/// The task is cleaned away after its exit: by now the CRI should show the end.
fn task_delete(delete: TaskDelete) -> Option<RuntimeEvent> {
    let is_first_process = delete.id.is_empty() || delete.id == delete.container_id;
    is_first_process.then(|| RuntimeEvent::Stopped(delete.container_id.into()))
}

/// The first field of the container events: the ID.
fn container_id(bytes: &[u8]) -> Option<ContainerId> {
    let fields = crate::wire::varint::Fields::new(bytes).filter_map(Result::ok);
    let id = fields.filter(|field| field.number == 1).last()?.bytes()?;
    std::str::from_utf8(id).ok().filter(|id| !id.is_empty()).map(ContainerId::from)
}

/// Reads one of CRI's events. What it carries of states is not used: it may be older than what was read since.
fn cri_event(event: cri::ContainerEventResponse) -> Option<RuntimeEvent> {
    use cri::ContainerEventType as Type;
    let id = ContainerId::from(event.container_id);
    if id.as_str().is_empty() {
        return None;
    }
    Some(match Type::try_from(event.container_event_type).ok()? {
        Type::ContainerCreatedEvent => RuntimeEvent::Created(id),
        Type::ContainerStartedEvent => RuntimeEvent::Started(id),
        Type::ContainerStoppedEvent => RuntimeEvent::Stopped(id),
        Type::ContainerDeletedEvent => RuntimeEvent::Removed(id),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn envelope(namespace: &str, name: &str, payload: Vec<u8>) -> Envelope {
        let event = prost_types::Any { type_url: name.to_owned(), value: payload };
        Envelope { namespace: namespace.to_owned(), event: Some(event), ..Default::default() }
    }

    fn exit(id: &str, container_id: &str) -> Vec<u8> {
        let exited_at = Some(prost_types::Timestamp { seconds: 5, nanos: 7 });
        let (id, container_id) = (id.to_owned(), container_id.to_owned());
        TaskExit { id, container_id, exit_status: 7, exited_at, pid: 1 }.encode_to_vec()
    }

    #[test]
    fn only_the_first_processs_exit_counts() {
        let own = native_event(envelope("k8s.io", "containerd.events.TaskExit", exit("c", "c")));
        let expected = Exit { code: 7, at: UnixNanos::new(5_000_000_007) };
        assert_eq!(own, Some(RuntimeEvent::Exited("c".into(), expected)));
        assert_eq!(native_event(envelope("k8s.io", "containerd.events.TaskExit", exit("exec", "c"))), None);
        assert_eq!(native_event(envelope("moby", "containerd.events.TaskExit", exit("c", "c"))), None);
    }

    #[test]
    fn types_are_known_by_their_last_name() {
        let start = TaskStart { container_id: "c".to_owned(), pid: 1 }.encode_to_vec();
        for name in
            ["containerd.events.TaskStart", "type.googleapis.com/containerd.events.TaskStart", "TaskStart"]
        {
            let event = native_event(envelope("k8s.io", name, start.clone()));
            assert_eq!(event, Some(RuntimeEvent::Started("c".into())), "{name}");
        }
        let mut removed = Vec::new();
        crate::wire::varint::put_length_field(&mut removed, 1, b"c");
        let event = native_event(envelope("k8s.io", "containerd.events.ContainerDelete", removed.clone()));
        assert_eq!(event, Some(RuntimeEvent::Removed("c".into())));
        let event = native_event(envelope("k8s.io", "containerd.events.ContainerUpdate", removed));
        assert_eq!(event, Some(RuntimeEvent::Updated("c".into())));
        assert_eq!(native_event(envelope("k8s.io", "containerd.events.SnapshotPrepare", start)), None);
        assert_eq!(native_event(envelope("k8s.io", "containerd.events.TaskExit", vec![0xff])), None);
    }

    #[test]
    fn cri_stream_is_left_to_the_kubelet_where_it_would_be_split() {
        let version =
            |name: &str, version: &str| RuntimeVersion { name: name.into(), version: version.into() };
        assert_eq!(sources(&version("containerd", "1.6.20~ds1")), [EventSource::Containerd]);
        assert_eq!(sources(&version("containerd", "v1.7.24")), [EventSource::Containerd]);
        assert_eq!(sources(&version("containerd", "v2.1.3")), [EventSource::Containerd, EventSource::Cri]);
        assert_eq!(sources(&version("containerd", "unversioned")), [EventSource::Containerd]);
        assert_eq!(sources(&version("cri-o", "1.30.0")), [EventSource::Cri]);
    }

    #[test]
    fn cri_events_are_hints() {
        let event = |id: &str, kind: i32| {
            cri_event(cri::ContainerEventResponse {
                container_id: id.to_owned(),
                container_event_type: kind,
                ..Default::default()
            })
        };
        assert_eq!(event("c", 2), Some(RuntimeEvent::Stopped("c".into())));
        // CRI-4: an event without an ID is skipped, the next one is not.
        assert_eq!(event("", 1), None);
        assert_eq!(event("c", 1), Some(RuntimeEvent::Started("c".into())));
        assert_eq!(event("c", 99), None);
    }
}
