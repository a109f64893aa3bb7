//! What every connection shares: the pods, the limits, the counters, and the services behind the tower adapter.

use super::caller::Caller;
use super::connection::Connection;
use super::counters::RequestCounters;
use super::limits::Limits;
use super::node::NodeService;
use super::refusals::Refusals;
use super::status::{Code, Status};
use super::tower::{Tower, TowerCall};
use crate::access::{Identify, Peer, Policy};
use crate::http2::RequestHead;
use crate::pod::{Locate, PodStore};
use crate::transport::Accept;
use crate::watch::Hub;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Uri};
use pods_api_proto::podsapi::v1::node_server::NodeServer;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;
use tonic::service::Routes;

/// What calls are answered from.
#[derive(Debug)]
pub struct Shared {
    /// The pods.
    pub store: PodStore,
    /// Their changes.
    pub hub: Hub,
    /// Who may call, and what they may see.
    pub policy: Policy,
    /// Where callers run.
    pub identify: Arc<dyn Identify>,
    /// Where processes, cgroups and containers are.
    pub locate: Arc<dyn Locate>,
    /// Which callers were refused lately.
    pub refusals: Refusals,
    /// The callers' rate limits.
    pub limits: Limits,
    /// Calls that ended.
    pub counters: RequestCounters,
    /// Events that may wait for a slow watcher.
    pub watch_buffer: usize,
}

/// The services of this server; makes the state machine of each connection.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    tower: Tower,
}

/// Accepts connections for a server.
#[derive(Debug, Clone)]
pub struct Acceptor(Arc<Server>);

impl Server {
    /// The services over `shared`. `health` and reflection run on `runtime`, as does podsapi.v1.Node.
    #[must_use]
    pub fn new(shared: Arc<Shared>, others: Routes, runtime: tokio::runtime::Handle) -> Arc<Self> {
        let routes = others.add_service(NodeServer::new(NodeService::new(shared.clone())));
        Arc::new(Self { tower: Tower::new(routes, runtime), shared })
    }

    /// What makes connections of this server.
    #[must_use]
    pub fn acceptor(self: &Arc<Self>) -> Acceptor {
        Acceptor(self.clone())
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Starts a call of a tower service.
    pub(super) fn call_tower(
        &self,
        head: &RequestHead,
        caller: &Arc<Caller>,
        waker: Waker,
    ) -> Result<TowerCall, Status> {
        let malformed = |what: &str| Status::new(Code::Internal, format!("malformed {what}"));
        let uri = Uri::try_from(head.path()).map_err(|_| malformed("path"))?;
        let mut headers = HeaderMap::new();
        for (name, value) in head.fields() {
            let name = HeaderName::from_bytes(name).map_err(|_| malformed("field name"))?;
            headers.append(name, HeaderValue::from_bytes(value).map_err(|_| malformed("field value"))?);
        }
        let mut request = Request::new(());
        *request.method_mut() = http::Method::POST;
        *request.version_mut() = http::Version::HTTP_2;
        *request.uri_mut() = uri;
        *request.headers_mut() = headers;
        request.extensions_mut().insert(caller.clone());
        Ok(self.tower.call(request, waker))
    }
}

impl Shared {
    /// Whether the sources have delivered (rule E.4.2).
    pub(super) fn require_ready(&self) -> Result<(), Status> {
        if self.store.readiness().is_ready() {
            return Ok(());
        }
        let waiting = self.store.readiness().waiting_for().join(", ");
        Err(Status::new(Code::FailedPrecondition, format!("Kubelet is initializing: waiting for {waiting}")))
    }
}

impl Accept for Acceptor {
    type Protocol = Connection;

    fn accept(&self, socket: BorrowedFd<'_>, waker: &Waker, now: Instant) -> Connection {
        let peer = Peer::of(socket, &*self.0.shared.identify);
        let bucket = self.0.shared.limits.bucket(&peer.key());
        Connection::new(self.0.clone(), Caller::new(peer, bucket), waker.clone(), now)
    }
}
