//! The checks of rule A.2.7, on the tree after all changes, so that each failure names line and field.
//!
//! A pod that the kubelet runs must never be hidden, so only what every kubelet refuses is refused here: the list of
//! the rule, not all of the API's validation. What only some refuse is accepted with a notice (rule A.2.8). Types
//! were checked by the conversion to bytes; a value of a wrong type reads as absent.

mod container;
mod syntax;
mod volume;

use super::problem::{At, Problems};
use crate::wire::{Node, Value};
use std::collections::HashSet;
use syntax::Verdict;

/// The API's limit for all annotations of an object together.
const MAX_ANNOTATION_BYTES: usize = 256 << 10;

/// What the checks found.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Reasons to refuse the pod.
    pub(super) problems: Problems,
    /// What an operator should know although the pod is accepted.
    pub(super) notices: Problems,
}

/// Checks a pod that has its defaults and its identity.
pub(super) fn validate(pod: &Node) -> Findings {
    let mut checks = Checks::default();
    let at = At::root("metadata");
    match pod.get("metadata") {
        Some(metadata) => checks.metadata(metadata, &at),
        None => checks.problem(pod, &at, "is needed"),
    }
    let at = At::root("spec");
    match pod.get("spec") {
        Some(spec) => checks.spec(spec, &at),
        None => checks.problem(pod, &at, "is needed"),
    }
    checks.findings
}

#[derive(Default)]
struct Checks {
    findings: Findings,
}

impl Checks {
    fn problem(&mut self, node: &Node, at: &At<'_>, reason: impl Into<String>) {
        self.findings.problems.add(node.line, at, reason);
    }

    fn metadata(&mut self, metadata: &Node, at: &At<'_>) {
        self.needed(metadata, "name", at, syntax::dns_subdomain);
        self.needed(metadata, "namespace", at, syntax::dns_label);
        self.labels(metadata, "labels", at);
        let Some(annotations) = metadata.get("annotations") else { return };
        let at = at.field("annotations");
        let mut bytes = 0;
        for (key, value) in entries(annotations) {
            // The API lowers the case of annotation keys before it checks them.
            self.key_holds(&key.to_lowercase(), value, &at.key(key), syntax::qualified_name);
            bytes += key.len() + value.as_str().map_or(0, str::len);
        }
        if bytes > MAX_ANNOTATION_BYTES {
            self.problem(annotations, &at, format!("{bytes} bytes are more than {MAX_ANNOTATION_BYTES}"));
        }
    }

    fn spec(&mut self, spec: &Node, at: &At<'_>) {
        let volumes = self.volumes(spec, at);
        self.containers(spec, &volumes, at);
        self.one_of(spec, "restartPolicy", at, &["Always", "OnFailure", "Never"]);
        self.one_of(spec, "dnsPolicy", at, &["ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"]);
        self.labels(spec, "nodeSelector", at);
        self.optional(spec, "serviceAccountName", at, syntax::dns_subdomain);
        self.optional(spec, "hostname", at, syntax::dns_label);
        self.optional(spec, "subdomain", at, syntax::dns_label);
        self.range(spec, "terminationGracePeriodSeconds", at, 0..=i64::MAX);
        self.range(spec, "activeDeadlineSeconds", at, 1..=i64::from(i32::MAX));
        self.tolerations(spec, at);
        if let Some(claims) = spec.get("resourceClaims").filter(|claims| !claims.items().is_empty()) {
            self.problem(claims, &at.field("resourceClaims"), "a static pod may not use resource claims");
        }
        // Rule A.2.8: refused only where a feature gate says so.
        for field in ["serviceAccountName", "imagePullSecrets"] {
            if let Some(value) =
                spec.get(field).filter(|value| !value.items().is_empty() || value.as_str().is_some())
            {
                self.notice(value, &at.field(field));
            }
        }
    }

    /// Notes a reference to an API object.
    fn notice(&mut self, node: &Node, at: &At<'_>) {
        self.findings.notices.add(
            node.line,
            at,
            "refers to the API, which some kubelets refuse for a static pod",
        );
    }

    fn tolerations(&mut self, spec: &Node, at: &At<'_>) {
        let at = at.field("tolerations");
        for (index, toleration) in items(spec, "tolerations").iter().enumerate() {
            let at = at.index(index);
            let text = |field| toleration.get(field).and_then(Node::as_str).unwrap_or_default();
            self.optional(toleration, "key", &at, syntax::qualified_name);
            self.one_of(toleration, "operator", &at, &["", "Exists", "Equal", "Lt", "Gt"]);
            self.one_of(toleration, "effect", &at, &["", "NoSchedule", "PreferNoSchedule", "NoExecute"]);
            if text("key").is_empty() && text("operator") != "Exists" {
                self.problem(toleration, &at.field("operator"), "must be Exists where the key is empty");
            }
            if text("operator") == "Exists" && !text("value").is_empty() {
                self.problem(toleration, &at.field("value"), "must be empty where the operator is Exists");
            }
            if toleration.get("tolerationSeconds").is_some() && text("effect") != "NoExecute" {
                self.problem(
                    toleration,
                    &at.field("effect"),
                    "must be NoExecute where tolerationSeconds is set",
                );
            }
        }
    }

    /// A map of label keys to label values.
    fn labels(&mut self, message: &Node, field: &str, at: &At<'_>) {
        let at = at.field(field);
        for (key, value) in message.get(field).map(entries).into_iter().flatten() {
            let at = at.key(key);
            self.key_holds(key, value, &at, syntax::qualified_name);
            self.holds(value.as_str().unwrap_or_default(), value, &at, syntax::label_value);
        }
    }

    fn holds(&mut self, text: &str, node: &Node, at: &At<'_>, check: fn(&str) -> Verdict) {
        if let Err(wanted) = check(text) {
            self.problem(node, at, format!("must be {wanted}"));
        }
    }

    /// As [`Checks::holds`], of a map's key, whose place is that of the entry.
    fn key_holds(&mut self, key: &str, node: &Node, at: &At<'_>, check: fn(&str) -> Verdict) {
        if let Err(wanted) = check(key) {
            self.problem(node, at, format!("the key must be {wanted}"));
        }
    }

    /// A text that must be there.
    fn needed(&mut self, message: &Node, field: &str, at: &At<'_>, check: fn(&str) -> Verdict) {
        match message.get(field).and_then(|node| Some((node, node.as_str()?))) {
            Some((node, text)) if !text.is_empty() => self.holds(text, node, &at.field(field), check),
            _ => self.problem(message, &at.field(field), "is needed"),
        }
    }

    /// A text that is checked where it is not empty.
    fn optional(&mut self, message: &Node, field: &str, at: &At<'_>, check: fn(&str) -> Verdict) {
        if let Some(node) = message.get(field)
            && let Some(text) = node.as_str().filter(|text| !text.is_empty())
        {
            self.holds(text, node, &at.field(field), check);
        }
    }

    /// A text of a fixed set; absent is the empty text.
    fn one_of(&mut self, message: &Node, field: &str, at: &At<'_>, allowed: &[&str]) {
        let node = message.get(field).unwrap_or(message);
        let text = message.get(field).and_then(Node::as_str).unwrap_or_default();
        if !allowed.contains(&text) {
            let named: Vec<_> = allowed.iter().copied().filter(|text| !text.is_empty()).collect();
            self.problem(node, &at.field(field), format!("must be one of {}", named.join(", ")));
        }
    }

    /// An integer within bounds, where it is set.
    fn range(&mut self, message: &Node, field: &str, at: &At<'_>, allowed: std::ops::RangeInclusive<i64>) {
        let Some(node) = message.get(field) else { return };
        let Some(value) = number(node) else { return };
        if !allowed.contains(&value) {
            let (low, high) = (allowed.start(), allowed.end());
            let wanted =
                if *high == i64::MAX { format!("at least {low}") } else { format!("from {low} to {high}") };
            self.problem(node, &at.field(field), format!("must be {wanted}"));
        }
    }

    /// Reports a name that occurs twice.
    fn unique<'a>(&mut self, seen: &mut HashSet<&'a str>, name: &'a str, node: &Node, at: &At<'_>) {
        if !name.is_empty() && !seen.insert(name) {
            self.problem(node, at, "is used twice");
        }
    }
}

/// The elements of a list field.
fn items<'a>(message: &'a Node, field: &str) -> &'a [Node] {
    message.get(field).map(Node::items).unwrap_or_default()
}

/// The entries of a map that count: of equal keys the last one.
fn entries(map: &Node) -> impl Iterator<Item = (&str, &Node)> {
    let entries = match &map.value {
        Value::Map(entries) => entries.as_slice(),
        _ => &[],
    };
    entries.iter().filter_map(|entry| Some((&*entry.key, map.get(&entry.key)?)))
}

fn number(node: &Node) -> Option<i64> {
    match &node.value {
        Value::Number(text) => text.parse().ok(),
        _ => None,
    }
}

fn text<'a>(message: &'a Node, field: &str) -> &'a str {
    message.get(field).and_then(Node::as_str).unwrap_or_default()
}

#[cfg(test)]
mod tests;
