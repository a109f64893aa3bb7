//! Flags and environment to one validated struct.
//!
//! Every flag of `serve` has the environment twin `PODS_API_<FLAG>`. What contradicts itself or cannot work is refused
//! here, before anything is touched, with what would be right.

mod environment;
mod flags;
mod parse;

pub use environment::{UnknownVariable, unknown_environment};
pub use flags::{DEFAULT_SOCKET, ServeArgs};

use crate::access::Policy;
use crate::grpc::Scope;
use crate::kernel::{CgroupRoot, EbpfConfig};
use crate::pod::{NodeName, SourceId};
use crate::runtime::SocketChoice;
use crate::transport::{SocketGroup, Transport};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `serve` runs with.
#[derive(Debug, Clone)]
pub struct Config {
    /// The socket's path.
    pub socket: PathBuf,
    /// Its permission bits.
    pub socket_mode: u32,
    /// The group to own it.
    pub socket_group: Option<SocketGroup>,
    /// Directory or file of static pods, absolute.
    pub manifests: PathBuf,
    /// File extensions to read; empty means all.
    pub manifest_extensions: Vec<String>,
    /// This node.
    pub node_name: NodeName,
    /// The container runtime to ask, if any.
    pub cri: Option<SocketChoice>,
    /// Whether its events are followed.
    pub runtime_events: bool,
    /// Sources that must have delivered before calls are answered.
    pub require: BTreeSet<SourceId>,
    /// How long a pod that has left stays findable.
    pub tombstone_ttl: Duration,
    /// Where this node's pods are among the cgroups.
    pub cgroup_root: CgroupRoot,
    /// Where the admin listener goes.
    pub admin: Option<SocketAddr>,
    /// Tokens per second.
    pub rate_limit_qps: NonZeroU32,
    /// Tokens at most.
    pub rate_limit_burst: NonZeroU32,
    /// Who shares a bucket.
    pub rate_limit_scope: Scope,
    /// Who may call.
    pub policy: Policy,
    /// Ring size of a watcher.
    pub watch_buffer: usize,
    /// Most connections.
    pub max_connections: usize,
    /// Most watches.
    pub max_watchers: usize,
    /// Most bytes pinned by logs.
    pub max_pinned_bytes: usize,
    /// What is loaded into the kernel.
    pub ebpf: EbpfConfig,
    /// How sockets are driven.
    pub transport: Transport,
    /// Threads for client I/O.
    pub workers: NonZeroUsize,
    /// A tracing filter.
    pub log: String,
    /// Whether logs are JSON.
    pub log_json: bool,
}

/// Why a configuration is refused.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The path has no directory or file name.
    #[error("--socket {0}: not the path of a file in a directory; give one like {DEFAULT_SOCKET}")]
    Socket(PathBuf),
    /// The listener address does not parse.
    #[error("--admin {0}: not an address and port; give one like 127.0.0.1:9477, or none")]
    Admin(String),
    /// The container runtime is to be reached by something else than a UNIX socket.
    #[error(
        "--cri-socket {0:?}: not a UNIX socket, and no runtime is reached by anything else; give one like \
         /run/containerd/containerd.sock, or auto, or none"
    )]
    CriSocket(String),
    /// A source that is unknown or not configured.
    #[error("--require {name}: no such source is configured; configured: {configured}")]
    Require {
        /// What was asked for.
        name: String,
        /// What there is.
        configured: String,
    },
    /// The node's name cannot be a Kubernetes node name.
    #[error("--node-name {0:?}: not a DNS subdomain (lower-case letters, digits, `-` and `.`, at most 253)")]
    NodeName(String),
    /// The host has no usable name.
    #[error("the host name {0:?} cannot be a node name; give the node's name with --node-name")]
    HostName(String),
    /// A group or others may connect, but the socket belongs to no group in particular.
    #[error("--socket-group: its members cannot connect with --socket-mode {0:04o}; add --socket-mode 0660")]
    GroupMode(u32),
    /// The log filter does not parse.
    #[error("--log {filter}: {reason}; give one like info or warn,pods_api::source=debug")]
    Log {
        /// What was given.
        filter: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl ServeArgs {
    /// Checks everything that can be checked without touching the system.
    ///
    /// # Errors
    /// The first thing that is wrong, and what would be right.
    pub fn validate(self) -> Result<Config, ConfigError> {
        if self.socket.file_name().is_none() {
            return Err(ConfigError::Socket(self.socket));
        }
        if self.socket_group.is_some() && self.socket_mode & 0o020 == 0 {
            return Err(ConfigError::GroupMode(self.socket_mode));
        }
        if let Err(error) = self.log.parse::<tracing_subscriber::filter::Targets>() {
            return Err(ConfigError::Log { filter: self.log, reason: error.to_string() });
        }
        let admin = match &*self.admin {
            "none" => None,
            address => Some(address.parse().map_err(|_| ConfigError::Admin(self.admin.clone()))?),
        };
        let cri = cri_socket(&self.cri_socket)?;
        let configured = [Some(SourceId::Manifest), cri.as_ref().map(|_| SourceId::Cri)];
        let configured: BTreeSet<_> = configured.into_iter().flatten().collect();
        let cores = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Ok(Config {
            socket: absolute(&self.socket),
            socket_mode: self.socket_mode,
            socket_group: self.socket_group,
            manifests: absolute(&self.manifests),
            manifest_extensions: self.manifest_extensions,
            node_name: node_name(self.node_name)?,
            cri,
            runtime_events: self.runtime_events,
            require: required(&self.require, configured)?,
            tombstone_ttl: Duration::from_secs(self.tombstone_seconds.into()),
            cgroup_root: self.cgroup_root,
            admin,
            rate_limit_qps: self.rate_limit_qps,
            rate_limit_burst: self.rate_limit_burst,
            rate_limit_scope: self.rate_limit_scope,
            policy: match self.allow {
                rules if rules.is_empty() => Policy::for_root_and(rustix::process::geteuid().as_raw()),
                rules => Policy::new(rules),
            },
            watch_buffer: self.watch_buffer as usize,
            max_connections: self.max_connections.get(),
            max_watchers: self.max_watchers.get(),
            max_pinned_bytes: self.max_pinned_bytes,
            ebpf: EbpfConfig { mode: self.ebpf, ring_bytes: self.ebpf_ring_bytes, is_pinned: true },
            transport: self.transport,
            workers: self.workers.unwrap_or(NonZeroUsize::new(cores.min(2)).expect("at least one core")),
            log: self.log,
            log_json: self.log_format,
        })
    }
}

/// The path as seen from `/`: the UIDs of static pods depend on it, so it must not depend on the working directory.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// The runtime to ask; its socket may be written as an endpoint, `unix:///run/...`, as elsewhere in Kubernetes.
fn cri_socket(text: &str) -> Result<Option<SocketChoice>, ConfigError> {
    let path = match text {
        "none" => return Ok(None),
        "auto" => return Ok(Some(SocketChoice::default())),
        text => text.strip_prefix("unix://").unwrap_or(text),
    };
    if path.is_empty() || path.contains("://") {
        return Err(ConfigError::CriSocket(text.to_owned()));
    }
    Ok(Some(SocketChoice::Path(absolute(Path::new(path)))))
}

fn required(names: &[String], configured: BTreeSet<SourceId>) -> Result<BTreeSet<SourceId>, ConfigError> {
    if names.is_empty() {
        return Ok(configured);
    }
    let find = |name: &String| {
        configured.iter().copied().find(|source| source.as_str() == name).ok_or_else(|| {
            ConfigError::Require {
                name: name.clone(),
                configured: configured.iter().map(|source| source.as_str()).collect::<Vec<_>>().join(", "),
            }
        })
    };
    names.iter().map(find).collect()
}

/// The node's name: as given, else the host's, trimmed and in lower case (rule A.3.14).
fn node_name(given: Option<String>) -> Result<NodeName, ConfigError> {
    let is_given = given.is_some();
    let text = given.unwrap_or_else(|| rustix::system::uname().nodename().to_string_lossy().into_owned());
    let name = text.trim().to_lowercase();
    if is_dns_subdomain(&name) {
        Ok(name.into())
    } else if is_given {
        Err(ConfigError::NodeName(text))
    } else {
        Err(ConfigError::HostName(text))
    }
}

/// RFC 1123 subdomain, as Kubernetes wants node names.
fn is_dns_subdomain(name: &str) -> bool {
    let is_label = |label: &str| {
        let alphanumeric = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        alphanumeric(label.as_bytes().first())
            && alphanumeric(label.as_bytes().last())
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::EbpfMode;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Program {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn config(flags: &[&str]) -> Result<Config, String> {
        let program = Program::try_parse_from([&["serve", "--node-name", "Cp-1"], flags].concat());
        program.map_err(|error| error.to_string())?.serve.validate().map_err(|error| error.to_string())
    }

    #[test]
    fn defaults_are_those_documented() {
        let config = config(&[]).unwrap();
        assert_eq!(config.socket, Path::new(DEFAULT_SOCKET));
        assert_eq!(
            (config.socket_mode, config.rate_limit_qps.get(), config.rate_limit_burst.get()),
            (0o600, 100, 10)
        );
        assert_eq!((config.watch_buffer, config.max_connections, config.max_watchers), (1024, 1024, 4096));
        assert_eq!((config.max_pinned_bytes, config.tombstone_ttl.as_secs()), (256 << 20, 60));
        assert_eq!(config.node_name.as_str(), "cp-1", "rule A.3.14");
        assert_eq!(config.require, BTreeSet::from([SourceId::Manifest, SourceId::Cri]));
        assert_eq!(config.cri, Some(SocketChoice::default()));
        assert_eq!(
            (config.ebpf.mode, config.ebpf.ring_bytes),
            (EbpfMode::Auto, crate::kernel::DEFAULT_RING_BYTES)
        );
    }

    #[test]
    fn what_cannot_work_is_refused_with_what_would_be_right() {
        for (flags, expected) in [
            (&["--admin", "localhost"][..], "give one like 127.0.0.1:9477"),
            (&["--require", "apiserver"], "configured: manifest, cri"),
            (&["--socket-mode", "0400"], "takes the socket away from its owner"),
            (&["--socket-mode", "rw"], "not an octal mode"),
            (&["--socket-group", "pods"], "add --socket-mode 0660"),
            (&["--max-pinned-bytes", "1GB"], "unknown unit \"GB\""),
            (&["--log", "pods_api=loud"], "--log pods_api=loud"),
            (&["--ebpf-ring-bytes", "500KiB"], "a power of two from 4KiB to 64MiB"),
            (&["--watch-buffer", "0"], "0 is not in 1..=1048576"),
            (&["--rate-limit-qps", "0"], "--rate-limit-qps"),
            (
                &["--allow", "uid=0,method=get"],
                "rule \"uid=0,method=get\", at \"method=get\": after it may stand",
            ),
            (&["--allow", ""], "an empty rule; give one like uid=0"),
            (&["--allow", "uid=0;"], "an empty rule"),
            (&["--cri-socket", "tcp://127.0.0.1:1"], "--cri-socket \"tcp://127.0.0.1:1\": not a UNIX socket"),
            (
                &["--cri-socket", "npipe:////./pipe/containerd"],
                "give one like /run/containerd/containerd.sock",
            ),
            (&["--cri-socket", ""], "not a UNIX socket"),
            (&["--allow", "uid=0;root"], "rule \"root\", at \"root\""),
            (&["--cgroup-root", "/sys/fs/cgroup/kubelet"], "give the path below it"),
            (&["--cgroup-root", "/a/../b"], "leads upwards"),
            (&["--socket", "/"], "not the path of a file"),
            (&["--log-format", "xml"], "text, json"),
            (&["--socket-grop", "x"], "--socket-group"),
        ] {
            let error = config(flags).unwrap_err();
            assert!(error.contains(expected), "{flags:?}: {error}");
        }
        let error = node_name(Some("bad_name".into())).unwrap_err().to_string();
        assert!(error.contains("DNS subdomain"), "{error}");
    }

    #[test]
    fn runtime_socket_is_a_path_an_endpoint_or_none() {
        let socket = |text: &str| config(&["--cri-socket", text]).unwrap();
        assert!(socket("auto").runtime_events && !socket("auto").log_json);
        assert!(config(&["--log-format", "json"]).unwrap().log_json);
        assert!(!config(&["--runtime-events", "off"]).unwrap().runtime_events);
        let path = Some(SocketChoice::Path("/run/crio/crio.sock".into()));
        assert_eq!(socket("/run/crio/crio.sock").cri, path);
        assert_eq!(socket("unix:///run/crio/crio.sock").cri, path);
        let none = socket("none");
        assert_eq!((none.cri, none.require), (None, BTreeSet::from([SourceId::Manifest])));
        let error = config(&["--cri-socket", "none", "--require", "cri"]).unwrap_err();
        assert!(error.contains("configured: manifest"), "{error}");
    }
}
