//! The program: parses the command line and turns the outcome into an exit code.
//!
//! 0 drained or done, 64 bad usage or configuration, 1 start-up or a client command failed, 70 internal.

use clap::{CommandFactory as _, Parser, Subcommand};
use pods_api::app;
use pods_api::cli;
use pods_api::config::ServeArgs;
use std::process::ExitCode;

const EXIT_USAGE: u8 = 64;
const EXIT_INTERNAL: u8 = 70;

/// Kubelet Pods API for this node: serve it, or ask a server for pods.
#[derive(Debug, Parser)]
#[command(
    name = "pods-api",
    version,
    propagate_version = true,
    after_help = "\
Try:  pods-api serve --manifests ./examples/manifests --socket /tmp/pods.sock
      pods-api get pods -A --socket /tmp/pods.sock"
)]
struct Program {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the pods of this node on a UNIX socket
    Serve(Box<ServeArgs>),
    #[command(flatten)]
    Client(Box<cli::Command>),
}

fn main() -> ExitCode {
    let program = match Program::try_parse() {
        Ok(program) => program,
        Err(error) => {
            let code = if error.use_stderr() { ExitCode::from(EXIT_USAGE) } else { ExitCode::SUCCESS };
            // A closed pipe concerns no one any more.
            let _ = error.print();
            return code;
        }
    };
    match program.command {
        Command::Serve(args) => serve(*args),
        Command::Client(command) => cli::run(*command, Program::command),
    }
}

fn serve(args: ServeArgs) -> ExitCode {
    let config = match args.validate() {
        Ok(config) => config,
        Err(error) => {
            report(&error.into());
            return ExitCode::from(EXIT_USAGE);
        }
    };
    match std::panic::catch_unwind(|| app::serve(&config)) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            let code = match &error {
                app::AppError::Panicked(_) => ExitCode::from(EXIT_INTERNAL),
                error if error.is_of_configuration() => ExitCode::from(EXIT_USAGE),
                _ => ExitCode::FAILURE,
            };
            report(&error.into());
            code
        }
        // The panic hook has said what and where.
        Err(_) => ExitCode::from(EXIT_INTERNAL),
    }
}

#[expect(clippy::print_stderr, reason = "the log may not have started yet")]
fn report(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
}
