//! Facts about the machine that a result depends on.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where and when a run took place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    /// Start of the run, UTC, as in RFC 3339.
    pub(crate) started: String,
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    /// The hypervisor's vendor, if the CPU says that there is one.
    pub(crate) virtualised: bool,
    pub(crate) kernel: String,
    pub(crate) memory_bytes: u64,
    /// Load average over one minute at the start: what else was running.
    pub(crate) load: f64,
    /// Share of CPU time that the hypervisor gave to others during the run.
    pub(crate) steal: f64,
    /// Version of the bench, and whether it was built with optimisation.
    pub(crate) bench: String,
    pub(crate) optimised: bool,
}

impl Machine {
    pub(crate) fn here() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let value = |name: &str| {
            let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
            line.split_once(':').map(|(_, value)| value.trim().to_owned())
        };
        let memory = read("/proc/meminfo");
        let kibibytes =
            memory.lines().next().and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
        Self {
            started: jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
            cpu: value("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            virtualised: value("flags")
                .is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor")),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory_bytes: kibibytes.unwrap_or(0) * 1024,
            load: read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0),
            steal: 0.0,
            bench: env!("CARGO_PKG_VERSION").to_owned(),
            optimised: !cfg!(debug_assertions),
        }
    }

    /// The directory that keeps this machine's run, DATE-CPU-KERNEL.
    pub(crate) fn directory_name(&self) -> PathBuf {
        let date = self.started.get(..10).unwrap_or("undated");
        let plain = |text: &str| {
            let words = text.split(|character: char| !character.is_ascii_alphanumeric() && character != '.');
            words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join("_")
        };
        PathBuf::from(format!("{date}-{}-{}", plain(&self.cpu), plain(&self.kernel)))
    }
}

/// Measures how much CPU time a hypervisor takes away.
pub(crate) struct StealClock {
    total: u64,
    stolen: u64,
}

impl StealClock {
    pub(crate) fn start() -> Self {
        let (total, stolen) = cpu_times(&read("/proc/stat"));
        Self { total, stolen }
    }

    /// The share of all CPU time since the start.
    pub(crate) fn share(&self) -> f64 {
        let (total, stolen) = cpu_times(&read("/proc/stat"));
        stolen.saturating_sub(self.stolen) as f64 / total.saturating_sub(self.total).max(1) as f64
    }
}

/// Total and stolen time of all CPUs; `steal` is the eighth field of the line `cpu`.
fn cpu_times(stat: &str) -> (u64, u64) {
    let fields: Vec<u64> = stat
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|field| field.parse().ok())
        .collect();
    (fields.iter().sum(), fields.get(7).copied().unwrap_or(0))
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_date_cpu_and_kernel() {
        let machine = Machine {
            started: "2026-01-02T03:04:05Z".into(),
            cpu: "AMD EPYC(TM) 7/3".into(),
            kernel: "6.18.1-x y".into(),
            ..Machine::default()
        };
        assert_eq!(machine.directory_name(), PathBuf::from("2026-01-02-AMD_EPYC_TM_7_3-6.18.1_x_y"));
    }

    #[test]
    fn steal_is_the_eighth_field() {
        assert_eq!(cpu_times("cpu  1 2 3 4 5 6 7 8 9 10\ncpu0 1"), (36, 8));
        assert_eq!(cpu_times(""), (0, 0));
    }

    #[test]
    fn this_machine_has_facts() {
        let machine = Machine::here();
        assert!(
            machine.memory_bytes > 0 && machine.cpus > 0 && machine.started.ends_with('Z'),
            "{machine:?}"
        );
    }
}
