//! `cargo xtask run`: the server on a socket of its own, fed from a copy of the example manifests, and its pods
//! live on the terminal. Everything lies in one temporary directory, which goes when the command ends.

use std::fs::{self, File};
use std::io::IsTerminal as _;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::setup::{self, Scope};
use crate::shell::{cargo, in_root, root, run, say, target};

/// How long the server may take until it answers; it needs milliseconds.
const START: Duration = Duration::from_secs(20);
/// How long the server may take to drain before it is killed.
const STOP: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(20);

/// The arguments of `cargo xtask run`.
#[derive(Args)]
pub(crate) struct Arguments {
    /// Print the pods once and end, instead of showing their changes until Ctrl-C.
    #[arg(long)]
    once: bool,
    /// Build with optimisation.
    #[arg(long)]
    release: bool,
    /// Serve with this pods-api binary instead of building one.
    #[arg(long, value_name = "PATH", conflicts_with = "release")]
    binary: Option<PathBuf>,
}

/// Runs `cargo xtask run`.
pub(crate) fn execute(arguments: &Arguments) -> Result<ExitCode> {
    // Registered first: a signal during the build or the start must not leave anything behind either.
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP, SIGCHLD]).context("registering signal handlers")?;
    let binary = match &arguments.binary {
        Some(path) => path.clone(),
        None => build(arguments.release)?,
    };
    let scene = Scene::new(&binary)?;
    let mut server = scene.start_server()?;
    if !scene.wait_until_ready(&mut server, &mut signals)? {
        return Ok(ExitCode::SUCCESS);
    }
    if arguments.once {
        run(&mut scene.client(&["get", "pods", "--all-namespaces"]))?;
        return Ok(ExitCode::SUCCESS);
    }
    scene.introduce();
    let watch = Running::start(&mut scene.client(&["get", "pods", "--all-namespaces", "--watch"]))?;
    follow(&mut signals, server, watch, &scene)
}

/// Whether anything listens where container runtimes do: the sockets that the server tries.
fn has_container_runtime() -> bool {
    let sockets = ["/run/containerd/containerd.sock", "/run/crio/crio.sock"];
    sockets.iter().any(|socket| UnixStream::connect(socket).is_ok())
}

fn build(release: bool) -> Result<PathBuf> {
    setup::ensure(Scope::Run)?;
    let mut build = cargo();
    build.args(["build", "--package", "pods-api", "--bin", "pods-api"]);
    if release {
        build.arg("--release");
    }
    run(&mut build)?;
    Ok(target().join(if release { "release" } else { "debug" }).join("pods-api"))
}

/// Shows changes until the user or one of the two processes ends it.
fn follow(signals: &mut Signals, mut server: Running, mut watch: Running, scene: &Scene) -> Result<ExitCode> {
    for signal in signals.forever() {
        if signal != SIGCHLD {
            break;
        }
        if let Some(status) = server.child.try_wait()? {
            bail!("the server ended by itself: {status}\n{}", scene.log());
        }
        if let Some(status) = watch.child.try_wait()? {
            bail!("the watch ended by itself: {status}\n{}", scene.log());
        }
    }
    // The client first, so that it does not report the server's end as a failure.
    drop(watch);
    drop(server);
    say("stopped");
    Ok(ExitCode::SUCCESS)
}

/// The temporary directory and what is in it.
struct Scene {
    directory: tempfile::TempDir,
    binary: PathBuf,
}

impl Scene {
    fn new(binary: &Path) -> Result<Self> {
        let directory =
            tempfile::Builder::new().prefix("pods-api-run-").tempdir().context("making a directory")?;
        let scene = Self { directory, binary: binary.to_owned() };
        let examples = root().join("examples/manifests");
        fs::create_dir(scene.manifests())?;
        for entry in fs::read_dir(&examples).with_context(|| format!("reading {}", examples.display()))? {
            let entry = entry?;
            fs::copy(entry.path(), scene.manifests().join(entry.file_name()))
                .with_context(|| format!("copying {}", entry.path().display()))?;
        }
        Ok(scene)
    }

    fn manifests(&self) -> PathBuf {
        self.directory.path().join("manifests")
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("socket/pods-api.sock")
    }

    fn log_path(&self) -> PathBuf {
        self.directory.path().join("server.log")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.log_path()).unwrap_or_default()
    }

    fn start_server(&self) -> Result<Running> {
        let log = File::create(self.log_path()).context("creating the server's log")?;
        let mut server = in_root(&self.binary);
        server.arg("serve").arg("--socket").arg(self.socket()).arg("--manifests").arg(self.manifests());
        server.args(["--node-name", "example-node", "--admin", "127.0.0.1:0"]);
        if !has_container_runtime() {
            // Without one the server would wait for it.
            server.args(["--cri-socket", "none"]);
        }
        server.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Running::start(&mut server)
    }

    /// A client command on this scene's socket.
    fn client(&self, arguments: &[&str]) -> Command {
        let mut client = in_root(&self.binary);
        client.args(arguments).arg("--socket").arg(self.socket()).stdin(Stdio::null());
        client
    }

    /// Waits for the first answer; false when the user has asked to stop meanwhile.
    fn wait_until_ready(&self, server: &mut Running, signals: &mut Signals) -> Result<bool> {
        let start = Instant::now();
        loop {
            if signals.pending().any(|signal| signal != SIGCHLD) {
                return Ok(false);
            }
            if let Some(status) = server.child.try_wait()? {
                bail!("the server did not start: {status}\n{}", self.log());
            }
            let answer = self.client(&["get", "pods"]).output().context("starting the client")?;
            if answer.status.success() {
                return Ok(true);
            }
            if start.elapsed() > START {
                let reason = String::from_utf8_lossy(&answer.stderr).into_owned();
                bail!("the server does not answer: {reason}\n{}", self.log());
            }
            thread::sleep(POLL);
        }
    }

    fn introduce(&self) {
        let name = if std::io::stderr().is_terminal() { "\x1b[1m" } else { "" };
        let plain = if name.is_empty() { "" } else { "\x1b[0m" };
        eprintln!();
        eprintln!("  manifests  {name}{}{plain}", self.manifests().display());
        eprintln!("  socket     {}", self.socket().display());
        eprintln!("  log        {}", self.log_path().display());
        eprintln!();
        eprintln!("  Edit, add or remove manifests there and see the pods change below. Ctrl-C ends it.");
        eprintln!();
    }
}

/// A child in a process group of its own, so that Ctrl-C reaches only this program, which then ends its children in
/// order. Dropping it asks the child to end and, should it not, kills it.
struct Running {
    child: Child,
}

impl Running {
    fn start(command: &mut Command) -> Result<Self> {
        let child = command
            .process_group(0)
            .spawn()
            .with_context(|| format!("starting {:?}", command.get_program()))?;
        Ok(Self { child })
    }

    fn stop(&mut self) -> std::io::Result<()> {
        let deadline = Instant::now() + STOP;
        if self.child.try_wait()?.is_none() {
            kill_process(Pid::from_child(&self.child), Signal::TERM)?;
        }
        while self.child.try_wait()?.is_none() {
            if Instant::now() > deadline {
                self.child.kill()?;
                self.child.wait()?;
                break;
            }
            thread::sleep(POLL);
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Err(error) = self.stop() {
            say(format_args!("process {} may be left running: {error}", self.child.id()));
        }
    }
}
