//! `cargo xtask bench`: pods-api beside other servers in interleaved runs, its growth, and its budgets.
//!
//! The result is kept under bench/results/ with the facts of the machine; ratios within a run are what counts.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Instant, SystemTime};

use anyhow::{Context as _, Result};
use clap::Args;

use crate::setup::{self, Scope};
use crate::shell::{cargo, exit_code, in_root, root, run, say, status, target};

/// A part of what is measured, which adds its own to the result.
struct Experiment {
    arguments: &'static [&'static str],
    /// More of them for a quick run.
    quick: &'static [&'static str],
    /// Whether it makes cgroups or containers.
    needs_root: bool,
}

const EXPERIMENTS: [Experiment; 5] = [
    Experiment { arguments: &["compare"], quick: &[], needs_root: false },
    Experiment { arguments: &["density"], quick: &[], needs_root: false },
    Experiment {
        arguments: &["compare", "--cpu-quota", "0.2", "--rounds", "3"],
        quick: &["--only", "get-open"],
        needs_root: true,
    },
    Experiment { arguments: &["detect"], quick: &[], needs_root: true },
    Experiment { arguments: &["kernel"], quick: &[], needs_root: true },
];

/// The arguments of `cargo xtask bench`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Measure in two minutes what otherwise takes ten; enough to see a large change, not to publish.
    #[arg(long)]
    quick: bool,
    /// Directory of an older result to compare with.
    #[arg(long, value_name = "DIR")]
    against: Option<PathBuf>,
    /// Keep results below this directory.
    #[arg(long, value_name = "DIR", default_value = "bench/results")]
    results: PathBuf,
}

/// Builds, measures, reports; the status is that of the budgets.
pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode> {
    let is_root = rustix::process::geteuid().is_root();
    setup::ensure(Scope::Bench)?;
    if is_root {
        setup::ensure(Scope::Containers)?;
    }
    run(cargo().args(["build", "--release", "--package", "pods-api", "--package", "pods-bench"]))?;
    let (started, began, mut failed) = (SystemTime::now(), Instant::now(), None);
    if !is_root {
        say("not root: nothing is measured under a CPU quota, with containers or of the kernel side");
    }
    for experiment in EXPERIMENTS.iter().filter(|experiment| is_root || !experiment.needs_root) {
        let mut command = bench();
        command.args(experiment.arguments).arg("--ours").arg(target().join("release/pods-api"));
        command.arg("--results").arg(&arguments.results);
        if arguments.quick {
            command.arg("--quick").args(experiment.quick);
        }
        // What one experiment could not find out does not make the others worth less.
        let ended = status(&mut command)?;
        if !ended.success() {
            failed = Some(ended);
        }
    }
    say(format_args!("measured for {} s", began.elapsed().as_secs()));
    let mut report = bench();
    report.arg("report").arg(newest(&root().join(&arguments.results), started)?);
    report.args(["--budgets", "bench/budgets.toml"]);
    if let Some(old) = &arguments.against {
        report.arg("--against").arg(old);
    }
    let reported = status(&mut report)?;
    Ok(exit_code(if reported.success() { failed.unwrap_or(reported) } else { reported }))
}

fn bench() -> Command {
    in_root(target().join("release/pods-bench"))
}

/// The result that was written since `started`.
fn newest(results: &Path, started: SystemTime) -> Result<PathBuf> {
    let mut newest = None;
    for entry in std::fs::read_dir(results).with_context(|| format!("reading {}", results.display()))? {
        let directory = entry?.path();
        let Ok(metadata) = std::fs::metadata(directory.join("run.json")) else { continue };
        let written = metadata.modified()?;
        if written >= started && newest.as_ref().is_none_or(|(when, _)| *when < written) {
            newest = Some((written, directory));
        }
    }
    let (_, directory) = newest.context("the bench has kept no result")?;
    Ok(directory)
}
