//! Logs, to standard error.

use std::io::IsTerminal;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// Starts logging; `filter` has been checked by the configuration.
pub fn init(filter: &str, json: bool) {
    let filter: Targets = filter.parse().unwrap_or_else(|_| Targets::new());
    let registry = tracing_subscriber::registry().with(filter);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    // A second call keeps the first subscriber: only tests make one.
    let _ = if json {
        registry.with(layer.json().flatten_event(true)).try_init()
    } else {
        registry.with(layer.with_ansi(std::io::stderr().is_terminal())).try_init()
    };
}
