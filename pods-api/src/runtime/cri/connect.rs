//! Finding and connecting to a runtime's socket.

use std::future::{Ready, ready};
use std::io;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tonic::transport::{Channel, Endpoint, Uri};

use super::CriError;

/// Where containerd and CRI-O listen, in the order in which they are tried.
pub const DEFAULT_SOCKETS: [&str; 2] = ["/run/containerd/containerd.sock", "/run/crio/crio.sock"];

/// Which runtime to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketChoice {
    /// The first of [`DEFAULT_SOCKETS`] that answers.
    FirstThatAnswers,
    /// The one on this socket.
    Path(PathBuf),
}

impl SocketChoice {
    pub(super) fn candidates(&self) -> impl Iterator<Item = &Path> {
        let (defaults, given) = match self {
            Self::FirstThatAnswers => (&DEFAULT_SOCKETS[..], None),
            Self::Path(path) => (&[][..], Some(&**path)),
        };
        defaults.iter().map(Path::new).chain(given)
    }
}

/// Makes one connection. The `:authority` is `localhost`: runtimes that are not written in Go refuse a socket path
/// there.
pub(super) async fn connect(socket: &Path, deadline: Duration) -> Result<Channel, CriError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| CriError::Connect {
        socket: socket.to_owned(),
        source,
    };
    let stream = UnixStream::connect(socket).await.map_err(|error| failed(error.into()))?;
    let endpoint = Endpoint::from_static("http://localhost");
    let connecting = endpoint.connect_with_connector(Connected(Some(stream)));
    match tokio::time::timeout(deadline, connecting).await {
        Ok(channel) => channel.map_err(|error| failed(error.into())),
        Err(_) => Err(CriError::Deadline { call: "the HTTP/2 handshake", deadline }),
    }
}

/// A connector that gives out the one stream it has, so that a lost connection is an error and not a silent new one.
#[derive(Debug)]
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
