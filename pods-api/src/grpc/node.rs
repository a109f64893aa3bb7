//! `podsapi.v1.Node`: which pod is behind a key, and who watches.
//!
//! Runs behind the tower adapter on the control thread, since these calls are rare.

use super::counters::{Api, Method};
use super::server::{Caller, Shared};
use super::status::{Code, Status};
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
        answer: impl AsyncFnOnce(Q) -> Result<A, Status>,
    ) -> Result<tonic::Response<A>, tonic::Status> {
        if let Some(caller) = request.extensions().get::<Arc<Caller>>() {
            self.shared.admit(caller, method).map_err(to_tonic)?;
        }
        let outcome = answer(request.into_inner()).await;
        let code = outcome.as_ref().map_or_else(|status| status.code, |_| Code::Ok);
        self.shared.counters.ended(Api::Node, method, code);
        outcome.map(tonic::Response::new).map_err(to_tonic)
    }

    async fn find(&self, request: LookupRequest) -> Result<LookupResponse, Status> {
        self.shared.require_ready()?;
        let key = LookupKey::of(request.key)?;
        let wait = wait_of(request.wait)?;
        let end = tokio::time::Instant::now() + wait;
        loop {
            // Asked for before the look: a publication in between is not missed.
            let changed = self.changed.0.notified();
            let mut changed = std::pin::pin!(changed);
            changed.as_mut().enable();
            match key.find(&self.shared.store.load()) {
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

    fn find(&self, snapshot: &Snapshot) -> Result<LookupResponse, Status> {
        let live: Vec<_> = match self {
            Self::Uid(uid) => snapshot.get(uid).into_iter().collect(),
            Self::Name(namespace, name) => snapshot.by_name(namespace, name).collect(),
            Self::Ip(ip) => snapshot.by_ip(*ip).collect(),
        };
        if let (Self::Ip(ip), true) = (self, live.len() > 1) {
            let names: Vec<_> =
                live.iter().take(3).map(|pod| format!("{}/{}", pod.namespace(), pod.name())).collect();
            let more = if live.len() > 3 { ", …" } else { "" };
            return Err(Status::new(
                Code::FailedPrecondition,
                format!(
                    "{} pods share the address {ip} (host network): {}{more}; look them up by name or UID",
                    live.len(),
                    names.join(", ")
                ),
            ));
        }
        if let Some(record) =
            live.into_iter().max_by_key(|record| (!is_terminating(record), record.revision()))
        {
            return response(record, snapshot, false);
        }
        let gone = match self {
            Self::Uid(uid) => snapshot.tombstone(uid),
            Self::Name(namespace, name) => {
                snapshot.tombstones_by_name(namespace, name).max_by_key(|tombstone| tombstone.deleted)
            }
            Self::Ip(ip) => snapshot.tombstones_by_ip(*ip).max_by_key(|tombstone| tombstone.deleted),
        };
        match gone {
            Some(tombstone) => response(&tombstone.record, snapshot, true),
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

fn response(record: &Record, snapshot: &Snapshot, deleted: bool) -> Result<LookupResponse, Status> {
    let pod = Pod::decode(record.pod_bytes()).map_err(|error| {
        Status::new(Code::Internal, format!("failed to read pod {}: {error}", record.uid()))
    })?;
    Ok(LookupResponse { pod: Some(pod), revision: snapshot.revision().0, deleted, ..Default::default() })
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
        self.run(Method::Lookup, request, async |request| self.find(request).await).await
    }

    async fn who_am_i(
        &self,
        request: tonic::Request<WhoAmIRequest>,
    ) -> Result<tonic::Response<WhoAmIResponse>, tonic::Status> {
        let answer =
            async |_| Err(Status::new(Code::Unimplemented, "this server does not identify its callers"));
        self.run(Method::WhoAmI, request, answer).await
    }

    async fn watchers(
        &self,
        request: tonic::Request<WatchersRequest>,
    ) -> Result<tonic::Response<WatchersResponse>, tonic::Status> {
        let answer = async |_| {
            let watchers = self.shared.hub.watchers().iter().map(watcher).collect();
            Ok(WatchersResponse { watchers })
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
