//! Static pods: the pods whose manifests lie in a directory, or in one file, of this node.
//!
//! The source reads what the kubelet reads (rules A.1 to A.6), publishes the full set of its pods once, and then what
//! has changed. It has a thread of its own, `manifest`, which waits in poll(2) on inotify and a stop signal: reading and
//! decoding files blocks, and on the control runtime would delay the other sources. Nothing is shared with that thread
//! but the status.

mod claims;
mod decode;
mod defaults;
mod directory;
mod files;
mod identity;
mod problem;
mod settle;
mod status;
mod validate;
mod watch;
mod worker;

pub use decode::{DecodeError, StaticPod, decode};
pub use identity::Origin;
pub use problem::Problem;
pub use status::{ManifestReport, ManifestStatus};

use crate::pod::{NodeName, Update};
use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How often the path is scanned in full beside the events (rule A.6.1).
pub const DEFAULT_RESCAN: Duration = Duration::from_secs(20);

/// How long a manifest that stopped decoding keeps its pod at least (rule A.1.9).
pub const DEFAULT_RETENTION: Duration = Duration::from_secs(20);

/// Where the manifests are and how they are read.
#[derive(Debug, Clone)]
pub struct ManifestConfig {
    /// A directory of manifests, or one manifest. It may be missing.
    pub path: PathBuf,
    /// The name of this node, lower case; part of each pod's name and UID.
    pub node_name: NodeName,
    /// The extensions that count in a directory; empty takes every name, as the kubelet does.
    pub extensions: Vec<String>,
    /// The time between full scans.
    pub rescan: Duration,
    /// How long a manifest in a directory that stopped decoding keeps its pod; it goes with the first scan after that.
    pub retention: Duration,
}

impl ManifestConfig {
    /// A configuration with the kubelet's defaults.
    #[must_use]
    pub fn new(path: impl Into<PathBuf>, node_name: NodeName) -> Self {
        Self {
            path: path.into(),
            node_name,
            extensions: Vec::new(),
            rescan: DEFAULT_RESCAN,
            retention: DEFAULT_RETENTION,
        }
    }
}

/// The running source. Dropping it stops it.
#[derive(Debug)]
pub struct ManifestSource {
    status: Arc<ManifestStatus>,
    /// An eventfd: written here, polled by the thread.
    stop: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl ManifestSource {
    /// Starts the thread. `sink` is called on it with the first full set, which may be empty, and then with each
    /// change; where it blocks, the source waits.
    ///
    /// # Errors
    /// The thread or its descriptors cannot be made. A missing or unreadable path is no error: it is retried and shows
    /// in the status.
    pub fn spawn(config: ManifestConfig, sink: impl FnMut(Update) + Send + 'static) -> io::Result<Self> {
        // Without a trailing slash (rule A.1.1), and absolute since the path is part of the UIDs.
        let path = std::path::absolute(&config.path)?.components().collect();
        let config = ManifestConfig { path, ..config };
        let status = Arc::new(ManifestStatus::default());
        let stop = Arc::new(rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let worker = worker::Worker::new(config, Arc::clone(&status), watch::inotify, sink);
        let thread = std::thread::Builder::new().name("manifest".to_owned()).spawn({
            let stop = Arc::clone(&stop);
            move || worker.run(&stop)
        })?;
        Ok(Self { status, stop, thread: Some(thread) })
    }

    /// What the source knows of itself.
    #[must_use]
    pub fn status(&self) -> &Arc<ManifestStatus> {
        &self.status
    }

    /// Stops the thread and waits for its end.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for ManifestSource {
    fn drop(&mut self) {
        // Fails only if the counter is full, and then the thread is woken already.
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the manifest thread has panicked");
        }
    }
}

#[cfg(test)]
mod tests;
