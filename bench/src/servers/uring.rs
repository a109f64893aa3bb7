//! The comparison server `tokio-uring`: the generated service on tokio-uring's runtime, one thread, one ring.
//!
//! tokio-uring owns buffers for the time of an operation and has neither poll functions nor an HTTP server, so
//! [`UringIo`] lends hyper one read and one write buffer per connection.

use std::future::Future;
use std::io;
use std::os::unix::net::UnixListener;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use hyper_util::service::TowerToHyperService;
use pods_api_proto::v1alpha1::pods_server::PodsServer;
use tokio_uring::BufResult;
use tokio_uring::net::UnixStream;

use super::Pods;
use super::service::Service;

const READ_BYTES: usize = 16 * 1024;
/// Output gathered before the connection has to wait for the ring.
const WRITE_BYTES: usize = 256 * 1024;
const RING_ENTRIES: u32 = 4096;

pub(super) fn run(listener: UnixListener, pods: Arc<Pods>) -> anyhow::Result<()> {
    tokio_uring::builder().entries(RING_ENTRIES).start(serve(listener, pods))
}

async fn serve(listener: UnixListener, pods: Arc<Pods>) -> anyhow::Result<()> {
    // tokio_uring's own listener sets SO_REUSEPORT, which newer kernels refuse on AF_UNIX; accepting is rare, so
    // tokio's listener, which the runtime drives as well, costs nothing that is measured here.
    listener.set_nonblocking(true)?;
    let listener = tokio::net::UnixListener::from_std(listener)?;
    let service = TowerToHyperService::new(PodsServer::new(Service(pods)));
    loop {
        let (stream, _) = listener.accept().await?;
        let stream = stream.into_std()?;
        stream.set_nonblocking(false)?;
        let io = UringIo::new(UnixStream::from_std(stream));
        let serving = hyper::server::conn::http2::Builder::new(Local).serve_connection(io, service.clone());
        tokio_uring::spawn(async move {
            // A client that leaves ends its connection with an error; there is nobody to tell.
            let _ = serving.await;
        });
    }
}

/// Runs hyper's tasks on the thread of the ring.
#[derive(Clone, Copy)]
struct Local;

impl<F: Future + 'static> hyper::rt::Executor<F> for Local {
    fn execute(&self, task: F) {
        tokio_uring::spawn(async move {
            task.await;
        });
    }
}

type Read = Pin<Box<dyn Future<Output = BufResult<usize, Vec<u8>>>>>;
type Write = Pin<Box<dyn Future<Output = BufResult<(), Vec<u8>>>>>;

struct UringIo {
    stream: Rc<UnixStream>,
    reading: Option<Read>,
    input: Vec<u8>,
    consumed: usize,
    writing: Option<Write>,
    output: Vec<u8>,
    spare: Vec<u8>,
}

impl UringIo {
    fn new(stream: UnixStream) -> Self {
        Self {
            stream: Rc::new(stream),
            reading: None,
            input: Vec::with_capacity(READ_BYTES),
            consumed: 0,
            writing: None,
            output: Vec::new(),
            spare: Vec::new(),
        }
    }

    /// Keeps one write in flight; ready when everything gathered has been written.
    fn poll_written(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if let Some(writing) = &mut self.writing {
                let (written, mut buffer) = std::task::ready!(writing.as_mut().poll(context));
                self.writing = None;
                written?;
                buffer.clear();
                self.spare = buffer;
            }
            if self.output.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let full = std::mem::replace(&mut self.output, std::mem::take(&mut self.spare));
            let stream = Rc::clone(&self.stream);
            self.writing = Some(Box::pin(async move { stream.write_all(full).await }));
        }
    }
}

impl hyper::rt::Read for UringIo {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut cursor: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.consumed == this.input.len() {
            if this.reading.is_none() {
                let mut buffer = std::mem::take(&mut this.input);
                buffer.clear();
                this.consumed = 0;
                let stream = Rc::clone(&this.stream);
                this.reading = Some(Box::pin(async move { stream.read(buffer).await }));
            }
            if let Some(reading) = &mut this.reading {
                let (read, mut buffer) = std::task::ready!(reading.as_mut().poll(context));
                this.reading = None;
                buffer.truncate(*read.as_ref().unwrap_or(&0));
                this.input = buffer;
                read?;
            }
        }
        let available = &this.input[this.consumed..];
        let taken = available.len().min(cursor.remaining());
        cursor.put_slice(&available[..taken]);
        this.consumed += taken;
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for UringIo {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(context, &[io::IoSlice::new(bytes)])
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.output.len() >= WRITE_BYTES {
            std::task::ready!(this.poll_written(context))?;
        }
        for part in parts {
            this.output.extend_from_slice(part);
        }
        Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum()))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_written(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_written(context)
    }
}
