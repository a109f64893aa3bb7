//! `pods-bench`: loads any server of `/v1alpha1.Pods` and says what it costs.
//!
//! `client` and `floor` are protocols without I/O, `load` drives them over sockets, `servers` are what pods-api is
//! compared with, `measure` reads latencies and costs, `compare`, `density`, `detect` and `kernel` are whole experiments on servers
//! they start themselves, `report` keeps and shows results, `commands` is the command line.

#![forbid(unsafe_code)]

mod client;
mod commands;
mod compare;
mod density;
mod detect;
mod floor;
mod generate;
mod kernel;
mod launch;
mod load;
mod measure;
mod report;
mod servers;

use std::process::ExitCode;

use clap::Parser as _;

#[allow(clippy::print_stderr, reason = "the one place where an error becomes text")]
fn main() -> ExitCode {
    match commands::run(commands::CommandLine::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
