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

#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
struct KeyArguments {
    /// The pod's UID
    uid: Option<String>,
    /// The pod's namespace and name; without namespace, "default"
    #[arg(long, value_name = "[NAMESPACE/]NAME")]
    name: Option<String>,
    /// One of the pod's addresses
    #[arg(long, value_name = "ADDRESS")]
    ip: Option<std::net::IpAddr>,
}

impl KeyArguments {
    fn key(self) -> Option<Key> {
        if let Some(uid) = self.uid {
            return Some(Key::PodUid(uid));
        }
        if let Some(name) = self.name {
            let (namespace, name) = name.split_once('/').unwrap_or(("", &name));
            return Some(Key::Name(NamespacedName {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }));
        }
        self.ip.map(|ip| Key::PodIp(ip.to_string()))
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

    #[test]
    fn wait_takes_units_and_refuses_what_is_no_wait() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("1m30s"), Ok(Duration::from_secs(90)));
        assert!(parse_duration("5").is_err());
        assert!(parse_duration("-5s").is_err());
    }

    #[test]
    fn name_without_namespace_leaves_the_default_to_the_server() {
        let key = |name: &str| KeyArguments { uid: None, name: Some(name.to_owned()), ip: None }.key();
        let named = |namespace: &str, name: &str| {
            Some(Key::Name(NamespacedName { namespace: namespace.to_owned(), name: name.to_owned() }))
        };
        assert_eq!(key("web"), named("", "web"));
        assert_eq!(key("shop/web"), named("shop", "web"));
    }
}
