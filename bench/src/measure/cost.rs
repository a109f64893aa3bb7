//! What a process has used, read from /proc: works for any server, without its help.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

/// What a process has used since it started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    at: Instant,
    cpu_nanos: u64,
    switches: u64,
}

/// What a process used between two readings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Cost {
    pub(crate) elapsed_nanos: u64,
    pub(crate) cpu_nanos: u64,
    pub(crate) context_switches: u64,
    /// Counted only when asked for.
    pub(crate) syscalls: Option<u64>,
}

/// A process's memory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Memory {
    pub(crate) resident: u64,
    /// Resident, with shared pages counted by share.
    pub(crate) proportional: u64,
    /// The highest `resident` so far.
    pub(crate) peak: u64,
}

impl Usage {
    /// Reads a process's threads; those that have already ended are not counted (no server here ends threads while
    /// it is measured, other than the floor's when a client leaves).
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let mut usage = Self { at: Instant::now(), cpu_nanos: 0, switches: 0 };
        let tasks = PathBuf::from(format!("/proc/{pid}/task"));
        let entries = std::fs::read_dir(&tasks).with_context(|| format!("reading {}", tasks.display()))?;
        for entry in entries {
            // A thread that ends meanwhile is no error.
            let Ok(task) = entry.map(|entry| entry.path()) else { continue };
            let Ok(scheduled) = std::fs::read_to_string(task.join("schedstat")) else { continue };
            let nanos = scheduled.split(' ').next().and_then(|field| field.parse::<u64>().ok());
            usage.cpu_nanos += nanos.context("schedstat without a time on CPU")?;
            let Ok(status) = std::fs::read_to_string(task.join("status")) else { continue };
            usage.switches += field(&status, "voluntary_ctxt_switches:").unwrap_or(0)
                + field(&status, "nonvoluntary_ctxt_switches:").unwrap_or(0);
        }
        Ok(usage)
    }

    pub(crate) fn of_this_process() -> anyhow::Result<Self> {
        Self::of(std::process::id())
    }

    /// What was used since an earlier reading.
    pub(crate) fn since(&self, earlier: &Self) -> Cost {
        Cost {
            elapsed_nanos: (self.at - earlier.at).as_nanos() as u64,
            cpu_nanos: self.cpu_nanos.saturating_sub(earlier.cpu_nanos),
            context_switches: self.switches.saturating_sub(earlier.switches),
            syscalls: None,
        }
    }
}

impl Cost {
    /// CPU per operation in microseconds.
    pub(crate) fn micros_per(&self, operations: u64) -> f64 {
        self.cpu_nanos as f64 / 1e3 / operations as f64
    }

    /// CPU time over wall time; 1 is one full core.
    pub(crate) fn utilisation(&self) -> f64 {
        if self.elapsed_nanos == 0 { 0.0 } else { self.cpu_nanos as f64 / self.elapsed_nanos as f64 }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.elapsed_nanos)
    }
}

impl Memory {
    pub(crate) fn of(pid: u32) -> anyhow::Result<Self> {
        let rollup = read(Path::new(&format!("/proc/{pid}/smaps_rollup")))?;
        let status = read(Path::new(&format!("/proc/{pid}/status")))?;
        let kibibytes = |text: &str, name: &str| {
            field(text, name).map(|value| value * 1024).with_context(|| format!("no {name} for {pid}"))
        };
        Ok(Self {
            resident: kibibytes(&rollup, "Rss:")?,
            proportional: kibibytes(&rollup, "Pss:")?,
            peak: kibibytes(&status, "VmHWM:")?,
        })
    }
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))
}

/// The number after a name at the start of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_as_cpu_time() {
        let before = Usage::of_this_process().unwrap();
        let mut sum = 0u64;
        loop {
            for number in 0..1_000_000u64 {
                sum = sum.wrapping_mul(31).wrapping_add(std::hint::black_box(number));
            }
            let cost = Usage::of_this_process().unwrap().since(&before);
            if cost.cpu_nanos > 1_000_000 {
                assert!(cost.micros_per(1) > 1_000.0 && cost.utilisation() > 0.0, "{sum}");
                assert!(cost.elapsed() > Duration::ZERO);
                break;
            }
        }
    }

    #[test]
    fn memory_of_this_process_is_known() {
        let memory = Memory::of(std::process::id()).unwrap();
        assert!(memory.resident > 100_000 && memory.peak >= memory.proportional, "{memory:?}");
    }

    #[test]
    fn process_that_is_gone_is_an_error() {
        assert!(Usage::of(u32::MAX >> 1).is_err());
        assert!(Memory::of(u32::MAX >> 1).is_err());
    }

    #[test]
    fn fields_are_read_by_whole_name() {
        let status = "nonvoluntary_ctxt_switches:\t7\nvoluntary_ctxt_switches:\t12\n";
        assert_eq!(field(status, "voluntary_ctxt_switches:"), Some(12));
        assert_eq!(field(status, "VmHWM:"), None);
    }
}
