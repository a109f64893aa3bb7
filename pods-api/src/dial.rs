//! One connection to a gRPC server on a UNIX socket: the stream is connected by the caller, so that what fails is known,
//! and then given to tonic.

use std::future::{Ready, ready};
use std::io;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Error, Uri};

/// Where requests claim to go: servers that are not written in Go refuse a socket's path as `:authority`.
pub(crate) fn endpoint() -> Endpoint {
    Endpoint::from_static("http://localhost")
}

/// Makes the HTTP/2 connection over `stream`.
///
/// # Errors
/// When the other end does not speak HTTP/2.
pub(crate) async fn over(endpoint: Endpoint, stream: UnixStream) -> Result<Channel, Error> {
    endpoint.connect_with_connector(OneStream(Some(stream))).await
}

/// A connector that gives out the one stream it has. There is no second: a lost connection is an error, and not a
/// silent new one to a server that may be another.
#[derive(Debug)]
struct OneStream(Option<UnixStream>);

impl tower_service::Service<Uri> for OneStream {
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
