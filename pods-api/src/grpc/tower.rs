//! Runs generated tower services (health, reflection, podsapi.v1) for calls that arrive on a worker.
//!
//! The services are futures and run on the control thread's runtime; a call's bytes go there and back through bounded
//! channels, and the worker is woken for each answer. The hot methods do not pass here.

use super::status::{Code, Status};
use bytes::Bytes;
use http::{HeaderMap, Request};
use http_body::{Body as _, Frame};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use tokio::sync::mpsc;
use tonic::service::Routes;
use tower_service::Service as _;

/// Request messages that may wait for a service that does not read them. Such services take one small message, or
/// answer each before they read the next; a peer that sends more ahead is cut off.
const REQUEST_QUEUE: usize = 16;

/// Answer parts that may wait for the worker; the service then waits too.
const ANSWER_QUEUE: usize = 4;

/// The services, and the runtime they run on.
#[derive(Debug, Clone)]
pub(super) struct Tower {
    routes: Routes,
    runtime: tokio::runtime::Handle,
}

/// One part of an answer, in order: head, then data, then the end.
#[derive(Debug)]
pub(super) enum Answer {
    /// The response's header fields.
    Head(HeaderMap),
    /// Bytes of the body, gRPC framing included.
    Data(Bytes),
    /// The trailers, which end the call.
    End(HeaderMap),
    /// The service failed without trailers.
    Failed(Status),
}

/// One running call; dropping it stops the service's work at once.
#[derive(Debug)]
pub(super) struct TowerCall {
    request: Option<mpsc::Sender<Bytes>>,
    answers: mpsc::Receiver<Answer>,
    task: tokio::task::AbortHandle,
}

impl Tower {
    /// Serves `routes` on `runtime`.
    #[must_use]
    pub(super) fn new(routes: Routes, runtime: tokio::runtime::Handle) -> Self {
        Self { routes, runtime }
    }

    /// Starts a call whose `head` has the path, the metadata and extensions the service needs. `waker` is woken
    /// whenever [`TowerCall::next`] has something new.
    #[must_use]
    pub(super) fn call(&self, head: Request<()>, waker: Waker) -> TowerCall {
        let (request, body) = mpsc::channel(REQUEST_QUEUE);
        let (sender, answers) = mpsc::channel(ANSWER_QUEUE);
        let mut routes = self.routes.clone();
        let request_head = head.map(|()| tonic::body::Body::new(RequestBody(body)));
        let task = self.runtime.spawn(async move {
            let outcome = tokio::spawn(async move { routes.call(request_head).await });
            let _abort = AbortOnDrop(outcome.abort_handle());
            match outcome.await {
                Ok(Ok(response)) => forward(response, &sender, &waker).await,
                // A panic of the service; the cause is in the log of the panic hook.
                _ => {
                    let status = Status::new(Code::Internal, "internal error");
                    let _ = sender.send(Answer::Failed(status)).await;
                }
            }
            waker.wake();
        });
        TowerCall { request: Some(request), answers, task: task.abort_handle() }
    }
}

impl TowerCall {
    /// Hands request bytes to the service; false if it has not read what came before.
    pub(super) fn push(&mut self, data: Bytes) -> bool {
        self.request.as_ref().is_none_or(|request| match request.try_send(data) {
            // A service that has answered without reading the rest: what comes is dropped.
            Ok(()) | Err(mpsc::error::TrySendError::Closed(_)) => true,
            Err(mpsc::error::TrySendError::Full(_)) => false,
        })
    }

    /// The client has sent its last message.
    pub(super) fn finish_request(&mut self) {
        self.request = None;
    }

    /// The next part of the answer, if it is there.
    pub(super) fn next(&mut self) -> Option<Answer> {
        self.answers.try_recv().ok()
    }
}

impl Drop for TowerCall {
    fn drop(&mut self) {
        self.task.abort();
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn forward(response: http::Response<tonic::body::Body>, answers: &mpsc::Sender<Answer>, waker: &Waker) {
    let (head, body) = response.into_parts();
    let mut body = pin!(body);
    if answers.send(Answer::Head(head.headers)).await.is_err() {
        return;
    }
    waker.wake_by_ref();
    loop {
        let answer = match std::future::poll_fn(|context| body.as_mut().poll_frame(context)).await {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => Answer::Data(data),
                Err(frame) => Answer::End(frame.into_trailers().unwrap_or_default()),
            },
            Some(Err(status)) => Answer::Failed(Status::new(Code::Internal, status.message())),
            // Trailers-only: the head has carried the status.
            None => Answer::End(HeaderMap::new()),
        };
        let is_last = !matches!(answer, Answer::Data(_));
        if answers.send(answer).await.is_err() || is_last {
            return;
        }
        waker.wake_by_ref();
    }
}

/// The request's body as the service reads it.
struct RequestBody(mpsc::Receiver<Bytes>);

impl http_body::Body for RequestBody {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|data| data.map(|data| Ok(Frame::data(data))))
    }
}
