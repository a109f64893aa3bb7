//! Sets up a ring if the system allows one that is of use; else says why not, and what to change about it.
//!
//! Runs on the worker's thread, as the ring is of the thread that sets it up.

use io_uring::register::Probe;
use io_uring::{IoUring, opcode};
use rustix::io::Errno;
use std::fs;

/// The oldest kernel with everything the io_uring driver needs: multishot receive, single-issuer rings.
const MINIMUM_KERNEL: &str = "6.0";

/// Entries of the submission queue. It is emptied at least every [`super::worker::EARLY`] connections.
const SUBMISSIONS: u32 = 256;

/// io_uring cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum RingError {
    /// A sysctl forbids it.
    #[error(
        "kernel.io_uring_disabled is {level}: set it to 0{}", 
        if *.level == 1 { ", or put the server into the group kernel.io_uring_group" } else { "" }
    )]
    Sysctl {
        /// The sysctl's value.
        level: u8,
    },
    /// A seccomp filter forbids it.
    #[error(
        "a seccomp filter refuses {call}: allow io_uring_setup, io_uring_enter and io_uring_register in the \
         container's seccomp profile"
    )]
    Seccomp {
        /// The system call that was refused.
        call: &'static str,
    },
    /// Something else forbids it.
    #[error("{call} is not permitted: look for a rule of a security module (SELinux class io_uring)")]
    Forbidden {
        /// The system call that was refused.
        call: &'static str,
    },
    /// The kernel was built without it.
    #[error("this kernel has no io_uring: it was built without CONFIG_IO_URING")]
    Missing,
    /// The kernel lacks a part that is needed.
    #[error("this kernel lacks {feature}: io_uring is used from Linux {MINIMUM_KERNEL} on")]
    TooOld {
        /// What is missing.
        feature: &'static str,
    },
    /// There is not enough memory for the rings.
    #[error("no memory for {call}: raise the container's memory limit, or RLIMIT_MEMLOCK")]
    NoMemory {
        /// The system call that failed.
        call: &'static str,
    },
    /// Another error.
    #[error("{call} failed")]
    Failed {
        /// The system call that failed.
        call: &'static str,
        /// Its error.
        #[source]
        cause: Errno,
    },
}

impl RingError {
    /// Finds the reason behind the error of a system call.
    pub(super) fn explain(call: &'static str, cause: Errno) -> Self {
        match cause {
            Errno::PERM | Errno::ACCESS => match sysctl() {
                Some(level @ 1..) if call == "io_uring_setup" => Self::Sysctl { level },
                _ if is_filtered() => Self::Seccomp { call },
                _ => Self::Forbidden { call },
            },
            Errno::NOSYS if is_filtered() => Self::Seccomp { call },
            Errno::NOSYS => Self::Missing,
            Errno::INVAL if call == "io_uring_setup" => Self::TooOld { feature: "single-issuer rings" },
            Errno::INVAL if call == "io_uring_register" => Self::TooOld { feature: "provided-buffer rings" },
            Errno::NOMEM => Self::NoMemory { call },
            cause => Self::Failed { call, cause },
        }
    }
}

/// Sets up a ring, and returns whether its work is deferred.
pub(super) fn set_up(completions: u32) -> Result<(IoUring, bool), RingError> {
    let mut builder = IoUring::builder();
    builder.setup_submit_all().setup_cqsize(completions).setup_single_issuer().setup_taskrun_flag();
    let errno = |error: &std::io::Error| Errno::from_io_error(error).unwrap_or(Errno::IO);
    match builder.clone().setup_defer_taskrun().build(SUBMISSIONS) {
        Ok(ring) => Ok((ring, true)),
        // Deferred work came with 6.1, all the rest with 6.0.
        Err(error) if errno(&error) == Errno::INVAL => {
            match builder.setup_coop_taskrun().build(SUBMISSIONS) {
                Ok(ring) => Ok((ring, false)),
                Err(error) => Err(RingError::explain("io_uring_setup", errno(&error))),
            }
        }
        Err(error) => Err(RingError::explain("io_uring_setup", errno(&error))),
    }
}

/// Sees that the kernel knows every operation that is used. Multishot receive is no operation of its own: it came
/// with the same kernel as single-issuer rings.
pub(super) fn check_operations(ring: &IoUring) -> Result<(), RingError> {
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe).map_err(|error| {
        RingError::explain("io_uring_register", Errno::from_io_error(&error).unwrap_or(Errno::IO))
    })?;
    let needed = [
        (opcode::AcceptMulti::CODE, "IORING_OP_ACCEPT"),
        (opcode::RecvMulti::CODE, "IORING_OP_RECV"),
        (opcode::Send::CODE, "IORING_OP_SEND"),
        (opcode::SendMsg::CODE, "IORING_OP_SENDMSG"),
        (opcode::PollAdd::CODE, "IORING_OP_POLL_ADD"),
        (opcode::AsyncCancel::CODE, "IORING_OP_ASYNC_CANCEL"),
    ];
    match needed.into_iter().find(|(code, _)| !probe.is_supported(*code)) {
        Some((_, feature)) => Err(RingError::TooOld { feature }),
        None => Ok(()),
    }
}

fn sysctl() -> Option<u8> {
    fs::read_to_string("/proc/sys/kernel/io_uring_disabled").ok()?.trim().parse().ok()
}

/// Whether a seccomp filter is active on this thread.
fn is_filtered() -> bool {
    fs::read_to_string("/proc/thread-self/status").is_ok_and(|status| {
        status.lines().any(|line| line.strip_prefix("Seccomp:").map(str::trim) == Some("2"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_say_what_to_change() {
        let cases = [
            (RingError::Sysctl { level: 2 }, "kernel.io_uring_disabled is 2: set it to 0"),
            (RingError::Sysctl { level: 1 }, "kernel.io_uring_group"),
            (RingError::Seccomp { call: "io_uring_setup" }, "seccomp profile"),
            (RingError::TooOld { feature: "x" }, "6.0"),
            (RingError::NoMemory { call: "io_uring_setup" }, "memory limit"),
        ];
        for (error, part) in cases {
            assert!(error.to_string().contains(part), "{error}");
        }
    }

    #[test]
    fn an_unexpected_error_is_kept_as_the_cause() {
        let error = RingError::explain("io_uring_enter", Errno::BADFD);
        assert_eq!(error.to_string(), "io_uring_enter failed");
        assert!(std::error::Error::source(&error).is_some());
    }
}
