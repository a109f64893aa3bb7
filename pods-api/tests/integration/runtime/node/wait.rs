//! Waiting for what must come, and running commands that must succeed.

use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// For what must come soon: no test depends on how soon, and nothing that works comes near it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

const POLL: Duration = Duration::from_millis(5);

/// The work tree's root.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// Polls until `probe` answers or `deadline` has passed, which fails the test naming `what` was awaited.
#[track_caller]
pub(crate) fn eventually<T>(what: &str, deadline: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(answer) = probe() {
            return answer;
        }
        assert!(start.elapsed() < deadline, "waited {deadline:?} for {what}");
        thread::sleep(POLL);
    }
}

/// Runs a command to its end, which must be a success; returns what it printed on stdout.
#[track_caller]
pub(crate) fn succeed(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{stdout}{stderr}", output.status);
    stdout
}
