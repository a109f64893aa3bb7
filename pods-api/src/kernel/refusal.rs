//! Why the kernel side runs without eBPF: one sentence each, which says what to change.
//!
//! What can be asked of the system is asked before anything is loaded, because a kernel answers most of these causes
//! with the same EPERM or with a page of verifier output.

use rustix::process::{Resource, Rlimit};
use std::io;
use std::path::Path;

/// Why there is no eBPF.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// `--ebpf off`
    #[error("switched off by --ebpf off")]
    Off,
    /// No object is embedded.
    #[error("built without eBPF; `cargo xtask setup` installs the tool chain for the next build")]
    NotBuilt,
    /// There is no cgroup2 hierarchy.
    #[error(
        "this node has no cgroup2 hierarchy (pure cgroup v1); mount one, or boot with systemd.unified_cgroup_hierarchy=1"
    )]
    CgroupV1,
    /// The kernel is older than the ring buffer.
    #[error("Linux {0} has no ring buffer for eBPF; 5.8 is the first that has")]
    OldKernel(String),
    /// The kernel does not describe its types.
    #[error(
        "/sys/kernel/btf/vmlinux is absent: mount /sys into the container, or use a kernel with CONFIG_DEBUG_INFO_BTF"
    )]
    NoBtf,
    /// The description is there, but not for us.
    #[error("/sys/kernel/btf/vmlinux cannot be read: {0}; run as root")]
    UnreadableBtf(String),
    /// The description is not understood.
    #[error("/sys/kernel/btf/vmlinux is not understood: {0}; please report this with the kernel's version")]
    StrangeBtf(String),
    /// A tracepoint has other arguments than the programs know.
    #[error(
        "the kernel's tracepoint {0} has arguments that are not known; please report this with the kernel's version"
    )]
    Tracepoint(&'static str),
    /// Lockdown forbids reading kernel memory.
    #[error("kernel lockdown is in mode confidentiality; boot with lockdown=integrity or without")]
    Lockdown,
    /// A capability is missing.
    #[error("{0} missing: add to securityContext.capabilities, or run as root")]
    Capability(String),
    /// The memory-lock limit is in the way.
    #[error(
        "RLIMIT_MEMLOCK is {0} bytes and cannot be raised: set LimitMEMLOCK=infinity, or add CAP_SYS_RESOURCE"
    )]
    Memlock(u64),
    /// Not even the smallest maps fit.
    #[error("no memory for the maps, not even with a ring buffer of {0} bytes: raise the memory limit")]
    Memory(u32),
    /// `bpf(2)` itself is refused.
    #[error(
        "bpf(2) is refused although the capabilities are there: allow it in the seccomp profile or security module"
    )]
    Forbidden,
    /// The kernel does not take a program.
    #[error(
        "the kernel refuses the program {program}: {reason}; please report this with the kernel's version"
    )]
    Program {
        /// Which one.
        program: &'static str,
        /// What the kernel says.
        reason: String,
    },
    /// The kernel does not attach a program.
    #[error(
        "the program {program} cannot be attached: {reason}; please report this with the kernel's version"
    )]
    Attach {
        /// Which one.
        program: &'static str,
        /// What the kernel says.
        reason: String,
    },
    /// Anything else.
    #[error("the kernel side cannot be loaded: {0}")]
    Other(String),
}

impl Refusal {
    /// One word for metrics.
    #[must_use]
    pub fn label(&self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::NotBuilt => "not_built",
            Self::CgroupV1 => "cgroup_v1",
            Self::OldKernel(_) => "old_kernel",
            Self::NoBtf | Self::UnreadableBtf(_) | Self::StrangeBtf(_) => "btf",
            Self::Tracepoint(_) => "tracepoint",
            Self::Lockdown => "lockdown",
            Self::Capability(_) => "capability",
            Self::Memlock(_) => "memlock",
            Self::Memory(_) => "memory",
            Self::Forbidden => "forbidden",
            Self::Program { .. } | Self::Attach { .. } => "program",
            Self::Other(_) => "other",
        }
    }
}

/// First version with the ring buffer.
const FIRST_KERNEL: (u32, u32) = (5, 8);
/// From here on maps are charged to the memory cgroup and not to the memory-lock limit.
const FIRST_WITHOUT_MEMLOCK: (u32, u32) = (5, 11);

/// From here on `kernel.unprivileged_bpf_disabled` is about what makes objects, not about those that are open.
const FIRST_WITH_OPEN_MAPS: (u32, u32) = (5, 19);

/// Asks the system for each cause that can be seen beforehand, and raises the memory-lock limit where it matters.
pub(super) fn check_system() -> Result<(), Refusal> {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let version = version(&release);
    if version < FIRST_KERNEL {
        return Err(Refusal::OldKernel(release));
    }
    if is_confidential(&read("/sys/kernel/security/lockdown")) {
        return Err(Refusal::Lockdown);
    }
    if let Some(missing) = missing_capabilities(&read("/proc/self/status")) {
        return Err(Refusal::Capability(missing));
    }
    if !has_cgroup2(&read("/proc/self/mounts")) {
        return Err(Refusal::CgroupV1);
    }
    if version < FIRST_WITHOUT_MEMLOCK { raise_memlock() } else { Ok(()) }
}

/// Whether the running kernel lets only those with CAP_BPF use a map that they hold open already.
#[must_use]
pub fn does_map_access_need_capability() -> bool {
    version(&rustix::system::uname().release().to_string_lossy()) < FIRST_WITH_OPEN_MAPS
}

/// A file's text; empty if it cannot be read, which then proves nothing.
fn read(path: &str) -> String {
    std::fs::read_to_string(Path::new(path)).unwrap_or_default()
}

/// Major and minor version of a kernel release such as `6.1.0-13-amd64`.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

/// The active mode of lockdown stands in brackets.
fn is_confidential(lockdown: &str) -> bool {
    lockdown.contains("[confidentiality]")
}

fn has_cgroup2(mounts: &str) -> bool {
    mounts.lines().any(|line| line.split(' ').nth(2) == Some("cgroup2"))
}

/// What is missing of the capabilities that loading takes (capabilities(7)).
fn missing_capabilities(status: &str) -> Option<String> {
    const SYS_ADMIN: u32 = 21;
    const NEEDED: [(u32, &str); 2] = [(39, "CAP_BPF"), (38, "CAP_PERFMON")];
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"))?;
    let effective = u64::from_str_radix(line.trim(), 16).ok()?;
    let has = |bit: u32| effective >> bit & 1 == 1;
    if has(SYS_ADMIN) {
        return None;
    }
    let missing: Vec<_> = NEEDED.iter().filter(|(bit, _)| !has(*bit)).map(|(_, name)| *name).collect();
    match missing[..] {
        [] => None,
        [one] => Some(format!("{one} is")),
        _ => Some(format!("{} are", missing.join(" and "))),
    }
}

/// Before 5.11 each map counts against this limit, of which a container has 64 KiB by default.
fn raise_memlock() -> Result<(), Refusal> {
    let limit = rustix::process::getrlimit(Resource::Memlock);
    let Some(current) = limit.current else { return Ok(()) };
    let unlimited = Rlimit { current: None, maximum: None };
    rustix::process::setrlimit(Resource::Memlock, unlimited).map_err(|_| Refusal::Memlock(current))
}

/// Whether an error, or what caused it, is this answer of the kernel.
pub(super) fn is_errno(error: &(dyn std::error::Error + 'static), errno: rustix::io::Errno) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if cause.downcast_ref::<io::Error>().and_then(io::Error::raw_os_error) == Some(errno.raw_os_error()) {
            return true;
        }
        next = cause.source();
    }
    false
}

/// An error and its causes in one line.
pub(super) fn one_line(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = first_line(&error.to_string());
    let mut next = error.source();
    while let Some(cause) = next {
        let cause_text = first_line(&cause.to_string());
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        next = cause.source();
    }
    text
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_read_from_any_release() {
        assert_eq!(version("6.1.0-13-amd64"), (6, 1));
        assert_eq!(version("5.10.262"), (5, 10));
        assert_eq!(version("7.3.4+deb14-amd64"), (7, 3));
        assert_eq!(version(""), (0, 0));
    }

    #[test]
    fn active_lockdown_is_the_one_in_brackets() {
        assert!(is_confidential("none integrity [confidentiality]\n"));
        assert!(!is_confidential("none [integrity] confidentiality\n"));
        assert!(!is_confidential(""), "securityfs is not mounted");
    }

    #[test]
    fn missing_capabilities_are_named() {
        let missing = |mask: u64| missing_capabilities(&format!("Name:\tx\nCapEff:\t{mask:016x}\n"));
        assert_eq!(missing(1 << 21), None, "CAP_SYS_ADMIN covers both");
        assert_eq!(missing(1 << 38 | 1 << 39), None);
        assert_eq!(missing(1 << 39).as_deref(), Some("CAP_PERFMON is"));
        assert_eq!(missing(0).as_deref(), Some("CAP_BPF and CAP_PERFMON are"));
    }

    #[test]
    fn cgroup2_is_looked_for_among_the_mounts() {
        assert!(has_cgroup2("cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n"));
        assert!(!has_cgroup2("cgroup /sys/fs/cgroup/cpu cgroup rw,cpu 0 0\ntmpfs /cgroup2 tmpfs rw 0 0\n"));
    }

    #[test]
    fn every_refusal_is_one_line() {
        for refusal in [
            Refusal::Off,
            Refusal::NotBuilt,
            Refusal::CgroupV1,
            Refusal::OldKernel("5.4.0".into()),
            Refusal::NoBtf,
            Refusal::Lockdown,
            Refusal::Capability("CAP_BPF is".into()),
            Refusal::Memlock(65536),
            Refusal::Memory(4096),
            Refusal::Forbidden,
        ] {
            let text = refusal.to_string();
            assert!(!text.contains('\n') && !text.ends_with('.'), "{text}");
        }
    }
}
