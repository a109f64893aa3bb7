//! The connection to the server.

use std::path::Path;

use tokio::net::UnixStream;
use tonic::transport::Channel;

use super::error::Error;
use crate::dial;

/// Far above any node's list, yet a bound: a node of 10,000 pods of 40 kB has 400 MB.
pub(super) const MESSAGE_LIMIT: usize = 512 << 20;

/// Window for one stream and for the connection: a list of megabytes in few round trips.
const WINDOW: u32 = 4 << 20;

/// Connects to the server on `socket`.
pub(super) async fn connect(socket: &Path) -> Result<Channel, Error> {
    let stream =
        UnixStream::connect(socket).await.map_err(|error| Error::connect(socket.to_owned(), error))?;
    let endpoint = dial::endpoint().initial_stream_window_size(WINDOW).initial_connection_window_size(WINDOW);
    dial::over(endpoint, stream).await.map_err(|error| Error::Handshake(socket.to_owned(), error))
}
