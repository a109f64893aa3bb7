//! How long eBPF programs have run, as the kernel counts it for whoever holds their descriptors.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};

const SWITCH: &str = "/proc/sys/kernel/bpf_stats_enabled";

/// Has the kernel count; put back on drop, because counting costs every program a little.
pub(super) struct ProgramStatistics {
    before: String,
}

impl ProgramStatistics {
    pub(super) fn enable() -> anyhow::Result<Self> {
        let before = std::fs::read_to_string(SWITCH).with_context(|| format!("reading {SWITCH}"))?;
        std::fs::write(SWITCH, "1").with_context(|| format!("writing {SWITCH}"))?;
        Ok(Self { before })
    }
}

impl Drop for ProgramStatistics {
    fn drop(&mut self) {
        let _ = std::fs::write(SWITCH, &self.before);
    }
}

/// The run time of all programs of one process.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct RunTime {
    pub(super) nanos: u64,
    pub(super) count: u64,
}

impl RunTime {
    /// Reads it from the descriptors that a process holds.
    pub(super) fn of(pid: u32) -> anyhow::Result<Self> {
        let directory = PathBuf::from(format!("/proc/{pid}/fdinfo"));
        let entries =
            std::fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))?;
        let (mut seen, mut total) = (Vec::new(), Self::default());
        for entry in entries.flatten() {
            let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
            let Some((id, run_time)) = parse(&text) else { continue };
            // A program may be held by several descriptors.
            if !seen.contains(&id) {
                seen.push(id);
                total.nanos += run_time.nanos;
                total.count += run_time.count;
            }
        }
        ensure!(!seen.is_empty(), "the server holds no eBPF program");
        Ok(total)
    }

    pub(super) fn since(&self, earlier: &Self) -> Self {
        Self {
            nanos: self.nanos.saturating_sub(earlier.nanos),
            count: self.count.saturating_sub(earlier.count),
        }
    }
}

/// A program's number and run time, if that is what the descriptor is.
fn parse(fdinfo: &str) -> Option<(u64, RunTime)> {
    let value =
        |name: &str| fdinfo.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    // Links name their program too.
    value("prog_type:")?;
    Some((value("prog_id:")?, RunTime { nanos: value("run_time_ns:")?, count: value("run_cnt:")? }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_programs_have_a_run_time() {
        let program = "pos:\t0\nflags:\t02000002\nprog_type:\t17\nprog_jited:\t1\nprog_id:\t7\nrun_time_ns:\t900\nrun_cnt:\t3\n";
        assert_eq!(parse(program), Some((7, RunTime { nanos: 900, count: 3 })));
        assert_eq!(parse("link_type:\traw_tracepoint\nlink_id:\t1\nprog_id:\t7\n"), None);
        assert_eq!(parse("pos:\t0\nmap_type:\t27\n"), None);
        assert!(RunTime::of(std::process::id()).is_err());
    }
}
