//! One client connection: joins the HTTP/2 state machine with the services.
//!
//! Runs on the connection's worker thread. A unary call is answered within the `receive` that completes its request;
//! a watch and a call behind the tower adapter go on and are served from `wake`.

use super::caller::Caller;
use super::counters::Method;
use super::deadlines::Deadlines;
use super::head::{CallHead, Refusal, Route};
use super::options::MaskCache;
use super::request::PodsRequest;
use super::response;
use super::server::Server;
use super::status::{Code, Status};
use super::tower::{Answer, TowerCall};
use super::watches::{QUEUE_LOW_WATER, WatchCall, find};
use crate::http2::{self, ErrorCode, Event, FieldBlock, RequestHead, StreamId};
use crate::transport::{Outgoing, Protocol};
use bytes::Bytes;
use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

/// The state machine of one connection.
pub struct Connection {
    http2: http2::Connection,
    server: Arc<Server>,
    caller: Arc<Caller>,
    waker: Waker,
    masks: MaskCache,
    /// Calls whose request is not complete, and calls of tower services.
    calls: HashMap<StreamId, Call>,
    /// Open watches, ascending by stream: an event looks at each once.
    watches: Vec<WatchCall>,
    /// When calls end.
    deadlines: Deadlines,
}

enum Call {
    /// A Pods call whose request is still arriving.
    Request(Box<PodsRequest>),
    /// A call of a tower service.
    Tower { call: TowerCall, has_head: bool },
}

impl Connection {
    /// Starts a connection of `caller`.
    pub(super) fn new(server: Arc<Server>, caller: Caller, waker: Waker, now: Instant) -> Self {
        Self {
            http2: http2::Connection::server(http2::Config::default(), now),
            server,
            caller: Arc::new(caller),
            waker,
            masks: MaskCache::default(),
            calls: HashMap::new(),
            watches: Vec::new(),
            deadlines: Deadlines::default(),
        }
    }

    fn drain_events(&mut self, now: Instant) {
        while let Some(event) = self.http2.next_event() {
            match event {
                Event::Request { stream, head, end_stream } => self.begin(stream, &head, end_stream, now),
                Event::Data { stream, data, end_stream } => {
                    self.http2.consume(stream, data.len());
                    self.take_data(stream, &data, end_stream);
                }
                Event::Trailers { stream, .. } => self.take_data(stream, &Bytes::new(), true),
                Event::Writable { stream } => self.pump(stream),
                Event::Reset { stream, .. } => self.end_unsent(stream, Code::Cancelled),
                Event::ConnectionClosed { .. } => self.end_all(),
            }
        }
    }

    /// A request's header section has arrived.
    fn begin(&mut self, stream: StreamId, head: &RequestHead, end_stream: bool, now: Instant) {
        let call = match CallHead::read(head.method(), head.path(), head.fields()) {
            Ok(call) => call,
            Err(refusal) => return self.refuse(stream, refusal, head.method()),
        };
        if let Some(deadline) = call.timeout.and_then(|timeout| now.checked_add(timeout)) {
            let open = self.calls.len() + self.watches.len();
            let (calls, watches, http2) = (&self.calls, &self.watches, &self.http2);
            self.deadlines.push(deadline, stream, open, |stream| {
                calls.contains_key(&stream) || find(watches, stream).is_ok() || http2.queued(stream) > 0
            });
        }
        let call = match call.route {
            Ok(Route::Pods(api, method)) => {
                Call::Request(Box::new(PodsRequest::new(api, method, call.metadata)))
            }
            Ok(Route::Tower) => match self.server.call_tower(head, &self.caller, self.waker.clone()) {
                Ok(call) => Call::Tower { call, has_head: false },
                Err(status) => return self.answer_error(stream, &status),
            },
            Err(status) => return self.answer_error(stream, &status),
        };
        self.calls.insert(stream, call);
        if end_stream {
            self.take_data(stream, &Bytes::new(), true);
        }
    }

    /// Bytes of a request's body have arrived.
    fn take_data(&mut self, stream: StreamId, data: &Bytes, end_stream: bool) {
        match self.calls.get_mut(&stream) {
            Some(Call::Request(request)) => match request.take(data) {
                Ok(()) if end_stream => {
                    let Some(Call::Request(request)) = self.calls.remove(&stream) else { return };
                    self.answer(stream, *request);
                }
                Ok(()) => {}
                Err(status) => {
                    let (api, method) = (request.api, request.method);
                    self.calls.remove(&stream);
                    self.server.shared().counters.ended(api, method, status.code);
                    self.answer_error(stream, &status);
                }
            },
            Some(Call::Tower { call, .. }) => {
                if !data.is_empty() && !call.push(data.clone()) {
                    self.calls.remove(&stream);
                    let status = Status::new(
                        Code::ResourceExhausted,
                        "request messages sent faster than they are read",
                    );
                    return self.answer_error(stream, &status);
                }
                if end_stream && let Some(Call::Tower { call, .. }) = self.calls.get_mut(&stream) {
                    call.finish_request();
                }
            }
            // Answered already; what the client still sends is of no use.
            None => {}
        }
    }

    /// A Pods request is complete: answers it, or begins its watch.
    fn answer(&mut self, stream: StreamId, request: PodsRequest) {
        let PodsRequest { api, method, metadata, message, .. } = request;
        // Turned away before it counts as a request (rule E.3.2).
        let grant = match self.server.shared().admit(&self.caller, method) {
            Ok(grant) => grant,
            Err(status) => return self.answer_error(stream, &status),
        };
        let Some(message) = message else {
            let status = Status::new(Code::Internal, "the request has no message");
            self.server.shared().counters.ended(api, method, status.code);
            return self.answer_error(stream, &status);
        };
        let outcome = match method {
            Method::Watch => {
                match self.server.shared().watch(api, &metadata, &mut self.masks, &self.caller, grant) {
                    Ok(watcher) => {
                        self.send_head(stream);
                        self.watches.push(WatchCall::new(stream, api, watcher, &self.server, &self.waker));
                        return self.pump(stream);
                    }
                    Err(status) => Err(status),
                }
            }
            Method::Get => self.server.shared().get(&metadata, &mut self.masks, grant, &message),
            _ => self.server.shared().list(&metadata, &mut self.masks, grant),
        };
        match outcome {
            Ok(body) => {
                self.send_head(stream);
                for chunk in body {
                    self.send_data(stream, chunk);
                }
                self.end(stream, response::OK_TRAILERS.clone());
                self.server.shared().count_end(&self.caller, api, method, Ok(()));
            }
            Err(status) => {
                self.answer_error(stream, &status);
                self.server.shared().count_end(&self.caller, api, method, Err(&status));
            }
        }
    }

    /// Moves what a watch or a service has to say into the stream, as far as the client's window lets it.
    fn pump(&mut self, stream: StreamId) {
        if let Ok(index) = find(&self.watches, stream) {
            self.pump_watch(index);
        } else {
            self.pump_tower(stream);
        }
    }

    /// Returns whether the watch goes on.
    fn pump_watch(&mut self, index: usize) -> bool {
        let watch = &mut self.watches[index];
        let Some(status) = watch.pump(&mut self.http2) else { return true };
        let (stream, api) = (watch.stream, watch.api);
        self.server.shared().counters.ended(api, Method::Watch, status.code);
        self.watches.remove(index);
        self.end(stream, response::trailers(&status));
        false
    }

    fn pump_tower(&mut self, stream: StreamId) {
        while self.http2.queued(stream) < QUEUE_LOW_WATER {
            let Some(Call::Tower { call, has_head }) = self.calls.get_mut(&stream) else { return };
            let Some(answer) = call.next() else { return };
            match answer {
                Answer::Head(headers) => {
                    *has_head = true;
                    let fields = response::tower_head(&headers);
                    let is_last = headers.contains_key("grpc-status");
                    if is_last {
                        self.calls.remove(&stream);
                    }
                    self.send_fields(stream, fields, is_last);
                }
                Answer::Data(data) => self.send_data(stream, data),
                Answer::End(trailers) => {
                    self.calls.remove(&stream);
                    self.end(stream, response::tower_trailers(&trailers));
                }
                Answer::Failed(status) => {
                    let has_head = *has_head;
                    self.calls.remove(&stream);
                    if has_head {
                        self.end(stream, response::trailers(&status));
                    } else {
                        self.answer_error(stream, &status);
                    }
                }
            }
        }
    }

    /// Ends a call that has not been answered whole, without telling the client: it is gone, or knows.
    fn end_unsent(&mut self, stream: StreamId, code: Code) {
        if let Ok(index) = find(&self.watches, stream) {
            let watch = self.watches.remove(index);
            self.server.shared().counters.ended(watch.api, Method::Watch, code);
        } else if let Some(Call::Request(request)) = self.calls.remove(&stream) {
            self.server.shared().counters.ended(request.api, request.method, code);
        }
    }

    fn end_all(&mut self) {
        for stream in self
            .watches
            .iter()
            .map(|watch| watch.stream)
            .chain(self.calls.keys().copied())
            .collect::<Vec<_>>()
        {
            self.end_unsent(stream, Code::Cancelled);
        }
        self.deadlines.clear();
    }

    /// A call's time is up.
    fn expire(&mut self, stream: StreamId) {
        let is_watch = find(&self.watches, stream).is_ok();
        let has_head =
            is_watch || matches!(self.calls.get(&stream), Some(Call::Tower { has_head: true, .. }));
        let is_open = is_watch || self.calls.contains_key(&stream);
        self.end_unsent(stream, Code::DeadlineExceeded);
        if self.http2.queued(stream) > 0 {
            // The client's window holds the rest back: trailers would never reach it.
            self.http2.reset(stream, ErrorCode::CANCEL);
        } else if is_open {
            let status = Status::new(Code::DeadlineExceeded, "deadline exceeded");
            if has_head {
                self.end(stream, response::trailers(&status));
            } else {
                self.answer_error(stream, &status);
            }
        }
    }

    fn refuse(&mut self, stream: StreamId, refusal: Refusal, method: &[u8]) {
        const EXPLANATION: &[u8] = b"this socket speaks gRPC: use a gRPC client, or `pods-api get pods`\n";
        let fields = match refusal {
            Refusal::Method => response::http_error("405", Some(("allow", "POST"))),
            Refusal::ContentType => response::http_error("415", None),
        };
        let is_head = method == b"HEAD";
        self.send_fields(stream, fields, is_head);
        if !is_head {
            let _ = self.http2.send_data(stream, Bytes::from_static(EXPLANATION), true);
        }
    }

    fn answer_error(&mut self, stream: StreamId, status: &Status) {
        self.send_fields(stream, response::trailers_only(status), true);
    }

    fn send_head(&mut self, stream: StreamId) {
        self.send_fields(stream, response::HEAD.clone(), false);
    }

    fn end(&mut self, stream: StreamId, trailers: FieldBlock) {
        self.send_fields(stream, trailers, true);
    }

    // A stream that the client has reset meanwhile takes nothing more; its Reset event follows or has been handled.

    fn send_fields(&mut self, stream: StreamId, fields: FieldBlock, end_stream: bool) {
        let _ = self.http2.send_headers(stream, fields, end_stream);
    }

    fn send_data(&mut self, stream: StreamId, data: Bytes) {
        let _ = self.http2.send_data(stream, data, false);
    }
}

impl Protocol for Connection {
    fn receive(&mut self, bytes: &[u8], now: Instant) {
        self.http2.receive(bytes, now);
        self.drain_events(now);
    }

    fn receive_end(&mut self, now: Instant) {
        self.http2.receive_end(now);
        self.drain_events(now);
    }

    fn wake(&mut self, _now: Instant) {
        let mut index = 0;
        while index < self.watches.len() {
            self.watches[index].fill();
            if self.pump_watch(index) {
                index += 1;
            }
        }
        let towers: Vec<StreamId> = self
            .calls
            .iter()
            .filter(|(_, call)| matches!(call, Call::Tower { .. }))
            .map(|(stream, _)| *stream)
            .collect();
        for stream in towers {
            self.pump_tower(stream);
        }
    }

    fn wants_wake(&self) -> bool {
        !self.watches.is_empty() || !self.calls.is_empty()
    }

    fn gather(&mut self, out: &mut Outgoing, budget: usize, now: Instant) {
        while self.http2.wants_write() && out.len() < budget {
            let before = out.len();
            self.http2.gather(out, budget, now);
            // What left may have made room for a watch that waits for it.
            self.drain_events(now);
            if out.len() == before {
                return;
            }
        }
    }

    fn deadline(&self) -> Option<Instant> {
        [self.deadlines.next(), self.http2.deadline()].into_iter().flatten().min()
    }

    fn timeout(&mut self, now: Instant) {
        while let Some(stream) = self.deadlines.pop_due(now) {
            self.expire(stream);
        }
        self.http2.timeout(now);
        self.drain_events(now);
    }

    fn shutdown(&mut self, now: Instant) {
        self.http2.shutdown(now);
    }

    fn is_done(&self) -> bool {
        self.http2.is_done()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // Calls that the socket's end cuts off are counted too (rule E.3.5).
        self.end_all();
    }
}
