//! `cargo xtask check`: formatting, lints, and the rules for dependencies.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::setup::{self, Scope};
use crate::shell::{cargo, exit_code, status};

/// The arguments of `cargo xtask check`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Only formatting and lints, without the rules for dependencies.
    #[arg(long)]
    lints: bool,
}

/// Runs `cargo xtask check`.
pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode> {
    setup::ensure(if arguments.lints { Scope::Lints } else { Scope::Check })?;
    // Every stage runs, whatever the one before found: one run shows all there is to mend.
    let mut stages = vec![
        status(cargo().args(["fmt", "--all", "--check"]))?,
        // A workspace of its own, for another machine.
        status(cargo().args(["fmt", "--manifest-path", "pods-api-ebpf/Cargo.toml", "--check"]))?,
        status(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?,
    ];
    if !arguments.lints {
        // Not advisories: their database is no package registry (see .cargo/deny.toml).
        let rules = ["check", "--hide-inclusion-graph", "bans", "licenses", "sources"];
        stages.push(status(cargo().args(["deny", "--config", ".cargo/deny.toml"]).args(rules))?);
    }
    let failed = stages.iter().find(|status| !status.success());
    Ok(failed.map_or(ExitCode::SUCCESS, |status| exit_code(*status)))
}
