//! Counts a server's system calls with `perf stat`, which needs neither the server's help nor ptrace's stops.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};

const EVENT: &str = "raw_syscalls:sys_enter";

/// A running count.
pub(crate) struct SyscallCount {
    perf: Child,
}

impl SyscallCount {
    /// Starts counting; an error says why this machine cannot (no perf, no tracefs, no right).
    pub(crate) fn start(pid: u32) -> anyhow::Result<Self> {
        let perf = Command::new("perf")
            .args(["stat", "--no-big-num", "--field-separator=,", "--event", EVENT, "--pid"])
            .arg(pid.to_string())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .context("starting perf")?;
        let mut count = Self { perf };
        count.await_attached()?;
        Ok(count)
    }

    /// perf says nothing when it has attached; it has when it holds an event descriptor.
    fn await_attached(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + Duration::from_secs(5);
        let descriptors = format!("/proc/{}/fd", self.perf.id());
        while Instant::now() < deadline {
            if self.perf.try_wait()?.is_some() {
                bail!("perf cannot count {EVENT}");
            }
            let attached = std::fs::read_dir(&descriptors).is_ok_and(|entries| {
                entries.flatten().any(|entry| {
                    std::fs::read_link(entry.path())
                        .is_ok_and(|target| target.to_string_lossy().contains("perf_event"))
                })
            });
            if attached {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        bail!("perf did not attach within 5 s")
    }

    /// Ends the count and returns it.
    pub(crate) fn finish(mut self) -> anyhow::Result<u64> {
        let pid = Pid::from_child(&self.perf);
        kill_process(pid, Signal::INT).context("ending perf")?;
        let mut report = String::new();
        let mut stderr = self.perf.stderr.take().context("perf has no output")?;
        std::io::Read::read_to_string(&mut stderr, &mut report).context("reading perf's output")?;
        self.perf.wait()?;
        parse(&report).with_context(|| format!("perf reported: {}", report.trim()))
    }
}

impl Drop for SyscallCount {
    fn drop(&mut self) {
        // After `finish` the process is gone and both calls say so.
        let _ = self.perf.kill();
        let _ = self.perf.wait();
    }
}

fn parse(report: &str) -> Option<u64> {
    report.lines().find(|line| line.contains(EVENT))?.split(',').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn count_is_the_first_field_of_the_event() {
        assert_eq!(parse("\n29,,raw_syscalls:sys_enter,1027060,100.00,,\n"), Some(29));
        assert_eq!(parse("<not supported>,,raw_syscalls:sys_enter,0,100.00,,"), None);
        assert_eq!(parse("Error:"), None);
    }
}
