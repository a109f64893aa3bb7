//! A process that is held by a pidfd while `/proc` is read about it.

use super::identity::{Identify, Identity};
use crate::pod::Pid;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{PidfdFlags, pidfd_open};
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

/// A process by its number, and the descriptor that tells whether it is still the process of that number.
#[derive(Debug)]
pub(super) struct Process {
    pid: Pid,
    pidfd: OwnedFd,
}

impl Process {
    /// `pidfd` must be of the process that had the number `pid` when the descriptor was made.
    pub(super) fn new(pid: Pid, pidfd: OwnedFd) -> Self {
        Self { pid, pidfd }
    }

    /// The process that has the number now, if it began before this server did.
    pub(super) fn older_than_this_one(pid: Pid) -> Option<Self> {
        let pidfd = pidfd_open(rustix::process::Pid::from_raw(pid.as_raw())?, PidfdFlags::empty()).ok()?;
        let is_older = start_ticks(&pid.to_string())? < start_ticks("self")?;
        is_older.then_some(Self { pid, pidfd })
    }

    /// Reads the executable's path, where that is allowed, and the identity. `None` if the process ended meanwhile:
    /// what was read may then be another's; or if `/proc` numbers the processes of another PID namespace.
    pub(super) fn read(&self, identify: &dyn Identify) -> Option<(Option<Arc<str>>, Identity)> {
        if !has_proc_of_this_namespace() {
            return None;
        }
        let executable = executable(self.pid);
        let identity = identify.identify(self.pid, self.pidfd.as_fd());
        is_alive(self.pidfd.as_fd()).then_some((executable, identity))
    }
}

/// Whether any thread of the process still runs: a pidfd is readable from its end on, and its number is not given away
/// before.
pub(crate) fn is_alive(pidfd: BorrowedFd<'_>) -> bool {
    let mut ended = [PollFd::from_borrowed_fd(pidfd, PollFlags::IN)];
    matches!(poll(&mut ended, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })), Ok(0))
}

/// Whether `/proc` numbers processes as this one's PID namespace does, and so as pidfds are opened.
pub(crate) fn has_proc_of_this_namespace() -> bool {
    let this = rustix::fs::readlink("/proc/self", Vec::new());
    this.is_ok_and(|number| number.to_bytes() == std::process::id().to_string().as_bytes())
}

fn executable(pid: Pid) -> Option<Arc<str>> {
    let link = rustix::fs::readlink(format!("/proc/{pid}/exe"), Vec::new()).ok()?;
    Some(OsStr::from_bytes(link.as_bytes()).to_string_lossy().into())
}

/// When a process began, in clock ticks since the machine did (proc_pid_stat(5), field 22).
fn start_ticks(pid: &str) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the command in brackets, and may itself hold blanks and brackets.
    let (_, after_command) = stat.rsplit_once(')')?;
    after_command.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::identity::Nowhere;
    use super::*;
    use std::cell::RefCell;
    use std::process::{Child, Command, Stdio};
    use std::sync::Mutex;

    /// A child that is ended and waited for, also when the test fails.
    struct Sleeper(RefCell<Child>);

    impl Sleeper {
        fn spawn() -> Self {
            let child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
            Self(RefCell::new(child))
        }

        fn pid(&self) -> Pid {
            Pid::new(self.0.borrow().id().cast_signed()).unwrap()
        }

        fn process(&self) -> Process {
            let pid = self.pid();
            let raw = rustix::process::Pid::from_raw(pid.as_raw()).unwrap();
            Process::new(pid, pidfd_open(raw, PidfdFlags::empty()).unwrap())
        }
    }

    impl Drop for Sleeper {
        fn drop(&mut self) {
            let child = self.0.get_mut();
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    #[test]
    fn a_running_process_is_read() {
        let sleeper = Sleeper::spawn();
        let process = sleeper.process();
        let (executable, identity) = process.read(&Nowhere).unwrap();
        assert!(executable.is_some() && identity == Identity::Unknown);
    }

    #[test]
    fn one_that_has_ended_is_not_even_before_it_is_waited_for() {
        let sleeper = Sleeper::spawn();
        let process = sleeper.process();
        sleeper.0.borrow_mut().kill().unwrap();
        let mut ended = [PollFd::new(&process.pidfd, PollFlags::IN)];
        assert_eq!(poll(&mut ended, Some(&Timespec { tv_sec: 20, tv_nsec: 0 })), Ok(1));
        assert_eq!(process.read(&Nowhere), None);
        sleeper.0.borrow_mut().wait().unwrap();
        assert_eq!(process.read(&Nowhere), None);
    }

    /// Ends the process while it is being identified.
    #[derive(Debug)]
    struct Ends(Mutex<Child>);

    impl Identify for Ends {
        fn identify(&self, _: Pid, _: BorrowedFd<'_>) -> Identity {
            let mut child = self.0.lock().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            Identity::Pod { uid: "of another process".into(), container: None }
        }
    }

    // PID-1
    #[test]
    fn what_was_read_while_the_process_ended_is_forgotten() {
        let child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().unwrap();
        let pid = Pid::new(child.id().cast_signed()).unwrap();
        let raw = rustix::process::Pid::from_raw(pid.as_raw()).unwrap();
        let process = Process::new(pid, pidfd_open(raw, PidfdFlags::empty()).unwrap());
        assert_eq!(process.read(&Ends(Mutex::new(child))), None);
    }

    #[test]
    fn without_a_pidfd_of_the_peer_only_older_processes_are_sure() {
        let parent = Pid::new(rustix::process::getppid().unwrap().as_raw_nonzero().get()).unwrap();
        assert!(Process::older_than_this_one(parent).is_some());
        let sleeper = Sleeper::spawn();
        assert!(Process::older_than_this_one(sleeper.pid()).is_none());
        let pid = sleeper.pid();
        drop(sleeper);
        assert!(Process::older_than_this_one(pid).is_none());
    }
}
