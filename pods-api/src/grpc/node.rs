//! `podsapi.v1.Node`: which pod is behind a key, and who watches.
//!
//! Runs behind the tower adapter on the control thread, since these calls are rare.

use super::caller::Caller;
use super::counters::{Api, Method};
use super::server::Shared;
use super::status::{Code, Status};
use super::whoami;
use crate::access::Grant;
use crate::pod::{Record, Snapshot};
use crate::watch::{Contract, WatcherInfo};
use crate::wire::PodView;
use pods_api_proto::k8s::io::api::core::v1::Pod;
use pods_api_proto::podsapi::v1::lookup_request::Key;
use pods_api_proto::podsapi::v1::node_server::Node;
use pods_api_proto::podsapi::v1::{
    LookupRequest, LookupResponse, NamespacedName, Watcher, WatchersRequest, WatchersResponse, WhoAmIRequest,
    WhoAmIResponse,
};
use prost::Message as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Wake, Waker};
use std::time::Duration;
use tokio::sync::Notify;

/// The longest wait of a Lookup.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// The service.
#[derive(Debug)]
pub(super) struct NodeService {
    shared: Arc<Shared>,
    changed: Arc<Changed>,
}

/// Tells waiting calls that a snapshot was published.
#[derive(Debug, Default)]
struct Changed(Notify);

impl Wake for Changed {
    fn wake(self: Arc<Self>) {
        self.0.notify_waiters();
    }
}

/// What a key names.
#[derive(Debug)]
enum LookupKey {
    Uid(String),
    Name(crate::pod::Namespace, crate::pod::PodName),
    Ip(IpAddr),
}

impl NodeService {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let changed = Arc::<Changed>::default();
        shared.hub.add_waker(&Waker::from(changed.clone()));
        Self { shared, changed }
    }

    /// Runs one call and counts its end; one that was turned away is counted elsewhere (rule E.3.2).
    async fn run<Q, A>(
        &self,
        method: Method,
        request: tonic::Request<Q>,
        answer: impl AsyncFnOnce(Q, &Caller, &Grant) -> Result<A, Status>,
    ) -> Result<tonic::Response<A>, tonic::Status> {
        let caller = caller_of(&request);
        let grant = self.shared.admit(&caller, method).map_err(to_tonic)?;
        let outcome = answer(request.into_inner(), &caller, grant).await;
        self.shared.count_end(&caller, Api::Node, method, outcome.as_ref().map(|_| ()));
        outcome.map(tonic::Response::new).map_err(to_tonic)
    }

    async fn find(&self, request: LookupRequest, grant: &Grant) -> Result<LookupResponse, Status> {
        self.shared.require_ready()?;
        let key = LookupKey::of(request.key)?;
        grant.require_visible(key.fields().iter().copied()).map_err(|hidden| {
            let message =
                format!("finding by {hidden} would show it, and the rule {:?} does not", grant.rule);
            Status::new(Code::PermissionDenied, message)
        })?;
        let wait = wait_of(request.wait)?;
        let end = tokio::time::Instant::now() + wait;
        loop {
            // Asked for before the look: a publication in between is not missed.
            let changed = self.changed.0.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            match key.find(&self.shared.store.load(), grant) {
                Err(status) if status.code == Code::NotFound => {
                    if tokio::time::timeout_at(end, changed).await.is_err() {
                        return Err(status);
                    }
                }
                outcome => return outcome,
            }
        }
    }
}

impl LookupKey {
    fn of(key: Option<Key>) -> Result<Self, Status> {
        let invalid = |message: String| Err(Status::new(Code::InvalidArgument, message));
        match key {
            None => invalid("no key is set; set one of pod_uid, name, pod_ip".into()),
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
            Some(Key::ContainerId(_) | Key::Pid(_) | Key::CgroupPath(_) | Key::CgroupId(_)) => {
                Err(Status::new(
                    Code::Unimplemented,
                    "this server knows pods by pod_uid, name and pod_ip; it watches neither a runtime nor cgroups",
                ))
            }
        }
    }

    /// The fields of a pod that whoever looks up by such a key learns. A UID is the name of the pod, as in GetPod.
    fn fields(&self) -> &'static [&'static str] {
        match self {
            Self::Uid(_) => &[],
            Self::Name(..) => &["metadata.namespace", "metadata.name"],
            Self::Ip(_) => &["status.podIPs"],
        }
    }

    /// Looks among what the caller may see: all else is not there.
    fn find(&self, snapshot: &Snapshot, grant: &Grant) -> Result<LookupResponse, Status> {
        let mut live: Vec<_> = match self {
            Self::Uid(uid) => snapshot.get(uid).into_iter().collect(),
            Self::Name(namespace, name) => snapshot.by_name(namespace, name).collect(),
            Self::Ip(ip) => snapshot.by_ip(*ip).collect(),
        };
        live.retain(|record| grant.shows_namespace(record.namespace()));
        if let (Self::Ip(ip), true) = (self, live.len() > 1) {
            return Err(shared_address(*ip, &live, grant));
        }
        if let Some(record) =
            live.into_iter().max_by_key(|record| (!is_terminating(record), record.revision()))
        {
            return response(record, snapshot, grant, false);
        }
        let mut gone: Vec<_> = match self {
            Self::Uid(uid) => snapshot.tombstone(uid).into_iter().collect(),
            Self::Name(namespace, name) => snapshot.tombstones_by_name(namespace, name).collect(),
            Self::Ip(ip) => snapshot.tombstones_by_ip(*ip).collect(),
        };
        gone.retain(|tombstone| grant.shows_namespace(tombstone.record.namespace()));
        match gone.into_iter().max_by_key(|tombstone| tombstone.deleted) {
            Some(tombstone) => response(&tombstone.record, snapshot, grant, true),
            None => Err(Status::new(Code::NotFound, self.not_found())),
        }
    }

    fn not_found(&self) -> String {
        match self {
            Self::Uid(uid) => format!("pod with UID {uid} not found"),
            Self::Name(namespace, name) => format!("pod {namespace}/{name} not found"),
            Self::Ip(ip) => format!("pod with IP {ip} not found"),
        }
    }
}

fn is_terminating(record: &Record) -> bool {
    PodView::parse(record.pod_bytes()).is_ok_and(|pod| pod.deletion_timestamp.is_some())
}

fn shared_address(ip: IpAddr, pods: &[&Arc<Record>], grant: &Grant) -> Status {
    let mut message = format!("{} pods share the address {ip} (host network)", pods.len());
    if grant.require_visible(["metadata.namespace", "metadata.name"]).is_ok() {
        let names: Vec<_> =
            pods.iter().take(3).map(|pod| format!("{}/{}", pod.namespace(), pod.name())).collect();
        let more = if pods.len() > 3 { ", …" } else { "" };
        message = format!("{message}: {}{more}", names.join(", "));
    }
    Status::new(Code::FailedPrecondition, format!("{message}; look them up by name or UID"))
}

fn response(
    record: &Record,
    snapshot: &Snapshot,
    grant: &Grant,
    deleted: bool,
) -> Result<LookupResponse, Status> {
    let pod = Pod::decode(&*record.projection(&grant.ceiling)).map_err(|error| {
        Status::new(Code::Internal, format!("failed to read pod {}: {error}", record.uid()))
    })?;
    Ok(LookupResponse { pod: Some(pod), revision: snapshot.revision().0, deleted, ..Default::default() })
}

/// Every call comes from a connection, which gives it its caller.
fn caller_of<Q>(request: &tonic::Request<Q>) -> Arc<Caller> {
    request.extensions().get::<Arc<Caller>>().expect("a connection hands in its caller").clone()
}

fn wait_of(wait: Option<prost_types::Duration>) -> Result<Duration, Status> {
    let Some(wait) = wait else { return Ok(Duration::ZERO) };
    let wait = Duration::try_from(wait)
        .map_err(|_| Status::new(Code::InvalidArgument, "wait is negative or malformed"))?;
    Ok(wait.min(MAX_WAIT))
}

fn to_tonic(status: Status) -> tonic::Status {
    let code = tonic::Code::from(status.code as i32);
    match status.details() {
        Some(details) => tonic::Status::with_details(code, status.message, details.into()),
        None => tonic::Status::new(code, status.message),
    }
}

#[tonic::async_trait]
impl Node for NodeService {
    async fn lookup(
        &self,
        request: tonic::Request<LookupRequest>,
    ) -> Result<tonic::Response<LookupResponse>, tonic::Status> {
        self.run(Method::Lookup, request, async |request, _, grant| self.find(request, grant).await).await
    }

    async fn who_am_i(
        &self,
        request: tonic::Request<WhoAmIRequest>,
    ) -> Result<tonic::Response<WhoAmIResponse>, tonic::Status> {
        let caller = caller_of(&request);
        self.shared.counters.ended(Api::Node, Method::WhoAmI, Code::Ok);
        Ok(tonic::Response::new(whoami::answer(&self.shared, &caller)))
    }

    async fn watchers(
        &self,
        request: tonic::Request<WatchersRequest>,
    ) -> Result<tonic::Response<WatchersResponse>, tonic::Status> {
        let answer = async |_, caller: &Caller, grant: &Grant| {
            let mut watches = self.shared.hub.watchers();
            // Whoever is restricted has no business with what others ask for.
            let caller = caller.for_display();
            watches.retain(|watch| grant.is_unrestricted() || watch.caller.is_same_program(&caller));
            Ok(WatchersResponse { watchers: watches.iter().map(watcher).collect() })
        };
        self.run(Method::Watchers, request, answer).await
    }
}

fn watcher(info: &WatcherInfo) -> Watcher {
    Watcher {
        id: info.id.0,
        server_api_version: match info.view.contract() {
            Contract::V1alpha1 => Api::V1alpha1,
            Contract::Documented => Api::Documented,
        }
        .as_str()
        .to_owned(),
        pid: info.caller.pid,
        uid: info.caller.uid,
        executable: info.caller.executable.to_string(),
        // A watch older than 292 years does not happen.
        age: info.opened.elapsed().try_into().ok(),
        synced: info.synced,
        sent: info.sent,
        pending: info.pending,
        field_mask: info.view.mask().to_string(),
        namespace: info
            .selector
            .as_ref()
            .and_then(|selector| selector.namespace())
            .map(ToString::to_string)
            .unwrap_or_default(),
        label_selector: info.selector.as_ref().map(|selector| selector.to_string()).unwrap_or_default(),
        coalesce: info.coalesce,
    }
}
