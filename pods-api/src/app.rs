//! The composition root: what is started, in which order, on which thread, and how it stops.
//!
//! Threads: `store` (the one writer), `manifest` (files), `runtime` (the container runtime), `kernel` (cgroups and
//! processes), `worker-N` (client connections), and the main thread, which becomes the control thread: one
//! current-thread runtime for the admin listener, the services behind the tower adapter, and the timers here.

mod socket_care;
mod status_view;

use crate::admin;
use crate::config::{self, Config};
use crate::grpc::{Limits, Refusals, RequestCounters, Server, Shared};
use crate::kernel::{self, CgroupMap, Feed, Hint, KernelConfig, KernelRoom, Locator, Refusal};
use crate::lifecycle;
use crate::metrics::{self, Families};
use crate::pod::{ByteMeter, PodStore, Published, StoreConfig};
use crate::privileges;
use crate::runtime::{RuntimeConfig, RuntimeHints, RuntimeSource};
use crate::source::manifest::{ManifestConfig, ManifestSource};
use crate::telemetry;
use crate::transport::{BindError, Listener, ListenerConfig, Reactor, ReactorConfig, StartError};
use crate::watch::{Hub, HubConfig};
use prometheus_client::registry::Registry;
use sd_notify::NotifyState;
use socket_care::SocketCare;
use status_view::StatusView;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;
use tonic::service::Routes;
use tonic_health::ServingStatus;
use tracing::{error, info, warn};

/// How long calls may take to end after a stop signal.
const DRAIN: Duration = Duration::from_secs(10);

/// How often the socket is looked after (SOCK-5: bound again within 5 s).
const SOCKET_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// How often the start looks whether all sources have delivered.
const READINESS_POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Services whose health is reported beside the whole server's.
const SERVICES: [&str; 3] = ["v1alpha1.Pods", "Pods", "podsapi.v1.Node"];

/// Why the server did not come up.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// The client socket.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The workers.
    #[error(transparent)]
    Transport(#[from] StartError),
    /// The admin listener.
    #[error("--admin {address}: cannot listen there; give another address, or none")]
    Admin {
        /// What was asked for.
        address: SocketAddr,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// A thread that served clients or kept the pods has panicked: what is still served would go stale or hang.
    #[error("internal failure: the {0} has panicked; the log says where")]
    Panicked(&'static str),
    /// The kernel programs, where they are required.
    #[error("--ebpf require: {0}")]
    Ebpf(Refusal),
    /// Privileges that are not needed any more.
    #[error("cannot give up privileges")]
    Privileges(#[from] privileges::PrivilegesError),
    /// A thread, a runtime or a signal handler.
    #[error("cannot start {what}")]
    Start {
        /// What was to be started.
        what: &'static str,
        /// What the kernel says.
        source: std::io::Error,
    },
}

impl AppError {
    /// Whether another start with the same configuration would fail in the same way, whatever else runs.
    #[must_use]
    pub fn is_of_configuration(&self) -> bool {
        matches!(self, Self::Bind(error) if error.is_of_configuration())
    }
}

/// Serves until SIGTERM or SIGINT, then drains.
///
/// # Errors
/// When something cannot be started; what had been started is stopped again.
pub fn serve(config: &Config) -> Result<(), AppError> {
    telemetry::init(&config.log, config.log_json);
    for unknown in config::unknown_environment() {
        warn!(
            name = unknown.name,
            nearest = unknown.nearest,
            "environment variable is no flag's and not used"
        );
    }
    let start = |what| move |source| AppError::Start { what, source };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(start("the control thread's runtime"))?;
    runtime.block_on(run(config))
}

async fn run(config: &Config) -> Result<(), AppError> {
    let start = |what| move |source| AppError::Start { what, source };
    // First, so that a signal during the start is not lost.
    let stop = lifecycle::StopSignals::new().map_err(start("signal handling"))?;
    // The names are taken before any work: a second instance must fail at once and disturb nothing.
    let listener = Listener::bind(ListenerConfig {
        path: config.socket.clone(),
        mode: config.socket_mode,
        group: config.socket_group.clone(),
    })?;
    let admin = match config.admin {
        Some(address) => {
            let listener = tokio::net::TcpListener::bind(address).await;
            Some(listener.map_err(|source| AppError::Admin { address, source })?)
        }
        None => None,
    };
    let admin_address = admin.as_ref().and_then(|admin| admin.local_addr().ok());

    // What needs privileges stands above this line, what starts a thread below it.
    let (ebpf, programs) = kernel::load_as_configured(&config.ebpf).map_err(AppError::Ebpf)?;
    give_up_privileges(privileges::Needs {
        socket_group: config.socket_group.is_some(),
        ebpf: programs.is_some() && kernel::does_map_access_need_capability(),
    })?;
    let (feed, map) = programs.map_or((None, None), |(ring, map)| (Some(ring), Some(map)));

    let snapshots = Arc::new(Published::new(Arc::default()));
    let meter = ByteMeter::default();
    let hub_config = HubConfig {
        max_watchers: config.max_watchers,
        max_pinned_bytes: config.max_pinned_bytes,
        ..HubConfig::default()
    };
    let (hub, publisher) = Hub::new(snapshots.clone(), meter.clone(), hub_config);
    let store_config = StoreConfig {
        required: config.require.iter().copied().collect(),
        tombstones_kept_for: config.tombstone_ttl,
        ..StoreConfig::default()
    };
    let (store, store_thread) =
        PodStore::spawn(&store_config, snapshots, meter, publisher).map_err(start("the store's thread"))?;
    let updates = store.updates();
    // A store that has stopped takes nothing more; neither do its sources go on for long then.
    let to_store = move |update| drop(updates.send(update));
    let container_runtime = match &config.cri {
        Some(socket) => {
            let runtime_config =
                RuntimeConfig { follow_events: config.runtime_events, ..RuntimeConfig::new(socket.clone()) };
            let room = RuntimeSource::spawn(runtime_config, to_store.clone());
            Some(room.map_err(start("the runtime's thread"))?)
        }
        None => None,
    };
    let manifest_config = ManifestConfig {
        extensions: config.manifest_extensions.clone(),
        ..ManifestConfig::new(&config.manifests, config.node_name.clone())
    };
    let manifests = match &container_runtime {
        // Static pods get the kubelet's UIDs on their way.
        Some(room) => ManifestSource::spawn(manifest_config, room.manifests()),
        None => ManifestSource::spawn(manifest_config, to_store),
    };
    let manifests = manifests.map_err(start("the manifest source's thread"))?;

    let kernel = KernelRoom::spawn(KernelConfig {
        root: config.cgroup_root.clone(),
        keep: config.tombstone_ttl,
        feed: feed.map(|ring| ("eBPF", Box::new(ring) as Box<dyn Feed>)),
        map: map.map(|map| Box::new(map) as Box<dyn CgroupMap>),
        hint: Box::new(hints_to(container_runtime.as_ref().map(RuntimeSource::hints))),
        store: store.clone(),
    })
    .map_err(start("the kernel thread"))?;
    let locator = Arc::new(Locator::new(config.cgroup_root.clone(), kernel.view().clone(), store.clone()));

    for grant in config.policy.rules().iter().map(|rule| &rule.grant) {
        if let Some(field) = grant.hidden_identity() {
            warn!(rule = %grant.rule, field, "watches under this rule cannot tell pods apart: a field of their identity is hidden");
        }
    }
    let shared = Arc::new(Shared {
        store: store.clone(),
        hub: hub.clone(),
        policy: config.policy.clone(),
        identify: locator.clone(),
        locate: locator,
        refusals: Refusals::default(),
        limits: Limits::new(config.rate_limit_scope, config.rate_limit_qps, config.rate_limit_burst),
        counters: RequestCounters::default(),
        watch_buffer: config.watch_buffer,
    });
    let (health, health_service) = tonic_health::server::health_reporter();
    let routes = reflection(Routes::new(health_service));
    let server = Server::new(shared.clone(), routes, tokio::runtime::Handle::current());
    set_health(&health, ServingStatus::NotServing).await;
    let reactor_config = ReactorConfig {
        workers: config.workers.get(),
        transport: config.transport,
        max_connections: config.max_connections,
        ..ReactorConfig::default()
    };
    let reactor = Reactor::spawn(listener, Arc::new(server.acceptor()), reactor_config)?;

    let socket_care = Arc::new(SocketCare::default());
    let view = Arc::new(StatusView {
        shared,
        manifests: manifests.status().clone(),
        container_runtime: container_runtime.as_ref().map(|room| room.status().clone()),
        kernel: kernel.view().clone(),
        ebpf,
        reactor: reactor.monitor(),
        socket: socket_care.clone(),
        started: Instant::now(),
    });
    let (admin_stop, admin_stopped) = tokio::sync::oneshot::channel::<()>();
    let admin_task = admin.map(|listener| {
        let checks = {
            let view = view.clone();
            Arc::new(move || view.checks())
        };
        let mut registry = Registry::default();
        let families = {
            let view = view.clone();
            Families(move |scrape: &mut metrics::Scrape<'_>| view.metrics(scrape))
        };
        registry.register_collector(Box::new(families));
        tokio::spawn(admin::serve(listener, Arc::new(registry), checks, async {
            // Stops too when the sender is gone.
            let _ = admin_stopped.await;
        }))
    });
    info!(
        version = env!("CARGO_PKG_VERSION"),
        socket = %config.socket.display(),
        admin = admin_address.map(tracing::field::display),
        manifests = %config.manifests.display(),
        node = %config.node_name,
        "serving"
    );
    // Not when the sources have delivered: what waits for this unit, the boot among it, must not hang on a container
    // runtime that is down. Until then calls are answered that the server is not ready.
    notify_systemd(&[
        NotifyState::Ready,
        NotifyState::Status("listening; not ready yet, see pods-api doctor"),
    ]);

    let mut care = tokio::time::interval(SOCKET_CHECK_INTERVAL);
    care.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut readiness = tokio::time::interval(READINESS_POLL_INTERVAL);
    let mut is_ready = false;
    let mut stop = std::pin::pin!(stop.received());
    let cause = loop {
        tokio::select! {
            signal = &mut stop => break Ok(signal),
            _ = readiness.tick(), if !is_ready => {
                is_ready = store.readiness().is_ready();
                if is_ready {
                    info!(pods = store.load().len(), "ready");
                    set_health(&health, ServingStatus::Serving).await;
                    notify_systemd(&[NotifyState::Status("ready")]);
                }
            }
            _ = care.tick() => {
                socket_care.learn(&config.socket, reactor.check_listener());
                if !store_thread.is_running() {
                    break Err(AppError::Panicked("store"));
                }
                if reactor.status().workers.iter().any(|worker| !worker.is_running) {
                    break Err(AppError::Panicked("worker"));
                }
            }
        }
    };

    match &cause {
        Ok(signal) => info!(signal, "stopping"),
        Err(error) => error!(%error, "stopping, to be started anew"),
    }
    notify_systemd(&[NotifyState::Stopping]);
    set_health(&health, ServingStatus::NotServing).await;
    // Watches end with UNAVAILABLE; other calls are answered, for as long as that takes at most.
    hub.close();
    let drained = tokio::task::spawn_blocking(move || reactor.shutdown(DRAIN)).await;
    drop(admin_stop);
    if let Some(task) = admin_task {
        let _ = tokio::time::timeout(Duration::from_secs(1), task).await;
    }
    // The manifest thread may wait for the runtime's, and that one for the store's: they end in this order.
    manifests.stop();
    drop(kernel);
    drop(container_runtime);
    let store_ended = store_thread.stop();
    match drained {
        Ok(drained) if drained.in_time && !drained.has_panicked && store_ended.is_ok() => info!("stopped"),
        outcome => warn!(?outcome, "stopped, but not every connection or thread ended in order"),
    }
    cause.map(drop)
}

fn give_up_privileges(needs: privileges::Needs) -> Result<(), AppError> {
    let kept = privileges::give_up_all_but(needs)?;
    info!(%kept, "capabilities given up");
    Ok(())
}

/// Hands the kernel room's hints to the container runtime's, if there is one.
fn hints_to(runtime: Option<RuntimeHints>) -> impl FnMut(Hint) + Send {
    move |hint| {
        let Some(runtime) = &runtime else { return };
        match hint {
            Hint::Appeared(pod, container) => runtime.appeared(pod, container),
            Hint::Ended(container) => runtime.ended(container),
            Hint::OutOfMemory(container) => runtime.out_of_memory(container),
            Hint::Everything => runtime.look_at_everything(),
        }
    }
}

/// gRPC server reflection, v1 and v1alpha, over every schema in `proto/`.
fn reflection(routes: Routes) -> Routes {
    const VALID: &str = "the embedded descriptor sets are valid: the build made them";
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(pods_api_proto::DESCRIPTOR_SET)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
    };
    routes
        .add_service(builder().build_v1().expect(VALID))
        .add_service(builder().build_v1alpha().expect(VALID))
}

async fn set_health(health: &tonic_health::server::HealthReporter, status: ServingStatus) {
    for service in SERVICES.into_iter().chain([""]) {
        health.set_service_status(service, status).await;
    }
}

/// Tells systemd, where it has started us.
fn notify_systemd(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "systemd cannot be notified");
    }
}
