//! gRPC over a UNIX socket from a test that blocks: one connection and a runtime of its own.

use std::future::{Ready, ready};
use std::io;
use std::path::Path;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

/// Connects once.
pub(crate) async fn connect(socket: &Path) -> Result<Channel, Box<dyn std::error::Error>> {
    let stream = UnixStream::connect(socket).await?;
    let endpoint = Endpoint::from_static("http://localhost");
    Ok(endpoint.connect_with_connector(Once(Some(stream))).await?)
}

/// An executor for one blocking caller.
pub(crate) fn executor() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

struct Once(Option<UnixStream>);

impl tower_service::Service<Uri> for Once {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = Ready<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        ready(self.0.take().map(TokioIo::new).ok_or_else(|| io::ErrorKind::ConnectionReset.into()))
    }
}
