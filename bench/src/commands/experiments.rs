//! The commands that start servers themselves, and the one that reports: compare, density, detect,
//! kernel, report.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context as _, ensure};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::compare::{ComparePlan, Program, SERVERS, Scale, compare as run_comparison};
use crate::density::{DensityPlan, density as run_density};
use crate::detect::{DetectPlan, Mode, detect as run_detection};
use crate::kernel::{KernelPlan, kernel as run_kernel};
use crate::report::text::{print, print_json};
use crate::report::{self, Budgets, Machine, Run, StealClock};

/// The servers that bench/budgets.toml compares with.
const BUDGETED: [&str; 2] = ["floor", "tonic"];
const RUN_FILE: &str = "run.json";
const PAGE_FILE: &str = "index.html";

/// What `compare` and `density` share.
#[derive(Clone, Debug, clap::Args)]
struct RunOptions {
    /// The pods-api program to measure [default: only the comparison servers].
    #[arg(long)]
    ours: Option<PathBuf>,
    /// One more argument for it; may be given several times.
    #[arg(long = "ours-arg", allow_hyphen_values = true)]
    ours_arguments: Vec<String>,
    /// Measure less, in a fraction of the time.
    #[arg(long)]
    quick: bool,
    /// Keep the result below this directory, in DATE-CPU-KERNEL; an existing result of that name is added to.
    #[arg(long)]
    results: Option<PathBuf>,
    /// Print the result as JSON.
    #[arg(long)]
    json: bool,
}

/// Options of `compare`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct CompareOptions {
    #[command(flatten)]
    run: RunOptions,
    /// Interleaved rounds [default: 4, with --quick 3].
    #[arg(long)]
    rounds: Option<usize>,
    /// Pods of the simulated node.
    #[arg(long, default_value_t = 500)]
    pods: usize,
    /// Size of each pod, in bytes.
    #[arg(long, default_value_t = 6_000)]
    pod_bytes: usize,
    /// Only workloads whose name contains this; may be given several times.
    #[arg(long)]
    only: Vec<String>,
    /// Only these servers beside pods-api; may be given several times [default: all, with --quick those that budgets
    /// are about].
    #[arg(long = "server", value_parser = SERVERS)]
    servers: Vec<String>,
    /// Let each server use only so many CPUs, by a quota of the kernel; runs the workloads on which that tells.
    #[arg(long, value_name = "CPUS")]
    cpu_quota: Option<f64>,
    /// Only a few operations of each kind, to see that everything works.
    #[arg(long, conflicts_with = "quick")]
    smoke: bool,
}

/// Options of `density`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DensityOptions {
    #[command(flatten)]
    run: RunOptions,
    /// Comparison server to measure when --ours is not given.
    #[arg(long, default_value = "tonic", value_parser = ["floor", "tonic", "tokio-uring"])]
    server: String,
    /// A node as PODSxBYTES; may be given several times [default: 100 to 10,000 pods of 6 kB, and nodes with pods
    /// of 15 and 40 kB].
    #[arg(long = "node", value_parser = parse_node)]
    nodes: Vec<(usize, usize)>,
}

/// Options of `detect`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DetectOptions {
    #[command(flatten)]
    run: RunOptions,
    /// By what the server is to learn of deaths; may be given several times [default: each in turn, with --quick those
    /// that budgets are about].
    #[arg(long = "by", value_enum)]
    modes: Vec<Mode>,
    /// Containers to kill [default: 120, with --quick 40]; ways that take a second or so get a quarter of that.
    #[arg(long)]
    deaths: Option<usize>,
}

/// Options of `kernel`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct KernelOptions {
    #[command(flatten)]
    run: RunOptions,
    /// Interleaved rounds.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Connections of each measurement.
    #[arg(long, default_value_t = 1_000)]
    connections: u64,
}

/// Options of `report`.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReportOptions {
    /// Directory of the result.
    directory: PathBuf,
    /// Directory of an older result to compare with.
    #[arg(long)]
    against: Option<PathBuf>,
    /// Budgets to hold the result against; a miss makes the exit status 1.
    #[arg(long)]
    budgets: Option<PathBuf>,
}

pub(super) fn compare(options: &CompareOptions) -> anyhow::Result<ExitCode> {
    ensure!(options.pods > 0, "--pods must be at least 1");
    let (scale, rounds) = match (options.smoke, options.run.quick) {
        (true, _) => (Scale::smoke(), 1),
        (_, true) => (Scale::quick(), 3),
        _ => (Scale::full(), 4),
    };
    let servers = match (options.servers.is_empty(), options.run.quick) {
        (true, true) => BUDGETED.map(str::to_owned).into(),
        _ => options.servers.clone(),
    };
    let plan = ComparePlan {
        servers,
        ours: options.run.ours()?,
        ours_arguments: options.run.ours_arguments.clone(),
        rounds: options.rounds.unwrap_or(rounds).max(1),
        scale,
        pods: options.pods,
        pod_bytes: options.pod_bytes,
        only: options.only.clone(),
        cpu_quota: options.cpu_quota,
    };
    options.run.measure(|run, interrupted| {
        let comparison = Some(run_comparison(&plan, interrupted)?);
        *(if plan.cpu_quota.is_some() { &mut run.limited } else { &mut run.comparison }) = comparison;
        Ok(())
    })
}

pub(super) fn density(options: &DensityOptions) -> anyhow::Result<ExitCode> {
    let program = match options.run.ours()? {
        Some(path) => Program::ours(path, options.run.ours_arguments.clone()),
        None => Program::comparison(&options.server),
    };
    let nodes = match (options.nodes.is_empty(), options.run.quick) {
        (false, _) => options.nodes.clone(),
        (true, true) => DensityPlan::quick_nodes(),
        (true, false) => DensityPlan::full_nodes(),
    };
    let (seconds, changes) = if options.run.quick { (0.3, 10) } else { (1.0, 30) };
    let plan = DensityPlan { program, nodes, seconds, changes };
    options.run.measure(|run, interrupted| {
        run.density = Some(run_density(&plan, interrupted)?);
        Ok(())
    })
}

pub(super) fn detect(options: &DetectOptions) -> anyhow::Result<ExitCode> {
    let ours = options.run.ours()?.context("--ours is needed: only pods-api is asked for this")?;
    let modes = match (options.modes.is_empty(), options.run.quick) {
        (true, true) => Mode::BUDGETED.to_vec(),
        (true, false) => Mode::ALL.to_vec(),
        _ => options.modes.clone(),
    };
    let deaths = options.deaths.unwrap_or(if options.run.quick { 40 } else { 120 });
    let plan = DetectPlan { ours, ours_arguments: options.run.ours_arguments.clone(), modes, deaths };
    options.run.measure(|run, interrupted| {
        run.detection = Some(run_detection(&plan, interrupted)?);
        Ok(())
    })
}

pub(super) fn kernel(options: &KernelOptions) -> anyhow::Result<ExitCode> {
    let plan = KernelPlan {
        ours: options.run.ours()?.context("--ours is needed: only pods-api is asked for this")?,
        ours_arguments: options.run.ours_arguments.clone(),
        rounds: options.rounds.max(1),
        connections: options.connections,
        seconds: if options.run.quick { 1.0 } else { 3.0 },
    };
    options.run.measure(|run, interrupted| {
        run.kernel = Some(run_kernel(&plan, interrupted)?);
        Ok(())
    })
}

pub(super) fn report(options: &ReportOptions) -> anyhow::Result<ExitCode> {
    let run = Run::read(&options.directory.join(RUN_FILE))?;
    print(&report::summary(&run));
    let against = options.against.as_ref().map(|old| Run::read(&old.join(RUN_FILE))).transpose()?;
    let against = against.map(|old| report::compare_runs(&run, &old));
    if let Some(table) = &against {
        print(&format!("\nAgainst the older run:\n{table}"));
    }
    let findings = match &options.budgets {
        Some(path) => Budgets::read(path)?.check(&run),
        None => Vec::new(),
    };
    if !findings.is_empty() {
        print("\nBudgets:\n");
    }
    for finding in &findings {
        print(&format!(
            "{:<12}  {:<24}  {}\n",
            finding.outcome.to_string(),
            finding.measured,
            finding.budget
        ));
    }
    let page = options.directory.join(PAGE_FILE);
    std::fs::write(&page, report::page(&run, &findings, against.as_deref()))
        .with_context(|| format!("writing {}", page.display()))?;
    print(&format!("\nThe page: {}\n", page.display()));
    let missed = findings.iter().any(|finding| finding.outcome == report::Outcome::Missed);
    Ok(if missed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

impl RunOptions {
    fn ours(&self) -> anyhow::Result<Option<PathBuf>> {
        let Some(path) = &self.ours else { return Ok(None) };
        let path = path.canonicalize().with_context(|| format!("looking for {}", path.display()))?;
        Ok(Some(path))
    }

    /// Runs an experiment and keeps and shows what it adds.
    fn measure(
        &self,
        experiment: impl FnOnce(&mut Run, &Arc<AtomicBool>) -> anyhow::Result<()>,
    ) -> anyhow::Result<ExitCode> {
        // Servers and temporary files go away when values are dropped, which a default signal would not do.
        let interrupted = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupted))?;
        }
        let machine = Machine::here();
        let directory = self.results.as_ref().map(|results| results.join(machine.directory_name()));
        let mut run = match directory.as_deref().map(|directory| directory.join(RUN_FILE)) {
            Some(path) if path.exists() => Run::read(&path)?,
            _ => Run::new(machine, self.quick),
        };
        let steal = StealClock::start();
        experiment(&mut run, &interrupted)?;
        run.machine.steal = run.machine.steal.max(steal.share());
        run.quick |= self.quick;
        if let Some(directory) = &directory {
            keep(&run, directory)?;
        }
        if self.json {
            print_json(&run)?;
        } else {
            print(&report::summary(&run));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn keep(run: &Run, directory: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(directory).with_context(|| format!("creating {}", directory.display()))?;
    run.write(&directory.join(RUN_FILE))
}

fn parse_node(text: &str) -> Result<(usize, usize), String> {
    let parsed =
        text.split_once('x').and_then(|(pods, bytes)| Some((pods.parse().ok()?, bytes.parse().ok()?)));
    parsed
        .filter(|(pods, _)| *pods > 0)
        .ok_or_else(|| format!("{text:?} is not PODSxBYTES, for example 250x15000"))
}
