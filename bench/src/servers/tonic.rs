//! The comparison server `tonic`: the generated service on tokio's epoll reactor, one thread.
//!
//! A current-thread runtime, because servers are compared on one core and work stealing would only add to its cost.

use std::os::unix::net::UnixListener;
use std::sync::Arc;

use anyhow::Context as _;
use pods_api_proto::v1alpha1::pods_server::PodsServer;
use tokio_stream::wrappers::UnixListenerStream;

use super::Pods;
use super::service::Service;

pub(super) fn run(listener: UnixListener, pods: Arc<Pods>) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(serve(listener, pods))
}

async fn serve(listener: UnixListener, pods: Arc<Pods>) -> anyhow::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    tonic::transport::Server::builder()
        .add_service(PodsServer::new(Service(pods)))
        .serve_with_incoming(UnixListenerStream::new(listener))
        .await
        .context("serving")
}
