//! `lookup`: one pod by what an agent has at hand, waiting for it where asked.

use std::time::Duration;

use clap::Args;
use pods_api_proto::podsapi::v1::lookup_request::Key;
use pods_api_proto::podsapi::v1::node_client::NodeClient;
use pods_api_proto::podsapi::v1::{LookupRequest, NamespacedName};
use prost::Message as _;

use super::Target;
use super::connect::{MESSAGE_LIMIT, connect};
use super::error::Error;
use super::get::Seen;
use super::output::{Format, Printer};

/// The arguments of `lookup`.
#[derive(Debug, Args)]
pub struct Lookup {
    #[command(flatten)]
    key: KeyArguments,
    /// Wait this long for a pod that is not there yet, e.g. 5s
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    wait: Option<Duration>,
    /// How to print the pod
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    #[command(flatten)]
    target: Target,
}

/// What the pod is looked up by: exactly one of these.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct KeyArguments {
    /// The pod's UID, or its NAMESPACE/NAME
    #[arg(value_name = "UID|NAMESPACE/NAME")]
    pod: Option<String>,
    /// The pod's UID
    #[arg(long, value_name = "UID")]
    uid: Option<String>,
    /// The pod's namespace and name; without namespace, "default"
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    name: Option<String>,
    /// One of the pod's addresses
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<std::net::IpAddr>,
    /// A container or sandbox ID: whole or a unique beginning, with or without containerd://
    #[arg(long, value_name = "ID")]
    container: Option<String>,
    /// A process in the PID namespace of the server
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(i32).range(1..))]
    pid: Option<i32>,
    /// A cgroup path below the cgroup mount, or a line of /proc/PID/cgroup
    #[arg(long, value_name = "PATH")]
    cgroup: Option<String>,
    /// The number of a cgroup v2, as bpf_get_current_cgroup_id gives it and as `stat -c %i` shows it of its directory
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    cgroup_id: Option<u64>,
}

impl KeyArguments {
    fn key(self) -> Option<Key> {
        let named = |name: &str| {
            let (namespace, name) = name.split_once('/').unwrap_or(("", name));
            Key::Name(NamespacedName { namespace: namespace.to_owned(), name: name.to_owned() })
        };
        // A UID has no slash: it is a path component wherever it occurs.
        let pod = |pod: String| if pod.contains('/') { named(&pod) } else { Key::PodUid(pod) };
        let keys = [
            self.pod.map(pod),
            self.uid.map(Key::PodUid),
            self.name.map(|name| named(&name)),
            self.ip.map(|ip| Key::PodIp(ip.to_string())),
            self.container.map(Key::ContainerId),
            self.pid.map(Key::Pid),
            self.cgroup.map(Key::CgroupPath),
            self.cgroup_id.map(Key::CgroupId),
        ];
        keys.into_iter().flatten().next()
    }
}

impl Lookup {
    pub(super) async fn run(self) -> Result<(), Error> {
        let channel = connect(&self.target.socket).await?;
        let wait = self.wait.and_then(|wait| wait.try_into().ok());
        let request = LookupRequest { key: self.key.key(), wait };
        let mut client = NodeClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT);
        let response = client.lookup(request).await?.into_inner();
        let pod = response.pod.unwrap_or_default();
        let mut seen = Seen::read(pod.encode_to_vec().into())?;
        let printer = Printer::new(self.output, true);
        if response.deleted {
            "Deleted".clone_into(&mut seen.row.status);
            printer.note("the pod has left this node; this is what was last known of it")?;
        }
        if !response.container_id.is_empty() {
            let name = match &*response.container_name {
                "" => "of a name that is not known yet",
                name => name,
            };
            printer.note(&format!("container {name}, {}", response.container_id))?;
        }
        printer.single(&seen)
    }
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let parsed: jiff::SignedDuration =
        text.parse().map_err(|_| "not a length of time; give one like 500ms, 5s or 1m".to_owned())?;
    parsed.try_into().map_err(|_| "a wait cannot be negative".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[test]
    fn wait_takes_units_and_refuses_what_is_no_wait() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1m30s"), Ok(Duration::from_secs(90)));
        assert!(parse_duration("5").is_err());
        assert!(parse_duration("-5s").is_err());
    }

    #[derive(Debug, clap::Parser)]
    struct Program {
        #[command(flatten)]
        lookup: Lookup,
    }

    fn key(arguments: &[&str]) -> Result<Key, String> {
        let program = Program::try_parse_from([&["lookup"], arguments].concat());
        program.map(|program| program.lookup.key.key().unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn every_key_has_its_argument() {
        let named = |namespace: &str, name: &str| {
            Ok(Key::Name(NamespacedName { namespace: namespace.to_owned(), name: name.to_owned() }))
        };
        assert_eq!(key(&["--name", "web"]), named("", "web"), "the default is the server's to know");
        assert_eq!(key(&["--name", "shop/web"]), named("shop", "web"));
        assert_eq!(key(&["shop/web"]), named("shop", "web"));
        for arguments in [&["u-1"][..], &["--uid", "u-1"]] {
            assert_eq!(key(arguments), Ok(Key::PodUid("u-1".into())));
        }
        assert_eq!(key(&["--ip", "fd00::7"]), Ok(Key::PodIp("fd00::7".into())));
        assert_eq!(key(&["--container", "containerd://a"]), Ok(Key::ContainerId("containerd://a".into())));
        assert_eq!(key(&["--pid", "7"]), Ok(Key::Pid(7)));
        assert_eq!(key(&["--cgroup", "0::/kubepods"]), Ok(Key::CgroupPath("0::/kubepods".into())));
        assert_eq!(key(&["--cgroup-id", "12"]), Ok(Key::CgroupId(12)));
    }

    #[test]
    fn keys_that_name_nothing_or_two_things_are_refused() {
        for (arguments, expected) in [
            (&["--pid", "0"][..], "0 is not in 1.."),
            (&["--cgroup-id", "x"], "invalid digit"),
            (&["--pid", "1", "--ip", "10.0.0.1"], "cannot be used with"),
            (&[], "required"),
        ] {
            let error = key(arguments).unwrap_err();
            assert!(error.contains(expected), "{arguments:?}: {error}");
        }
    }
}
