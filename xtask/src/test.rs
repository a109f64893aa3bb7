//! `cargo xtask test`: every test. The runner of the unit and integration tests comes last, so that its summary is
//! the last thing printed.

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::containerd;
use crate::setup::{self, Scope};
use crate::shell::{cargo, exit_code, say, status};

/// The arguments of `cargo xtask test`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// The container runtimes that status is shown against.
    #[arg(long, value_enum, default_value_t = Runtimes::Installed)]
    runtimes: Runtimes,
    /// Arguments for `cargo nextest run`, such as a filter.
    #[arg(last = true)]
    nextest: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Runtimes {
    /// The installed containerd.
    Installed,
    /// containerd 1.7 and 2.x too, fetched from later releases of Debian.
    All,
}

/// Runs `cargo xtask test`.
pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode> {
    setup::ensure(Scope::Test)?;
    // Every stage runs, whatever the one before found: one run shows all there is to mend.
    let mut earlier = Vec::new();
    if arguments.nextest.is_empty() {
        earlier.push(status(tested().args(["test", "--workspace", "--doc", "--quiet"]))?);
        // Loom's models of the lock-free parts: a feature replaces their atomics, so they are a build of their
        // own. Of the whole workspace, so that all else is as the tests below need it.
        let models = ["test", "--quiet", "--workspace", "--features", "pods-api/loom", "--lib", "loom"];
        earlier.push(status(tested().args(models))?);
    }
    if arguments.runtimes == Runtimes::All {
        for suite in containerd::SUITES {
            let mut nextest = nextest();
            nextest.env("PODS_API_TEST_CONTAINERD", containerd::programs(suite)?);
            let tests = ["--package", "pods-api", "--filterset", "test(runtime::containerd::)"];
            earlier.push(status(nextest.args(tests))?);
        }
    }
    let failed = earlier.into_iter().find(|status| !status.success());
    if failed.is_some() {
        // Said now, because the runner's summary is to be the last word.
        say("a stage above has failed; the exit status will say so, whatever comes below");
    }
    let last = status(nextest().arg("--workspace").args(&arguments.nextest))?;
    Ok(exit_code(if last.success() { failed.unwrap_or(last) } else { last }))
}

fn nextest() -> Command {
    let mut nextest = tested();
    nextest.args(["nextest", "run"]);
    if std::env::var_os("CI").is_some() {
        nextest.args(["--profile", "ci"]);
    }
    nextest
}

/// Cargo for a build that has the kernel programs in it: without them, tests of theirs would be tests of nothing.
fn tested() -> Command {
    const CHOICE: &str = "PODS_API_BUILD_EBPF";
    let mut cargo = cargo();
    if std::env::var_os(CHOICE).is_none() {
        cargo.env(CHOICE, "require");
    }
    cargo
}
