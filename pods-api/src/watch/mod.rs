//! The watch engine: one log per view, and a bounded ring of log positions per watcher.
