//! Renders a [`Shape`] as a static pod manifest in JSON, cut at the sequence number so that a new revision of the
//! pod costs the load generator one small write.

use serde_json::json;

use super::{Container, SEQUENCE_ANNOTATION, Shape};

/// Digits of a sequence number, zero-padded so that every revision of a pod has the same length.
pub(crate) const SEQUENCE_DIGITS: usize = 12;

/// A document with a sequence number in it: a manifest, or an encoded pod.
#[derive(Clone, Debug)]
pub(crate) struct Template {
    pub(crate) before: Vec<u8>,
    pub(crate) after: Vec<u8>,
}

impl Template {
    /// Cuts a document at its sequence number; None if it carries none.
    pub(crate) fn cut(document: &[u8]) -> Option<Self> {
        let name =
            memchr::memmem::find(document, SEQUENCE_ANNOTATION.as_bytes())? + SEQUENCE_ANNOTATION.len();
        // Quotes, a colon and a space at most in JSON; a tag and a length in protobuf.
        let at = (name..name + 5).find(|at| {
            document
                .get(*at..at + SEQUENCE_DIGITS)
                .is_some_and(|digits| digits.iter().all(u8::is_ascii_digit))
        })?;
        Some(Self { before: document[..at].to_vec(), after: document[at + SEQUENCE_DIGITS..].to_vec() })
    }

    pub(crate) fn bytes(&self, sequence: u64) -> Vec<u8> {
        let number = format!("{sequence:0SEQUENCE_DIGITS$}");
        [&self.before, number.as_bytes(), &self.after].concat()
    }

    #[cfg(test)]
    pub(crate) fn text(&self, sequence: u64) -> String {
        String::from_utf8(self.bytes(sequence)).unwrap()
    }
}

/// Reads the sequence number out of the first bytes of an encoded pod.
pub(crate) fn sequence_of(head: &[u8]) -> Option<u64> {
    let name = memchr::memmem::find(head, SEQUENCE_ANNOTATION.as_bytes())? + SEQUENCE_ANNOTATION.len();
    // After the map entry's key come the value's tag and length, one byte each.
    let digits = head.get(name + 2..name + 2 + SEQUENCE_DIGITS)?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The labels of a pod.
pub(super) fn labels(shape: &Shape) -> [(&'static str, String); 5] {
    [
        ("app.kubernetes.io/name", shape.app.clone()),
        ("app.kubernetes.io/instance", shape.name.clone()),
        ("app.kubernetes.io/component", shape.containers[0].name.clone()),
        ("pod-template-hash", shape.uid[..8].to_owned()),
        ("topology.kubernetes.io/zone", "zone-a".to_owned()),
    ]
}

/// Returns the manifest of a pod. It sets a UID, so an edit changes the pod instead of replacing it (rule A.3.2).
pub(crate) fn manifest(shape: &Shape) -> Template {
    let labels: serde_json::Map<_, _> =
        labels(shape).into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect();
    let document = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": shape.name,
            "namespace": shape.namespace,
            "uid": shape.uid,
            "labels": labels,
            "annotations": {
                SEQUENCE_ANNOTATION: "0".repeat(SEQUENCE_DIGITS),
                "prometheus.io/scrape": "true",
                "prometheus.io/port": shape.containers[0].port.to_string(),
            },
        },
        "spec": {
            "volumes": [
                {"name": "scratch", "emptyDir": {}},
                {"name": "localtime", "hostPath": {"path": "/etc/localtime"}},
            ],
            "containers": shape.containers.iter().map(container).collect::<Vec<_>>(),
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
        },
    });
    Template::cut(document.to_string().as_bytes()).expect("the annotation has just been written")
}

fn container(container: &Container) -> serde_json::Value {
    let environment: Vec<_> =
        container.environment.iter().map(|(name, value)| json!({"name": name, "value": value})).collect();
    json!({
        "name": container.name,
        "image": container.image,
        "args": [format!("--listen=:{}", container.port), "--log-format=json"],
        "ports": [{"name": "http", "containerPort": container.port}],
        "env": environment,
        "resources": {
            "limits": {"cpu": "2", "memory": "1Gi"},
            "requests": {"cpu": "250m", "memory": "256Mi"},
        },
        "volumeMounts": [{"name": "scratch", "mountPath": "/var/cache/app"}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": container.port}, "periodSeconds": 10},
        "imagePullPolicy": "IfNotPresent",
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Plan, encode, shapes};

    #[test]
    fn sequence_survives_encoding() {
        for shape in shapes(Plan { pods: 10, pod_bytes: 4_000, seed: 3 }, true) {
            let template = Template::cut(&encode(&shape)).unwrap();
            for sequence in [0, 7, 123_456_789_012] {
                let pod = template.bytes(sequence);
                assert_eq!(pod.len(), encode(&shape).len());
                assert_eq!(sequence_of(&pod), Some(sequence));
            }
        }
    }

    #[test]
    fn pod_without_the_annotation_has_no_sequence() {
        assert_eq!(sequence_of(b"some other pod"), None);
        assert_eq!(sequence_of(b"pods-bench/sequence\x12\x0cshort"), None);
    }
}
