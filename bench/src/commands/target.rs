//! Options that say which server to load.

use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use anyhow::Context as _;

use crate::client::{STOCK_WINDOW_BYTES, Settings};
use crate::generate::Template;
use crate::load::{self, ChangeFormat, Changes, Protocol, Target};

/// Which server to load, and how to speak to it.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct TargetOptions {
    /// The server's socket.
    #[arg(long)]
    socket: PathBuf,
    /// The server's protocol; `floor` for the comparison server of that name.
    #[arg(long, value_enum, default_value_t = Protocol::Http2)]
    protocol: Protocol,
    /// Receive window of each stream and of the connection, in bytes; the default is what stock clients start with.
    #[arg(long, default_value_t = STOCK_WINDOW_BYTES, value_parser = clap::value_parser!(u32).range(1_024..=0x7fff_ffff))]
    window_bytes: u32,
    /// Largest frame the server may send, in bytes (SETTINGS_MAX_FRAME_SIZE).
    #[arg(long, default_value_t = 16_384, value_parser = clap::value_parser!(u32).range(16_384..0x100_0000))]
    max_frame_bytes: u32,
    /// Process whose cost is reported [default: the one that listens on the socket].
    #[arg(long)]
    pid: Option<u32>,
    /// Run on this CPU; give the server another one.
    #[arg(long)]
    cpu: Option<usize>,
    /// Print the outcome as JSON.
    #[arg(long)]
    pub(super) json: bool,
}

impl TargetOptions {
    pub(super) fn target(&self) -> anyhow::Result<Target> {
        if let Some(cpu) = self.cpu {
            crate::launch::pin(cpu)?;
        }
        let settings = Settings {
            window_bytes: self.window_bytes,
            max_frame_bytes: self.max_frame_bytes,
            capture_bytes: 0,
        };
        let pid = match self.pid {
            Some(pid) => pid,
            None => listener_of(&self.socket)?,
        };
        Ok(Target {
            socket: self.socket.clone(),
            protocol: self.protocol,
            settings,
            pid: Some(pid),
            count_syscalls: false,
        })
    }
}

/// The process that listens on a socket, as the kernel tells every client.
fn listener_of(socket: &std::path::Path) -> anyhow::Result<u32> {
    let stream =
        UnixStream::connect(socket).with_context(|| format!("connecting to {}", socket.display()))?;
    let peer = rustix::net::sockopt::socket_peercred(&stream).context("asking who listens")?;
    Ok(peer.pid.as_raw_nonzero().get().unsigned_abs())
}

/// How to make the server's pods change.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ChangeOptions {
    /// Directory that the server reads changes from; must be writable.
    #[arg(long)]
    changes: PathBuf,
    /// What the server expects there.
    #[arg(long, value_enum, default_value_t = ChangeFormat::Manifests)]
    format: ChangeFormat,
}

impl ChangeOptions {
    /// Changes of the pods that the server has now, of those made by the generator.
    pub(super) fn changes(&self, target: &Target) -> anyhow::Result<Changes> {
        let documents = match self.format {
            ChangeFormat::Encoded => encoded_documents(&load::list_pods(target)?)?,
            ChangeFormat::Manifests => manifest_documents(&self.changes)?,
        };
        // Beside the directory, so that a rename suffices.
        let mut staging = self.changes.as_os_str().to_owned();
        staging.push(format!(".staging-{}", std::process::id()));
        Changes::new(&self.changes, &PathBuf::from(staging), documents, load::fresh_sequence())
    }
}

/// Encoded pods, cut at their sequence annotation; pods without one are left alone.
pub(crate) fn encoded_documents(pods: &[bytes::Bytes]) -> anyhow::Result<Vec<(String, Template)>> {
    pods.iter()
        .filter_map(|pod| Some((pod, Template::cut(pod)?)))
        .map(|(pod, template)| Ok((format!("{}.pb", load::uid_of(pod)?), template)))
        .collect()
}

/// The manifests in a directory, cut at their sequence annotation; others are left alone.
fn manifest_documents(directory: &std::path::Path) -> anyhow::Result<Vec<(String, Template)>> {
    let mut documents = Vec::new();
    let entries = std::fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        if name.starts_with('.') || !entry.file_type()?.is_file() {
            continue;
        }
        let document = std::fs::read(entry.path()).with_context(|| format!("reading {name}"))?;
        documents.extend(Template::cut(&document).map(|template| (name, template)));
    }
    documents.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(documents)
}
