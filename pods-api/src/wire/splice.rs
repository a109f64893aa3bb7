//! Reads the few facts the store needs from Pod bytes, and changes single fields of them, without decoding the pod.
//!
//! Works on canonical bytes (fields in ascending order, no singular field twice); anything else is read the way a
//! decoder would, the last value winning. Fields that this build does not know are kept. Any thread.

use super::varint::{
    DecodeError, Fields, length_field_len, put_length_field, put_length_head, put_varint_field,
};
use bytes::Bytes;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::net::IpAddr;

/// Field numbers of core/v1 Pod, ObjectMeta, PodSpec and PodStatus that are read here.
mod number {
    pub(super) const POD_METADATA: u32 = 1;
    pub(super) const POD_SPEC: u32 = 2;
    pub(super) const POD_STATUS: u32 = 3;
    pub(super) const META_NAME: u32 = 1;
    pub(super) const META_NAMESPACE: u32 = 3;
    pub(super) const META_UID: u32 = 5;
    pub(super) const META_DELETION_TIMESTAMP: u32 = 9;
    pub(super) const META_LABELS: u32 = 11;
    pub(super) const META_ANNOTATIONS: u32 = 12;
    pub(super) const SPEC_HOST_NETWORK: u32 = 11;
    pub(super) const STATUS_POD_IP: u32 = 6;
    pub(super) const STATUS_POD_IPS: u32 = 12;
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
    /// `status.podIPs`, or `status.podIP` where that is all there is; what is no IP address is left out.
    pub pod_ips: SmallVec<[IpAddr; 2]>,
}

impl<'a> PodView<'a> {
    /// Reads the encoded Pod `pod`. Fails on what is no protobuf message at the levels that are read.
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

    fn read_metadata(&mut self, metadata: &'a [u8]) -> Result<(), DecodeError> {
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
        for field in Fields::new(spec) {
            let field = field?;
            if let (number::SPEC_HOST_NETWORK, Some(value)) = (field.number, field.varint()) {
                self.host_network = value != 0;
            }
        }
        Ok(())
    }

    fn read_status(&mut self, status: &'a [u8]) -> Result<(), DecodeError> {
        let mut pod_ip = None;
        for field in Fields::new(status) {
            let field = field?;
            match (field.number, field.bytes()) {
                (number::STATUS_POD_IP, Some(text)) => pod_ip = parse_ip(text),
                (number::STATUS_POD_IPS, Some(entry)) => {
                    for ip in Fields::new(entry) {
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

/// Encodes the Pod that a v1alpha1 DELETED event carries: `metadata.name`, `namespace` and `uid` (rule E.7.8).
#[must_use]
pub fn deleted_stub(uid: &str, namespace: &str, name: &str) -> Bytes {
    let mut metadata = Vec::with_capacity(uid.len() + namespace.len() + name.len() + 30);
    put_length_field(&mut metadata, number::META_NAME, name.as_bytes());
    put_length_field(&mut metadata, number::META_NAMESPACE, namespace.as_bytes());
    put_length_field(&mut metadata, number::META_UID, uid.as_bytes());
    let mut pod = Vec::with_capacity(metadata.len() + 4);
    put_length_field(&mut pod, number::POD_METADATA, &metadata);
    pod.into()
}

/// Returns `pod` with `metadata.deletionTimestamp` as it is, else set to `seconds` since 1970, and with the
/// annotation `key: value`. Everything else stays byte for byte.
pub fn with_deletion(pod: &[u8], seconds: i64, key: &str, value: &str) -> Result<Bytes, DecodeError> {
    let mut metadata = &[][..];
    let mut rest = Vec::with_capacity(pod.len());
    for field in Fields::new(pod) {
        let field = field?;
        match (field.number, field.bytes()) {
            (number::POD_METADATA, Some(bytes)) => metadata = bytes,
            _ => rest.push(field.raw),
        }
    }
    let metadata = deleted_metadata(metadata, seconds, key, value)?;
    let mut out = Vec::with_capacity(pod.len() + metadata.len());
    put_length_field(&mut out, number::POD_METADATA, &metadata);
    rest.iter().for_each(|raw| out.extend_from_slice(raw));
    Ok(out.into())
}

fn deleted_metadata(metadata: &[u8], seconds: i64, key: &str, value: &str) -> Result<Vec<u8>, DecodeError> {
    let mut timestamp = Vec::new();
    let mut time = Vec::new();
    put_varint_field(&mut time, 1, seconds.cast_unsigned());
    put_length_field(&mut timestamp, number::META_DELETION_TIMESTAMP, &time);
    let annotation = annotation_field(key, value);

    let mut out = Vec::with_capacity(metadata.len() + timestamp.len() + annotation.len());
    let (mut timestamp, mut annotation) = (Some(timestamp), Some(annotation));
    for field in Fields::new(metadata) {
        let field = field?;
        if field.number > number::META_DELETION_TIMESTAMP
            && let Some(timestamp) = timestamp.take()
        {
            out.extend_from_slice(&timestamp);
        }
        match (field.number, field.bytes()) {
            (number::META_DELETION_TIMESTAMP, Some(bytes)) => {
                if read_time(bytes)?.is_none() {
                    continue;
                }
                timestamp = None;
            }
            (number::META_ANNOTATIONS, Some(bytes)) => {
                let (name, _) = read_entry(bytes)?;
                if name == key {
                    continue;
                }
                if *name > *key
                    && let Some(annotation) = annotation.take()
                {
                    out.extend_from_slice(&annotation);
                }
            }
            (number, _) if number > number::META_ANNOTATIONS => {
                out.extend(annotation.take().into_iter().flatten());
            }
            _ => {}
        }
        out.extend_from_slice(field.raw);
    }
    out.extend(timestamp.into_iter().flatten());
    out.extend(annotation.into_iter().flatten());
    Ok(out)
}

fn annotation_field(key: &str, value: &str) -> Vec<u8> {
    let entry_len = length_field_len(1, key.len()) + length_field_len(2, value.len());
    let mut out = Vec::with_capacity(length_field_len(number::META_ANNOTATIONS, entry_len));
    put_length_head(&mut out, number::META_ANNOTATIONS, entry_len);
    put_length_field(&mut out, 1, key.as_bytes());
    put_length_field(&mut out, 2, value.as_bytes());
    out
}

/// Reads a map<string, string> entry; a missing key or value is empty.
fn read_entry(entry: &[u8]) -> Result<(Cow<'_, str>, Cow<'_, str>), DecodeError> {
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
    use pods_api_proto::k8s::io::api::core::v1::{Pod, PodIp, PodSpec, PodStatus};
    use pods_api_proto::k8s::io::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
    use prost::Message as _;

    fn pod() -> Pod {
        let metadata = ObjectMeta {
            name: Some("web".into()),
            namespace: Some("shop".into()),
            uid: Some("u-1".into()),
            labels: [("app".to_owned(), "web".to_owned())].into(),
            annotations: [("a".to_owned(), "1".to_owned())].into(),
            finalizers: vec!["f".into()],
            ..Default::default()
        };
        let spec = PodSpec { host_network: Some(true), ..Default::default() };
        let status = PodStatus {
            pod_i_ps: ["10.0.0.7", "fd00::7", "bogus"].map(|ip| PodIp { ip: Some(ip.into()) }).into(),
            pod_ip: Some("10.0.0.7".into()),
            ..Default::default()
        };
        Pod { metadata: Some(metadata), spec: Some(spec), status: Some(status) }
    }

    #[test]
    fn view_reads_what_the_pod_says() {
        let bytes = pod().encode_to_vec();
        let view = PodView::parse(&bytes).unwrap();
        assert_eq!((&*view.uid, &*view.namespace, &*view.name), ("u-1", "shop", "web"));
        assert_eq!(view.labels, [("app".into(), "web".into())]);
        assert!(view.host_network);
        assert_eq!(view.deletion_timestamp, None);
        assert_eq!(
            view.pod_ips.as_slice(),
            ["10.0.0.7".parse::<IpAddr>().unwrap(), "fd00::7".parse().unwrap()]
        );
    }

    #[test]
    fn deleted_stub_carries_identity_only() {
        let stub = Pod::decode(deleted_stub("u-1", "shop", "web")).unwrap();
        let metadata = ObjectMeta {
            name: Some("web".into()),
            namespace: Some("shop".into()),
            uid: Some("u-1".into()),
            ..Default::default()
        };
        assert_eq!(stub, Pod { metadata: Some(metadata), ..Default::default() });
    }

    #[test]
    fn deletion_sets_timestamp_and_annotation_once() {
        let mut expected = pod();
        let metadata = expected.metadata.as_mut().unwrap();
        metadata.deletion_timestamp = Some(Time { seconds: Some(77), nanos: None });
        metadata.annotations.insert("pods-api/deleted".into(), "true".into());
        let once = with_deletion(&pod().encode_to_vec(), 77, "pods-api/deleted", "true").unwrap();
        assert_eq!(Pod::decode(once.clone()).unwrap(), expected);
        // A timestamp that is set stays, the annotation is replaced, not doubled.
        let twice = with_deletion(&once, 99, "pods-api/deleted", "true").unwrap();
        assert_eq!(twice, once);
        let empty = with_deletion(b"", 5, "k", "v").unwrap();
        assert_eq!(PodView::parse(&empty).unwrap().deletion_timestamp, Some(5));
    }

    #[test]
    fn deletion_keeps_unknown_fields() {
        // PROTO-1: field 200 of Pod, of metadata.
        let mut metadata = pod().metadata.unwrap().encode_to_vec();
        put_length_field(&mut metadata, 200, b"newer");
        let mut bytes = Vec::new();
        put_length_field(&mut bytes, 1, &metadata);
        put_length_field(&mut bytes, 200, b"newest");
        let out = with_deletion(&bytes, 5, "k", "v").unwrap();
        assert!(out.windows(5).any(|part| part == b"newer") && out.ends_with(b"newest"));
        let numbers: Vec<_> = Fields::new(Fields::new(&out).next().unwrap().unwrap().bytes().unwrap())
            .map(|field| field.unwrap().number)
            .collect();
        assert_eq!(numbers, [1, 3, 5, 9, 11, 12, 12, 14, 200]);
    }
}
