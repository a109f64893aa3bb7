//! Servers under test: started as child processes, told of changes, removed with all they left.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use bytes::Bytes;
use rustix::process::{Pid, Signal, kill_process};

use crate::client::Settings;
use crate::commands::encoded_documents;
use crate::generate::{self, Plan, Shape};
use crate::launch;
use crate::load::{self, Changes, Protocol, Target};
use crate::measure::{Memory, ServerCgroups};
use crate::servers::encode_dump;

const START_LIMIT: Duration = Duration::from_secs(60);
const STOP_LIMIT: Duration = Duration::from_secs(5);
/// Large enough never to be what limits a transfer; stock windows are a workload of their own.
const LARGE_WINDOW: u32 = 0x4000_0000;

/// The name of the server that this project is about.
pub(crate) const OURS: &str = "pods-api";
const OURS_ON_EPOLL: &str = "pods-api-epoll";
const COMPARISON: [&str; 3] = ["floor", "tonic", "tokio-uring"];
/// The servers that take turns with it.
pub(crate) const SERVERS: [&str; 4] = [OURS_ON_EPOLL, COMPARISON[0], COMPARISON[1], COMPARISON[2]];

/// A program that can be started on a [`Site`].
#[derive(Clone, Debug)]
pub(crate) struct Program {
    name: String,
    path: PathBuf,
    arguments: Vec<String>,
    kind: ProgramKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum ProgramKind {
    Ours,
    Comparison,
}

impl Program {
    /// The server that this project is about.
    pub(crate) fn ours(path: PathBuf, arguments: Vec<String>) -> Self {
        Self { name: OURS.to_owned(), path, arguments, kind: ProgramKind::Ours }
    }

    /// The same server under its other driver, so that io_uring and epoll take turns within one run; none if the
    /// caller has chosen the driver.
    pub(crate) fn ours_on_epoll(path: PathBuf, mut arguments: Vec<String>) -> Option<Self> {
        if arguments.iter().any(|argument| argument.starts_with("--transport")) {
            return None;
        }
        arguments.push("--transport=epoll".to_owned());
        Some(Self { name: OURS_ON_EPOLL.to_owned(), ..Self::ours(path, arguments) })
    }

    /// The comparison servers, which are part of this program.
    pub(crate) fn comparison_servers() -> Vec<Self> {
        COMPARISON.map(Self::comparison).into()
    }

    pub(crate) fn comparison(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            path: PathBuf::from("/proc/self/exe"),
            arguments: vec!["serve".to_owned(), name.to_owned()],
            kind: ProgramKind::Comparison,
        }
    }

    /// The same program under another name, so that two of them can run side by side.
    pub(crate) fn named(self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self }
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// A simulated node: its pods and the private directory that servers of it work in.
pub(crate) struct Site {
    directory: tempfile::TempDir,
    shapes: Vec<Shape>,
    plan: Plan,
    server_cpu: Option<usize>,
    /// Cores that each server may use.
    cpu_quota: Option<f64>,
}

impl Site {
    pub(crate) fn new(
        plan: Plan,
        cpus: Option<(usize, usize)>,
        cpu_quota: Option<f64>,
    ) -> anyhow::Result<Self> {
        // In memory where possible: a disk would only add noise to the reading of changes.
        let shared_memory = Path::new("/dev/shm");
        let parent = if shared_memory.is_dir() { shared_memory.to_owned() } else { std::env::temp_dir() };
        let directory = tempfile::Builder::new()
            .prefix(&format!("pods-bench-{}-", std::process::id()))
            .tempdir_in(parent)?;
        Ok(Self {
            directory,
            shapes: generate::shapes(plan, false),
            plan,
            server_cpu: cpus.map(|(server, _)| server),
            cpu_quota,
        })
    }

    fn dump(&self) -> PathBuf {
        self.directory.path().join("pods.dump")
    }

    /// Keeps the pods of a server for the servers started later.
    pub(crate) fn keep_dump(&self, server: &Server) -> anyhow::Result<()> {
        let dump = encode_dump(load::list_pods(&server.target)?);
        std::fs::write(self.dump(), dump).context("keeping the pods")
    }

    pub(crate) fn pods_bytes(&self) -> anyhow::Result<u64> {
        Ok(std::fs::metadata(self.dump()).context("looking at the kept pods")?.len())
    }

    /// Starts a server and waits until it serves all pods.
    pub(crate) fn start(&self, program: &Program) -> anyhow::Result<Server> {
        let directory = self.directory.path().join(&program.name);
        let (changes_directory, staging) = (directory.join("changes"), directory.join("staging"));
        let socket = directory.join("pods.sock");
        std::fs::create_dir_all(&changes_directory)?;
        let mut command = launch::command(&program.path, self.server_cpu)?;
        match program.kind {
            ProgramKind::Ours => {
                let documents = self
                    .shapes
                    .iter()
                    .map(|shape| (format!("{:05}.json", shape.index), generate::manifest(shape)));
                let changes =
                    Changes::new(&changes_directory, &staging, documents.collect(), load::fresh_sequence())?;
                changes.write_all()?;
                self.our_arguments(program, &mut command, &socket, &changes_directory)?;
                self.launch(program, command, socket, Some(changes))
            }
            ProgramKind::Comparison => {
                command.args(&program.arguments).arg("--socket").arg(&socket);
                command.arg("--changes").arg(&changes_directory);
                if self.dump().exists() {
                    command.arg("--dump").arg(self.dump());
                } else {
                    command.args(["--pods", &self.plan.pods.to_string()]);
                    command.args(["--pod-bytes", &self.plan.pod_bytes.to_string()]);
                    command.args(["--seed", &self.plan.seed.to_string()]);
                }
                let mut server = self.launch(program, command, socket, None)?;
                let pods = load::list_pods(&server.target)?;
                let documents = encoded_documents(&pods)?;
                server.changes =
                    Some(Changes::new(&changes_directory, &staging, documents, load::fresh_sequence())?);
                Ok(server)
            }
        }
    }

    fn our_arguments(
        &self,
        program: &Program,
        command: &mut Command,
        socket: &Path,
        manifests: &Path,
    ) -> anyhow::Result<()> {
        command.arg("serve").arg("--socket").arg(socket).arg("--manifests").arg(manifests);
        command.args(["--node-name", "bench", "--admin", "127.0.0.1:0", "--max-connections", "4096"]);
        // The limiter is part of what is measured, its refusals are not.
        command.args(["--rate-limit-qps", "1000000000", "--rate-limit-burst", "1000000000"]);
        // A build that can talk to a container runtime must be told that there is none.
        let help =
            Command::new(&program.path).args(["serve", "--help"]).output().context("asking for its flags")?;
        if String::from_utf8_lossy(&help.stdout).contains("--cri-socket") {
            command.args(["--cri-socket", "none"]);
        }
        command.args(&program.arguments);
        Ok(())
    }

    fn launch(
        &self,
        program: &Program,
        command: Command,
        socket: PathBuf,
        changes: Option<Changes>,
    ) -> anyhow::Result<Server> {
        let cgroups = ServerCgroups::create(self.cpu_quota)?;
        let mut server = Server::spawn(&program.name, command, socket, cgroups)?;
        server.changes = changes;
        server.await_pods(self.plan.pods)?;
        Ok(server)
    }
}

/// A running server. It is ended, and what it left is removed, on drop.
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) target: Target,
    changes: Option<Changes>,
    child: Child,
    log: PathBuf,
    /// Removed after the child has ended: a cgroup with a process in it stays.
    cgroups: ServerCgroups,
}

impl Server {
    /// Starts a server that will listen on `socket`, its log beside it.
    pub(crate) fn spawn(
        name: &str,
        mut command: Command,
        socket: PathBuf,
        cgroups: ServerCgroups,
    ) -> anyhow::Result<Self> {
        let log = socket.with_file_name("log");
        let output = File::create(&log)?;
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output);
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        let target = Target {
            socket,
            protocol: if name == "floor" { Protocol::Floor } else { Protocol::Http2 },
            settings: Settings { window_bytes: LARGE_WINDOW, ..Settings::stock() },
            pid: Some(child.id()),
            count_syscalls: false,
        };
        let server = Self { name: name.to_owned(), target, changes: None, child, log, cgroups };
        server.cgroups.add(server.child.id())?;
        Ok(server)
    }

    /// Waits until the server serves so many pods.
    pub(crate) fn await_pods(&mut self, pods: usize) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        let mut last = String::from("it was not asked");
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                bail!("{} ended: {status}{}", self.name, self.last_words());
            }
            match load::list_pods(&self.target).map(|pods: Vec<Bytes>| pods.len()) {
                Ok(listed) if listed == pods => return Ok(()),
                Ok(listed) => last = format!("it serves {listed} of {pods} pods"),
                Err(error) => last = format!("{error:#}"),
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        bail!("{} is not ready after {START_LIMIT:?}: {last}{}", self.name, self.last_words())
    }

    /// What the server can be made to see.
    pub(crate) fn changes(&mut self) -> anyhow::Result<(&Target, &mut Changes)> {
        Ok((&self.target, self.changes.as_mut().context("this server takes no changes")?))
    }

    pub(crate) fn memory(&self) -> anyhow::Result<Memory> {
        Memory::of(self.child.id())
    }

    pub(crate) fn cgroup_peak(&self) -> Option<u64> {
        self.cgroups.peak_bytes()
    }

    /// The share of periods in which the server's CPU quota stopped it, if it has one.
    pub(crate) fn throttled(&self) -> Option<f64> {
        self.cgroups.throttled()
    }

    /// The end of the server's output, for messages about its failure.
    pub(crate) fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().rev().take(5).collect();
        if lines.is_empty() {
            return String::new();
        }
        format!("; its last words: {}", lines.into_iter().rev().collect::<Vec<_>>().join(" | "))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let deadline = Instant::now() + STOP_LIMIT;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
