//! The generated service over [`Pods`], written as its users write it: messages from stored bytes, encoded by prost
//! for every caller.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use pods_api_proto::v1alpha1::pods_server;
use pods_api_proto::v1alpha1::{
    EventType, GetPodRequest, GetPodResponse, ListPodsRequest, ListPodsResponse, WatchPodsEvent,
    WatchPodsRequest,
};
use tokio_stream::wrappers::BroadcastStream;
use tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status};

use super::Pods;

pub(super) struct Service(pub(super) Arc<Pods>);

#[tonic::async_trait]
impl pods_server::Pods for Service {
    type WatchPodsStream = Pin<Box<dyn Stream<Item = Result<WatchPodsEvent, Status>> + Send>>;

    async fn watch_pods(
        &self,
        _: Request<WatchPodsRequest>,
    ) -> Result<Response<Self::WatchPodsStream>, Status> {
        let (pods, changes) = self.0.subscribe();
        let existing = pods.into_iter().map(|pod| event(EventType::Added, pod));
        let synced = std::iter::once(event(EventType::InitialSyncComplete, Bytes::new()));
        let later = BroadcastStream::new(changes).map(|change| match change {
            Ok(pod) => event(EventType::Modified, pod),
            Err(_) => Err(Status::resource_exhausted("watch client channel closed")),
        });
        let stream = tokio_stream::iter(existing.chain(synced)).chain(later);
        Ok(Response::new(Box::pin(stream)))
    }

    async fn list_pods(&self, _: Request<ListPodsRequest>) -> Result<Response<ListPodsResponse>, Status> {
        Ok(Response::new(ListPodsResponse { pods: self.0.list() }))
    }

    async fn get_pod(&self, request: Request<GetPodRequest>) -> Result<Response<GetPodResponse>, Status> {
        let uid = request.into_inner().pod_uid;
        match self.0.get(&uid) {
            Some(pod) => Ok(Response::new(GetPodResponse { pod })),
            None => Err(Status::not_found(format!("pod with UID {uid} not found"))),
        }
    }
}

fn event(kind: EventType, pod: Bytes) -> Result<WatchPodsEvent, Status> {
    Ok(WatchPodsEvent { r#type: kind.into(), pod })
}
