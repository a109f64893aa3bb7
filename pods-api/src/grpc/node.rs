//! `podsapi.v1.Node`: which pod is behind a key, and who watches.
//!
//! Runs behind the tower adapter on the control thread, since these calls are rare.

use super::caller::Caller;
use super::counters::{Api, Method};
use super::lookup::{self, Waiting};
use super::server::Shared;
use super::status::{Code, Status};
use super::whoami;
use crate::access::Grant;
use crate::watch::{Contract, WatcherInfo};
use pods_api_proto::podsapi::v1::node_server::Node;
use pods_api_proto::podsapi::v1::{
    LookupRequest, LookupResponse, Watcher, WatchersRequest, WatchersResponse, WhoAmIRequest, WhoAmIResponse,
};
use std::sync::Arc;
use std::task::Waker;

/// The service.
#[derive(Debug)]
pub(super) struct NodeService {
    shared: Arc<Shared>,
    waiting: Arc<Waiting>,
}

impl NodeService {
    pub(super) fn new(shared: Arc<Shared>) -> Self {
        let waiting = Arc::<Waiting>::default();
        let waker = Waker::from(waiting.clone());
        shared.hub.add_waker(&waker);
        shared.locate.add_waker(&waker);
        Self { shared, waiting }
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
}

/// Every call comes from a connection, which gives it its caller.
fn caller_of<Q>(request: &tonic::Request<Q>) -> Arc<Caller> {
    request.extensions().get::<Arc<Caller>>().expect("a connection hands in its caller").clone()
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
        self.run(Method::Lookup, request, async |request, _, grant| {
            lookup::answer(&self.shared, &self.waiting, request, grant).await
        })
        .await
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
