//! `cargo xtask check`: formatting, lints, and the rules for dependencies.

use std::process::ExitCode;

use anyhow::Result;
use clap::Args;

use crate::setup::{self, Scope};
use crate::shell::{cargo, run};

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
    run(cargo().args(["fmt", "--all", "--check"]))?;
    run(cargo().args(["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]))?;
    if !arguments.lints {
        // Not advisories: their database is no package registry (see .cargo/deny.toml).
        run(cargo().args([
            "deny",
            "--config",
            ".cargo/deny.toml",
            "check",
            "--hide-inclusion-graph",
            "bans",
            "licenses",
            "sources",
        ]))?;
    }
    Ok(ExitCode::SUCCESS)
}
