//! `get pods`: the pods of the node, once or with every change.

use std::collections::{BTreeMap, HashMap};
use std::time::{SystemTime, UNIX_EPOCH};

use clap::{Args, Subcommand};
use pods_api_proto::k8s::io::api::core::v1::Pod;
use pods_api_proto::v1alpha1::pods_client::PodsClient;
use pods_api_proto::v1alpha1::{EventType, GetPodRequest, ListPodsRequest, WatchPodsEvent, WatchPodsRequest};
use prost::Message as _;
use tonic::Code;
use tonic::metadata::MetadataValue;
use tonic::transport::Channel;

use crate::pod::{Namespace, Selector};
use crate::wire::{Mask, MaskError};

use super::connect::{MESSAGE_LIMIT, connect};
use super::error::Error;
use super::output::{Format, Printer};
use super::{Target, columns::Row};

const FIELD_MASK: &str = "x-kubernetes-fieldmask";
const NAMESPACE: &str = "x-pods-api-namespace";

/// What the columns are made of: 300 bytes of a pod of 6 kB.
const COLUMN_FIELDS: &str = "metadata.name,metadata.namespace,metadata.uid,metadata.creationTimestamp,\
    metadata.deletionTimestamp,metadata.annotations.`kubernetes.io/config.seen`,spec.nodeName,spec.containers.name,\
    spec.initContainers.name,spec.initContainers.restartPolicy,status.phase,status.reason,status.startTime,\
    status.podIP,status.conditions.type,status.conditions.status,\
    status.containerStatuses.name,status.containerStatuses.ready,status.containerStatuses.restartCount,\
    status.containerStatuses.state,status.containerStatuses.lastState,status.initContainerStatuses.name,\
    status.initContainerStatuses.ready,status.initContainerStatuses.started,status.initContainerStatuses.restartCount,\
    status.initContainerStatuses.state,status.initContainerStatuses.lastState";

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
    // Else clap would take `deployments` for a misspelt `po`.
    #[command(external_subcommand)]
    Other(Vec<String>),
}

#[derive(Debug, Args)]
struct Pods {
    /// Only one pod: with --namespace the pod of this name there, else the pod with this UID, in whatever namespace
    #[arg(value_name = "NAME|UID", conflicts_with_all = ["all_namespaces", "watch"])]
    pod: Option<String>,
    /// Pods of this namespace [default: default]
    #[arg(short, long, conflicts_with = "all_namespaces")]
    namespace: Option<String>,
    /// Pods of every namespace
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Pods whose labels match, e.g. `app=web,tier!=db` or `app in (a,b)`
    #[arg(short = 'l', long, value_name = "SELECTOR", value_parser = Selector::parse, conflicts_with = "pod")]
    selector: Option<Selector>,
    /// Only these fields, with -o json or yaml, e.g. `metadata.name,status.podIPs`
    #[arg(long, value_name = "PATHS", value_parser = parse_fields)]
    fields: Option<String>,
    /// How to print them; with --watch, json is one event per line
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
    /// After the pods, show each change until the server ends the watch
    #[arg(short, long)]
    watch: bool,
}

impl Get {
    pub(super) async fn run(self) -> Result<(), Error> {
        let pods = match self.resource {
            Resource::Pods(pods) => pods,
            Resource::Other(words) => {
                return Err(Error::Resource(words.into_iter().next().unwrap_or_default()));
            }
        };
        if pods.fields.is_some() && !pods.output.is_whole() {
            return Err(Error::FieldsNeedWholePods);
        }
        let channel = connect(&self.target.socket).await?;
        pods.run(PodsClient::new(channel).max_decoding_message_size(MESSAGE_LIMIT)).await
    }
}

impl Pods {
    async fn run(self, mut client: PodsClient<Channel>) -> Result<(), Error> {
        if let Some(pod) = &self.pod {
            let uid = match &self.namespace {
                Some(namespace) => uid_of(&mut client, namespace, pod).await?,
                None => pod.clone(),
            };
            let response = match client.get_pod(self.request(GetPodRequest { pod_uid: uid })).await {
                Err(status) if status.code() == Code::NotFound && !is_like_uid(pod) => {
                    return Err(self.not_found(pod.clone()));
                }
                response => response?.into_inner(),
            };
            return Printer::new(self.output, true).single(&Seen::read(response.pod)?);
        }
        let printer = Printer::new(self.output, self.all_namespaces);
        if self.watch {
            return self.watch(client, printer).await;
        }
        let response = client.list_pods(self.request(ListPodsRequest {})).await?.into_inner();
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
        let mut events = client.watch_pods(self.request(WatchPodsRequest {})).await?.into_inner();
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
        let uid = seen.row.uid.clone();
        if kind == EventType::Deleted {
            // What was not shown need not be forgotten.
            let Some(last) = known.remove(&uid) else { return Ok(None) };
            seen.row = last;
            "Deleted".clone_into(&mut seen.row.status);
        } else if self.selects(&seen) {
            known.insert(uid, seen.row.clone());
        } else {
            return Ok(None);
        }
        Ok(Some(seen))
    }

    /// A request with the metadata by which the server sends no more than is shown. The kubelet's server knows none
    /// of it and sends everything, so what is to be left out is left out here too.
    fn request<T>(&self, message: T) -> tonic::Request<T> {
        let mut request = tonic::Request::new(message);
        let mut set = |name: &'static str, value: &str| {
            // Masks and selectors that parse are ASCII; a namespace that is not is no pod's.
            if let Ok(value) = value.parse() {
                request.metadata_mut().insert(name, value);
            }
        };
        match &self.fields {
            Some(fields) => set(FIELD_MASK, fields),
            None if self.output.is_whole() => {}
            None if self.selector.is_some() => {
                set(FIELD_MASK, &format!("{COLUMN_FIELDS},metadata.labels"));
            }
            None => set(FIELD_MASK, COLUMN_FIELDS),
        }
        if self.pod.is_none() && !self.all_namespaces {
            set(NAMESPACE, self.namespace());
        }
        if let Some(selector) = &self.selector {
            set("x-pods-api-labels", &selector.to_string());
        }
        request
    }

    fn selects(&self, pod: &Seen) -> bool {
        // Under --fields only the server sees what it selects by.
        let is_cut = self.fields.is_some();
        let in_namespace = self.all_namespaces || is_cut || pod.row.namespace == self.namespace();
        let has_labels = self.selector.as_ref().is_none_or(|selector| {
            is_cut
                || selector.matches(&Namespace::from(&*pod.row.namespace), |key| {
                    pod.labels.get(key).map(String::as_str)
                })
        });
        in_namespace && has_labels
    }

    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    fn not_found(&self, pod: String) -> Error {
        match self.namespace.clone() {
            Some(namespace) => Error::NoSuchPod { namespace, name: pod },
            None => Error::NoSuchUid(pod),
        }
    }

    fn nothing_found(&self) -> String {
        if self.all_namespaces {
            "no pods on this node".to_owned()
        } else {
            format!("no pods in namespace {} on this node; -A shows every namespace", self.namespace())
        }
    }
}

/// The UID of a pod by its name. From a list, and not by Lookup, which the kubelet's server does not have.
async fn uid_of(client: &mut PodsClient<Channel>, namespace: &str, name: &str) -> Result<String, Error> {
    let mut request = tonic::Request::new(ListPodsRequest {});
    let mask = MetadataValue::from_static("metadata.name,metadata.namespace,metadata.uid");
    request.metadata_mut().insert(FIELD_MASK, mask);
    // A namespace that is not ASCII is no pod's.
    if let Ok(namespace) = namespace.parse() {
        request.metadata_mut().insert(NAMESPACE, namespace);
    }
    for pod in client.list_pods(request).await?.into_inner().pods {
        let row = Seen::read(pod)?.row;
        if row.namespace == namespace && row.name == name {
            return Ok(row.uid);
        }
    }
    Err(Error::NoSuchPod { namespace: namespace.to_owned(), name: name.to_owned() })
}

/// Whether a text is a UID in one of the forms that Kubernetes gives: 32 hexadecimal digits, often with hyphens.
fn is_like_uid(text: &str) -> bool {
    let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
    digits == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

/// A pod as received and as shown.
pub(super) struct Seen {
    pub(super) bytes: bytes::Bytes,
    pub(super) row: Row,
    labels: BTreeMap<String, String>,
}

impl Seen {
    pub(super) fn read(bytes: bytes::Bytes) -> Result<Self, Error> {
        let pod = Pod::decode(bytes.clone())?;
        let row = Row::of(&pod, now());
        Ok(Self { bytes, row, labels: pod.metadata.unwrap_or_default().labels.into_iter().collect() })
    }
}

fn parse_fields(text: &str) -> Result<String, MaskError> {
    Mask::parse(text).map(|_| text.to_owned())
}

fn now() -> i64 {
    // A clock before 1970 makes every age 0, as it should.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_told_from_uids() {
        for uid in ["7c0f6a52-0000-4000-8000-00000000c001", "7c0f6a5200004000800000000000c001"] {
            assert!(is_like_uid(uid), "{uid}");
        }
        for name in ["web", "cafe", "", "web-7c0f6a52-0000-4000-8000-00000000c001", "deadbeef-0"] {
            assert!(!is_like_uid(name), "{name}");
        }
    }

    #[test]
    fn the_fields_of_the_columns_are_fields_of_a_pod() {
        assert!(!Mask::parse(COLUMN_FIELDS).unwrap().is_all());
    }
}
