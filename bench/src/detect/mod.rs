//! How soon a watch tells that a container has died, and whether it ever tells so of one that lives.
//!
//! A real containerd runs the containers. One is killed at a time, at random moments; its pidfd says when it was dead,
//! and a watch when that was told. Meanwhile other processes end that are no container's: what is said of their
//! containers then is a false claim.

mod judge;
#[path = "../../../pods-api/tests/integration/runtime/node/mod.rs"]
#[allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "the tests' own, which use all of it"
)]
mod node;
mod stage;
mod watch;

use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, anyhow, ensure};

use crate::report::text::{progress, progress_done};
use crate::report::{Detection, DetectionMode};
use node::Node;
use stage::Stage;

/// What to measure.
#[derive(Clone, Debug)]
pub(crate) struct DetectPlan {
    pub(crate) ours: PathBuf,
    /// More arguments for it.
    pub(crate) ours_arguments: Vec<String>,
    pub(crate) modes: Vec<Mode>,
    /// Containers to kill in each mode; the slow ones take fewer.
    pub(crate) deaths: usize,
}

/// By what the server learns of a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Mode {
    /// The runtime's events.
    Events,
    /// eBPF's hints, and what the runtime then says; no events.
    Ebpf,
    /// inotify's hints of cgroups, which stand in for eBPF's where it cannot be loaded.
    Inotify,
    /// No hint of any kind: the runtime's lists alone.
    Lists,
}

impl Mode {
    pub(crate) const ALL: [Self; 4] = [Self::Events, Self::Ebpf, Self::Inotify, Self::Lists];
    /// Those that bench/budgets.toml is about.
    pub(crate) const BUDGETED: [Self; 2] = [Self::Events, Self::Lists];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Events => "events",
            Self::Ebpf => "ebpf",
            Self::Inotify => "inotify",
            Self::Lists => "lists",
        }
    }

    /// The server's flags, those of them that it has.
    fn arguments(self, help: &str) -> Vec<&'static str> {
        let flags: &[(&str, &'static str)] = match self {
            Self::Events => &[("--ebpf", "--ebpf=off")],
            Self::Ebpf => &[("--ebpf", "--ebpf=require"), ("--runtime-events", "--runtime-events=off")],
            Self::Inotify => &[("--ebpf", "--ebpf=off"), ("--runtime-events", "--runtime-events=off")],
            Self::Lists => &[
                ("--ebpf", "--ebpf=off"),
                ("--runtime-events", "--runtime-events=off"),
                // Where there are no pods, so that nothing is seen of them.
                ("--cgroup-root", "--cgroup-root=/pods-bench-none"),
            ],
        };
        flags.iter().filter(|(name, _)| help.contains(name)).map(|(_, flag)| *flag).collect()
    }

    fn deaths(self, wanted: usize) -> usize {
        match self {
            Self::Events => wanted,
            // About one in ten takes a second or more.
            Self::Ebpf | Self::Inotify | Self::Lists => wanted.div_ceil(4),
        }
    }
}

/// Measures every mode; one that the machine or the server lacks says why.
pub(crate) fn detect(plan: &DetectPlan, interrupted: &Arc<AtomicBool>) -> anyhow::Result<Detection> {
    ensure!(plan.deaths > 0, "there must be at least one death");
    let help = Command::new(&plan.ours).args(["serve", "--help"]).output().context("asking for its flags")?;
    let help = String::from_utf8_lossy(&help.stdout);
    ensure!(help.contains("--cri-socket"), "{} does not follow a container runtime", plan.ours.display());
    let mut modes = Vec::new();
    for &mode in &plan.modes {
        // Of its own for each mode, so that none finds what another has left.
        progress(&format!("{}: starting containerd", mode.name()));
        let result = match node::missing() {
            Some(why) => Err(anyhow!("no container can be run: {why}")),
            None => Stage::new(Node::start(), plan, &mode.arguments(&help))
                .and_then(|mut stage| measure(&mut stage, mode, mode.deaths(plan.deaths), interrupted)),
        };
        ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
        modes.push(result.unwrap_or_else(|error| DetectionMode {
            mode: mode.name().to_owned(),
            failure: Some(format!("{error:#}")),
            ..DetectionMode::default()
        }));
    }
    progress_done();
    Ok(Detection { modes })
}

fn measure(
    stage: &mut Stage,
    mode: Mode,
    deaths: usize,
    interrupted: &AtomicBool,
) -> anyhow::Result<DetectionMode> {
    let mut killed = 0;
    while killed < deaths {
        ensure!(!interrupted.load(Ordering::Relaxed), "interrupted");
        progress(&format!("{}: {killed} of {deaths} containers killed", mode.name()));
        killed += stage.round(deaths - killed)?;
    }
    Ok(stage.verdict(mode))
}
