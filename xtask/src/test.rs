//! `cargo xtask test`: every test. The runner of the unit and integration tests comes last, so that its summary is
//! the last thing printed.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::setup::{self, Scope};
use crate::shell::{cargo, exit_code, status};

/// The arguments of `cargo xtask test`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Also explore the interleavings of the lock-free parts with loom (minutes).
    #[arg(long)]
    loom: bool,
    /// Arguments for `cargo nextest run`, such as a filter.
    #[arg(last = true)]
    nextest: Vec<String>,
}

/// Runs `cargo xtask test`.
pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode> {
    setup::ensure(Scope::Test)?;
    // Every stage runs, whatever the one before found: one run shows all there is to mend.
    let mut earlier = Vec::new();
    if arguments.loom {
        earlier.push(status(cargo().args([
            "test",
            "--package",
            "pods-api",
            "--features",
            "loom",
            "--lib",
            "loom",
        ]))?);
    }
    if arguments.nextest.is_empty() {
        earlier.push(status(cargo().args(["test", "--workspace", "--doc", "--quiet"]))?);
    }
    let mut nextest = cargo();
    nextest.args(["nextest", "run", "--workspace"]);
    if std::env::var_os("CI").is_some() {
        nextest.args(["--profile", "ci"]);
    }
    let last = status(nextest.args(&arguments.nextest))?;
    let failed = earlier.into_iter().find(|status| !status.success());
    Ok(exit_code(if last.success() { failed.unwrap_or(last) } else { last }))
}
