//! Finding and connecting to a runtime's socket.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::net::UnixStream;
use tonic::transport::Channel;

use super::CriError;
use crate::dial;

/// Where containerd and CRI-O listen, in the order in which they are tried.
pub const DEFAULT_SOCKETS: [&str; 2] = ["/run/containerd/containerd.sock", "/run/crio/crio.sock"];

/// Which runtime to ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SocketChoice {
    /// The first of these that answers. The default is [`DEFAULT_SOCKETS`].
    FirstThatAnswers(Vec<PathBuf>),
    /// The one on this socket.
    Path(PathBuf),
}

impl Default for SocketChoice {
    fn default() -> Self {
        Self::FirstThatAnswers(DEFAULT_SOCKETS.map(PathBuf::from).into())
    }
}

impl SocketChoice {
    pub(super) fn candidates(&self) -> &[PathBuf] {
        match self {
            Self::FirstThatAnswers(sockets) => sockets,
            Self::Path(path) => std::slice::from_ref(path),
        }
    }
}

/// Makes one connection.
pub(super) async fn connect(socket: &Path, deadline: Duration) -> Result<Channel, CriError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| CriError::Connect {
        socket: socket.to_owned(),
        source,
    };
    let stream = UnixStream::connect(socket).await.map_err(|error| failed(error.into()))?;
    match tokio::time::timeout(deadline, dial::over(dial::endpoint(), stream)).await {
        Ok(channel) => channel.map_err(|error| failed(error.into())),
        Err(_) => Err(CriError::Deadline { call: "the HTTP/2 handshake", deadline }),
    }
}
