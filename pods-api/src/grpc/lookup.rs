//! Lookup: one pod by whatever an agent has at hand, waiting for it where asked.
//!
//! Runs on the control thread. A key either names pods itself, or leads to a place that names one: a process, a cgroup, a
//! container. What a caller may not see is not there.

use super::server::Shared;
use super::status::{Code, Status};
use crate::access::Grant;
use crate::pod::{
    CgroupId, ContainerId, Locate, Located, Namespace, Pid, Place, PodName, PodUid, Record, Snapshot,
};
use crate::wire::{PodView, without_scheme};
use pods_api_proto::k8s::io::api::core::v1::{ContainerStatus, Pod};
use pods_api_proto::podsapi::v1::lookup_request::Key;
use pods_api_proto::podsapi::v1::{LookupRequest, LookupResponse, NamespacedName};
use prost::Message as _;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Wake;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;

/// The longest wait.
const MAX_WAIT: Duration = Duration::from_secs(60);
/// The most calls that wait at a time: each publication has all of them look again.
const MAX_WAITING: usize = 256;
/// How often a waiting call looks at a process again, which opens files of `/proc`: no event tells of one that moves or
/// ends without eBPF, and each look sees what was published until then.
const PROCESS_INTERVAL: Duration = Duration::from_millis(50);
/// How long a waiting call takes a process that is gone for one whose events are still on their way.
const PROCESS_GRACE: Duration = Duration::from_millis(200);
/// How many candidates a message names.
const MAX_CANDIDATES: usize = 3;
/// The longest ID and cgroup path that is looked at; longer ones name nothing.
const MAX_KEY_BYTES: usize = 4096;

/// What a key names.
#[derive(Debug)]
enum LookupKey {
    Uid(String),
    Name(Namespace, PodName),
    Ip(IpAddr),
    /// An ID or the beginning of one.
    Container(String),
    Process(Pid),
    CgroupPath(String),
    Cgroup(CgroupId),
}

/// Why there is no answer.
#[derive(Debug)]
enum Failure {
    /// It may still come.
    NotYet(Status),
    Final(Status),
}

/// What waiting calls share.
#[derive(Debug)]
pub(super) struct Waiting {
    /// Tells of each publication of a snapshot or of a table of the kernel room.
    published: Notify,
    places: Semaphore,
}

impl Default for Waiting {
    fn default() -> Self {
        Self { published: Notify::new(), places: Semaphore::new(MAX_WAITING) }
    }
}

impl Wake for Waiting {
    fn wake(self: Arc<Self>) {
        self.published.notify_waiters();
    }
}

/// Answers a Lookup.
pub(super) async fn answer(
    shared: &Shared,
    waiting: &Waiting,
    request: LookupRequest,
    grant: &Grant,
) -> Result<LookupResponse, Status> {
    shared.require_ready()?;
    let key = LookupKey::of(request.key)?;
    grant.require_visible(key.fields().iter().copied()).map_err(|hidden| {
        let message = format!("finding by {hidden} would show it, and the rule {:?} does not", grant.rule);
        Status::new(Code::PermissionDenied, message)
    })?;
    let wait = wait_of(request.wait)?;
    let look = || Look { pods: &shared.store.load_full(), locate: &*shared.locate, grant }.find(&key);
    waiting.until_found(wait, key.is_process(), look).await
}

impl Waiting {
    /// Looks until there is an answer or the wait is over; the last look is after its end.
    async fn until_found<T>(
        &self,
        wait: Duration,
        is_process: bool,
        mut look: impl FnMut() -> Result<T, Failure>,
    ) -> Result<T, Status> {
        let start = Instant::now();
        let end = start + wait;
        let grace = end.min(start + PROCESS_GRACE);
        let mut place = None;
        loop {
            // Asked for before the look: a publication in between is not missed.
            let mut published = std::pin::pin!(self.published.notified());
            published.as_mut().enable();
            match look() {
                Ok(found) => return Ok(found),
                Err(Failure::NotYet(status)) if Instant::now() >= end => return Err(status),
                Err(Failure::Final(status)) if !is_process || Instant::now() >= grace => return Err(status),
                Err(_) => {}
            }
            // Given back when the call ends, also by being cancelled.
            if place.is_none() {
                place = Some(self.places.try_acquire().map_err(|_| too_many_waiting())?);
            }
            if is_process {
                tokio::time::sleep_until(end.min(Instant::now() + PROCESS_INTERVAL)).await;
            } else {
                let _ = tokio::time::timeout_at(end, published).await;
            }
        }
    }
}

fn too_many_waiting() -> Status {
    let message = format!(
        "{MAX_WAITING} lookups are waiting already, and no more may; look up without waiting, or try again later"
    );
    Status::new(Code::ResourceExhausted, message)
}

impl LookupKey {
    fn of(key: Option<Key>) -> Result<Self, Status> {
        let invalid = |message: String| Err(Status::new(Code::InvalidArgument, message));
        match key {
            None => invalid(
                "no key is set; set one of pod_uid, name, container_id, pid, cgroup_path, cgroup_id, pod_ip"
                    .into(),
            ),
            Some(Key::PodUid(uid)) => Ok(Self::Uid(uid)),
            Some(Key::Name(NamespacedName { namespace, name })) => {
                if name.is_empty() {
                    return invalid("name.name is empty".into());
                }
                let namespace = if namespace.is_empty() { "default".to_owned() } else { namespace };
                Ok(Self::Name(namespace.into(), name.into()))
            }
            Some(Key::PodIp(text)) => match text.parse() {
                Ok(ip) => Ok(Self::Ip(ip)),
                Err(_) => invalid(format!("pod_ip {text:?} is not an IP address")),
            },
            Some(Key::ContainerId(id)) => match without_scheme(&id) {
                "" => invalid("container_id is empty".into()),
                id if id.len() > MAX_KEY_BYTES => invalid("container_id is too long".into()),
                id => Ok(Self::Container(id.to_owned())),
            },
            Some(Key::Pid(number)) => match Pid::new(number) {
                Some(pid) => Ok(Self::Process(pid)),
                None => invalid(format!("pid {number} names no process; give one above 0")),
            },
            Some(Key::CgroupPath(path)) if path.is_empty() => invalid("cgroup_path is empty".into()),
            Some(Key::CgroupPath(path)) if path.len() > MAX_KEY_BYTES => {
                invalid("cgroup_path is too long".into())
            }
            Some(Key::CgroupPath(path)) => Ok(Self::CgroupPath(path)),
            Some(Key::CgroupId(0)) => invalid("cgroup_id is 0".into()),
            Some(Key::CgroupId(id)) => Ok(Self::Cgroup(CgroupId(id))),
        }
    }

    /// The fields of a pod that whoever looks up by such a key learns. A UID is the name of the pod, as in GetPod; a
    /// process or a cgroup is nothing that a pod says of itself.
    fn fields(&self) -> &'static [&'static str] {
        match self {
            Self::Uid(_) | Self::Process(_) | Self::CgroupPath(_) | Self::Cgroup(_) => &[],
            Self::Name(..) => &["metadata.namespace", "metadata.name"],
            Self::Ip(_) => &["status.podIPs"],
            Self::Container(_) => &["status.containerStatuses.containerID"],
        }
    }

    fn is_process(&self) -> bool {
        matches!(self, Self::Process(_))
    }

    /// What is not found, for a message.
    fn subject(&self) -> String {
        match self {
            Self::Uid(uid) => format!("pod with UID {uid}"),
            Self::Name(namespace, name) => format!("pod {namespace}/{name}"),
            Self::Ip(ip) => format!("pod with IP {ip}"),
            Self::Container(id) => format!("container {id}"),
            Self::Process(pid) => format!("pod of process {pid}"),
            Self::CgroupPath(path) => format!("pod of cgroup path {path:?}"),
            Self::Cgroup(id) => format!("pod of cgroup {id}"),
        }
    }
}

/// One look at one snapshot.
struct Look<'a> {
    pods: &'a Snapshot,
    locate: &'a dyn Locate,
    grant: &'a Grant,
}

impl Look<'_> {
    fn find(&self, key: &LookupKey) -> Result<LookupResponse, Failure> {
        let located = match key {
            LookupKey::Uid(_) | LookupKey::Name(..) | LookupKey::Ip(_) => return self.find_named(key),
            LookupKey::Container(prefix) => self.container(prefix)?,
            LookupKey::Process(pid) => self.locate.process(*pid, self.pods),
            LookupKey::CgroupPath(path) => self.locate.cgroup_path(path, self.pods),
            LookupKey::Cgroup(id) => self.locate.cgroup(*id, self.pods),
        };
        match located {
            Located::In(place) => self.answer_place(key, &place),
            Located::NotYet(reason) => Err(Failure::NotYet(Status::new(Code::NotFound, reason))),
            Located::Never(reason) => Err(Failure::Final(Status::new(Code::NotFound, reason))),
        }
    }

    /// Finds a pod by what it says of itself.
    fn find_named(&self, key: &LookupKey) -> Result<LookupResponse, Failure> {
        let mut live: Vec<_> = match key {
            LookupKey::Uid(uid) => self.pods.get(uid).into_iter().collect(),
            LookupKey::Name(namespace, name) => self.pods.by_name(namespace, name).collect(),
            LookupKey::Ip(ip) => self.pods.by_ip(*ip).collect(),
            _ => Vec::new(),
        };
        live.retain(|record| self.shows(record));
        if let (LookupKey::Ip(ip), true) = (key, live.len() > 1) {
            return Err(Failure::Final(self.shared_address(*ip, &live)));
        }
        if let Some(record) =
            live.into_iter().max_by_key(|record| (!is_terminating(record), record.revision()))
        {
            return self.response(record, None, false);
        }
        let mut gone: Vec<_> = match key {
            LookupKey::Uid(uid) => self.pods.tombstone(uid).into_iter().collect(),
            LookupKey::Name(namespace, name) => self.pods.tombstones_by_name(namespace, name).collect(),
            LookupKey::Ip(ip) => self.pods.tombstones_by_ip(*ip).collect(),
            _ => Vec::new(),
        };
        gone.retain(|tombstone| self.shows(&tombstone.record));
        match gone.into_iter().max_by_key(|tombstone| tombstone.deleted) {
            Some(tombstone) => self.response(&tombstone.record, None, true),
            None => Err(not_yet(format!("{} not found", key.subject()))),
        }
    }

    /// The one container or sandbox whose ID is, or begins with, `prefix`: of pods' statuses, of the runtime, and of
    /// cgroups, which know it before the others do.
    fn container(&self, prefix: &str) -> Result<Located, Failure> {
        // One more than a message names, so that it knows of others.
        let limit = MAX_CANDIDATES + 1;
        let told = self.pods.containers(prefix).map(|(id, pod, _)| (id.clone(), pod.clone()));
        let mut found: BTreeMap<ContainerId, PodUid> =
            told.filter(|(_, pod)| self.may_see(pod)).take(limit).collect();
        for place in self.locate.containers(prefix, limit, self.pods) {
            if let Some(id) = place.container.filter(|_| self.may_see(&place.pod)) {
                found.entry(id).or_insert(place.pod);
            }
        }
        if found.len() > 1 && !found.contains_key(prefix) {
            return Err(Failure::Final(self.ambiguous(prefix, &found)));
        }
        // A whole ID sorts before all that it begins.
        match found.pop_first() {
            Some((id, pod)) => Ok(Located::In(Place { pod, container: Some(id) })),
            None => Ok(Located::NotYet(format!("container {prefix} not found"))),
        }
    }

    /// The pod of a place, if a source has told of it.
    fn answer_place(&self, key: &LookupKey, place: &Place) -> Result<LookupResponse, Failure> {
        let container = place.container.as_ref();
        if let Some(record) = self.pods.get(place.pod.as_str()).filter(|record| self.shows(record)) {
            return self.response(record, container, false);
        }
        let tombstone = self.pods.tombstone(place.pod.as_str());
        if let Some(tombstone) = tombstone.filter(|tombstone| self.shows(&tombstone.record)) {
            return self.response(&tombstone.record, container, true);
        }
        let mut message = format!("{} not found", key.subject());
        if self.grant.namespaces.is_none() {
            message =
                format!("{message}: it belongs to a pod with UID {}, which no source has told of", place.pod);
        }
        Err(not_yet(message))
    }

    fn shows(&self, record: &Record) -> bool {
        self.grant.shows_namespace(record.namespace())
    }

    /// Whether the caller may see a pod; nobody knows the namespace of one that no source has told of.
    fn may_see(&self, pod: &PodUid) -> bool {
        match self.record(pod) {
            Some(record) => self.shows(record),
            None => self.grant.namespaces.is_none(),
        }
    }

    fn record(&self, pod: &PodUid) -> Option<&Arc<Record>> {
        let tombstone = || self.pods.tombstone(pod.as_str()).map(|tombstone| &tombstone.record);
        self.pods.get(pod.as_str()).or_else(tombstone)
    }

    fn shows_names(&self) -> bool {
        self.grant.require_visible(["metadata.namespace", "metadata.name"]).is_ok()
    }

    fn shared_address(&self, ip: IpAddr, pods: &[&Arc<Record>]) -> Status {
        let mut message = format!("{} pods share the address {ip} (host network)", pods.len());
        if self.shows_names() {
            let names = pods.iter().map(|pod| format!("{}/{}", pod.namespace(), pod.name()));
            message = format!("{message}: {}", some_of(names, pods.len()));
        }
        Status::new(Code::FailedPrecondition, format!("{message}; look them up by name or UID"))
    }

    fn ambiguous(&self, prefix: &str, found: &BTreeMap<ContainerId, PodUid>) -> Status {
        let shows_names = self.shows_names();
        let candidates = found.iter().map(|(id, pod)| match self.record(pod).filter(|_| shows_names) {
            Some(record) => format!("{id} ({}/{})", record.namespace(), record.name()),
            None => id.to_string(),
        });
        let candidates = some_of(candidates, found.len());
        let message = format!("container ID {prefix:?} is ambiguous: {candidates}; give more of it");
        Status::new(Code::FailedPrecondition, message)
    }

    fn response(
        &self,
        record: &Record,
        container: Option<&ContainerId>,
        deleted: bool,
    ) -> Result<LookupResponse, Failure> {
        let pod = Pod::decode(&*record.projection(&self.grant.ceiling)).map_err(|error| {
            let message = format!("failed to read pod {}: {error}", record.uid());
            Failure::Final(Status::new(Code::Internal, message))
        })?;
        let is_sandbox =
            |id: &ContainerId| record.containers().iter().any(|known| known.is_sandbox && known.id == *id);
        let is_visible = self.grant.require_visible(["status.containerStatuses.containerID"]).is_ok();
        // A sandbox stands for its pod (rule D.2.6).
        let id = container.filter(|id| is_visible && !is_sandbox(id));
        Ok(LookupResponse {
            // As the caller may see it, so that a hidden name stays hidden.
            container_name: id.and_then(|id| name_of(&pod, id.as_str())).unwrap_or_default(),
            container_id: id.map(ContainerId::to_string).unwrap_or_default(),
            pod: Some(pod),
            revision: self.pods.revision().0,
            deleted,
        })
    }
}

fn not_yet(message: String) -> Failure {
    Failure::NotYet(Status::new(Code::NotFound, message))
}

/// The first few, and a sign that there are more.
fn some_of(texts: impl Iterator<Item = String>, count: usize) -> String {
    let shown: Vec<_> = texts.take(MAX_CANDIDATES).collect();
    let more = if count > MAX_CANDIDATES { ", …" } else { "" };
    format!("{}{more}", shown.join(", "))
}

fn is_terminating(record: &Record) -> bool {
    PodView::parse(record.pod_bytes()).is_ok_and(|pod| pod.deletion_timestamp.is_some())
}

/// The name of the container that has, or had, that ID.
fn name_of(pod: &Pod, id: &str) -> Option<String> {
    let status = pod.status.as_ref()?;
    let has_id = |container: &&ContainerStatus| {
        let states = [&container.state, &container.last_state].into_iter().flatten();
        let ended = states.filter_map(|state| state.terminated.as_ref()).map(|ended| ended.container_id());
        ended.chain([container.container_id()]).any(|known| without_scheme(known) == id)
    };
    let regular = status.container_statuses.iter();
    let all = regular.chain(&status.init_container_statuses).chain(&status.ephemeral_container_statuses);
    all.filter(has_id).find_map(|container| container.name.clone())
}

fn wait_of(wait: Option<prost_types::Duration>) -> Result<Duration, Status> {
    let Some(wait) = wait else { return Ok(Duration::ZERO) };
    let wait = Duration::try_from(wait)
        .map_err(|_| Status::new(Code::InvalidArgument, "wait is negative or malformed"))?;
    Ok(wait.min(MAX_WAIT))
}

#[cfg(test)]
#[path = "lookup_tests.rs"]
mod tests;
