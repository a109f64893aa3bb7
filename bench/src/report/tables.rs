//! A run as tables for the terminal.

use super::machine::Machine;
use super::model::{Comparison, Density, Detection, Entry, KernelCosts, Run, Verdict, WorkloadResult};
use super::text::{Table, bytes, micros, quantity, significant};
use crate::measure::Spread;

/// Returns everything a run has shown.
pub(crate) fn summary(run: &Run) -> String {
    let mut text = machine(&run.machine);
    if let Some(comparison) = &run.comparison {
        text.push_str(&compared(comparison));
    }
    if let Some(limited) = &run.limited {
        text.push_str(&compared(limited));
    }
    if let Some(density) = &run.density {
        text.push_str(&grown(density));
    }
    if let Some(detection) = &run.detection {
        text.push_str(&detected(detection));
    }
    if let Some(kernel) = &run.kernel {
        text.push_str(&kernel_side(kernel));
    }
    text
}

/// The facts of a machine, and what they mean for the figures.
pub(super) fn machine(machine: &Machine) -> String {
    let mut text = format!(
        "{}: {}, {} CPUs{}, {} memory, Linux {}, load {} at the start, {:.1}% stolen\n",
        machine.started,
        machine.cpu,
        machine.cpus,
        if machine.virtualised { " (virtual)" } else { "" },
        bytes(machine.memory_bytes as f64),
        machine.kernel,
        machine.load,
        machine.steal * 1e2,
    );
    for warning in warnings(machine) {
        text.push_str(&format!("note: {warning}\n"));
    }
    text
}

/// Why figures of this machine deserve caution.
pub(super) fn warnings(machine: &Machine) -> Vec<String> {
    let mut warnings = Vec::new();
    if !machine.optimised {
        warnings.push("the bench and its comparison servers were built without optimisation".to_owned());
    }
    if machine.cpus < 2 {
        warnings.push("server and client share the only CPU".to_owned());
    }
    if machine.load > 0.5 {
        warnings.push(format!("other programs were running at the start (load {})", machine.load));
    }
    if machine.steal > 0.02 {
        warnings.push(format!("the hypervisor took {:.0}% of the CPU time away", machine.steal * 1e2));
    }
    warnings
}

fn compared(comparison: &Comparison) -> String {
    let mut text = format!(
        "\n{} pods, {} in all, {} rounds; CPU is the server's, per operation; ranges are over the rounds\n",
        quantity(comparison.pods as f64),
        bytes(comparison.pods_bytes as f64),
        comparison.rounds,
    );
    if let Some(cores) = comparison.cpu_quota {
        text.push_str(&format!("each server under a quota of {cores} CPUs\n"));
    }
    for workload in &comparison.workloads {
        text.push_str(&format!("\n{} ({}, per {})\n", workload.title, workload.id, workload.operation));
        text.push_str(&workload_table(workload).to_string());
        for entry in &workload.entries {
            if let Some(failure) = &entry.failure {
                text.push_str(&format!("{} failed: {failure}\n", entry.contender));
            }
        }
    }
    let mut table = Table::new(&["memory", "pods", "resident", "peak", "cgroup peak", "throttled"]);
    for contender in &comparison.contenders {
        let size = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), |value| bytes(value as f64));
        table.row(vec![
            contender.name.clone(),
            contender.pods.to_string(),
            size(contender.memory.map(|memory| memory.resident)),
            size(contender.memory.map(|memory| memory.peak)),
            size(contender.cgroup_peak),
            contender.throttled.map_or_else(|| "-".to_owned(), |share| format!("{:.0}%", share * 1e2)),
        ]);
    }
    text.push_str(&format!("\n{table}"));
    if let Some(reason) = &comparison.uncounted_syscalls {
        text.push_str(&format!("\nnote: system calls were not counted: {reason}\n"));
    }
    text
}

fn detected(detection: &Detection) -> String {
    let mut table = Table::new(&["by", "deaths", "p50", "p90", "p99", "max", "missed", "false"]);
    let mut failures = String::new();
    for mode in &detection.modes {
        if let Some(failure) = &mode.failure {
            failures.push_str(&format!("{} was not measured: {failure}\n", mode.mode));
            continue;
        }
        let time = |nanos: u64| micros(nanos as f64 / 1e3);
        let latency = &mode.latency;
        table.row(vec![
            mode.mode.clone(),
            mode.deaths.to_string(),
            time(latency.p50),
            time(latency.p90),
            time(latency.p99),
            time(latency.max),
            mode.missed.to_string(),
            mode.false_claims.to_string(),
        ]);
        if let Some(claim) = &mode.first_false_claim {
            failures.push_str(&format!("falsely told: {claim}\n"));
        }
    }
    format!("\nFrom a container's death to the event at a watch\n{table}{failures}")
}

fn kernel_side(kernel: &KernelCosts) -> String {
    let mut peers = Table::new(&["client", "known by", "CPU per connection", "range"]);
    for peer in &kernel.peers {
        let Some(spread) = peer.cpu_micros else { continue };
        let range = format!("{} to {}", significant(spread.min), significant(spread.max));
        peers.row(vec![peer.client.clone(), peer.way.clone(), micros(spread.median), range]);
    }
    let mut execs = Table::new(&["processes", "per second", "runs each", "eBPF each", "eBPF", "server"]);
    for exec in &kernel.execs {
        let share = |share: f64| format!("{:.2}%", share * 1e2);
        execs.row(vec![
            exec.place.clone(),
            quantity(exec.processes_per_second),
            significant(exec.program_runs),
            micros(exec.program_micros),
            share(exec.program_share),
            share(exec.server_share),
        ]);
    }
    format!(
        "\nConnecting for one GetPod, by where it is looked up who connects\n{peers}\n\
         Processes that start and end; shares are of one core\n{execs}"
    )
}

fn workload_table(workload: &WorkloadResult) -> Table {
    let mut table = Table::new(&[
        "",
        "CPU",
        "range",
        "x floor",
        "p50",
        "p99",
        "per second",
        "syscalls",
        "switches",
        "client",
        "ours / it",
    ]);
    let ours = workload.entries.first().map(|entry| entry.contender.as_str()).unwrap_or_default();
    for entry in workload.entries.iter().filter(|entry| !entry.samples.is_empty()) {
        let middle =
            |spread: Option<Spread>| spread.map_or_else(|| "-".to_owned(), |each| micros(each.median));
        let range = entry.cpu_micros.map_or_else(String::new, |spread| {
            format!("{} to {}", significant(spread.min), significant(spread.max))
        });
        table.row(vec![
            entry.contender.clone(),
            middle(entry.cpu_micros),
            range,
            ratio(workload, &entry.contender, "floor"),
            middle(entry.p50_micros),
            middle(entry.p99_micros),
            quantity(median(entry, |sample| sample.per_second)),
            entry.syscalls.map_or_else(|| "-".to_owned(), significant),
            significant(median(entry, |sample| sample.context_switches)),
            client(entry),
            ratio(workload, ours, &entry.contender),
        ]);
    }
    table
}

/// How busy the client was; an exclamation mark says that it was the limit.
fn client(entry: &Entry) -> String {
    let utilisation = median(entry, |sample| sample.client_utilisation);
    format!("{:.0}%{}", utilisation * 1e2, if utilisation > 0.9 { "!" } else { "" })
}

fn median(entry: &Entry, figure: fn(&super::model::Sample) -> f64) -> f64 {
    let samples: Vec<f64> = entry.samples.iter().map(figure).collect();
    Spread::of(&samples).map_or(0.0, |spread| spread.median)
}

fn ratio(workload: &WorkloadResult, of: &str, to: &str) -> String {
    let found =
        workload.ratios.iter().find(|ratio| ratio.of == of && ratio.to == to && ratio.figure == "cpu");
    found.map_or_else(String::new, |ratio| {
        format!("{}{}", significant(ratio.spread.median), mark(ratio.verdict))
    })
}

/// The sign behind a ratio.
pub(super) fn mark(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Clear => "",
        Verdict::Direction => "~",
        Verdict::Noise => " (noise)",
    }
}

fn grown(density: &Density) -> String {
    let figures: Vec<&String> =
        density.points.first().map(|point| point.figures.keys().collect()).unwrap_or_default();
    let mut text = format!("\nGrowth of {}\n", density.server);
    let mut head = vec!["".to_owned()];
    head.extend(
        density
            .points
            .iter()
            .map(|point| format!("{} x {}", quantity(point.pods as f64), bytes(point.pod_bytes as f64))),
    );
    head.extend(["exponent".to_owned(), "R²".to_owned()]);
    let mut table = Table::new(&head.iter().map(String::as_str).collect::<Vec<_>>());
    for figure in figures {
        let mut row = vec![figure.clone()];
        row.extend(density.points.iter().map(|point| {
            point.figures.get(figure).map_or_else(|| "-".to_owned(), |value| significant(*value))
        }));
        let fit = density.series.iter().find(|series| series.figure == *figure).and_then(|series| series.fit);
        row.push(fit.map_or_else(|| "-".to_owned(), |fit| significant(fit.exponent)));
        row.push(fit.map_or_else(|| "-".to_owned(), |fit| significant(fit.r_squared)));
        table.row(row);
    }
    text.push_str(&table.to_string());
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::tests::example;

    #[test]
    fn every_part_of_a_run_is_shown() {
        let text = summary(&example(20.0));
        for part in [
            "GetPod <1 x 1>",
            "pods-api",
            "20.0 µs",
            "15.0 to 25.0",
            "1.25",
            "quota of 0.2 CPUs",
            "Growth of pods-api",
            "1.00",
            "2.50 ms",
            "1,234",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
    }

    #[test]
    fn noisy_machine_is_called_noisy() {
        let quiet = Machine { optimised: true, cpus: 2, ..Machine::default() };
        assert!(warnings(&quiet).is_empty());
        assert_eq!(warnings(&Machine { steal: 0.1, load: 3.0, ..quiet }).len(), 2);
    }
}
