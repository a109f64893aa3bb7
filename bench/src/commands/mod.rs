//! The command line.

mod experiments;
mod single;
mod target;

pub(crate) use target::encoded_documents;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::report::text::print;
use crate::{launch, servers};

/// Load generator, comparison servers and reports for servers of the Kubelet Pods API.
#[derive(Debug, Parser)]
#[command(name = "pods-bench", version)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Load a server with GetPod.
    Get(single::RequestOptions),
    /// Load a server with ListPods.
    List(single::RequestOptions),
    /// Watch a server and report what arrives.
    Watch(single::WatchOptions),
    /// Change pods at a rate and measure the delivery to many watches.
    Fanout(single::FanoutOptions),
    /// Change many pods at once and measure the delivery to many watches.
    Burst(single::BurstOptions),
    /// Open many watches at once and measure their first sync.
    Sync(single::SyncOptions),
    /// Make connections one after the other, each for one GetPod.
    Connect(single::ConnectOptions),
    /// Measure how a server grows with the number and size of its pods.
    Density(experiments::DensityOptions),
    /// Compare servers in interleaved runs.
    Compare(experiments::CompareOptions),
    /// Kill containers of a real containerd and measure when a watch tells; as root.
    Detect(experiments::DetectOptions),
    /// Measure what it costs to know who connects, and what the eBPF programs cost; as root.
    Kernel(experiments::KernelOptions),
    /// Show, compare and check kept results.
    Report(experiments::ReportOptions),
    /// Run a comparison server.
    Serve(servers::Options),
    /// Run a program that ends with its parent, on one CPU.
    #[command(hide = true)]
    Launch(launch::Options),
    /// Start processes, one after the other, and print how many.
    #[command(hide = true)]
    Spawn {
        /// For how long.
        #[arg(long)]
        seconds: f64,
    },
}

/// Runs the command; its exit code is 1 when a budget is missed.
pub(crate) fn run(line: CommandLine) -> anyhow::Result<ExitCode> {
    launch::raise_descriptor_limit()?;
    match line.command {
        Command::Get(options) => single::get(&options),
        Command::List(options) => single::list(&options),
        Command::Watch(options) => single::watch(&options),
        Command::Fanout(options) => single::fanout(&options),
        Command::Burst(options) => single::burst(&options),
        Command::Sync(options) => single::sync(&options),
        Command::Connect(options) => single::connect(&options),
        Command::Density(options) => experiments::density(&options),
        Command::Compare(options) => experiments::compare(&options),
        Command::Detect(options) => experiments::detect(&options),
        Command::Kernel(options) => experiments::kernel(&options),
        Command::Report(options) => experiments::report(&options),
        Command::Serve(options) => servers::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Launch(options) => launch::run(&options).map(|()| ExitCode::SUCCESS),
        Command::Spawn { seconds } => {
            print(&format!("{}\n", crate::kernel::spawn(seconds)?));
            Ok(ExitCode::SUCCESS)
        }
    }
}
