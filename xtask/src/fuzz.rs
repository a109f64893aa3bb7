//! `cargo xtask fuzz`: the fuzz targets, each for a while, on the compiler that everything else is built with.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::setup::{self, Scope};
use crate::shell::{cargo, exit_code, root, say, status};

const DIRECTORY: &str = "pods-api/fuzz";

/// The arguments of `cargo xtask fuzz`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Targets to run [default: every one].
    targets: Vec<String>,
    /// Seconds for each target.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

/// Runs the targets one after the other; what crashes one is named, and the others still run.
pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode> {
    let known = known_targets()?;
    for target in &arguments.targets {
        ensure!(known.contains(target), "there is no fuzz target {target}; there are: {}", known.join(", "));
    }
    setup::ensure(Scope::Fuzz)?;
    let targets = if arguments.targets.is_empty() { &known } else { &arguments.targets };
    let mut failed = None;
    for (number, target) in targets.iter().enumerate() {
        say(format_args!("{target}, {} of {}, for {} s", number + 1, targets.len(), arguments.seconds));
        let mut command = cargo();
        // No sanitizer: those are of nightly compilers only, and there is no unsafe code where the targets lead.
        command.args(["fuzz", "run", "--fuzz-dir", DIRECTORY, "--sanitizer", "none", target, "--"]);
        command.arg(format!("-max_total_time={}", arguments.seconds));
        let ended = status(&mut command)?;
        if !ended.success() {
            say(format_args!("{target} failed; the input is under {DIRECTORY}/artifacts/{target}"));
            failed = Some(ended);
        }
    }
    Ok(failed.map_or(ExitCode::SUCCESS, exit_code))
}

fn known_targets() -> Result<Vec<String>> {
    let directory = root().join(DIRECTORY).join("fuzz_targets");
    let entries = fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut names = Vec::new();
    for entry in entries {
        let path = entry?.path();
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    }
    names.sort();
    Ok(names)
}
