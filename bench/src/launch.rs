//! Starts a server process that ends when this one does.
//!
//! The bench may be killed at any time; a server it leaves behind would go on using the CPU that the next run
//! measures. So each server is started through `pods-bench launch`, which asks the kernel for a signal at the
//! parent's death, pins itself to a CPU, and becomes the server.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use rustix::thread::CpuSet;

/// Options of `pods-bench launch`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Options {
    /// CPU to run on.
    #[arg(long)]
    cpu: Option<usize>,
    /// Cgroup to run in, as a directory.
    #[arg(long)]
    cgroup: Option<PathBuf>,
    /// Process to end with.
    #[arg(long)]
    parent: i32,
    /// The program and its arguments.
    #[arg(last = true, required = true)]
    command: Vec<OsString>,
}

/// Becomes the program; returns only to say why that failed.
pub(crate) fn run(options: &Options) -> anyhow::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::TERM))?;
    // The parent may have died before the line above.
    ensure!(
        rustix::process::getppid().map(Pid::as_raw_nonzero).map(std::num::NonZero::get)
            == Some(options.parent),
        "the parent process is gone"
    );
    if let Some(cpu) = options.cpu {
        pin(cpu)?;
    }
    if let Some(cgroup) = &options.cgroup {
        let processes = cgroup.join("cgroup.procs");
        std::fs::write(&processes, "0").with_context(|| format!("writing {}", processes.display()))?;
    }
    let (program, arguments) = options.command.split_first().context("no program")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("running {}", program.display()))
}

/// A command that runs `program` through `pods-bench launch`.
pub(crate) fn command(program: &Path, cpu: Option<usize>) -> anyhow::Result<Command> {
    inside(program, cpu, None)
}

/// The same, in a cgroup.
pub(crate) fn inside(program: &Path, cpu: Option<usize>, cgroup: Option<&Path>) -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("finding the bench's own program")?);
    command.arg("launch").arg("--parent").arg(std::process::id().to_string());
    if let Some(cpu) = cpu {
        command.arg("--cpu").arg(cpu.to_string());
    }
    if let Some(cgroup) = cgroup {
        command.arg("--cgroup").arg(cgroup);
    }
    command.arg("--").arg(program);
    Ok(command)
}

/// Pins the calling thread, and the threads it will start, to one CPU.
pub(crate) fn pin(cpu: usize) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set).with_context(|| format!("pinning to CPU {cpu}"))
}

/// CPUs for a server and for its client: two different ones, or none when this process may use only one.
pub(crate) fn cpus() -> anyhow::Result<Option<(usize, usize)>> {
    let allowed = rustix::thread::sched_getaffinity(None)?;
    let mut allowed = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    Ok(allowed.next().zip(allowed.next()))
}

/// Raises the number of descriptors this process and the servers it starts may open: a thousand connections need
/// more than the usual soft limit.
pub(crate) fn raise_descriptor_limit() -> anyhow::Result<()> {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    rustix::process::setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit })
        .context("raising the limit of open descriptors")
}
