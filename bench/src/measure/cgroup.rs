//! Cgroups of our own around a server: its memory's peak counts kernel memory (socket buffers) too, which the resident
//! set does not show, and a CPU quota gives it the share of a core that node agents are often given.
//!
//! They need the right to create cgroups. Without it there is simply no peak; a quota that cannot be set is an error.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, ensure};

/// The kernel's default period, and that of Kubernetes.
const PERIOD_MICROS: u64 = 100_000;

/// The cgroups of one server, removed on drop.
#[derive(Debug)]
pub(crate) struct ServerCgroups {
    memory: Option<Controller>,
    cpu: Option<Controller>,
}

/// A cgroup made for one controller, and the file that it is there for.
#[derive(Debug)]
struct Controller {
    directory: PathBuf,
    file: &'static str,
}

/// Tells the cgroups of one process apart; only uniqueness matters.
static NEXT: AtomicU32 = AtomicU32::new(0);

impl ServerCgroups {
    /// Creates cgroups below our own, on cgroup v2 or v1, with a quota of so many cores if one is given.
    pub(crate) fn create(cpu_quota: Option<f64>) -> anyhow::Result<Self> {
        let own = std::fs::read_to_string("/proc/self/cgroup").context("reading our own cgroup")?;
        let cpu = cpu_quota.map(|cores| limited(&own, cores)).transpose()?;
        // A process is in one v2 cgroup at a time, which then has both.
        let is_shared = cpu.as_ref().is_some_and(|cpu| cpu.directory.join("memory.peak").exists());
        let memory_files = ["memory.max_usage_in_bytes", "memory.peak"];
        let memory = if is_shared { None } else { Controller::create(&own, "memory", memory_files) };
        Ok(Self { memory, cpu })
    }

    /// Moves a process in; its later threads and children follow.
    pub(crate) fn add(&self, pid: u32) -> anyhow::Result<()> {
        if let Some(cpu) = &self.cpu {
            cpu.write("cgroup.procs", &pid.to_string()).context("putting the server under its quota")?;
        }
        if let Some(memory) = &self.memory {
            // On v2 without a shared directory the quota is what matters.
            let is_other_hierarchy = self.cpu.as_ref().is_none_or(|cpu| cpu.file != "cpu.max");
            if is_other_hierarchy {
                let _ = memory.write("cgroup.procs", &pid.to_string());
            }
        }
        Ok(())
    }

    /// The peak of the server's memory in bytes, kernel memory included.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        let path = match (&self.memory, &self.cpu) {
            (Some(memory), _) => memory.directory.join(memory.file),
            (None, cpu) => cpu.as_ref()?.directory.join("memory.peak"),
        };
        // Nothing was ever in a cgroup whose peak is 0.
        std::fs::read_to_string(path).ok()?.trim().parse().ok().filter(|peak| *peak > 0)
    }

    /// The share of periods in which the quota stopped the server.
    pub(crate) fn throttled(&self) -> Option<f64> {
        let text = std::fs::read_to_string(self.cpu.as_ref()?.directory.join("cpu.stat")).ok()?;
        throttled(&text)
    }
}

fn throttled(cpu_stat: &str) -> Option<f64> {
    let value =
        |name: &str| cpu_stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
    let periods = value("nr_periods ")?;
    Some(if periods > 0.0 { value("nr_throttled ")? / periods } else { 0.0 })
}

fn limited(own: &str, cores: f64) -> anyhow::Result<Controller> {
    ensure!(cores > 0.0 && cores.is_finite(), "a CPU quota is a positive number of cores");
    let quota = (cores * PERIOD_MICROS as f64) as u64;
    let cpu = Controller::create(own, "cpu", ["cpu.cfs_quota_us", "cpu.max"])
        .context("a CPU quota needs the right to create cgroups, and the cpu controller")?;
    if cpu.file == "cpu.max" {
        cpu.write("cpu.max", &format!("{quota} {PERIOD_MICROS}"))?;
    } else {
        cpu.write("cpu.cfs_period_us", &PERIOD_MICROS.to_string())?;
        cpu.write("cpu.cfs_quota_us", &quota.to_string())?;
    }
    Ok(cpu)
}

impl Controller {
    /// Creates a cgroup that has one of `files`, the v1 and the v2 name, as far below the root as we are, or else
    /// nearer to it: on v2 a cgroup with processes gives its children no controllers.
    fn create(own: &str, controller: &str, files: [&'static str; 2]) -> Option<Self> {
        let (root, path, file) = own.lines().find_map(|line| hierarchy(line, controller, files))?;
        Path::new(&path).ancestors().find_map(|ancestor| {
            let parent = root.join(ancestor);
            remove_abandoned(&parent);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let directory = parent.join(format!("pods-bench-{}-{number}", std::process::id()));
            std::fs::create_dir(&directory).ok()?;
            let cgroup = Self { directory, file };
            cgroup.directory.join(file).exists().then_some(cgroup)
        })
    }

    fn write(&self, file: &str, value: &str) -> anyhow::Result<()> {
        let path = self.directory.join(file);
        std::fs::write(&path, value).with_context(|| format!("writing {value} to {}", path.display()))
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // Fails while a process is inside; the owner ends its server first.
        let _ = std::fs::remove_dir(&self.directory);
    }
}

/// Removes the cgroups of benches that were killed.
fn remove_abandoned(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix("pods-bench-")?.split('-').next());
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            // One that still holds a process stays, whoever it belongs to.
            let _ = std::fs::remove_dir(entry.path());
        }
    }
}

/// Where a controller's cgroups are, our own path below that, and the name of its file, from a line of
/// /proc/self/cgroup.
fn hierarchy(
    line: &str,
    controller: &str,
    [v1, v2]: [&'static str; 2],
) -> Option<(PathBuf, String, &'static str)> {
    let mut parts = line.splitn(3, ':');
    let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?.trim_start_matches('/'));
    let root = Path::new("/sys/fs/cgroup");
    if controllers.split(',').any(|name| name == controller) {
        return Some((root.join(controller), path.to_owned(), v1));
    }
    let is_unified = controllers.is_empty() && root.join("cgroup.controllers").exists();
    is_unified.then(|| (root.to_owned(), path.to_owned(), v2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_a_controller_is_found() {
        let memory = |line| hierarchy(line, "memory", ["memory.max_usage_in_bytes", "memory.peak"]);
        assert_eq!(
            memory("4:memory:/a/b"),
            Some(("/sys/fs/cgroup/memory".into(), "a/b".into(), "memory.max_usage_in_bytes"))
        );
        assert_eq!(memory("1:cpu:/"), None);
        assert_eq!(memory("nonsense"), None);
        let cpu = hierarchy("2:cpu,cpuacct:/", "cpu", ["cpu.cfs_quota_us", "cpu.max"]);
        assert_eq!(cpu, Some(("/sys/fs/cgroup/cpu".into(), String::new(), "cpu.cfs_quota_us")));
    }

    #[test]
    fn cgroups_are_removed_on_drop() {
        // Without the right to make cgroups there is nothing to check but that this is no error.
        let cgroups = ServerCgroups::create(None).unwrap();
        let directories: Vec<_> = cgroups.memory.iter().map(|memory| memory.directory.clone()).collect();
        assert!(directories.iter().all(|directory| directory.is_dir()));
        drop(cgroups);
        assert!(!directories.iter().any(|directory| directory.exists()));
    }

    #[test]
    fn process_under_a_quota_is_stopped() {
        let Ok(cgroups) = ServerCgroups::create(Some(0.1)) else {
            assert!(!rustix::process::geteuid().is_root(), "root can set a quota");
            return;
        };
        assert_eq!(cgroups.throttled(), Some(0.0));
        let mut busy = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        cgroups.add(busy.id()).unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
        while cgroups.throttled() == Some(0.0) {
            assert!(std::time::Instant::now() < deadline, "a busy loop is not stopped");
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        busy.kill().unwrap();
        busy.wait().unwrap();
    }

    #[test]
    fn share_of_throttled_periods_is_read() {
        assert_eq!(throttled("nr_periods 8\nnr_throttled 2\nthrottled_time 5\n"), Some(0.25));
        assert_eq!(throttled("usage_usec 1\nnr_periods 0\nnr_throttled 0\n"), Some(0.0));
        assert_eq!(throttled("usage_usec 1\n"), None);
    }
}
