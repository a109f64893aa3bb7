//! The admin listener: /metrics, /healthz and /readyz. Shows no pod data. Runs on the control thread.

use axum::Router;
use axum::extract::{RawQuery, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus_client::registry::Registry;
use std::fmt::Write as _;
use std::future::Future;
use std::sync::Arc;

/// One condition of readiness.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Check {
    /// What is checked, e.g. `source/manifest`.
    pub name: String,
    /// Whether it holds.
    pub is_ok: bool,
    /// What a person wants to know of it.
    pub detail: String,
}

/// Tells every condition of readiness as it stands.
pub type Checks = Arc<dyn Fn() -> Vec<Check> + Send + Sync>;

#[derive(Clone)]
struct Admin {
    metrics: Arc<Registry>,
    checks: Checks,
}

/// Serves until `stop` is done.
///
/// # Errors
/// When the listener fails.
pub async fn serve(
    listener: tokio::net::TcpListener,
    metrics: Arc<Registry>,
    checks: Checks,
    stop: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    let router = Router::new()
        .route("/metrics", get(show_metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(show_readiness))
        .with_state(Admin { metrics, checks });
    axum::serve(listener, router).with_graceful_shutdown(stop).await
}

async fn show_metrics(State(admin): State<Admin>) -> Response {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let mut text = String::new();
    match prometheus_client::encoding::text::encode(&mut text, &admin.metrics) {
        Ok(()) => ([(header::CONTENT_TYPE, OPEN_METRICS)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn show_readiness(State(admin): State<Admin>, RawQuery(query): RawQuery) -> (StatusCode, String) {
    let verbose =
        query.is_some_and(|query| query.split('&').any(|part| part.split('=').next() == Some("verbose")));
    report(&(admin.checks)(), verbose)
}

/// The answer in the form of Kubernetes' own health endpoints.
fn report(checks: &[Check], verbose: bool) -> (StatusCode, String) {
    let is_ready = checks.iter().all(|check| check.is_ok);
    let mut text = String::new();
    for check in checks.iter().filter(|check| verbose || !check.is_ok) {
        let mark = if check.is_ok { '+' } else { '-' };
        let state = if check.is_ok { "ok" } else { "failed" };
        let colon = if check.detail.is_empty() { "" } else { ": " };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "[{mark}]{} {state}{colon}{}", check.name, check.detail);
    }
    match (is_ready, verbose) {
        (true, false) => text.push_str("ok\n"),
        (true, true) => text.push_str("readyz check passed\n"),
        (false, _) => text.push_str("readyz check failed\n"),
    }
    (if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, is_ok: bool) -> Check {
        Check { name: name.into(), is_ok, detail: "2 files".into() }
    }

    #[test]
    fn readiness_names_what_is_missing() {
        let checks = [check("source/manifest", true), check("listener", false)];
        assert_eq!(
            report(&checks, false),
            (StatusCode::SERVICE_UNAVAILABLE, "[-]listener failed: 2 files\nreadyz check failed\n".into())
        );
        assert_eq!(report(&checks[..1], false), (StatusCode::OK, "ok\n".into()));
        assert_eq!(
            report(&checks[..1], true),
            (StatusCode::OK, "[+]source/manifest ok: 2 files\nreadyz check passed\n".into())
        );
    }
}
