//! Pods for tests and benchmarks of this crate.

use super::id::PodUid;
use super::update::SourcePod;
use crate::wire::varint::{put_length_field, put_varint_field};
use bytes::Bytes;
#[cfg(test)]
use {
    super::id::Revision,
    super::record::{ByteMeter, Record},
    super::snapshot::Snapshot,
    super::table::Table,
    super::tombstone::Tombstones,
    std::sync::Arc,
};

/// Describes a small Pod and encodes it.
#[derive(Debug, Clone)]
pub struct PodSketch {
    uid: String,
    namespace: String,
    name: String,
    labels: Vec<(String, String)>,
    ips: Vec<String>,
    container_ids: Vec<String>,
    service_account: String,
    padding: usize,
    generation: u64,
}

impl PodSketch {
    /// A pod of that UID, named after it in the namespace `default`.
    #[must_use]
    pub fn new(uid: &str) -> Self {
        Self {
            uid: uid.into(),
            namespace: "default".into(),
            name: format!("pod-{uid}"),
            labels: Vec::new(),
            ips: Vec::new(),
            container_ids: Vec::new(),
            service_account: String::new(),
            padding: 0,
            generation: 0,
        }
    }

    /// Sets `metadata.name`.
    #[must_use]
    pub fn name(mut self, name: &str) -> Self {
        self.name = name.into();
        self
    }

    /// Sets `metadata.namespace`.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        self.namespace = namespace.into();
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.push((key.into(), value.into()));
        self.labels.sort();
        self
    }

    /// Adds a pod IP.
    #[must_use]
    pub fn ip(mut self, ip: &str) -> Self {
        self.ips.push(ip.into());
        self
    }

    /// Adds a container's status with that `containerID`; the containers are named `c0`, `c1` and so on.
    #[must_use]
    pub fn container_id(mut self, id: &str) -> Self {
        self.container_ids.push(id.into());
        self
    }

    /// Sets `spec.serviceAccountName`.
    #[must_use]
    pub fn service_account(mut self, name: &str) -> Self {
        self.service_account = name.into();
        self
    }

    /// Sets `metadata.generation`, so that two states of a pod differ.
    #[must_use]
    pub fn generation(mut self, generation: u64) -> Self {
        self.generation = generation;
        self
    }

    /// Adds a container whose image name has that many bytes.
    #[must_use]
    pub fn padding(mut self, bytes: usize) -> Self {
        self.padding = bytes;
        self
    }

    /// The encoded core/v1 Pod.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut metadata = Vec::new();
        put_length_field(&mut metadata, 1, self.name.as_bytes());
        put_length_field(&mut metadata, 3, self.namespace.as_bytes());
        put_length_field(&mut metadata, 5, self.uid.as_bytes());
        put_varint_field(&mut metadata, 7, self.generation);
        for (key, value) in &self.labels {
            let mut entry = Vec::new();
            put_length_field(&mut entry, 1, key.as_bytes());
            put_length_field(&mut entry, 2, value.as_bytes());
            put_length_field(&mut metadata, 11, &entry);
        }
        let mut container = Vec::new();
        put_length_field(&mut container, 1, b"main");
        put_length_field(&mut container, 2, &vec![b'i'; self.padding]);
        let mut spec = Vec::new();
        put_length_field(&mut spec, 2, &container);
        if !self.service_account.is_empty() {
            put_length_field(&mut spec, 8, self.service_account.as_bytes());
        }
        let mut status = Vec::new();
        put_length_field(&mut status, 1, b"Running");
        for ip in &self.ips {
            let mut entry = Vec::new();
            put_length_field(&mut entry, 1, ip.as_bytes());
            put_length_field(&mut status, 12, &entry);
        }
        for (number, id) in self.container_ids.iter().enumerate() {
            let mut container = Vec::new();
            put_length_field(&mut container, 1, format!("c{number}").as_bytes());
            put_length_field(&mut container, 8, id.as_bytes());
            put_length_field(&mut status, 8, &container);
        }
        let mut pod = Vec::new();
        put_length_field(&mut pod, 1, &metadata);
        put_length_field(&mut pod, 2, &spec);
        put_length_field(&mut pod, 3, &status);
        pod.into()
    }

    /// The pod as a source hands it to the store.
    #[must_use]
    pub fn source_pod(&self) -> SourcePod {
        SourcePod {
            uid: PodUid::from(&*self.uid),
            namespace: (&*self.namespace).into(),
            name: (&*self.name).into(),
            is_uid_provisional: false,
            pod: self.encode(),
        }
    }
}

/// A snapshot of these pods.
#[cfg(test)]
pub(crate) fn snapshot_of(pods: &[PodSketch]) -> Snapshot {
    let mut table = Table::default();
    for pod in pods {
        let record = Record::new(&pod.source_pod(), Revision(1), &ByteMeter::default()).unwrap();
        table.insert(&Arc::new(record));
    }
    Snapshot::new(Revision(1), table, Tombstones::default())
}

/// Decodes one whole gRPC message, prefix included.
#[cfg(test)]
pub(crate) fn decode_message<M: prost::Message + Default>(message: &[u8]) -> M {
    let (prefix, body) = message.split_at(super::record::MESSAGE_PREFIX_BYTES);
    assert_eq!(prefix[0], 0, "not compressed");
    assert_eq!(u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize, body.len());
    M::decode(body).unwrap()
}
