//! The schema of a Pod as the converters need it, built once from the embedded descriptor set.
//!
//! prost-reflect answers every question about a message, but by hashing names and following links; these tables
//! are made for the two look-ups that conversion does (JSON name, field number) and nothing else. Three things that
//! descriptors do not say are written here: which messages JSON inlines (rule E.9.7), which messages are scalars in
//! JSON, and which zero values mean something (rule A.4.10).

use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, FieldDescriptor, Kind as ProtoKind, MessageDescriptor};

const POD: &str = "k8s.io.api.core.v1.Pod";

/// Messages that JSON writes as one scalar. Field masks do not enter them (rule F.2.5).
const LEAVES: &[(&str, Leaf)] = &[
    ("k8s.io.apimachinery.pkg.apis.meta.v1.Time", Leaf::Time),
    ("k8s.io.apimachinery.pkg.apis.meta.v1.FieldsV1", Leaf::FieldsV1),
    ("k8s.io.apimachinery.pkg.api.resource.Quantity", Leaf::Quantity),
    ("k8s.io.apimachinery.pkg.util.intstr.IntOrString", Leaf::IntOrString),
];

/// Fields whose message JSON does not show: its fields stand in the parent (rule E.9.7).
const INLINED: &[&str] = &["volumeSource", "handler", "ephemeralContainerCommon", "localObjectReference"];

/// Scalar fields whose zero value is not the same as absence: those that are optional by themselves (rule A.4.10),
/// and the numbers and flags that JSON always shows. Other zero values are not written, in neither direction.
#[rustfmt::skip]
const ZERO_IS_KEPT: &[(&str, &str)] = &[
    ("ObjectMeta", "deletionGracePeriodSeconds"),
    ("OwnerReference", "controller blockOwnerDeletion"),
    ("PodSpec", "terminationGracePeriodSeconds activeDeadlineSeconds automountServiceAccountToken \
        shareProcessNamespace priority runtimeClassName enableServiceLinks preemptionPolicy setHostnameAsFQDN \
        hostUsers hostnameOverride"),
    ("Container", "restartPolicy"),
    ("EphemeralContainerCommon", "restartPolicy"),
    ("ContainerPort", "containerPort"),
    ("PodSecurityContext", "runAsUser runAsGroup runAsNonRoot supplementalGroupsPolicy fsGroup \
        fsGroupChangePolicy seLinuxChangePolicy"),
    ("SecurityContext", "privileged runAsUser runAsGroup runAsNonRoot readOnlyRootFilesystem \
        allowPrivilegeEscalation procMount"),
    ("WindowsSecurityContextOptions", "gmsaCredentialSpecName gmsaCredentialSpec runAsUserName hostProcess"),
    ("SeccompProfile", "localhostProfile"),
    ("AppArmorProfile", "localhostProfile"),
    ("Sysctl", "value"),
    ("Toleration", "tolerationSeconds"),
    ("TopologySpreadConstraint", "maxSkew minDomains nodeAffinityPolicy nodeTaintsPolicy"),
    ("PreferredSchedulingTerm", "weight"),
    ("WeightedPodAffinityTerm", "weight"),
    ("PodResourceClaim", "resourceClaimName resourceClaimTemplateName"),
    ("PodSchedulingGroup", "podGroupName"),
    ("EvictionResponder", "priority"),
    ("PodDNSConfigOption", "value"),
    ("ContainerStatus", "started stopSignal ready restartCount image imageID"),
    ("ContainerStateTerminated", "exitCode"),
    ("LinuxContainerUser", "uid gid"),
    ("PodResourceClaimStatus", "resourceClaimName"),
    ("ResourceHealth", "message"),
    ("VolumeMount", "recursiveReadOnly mountPropagation"),
    ("VolumeMountStatus", "recursiveReadOnly"),
    ("Probe", "terminationGracePeriodSeconds"),
    ("Lifecycle", "stopSignal"),
    ("SleepAction", "seconds"),
    ("HTTPGetAction", "protocol"),
    ("HTTPHeader", "value"),
    ("GRPCAction", "port service mode"),
    ("HostPathVolumeSource", "type"),
    ("EmptyDirVolumeSource", "mode"),
    ("SecretVolumeSource", "defaultMode optional defaultUser"),
    ("ConfigMapVolumeSource", "defaultMode optional defaultUser"),
    ("ProjectedVolumeSource", "defaultMode defaultUser"),
    ("DownwardAPIVolumeSource", "defaultMode defaultUser"),
    ("DownwardAPIVolumeFile", "mode user"),
    ("KeyToPath", "mode user"),
    ("ISCSIVolumeSource", "lun initiatorName"),
    ("FCVolumeSource", "lun"),
    ("AzureDiskVolumeSource", "cachingMode fsType readOnly kind"),
    ("CSIVolumeSource", "readOnly fsType"),
    ("ConfigMapEnvSource", "optional"),
    ("SecretEnvSource", "optional"),
    ("ConfigMapKeySelector", "optional"),
    ("SecretKeySelector", "optional"),
    ("FileKeySelector", "optional"),
    ("SecretProjection", "optional"),
    ("ConfigMapProjection", "optional"),
    ("ServiceAccountTokenProjection", "expirationSeconds user"),
    ("ClusterTrustBundleProjection", "name signerName optional user"),
    ("PodCertificateProjection", "maxExpirationSeconds user"),
    ("PersistentVolumeClaimSpec", "storageClassName volumeMode volumeAttributesClassName"),
    ("TypedLocalObjectReference", "apiGroup"),
    ("TypedObjectReference", "apiGroup namespace"),
];

static SCHEMA: LazyLock<Schema> = LazyLock::new(Schema::build);

/// A message that JSON writes as one scalar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Leaf {
    Time,
    FieldsV1,
    Quantity,
    IntOrString,
}

/// The type of a field, of an element of a repeated field, or of a map's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Bool,
    Int32,
    Int64,
    String,
    /// Only within leaves.
    Bytes,
    Message(MessageId),
}

/// How often a field may occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cardinality {
    One,
    Many,
    /// Map entries; every map of a Pod has string keys.
    Map,
}

/// Names one message of the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct MessageId(u16);

impl MessageId {
    /// The message's description.
    pub(crate) fn get(self) -> &'static Message {
        &SCHEMA.messages[usize::from(self.0)]
    }
}

/// One message type.
#[derive(Debug)]
pub(crate) struct Message {
    /// The name without package.
    pub(crate) name: Box<str>,
    /// What JSON writes instead of an object, if it is not one.
    pub(crate) leaf: Option<Leaf>,
    /// The fields by ascending number.
    pub(crate) fields: Box<[Field]>,
    /// Every name an object of this message may have in JSON, sorted.
    json_names: Box<[(Box<str>, JsonField)]>,
    /// For each number the field's index plus one, 0 where there is none.
    by_number: Box<[u8]>,
}

/// One field of a message.
#[derive(Debug)]
pub(crate) struct Field {
    /// The name in the `.proto` file, which is the JSON name too.
    pub(crate) name: Box<str>,
    pub(crate) number: u32,
    pub(crate) kind: Kind,
    pub(crate) cardinality: Cardinality,
    /// JSON shows this message's fields in the parent.
    pub(crate) is_inlined: bool,
    /// A zero value is written like any other.
    pub(crate) keeps_zero: bool,
}

/// Where the value of a JSON name goes: a field, or a field of an inlined message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct JsonField {
    /// Index into the message's fields.
    pub(crate) outer: u8,
    /// Index into the fields of the inlined message.
    pub(crate) inner: Option<u8>,
}

impl Message {
    /// The field of that number.
    #[inline]
    pub(crate) fn by_number(&self, number: u32) -> Option<&Field> {
        let index = *self.by_number.get(number as usize)?;
        self.fields.get(usize::from(index).wrapping_sub(1))
    }

    /// The field that a JSON object's member of that name fills; names are case-sensitive (rule A.2.5).
    pub(crate) fn by_json_name(&self, name: &str) -> Option<JsonField> {
        let at = self.json_names.binary_search_by(|(known, _)| (**known).cmp(name)).ok()?;
        Some(self.json_names[at].1)
    }

    /// A JSON name that differs from `name` only in capitals and underscores; for hints.
    pub(crate) fn json_name_like(&self, name: &str) -> Option<&str> {
        let plain = |name: &str| name.replace('_', "").to_ascii_lowercase();
        let wanted = plain(name);
        self.json_names.iter().map(|(known, _)| &**known).find(|known| plain(known) == wanted)
    }

    /// The field of that name in the `.proto` file, inlined messages included.
    pub(crate) fn by_proto_name(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|field| &*field.name == name)
    }
}

impl Field {
    /// The message that this field, its elements or its map values are.
    pub(crate) fn message(&self) -> Option<&'static Message> {
        match self.kind {
            Kind::Message(id) => Some(id.get()),
            _ => None,
        }
    }
}

/// The message Pod.
pub(crate) fn pod() -> &'static Message {
    &SCHEMA.messages[0]
}

struct Schema {
    messages: Vec<Message>,
}

impl Schema {
    fn build() -> Self {
        let pool =
            DescriptorPool::decode(pods_api_proto::DESCRIPTOR_SET).expect("the build wrote a descriptor set");
        let pod = pool.get_message_by_name(POD).expect("the descriptor set has the message Pod");
        // Breadth first from Pod; a message's place in `found` is its id.
        let mut found = vec![pod];
        let mut fields = Vec::new();
        let mut next = 0;
        while let Some(message) = found.get(next).cloned() {
            fields.push(Self::fields(&message, &mut found));
            next += 1;
        }
        let json_names: Vec<_> = (0..fields.len()).map(|at| Self::json_names(&fields, at)).collect();
        let messages = found.iter().zip(fields).zip(json_names).map(|((descriptor, fields), json_names)| {
            let leaf = LEAVES.iter().find(|(name, _)| *name == descriptor.full_name()).map(|(_, leaf)| *leaf);
            let by_number = Self::by_number(&fields);
            Message { name: descriptor.name().into(), leaf, fields: fields.into(), json_names, by_number }
        });
        Self { messages: messages.collect() }
    }

    fn fields(message: &MessageDescriptor, found: &mut Vec<MessageDescriptor>) -> Vec<Field> {
        let zero_is_kept: Vec<&str> = ZERO_IS_KEPT
            .iter()
            .filter(|(name, _)| *name == message.name())
            .flat_map(|(_, fields)| fields.split_ascii_whitespace())
            .collect();
        let mut fields: Vec<Field> = message
            .fields()
            .map(|field| {
                let value = if field.is_map() { map_value(&field) } else { field.clone() };
                let is_message = matches!(value.kind(), ProtoKind::Message(_));
                Field {
                    name: field.name().into(),
                    number: field.number(),
                    kind: kind(&value, found),
                    cardinality: match (field.is_map(), field.is_list()) {
                        (true, _) => Cardinality::Map,
                        (false, true) => Cardinality::Many,
                        (false, false) => Cardinality::One,
                    },
                    is_inlined: is_message && INLINED.contains(&field.name()),
                    keeps_zero: zero_is_kept.contains(&field.name()),
                }
            })
            .collect();
        fields.sort_by_key(|field| field.number);
        fields
    }

    fn json_names(all: &[Vec<Field>], message: usize) -> Box<[(Box<str>, JsonField)]> {
        let mut names = Vec::new();
        for (outer, field) in (0..).zip(&all[message]) {
            match field.kind {
                Kind::Message(id) if field.is_inlined => {
                    for (inner, field) in (0..).zip(&all[usize::from(id.0)]) {
                        names.push((field.name.clone(), JsonField { outer, inner: Some(inner) }));
                    }
                }
                _ => names.push((field.name.clone(), JsonField { outer, inner: None })),
            }
        }
        names.sort_by(|(a, _), (b, _)| a.cmp(b));
        names.into()
    }

    fn by_number(fields: &[Field]) -> Box<[u8]> {
        let highest = fields.last().map_or(0, |field| field.number as usize);
        let mut index = vec![0; highest + 1];
        for (at, field) in (1..).zip(fields) {
            index[field.number as usize] = at;
        }
        index.into()
    }
}

fn map_value(field: &FieldDescriptor) -> FieldDescriptor {
    let ProtoKind::Message(entry) = field.kind() else {
        unreachable!("a map field is made of entry messages")
    };
    assert_eq!(entry.map_entry_key_field().kind(), ProtoKind::String, "every map of a Pod has string keys");
    entry.map_entry_value_field()
}

fn kind(field: &FieldDescriptor, found: &mut Vec<MessageDescriptor>) -> Kind {
    match field.kind() {
        ProtoKind::Bool => Kind::Bool,
        ProtoKind::Int32 => Kind::Int32,
        ProtoKind::Int64 => Kind::Int64,
        ProtoKind::String => Kind::String,
        ProtoKind::Bytes => Kind::Bytes,
        ProtoKind::Message(message) => {
            let at = found.iter().position(|known| *known == message).unwrap_or_else(|| {
                found.push(message);
                found.len() - 1
            });
            Kind::Message(MessageId(
                u16::try_from(at).expect("the schema has far fewer than 65,536 messages"),
            ))
        }
        other => unreachable!("the schema of a Pod has no field of type {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str) -> &'static Message {
        SCHEMA.messages.iter().find(|message| &*message.name == name).unwrap()
    }

    #[test]
    fn the_whole_schema_of_a_pod_is_there() {
        assert_eq!(SCHEMA.messages.len(), 142);
        assert_eq!(SCHEMA.messages.iter().map(|message| message.fields.len()).sum::<usize>(), 640);
        assert_eq!(&*pod().name, "Pod");
        assert_eq!(&*pod().by_number(3).unwrap().name, "status");
        assert!(pod().by_number(0).is_none() && pod().by_number(4).is_none());
    }

    #[test]
    fn numbers_find_the_fields_that_have_them() {
        for message in &SCHEMA.messages {
            for field in &message.fields {
                assert!(std::ptr::eq(message.by_number(field.number).unwrap(), field));
            }
        }
    }

    #[test]
    fn every_zero_that_is_kept_belongs_to_a_scalar_field() {
        for (name, fields) in ZERO_IS_KEPT {
            for field in fields.split_ascii_whitespace() {
                let field = message(name).by_proto_name(field).unwrap_or_else(|| panic!("{name}.{field}"));
                assert!(field.message().is_none() && field.cardinality == Cardinality::One);
            }
        }
    }

    // rule E.9.7
    #[test]
    fn inlined_messages_are_the_ones_of_the_rule() {
        let mut inlined: Vec<String> = SCHEMA
            .messages
            .iter()
            .flat_map(|message| message.fields.iter().map(move |field| (message, field)))
            .filter(|(_, field)| field.is_inlined)
            .map(|(message, field)| format!("{}.{}={}", message.name, field.name, field.number))
            .collect();
        inlined.sort_unstable();
        assert_eq!(
            inlined,
            [
                "ConfigMapEnvSource.localObjectReference=1",
                "ConfigMapKeySelector.localObjectReference=1",
                "ConfigMapProjection.localObjectReference=1",
                "ConfigMapVolumeSource.localObjectReference=1",
                "EphemeralContainer.ephemeralContainerCommon=1",
                "Probe.handler=1",
                "SecretEnvSource.localObjectReference=1",
                "SecretKeySelector.localObjectReference=1",
                "SecretProjection.localObjectReference=1",
                "Volume.volumeSource=2",
            ]
        );
        let host_path = message("Volume").by_json_name("hostPath").unwrap();
        assert_eq!(host_path, JsonField { outer: 1, inner: Some(0) });
        assert_eq!(message("Volume").by_json_name("volumeSource"), None);
        assert!(message("Volume").by_proto_name("volumeSource").is_some());
    }

    // Bytes occur in leaves only, so that no converter needs base64.
    #[test]
    fn only_leaves_have_bytes() {
        for message in SCHEMA.messages.iter().filter(|message| message.leaf.is_none()) {
            assert!(message.fields.iter().all(|field| field.kind != Kind::Bytes), "{}", message.name);
        }
    }
}
