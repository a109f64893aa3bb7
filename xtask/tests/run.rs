//! `cargo xtask run` as a person uses it: it shows the pods and their changes, and leaves nothing behind.

#![allow(clippy::unwrap_used, reason = "test code that clippy takes for the product's")]

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

const PATIENCE: Duration = Duration::from_secs(30);

/// `xtask run` with the server that the workspace's build put beside it, and temporary files below `directory`.
fn xtask_run(directory: &Path) -> Command {
    let xtask = Path::new(env!("CARGO_BIN_EXE_xtask"));
    let server = xtask.with_file_name("pods-api");
    assert!(server.exists(), "no {}: build the whole workspace first", server.display());
    let mut command = Command::new(xtask);
    command.args(["run", "--binary"]).arg(server).env("TMPDIR", directory).stdin(Stdio::null());
    command
}

fn examples() -> usize {
    fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/manifests")).unwrap().count()
}

/// Nothing lies in `directory` and no process has it in its command line.
fn assert_nothing_left(directory: &Path) {
    let files: Vec<_> = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(files.is_empty(), "left behind: {files:?}");
    let name = directory.to_str().unwrap().as_bytes();
    let processes: Vec<PathBuf> = fs::read_dir("/proc")
        .unwrap()
        .map(|entry| entry.unwrap().path().join("cmdline"))
        .filter(|path| fs::read(path).is_ok_and(|line| line.windows(name.len()).any(|part| part == name)))
        .collect();
    assert!(processes.is_empty(), "left running: {processes:?}");
}

#[test]
fn once_lists_the_examples_and_cleans_up() {
    let directory = tempfile::tempdir().unwrap();
    let output = xtask_run(directory.path()).arg("--once").output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(table.lines().count(), 1 + examples(), "{table}");
    assert!(table.starts_with("NAMESPACE"), "{table}");
    assert_nothing_left(directory.path());
}

struct Live {
    child: Child,
    lines: Receiver<String>,
}

impl Live {
    fn start(directory: &Path) -> Self {
        // A group of its own, as a shell gives it; the log of a failure is worth having.
        let mut child = xtask_run(directory).process_group(0).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in stdout.lines() {
                // Ends with the child's output, or with the test that no longer listens.
                if sender.send(line.unwrap()).is_err() {
                    break;
                }
            }
        });
        Self { child, lines }
    }

    fn line(&self) -> String {
        self.lines.recv_timeout(PATIENCE).expect("a line is printed")
    }

    /// Sends a signal and returns the exit code.
    fn end(mut self, signal: Signal) -> Option<i32> {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
        self.child.wait().unwrap().code()
    }
}

#[test]
fn edits_show_live_until_a_signal_and_nothing_stays() {
    for signal in [Signal::INT, Signal::TERM] {
        let directory = tempfile::tempdir().unwrap();
        let live = Live::start(directory.path());
        for _ in 0..=examples() {
            live.line();
        }
        let scene = fs::read_dir(directory.path()).unwrap().next().unwrap().unwrap().path();
        let manifest = scene.join("manifests/late.json");
        fs::write(
            &manifest,
            r#"{"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "late"},
                "spec": {"containers": [{"name": "main", "image": "registry.example/main:1"}]}}"#,
        )
        .unwrap();
        let row = live.line();
        assert!(row.starts_with("default") && row.contains("late-example-node"), "{row}");
        fs::remove_file(&manifest).unwrap();
        let row = live.line();
        assert!(row.contains("late-example-node") && row.contains("Deleted"), "{row}");
        assert_eq!(live.end(signal), Some(0));
        assert_nothing_left(directory.path());
    }
}
