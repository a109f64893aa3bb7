//! The defaults that the API gives a pod and that a kubelet shows for a static one (rules A.2.9 and A.4), on the
//! tree of the manifest. What is of the wrong type is left alone: the conversion to bytes reports it.
//!
//! In Go most fields are no pointers, so an empty string, 0 and `false` count as missing; where presence matters
//! (rule A.4.10) only a missing field does.

use crate::wire::{Entry, Node, Quantity, Value};

/// The lists of a pod spec that hold containers.
const CONTAINER_LISTS: [&str; 3] = ["containers", "initContainers", "ephemeralContainers"];

/// Every source that a volume can have. A volume with none of them is an `emptyDir` (rule A.4.7).
pub(super) const VOLUME_SOURCES: [&str; 30] = [
    "awsElasticBlockStore",
    "azureDisk",
    "azureFile",
    "cephfs",
    "cinder",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "persistentVolumeClaim",
    "photonPersistentDisk",
    "portworxVolume",
    "projected",
    "quobyte",
    "rbd",
    "scaleIO",
    "secret",
    "storageos",
    "vsphereVolume",
];

/// Sets every default on a decoded pod.
pub(super) fn set_defaults(pod: &mut Node) {
    let Some(spec) = pod.get_mut("spec") else { return };
    set_spec_defaults(spec);
    let host_network = is_true(spec, "hostNetwork");
    for list in CONTAINER_LISTS {
        for container in spec.get_mut(list).map(Node::items_mut).unwrap_or_default() {
            set_container_defaults(container);
            if list != "ephemeralContainers" {
                set_requests_from_limits(container);
                if host_network {
                    set_host_ports(container);
                }
            }
            if list == "containers" {
                set_resize_policy(container);
            }
        }
    }
    for volume in spec.get_mut("volumes").map(Node::items_mut).unwrap_or_default() {
        set_volume_defaults(volume);
    }
    if let Some(overhead) = spec.get_mut("overhead") {
        round_up_resources(overhead);
    }
    if let Some(resources) = spec.get_mut("resources") {
        round_up_requirements(resources);
    }
}

/// Rules A.4.1 and A.4.8.
fn set_spec_defaults(spec: &mut Node) {
    or_string(spec, "restartPolicy", "Always");
    or_string(spec, "dnsPolicy", "ClusterFirst");
    or_string(spec, "schedulerName", "default-scheduler");
    or_present(spec, "terminationGracePeriodSeconds", Value::Number("30".into()));
    or_present(spec, "enableServiceLinks", Value::Bool(true));
    or_present(spec, "securityContext", Value::Map(Vec::new()));
    let account = ["serviceAccountName", "serviceAccount"]
        .iter()
        .find_map(|key| spec.get(key).filter(|node| node.as_str().is_some_and(|name| !name.is_empty())))
        .cloned();
    if let Some(account) = account {
        spec.set("serviceAccount", account.clone());
        spec.set("serviceAccountName", account);
    }
}

/// Rules A.4.2 and A.4.6.
fn set_container_defaults(container: &mut Node) {
    let policy = pull_policy(container.get("image").and_then(Node::as_str).unwrap_or_default());
    or_string(container, "imagePullPolicy", policy);
    or_string(container, "terminationMessagePath", "/dev/termination-log");
    or_string(container, "terminationMessagePolicy", "File");
    for port in container.get_mut("ports").map(Node::items_mut).unwrap_or_default() {
        or_string(port, "protocol", "TCP");
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe) else { continue };
        or_number(probe, "timeoutSeconds", "1");
        or_number(probe, "periodSeconds", "10");
        or_number(probe, "successThreshold", "1");
        or_number(probe, "failureThreshold", "3");
        set_http_get_defaults(probe);
        if let Some(grpc) = probe.get_mut("grpc") {
            or_present(grpc, "service", Value::String("".into()));
        }
    }
    if let Some(lifecycle) = container.get_mut("lifecycle") {
        for hook in ["postStart", "preStop"] {
            if let Some(handler) = lifecycle.get_mut(hook) {
                set_http_get_defaults(handler);
            }
        }
    }
    for variable in container.get_mut("env").map(Node::items_mut).unwrap_or_default() {
        if let Some(source) = variable.get_mut("valueFrom") {
            set_field_ref_version(source);
        }
    }
    if let Some(resources) = container.get_mut("resources") {
        round_up_requirements(resources);
    }
}

fn set_http_get_defaults(handler: &mut Node) {
    if let Some(http) = handler.get_mut("httpGet") {
        or_string(http, "path", "/");
        or_string(http, "scheme", "HTTP");
    }
}

fn set_field_ref_version(source: &mut Node) {
    if let Some(field) = source.get_mut("fieldRef") {
        or_string(field, "apiVersion", "v1");
    }
}

/// Rule A.4.2: `Always` for `latest`, said or meant; a digest pins the image. An image that cannot be parsed has no
/// tag that says `latest`.
fn pull_policy(image: &str) -> &'static str {
    let (name, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let last = name.rsplit('/').next().unwrap_or(name);
    match last.split_once(':') {
        Some((_, "latest")) => "Always",
        None if digest.is_none() && !last.is_empty() => "Always",
        _ => "IfNotPresent",
    }
}

/// Rule A.4.3.
fn set_requests_from_limits(container: &mut Node) {
    let Some(resources) = container.get_mut("resources") else { return };
    let Some(Value::Map(limits)) = resources.get("limits").map(|limits| limits.value.clone()) else { return };
    if limits.is_empty() {
        return;
    }
    or_present(resources, "requests", Value::Map(Vec::new()));
    let Some(requests) = resources.get_mut("requests") else { return };
    for Entry { key, value } in limits {
        if requests.get(&key).is_none() {
            requests.set(&key, value);
        }
    }
}

/// Rule A.4.4; comes after [`set_requests_from_limits`].
fn set_resize_policy(container: &mut Node) {
    for resource in ["cpu", "memory"] {
        let requested = container
            .get("resources")
            .and_then(|resources| resources.get("requests")?.get(resource))
            .is_some();
        let named = |policy: &Node| policy.get("resourceName").and_then(Node::as_str) == Some(resource);
        let policies = container.get("resizePolicy").map(Node::items).unwrap_or_default();
        if !requested || policies.iter().any(named) {
            continue;
        }
        or_present(container, "resizePolicy", Value::List(Vec::new()));
        if let Some(Node { value: Value::List(policies), .. }) = container.get_mut("resizePolicy") {
            policies.push(object([("resourceName", resource), ("restartPolicy", "NotRequired")]));
        }
    }
}

/// Rule A.4.5.
fn set_host_ports(container: &mut Node) {
    for port in container.get_mut("ports").map(Node::items_mut).unwrap_or_default() {
        let Some(number) = port.get("containerPort").map(|node| node.value.clone()) else { continue };
        if is_unset(port, "hostPort") {
            port.set("hostPort", Node::new(number));
        }
    }
}

/// Rule A.4.7.
fn set_volume_defaults(volume: &mut Node) {
    if matches!(volume.value, Value::Map(_))
        && !VOLUME_SOURCES.iter().any(|source| volume.get(source).is_some())
    {
        volume.set("emptyDir", Node::new(Value::Map(Vec::new())));
    }
    for source in ["secret", "configMap", "downwardAPI", "projected"] {
        if let Some(source) = volume.get_mut(source) {
            or_present(source, "defaultMode", Value::Number("420".into()));
        }
    }
    if let Some(downward) = volume.get_mut("downwardAPI") {
        downward
            .get_mut("items")
            .map(Node::items_mut)
            .unwrap_or_default()
            .iter_mut()
            .for_each(set_field_ref_version);
    }
    for projected in volume.get_mut("projected").and_then(|source| source.get_mut("sources")).into_iter() {
        for source in projected.items_mut() {
            if let Some(token) = source.get_mut("serviceAccountToken") {
                or_present(token, "expirationSeconds", Value::Number("3600".into()));
            }
            if let Some(items) = source.get_mut("downwardAPI").and_then(|downward| downward.get_mut("items"))
            {
                items.items_mut().iter_mut().for_each(set_field_ref_version);
            }
        }
    }
    if let Some(path) = volume.get_mut("hostPath") {
        or_present(path, "type", Value::String("".into()));
    }
    if let Some(image) = volume.get_mut("image") {
        let policy = pull_policy(image.get("reference").and_then(Node::as_str).unwrap_or_default());
        or_string(image, "pullPolicy", policy);
    }
    if let Some(spec) = volume
        .get_mut("ephemeral")
        .and_then(|source| source.get_mut("volumeClaimTemplate"))
        .and_then(|template| template.get_mut("spec"))
    {
        or_present(spec, "volumeMode", Value::String("Filesystem".into()));
        if let Some(resources) = spec.get_mut("resources") {
            round_up_requirements(resources);
        }
    }
    if let Some(iscsi) = volume.get_mut("iscsi") {
        or_string(iscsi, "iscsiInterface", "default");
    }
    if let Some(rbd) = volume.get_mut("rbd") {
        or_string(rbd, "pool", "rbd");
        or_string(rbd, "user", "admin");
        or_string(rbd, "keyring", "/etc/ceph/keyring");
    }
    if let Some(disk) = volume.get_mut("azureDisk") {
        or_present(disk, "cachingMode", Value::String("ReadWrite".into()));
        or_present(disk, "kind", Value::String("Shared".into()));
        or_present(disk, "fsType", Value::String("ext4".into()));
        or_present(disk, "readOnly", Value::Bool(false));
    }
    if let Some(scale) = volume.get_mut("scaleIO") {
        or_string(scale, "storageMode", "ThinProvisioned");
        or_string(scale, "fsType", "xfs");
    }
}

/// Rule A.2.9, for `limits` and `requests`.
fn round_up_requirements(resources: &mut Node) {
    for list in ["limits", "requests"] {
        if let Some(list) = resources.get_mut(list) {
            round_up_resources(list);
        }
    }
}

/// Rule A.2.9: a resource finer than 1/1000 is rounded up to it.
fn round_up_resources(list: &mut Node) {
    let Value::Map(entries) = &mut list.value else { return };
    for entry in entries {
        let (Value::String(text) | Value::Number(text)) = &mut entry.value.value else { continue };
        if let Ok(mut quantity) = Quantity::parse(text) {
            quantity.round_up_to_milli();
            entry.value.value = Value::String(quantity.to_string().into());
        }
    }
}

/// An object of strings.
fn object<const N: usize>(members: [(&str, &str); N]) -> Node {
    let entries = members.map(|(key, value)| Entry { key: key.into(), value: Node::string(value) });
    Node::new(Value::Map(entries.into()))
}

/// Whether a field without presence has Go's zero value.
fn is_unset(message: &Node, field: &str) -> bool {
    message.get(field).is_none_or(|node| match &node.value {
        Value::String(text) => text.is_empty(),
        Value::Number(text) => &**text == "0",
        _ => false,
    })
}

fn is_true(message: &Node, field: &str) -> bool {
    message.get(field).is_some_and(|node| node.value == Value::Bool(true))
}

fn or_string(message: &mut Node, field: &str, default: &str) {
    if is_unset(message, field) {
        message.set(field, Node::string(default));
    }
}

fn or_number(message: &mut Node, field: &str, default: &str) {
    if is_unset(message, field) {
        message.set(field, Node::new(Value::Number(default.into())));
    }
}

fn or_present(message: &mut Node, field: &str, default: Value) {
    if message.get(field).is_none() {
        message.set(field, Node::new(default));
    }
}

#[cfg(test)]
mod tests;
