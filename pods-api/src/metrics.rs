//! Every metric family: name, help, and where its value is read.
//!
//! Rooms keep plain counters of their own; a scrape reads them. So no metric is kept twice, and no room depends on
//! the exposition format.

mod scrape;

pub use scrape::{Families, Scrape};

use crate::grpc::{Api, Method, Rejection, RequestCounters};
use crate::kernel::{EbpfState, KernelView};
use crate::pod::{ChangeKind, PUBLISH_SECONDS, PodStore};
use crate::runtime::{EventSource, RuntimeStatus};
use crate::source::manifest::ManifestStatus;
use crate::transport::{Close, Counters, Status};
use crate::watch::Hub;
use std::fmt;
use std::time::Instant;

/// The documented request metrics (rules E.3.3 to E.3.5), and ours for calls they leave out.
pub(crate) fn requests(scrape: &mut Scrape<'_>, requests: &RequestCounters) -> fmt::Result {
    let of = |wanted: Option<Method>| {
        let mut sums = std::collections::BTreeMap::<(&str, &str), u64>::new();
        for (api, method, code, count) in requests.iter() {
            let is_documented = matches!(method, Method::List | Method::Get | Method::Watch);
            if wanted.map_or(is_documented, |wanted| wanted == method) {
                *sums.entry((api.as_str(), code.go_name())).or_default() += count;
            }
        }
        sums.into_iter().map(|((api, code), count)| {
            ([("server_api_version", api.to_owned()), ("status_code", code.to_owned())], count)
        })
    };
    scrape.counters(
        "kubelet_pod_requests",
        "[ALPHA] Cumulative number of pod requests that ended",
        of(None),
    )?;
    scrape.counters(
        "kubelet_pod_requests_list",
        "[ALPHA] Cumulative number of ListPods requests that ended",
        of(Some(Method::List)),
    )?;
    scrape.counters(
        "kubelet_pod_requests_get",
        "[ALPHA] Cumulative number of GetPod requests that ended",
        of(Some(Method::Get)),
    )?;
    scrape.counters(
        "kubelet_pod_requests_watch",
        "[ALPHA] Cumulative number of WatchPods requests that ended",
        of(Some(Method::Watch)),
    )?;
    let node = requests.iter().filter(|(api, ..)| *api == Api::Node).map(|(_, method, code, count)| {
        ([("method", method.as_str().to_owned()), ("status_code", code.go_name().to_owned())], count)
    });
    scrape.counters("pods_api_node_requests", "Calls of podsapi.v1.Node that ended", node)?;
    scrape.counters(
        "pods_api_requests_rejected",
        "Calls turned away before they were counted as requests, by reason",
        Rejection::ALL.map(|reason| ([("reason", reason.as_str().to_owned())], requests.rejections(reason))),
    )
}

/// The process itself.
pub(crate) fn process(scrape: &mut Scrape<'_>, started: Instant) -> fmt::Result {
    let version = [([("version", env!("CARGO_PKG_VERSION").to_owned())], 1.0)];
    scrape.gauges("pods_api_build_info", "The version of the server; always 1", version)?;
    scrape.gauge("pods_api_uptime_seconds", "Time since the start", started.elapsed().as_secs_f64())
}

/// The watch engine.
pub(crate) fn watch(scrape: &mut Scrape<'_>, hub: &Hub) -> fmt::Result {
    let stats = hub.stats();
    // Name and help text are the kubelet's (rule E.3.6).
    scrape.counter(
        "kubelet_pod_watch_events_dropped",
        "[ALPHA] Cumulative number of pod watch events dropped",
        stats.dropped(),
    )?;
    scrape.gauge("pods_api_watchers", "Watches open now", hub.watcher_count() as f64)?;
    scrape.gauge("pods_api_watch_views", "Distinct projections watched now", hub.view_count() as f64)?;
    scrape.gauge(
        "pods_api_watch_pinned_bytes",
        "Bytes kept only because a watcher has not read them yet",
        stats.pinned_bytes() as f64,
    )?;
    scrape.counter(
        "pods_api_watchers_cut_for_memory",
        "Watches ended because they pinned too much memory",
        stats.cut_for_memory(),
    )?;
    scrape.counter(
        "pods_api_watchers_coalesced",
        "Times that a slow watch turned from events to the newest state per pod",
        stats.coalesced(),
    )
}

/// The store.
pub(crate) fn store(scrape: &mut Scrape<'_>, store: &PodStore) -> fmt::Result {
    let stats = store.stats();
    scrape.gauge(
        "pods_api_ready",
        "1 once every required source has delivered",
        f64::from(u8::from(store.readiness().is_ready())),
    )?;
    scrape.gauge("pods_api_pods", "Pods in ListPods", stats.pods() as f64)?;
    scrape.gauge(
        "pods_api_tombstones",
        "Pods that have left and are still findable by Lookup",
        stats.tombstones() as f64,
    )?;
    scrape.gauge("pods_api_pod_bytes", "Encoded size of all pods", stats.pod_bytes() as f64)?;
    scrape.gauge("pods_api_revision", "Number of the newest event", stats.revision() as f64)?;
    scrape.gauge(
        "pods_api_updates_queued",
        "Updates of sources that wait for the store",
        store.queued() as f64,
    )?;
    scrape.counters(
        "pods_api_events",
        "Events published, by type",
        ChangeKind::ALL.map(|kind| ([("type", kind.as_str().to_owned())], stats.events(kind))),
    )?;
    scrape.counter("pods_api_pods_rejected", "Pods of a source that could not be read", stats.rejected())?;
    let publish = stats.publish_histogram();
    scrape.histogram(
        "pods_api_publish_seconds",
        "Time from taking a batch of updates to waking the workers",
        &PUBLISH_SECONDS,
        &publish.buckets,
        publish.sum,
    )
}

/// How old what each source said last is.
pub(crate) fn source_ages<const N: usize>(
    scrape: &mut Scrape<'_>,
    sources: [(&'static str, Option<Instant>); N],
) -> fmt::Result {
    let ages = sources.into_iter().filter_map(|(source, read)| {
        read.map(|read| ([("source", source.to_owned())], read.elapsed().as_secs_f64()))
    });
    scrape.gauges("pods_api_source_age_seconds", "Time since a source was last read in full", ages)
}

/// The container runtime.
pub(crate) fn runtime(scrape: &mut Scrape<'_>, status: &RuntimeStatus) -> fmt::Result {
    let (report, counts) = (status.report(), status.counts());
    let up = f64::from(u8::from(report.runtime.is_some()));
    scrape.gauge("pods_api_runtime_up", "1 while a container runtime answers", up)?;
    let events = [EventSource::None, EventSource::Containerd, EventSource::Cri].map(|source| {
        let is_used = f64::from(u8::from(source == report.events));
        ([("source", source.as_str().to_owned())], is_used)
    });
    scrape.gauges(
        "pods_api_runtime_event_source",
        "1 for where the runtime's events come from; with none, lists alone tell of changes",
        events,
    )?;
    scrape.gauge("pods_api_runtime_pods", "Pods of which the runtime has anything", report.pods as f64)?;
    scrape.gauge(
        "pods_api_runtime_list_seconds",
        "How long the last full list of the runtime took",
        report.last_list_took.as_secs_f64(),
    )?;
    for (name, help, value) in [
        ("pods_api_runtime_connections", "Connections made to a container runtime", counts.sessions),
        ("pods_api_runtime_lists", "Full lists taken of the runtime", counts.lists),
        ("pods_api_runtime_reads", "Reads of single pods from the runtime", counts.reads),
        ("pods_api_runtime_failures", "Lists and reads that failed or took too long", counts.failures),
        ("pods_api_runtime_events", "Events of the runtime", counts.events),
        (
            "pods_api_runtime_streams_lost",
            "Event streams of the runtime that ended or were refused",
            counts.streams_lost,
        ),
        ("pods_api_runtime_hints", "Hints to look at a container now", counts.hints),
        (
            "pods_api_runtime_hints_dropped",
            "Hints that found the queue full and were answered with a full list",
            counts.hints_dropped,
        ),
    ] {
        scrape.counter(name, help, value)?;
    }
    scrape.counter(
        "pods_api_status_comparisons",
        "Times that the kubelet's status of a pod was compared with the one derived from the runtime",
        status.divergences().comparisons(),
    )?;
    scrape.counters(
        "pods_api_status_divergence",
        "Times that the kubelet's status of a pod differed from the one derived from the runtime, by field",
        status.divergences().iter().map(|(field, count)| ([("field", field.as_str().to_owned())], count)),
    )
}

/// The manifest source.
pub(crate) fn manifests(scrape: &mut Scrape<'_>, status: &ManifestStatus) -> fmt::Result {
    let report = status.report();
    scrape.gauge("pods_api_manifest_files", "Manifest files", report.files as f64)?;
    scrape.gauge(
        "pods_api_manifest_files_failing",
        "Manifest files that cannot be read or decoded now",
        report.failing as f64,
    )?;
    scrape.gauge(
        "pods_api_manifest_files_duplicate",
        "Manifest files whose pod another file has too and wins",
        report.duplicates as f64,
    )?;
    scrape.counter(
        "pods_api_manifest_failures",
        "Manifests that could not be read or decoded, once per content",
        status.decode_failures_total(),
    )?;
    scrape.counter(
        "pods_api_manifest_duplicates",
        "Manifests found to have a pod that another file has too",
        status.duplicates_total(),
    )?;
    scrape.counter("pods_api_manifest_rescans", "Full scans of the manifest path", status.rescans_total())?;
    scrape.counter(
        "pods_api_manifest_overflows",
        "Times that file events were lost and a full scan made good for them",
        status.overflows_total(),
    )
}

/// What is known of cgroups and processes.
pub(crate) fn kernel(scrape: &mut Scrape<'_>, view: &KernelView) -> fmt::Result {
    let counts = view.counts();
    let known = [("all", counts.cgroups), ("containers", counts.containers)];
    scrape.gauges(
        "pods_api_kernel_cgroups",
        "Cgroups of pods that are known, those just removed included; containers: those made for a container or sandbox",
        known.map(|(kind, count)| ([("kind", kind.to_owned())], count as f64)),
    )?;
    scrape.gauge(
        "pods_api_kernel_processes",
        "Processes of pods that events told of, those just ended included",
        counts.processes as f64,
    )?;
    for (name, help, value) in [
        ("pods_api_kernel_events", "Events of cgroups and processes taken", counts.events),
        ("pods_api_kernel_scans", "Times that the cgroup hierarchy was read as a whole", counts.scans),
        ("pods_api_kernel_unknown", "Containers whose pod no source told of within 10 s", counts.unknown),
    ] {
        scrape.counter(name, help, value)?;
    }
    Ok(())
}

/// The kernel programs.
pub(crate) fn ebpf(scrape: &mut Scrape<'_>, state: &EbpfState) -> fmt::Result {
    scrape.gauges(
        "pods_api_kernel_ebpf_info",
        "Whether the kernel programs are attached, else why not; always 1",
        [([("state", state.label().to_owned())], 1.0)],
    )?;
    let Some(status) = state.status() else { return Ok(()) };
    let counters = status.counters();
    let cpus = || counters.iter().enumerate();
    scrape.counters(
        "pods_api_kernel_events_read",
        "Events read from the ring buffer, by kind",
        status.received().map(|(kind, count)| ([("kind", kind.to_owned())], count)),
    )?;
    scrape.counters(
        "pods_api_kernel_events_sent",
        "Events that the kernel programs put into the ring buffer",
        cpus().map(|(cpu, counters)| ([("cpu", cpu.to_string())], counters.sent)),
    )?;
    scrape.counters(
        "pods_api_kernel_events_lost",
        "Events that the kernel programs could not report, by cause; each loss is answered with a full scan",
        cpus().flat_map(|(cpu, counters)| {
            counters
                .losses()
                .map(move |(cause, count)| ([("cpu", cpu.to_string()), ("cause", cause.to_owned())], count))
        }),
    )?;
    scrape.counter(
        "pods_api_kernel_map_failures",
        "Entries that could not be written into the map pods_cgroups",
        status.map_failures(),
    )
}

/// The workers.
pub(crate) fn transport(scrape: &mut Scrape<'_>, status: &Status) -> fmt::Result {
    scrape.gauge("pods_api_connections", "Client connections open now", status.connections as f64)?;
    scrape.gauge(
        "pods_api_accepting",
        "1 while clients can connect",
        f64::from(u8::from(status.accepting)),
    )?;
    let workers = || status.workers.iter().enumerate();
    scrape.gauges(
        "pods_api_worker_info",
        "The driver of each worker; always 1",
        workers().map(|(index, worker)| {
            ([("worker", index.to_string()), ("driver", worker.driver.label().to_owned())], 1.0)
        }),
    )?;
    scrape.counters(
        "pods_api_connections_closed",
        "Client connections closed, by cause",
        Close::ALL.map(|cause| {
            let closed = status.workers.iter().map(|worker| *worker.counters.closed_for(cause)).sum();
            ([("cause", cause.label().to_owned())], closed)
        }),
    )?;
    let mut sum = |name, help, of: fn(&Counters) -> u64| {
        scrape.counter(name, help, status.workers.iter().map(|worker| of(&worker.counters)).sum())
    };
    sum("pods_api_connections_accepted", "Client connections accepted", |counters| counters.accepted)?;
    sum(
        "pods_api_connections_refused",
        "Client connections closed at once: --max-connections",
        |counters| counters.refused,
    )?;
    sum(
        "pods_api_accept_pauses",
        "Times that accepting stopped for want of descriptors or memory",
        |counters| counters.accept_pauses,
    )?;
    sum("pods_api_received_bytes", "Bytes received from clients", |counters| counters.bytes_received)?;
    sum("pods_api_sent_bytes", "Bytes sent to clients", |counters| counters.bytes_sent)?;
    sum("pods_api_worker_system_calls", "System calls that move bytes or wait", |counters| {
        counters.system_calls
    })?;
    sum("pods_api_worker_rounds", "Rounds of the workers' loops", |counters| counters.rounds)?;
    sum("pods_api_worker_wakes", "Rounds in which other threads had news", |counters| counters.wakes)?;
    sum("pods_api_worker_buffer_shortages", "Times that received bytes found no free buffer", |counters| {
        counters.buffer_shortages
    })
}
