//! What the admin listener shows of the rooms. Runs on the control thread, when asked.

use super::socket_care::SocketCare;
use crate::admin::Check;
use crate::grpc::Shared;
use crate::kernel::{EbpfState, KernelView};
use crate::metrics;
use crate::runtime::RuntimeStatus;
use crate::source::manifest::ManifestStatus;
use crate::transport::ReactorMonitor;
use std::sync::Arc;
use std::time::Instant;

/// The rooms, each as far as it tells of itself.
pub(super) struct StatusView {
    pub(super) shared: Arc<Shared>,
    pub(super) manifests: Arc<ManifestStatus>,
    pub(super) container_runtime: Option<Arc<RuntimeStatus>>,
    pub(super) kernel: Arc<KernelView>,
    pub(super) ebpf: EbpfState,
    pub(super) reactor: ReactorMonitor,
    pub(super) socket: Arc<SocketCare>,
    pub(super) started: Instant,
}

impl StatusView {
    pub(super) fn checks(&self) -> Vec<Check> {
        let waiting = self.shared.store.readiness().waiting_for();
        let report = self.manifests.report();
        let mut detail = match report.last_scan {
            Some(scan) => format!(
                "{} pods of {} files, scanned {} s ago",
                report.pods,
                report.files,
                scan.elapsed().as_secs()
            ),
            None => "not scanned yet".to_owned(),
        };
        for problem in report.path_problem.iter() {
            detail = format!("{detail}; {problem}");
        }
        for (_, reason) in &report.failures {
            detail = format!("{detail}\n    {reason}");
        }
        let status = self.reactor.status();
        let drivers: Vec<_> = status.workers.iter().map(|worker| worker.driver.label()).collect();
        let mut transport = format!("{} connections, workers on {}", status.connections, drivers.join(" "));
        if let Some(refusal) = status.workers.iter().find_map(|worker| worker.refusal.as_ref()) {
            transport = format!("{transport}; io_uring is not used: {refusal}");
        }
        let mut checks =
            vec![Check { name: "source/manifest".into(), is_ok: !waiting.contains(&"manifest"), detail }];
        checks.extend(self.container_runtime.iter().map(|status| Check {
            name: "source/cri".into(),
            is_ok: !waiting.contains(&"cri"),
            detail: status.report().summary(Instant::now()),
        }));
        checks.extend([
            Check {
                name: "kernel".into(),
                is_ok: !self.kernel.report().has_failed,
                detail: self.kernel.summary(Instant::now()),
            },
            // Never a reason not to be ready: everything works without, later.
            Check { name: "ebpf".into(), is_ok: true, detail: self.ebpf.summary() },
            self.listener(status.accepting),
            Check {
                name: "transport".into(),
                is_ok: status.workers.iter().all(|worker| worker.is_running),
                detail: transport,
            },
        ]);
        checks
    }

    fn listener(&self, is_accepting: bool) -> Check {
        let trouble = match self.socket.trouble() {
            Some(trouble) => Some(format!("clients cannot connect: {trouble}")),
            None if is_accepting => None,
            None => Some("not accepting: out of file descriptors or memory; retried until it works".into()),
        };
        Check {
            name: "listener".into(),
            is_ok: trouble.is_none(),
            detail: trouble.unwrap_or_else(|| "accepting".into()),
        }
    }

    pub(super) fn metrics(&self, scrape: &mut metrics::Scrape<'_>) -> std::fmt::Result {
        metrics::process(scrape, self.started)?;
        metrics::requests(scrape, &self.shared.counters)?;
        metrics::watch(scrape, &self.shared.hub)?;
        metrics::store(scrape, &self.shared.store)?;
        let runtime = self.container_runtime.as_deref();
        let ages = [
            ("manifest", self.manifests.report().last_scan),
            ("cri", runtime.and_then(|status| status.report().last_list)),
        ];
        metrics::source_ages(scrape, ages)?;
        metrics::manifests(scrape, &self.manifests)?;
        if let Some(status) = runtime {
            metrics::runtime(scrape, status)?;
        }
        metrics::kernel(scrape, &self.kernel)?;
        metrics::ebpf(scrape, &self.ebpf)?;
        metrics::transport(scrape, &self.reactor.status())
    }
}
