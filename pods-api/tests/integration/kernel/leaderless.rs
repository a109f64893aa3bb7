//! A process whose first thread ends before it does.
//!
//! The test binary itself, started with [`VARIABLE`] set: on the first thread, before `main`, it starts another one
//! and ends. No language offers that, so it takes the system call.

use std::io::Read as _;
use std::process::Command;

const VARIABLE: &str = "PODS_API_TEST_LEADERLESS";

/// The command; its process ends when its standard input does.
pub(super) fn command() -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(VARIABLE, "1");
    command
}

extern "C" fn before_main() {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    std::thread::spawn(|| {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    // SAFETY: ends this thread alone. It holds no lock and nothing on its stack is used by the other.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
}

#[used]
// SAFETY: the C library calls what stands in this section before `main`, on the first thread; what the function needs
// of the standard library (environment, threads, standard input) works by then.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = before_main;
