//! Compares servers in interleaved rounds: A B C, A B C, so that a drift of the machine meets all of them.
//!
//! Servers run one at a time on one CPU, the client on another. All serve the same bytes: the pods that pods-api
//! serves are listed once and given to the others. What is compared are ratios within a round.

mod contender;
mod verdict;
mod workload;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, ensure};

pub(crate) use contender::{OURS, Program, SERVERS, Server, Site};
pub(crate) use verdict::ratios;
pub(crate) use workload::{Scale, Workload};

use crate::generate::Plan;
use crate::report::text::{progress, progress_done};
use crate::report::{Comparison, Contender, Entry, WorkloadResult};

/// Seed of the pods that are compared.
const SEED: u64 = 1;

/// Pods of the node on which fan-out is measured. What an event costs to deliver does not depend on how many pods
/// there are, and a small node spares each run the first sync of a thousand watches with a large one; but with fewer
/// a pod would change again within the second for which pods-api takes that for a file written in pieces.
const FAN_OUT_PODS: usize = 50;

/// What to compare.
#[derive(Clone, Debug)]
pub(crate) struct ComparePlan {
    /// The program to compare, `pods-api`; without it only the comparison servers run.
    pub(crate) ours: Option<PathBuf>,
    /// More arguments for it.
    pub(crate) ours_arguments: Vec<String>,
    /// Names of the servers that take turns with it; all if empty.
    pub(crate) servers: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) scale: Scale,
    /// Pods of the node for the unary workloads, and their size.
    pub(crate) pods: usize,
    pub(crate) pod_bytes: usize,
    /// Only workloads whose name contains one of these.
    pub(crate) only: Vec<String>,
    /// Cores that each server may use, by a quota of the kernel; all of its CPU without one.
    pub(crate) cpu_quota: Option<f64>,
}

/// Workloads that need the same servers.
struct Group {
    pods: usize,
    workloads: Vec<Workload>,
}

impl ComparePlan {
    fn groups(&self) -> Vec<Group> {
        let wanted = |workloads: Vec<Workload>| {
            let is_wanted =
                |id: &str| self.only.is_empty() || self.only.iter().any(|part| id.contains(part.as_str()));
            workloads.into_iter().filter(|workload| is_wanted(workload.id())).collect()
        };
        let (node, fan_out) = match self.cpu_quota {
            None => (Workload::node(), Workload::fan_out()),
            Some(_) => (Workload::node_under_quota(), Workload::fan_out_under_quota()),
        };
        let groups = [
            Group { pods: self.pods, workloads: wanted(node) },
            Group { pods: self.pods.min(FAN_OUT_PODS), workloads: wanted(fan_out) },
        ];
        groups.into_iter().filter(|group| !group.workloads.is_empty()).collect()
    }
}

/// Runs the comparison. Setting `interrupted` ends it at the next measurement.
pub(crate) fn compare(plan: &ComparePlan, interrupted: &Arc<AtomicBool>) -> anyhow::Result<Comparison> {
    let cpus = crate::launch::cpus()?;
    if let Some((_, client)) = cpus {
        crate::launch::pin(client)?;
    }
    let mut comparison = Comparison {
        pods: plan.pods,
        pods_bytes: 0,
        rounds: plan.rounds,
        contenders: Vec::new(),
        workloads: Vec::new(),
        uncounted_syscalls: None,
        cpu_quota: plan.cpu_quota,
    };
    let mut runner = Runner { plan, interrupted, uncounted: None };
    for group in plan.groups() {
        let site = Site::new(
            Plan { pods: group.pods, pod_bytes: plan.pod_bytes, seed: SEED },
            cpus,
            plan.cpu_quota,
        )?;
        let mut servers = runner.start_all(&site)?;
        comparison.pods_bytes = comparison.pods_bytes.max(site.pods_bytes()?);
        for workload in &group.workloads {
            comparison.workloads.push(runner.measure(workload, &mut servers)?);
        }
        comparison.contenders.extend(servers.iter().map(|server| Contender {
            name: server.name.clone(),
            pods: group.pods,
            memory: server.memory().ok(),
            cgroup_peak: server.cgroup_peak(),
            throttled: server.throttled(),
        }));
    }
    progress_done();
    ensure!(!comparison.workloads.is_empty(), "no workload has such a name");
    comparison.uncounted_syscalls = runner.uncounted;
    Ok(comparison)
}

struct Runner<'a> {
    plan: &'a ComparePlan,
    interrupted: &'a AtomicBool,
    /// Why system calls could not be counted, once that has been tried and has failed.
    uncounted: Option<String>,
}

impl Runner<'_> {
    /// Starts every contender; ours first, because the others serve its pods.
    fn start_all(&self, site: &Site) -> anyhow::Result<Vec<Server>> {
        let ours = self.plan.ours.iter().flat_map(|path| {
            let arguments = &self.plan.ours_arguments;
            let ours = Program::ours(path.clone(), arguments.clone());
            std::iter::once(ours).chain(Program::ours_on_epoll(path.clone(), arguments.clone()))
        });
        let mut servers = Vec::new();
        let is_wanted = |program: &Program| {
            let names = &self.plan.servers;
            names.is_empty() || program.name() == OURS || names.iter().any(|name| name == program.name())
        };
        for program in ours.chain(Program::comparison_servers()).filter(is_wanted) {
            progress(&format!("starting {}", program.name()));
            let server = site.start(&program).with_context(|| format!("starting {}", program.name()))?;
            if servers.is_empty() {
                site.keep_dump(&server)?;
            }
            servers.push(server);
        }
        Ok(servers)
    }

    fn measure(&mut self, workload: &Workload, servers: &mut [Server]) -> anyhow::Result<WorkloadResult> {
        let mut entries: Vec<Entry> = servers.iter().map(|server| Entry::new(&server.name)).collect();
        for round in 1..=self.plan.rounds {
            for (server, entry) in servers.iter_mut().zip(&mut entries) {
                ensure!(!self.interrupted.load(Ordering::Relaxed), "interrupted");
                if entry.failure.is_some() || !workload.suits(server) {
                    continue;
                }
                progress(&format!(
                    "{}, round {round} of {}: {}",
                    workload.title(),
                    self.plan.rounds,
                    server.name
                ));
                match workload.run(server, self.plan.scale) {
                    Ok(sample) => entry.samples.push(sample),
                    Err(error) => entry.failure = Some(format!("{error:#}{}", server.last_words())),
                }
            }
        }
        for (server, entry) in servers.iter_mut().zip(&mut entries) {
            entry.summarise();
            if entry.failure.is_none() && !entry.samples.is_empty() {
                entry.syscalls = self.count_syscalls(workload, server);
            }
        }
        Ok(WorkloadResult {
            id: workload.id().to_owned(),
            title: workload.title(),
            operation: workload.operation().to_owned(),
            ratios: ratios(&entries),
            entries,
        })
    }

    /// Counts system calls in a short run of its own, because counting slows the server down.
    fn count_syscalls(&mut self, workload: &Workload, server: &mut Server) -> Option<f64> {
        // A quota changes how long calls take, not how many there are.
        if self.uncounted.is_some() || self.plan.cpu_quota.is_some() {
            return None;
        }
        progress(&format!("{}, system calls: {}", workload.title(), server.name));
        // perf sometimes attaches too late to a server that answers soon.
        let mut count = || workload.run_counted(server, self.plan.scale.brief());
        match count().or_else(|_| count()) {
            Ok(sample) => sample.syscalls,
            Err(error) => {
                self.uncounted = Some(format!("{error:#}"));
                None
            }
        }
    }
}
