//! Answers under a field mask: cut from a record's bytes on first demand, and kept with what they were cut from.
//!
//! Any reader may make them, none waits for another: readers that race make the same bytes twice.

use super::cell::Published;
use super::record::Record;
use crate::wire::Mask;
use crate::wire::splice::deleted_stub;
use std::fmt;
use std::sync::Arc;

/// Masks whose answers are kept at one time: the agents of a node are a handful, each with a mask of its own. What is
/// kept for a mask is at most as large as the whole answer.
const MAX_MASKS: usize = 8;

/// One value per mask, for the masks used last. A clone begins empty: it is made in order to be changed.
pub(super) struct PerMask<T>(Published<Vec<(Mask, T)>>);

impl<T: Clone> PerMask<T> {
    /// The value kept for `mask`, else a new one.
    pub(super) fn get_or_make(&self, mask: &Mask, make: impl FnOnce() -> T) -> T {
        let kept = self.0.load();
        if let Some((_, value)) = kept.iter().find(|(known, _)| known == mask) {
            return value.clone();
        }
        let value = make();
        let newest = kept.len().saturating_sub(MAX_MASKS - 1);
        let mut values = kept[newest..].to_vec();
        values.push((mask.clone(), value.clone()));
        // What another reader stored meanwhile is lost and made again when it is asked for.
        self.0.store(Arc::new(values));
        value
    }
}

impl<T> Default for PerMask<T> {
    fn default() -> Self {
        Self(Published::new(Arc::default()))
    }
}

impl<T> Clone for PerMask<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<T> fmt::Debug for PerMask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PerMask").finish_non_exhaustive()
    }
}

/// Appends what `mask` selects of a pod. Of a pod that is malformed where the mask looks only the identity is shown.
pub(crate) fn append_projection(record: &Record, mask: &Mask, out: &mut Vec<u8>) {
    if mask.project(record.pod_bytes(), out).is_err() {
        let stub = deleted_stub(record.uid().as_str(), record.namespace().as_str(), record.name().as_str());
        // The stub was encoded by this server.
        let _ = mask.project(&stub, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_value_is_made_once_per_mask_and_the_oldest_is_forgotten() {
        let kept = PerMask::default();
        let made = Cell::new(0);
        let get = |path: &str| {
            let mask = Mask::parse(path).unwrap();
            kept.get_or_make(&mask, || {
                made.set(made.get() + 1);
                path.to_owned()
            })
        };
        let paths =
            ["name", "namespace", "uid", "labels", "annotations", "generation", "finalizers", "selfLink"]
                .map(|name| format!("metadata.{name}"));
        for _ in 0..2 {
            paths.iter().for_each(|path| assert_eq!(get(path), *path));
        }
        assert_eq!(made.get(), MAX_MASKS);
        get("spec.nodeName");
        get(&paths[1]);
        assert_eq!(made.get(), MAX_MASKS + 1);
        get(&paths[0]);
        assert_eq!(made.get(), MAX_MASKS + 2);
        assert!(kept.clone().0.load().is_empty());
    }
}
