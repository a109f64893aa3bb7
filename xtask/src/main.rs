//! `cargo xtask`: the project's one door. Each command first installs what it is missing, then does its work with
//! the ordinary tools (cargo, nextest, clippy, cargo-deny).

#![forbid(unsafe_code)]
// A command-line tool talks to its user on stdout and stderr.
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod check;
mod containerd;
mod debian;
mod fuzz;
mod initramfs;
mod run;
mod setup;
mod shell;
mod test;
mod vm;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Sets up, runs, tests and checks pods-api.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Installs what a command needs; the other commands call it themselves.
    Setup(setup::Arguments),
    /// Serves a copy of the example manifests and shows the pods live as the files are edited.
    Run(run::Arguments),
    /// Runs every test.
    Test(test::Arguments),
    /// Checks formatting, lints and dependencies.
    Check(check::Arguments),
    /// Runs the tests of the kernel programs on other kernels, in virtual machines.
    Vm(vm::Arguments),
    /// Feeds the parsers of untrusted bytes with random ones.
    Fuzz(fuzz::Arguments),
    /// Measures pods-api beside other servers and checks its budgets.
    Bench(bench::Arguments),
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Setup(arguments) => setup::execute(&arguments),
        Command::Run(arguments) => run::execute(&arguments),
        Command::Test(arguments) => test::execute(&arguments),
        Command::Check(arguments) => check::execute(&arguments),
        Command::Vm(arguments) => vm::execute(&arguments),
        Command::Fuzz(arguments) => fuzz::execute(&arguments),
        Command::Bench(arguments) => bench::execute(&arguments),
    };
    outcome.unwrap_or_else(|error| {
        eprintln!("error: {error:#}");
        ExitCode::FAILURE
    })
}
