//! Whether every required source has spoken.

use super::update::SourceId;
use std::sync::atomic::{AtomicU64, Ordering};

/// Which required sources have not delivered their first full set yet. Each goes off the list once and never back: a
/// source that fails later keeps its last state (rule E.5.4).
#[derive(Debug)]
pub struct Readiness {
    required: Vec<SourceId>,
    /// Bit i: `required[i]` has not delivered. Cleared by the store's thread, read by everyone.
    waiting: AtomicU64,
}

impl Readiness {
    /// Waits for `required`; ready at once when that is empty.
    #[must_use]
    pub fn new(required: impl IntoIterator<Item = SourceId>) -> Self {
        let mut required: Vec<_> = required.into_iter().collect();
        required.sort_unstable();
        required.dedup();
        assert!(required.len() < 64, "one bit for each kind of source");
        let waiting = AtomicU64::new((1 << required.len()) - 1);
        Self { required, waiting }
    }

    /// Whether the server may answer.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        // Acquire pairs with the Release in `delivered`: who sees ready then loads a snapshot with the first sets.
        self.waiting.load(Ordering::Acquire) == 0
    }

    /// The names of the sources that are waited for.
    #[must_use]
    pub fn waiting_for(&self) -> Vec<&'static str> {
        let waiting = self.waiting.load(Ordering::Acquire);
        let is_waiting = |index: &usize| waiting & (1 << index) != 0;
        (0..self.required.len()).filter(is_waiting).map(|index| self.required[index].as_str()).collect()
    }

    /// Notes that the first full set of `source` has been published.
    pub(super) fn delivered(&self, source: SourceId) {
        if let Some(index) = self.required.iter().position(|required| *required == source) {
            self.waiting.fetch_and(!(1 << index), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_once_every_required_source_has_delivered() {
        let readiness = Readiness::new([SourceId::Manifest, SourceId::Manifest]);
        assert_eq!((readiness.is_ready(), readiness.waiting_for()), (false, vec!["manifest"]));
        readiness.delivered(SourceId::Manifest);
        assert_eq!((readiness.is_ready(), readiness.waiting_for()), (true, vec![]));
        assert!(Readiness::new([]).is_ready());
    }
}
