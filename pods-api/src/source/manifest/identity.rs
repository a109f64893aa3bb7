//! What makes a manifest a pod of this node: UID, name, namespace, node, annotations, toleration, phase
//! (rules A.3.2 to A.3.10, in that order).

use crate::pod::{NodeName, PodUid};
use crate::wire::{Node, Value};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

const CONFIG_HASH: &str = "kubernetes.io/config.hash";
const CONFIG_SOURCE: &str = "kubernetes.io/config.source";
const CONFIG_SEEN: &str = "kubernetes.io/config.seen";

/// The node and file that a manifest belongs to; both are part of the pod's UID.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The name of this node, lower case.
    pub node_name: &'a NodeName,
    /// The absolute path of the manifest.
    pub path: &'a Path,
}

/// The UID of a static pod: the one it states, else a digest of our own, and which of them it is (true: ours).
///
/// The kubelet hashes the memory layout of its own Pod type, which nobody else can reproduce (rule A.3.3). Ours is
/// FNV-128a too, over the node's name, the path and `content`, the encoded pod with its defaults: it is the same
/// after a restart, and an edited comment does not change it (rule A.7.5). Where the runtime knows the kubelet's
/// UID, that one replaces it later.
pub(super) fn pod_uid(pod: &Node, origin: Origin<'_>, content: &[u8]) -> (PodUid, bool) {
    if let Some(uid) =
        pod.get("metadata").and_then(|metadata| metadata.get("uid")?.as_str()).filter(|uid| !uid.is_empty())
    {
        return (uid.into(), false);
    }
    let mut digest = Fnv128a::new();
    // Each part ends in a byte that cannot be in the next part's place, so that no two origins read the same.
    digest.write(origin.node_name.as_str().as_bytes());
    digest.write(b"\0");
    digest.write(origin.path.as_os_str().as_bytes());
    digest.write(b"\0");
    digest.write(content);
    (format!("{:032x}", digest.finish()).into(), true)
}

/// Applies the changes of rules A.3.4 to A.3.10. `metadata.name` must be set.
pub(super) fn place_on_node(pod: &mut Node, node_name: &NodeName, uid: &PodUid, seen: &str) {
    or_object(pod, "metadata");
    or_object(pod, "spec");
    or_object(pod, "status");
    if let Some(metadata) = pod.get_mut("metadata") {
        metadata.set("uid", Node::string(uid.as_str()));
        if let Some(name) = metadata.get_mut("name") {
            let suffixed =
                format!("{}-{}", name.as_str().unwrap_or_default(), node_name.as_str().to_lowercase());
            name.value = Value::String(suffixed.into());
        }
        if metadata.get("namespace").is_none_or(|namespace| namespace.as_str() == Some("")) {
            metadata.set("namespace", Node::string("default"));
        }
        or_object(metadata, "annotations");
        if let Some(annotations) = metadata.get_mut("annotations") {
            annotations.set(CONFIG_HASH, Node::string(uid.as_str()));
            annotations.set(CONFIG_SOURCE, Node::string("file"));
            annotations.set(CONFIG_SEEN, Node::string(seen));
        }
    }
    if let Some(spec) = pod.get_mut("spec") {
        spec.set("nodeName", Node::string(node_name.as_str()));
        tolerate_no_execute(spec);
    }
    if let Some(status) = pod.get_mut("status") {
        status.set("phase", Node::string("Pending"));
    }
}

/// Rule A.3.8: static pods are not evicted by taints.
fn tolerate_no_execute(spec: &mut Node) {
    let text = |toleration: &Node, field: &str| {
        toleration.get(field).and_then(Node::as_str).unwrap_or_default().to_owned()
    };
    let ours = || {
        let mut toleration = Node::new(Value::Map(Vec::new()));
        toleration.set("operator", Node::string("Exists"));
        toleration.set("effect", Node::string("NoExecute"));
        toleration
    };
    if spec.get("tolerations").is_none() {
        spec.set("tolerations", Node::new(Value::List(Vec::new())));
    }
    let Some(Node { value: Value::List(tolerations), .. }) = spec.get_mut("tolerations") else { return };
    let mut replaced = false;
    for toleration in tolerations.iter_mut() {
        let fields = ["key", "operator", "value", "effect"].map(|field| text(toleration, field));
        if fields == ["", "Exists", "", "NoExecute"] {
            *toleration = Node { line: toleration.line, ..ours() };
            replaced = true;
        }
    }
    if !replaced {
        tolerations.push(ours());
    }
}

fn or_object(message: &mut Node, field: &str) {
    if message.get(field).is_none() {
        message.set(field, Node::new(Value::Map(Vec::new())));
    }
}

/// FNV-1a with 128 bits (the constants are from the FNV specification, draft-eastlake-fnv).
#[derive(Clone)]
pub(super) struct Fnv128a(u128);

impl Fnv128a {
    const OFFSET_BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = (1 << 88) | 0x13b;

    pub(super) fn new() -> Self {
        Self(Self::OFFSET_BASIS)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u128::from(byte)).wrapping_mul(Self::PRIME);
        }
    }

    pub(super) fn finish(&self) -> u128 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::parse_yaml;

    fn uid(node: &str, path: &str, text: &str) -> String {
        let origin = Origin { node_name: &node.into(), path: Path::new(path) };
        pod_uid(&parse_yaml(b"metadata: {name: a}").unwrap(), origin, text.as_bytes()).0.to_string()
    }

    #[test]
    fn the_digest_is_fnv_128a() {
        // Test vectors of the FNV reference: "" and "a".
        let digest = |text: &str| {
            let mut digest = Fnv128a::new();
            digest.write(text.as_bytes());
            format!("{:032x}", digest.finish())
        };
        assert_eq!(digest(""), "6c62272e07bb014262b821756295c58d");
        assert_eq!(digest("a"), "d228cb696f1a8caf78912b704e4a8964");
    }

    #[test]
    fn the_uid_depends_on_node_path_and_content() {
        // Rules A.3.2 and A.7.5, MAN-9.
        let base = uid("n1", "/m/a.yaml", "x");
        assert_eq!(base.len(), 32);
        assert_eq!(base, uid("n1", "/m/a.yaml", "x"));
        assert_ne!(base, uid("n2", "/m/a.yaml", "x"));
        assert_ne!(base, uid("n1", "/m/b.yaml", "x"));
        assert_ne!(base, uid("n1", "/m/a.yaml", "y"));
        assert_ne!(uid("n", "1/a", "x"), uid("n1", "/a", "x"));
    }

    #[test]
    fn a_stated_uid_is_kept() {
        // Rule A.3.2.
        let pod = parse_yaml(b"metadata: {uid: my-own}").unwrap();
        let origin = Origin { node_name: &"n".into(), path: Path::new("/a") };
        assert_eq!(pod_uid(&pod, origin, b""), ("my-own".into(), false));
    }

    #[test]
    fn a_pod_is_placed_on_the_node() {
        // Rules A.3.4 to A.3.10; nodeName overwrites, the phase too.
        let text =
            b"{metadata: {name: etcd, annotations: {a: b}}, spec: {nodeName: x}, status: {phase: Running}}";
        let mut pod = parse_yaml(text).unwrap();
        place_on_node(&mut pod, &"Cp-1".into(), &"u".into(), "then");
        let metadata = pod.get("metadata").unwrap();
        let text = |node: &Node, field: &str| node.get(field).unwrap().as_str().unwrap().to_owned();
        assert_eq!(text(metadata, "name"), "etcd-cp-1");
        assert_eq!(text(metadata, "namespace"), "default");
        assert_eq!(text(metadata, "uid"), "u");
        let annotations = metadata.get("annotations").unwrap();
        assert_eq!(text(annotations, "a"), "b");
        assert_eq!(text(annotations, CONFIG_HASH), "u");
        assert_eq!(text(annotations, CONFIG_SOURCE), "file");
        assert_eq!(text(annotations, CONFIG_SEEN), "then");
        assert_eq!(text(pod.get("spec").unwrap(), "nodeName"), "Cp-1");
        assert_eq!(text(pod.get("status").unwrap(), "phase"), "Pending");
    }

    #[test]
    fn the_no_execute_toleration_is_added_last_or_replaced_in_place() {
        // Rule A.3.8.
        let tolerations = |text: &str| {
            let mut pod =
                parse_yaml(format!("metadata: {{name: a}}\nspec: {{tolerations: {text}}}").as_bytes())
                    .unwrap();
            place_on_node(&mut pod, &"n".into(), &"u".into(), "");
            let list = pod.get("spec").unwrap().get("tolerations").unwrap().items().to_vec();
            list.iter()
                .map(|toleration| {
                    ["key", "operator", "effect", "tolerationSeconds"]
                        .map(|field| {
                            toleration.get(field).map_or("-", |node| node.as_str().unwrap_or("number"))
                        })
                        .join(" ")
                })
                .collect::<Vec<_>>()
        };
        assert_eq!(tolerations("null"), ["- Exists NoExecute -"]);
        assert_eq!(tolerations("[{key: k, operator: Exists}]"), ["k Exists - -", "- Exists NoExecute -"]);
        assert_eq!(
            tolerations(
                "[{operator: Exists, effect: NoExecute, tolerationSeconds: 5}, {key: k, operator: Exists}]"
            ),
            ["- Exists NoExecute -", "k Exists - -"]
        );
    }
}
