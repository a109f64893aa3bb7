//! `cargo xtask test`: every test. The runner of the unit and integration tests comes last, so that its summary is
//! the last thing printed.

use std::process::{Command, ExitCode};

use anyhow::Result;
use clap::{Args, ValueEnum};

use crate::containerd;
use crate::setup::{self, Scope};
use crate::shell::{exit_code, say, status, testing_cargo};
use crate::vm;

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
    let mut all_passed = true;
    if arguments.nextest.is_empty() {
        all_passed &= status(testing_cargo().args(["test", "--workspace", "--doc", "--quiet"]))?.success();
        // Loom's models of the lock-free parts: a feature replaces their atomics, so they are a build of their
        // own. Of the whole workspace, so that all else is as the tests below need it.
        let models = ["test", "--quiet", "--workspace", "--features", "pods-api/loom", "--lib", "loom"];
        all_passed &= status(testing_cargo().args(models))?.success();
        // The oldest kernel and the newest; `cargo xtask vm` has those between them too.
        all_passed &= vm::check(&[vm::Kernel::V5_10, vm::Kernel::Newest], false).unwrap_or_else(|error| {
            say(format_args!("the tests on other kernels could not run: {error:#}"));
            false
        });
    }
    if arguments.runtimes == Runtimes::All {
        for suite in containerd::SUITES {
            let mut nextest = nextest();
            nextest.env("PODS_API_TEST_CONTAINERD", containerd::programs(suite)?);
            let tests = ["--package", "pods-api", "--filterset", "test(runtime::containerd::)"];
            all_passed &= status(nextest.args(tests))?.success();
        }
    }
    if !all_passed {
        // Said now, because the runner's summary is to be the last word.
        say("a stage above has failed; the exit status will say so, whatever comes below");
    }
    let last = status(nextest().arg("--workspace").args(&arguments.nextest))?;
    Ok(if last.success() && !all_passed { ExitCode::FAILURE } else { exit_code(last) })
}

fn nextest() -> Command {
    let mut nextest = testing_cargo();
    nextest.args(["nextest", "run"]);
    if std::env::var_os("CI").is_some() {
        nextest.args(["--profile", "ci"]);
    }
    nextest
}
