//! `get pods`: the pods of the node, once or with every change.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use pods_api_proto::k8s::io::api::core::v1::Pod;
use pods_api_proto::v1alpha1::pods_client::PodsClient;
use pods_api_proto::v1alpha1::{EventType, GetPodRequest, ListPodsRequest, WatchPodsEvent, WatchPodsRequest};
use prost::Message as _;
use tonic::transport::Channel;

use super::connect::{MESSAGE_LIMIT, connect};
use super::error::Error;
use super::output::{Format, Printer};
use super::{Target, columns::Row};

/// The arguments of `get`.
#[derive(Debug, Args)]
pub struct Get {
    #[command(subcommand)]
    resource: Resource,
    #[command(flatten)]
    target: Target,
}

#[derive(Debug, Subcommand)]
enum Resource {
    /// Pods of this node
    #[command(visible_aliases = ["pod", "po"])]
    Pods(Pods),
}

#[derive(Debug, Args)]
struct Pods {
    /// Only the pod with this UID, in whatever namespace
    #[arg(conflicts_with_all = ["namespace", "all_namespaces", "watch"])]
    uid: Option<String>,
    /// Pods of this namespace
    #[arg(short, long, default_value = "default", conflicts_with = "all_namespaces")]
    namespace: String,
    /// Pods of every namespace
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// How to print them; with --watch, json is one event per line
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// After the pods, show each change until the server ends the watch
    #[arg(short, long)]
    watch: bool,
}

impl Get {
    pub(super) async fn run(self) -> Result<(), Error> {
        let Resource::Pods(pods) = self.resource;
        let channel = connect(&self.target.socket).await?;
        pods.run(PodsClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT)).await
    }
}

impl Pods {
    async fn run(self, mut client: PodsClient<Channel>) -> Result<(), Error> {
        if let Some(uid) = self.uid {
            let response = client.get_pod(GetPodRequest { pod_uid: uid }).await?.into_inner();
            return Printer::new(self.output, true).single(&Seen::read(response.pod)?);
        }
        let printer = Printer::new(self.output, self.all_namespaces);
        if self.watch {
            return self.watch(client, printer).await;
        }
        let response = client.list_pods(ListPodsRequest {}).await?.into_inner();
        let mut pods = response.pods.into_iter().map(Seen::read).collect::<Result<Vec<_>, _>>()?;
        pods.retain(|pod| self.selects(pod));
        // The server's order is that of the UIDs; people look for names.
        pods.sort_by(|a, b| (&a.row.namespace, &a.row.name).cmp(&(&b.row.namespace, &b.row.name)));
        if pods.is_empty() && self.output.is_table() {
            return printer.note(&self.nothing_found());
        }
        printer.list(&pods)
    }

    async fn watch(&self, mut client: PodsClient<Channel>, mut printer: Printer) -> Result<(), Error> {
        let mut events = client.watch_pods(WatchPodsRequest {}).await?.into_inner();
        // DELETED names the pod and no more: its last row is shown.
        let mut known: HashMap<String, Row> = HashMap::new();
        let mut first = Some(Vec::new());
        loop {
            let event = match events.message().await {
                Ok(Some(event)) => event,
                Ok(None) => return Err(Error::WatchClosed),
                Err(status) => return Err(Error::WatchEnded(Box::new(status))),
            };
            let kind = event.r#type();
            if kind == EventType::InitialSyncComplete {
                // Printed together, so that the columns of the first table are as wide as they need to be.
                printer.events(&first.take().unwrap_or_default())?;
                continue;
            }
            let Some(seen) = self.read(event, &mut known)? else { continue };
            match &mut first {
                Some(initial) => initial.push((kind, seen)),
                None => printer.events(&[(kind, seen)])?,
            }
        }
    }

    /// The pod of an event, if it is one to show.
    fn read(&self, event: WatchPodsEvent, known: &mut HashMap<String, Row>) -> Result<Option<Seen>, Error> {
        let kind = event.r#type();
        let mut seen = Seen::read(event.pod)?;
        if !self.selects(&seen) {
            return Ok(None);
        }
        let uid = seen.row.uid.clone();
        if kind == EventType::Deleted {
            if let Some(last) = known.remove(&uid) {
                seen.row = last;
            }
            "Deleted".clone_into(&mut seen.row.status);
        } else {
            known.insert(uid, seen.row.clone());
        }
        Ok(Some(seen))
    }

    fn selects(&self, pod: &Seen) -> bool {
        self.all_namespaces || pod.row.namespace == self.namespace
    }

    fn nothing_found(&self) -> String {
        if self.all_namespaces {
            "no pods on this node".to_owned()
        } else {
            format!("no pods in namespace {} on this node; -A shows every namespace", self.namespace)
        }
    }
}

/// A pod as received and as shown.
pub(super) struct Seen {
    pub(super) bytes: bytes::Bytes,
    pub(super) row: Row,
}

impl Seen {
    pub(super) fn read(bytes: bytes::Bytes) -> Result<Self, Error> {
        let pod = Pod::decode(bytes.clone())?;
        Ok(Self { bytes, row: Row::of(&pod, now()) })
    }
}

fn now() -> i64 {
    // A clock before 1970 makes every age 0, as it should.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}
