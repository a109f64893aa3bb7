//! Reads the few facts the store and its neighbours need from pod bytes, without decoding the pod.
//!
//! Made for canonical bytes; anything else is read the way a decoder would, the last value winning. Any thread.

use std::borrow::Cow;
use std::net::IpAddr;

use smallvec::SmallVec;

use super::varint::{DecodeError, Fields};

/// Field numbers of core/v1 Pod, ObjectMeta, PodSpec and PodStatus that are read or changed by hand.
pub(crate) mod number {
    pub(crate) const POD_METADATA: u32 = 1;
    pub(crate) const POD_SPEC: u32 = 2;
    pub(crate) const POD_STATUS: u32 = 3;
    pub(crate) const META_NAME: u32 = 1;
    pub(crate) const META_NAMESPACE: u32 = 3;
    pub(crate) const META_UID: u32 = 5;
    pub(crate) const META_DELETION_TIMESTAMP: u32 = 9;
    pub(crate) const META_LABELS: u32 = 11;
    pub(crate) const META_ANNOTATIONS: u32 = 12;
    pub(crate) const SPEC_HOST_NETWORK: u32 = 11;
    pub(crate) const STATUS_PHASE: u32 = 1;
    pub(crate) const STATUS_POD_IP: u32 = 6;
    pub(crate) const STATUS_POD_IPS: u32 = 12;
    /// `containerStatuses`, `initContainerStatuses` and `ephemeralContainerStatuses`.
    pub(crate) const STATUS_CONTAINERS: [u32; 3] = [8, 10, 13];
    pub(crate) const CONTAINER_STATE: u32 = 2;
    pub(crate) const CONTAINER_LAST_STATE: u32 = 3;
    pub(crate) const CONTAINER_ID: u32 = 8;
    pub(crate) const STATE_TERMINATED: u32 = 3;
    pub(crate) const TERMINATED_CONTAINER_ID: u32 = 7;
}

/// What one pod says about itself, borrowed from its bytes. Text that is not UTF-8 is read leniently (rule E.9.8).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodView<'a> {
    /// `metadata.uid`.
    pub uid: Cow<'a, str>,
    /// `metadata.namespace`.
    pub namespace: Cow<'a, str>,
    /// `metadata.name`.
    pub name: Cow<'a, str>,
    /// `metadata.labels`, as they stand.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// `metadata.deletionTimestamp` in seconds since 1970; `None` when unset or a zero time (rule E.9.6).
    pub deletion_timestamp: Option<i64>,
    /// `spec.hostNetwork`.
    pub host_network: bool,
    /// `status.phase`.
    pub phase: Cow<'a, str>,
    /// `status.podIPs`, or `status.podIP` where that is all there is; what is no IP address is left out.
    pub pod_ips: SmallVec<[IpAddr; 2]>,
    /// The encoded `metadata`, `spec` and `status`; empty where the pod has none.
    pub metadata: &'a [u8],
    /// See `metadata`.
    pub spec: &'a [u8],
    /// See `metadata`.
    pub status: &'a [u8],
}

impl<'a> PodView<'a> {
    /// Reads an encoded Pod.
    ///
    /// # Errors
    /// On what is no protobuf message at the levels that are read.
    pub fn parse(pod: &'a [u8]) -> Result<Self, DecodeError> {
        let mut view = Self::default();
        for field in Fields::new(pod) {
            let field = field?;
            let Some(bytes) = field.bytes() else { continue };
            match field.number {
                number::POD_METADATA => view.read_metadata(bytes)?,
                number::POD_SPEC => view.read_spec(bytes)?,
                number::POD_STATUS => view.read_status(bytes)?,
                _ => {}
            }
        }
        Ok(view)
    }

    /// The value of one annotation.
    #[must_use]
    pub fn annotation(&self, key: &str) -> Option<Cow<'a, str>> {
        self.annotations().find(|(known, _)| known == key).map(|(_, value)| value)
    }

    /// `metadata.annotations`, as they stand. They are read on demand: few callers need them, and they are long.
    pub fn annotations(&self) -> impl Iterator<Item = (Cow<'a, str>, Cow<'a, str>)> + use<'a> {
        // Entries that are no messages are skipped: an annotation that cannot be read is as good as none.
        Fields::new(self.metadata)
            .filter_map(Result::ok)
            .filter(|field| field.number == number::META_ANNOTATIONS)
            .filter_map(|field| read_entry(field.bytes()?).ok())
    }

    /// The IDs of the containers that the status names, ended ones included, without the runtime's scheme. Read on
    /// demand; what cannot be read is skipped. An ID may come more than once.
    pub fn container_ids(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let statuses = fields(self.status).filter(|(number, _)| number::STATUS_CONTAINERS.contains(number));
        let ids = statuses.flat_map(|(_, status)| {
            fields(status).flat_map(|(number, bytes)| {
                let own = (number == number::CONTAINER_ID).then_some(bytes);
                let is_state = matches!(number, number::CONTAINER_STATE | number::CONTAINER_LAST_STATE);
                own.into_iter().chain(is_state.then(|| ended_container(bytes)).flatten())
            })
        });
        ids.filter_map(|id| std::str::from_utf8(id).ok()).map(without_scheme)
    }

    fn read_metadata(&mut self, metadata: &'a [u8]) -> Result<(), DecodeError> {
        self.metadata = metadata;
        for field in Fields::new(metadata) {
            let field = field?;
            let Some(bytes) = field.bytes() else { continue };
            match field.number {
                number::META_NAME => self.name = String::from_utf8_lossy(bytes),
                number::META_NAMESPACE => self.namespace = String::from_utf8_lossy(bytes),
                number::META_UID => self.uid = String::from_utf8_lossy(bytes),
                number::META_DELETION_TIMESTAMP => self.deletion_timestamp = read_time(bytes)?,
                number::META_LABELS => self.labels.push(read_entry(bytes)?),
                _ => {}
            }
        }
        Ok(())
    }

    fn read_spec(&mut self, spec: &'a [u8]) -> Result<(), DecodeError> {
        self.spec = spec;
        for field in Fields::new(spec) {
            let field = field?;
            if let (number::SPEC_HOST_NETWORK, Some(value)) = (field.number, field.varint()) {
                self.host_network = value != 0;
            }
        }
        Ok(())
    }

    fn read_status(&mut self, status: &'a [u8]) -> Result<(), DecodeError> {
        self.status = status;
        let mut pod_ip = None;
        for field in Fields::new(status) {
            let field = field?;
            let Some(bytes) = field.bytes() else { continue };
            match field.number {
                number::STATUS_PHASE => self.phase = String::from_utf8_lossy(bytes),
                number::STATUS_POD_IP => pod_ip = parse_ip(bytes),
                number::STATUS_POD_IPS => {
                    for ip in Fields::new(bytes) {
                        let ip = ip?;
                        if let Some(address) = ip.bytes().filter(|_| ip.number == 1).and_then(parse_ip) {
                            self.pod_ips.push(address);
                        }
                    }
                }
                _ => {}
            }
        }
        if self.pod_ips.is_empty() {
            self.pod_ips.extend(pod_ip);
        }
        Ok(())
    }
}

/// The fields of a message that hold bytes, as far as it can be read.
fn fields(message: &[u8]) -> impl Iterator<Item = (u32, &[u8])> {
    Fields::new(message).map_while(Result::ok).filter_map(|field| Some((field.number, field.bytes()?)))
}

/// `terminated.containerID` of a ContainerState.
fn ended_container(state: &[u8]) -> Option<&[u8]> {
    let (_, terminated) = fields(state).find(|(number, _)| *number == number::STATE_TERMINATED)?;
    fields(terminated).find(|(number, _)| *number == number::TERMINATED_CONTAINER_ID).map(|(_, id)| id)
}

/// A container's ID without what a pod's status writes before it: `containerd://`, `cri-o://`.
#[must_use]
pub fn without_scheme(id: &str) -> &str {
    id.split_once("://").map_or(id, |(_, id)| id)
}

/// Reads a map<string, string> entry; a missing key or value is empty.
pub(crate) fn read_entry(entry: &[u8]) -> Result<(Cow<'_, str>, Cow<'_, str>), DecodeError> {
    let (mut key, mut value) = (Cow::default(), Cow::default());
    for field in Fields::new(entry) {
        let field = field?;
        match (field.number, field.bytes()) {
            (1, Some(text)) => key = String::from_utf8_lossy(text),
            (2, Some(text)) => value = String::from_utf8_lossy(text),
            _ => {}
        }
    }
    Ok((key, value))
}

/// Reads a Time; a zero-length one is unset (rule E.9.6).
fn read_time(time: &[u8]) -> Result<Option<i64>, DecodeError> {
    let mut seconds = (!time.is_empty()).then_some(0);
    for field in Fields::new(time) {
        let field = field?;
        if let (1, Some(value)) = (field.number, field.varint()) {
            seconds = Some(value.cast_signed());
        }
    }
    Ok(seconds)
}

fn parse_ip(text: &[u8]) -> Option<IpAddr> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{encode_pod, parse_json};

    #[test]
    fn a_view_reads_what_the_pod_says() {
        let json =
            br#"{"metadata": {"name": "web", "namespace": "shop", "uid": "u-1", "labels": {"app": "web"},
                "annotations": {"a": "1", "b": "2"}, "deletionTimestamp": "1970-01-01T00:01:17Z"},
            "spec": {"hostNetwork": true, "nodeName": "n"},
            "status": {"phase": "Running", "podIP": "10.0.0.7",
                "podIPs": [{"ip": "10.0.0.7"}, {"ip": "fd00::7"}, {"ip": "bogus"}]}}"#;
        let bytes = encode_pod(&parse_json(json).unwrap()).unwrap();
        let view = PodView::parse(&bytes).unwrap();
        assert_eq!((&*view.uid, &*view.namespace, &*view.name), ("u-1", "shop", "web"));
        assert_eq!((view.labels.as_slice(), &*view.phase), (&[("app".into(), "web".into())][..], "Running"));
        assert!(view.host_network);
        assert_eq!(view.deletion_timestamp, Some(77));
        assert_eq!(view.pod_ips.as_slice(), [[10, 0, 0, 7].into(), "fd00::7".parse::<IpAddr>().unwrap()]);
        assert_eq!(view.annotation("b").as_deref(), Some("2"));
        assert_eq!(view.annotation("c"), None);
        assert_eq!(view.annotations().count(), 2);
        assert_eq!(view.spec, b"\x52\x01n\x58\x01");
    }

    #[test]
    fn containers_of_every_kind_and_state_are_named() {
        let json = br#"{"status": {
            "containerStatuses": [{"name": "a", "containerID": "containerd://a1",
                "state": {"running": {}}, "lastState": {"terminated": {"containerID": "containerd://a0"}}}],
            "initContainerStatuses": [{"name": "i", "containerID": "cri-o://i0",
                "state": {"terminated": {"containerID": "cri-o://i0"}}}],
            "ephemeralContainerStatuses": [{"name": "e", "containerID": "e0"}, {"name": "waits"}]}}"#;
        let bytes = encode_pod(&parse_json(json).unwrap()).unwrap();
        let mut ids: Vec<_> = PodView::parse(&bytes).unwrap().container_ids().collect();
        ids.sort_unstable();
        assert_eq!(ids, ["a0", "a1", "e0", "i0", "i0"]);
    }

    #[test]
    fn the_single_address_counts_where_there_is_no_list() {
        let bytes = encode_pod(&parse_json(br#"{"status": {"podIP": "10.0.0.7"}}"#).unwrap()).unwrap();
        assert_eq!(PodView::parse(&bytes).unwrap().pod_ips.as_slice(), [IpAddr::from([10, 0, 0, 7])]);
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        assert!(PodView::parse(b"\x0a\x05abc").is_err());
        assert!(PodView::parse(b"\x0a\x03abc").is_err());
    }
}
