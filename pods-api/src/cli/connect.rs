//! The connection to the server: one UNIX stream, connected here so that what fails is known, then given to tonic.

use std::future::{Ready, ready};
use std::io;
use std::path::Path;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use super::error::Error;

/// Far above any node's list, yet a bound: a node of 10,000 pods of 40 kB has 400 MB.
pub(super) const MESSAGE_LIMIT: usize = 512 << 20;

/// Window for one stream and for the connection: a list of megabytes in few round trips.
const WINDOW: u32 = 4 << 20;

/// Connects to the server on `socket`.
pub(super) async fn connect(socket: &Path) -> Result<Channel, Error> {
    let stream =
        UnixStream::connect(socket).await.map_err(|error| Error::connect(socket.to_owned(), error))?;
    Endpoint::from_static("http://localhost")
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .connect_with_connector(Connected(Some(stream)))
        .await
        .map_err(|error| Error::Handshake(socket.to_owned(), error))
}

/// A connector that gives out the one stream it has. There is no second: a command that lost its server says so
/// rather than going on with another one's revisions.
struct Connected(Option<UnixStream>);

impl tower_service::Service<Uri> for Connected {
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
