//! Checks of volumes.

use super::super::defaults::VOLUME_SOURCES;
use super::super::problem::At;
use super::{Checks, items, syntax, text};
use crate::wire::{Node, Quantity, Value};
use std::collections::HashSet;

/// Volume sources that read an object of the API (rule A.2.8).
const API_SOURCES: [&str; 4] = ["secret", "configMap", "persistentVolumeClaim", "ephemeral"];

impl Checks {
    /// Checks the volumes of a pod spec and gives their names.
    pub(super) fn volumes<'a>(&mut self, spec: &'a Node, at: &At<'_>) -> HashSet<&'a str> {
        let mut names = HashSet::new();
        let at = at.field("volumes");
        for (index, volume) in items(spec, "volumes").iter().enumerate() {
            let at = at.index(index);
            self.needed(volume, "name", &at, syntax::dns_label);
            self.unique(&mut names, text(volume, "name"), volume, &at.field("name"));
            let sources: Vec<_> =
                VOLUME_SOURCES.iter().filter(|source| volume.get(source).is_some()).collect();
            if let [first, second, ..] = sources[..] {
                self.problem(volume, &at, format!("has two sources, {first} and {second}"));
            }
            if let Some(path) = volume.get("hostPath") {
                let at = at.field("hostPath");
                self.path(path, "path", &at);
            }
            if let Some(limit) = volume.get("emptyDir").and_then(|source| source.get("sizeLimit")) {
                self.quantity(limit, &at.field("emptyDir").field("sizeLimit"));
            }
            for source in API_SOURCES {
                if let Some(node) = volume.get(source) {
                    self.notice(node, &at.field(source));
                }
            }
            if let Some(projected) = volume.get("projected") {
                self.projected(projected, &at.field("projected"));
            }
        }
        names
    }

    fn projected(&mut self, projected: &Node, at: &At<'_>) {
        let at = at.field("sources");
        for (index, source) in items(projected, "sources").iter().enumerate() {
            let at = at.index(index);
            if let Some(bundle) = source.get("clusterTrustBundle") {
                let reason = "a static pod may not use cluster trust bundles";
                self.problem(bundle, &at.field("clusterTrustBundle"), reason);
            }
            for field in ["secret", "configMap", "serviceAccountToken"] {
                if let Some(node) = source.get(field) {
                    self.notice(node, &at.field(field));
                }
            }
        }
    }

    /// A path that is needed and does not climb.
    pub(super) fn path(&mut self, message: &Node, field: &str, at: &At<'_>) {
        let path = text(message, field);
        let node = message.get(field).unwrap_or(message);
        if path.is_empty() {
            self.problem(node, &at.field(field), "is needed");
        }
        self.no_climb(node, path, &at.field(field));
    }

    pub(super) fn no_climb(&mut self, node: &Node, path: &str, at: &At<'_>) {
        if path.split('/').any(|part| part == "..") {
            self.problem(node, at, "must not contain '..'");
        }
    }

    /// A quantity that is not negative; gives it if it can be read.
    pub(super) fn quantity(&mut self, node: &Node, at: &At<'_>) -> Option<Quantity> {
        let (Value::String(text) | Value::Number(text)) = &node.value else { return None };
        match Quantity::parse(text) {
            Ok(quantity) => {
                if quantity.is_negative() {
                    self.problem(node, at, "must not be negative");
                }
                Some(quantity)
            }
            Err(error) => {
                self.problem(node, at, error.to_string());
                None
            }
        }
    }
}
