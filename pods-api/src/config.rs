//! Flags and environment to one validated struct.
//!
//! Every flag of `serve` has the environment twin `PODS_API_<FLAG>`. What contradicts itself or cannot work is refused
//! here, before anything is touched, with what would be right.

use crate::access::{Policy, Rule};
use crate::grpc::Scope;
use crate::kernel::{CgroupRoot, EbpfConfig, EbpfMode};
use crate::pod::{NodeName, SourceId};
use crate::runtime::SocketChoice;
use crate::transport::{SocketGroup, Transport};
use clap::builder::TypedValueParser as _;
use clap::{ArgAction, Args};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the Kubernetes documentation puts the socket.
pub const DEFAULT_SOCKET: &str = "/var/lib/kubelet/pods-api/pods-api.sock";

/// Flags of `pods-api serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// UNIX socket to serve on; clients in pods mount its directory, not the file
    #[arg(long, env = "PODS_API_SOCKET", default_value = DEFAULT_SOCKET, value_name = "PATH")]
    socket: PathBuf,
    /// Permissions of the socket, octal; a client needs write permission
    #[arg(long, env = "PODS_API_SOCKET_MODE", default_value = "0600", value_name = "MODE", value_parser = parse_mode)]
    socket_mode: u32,
    /// Group that owns the socket, by name or number; give it write permission with --socket-mode 0660
    #[arg(long, env = "PODS_API_SOCKET_GROUP", value_name = "GROUP")]
    socket_group: Option<SocketGroup>,

    /// Directory of static pod manifests, or one file, as the kubelet's staticPodPath
    #[arg(
        long,
        env = "PODS_API_MANIFESTS",
        default_value = "/etc/kubernetes/manifests",
        value_name = "PATH"
    )]
    manifests: PathBuf,
    /// Read only files with these extensions (comma-separated, without dot) [default: all files whose name does not
    /// begin with a dot, as the kubelet]
    #[arg(long, env = "PODS_API_MANIFEST_EXTENSIONS", value_delimiter = ',', value_name = "LIST")]
    manifest_extensions: Vec<String>,
    /// Name of this node in Kubernetes [default: the host name, lower case]
    #[arg(long, env = "PODS_API_NODE_NAME", value_name = "NAME")]
    node_name: Option<String>,
    /// Socket of the container runtime, which tells what really runs; `auto` for the first that answers of containerd's
    /// and CRI-O's, `none` for a machine without a runtime
    #[arg(long, env = "PODS_API_CRI_SOCKET", default_value = "auto", value_name = "PATH")]
    cri_socket: String,
    /// Whether the runtime's events are followed; `off` for a runtime whose events do harm: changes then show with the
    /// next list, within a second
    #[arg(long, env = "PODS_API_RUNTIME_EVENTS", default_value = "auto", value_name = "WHETHER", action = ArgAction::Set,
          value_parser = clap::builder::PossibleValuesParser::new(["auto", "off"]).map(|whether| whether == "auto"))]
    runtime_events: bool,
    /// Sources that must have delivered before calls are answered [default: all that are configured]
    #[arg(long, env = "PODS_API_REQUIRE", value_delimiter = ',', value_name = "SOURCES")]
    require: Vec<String>,
    /// Seconds for which a pod that has left stays findable by Lookup, flagged
    #[arg(long, env = "PODS_API_TOMBSTONE_SECONDS", default_value_t = 60, value_name = "SECONDS")]
    tombstone_seconds: u32,

    /// Directory of the cgroup hierarchy below which this node's pods are, as the kubelet's cgroupRoot; needed only where
    /// the node itself runs in a pod of another cluster
    #[arg(long, env = "PODS_API_CGROUP_ROOT", default_value = "/", value_name = "PATH", value_parser = parse_cgroup_root)]
    cgroup_root: CgroupRoot,

    /// Address of /metrics, /healthz and /readyz, which show no pod data; `none` for no listener
    #[arg(long, env = "PODS_API_ADMIN", default_value = "127.0.0.1:9477", value_name = "ADDRESS")]
    admin: String,

    /// ListPods, GetPod and Lookup calls per second that a caller may make
    #[arg(long, env = "PODS_API_RATE_LIMIT_QPS", default_value = "100", value_name = "N")]
    rate_limit_qps: NonZeroU32,
    /// Calls that may come at once before the rate counts
    #[arg(long, env = "PODS_API_RATE_LIMIT_BURST", default_value = "10", value_name = "N")]
    rate_limit_burst: NonZeroU32,
    /// Whether each caller (pod, else user and executable) has a bucket of its own, or all share one as with the kubelet
    #[arg(long, env = "PODS_API_RATE_LIMIT_SCOPE", default_value = "peer", value_name = "SCOPE")]
    rate_limit_scope: Scope,

    /// Who may call, and what they may do and see: `uid=N`, `gid=N`, `namespace=NS`, `serviceaccount=NS/NAME`,
    /// `pod-uid=UID` or `unknown`, and after it `,methods=list+get+watch+lookup`, `,fields=a.b+c.d`,
    /// `,namespaces=a+b`, `,profile=no-env`. Give it once for each rule, or several joined by `;`: the first about a
    /// caller decides [default: `uid=0` and the server's own user]
    #[arg(long, env = "PODS_API_ALLOW", value_delimiter = ';', value_name = "RULE")]
    allow: Vec<Rule>,

    /// Events that may wait for a slow watcher before it is cut off
    #[arg(long, env = "PODS_API_WATCH_BUFFER", default_value = "1024", value_name = "EVENTS",
          value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    watch_buffer: u32,
    /// Client connections at one time
    #[arg(long, env = "PODS_API_MAX_CONNECTIONS", default_value = "1024", value_name = "N")]
    max_connections: NonZeroUsize,
    /// Watches at one time
    #[arg(long, env = "PODS_API_MAX_WATCHERS", default_value = "4096", value_name = "N")]
    max_watchers: NonZeroUsize,
    /// Memory that events may hold for slow watchers, in all; the slowest are cut off first
    #[arg(long, env = "PODS_API_MAX_PINNED_BYTES", default_value = "256MiB", value_name = "SIZE", value_parser = parse_size)]
    max_pinned_bytes: usize,

    /// Whether programs in the kernel tell of cgroups and processes as they come and go: `auto` where the kernel allows
    /// it, `require` to refuse to start without
    #[arg(long, env = "PODS_API_EBPF", default_value = "auto", value_name = "MODE")]
    ebpf: EbpfMode,
    /// Memory for events of the kernel that wait to be read
    #[arg(long, env = "PODS_API_EBPF_RING_BYTES", default_value = "512KiB", value_name = "SIZE", value_parser = parse_ring)]
    ebpf_ring_bytes: u32,

    /// How client connections are driven; `auto` takes io_uring where the kernel allows it
    #[arg(long, env = "PODS_API_TRANSPORT", default_value = "auto", value_name = "DRIVER")]
    transport: Transport,
    /// Threads for client connections [default: 2, or 1 on a single core]
    #[arg(long, env = "PODS_API_WORKERS", value_name = "N")]
    workers: Option<NonZeroUsize>,

    /// What to log, e.g. `info` or `warn,pods_api::source=debug`
    #[arg(long, env = "PODS_API_LOG", default_value = "info", value_name = "FILTER")]
    log: String,
    /// How to log
    #[arg(long, env = "PODS_API_LOG_FORMAT", default_value = "text", value_name = "FORMAT", action = ArgAction::Set,
          value_parser = clap::builder::PossibleValuesParser::new(["text", "json"]).map(|format| format == "json"))]
    log_format: bool,
}

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
        let cri = cri_socket(&self.cri_socket);
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
fn cri_socket(text: &str) -> Option<SocketChoice> {
    match text {
        "none" => None,
        "auto" => Some(SocketChoice::default()),
        path => Some(SocketChoice::Path(absolute(Path::new(path.strip_prefix("unix://").unwrap_or(path))))),
    }
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

fn parse_mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text.trim_start_matches("0o"), 8) {
        Ok(mode) if mode > 0o777 => Err("has bits beyond 0777; give one like 0600 or 0660".into()),
        Ok(mode) if mode & 0o600 != 0o600 => {
            Err("takes the socket away from its owner; give one like 0600 or 0660".into())
        }
        Ok(mode) => Ok(mode),
        Err(_) => Err("not an octal mode; give one like 0600 or 0660".into()),
    }
}

fn parse_cgroup_root(text: &str) -> Result<CgroupRoot, String> {
    if text.starts_with("/sys/") {
        return Err("begins with the mount; give the path below it, e.g. /kubelet".into());
    }
    if text.split('/').any(|part| part == "..") {
        return Err("leads upwards; give a path below the cgroup mount, e.g. /kubelet".into());
    }
    Ok(CgroupRoot::new(text))
}

/// Bytes, with an optional binary suffix.
fn parse_size(text: &str) -> Result<usize, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: usize = match &text[digits.len()..] {
        "" | "B" => 1,
        "KiB" | "Ki" => 1 << 10,
        "MiB" | "Mi" => 1 << 20,
        "GiB" | "Gi" => 1 << 30,
        other => return Err(format!("unknown unit {other:?}; give one like 256MiB")),
    };
    let amount: usize = digits.parse().map_err(|_| "not a size; give one like 256MiB".to_owned())?;
    amount.checked_mul(unit).ok_or_else(|| "too large".to_owned())
}

/// Bytes of a ring buffer, which the kernel wants as a power of two of pages.
fn parse_ring(text: &str) -> Result<u32, String> {
    match parse_size(text)? {
        bytes if bytes.is_power_of_two() && (4 << 10..=64 << 20).contains(&bytes) => Ok(bytes as u32),
        _ => Err("not a power of two from 4KiB to 64MiB; give one like 512KiB".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    #[test]
    fn sizes_have_binary_units() {
        assert_eq!(parse_size("512"), Ok(512));
        assert_eq!(parse_size("4KiB"), Ok(4096));
        assert_eq!(parse_size("2Gi"), Ok(2 << 30));
        assert!(parse_size("MiB").is_err() && parse_size("99999999999GiB").is_err());
    }
}
