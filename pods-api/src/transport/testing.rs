//! What the tests of this room share: running a part of a test in a process of its own, for what would
//! change this one (umask, file limit, seccomp) or must be killed.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const DIRECTORY: &str = "PODS_API_TEST_DIRECTORY";

/// A test function, marked `#[ignore]`, that runs in its own process; killed when dropped.
pub(crate) struct Helper(Child);

impl Helper {
    /// Starts the ignored test `name`, given as its full path without the crate.
    pub(crate) fn start(name: &str, directory: &Path) -> Self {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"])
            .env(DIRECTORY, directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Waits for a line of output that contains `text`.
    #[track_caller]
    pub(crate) fn wait_for(&mut self, text: &str) {
        let output = self.0.stdout.as_mut().unwrap();
        let mut seen = String::new();
        for line in BufReader::with_capacity(1, output).lines() {
            let line = line.unwrap();
            if line.contains(text) {
                return;
            }
            seen.push_str(&line);
            seen.push('\n');
        }
        let mut errors = String::new();
        let _ = self.0.stderr.as_mut().unwrap().read_to_string(&mut errors);
        panic!("the helper ended without saying {text:?}:\n{seen}{errors}");
    }

    /// Waits until it has ended by itself and expects that it passed.
    #[track_caller]
    pub(crate) fn passes(mut self) {
        drop(self.0.stdin.take());
        let mut output = String::new();
        let _ = self.0.stdout.as_mut().unwrap().read_to_string(&mut output);
        let _ = self.0.stderr.as_mut().unwrap().read_to_string(&mut output);
        assert!(self.0.wait().unwrap().success() && output.contains("1 passed"), "{output}");
    }

    /// Kills it as `kill -9` does.
    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// In a helper process: the directory that the test gave it.
pub(crate) fn helper_directory() -> std::path::PathBuf {
    std::env::var_os(DIRECTORY).expect("helper tests are started by other tests").into()
}

/// In a helper process: stays until the test is done with it.
pub(crate) fn wait_for_the_test() {
    let _ = std::io::stdin().read(&mut [0]);
}
