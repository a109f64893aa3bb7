//! The pods of a node, the server beside them, and rounds of killing.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::judge::Judge;
use super::node::{IMAGE, Node, Recipe, SandboxOptions};
use super::watch::ClaimWatch;
use super::{DetectPlan, Mode};
use crate::compare::Server;
use crate::generate::Random;
use crate::launch;
use crate::measure::ServerCgroups;
use crate::report::DetectionMode;

/// Pods, each with one container at a time.
const PODS: usize = 10;
const FOREVER: &[&str] = &["/bin/sh", "-c", "while :; do sleep 1000; done"];
/// How long anything that must come may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// The longest pause before a kill; at random, so that no kill keeps step with the server's lists.
const MAX_PAUSE_MILLIS: f64 = 200.0;

/// The node under test. The server goes first, then what it looked at.
pub(super) struct Stage {
    watch: ClaimWatch,
    _server: Server,
    node: Node,
    _directory: tempfile::TempDir,
    pods: Vec<StagedPod>,
    judge: Judge,
    random: Random,
}

struct StagedPod {
    sandbox: String,
    attempt: u32,
    /// The last container, which is dead.
    last: Option<String>,
}

impl Stage {
    pub(super) fn new(mut node: Node, plan: &DetectPlan, arguments: &[&str]) -> anyhow::Result<Self> {
        let directory =
            tempfile::Builder::new().prefix(&format!("pods-bench-{}-", std::process::id())).tempdir()?;
        let manifests = directory.path().join("manifests");
        std::fs::create_dir(&manifests)?;
        let mut pods = Vec::new();
        for number in 0..PODS {
            let uid = format!("detect-{number}");
            let manifest = format!(
                "apiVersion: v1\nkind: Pod\nmetadata: {{name: {uid}, uid: {uid}}}\n\
                 spec: {{containers: [{{name: a, image: '{IMAGE}'}}]}}\n"
            );
            std::fs::write(manifests.join(format!("{uid}.yaml")), manifest)?;
            let sandbox = node.sandbox(&uid, &format!("{uid}-node"), 0, SandboxOptions::default());
            pods.push(StagedPod { sandbox, attempt: 0, last: None });
        }
        let server = start(plan, arguments, &node, directory.path(), &manifests)?;
        let watch = ClaimWatch::open(&server.target)?;
        Ok(Self {
            watch,
            _server: server,
            node,
            _directory: directory,
            pods,
            judge: Judge::default(),
            random: Random::new(1),
        })
    }

    /// Starts a container in each pod, and kills as many of them as are wanted; returns how many.
    pub(super) fn round(&mut self, wanted: usize) -> anyhow::Result<usize> {
        let mut containers = Vec::new();
        for pod in self.pods.iter_mut().take(wanted) {
            if let Some(last) = pod.last.take() {
                let removed = self.node.kubelet().remove(&last);
                removed.with_context(|| format!("removing container {last}"))?;
            }
            let recipe = Recipe { attempt: pod.attempt, ..Recipe::shell("a", FOREVER) };
            let container = self.node.run(&pod.sandbox, &recipe);
            pod.attempt += 1;
            pod.last = Some(container.clone());
            containers.push(container);
        }
        for container in &containers {
            self.wait_until("a started container to be told", |judge| judge.is_told_running(container))?;
        }
        // A process that ends in a container that goes on.
        if let Some(container) = containers.last() {
            self.node.execute(container, "exit 0");
        }
        for container in &containers {
            self.pause()?;
            self.kill(container)?;
        }
        let deadline = Instant::now() + PATIENCE;
        while !containers.iter().all(|container| self.judge.is_told_dead(container)) {
            match self.watch.next(deadline)? {
                Some(claim) => self.judge.hears(claim),
                // The judge finds out which ones were missed.
                None => break,
            }
        }
        Ok(containers.len())
    }

    pub(super) fn verdict(&self, mode: Mode) -> DetectionMode {
        self.judge.verdict(mode.name())
    }

    /// Listens for a while.
    fn pause(&mut self) -> anyhow::Result<()> {
        let end = Instant::now() + Duration::from_secs_f64(self.random.unit() * MAX_PAUSE_MILLIS / 1e3);
        while let Some(claim) = self.watch.next(end)? {
            self.judge.hears(claim);
        }
        Ok(())
    }

    fn wait_until(&mut self, what: &str, is_so: impl Fn(&Judge) -> bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(&self.judge) {
            let claim = self.watch.next(deadline)?;
            self.judge.hears(claim.with_context(|| format!("waited {PATIENCE:?} for {what}"))?);
        }
        Ok(())
    }

    /// Kills a container's process, and notes when it was dead.
    fn kill(&mut self, container: &str) -> anyhow::Result<()> {
        let process = self.process_of(container)?;
        self.judge.kills(container, Instant::now());
        pidfd_send_signal(&process, Signal::KILL).context("killing a container")?;
        let mut dead = [PollFd::new(&process, PollFlags::IN)];
        let limit = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
        let ended = rustix::io::retry_on_intr(|| poll(&mut dead, Some(&limit)))?;
        let at = Instant::now();
        ensure!(ended == 1, "a killed process does not end");
        self.judge.died(container, at);
        Ok(())
    }

    /// The first process of a container, as its shim keeps it.
    fn process_of(&self, container: &str) -> anyhow::Result<OwnedFd> {
        let state = self.node.socket().with_file_name("state/io.containerd.runtime.v2.task/k8s.io");
        let file: PathBuf = state.join(container).join("init.pid");
        let text = std::fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
        let pid = text.trim().parse().ok().and_then(Pid::from_raw).context("a process ID")?;
        pidfd_open(pid, PidfdFlags::empty()).with_context(|| format!("opening process {pid:?}"))
    }
}

fn start(
    plan: &DetectPlan,
    arguments: &[&str],
    node: &Node,
    directory: &Path,
    manifests: &Path,
) -> anyhow::Result<Server> {
    let socket = directory.join("pods.sock");
    let mut command = launch::command(&plan.ours, None)?;
    command.arg("serve").arg("--socket").arg(&socket).arg("--manifests").arg(manifests);
    command.arg("--cri-socket").arg(node.socket());
    command.args(["--node-name", "bench", "--admin", "127.0.0.1:0"]);
    command.args(["--rate-limit-qps", "1000000", "--rate-limit-burst", "1000000"]);
    command.args(arguments).args(&plan.ours_arguments);
    let mut server = Server::spawn("pods-api", command, socket, ServerCgroups::create(None)?)?;
    server.await_pods(PODS)?;
    Ok(server)
}
