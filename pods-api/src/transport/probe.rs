//! Why io_uring cannot be used here, and what to change about it.

use rustix::io::Errno;
use std::fs;

/// The oldest kernel with everything the io_uring driver needs: multishot receive, single-issuer rings.
const MINIMUM_KERNEL: &str = "6.0";

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
