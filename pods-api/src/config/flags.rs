//! The flags of `pods-api serve` as clap reads them.

use super::parse::{parse_cgroup_root, parse_mode, parse_ring, parse_rule, parse_size};
use crate::access::Rule;
use crate::grpc::Scope;
use crate::kernel::{CgroupRoot, EbpfMode};
use crate::transport::{SocketGroup, Transport};
use clap::builder::TypedValueParser as _;
use clap::{ArgAction, Args};
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::PathBuf;

/// Where the Kubernetes documentation puts the socket.
pub const DEFAULT_SOCKET: &str = "/var/lib/kubelet/pods-api/pods-api.sock";

/// Flags of `pods-api serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// UNIX socket to serve on; clients in pods mount its directory, not the file
    #[arg(long, env = "PODS_API_SOCKET", default_value = DEFAULT_SOCKET, value_name = "PATH")]
    pub(super) socket: PathBuf,
    /// Permissions of the socket, octal; a client needs write permission
    #[arg(long, env = "PODS_API_SOCKET_MODE", default_value = "0600", value_name = "MODE", value_parser = parse_mode)]
    pub(super) socket_mode: u32,
    /// Group that owns the socket, by name or number; give it write permission with --socket-mode 0660
    #[arg(long, env = "PODS_API_SOCKET_GROUP", value_name = "GROUP")]
    pub(super) socket_group: Option<SocketGroup>,

    /// Directory of static pod manifests, or one file, as the kubelet's staticPodPath
    #[arg(
        long,
        env = "PODS_API_MANIFESTS",
        default_value = "/etc/kubernetes/manifests",
        value_name = "PATH"
    )]
    pub(super) manifests: PathBuf,
    /// Read only files with these extensions (comma-separated, without dot) [default: all files whose name does not
    /// begin with a dot, as the kubelet]
    #[arg(long, env = "PODS_API_MANIFEST_EXTENSIONS", value_delimiter = ',', value_name = "LIST")]
    pub(super) manifest_extensions: Vec<String>,
    /// Name of this node in Kubernetes [default: the host name, lower case]
    #[arg(long, env = "PODS_API_NODE_NAME", value_name = "NAME")]
    pub(super) node_name: Option<String>,
    /// Socket of the container runtime, which tells what really runs; `auto` for the first that answers of containerd's
    /// and CRI-O's, `none` for a machine without a runtime
    #[arg(long, env = "PODS_API_CRI_SOCKET", default_value = "auto", value_name = "PATH")]
    pub(super) cri_socket: String,
    /// Whether the runtime's events are followed; `off` for a runtime whose events do harm: changes then show with the
    /// next list, within a second
    #[arg(long, env = "PODS_API_RUNTIME_EVENTS", default_value = "auto", value_name = "WHETHER", action = ArgAction::Set,
          value_parser = clap::builder::PossibleValuesParser::new(["auto", "off"]).map(|whether| whether == "auto"))]
    pub(super) runtime_events: bool,
    /// Sources that must have delivered before calls are answered: `manifest`, `cri` or both, comma-separated [default:
    /// both; without a container runtime `manifest`]
    #[arg(long, env = "PODS_API_REQUIRE", value_delimiter = ',', value_name = "SOURCES")]
    pub(super) require: Vec<String>,
    /// Seconds for which a pod that has left stays findable by Lookup, flagged
    #[arg(long, env = "PODS_API_TOMBSTONE_SECONDS", default_value_t = 60, value_name = "SECONDS")]
    pub(super) tombstone_seconds: u32,

    /// Directory of the cgroup hierarchy below which this node's pods are, as the kubelet's cgroupRoot; needed where the
    /// node itself runs in a pod of another cluster or in user.slice, and keeps cgroups elsewhere from passing for pods'
    #[arg(long, env = "PODS_API_CGROUP_ROOT", default_value = "/", value_name = "PATH", value_parser = parse_cgroup_root)]
    pub(super) cgroup_root: CgroupRoot,

    /// Address of /metrics, /healthz and /readyz, which show no pod data; `none` for no listener
    #[arg(long, env = "PODS_API_ADMIN", default_value = "127.0.0.1:9477", value_name = "ADDRESS")]
    pub(super) admin: String,

    /// ListPods, GetPod and Lookup calls per second that a caller may make
    #[arg(long, env = "PODS_API_RATE_LIMIT_QPS", default_value = "100", value_name = "N")]
    pub(super) rate_limit_qps: NonZeroU32,
    /// Calls that may come at once before the rate counts
    #[arg(long, env = "PODS_API_RATE_LIMIT_BURST", default_value = "10", value_name = "N")]
    pub(super) rate_limit_burst: NonZeroU32,
    /// Whether each caller (pod, else user and executable) has a bucket of its own, or all share one as with the kubelet
    #[arg(long, env = "PODS_API_RATE_LIMIT_SCOPE", default_value = "peer", value_name = "SCOPE")]
    pub(super) rate_limit_scope: Scope,

    /// Who may call, and what they may do and see: `uid=N`, `gid=N`, `namespace=NS`, `serviceaccount=NS/NAME`,
    /// `pod-uid=UID` or `unknown`, and after it `,methods=list+get+watch+lookup`, `,fields=a.b+c.d`,
    /// `,namespaces=a+b`, `,profile=no-env`. Give it once for each rule, or several joined by `;`: the first about a
    /// caller decides [default: `uid=0` and the server's own user]
    #[arg(long, env = "PODS_API_ALLOW", value_delimiter = ';', value_name = "RULE", value_parser = parse_rule)]
    pub(super) allow: Vec<Rule>,

    /// Events that may wait for a slow watcher before it is cut off
    #[arg(long, env = "PODS_API_WATCH_BUFFER", default_value = "1024", value_name = "EVENTS",
          value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    pub(super) watch_buffer: u32,
    /// Client connections at one time
    #[arg(long, env = "PODS_API_MAX_CONNECTIONS", default_value = "1024", value_name = "N")]
    pub(super) max_connections: NonZeroUsize,
    /// Watches at one time
    #[arg(long, env = "PODS_API_MAX_WATCHERS", default_value = "4096", value_name = "N")]
    pub(super) max_watchers: NonZeroUsize,
    /// Memory that events may hold for slow watchers, in all; the slowest are cut off first
    #[arg(long, env = "PODS_API_MAX_PINNED_BYTES", default_value = "256MiB", value_name = "SIZE", value_parser = parse_size)]
    pub(super) max_pinned_bytes: usize,

    /// Whether programs in the kernel tell of cgroups and processes as they come and go: `auto` where the kernel allows
    /// it, `require` to refuse to start without
    #[arg(long, env = "PODS_API_EBPF", default_value = "auto", value_name = "MODE")]
    pub(super) ebpf: EbpfMode,
    /// Memory for events of the kernel that wait to be read
    #[arg(long, env = "PODS_API_EBPF_RING_BYTES", default_value = "512KiB", value_name = "SIZE", value_parser = parse_ring)]
    pub(super) ebpf_ring_bytes: u32,

    /// How client connections are driven; `auto` takes io_uring where the kernel allows it
    #[arg(long, env = "PODS_API_TRANSPORT", default_value = "auto", value_name = "DRIVER")]
    pub(super) transport: Transport,
    /// Threads for client connections [default: 2, or 1 on a single core]
    #[arg(long, env = "PODS_API_WORKERS", value_name = "N")]
    pub(super) workers: Option<NonZeroUsize>,

    /// What to log, e.g. `info` or `warn,pods_api::source=debug`
    #[arg(long, env = "PODS_API_LOG", default_value = "info", value_name = "FILTER")]
    pub(super) log: String,
    /// How to log
    #[arg(long, env = "PODS_API_LOG_FORMAT", default_value = "text", value_name = "FORMAT", action = ArgAction::Set,
          value_parser = clap::builder::PossibleValuesParser::new(["text", "json"]).map(|format| format == "json"))]
    pub(super) log_format: bool,
}
