//! From the bytes of one manifest to the static pod that they describe (rules A.2 to A.5). No I/O.

use super::defaults::set_defaults;
use super::identity::{Origin, place_on_node, pod_uid};
use super::problem::{At, Problem, Problems};
use super::validate::validate;
use crate::pod::{PodUid, SourcePod};
use crate::wire::{FieldError, Node, TextError, Value, encode_pod, parse_json, parse_yaml};
use std::fmt;
use std::path::Path;

/// A manifest that became a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct StaticPod {
    /// The pod, encoded, with its identity.
    pub pod: SourcePod,
    /// What some kubelets would refuse (rule A.2.8).
    pub notices: Vec<Problem>,
}

/// Why a manifest is no pod: one problem or several, in the order of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DecodeError {
    problems: Vec<Problem>,
    /// How many more there were than are kept.
    dropped: usize,
}

impl DecodeError {
    fn one(line: u32, field: impl Into<String>, reason: impl Into<String>) -> Self {
        Self { problems: vec![Problem { line, field: field.into(), reason: reason.into() }], dropped: 0 }
    }

    /// The problems, at least one.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// The message for people: `PATH:LINE: FIELD: REASON` for each problem.
    #[must_use]
    pub fn describe(&self, path: &Path) -> String {
        let mut message = String::new();
        for problem in &self.problems {
            if !message.is_empty() {
                message.push_str("; ");
            }
            // With a line the path and line join as compilers write them.
            let joint = if problem.line == 0 { ": " } else { ":" };
            message.push_str(&format!("{}{joint}{problem}", path.display()));
        }
        if self.dropped != 0 {
            message.push_str(&format!("; and {} more problems", self.dropped));
        }
        message
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let texts: Vec<_> = self.problems.iter().map(Problem::to_string).collect();
        f.write_str(&texts.join("; "))?;
        if self.dropped != 0 {
            write!(f, "; and {} more problems", self.dropped)?;
        }
        Ok(())
    }
}

impl std::error::Error for DecodeError {}

impl From<TextError> for DecodeError {
    fn from(error: TextError) -> Self {
        Self::one(error.line, "", format!("column {}: {}", error.column, error.message))
    }
}

impl From<FieldError> for DecodeError {
    fn from(error: FieldError) -> Self {
        Self::one(error.line, error.path, error.message)
    }
}

/// Decodes one manifest. `seen` gives the text of the `config.seen` annotation for the pod's UID (rule A.3.10).
///
/// # Errors
/// The manifest is no text, no pod, or a pod that every kubelet refuses.
pub fn decode(
    bytes: &[u8],
    origin: Origin<'_>,
    seen: impl FnOnce(&PodUid) -> String,
) -> Result<StaticPod, DecodeError> {
    let mut pod = parse(bytes)?;
    check_kind(&pod)?;
    set_defaults(&mut pod);
    let content = encode_pod(&pod)?;
    check_name(&pod)?;
    let (uid, is_uid_provisional) = pod_uid(&pod, origin, &content);
    let seen = seen(&uid);
    place_on_node(&mut pod, origin.node_name, &uid, &seen);
    let findings = validate(&pod);
    let (problems, dropped) = findings.problems.finish();
    if !problems.is_empty() {
        return Err(DecodeError { problems, dropped });
    }
    let metadata = |field| {
        pod.get("metadata")
            .and_then(|metadata| metadata.get(field)?.as_str())
            .expect("validation needs metadata.name and metadata.namespace")
    };
    Ok(StaticPod {
        pod: SourcePod {
            uid,
            namespace: metadata("namespace").into(),
            name: metadata("name").into(),
            is_uid_provisional,
            pod: encode_pod(&pod)?,
        },
        notices: findings.notices.finish().0,
    })
}

/// Rule A.2.1: what begins with `{` is JSON and never YAML.
fn parse(bytes: &[u8]) -> Result<Node, TextError> {
    let first = bytes.iter().find(|byte| !matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0B | 0x0C));
    if first == Some(&b'{') { parse_json(bytes) } else { parse_yaml(bytes) }
}

/// Rule A.2.4.
fn check_kind(pod: &Node) -> Result<(), DecodeError> {
    if !matches!(pod.value, Value::Map(_)) {
        return Err(DecodeError::one(pod.line, "", "the manifest is not an object"));
    }
    for (field, wanted) in [("apiVersion", "v1"), ("kind", "Pod")] {
        let reason = match pod.get(field) {
            Some(node) if node.as_str() == Some(wanted) => continue,
            Some(_) => format!("must be the string {wanted}"),
            None => format!("is needed, with the value {wanted}"),
        };
        return Err(DecodeError::one(pod.get(field).unwrap_or(pod).line, field, reason));
    }
    Ok(())
}

/// Rule A.2.6; `generateName` does not help.
fn check_name(pod: &Node) -> Result<(), DecodeError> {
    let metadata = pod.get("metadata");
    if metadata.and_then(|metadata| metadata.get("name")?.as_str()).is_some_and(|name| !name.is_empty()) {
        return Ok(());
    }
    let mut problems = Problems::default();
    let at = At::root("metadata");
    problems.add(metadata.unwrap_or(pod).line, &at.field("name"), "is needed");
    let (problems, dropped) = problems.finish();
    Err(DecodeError { problems, dropped })
}

#[cfg(test)]
mod tests;
