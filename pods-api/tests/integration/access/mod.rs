//! The access policy from outside: what callers see under a rule, who they are taken for, and what the server itself
//! may still do.

mod calls;
mod cgroup;
mod peers;
mod privileges;
mod rules;

/// A static pod of the namespace, with a secret in its environment and a note that changes.
fn manifest(uid: &str, namespace: &str, secret: &str, note: &str) -> String {
    serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": namespace, "uid": uid, "labels": {"app": "web", "tier": "front"},
            "annotations": {"note": note, "kubectl.kubernetes.io/last-applied-configuration": secret}},
        "spec": {
            "initContainers": [{"name": "init", "image": "registry.example/init:1",
                "env": [{"name": "INIT", "value": secret}]}],
            "containers": [{"name": "main", "image": "registry.example/main:1",
                "env": [{"name": "TOKEN", "value": secret}],
                "envFrom": [{"secretRef": {"name": secret}}]}]}
    })
    .to_string()
}
