//! The open watches of a connection: what each has to say goes into its stream, at the client's pace.
//!
//! Owned by the connection, on the worker thread.

use super::counters::Api;
use super::server::Server;
use super::status::{Code, Status};
use crate::http2::{self, StreamId};
use crate::watch::{EndReason, Next, WakerId, Watcher};
use std::sync::Arc;
use std::task::Waker;

/// While a stream has more than this waiting for the client's window, its watch or service is not asked for more:
/// the client's pace is then the watcher's, and memory is bounded by it.
pub(super) const QUEUE_LOW_WATER: usize = 64 * 1024;

/// One open watch.
pub(super) struct WatchCall {
    pub(super) stream: StreamId,
    pub(super) api: Api,
    watcher: Watcher,
    _woken: Woken,
}

/// Has the worker woken after each publication for as long as a watch needs it.
struct Woken {
    server: Arc<Server>,
    id: WakerId,
}

impl Woken {
    fn new(server: &Arc<Server>, waker: &Waker) -> Self {
        Self { id: server.shared().hub.add_waker(waker), server: server.clone() }
    }
}

impl Drop for Woken {
    fn drop(&mut self) {
        self.server.shared().hub.remove_waker(self.id);
    }
}

impl WatchCall {
    pub(super) fn new(
        stream: StreamId,
        api: Api,
        watcher: Watcher,
        server: &Arc<Server>,
        waker: &Waker,
    ) -> Self {
        Self { stream, api, watcher, _woken: Woken::new(server, waker) }
    }

    /// Takes in what has been published.
    pub(super) fn fill(&mut self) {
        self.watcher.fill();
    }

    /// Moves what the watch has to say into its stream, as far as the client's window lets it. Returns how it ended,
    /// if it has.
    pub(super) fn pump(&mut self, http2: &mut http2::Connection) -> Option<Status> {
        while http2.queued(self.stream) < QUEUE_LOW_WATER {
            match self.watcher.next() {
                Next::Frame(frame) => {
                    for part in frame.into_parts() {
                        // A stream that is gone takes nothing; its Reset event has come or will.
                        let _ = http2.send_data(self.stream, part, false);
                    }
                }
                Next::Idle => return None,
                Next::End(reason) => return Some(end_status(reason)),
            }
        }
        None
    }
}

/// Where a stream's watch is; streams are numbered upwards, so the list is sorted.
pub(super) fn find(watches: &[WatchCall], stream: StreamId) -> Result<usize, usize> {
    watches.binary_search_by_key(&stream.number(), |watch| watch.stream.number())
}

fn end_status(reason: EndReason) -> Status {
    match reason {
        // rule E.6.4
        EndReason::Lagged => Status::new(Code::ResourceExhausted, "watch client channel closed"),
        EndReason::Shutdown => Status::new(Code::Unavailable, "the server is shutting down"),
    }
}
