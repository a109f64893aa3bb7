//! The runtime room's face: starts its thread, hands out its ends.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

use super::cri::SocketChoice;
use super::hints::RuntimeHints;
use super::reconcile::Reconciler;
use super::report::RuntimeStatus;
use super::status::NodeFacts;
use crate::pod::Update;

/// Sets of manifests that wait for the runtime thread; the manifest thread waits beyond that.
const MANIFEST_QUEUE: usize = 4;
/// Threads for reading termination messages; a file that hangs takes one of them.
const BLOCKING_THREADS: usize = 4;

/// How the container runtime is asked.
#[derive(Debug, Clone)]
pub struct RuntimeConfig {
    /// Which runtime.
    pub socket: SocketChoice,
    /// How long one call may take.
    pub deadline: Duration,
    /// Whether its events are followed.
    pub follow_events: bool,
    /// The time between full lists without an event stream.
    pub list_interval: Duration,
    /// The time between full lists while an event stream stands.
    pub list_interval_with_events: Duration,
    /// How soon the second list follows once an event stream is said to stand: a runtime under load may have taken the
    /// subscription up only after the first.
    pub second_list: Duration,
    /// How long a manifest without a UID waits for the kubelet's.
    pub hold_back: Duration,
    /// What is known of the node.
    pub node: NodeFacts,
}

impl RuntimeConfig {
    /// The defaults for one choice of runtime.
    #[must_use]
    pub fn new(socket: SocketChoice) -> Self {
        Self {
            socket,
            deadline: Duration::from_secs(10),
            follow_events: true,
            list_interval: Duration::from_secs(1),
            list_interval_with_events: Duration::from_secs(30),
            second_list: Duration::from_secs(2),
            hold_back: Duration::from_secs(5),
            node: NodeFacts::default(),
        }
    }
}

/// The running room. Dropping it stops it.
#[derive(Debug)]
pub struct RuntimeSource {
    status: Arc<RuntimeStatus>,
    hints: RuntimeHints,
    manifests: mpsc::Sender<Update>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl RuntimeSource {
    /// Starts the `runtime` thread. `sink` is called on it with every update for the store; where it blocks, the
    /// room waits.
    ///
    /// # Errors
    /// The thread or its runtime cannot be made. That no container runtime answers is no error: it is tried again and
    /// shows in the status.
    pub fn spawn(config: RuntimeConfig, sink: impl FnMut(Update) + Send + 'static) -> io::Result<Self> {
        let status = Arc::new(RuntimeStatus::default());
        let (hints, hint_queue) = RuntimeHints::new(status.clone());
        let (manifests, manifest_queue) = mpsc::channel(MANIFEST_QUEUE);
        let (stop, stopped) = oneshot::channel();
        let executor = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("runtime-file")
            .build()?;
        let reconciler =
            Reconciler::new(config, status.clone(), manifest_queue, hint_queue, hints.clone(), sink);
        let thread = std::thread::Builder::new().name("runtime".to_owned()).spawn(move || {
            executor.block_on(reconciler.run(stopped));
            // A file read that hangs must not hold up the end of the program.
            executor.shutdown_background();
        })?;
        Ok(Self { status, hints, manifests, stop: Some(stop), thread: Some(thread) })
    }

    /// What the room tells of itself.
    #[must_use]
    pub fn status(&self) -> &Arc<RuntimeStatus> {
        &self.status
    }

    /// Where others hand in hints.
    #[must_use]
    pub fn hints(&self) -> RuntimeHints {
        self.hints.clone()
    }

    /// The sink for the manifest source: static pods pass through here to get the kubelet's UIDs. Blocks while the
    /// room is behind; must not be called on an asynchronous runtime's thread.
    pub fn manifests(&self) -> impl FnMut(Update) + Send + use<> {
        let manifests = self.manifests.clone();
        move |update| {
            // Err: the room has been stopped, and the store with it.
            let _ = manifests.blocking_send(update);
        }
    }

    /// Stops the thread and waits for its end.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for RuntimeSource {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the runtime thread has panicked");
        }
    }
}
