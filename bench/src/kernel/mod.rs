//! What the kernel side of pods-api costs: knowing who connects, by eBPF's process table or by /proc, and the programs
//! themselves where processes start as fast as the machine starts them.

mod programs;
mod sandbox;

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::compare::{Program, Server, Site};
use crate::generate::Plan;
use crate::launch;
use crate::load::{self, ConnectOutcome};
use crate::measure::{Spread, Usage};
use crate::report::text::{progress, progress_done};
use crate::report::{ExecCost, KernelCosts, PeerCost};
use programs::{ProgramStatistics, RunTime};
use sandbox::PodCgroup;

const PODS: usize = 50;
const POD_BYTES: usize = 6_000;
const SEED: u64 = 1;

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct KernelPlan {
    pub(crate) ours: PathBuf,
    pub(crate) ours_arguments: Vec<String>,
    pub(crate) rounds: usize,
    /// Connections of each measurement.
    pub(crate) connections: u64,
    /// Seconds for which processes are started.
    pub(crate) seconds: f64,
}

/// Runs both measurements.
pub(crate) fn kernel(plan: &KernelPlan, interrupted: &AtomicBool) -> anyhow::Result<KernelCosts> {
    let help = Command::new(&plan.ours).args(["serve", "--help"]).output().context("asking for its flags")?;
    let has_ebpf = String::from_utf8_lossy(&help.stdout).contains("--ebpf");
    ensure!(has_ebpf, "{} has no --ebpf", plan.ours.display());
    let cpus = launch::cpus()?;
    let site = Site::new(Plan { pods: PODS, pod_bytes: POD_BYTES, seed: SEED }, cpus, None)?;
    let start = |name: &str, flag: &str| {
        progress(&format!("starting the server with {flag}"));
        let mut arguments = plan.ours_arguments.clone();
        arguments.push(flag.to_owned());
        site.start(&Program::ours(plan.ours.clone(), arguments).named(name))
    };
    let servers = [("table", start("table", "--ebpf=require")?), ("proc", start("proc", "--ebpf=off")?)];
    let [(_, with_ebpf), _] = &servers;
    let uid = load::uid_of(load::list_pods(&with_ebpf.target)?.first().context("the server has no pods")?)?;
    let pod = PodCgroup::create(&uid)?;

    let mut peers: Vec<PeerCost> = Vec::new();
    for round in 1..=plan.rounds {
        for (way, server) in &servers {
            for (client, cgroup) in [("host", None), ("pod", Some(&pod))] {
                ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
                progress(&format!("peers, round {round} of {}: {client} by {way}", plan.rounds));
                let outcome = connect(server, cgroup, plan.connections, cpus.map(|(_, client)| client))?;
                let micros = outcome.server.unwrap_or_default().micros_per(outcome.connections.max(1));
                match peers.iter_mut().find(|peer| peer.way == *way && peer.client == client) {
                    Some(peer) => peer.samples.push(micros),
                    None => peers.push(PeerCost {
                        way: (*way).to_owned(),
                        client: client.to_owned(),
                        samples: vec![micros],
                        cpu_micros: None,
                    }),
                }
            }
        }
    }
    for peer in &mut peers {
        peer.cpu_micros = Spread::of(&peer.samples);
    }
    let mut execs = Vec::new();
    for (place, cgroup) in [("host", None), ("pod", Some(&pod))] {
        ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
        progress(&format!("starting processes on the {place}"));
        execs.push(start_processes(with_ebpf, place, cgroup, plan.seconds)?);
    }
    progress_done();
    Ok(KernelCosts { peers, execs })
}

/// Lets a client of its own process, which is where the bench wants it, connect to a server.
fn connect(
    server: &Server,
    cgroup: Option<&PodCgroup>,
    connections: u64,
    cpu: Option<usize>,
) -> anyhow::Result<ConnectOutcome> {
    let mut command = launch::inside(&std::env::current_exe()?, cpu, cgroup.map(PodCgroup::path))?;
    command.arg("connect").arg("--socket").arg(&server.target.socket);
    command.args(["--json", "--connections", &connections.to_string()]);
    let output = command.stdin(Stdio::null()).output().context("starting a client")?;
    ensure!(output.status.success(), "the client failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    serde_json::from_slice(&output.stdout).context("reading what the client measured")
}

/// Starts and ends processes as fast as one process can, and reads what that cost the programs and the server.
fn start_processes(
    server: &Server,
    place: &str,
    cgroup: Option<&PodCgroup>,
    seconds: f64,
) -> anyhow::Result<ExecCost> {
    let pid = server.target.pid.context("the server's process is known")?;
    let statistics = ProgramStatistics::enable()?;
    let before = (RunTime::of(pid)?, Usage::of(pid)?);
    let mut command = launch::inside(&std::env::current_exe()?, None, cgroup.map(PodCgroup::path))?;
    command.args(["spawn", "--seconds", &seconds.to_string()]);
    let output = command.stdin(Stdio::null()).output().context("starting processes")?;
    ensure!(
        output.status.success(),
        "starting processes: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let after = (RunTime::of(pid)?, Usage::of(pid)?);
    drop(statistics);
    let processes: f64 =
        String::from_utf8_lossy(&output.stdout).trim().parse().context("counting processes")?;
    ensure!(processes > 0.0, "no process was started");
    let (programs, server) = (after.0.since(&before.0), after.1.since(&before.1));
    let nanos = server.elapsed().as_nanos() as f64;
    Ok(ExecCost {
        place: place.to_owned(),
        processes_per_second: processes / seconds,
        program_runs: programs.count as f64 / processes,
        program_micros: programs.nanos as f64 / 1e3 / processes,
        program_share: programs.nanos as f64 / nanos,
        server_share: server.utilisation(),
    })
}

/// `pods-bench spawn`: starts one process after the other; returns how many.
pub(crate) fn spawn(seconds: f64) -> anyhow::Result<u64> {
    let end = Instant::now() + Duration::try_from_secs_f64(seconds)?;
    let mut count = 0;
    while Instant::now() < end {
        let status = Command::new("/bin/true").status().context("running /bin/true")?;
        ensure!(status.success(), "/bin/true: {status}");
        count += 1;
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_counted() {
        assert!(spawn(0.05).unwrap() > 0);
        assert!(spawn(-1.0).is_err());
    }
}
