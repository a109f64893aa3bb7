//! The primitives that loom replaces when the concurrency models run.

#[cfg(feature = "loom")]
pub(super) use loom::sync::Mutex;
#[cfg(feature = "loom")]
pub(super) use loom::sync::atomic::{AtomicU8, AtomicU64, Ordering};
#[cfg(not(feature = "loom"))]
pub(super) use std::sync::Mutex;
#[cfg(not(feature = "loom"))]
pub(super) use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// A place that is filled once by one thread and read by any, without waiting.
#[derive(Debug)]
pub(super) struct Slot<T> {
    value: std::sync::OnceLock<T>,
    /// Stands for the lock's own state, which loom cannot see.
    #[cfg(feature = "loom")]
    is_set: loom::sync::atomic::AtomicBool,
}

impl<T> Slot<T> {
    pub(super) fn new() -> Self {
        Self {
            value: std::sync::OnceLock::new(),
            #[cfg(feature = "loom")]
            is_set: loom::sync::atomic::AtomicBool::new(false),
        }
    }

    /// The value, if it has been set. An acquire load, pairing with the release in [`Slot::set`].
    pub(super) fn get(&self) -> Option<&T> {
        #[cfg(feature = "loom")]
        if !self.is_set.load(Ordering::Acquire) {
            return None;
        }
        self.value.get()
    }

    /// Fills the slot.
    pub(super) fn set(&self, value: T) {
        assert!(self.value.set(value).is_ok(), "a log has one writer, which fills each slot once");
        #[cfg(feature = "loom")]
        self.is_set.store(true, Ordering::Release);
    }

    /// Empties the slot, which nobody shares.
    pub(super) fn take(&mut self) -> Option<T> {
        self.value.take()
    }
}
