//! A published value: a writer replaces it, any thread loads it without waiting.

use std::sync::Arc;

/// Holds the newest `Arc` of something. Under loom, which cannot see into arc-swap, a mutex stands in for it.
#[derive(Debug)]
pub struct Published<T> {
    #[cfg(not(feature = "loom"))]
    value: arc_swap::ArcSwap<T>,
    #[cfg(feature = "loom")]
    value: loom::sync::Mutex<Arc<T>>,
}

/// A borrowed value of a [`Published`].
#[cfg(not(feature = "loom"))]
pub type Loaded<T> = arc_swap::Guard<Arc<T>>;
#[cfg(feature = "loom")]
#[allow(missing_docs)]
pub type Loaded<T> = Arc<T>;

#[cfg(not(feature = "loom"))]
impl<T> Published<T> {
    /// Publishes a first value.
    pub fn new(value: Arc<T>) -> Self {
        Self { value: arc_swap::ArcSwap::new(value) }
    }

    /// Borrows the newest value: no lock, no contended counter. For short reads; keep a [`Published::load_full`].
    pub fn load(&self) -> Loaded<T> {
        self.value.load()
    }

    /// The newest value, to keep.
    pub fn load_full(&self) -> Arc<T> {
        self.value.load_full()
    }

    /// Replaces the value. Whoever loads afterwards sees it and all that happened before.
    pub fn store(&self, value: Arc<T>) {
        self.value.store(value);
    }

    /// Replaces the value by what `change` makes of it. For values with several writers: `change` is called again when
    /// another one was faster.
    pub fn update(&self, mut change: impl FnMut(&T) -> T) {
        self.value.rcu(|value| change(value));
    }
}

#[cfg(feature = "loom")]
#[allow(missing_docs)]
impl<T> Published<T> {
    pub fn new(value: Arc<T>) -> Self {
        Self { value: loom::sync::Mutex::new(value) }
    }

    pub fn load(&self) -> Loaded<T> {
        self.load_full()
    }

    pub fn load_full(&self) -> Arc<T> {
        Arc::clone(&self.value.lock().expect("no holder panics"))
    }

    pub fn store(&self, value: Arc<T>) {
        *self.value.lock().expect("no holder panics") = value;
    }

    pub fn update(&self, mut change: impl FnMut(&T) -> T) {
        let mut value = self.value.lock().expect("no holder panics");
        *value = Arc::new(change(&value));
    }
}
