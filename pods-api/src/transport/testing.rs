//! What the tests of this room share: deadlines, and running a part of a test in a process of its own, for what would
//! change this one (umask, file limit, seccomp) or must be killed.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than anything here takes on a loaded machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

const DIRECTORY: &str = "PODS_API_TEST_DIRECTORY";

/// Waits until `condition` holds.
#[track_caller]
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

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

/// Makes the kernel refuse a system call to every thread of this process with EPERM, as a container's seccomp profile
/// does. There is no way back.
#[allow(unsafe_code, reason = "no safe interface to seccomp exists")]
pub(crate) fn refuse(call: libc::c_long) {
    let statement = |code: u32, value: u32, jump_true, jump_false| libc::sock_filter {
        code: code as u16,
        jt: jump_true,
        jf: jump_false,
        k: value,
    };
    // Offset 0 of struct seccomp_data is the system call's number.
    let filter = [
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 0, 1),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32, 0, 0),
        statement(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0, 0),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_ptr().cast_mut() };
    rustix::thread::set_no_new_privs(true).unwrap();
    // SAFETY: the program and its filter live through the call, which copies them.
    let result = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            libc::SECCOMP_SET_MODE_FILTER,
            libc::SECCOMP_FILTER_FLAG_TSYNC,
            &raw const program,
        )
    };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}
