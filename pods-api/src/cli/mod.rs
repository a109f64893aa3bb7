//! The client commands: `get pods`, `lookup`, `whoami`, `doctor` and their output. They talk to any server of the Pods
//! API, the kubelet's included (`lookup` and `whoami` are ours alone), on one connection and one thread, and end with
//! it.

mod columns;
mod connect;
mod doctor;
mod error;
mod get;
mod lookup;
mod output;
mod whoami;

use std::io::{self, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::config::DEFAULT_SOCKET;
use error::Error;

/// What a client can ask of a server.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show pods of this node
    Get(get::Get),
    /// Find one pod by its UID, name, address, container, process or cgroup
    Lookup(lookup::Lookup),
    /// Tell what the server takes this caller for, and what it may do
    Whoami(whoami::WhoAmI),
    /// Tell whether the server on this machine is well
    Doctor(doctor::Doctor),
    /// Print a completion script for a shell
    Completion {
        /// The shell to complete in
        shell: clap_complete::Shell,
    },
}

/// How to reach the server.
#[derive(Debug, Clone, Args)]
struct Target {
    /// UNIX socket of the server
    #[arg(long, global = true, env = "PODS_API_SOCKET", default_value = DEFAULT_SOCKET, value_name = "PATH")]
    socket: PathBuf,
}

/// For a command that contradicts itself, as for one that clap refuses.
const EXIT_USAGE: u8 = 64;

/// Runs a client command: 0 when it did what was asked, 64 when it cannot be meant so, otherwise 1; then with what went
/// wrong on stderr. `program` is the
/// whole command line's definition, which completion scripts are made from.
#[must_use]
pub fn run(command: Command, program: impl FnOnce() -> clap::Command) -> ExitCode {
    let outcome = match command {
        Command::Get(get) => in_runtime(get.run()),
        Command::Lookup(lookup) => in_runtime(lookup.run()),
        Command::Whoami(whoami) => in_runtime(whoami.run()),
        Command::Doctor(doctor) => doctor.run(),
        Command::Completion { shell } => {
            // Generated in memory first: clap_complete panics when its writer fails.
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut program(), "pods-api", &mut script);
            io::stdout().write_all(&script).map_err(Error::from)
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is_closed_pipe() => ExitCode::SUCCESS,
        Err(error) => {
            report(&error);
            if error.is_usage() { ExitCode::from(EXIT_USAGE) } else { ExitCode::FAILURE }
        }
    }
}

fn in_runtime(work: impl Future<Output = Result<(), Error>>) -> Result<(), Error> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
}

/// Prints an error and its causes. That stderr itself is gone concerns no one any more.
fn report(error: &Error) {
    let mut text = format!("error: {error}");
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text.push_str(&format!(": {error}"));
        cause = error.source();
    }
    let _ = writeln!(io::stderr(), "{text}");
}
