//! The servers that pods-api is compared with: same pods, same changes, other transports.
//!
//! - `floor`: no HTTP/2 at all ([`crate::floor`]).
//! - `tonic`: the generated service on tokio and epoll, the way a tonic user writes it.
//! - `tokio-uring`: the generated service on tokio-uring's io_uring runtime.
//!
//! Each learns of a change alike: an encoded pod is moved into a watched directory under the name `<uid>.pb`. That
//! is cheaper than the manifest pods-api has to decode, so it never makes a comparison server look worse.

mod floor;
mod ingest;
mod pods;
mod service;
mod tonic;
mod uring;

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;

pub(crate) use pods::{Pods, decode_dump, encode_dump};

use crate::generate::Plan;

/// Which comparison server to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    Floor,
    Tonic,
    TokioUring,
}

/// Options of `pods-bench serve`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// Which server to run.
    #[arg(value_enum)]
    pub(crate) kind: Kind,
    /// Socket to listen on; must not exist.
    #[arg(long)]
    pub(crate) socket: PathBuf,
    /// Serve the pods of this file (an encoded ListPodsResponse) instead of generated ones.
    #[arg(long, conflicts_with_all = ["pods", "pod_bytes", "seed"])]
    pub(crate) dump: Option<PathBuf>,
    /// Number of pods to generate.
    #[arg(long, default_value_t = 500)]
    pub(crate) pods: usize,
    /// Size of each generated pod, in bytes.
    #[arg(long, default_value_t = 6_000)]
    pub(crate) pod_bytes: usize,
    /// Seed of the generator.
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Directory that changed pods are moved into, as `<uid>.pb`.
    #[arg(long)]
    pub(crate) changes: Option<PathBuf>,
    /// floor only: how many responses may share one write.
    #[arg(long, default_value_t = 64)]
    pub(crate) batch: usize,
}

/// Runs a comparison server until the process is told to end.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    let pods = Arc::new(match &options.dump {
        Some(path) => {
            let dump = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
            Pods::new(decode_dump(dump.into())?)
        }
        None => {
            Pods::generate(Plan { pods: options.pods, pod_bytes: options.pod_bytes, seed: options.seed })?
        }
    });
    if let Some(directory) = &options.changes {
        ingest::spawn(directory, Arc::clone(&pods))?;
    }
    let listener = std::os::unix::net::UnixListener::bind(&options.socket)
        .with_context(|| format!("binding {}", options.socket.display()))?;
    match options.kind {
        Kind::Floor => floor::run(&listener, &pods, options.batch),
        Kind::Tonic => tonic::run(listener, pods),
        Kind::TokioUring => uring::run(listener, pods),
    }
}
