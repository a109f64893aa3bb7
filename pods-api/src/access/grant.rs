//! What a rule lets its callers do and see.

use crate::pod::{Namespace, Selector};
use crate::wire::Mask;
use std::collections::BTreeSet;
use std::sync::Arc;

/// What a rule can allow or leave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// ListPods.
    List,
    /// GetPod.
    Get,
    /// WatchPods, and seeing who watches.
    Watch,
    /// Lookup.
    Lookup,
}

/// A set of operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operations(u8);

/// What one rule grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The rule, as it was given.
    pub rule: Box<str>,
    /// What may be called.
    pub operations: Operations,
    /// The fields that may be seen, in whatever way.
    pub ceiling: Mask,
    /// The namespaces whose pods may be seen; `None` for all.
    pub namespaces: Option<BTreeSet<Namespace>>,
}

/// What tells pods apart.
const IDENTITY: [&str; 3] = ["metadata.uid", "metadata.namespace", "metadata.name"];

impl Operation {
    /// Every operation.
    pub const ALL: [Self; 4] = [Self::List, Self::Get, Self::Watch, Self::Lookup];

    /// The operation as rules name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Get => "get",
            Self::Watch => "watch",
            Self::Lookup => "lookup",
        }
    }
}

impl Operations {
    /// No operation.
    pub const NONE: Self = Self(0);
    /// Every operation.
    pub const ALL: Self = Self(0b1111);

    /// Adds an operation to the set.
    pub fn add(&mut self, operation: Operation) {
        self.0 |= 1 << operation as u8;
    }

    fn contains(self, operation: Operation) -> bool {
        self.0 & 1 << operation as u8 != 0
    }
}

impl Grant {
    /// Every operation on every pod, whole.
    #[must_use]
    pub fn of_everything(rule: &str) -> Self {
        Self { rule: rule.into(), operations: Operations::ALL, ceiling: Mask::All, namespaces: None }
    }

    /// Whether an operation may be called.
    #[must_use]
    pub fn allows(&self, operation: Operation) -> bool {
        self.operations.contains(operation)
    }

    /// Whether the pods of a namespace may be seen.
    #[must_use]
    pub fn shows_namespace(&self, namespace: &Namespace) -> bool {
        self.namespaces.as_ref().is_none_or(|shown| shown.contains(namespace))
    }

    /// Whether nothing is kept from the caller.
    #[must_use]
    pub fn is_unrestricted(&self) -> bool {
        self.operations == Operations::ALL && self.ceiling.is_all() && self.namespaces.is_none()
    }

    /// Whether all of these fields may be seen.
    ///
    /// # Errors
    /// The first that may not.
    pub fn require_visible<P: AsRef<str>>(&self, paths: impl IntoIterator<Item = P>) -> Result<(), P> {
        if self.ceiling.is_all() {
            return Ok(());
        }
        paths.into_iter().find(|path| !self.ceiling.contains(path.as_ref())).map_or(Ok(()), Err)
    }

    /// A field by which watches tell pods apart, and which is hidden from them.
    #[must_use]
    pub fn hidden_identity(&self) -> Option<&'static str> {
        let is_watched = self.allows(Operation::Watch);
        is_watched.then(|| self.require_visible(IDENTITY).err()).flatten()
    }

    /// The selection `wanted`, of the pods that may be seen; `None` for all pods.
    ///
    /// # Errors
    /// The first field that the selection depends on and that may not be seen: whoever selects by it learns it.
    pub fn selection(&self, wanted: Option<Selector>) -> Result<Option<Selector>, String> {
        if let Some(selector) = &wanted {
            let namespace = selector.namespace().map(|_| "metadata.namespace".to_owned());
            let labels = selector.keys().map(|key| format!("metadata.labels.`{key}`"));
            self.require_visible(namespace.into_iter().chain(labels))?;
        }
        Ok(match &self.namespaces {
            None => wanted,
            Some(shown) => {
                let shown: Arc<[Namespace]> = shown.iter().cloned().collect();
                Some(wanted.unwrap_or_default().within(shown))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::rule::Rule;
    use super::*;

    fn grant(options: &str) -> Grant {
        Grant::clone(&format!("uid=1,{options}").parse::<Rule>().unwrap().grant)
    }

    fn selector(namespace: Option<&str>, labels: &str) -> Option<Selector> {
        Some(Selector::parse(labels).unwrap().in_namespace(namespace.map(Namespace::from)))
    }

    #[test]
    fn only_visible_fields_may_be_selected_by() {
        let grant = grant("fields=metadata.name+metadata.labels.`app`");
        assert_eq!(grant.selection(None), Ok(None));
        assert_eq!(grant.selection(selector(None, "app=web")), Ok(selector(None, "app=web")));
        assert_eq!(grant.selection(selector(None, "app=web,!tier")), Err("metadata.labels.`tier`".into()));
        assert_eq!(grant.selection(selector(Some("shop"), "")), Err("metadata.namespace".into()));
        let whole = Grant::of_everything("uid=1");
        assert_eq!(whole.selection(selector(Some("shop"), "!tier")), Ok(selector(Some("shop"), "!tier")));
    }

    #[test]
    fn hidden_identity_matters_to_those_who_watch() {
        assert_eq!(grant("fields=metadata.name").hidden_identity(), Some("metadata.uid"));
        assert_eq!(grant("fields=metadata.uid+metadata.name").hidden_identity(), Some("metadata.namespace"));
        assert_eq!(grant("fields=metadata.name,methods=list+get").hidden_identity(), None);
        for whole in ["fields=metadata", "profile=no-env", "methods=watch"] {
            assert_eq!(grant(whole).hidden_identity(), None, "{whole}");
        }
    }

    #[test]
    fn a_scope_holds_whether_or_not_something_is_selected() {
        let grant = grant("namespaces=shop+web");
        for wanted in [None, selector(None, ""), selector(Some("shop"), "")] {
            let selection = grant.selection(wanted).unwrap().unwrap();
            assert!(selection.matches(&"shop".into(), |_| None));
            assert!(!selection.matches(&"kube-system".into(), |_| None));
            assert!(!selection.is_everything());
        }
        let outside = grant.selection(selector(Some("kube-system"), "")).unwrap().unwrap();
        assert!(
            !outside.matches(&"kube-system".into(), |_| None) && !outside.matches(&"shop".into(), |_| None)
        );
    }
}
