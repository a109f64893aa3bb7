//! The kept form of results. A field may be added with `#[serde(default)]`; anything else raises [`FORMAT`].

use std::path::Path;

use anyhow::{Context as _, ensure};
use serde::{Deserialize, Serialize};

use super::machine::Machine;
use crate::measure::{Fit, Memory, Spread, Summary};

const FORMAT: u32 = 1;

/// One run of the bench.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) format: u32,
    pub(crate) machine: Machine,
    /// Whether it was shortened with `--quick`.
    pub(crate) quick: bool,
    pub(crate) comparison: Option<Comparison>,
    /// The same servers under a CPU quota.
    #[serde(default)]
    pub(crate) limited: Option<Comparison>,
    pub(crate) density: Option<Density>,
    #[serde(default)]
    pub(crate) detection: Option<Detection>,
    #[serde(default)]
    pub(crate) kernel: Option<KernelCosts>,
}

/// Servers side by side.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Comparison {
    pub(crate) pods: usize,
    /// Bytes of all pods together, as every contender serves them.
    pub(crate) pods_bytes: u64,
    pub(crate) rounds: usize,
    pub(crate) contenders: Vec<Contender>,
    pub(crate) workloads: Vec<WorkloadResult>,
    /// Why system calls were not counted, where they were not.
    #[serde(default)]
    pub(crate) uncounted_syscalls: Option<String>,
    /// Cores that each server was allowed, if it was not a whole CPU.
    #[serde(default)]
    pub(crate) cpu_quota: Option<f64>,
}

/// A server that took part, and its memory after all workloads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Contender {
    pub(crate) name: String,
    /// Pods of the node it served.
    pub(crate) pods: usize,
    pub(crate) memory: Option<Memory>,
    /// The peak of its memory cgroup, kernel memory included.
    pub(crate) cgroup_peak: Option<u64>,
    /// The share of periods in which its CPU quota stopped it, if it had one.
    #[serde(default)]
    pub(crate) throttled: Option<f64>,
}

/// One workload, all contenders.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorkloadResult {
    pub(crate) id: String,
    pub(crate) title: String,
    /// What one operation is: "request", "delivery".
    pub(crate) operation: String,
    pub(crate) entries: Vec<Entry>,
    pub(crate) ratios: Vec<Ratio>,
}

/// One workload of one contender.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Entry {
    pub(crate) contender: String,
    /// One per round, in order, so that rounds of contenders can be paired.
    pub(crate) samples: Vec<Sample>,
    pub(crate) cpu_micros: Option<Spread>,
    pub(crate) p50_micros: Option<Spread>,
    pub(crate) p99_micros: Option<Spread>,
    /// System calls of the server per operation, counted in a run of their own.
    pub(crate) syscalls: Option<f64>,
    /// Why there are no samples, or fewer than rounds.
    pub(crate) failure: Option<String>,
}

/// One measurement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) operations: u64,
    /// Server CPU per operation, in microseconds; without the cost of taking in the changes, where there are any.
    pub(crate) cpu_micros: f64,
    /// The same with that cost.
    pub(crate) gross_cpu_micros: f64,
    pub(crate) per_second: f64,
    pub(crate) context_switches: f64,
    /// System calls of the server per operation, where they were counted.
    #[serde(default)]
    pub(crate) syscalls: Option<f64>,
    pub(crate) server_utilisation: f64,
    /// Near 1 means that the client was the limit: throughput and latency are then its, cost is still the server's.
    pub(crate) client_utilisation: f64,
    pub(crate) failed: u64,
    pub(crate) latency: Summary,
}

/// A contender over another, in one workload and one figure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Ratio {
    pub(crate) of: String,
    pub(crate) to: String,
    /// "cpu", "p50" or "p99".
    pub(crate) figure: String,
    /// Of the ratios of each round.
    pub(crate) spread: Spread,
    pub(crate) verdict: Verdict,
}

/// What a ratio is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Verdict {
    /// Every round agrees within 15% of the median.
    Clear,
    /// Every round says which is better, but not by how much.
    Direction,
    /// The rounds contradict each other: the ratio says nothing.
    Noise,
}

/// How one server grows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Density {
    pub(crate) server: String,
    pub(crate) points: Vec<DensityPoint>,
    /// Growth of each figure over the points with pods of one size.
    pub(crate) series: Vec<DensitySeries>,
}

/// One simulated node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DensityPoint {
    pub(crate) pods: usize,
    pub(crate) pod_bytes: u64,
    pub(crate) figures: std::collections::BTreeMap<String, f64>,
}

/// One figure over the number of pods.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct DensitySeries {
    pub(crate) figure: String,
    /// (pods, value).
    pub(crate) points: Vec<(f64, f64)>,
    pub(crate) fit: Option<Fit>,
}

/// How soon the end of a container is told.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Detection {
    pub(crate) modes: Vec<DetectionMode>,
}

/// The same by one way of learning of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DetectionMode {
    /// "events", "ebpf", "inotify" or "lists".
    pub(crate) mode: String,
    /// Containers whose process died.
    pub(crate) deaths: u64,
    /// Those of which no watch was told in 30 s.
    pub(crate) missed: u64,
    /// What was told and was not so.
    pub(crate) false_claims: u64,
    pub(crate) first_false_claim: Option<String>,
    /// From a process's death to the event at a watch.
    pub(crate) latency: Summary,
    /// Why it was not measured, or not to the end.
    pub(crate) failure: Option<String>,
}

/// What the kernel side costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct KernelCosts {
    pub(crate) peers: Vec<PeerCost>,
    pub(crate) execs: Vec<ExecCost>,
}

/// A connection with one GetPod, where the server asks who connects.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct PeerCost {
    /// "table", eBPF's of processes, or "proc".
    pub(crate) way: String,
    /// "host" or "pod": where the client runs.
    pub(crate) client: String,
    /// Server CPU per connection in microseconds, one per round.
    pub(crate) samples: Vec<f64>,
    pub(crate) cpu_micros: Option<Spread>,
}

/// Processes that start and end as fast as one process can make them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExecCost {
    /// "host" or "pod": where they run.
    pub(crate) place: String,
    pub(crate) processes_per_second: f64,
    /// Runs of eBPF programs per process.
    pub(crate) program_runs: f64,
    /// Time in eBPF programs per process, in microseconds.
    pub(crate) program_micros: f64,
    /// Of one core.
    pub(crate) program_share: f64,
    /// The server's own CPU meanwhile, of one core.
    pub(crate) server_share: f64,
}

impl Entry {
    pub(crate) fn new(contender: &str) -> Self {
        Self {
            contender: contender.to_owned(),
            samples: Vec::new(),
            cpu_micros: None,
            p50_micros: None,
            p99_micros: None,
            syscalls: None,
            failure: None,
        }
    }

    /// Reduces the samples to medians and ranges.
    pub(crate) fn summarise(&mut self) {
        let spread =
            |figure: fn(&Sample) -> f64| Spread::of(&self.samples.iter().map(figure).collect::<Vec<_>>());
        self.cpu_micros = spread(|sample| sample.cpu_micros);
        self.p50_micros = spread(|sample| sample.latency.p50 as f64 / 1e3);
        self.p99_micros = spread(|sample| sample.latency.p99 as f64 / 1e3);
    }
}

impl Comparison {
    /// The ratio of a workload, if it was measured.
    pub(crate) fn ratio(&self, workload: &str, of: &str, to: &str, figure: &str) -> Option<&Ratio> {
        let workload = self.workloads.iter().find(|each| each.id == workload)?;
        workload.ratios.iter().find(|ratio| ratio.of == of && ratio.to == to && ratio.figure == figure)
    }
}

impl Run {
    pub(crate) fn new(machine: Machine, quick: bool) -> Self {
        Self {
            format: FORMAT,
            machine,
            quick,
            comparison: None,
            limited: None,
            density: None,
            detection: None,
            kernel: None,
        }
    }

    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read(path).with_context(|| format!("reading {}", path.display()))?;
        let run: Self =
            serde_json::from_slice(&text).with_context(|| format!("decoding {}", path.display()))?;
        ensure!(run.format == FORMAT, "{} has format {}, not {FORMAT}", path.display(), run.format);
        Ok(run)
    }

    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        let text = serde_json::to_vec_pretty(self).context("encoding the run")?;
        std::fs::write(path, text).with_context(|| format!("writing {}", path.display()))
    }

    /// How soon deaths are told by one way of learning of them, if it was measured.
    pub(crate) fn detection(&self, mode: &str) -> Option<&DetectionMode> {
        let modes = &self.detection.as_ref()?.modes;
        modes.iter().find(|each| each.mode == mode && each.failure.is_none())
    }

    /// The growth exponent of a figure, if it was measured.
    pub(crate) fn growth(&self, figure: &str) -> Option<&Fit> {
        let series = self.density.as_ref()?.series.iter().find(|series| series.figure == figure)?;
        series.fit.as_ref()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A small run with every part filled in.
    pub(in super::super) fn example(cpu: f64) -> Run {
        let spread = Spread { median: cpu, min: cpu * 0.75, max: cpu * 1.25, variation: 0.05 };
        let latency = Summary {
            count: 10,
            mean: 2e4,
            p50: 20_000,
            p90: 25_000,
            p99: 30_000,
            p999: 31_000,
            max: 31_000,
            curve: vec![(0.0, 15_000), (50.0, 20_000), (75.0, 24_000)],
        };
        let entry = |contender: &str, factor: f64| Entry {
            contender: contender.to_owned(),
            samples: vec![Sample {
                operations: 10,
                cpu_micros: cpu * factor,
                latency: latency.clone(),
                ..Sample::default()
            }],
            cpu_micros: Some(Spread { median: cpu * factor, ..spread }),
            p50_micros: None,
            p99_micros: None,
            syscalls: Some(2.5),
            failure: None,
        };
        let mut run = Run::new(Machine::default(), true);
        run.comparison = Some(Comparison {
            pods: 500,
            pods_bytes: 3_000_000,
            rounds: 1,
            contenders: vec![
                Contender {
                    name: "pods-api".into(),
                    pods: 500,
                    memory: Some(Memory::default()),
                    cgroup_peak: Some(7),
                    throttled: None,
                },
                Contender {
                    name: "floor".into(),
                    pods: 500,
                    memory: None,
                    cgroup_peak: None,
                    throttled: None,
                },
            ],
            uncounted_syscalls: Some("no perf".into()),
            cpu_quota: None,
            workloads: vec![WorkloadResult {
                id: "get-1x1".into(),
                title: "GetPod <1 x 1>".into(),
                operation: "request".into(),
                entries: vec![entry("pods-api", 1.0), entry("floor", 0.5)],
                ratios: vec![Ratio {
                    of: "pods-api".into(),
                    to: "floor".into(),
                    figure: "cpu".into(),
                    spread: Spread { median: 1.25, min: 1.2, max: 1.3, variation: 0.02 },
                    verdict: Verdict::Clear,
                }],
            }],
        });
        // The same under a quota, where the servers differ more.
        let mut limited = run.comparison.clone();
        for ratio in
            limited.iter_mut().flat_map(|limited| &mut limited.workloads).flat_map(|each| &mut each.ratios)
        {
            ratio.spread = Spread { median: 0.5, min: 0.4, max: 0.6, variation: 0.1 };
        }
        run.limited = limited.map(|limited| Comparison { cpu_quota: Some(0.2), ..limited });
        run.detection = Some(Detection {
            modes: vec![DetectionMode {
                mode: "events".into(),
                deaths: 200,
                latency: Summary { p50: 2_500_000, p99: 9_000_000, ..Summary::default() },
                ..DetectionMode::default()
            }],
        });
        run.kernel = Some(KernelCosts {
            peers: vec![PeerCost {
                way: "table".into(),
                client: "pod".into(),
                samples: vec![70.0],
                cpu_micros: Some(Spread { median: 70.0, ..spread }),
            }],
            execs: vec![ExecCost {
                place: "pod".into(),
                processes_per_second: 1_234.0,
                ..ExecCost::default()
            }],
        });
        run.density = Some(Density {
            server: "pods-api".into(),
            points: vec![DensityPoint {
                pods: 100,
                pod_bytes: 6_000,
                figures: [("list CPU µs".to_owned(), 120.0)].into(),
            }],
            series: vec![DensitySeries {
                figure: "list CPU µs".into(),
                points: vec![(100.0, 120.0), (1000.0, 1210.0)],
                fit: crate::measure::fit_power_law(&[(100.0, 120.0), (1000.0, 1210.0)]),
            }],
        });
        run
    }

    #[test]
    fn run_survives_being_written_and_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.json");
        let mut run = example(19.5);
        // Not every float survives decimal text to the last bit, which nobody needs.
        run.density.as_mut().unwrap().series[0].fit = None;
        run.write(&path).unwrap();
        assert_eq!(Run::read(&path).unwrap(), run);
        let comparison = run.comparison.unwrap();
        assert_eq!(comparison.ratio("get-1x1", "pods-api", "floor", "cpu").unwrap().spread.median, 1.25);
        assert!(comparison.ratio("get-1x1", "pods-api", "tonic", "cpu").is_none());
        assert!((example(19.5).growth("list CPU µs").unwrap().exponent - 1.0).abs() < 0.01);
    }

    #[test]
    fn run_of_another_format_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("run.json");
        Run { format: FORMAT + 1, ..example(1.0) }.write(&path).unwrap();
        assert!(Run::read(&path).unwrap_err().to_string().contains("format"));
    }
}
