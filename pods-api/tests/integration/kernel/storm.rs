//! More events than the ring buffer holds (BPF-1, MET-1).

use std::path::PathBuf;
use std::time::Duration;

use aya::maps::{HashMap, Map, MapData};
use pods_api::kernel::{DEFAULT_RING_BYTES, Feed as _, KernelEvent};
use pods_api_common::{CgroupEntry, Counters};
use rustix::process::{Pid, Signal};

use super::pod::PodCgroups;
use super::{Programs, can_load};
use crate::harness::{PATIENCE, Setup, eventually};

/// The smallest ring buffer.
const RING_BYTES: u32 = 4096;
/// The events of processes that it holds.
const RING_EVENTS: u64 = 128;
/// How long programs are executed.
const STORM: Duration = Duration::from_secs(1);

/// Executes programs in the container, one after the other on each CPU, as fast as this machine can. Returns how many.
fn storm(cgroups: &PodCgroups) -> u64 {
    let directory = tempfile::tempdir().unwrap();
    let stop = directory.path().join("stop");
    let counts: Vec<_> = (0..num_cpus()).map(|cpu| directory.path().join(cpu.to_string())).collect();
    let start = |count: &PathBuf| {
        // Ends by itself too, should nobody be left to end it.
        cgroups.shell(&format!(
            "i=0; while [ ! -e {} ] && [ $i -lt 100000 ]; do /bin/true; i=$((i+1)); done; echo $i > {}",
            stop.display(),
            count.display()
        ))
    };
    let mut shells: Vec<_> = counts.iter().map(start).collect();
    std::thread::sleep(STORM);
    std::fs::write(&stop, []).unwrap();
    for shell in &mut shells {
        assert!(shell.wait().unwrap().success());
    }
    let executions = counts
        .iter()
        .map(|count| std::fs::read_to_string(count).unwrap().trim().parse::<u64>().unwrap())
        .sum();
    eprintln!("{executions} executions in {STORM:?}");
    executions
}

/// Executes programs until they have made more events than the smallest ring buffer holds: on a slow machine that takes
/// more than one storm. Returns how many.
fn flood(cgroups: &PodCgroups) -> u64 {
    let mut executions = 0;
    while executions < RING_EVENTS {
        executions += storm(cgroups);
    }
    executions
}

fn num_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[test]
fn what_does_not_fit_is_counted_to_the_last_event() {
    let Some(mut programs) = Programs::load(RING_BYTES) else { return };
    let cgroups = PodCgroups::new("storm");
    // Nobody reads meanwhile.
    let executions = flood(&cgroups);
    cgroups.remove();

    let counters = programs.0.status.counters();
    let sum = |field: fn(&Counters) -> u64| counters.iter().map(field).sum::<u64>();
    let (sent, lost) = (sum(|counters| counters.sent), sum(Counters::lost));
    assert!(lost > 0);
    assert_eq!(lost, sum(|counters| counters.ring_full), "for no other cause");
    // An execution and an end for each; other tests' cgroups may add to it, nothing takes away.
    assert!(sent + lost >= 2 * executions, "{sent} sent, {lost} lost");

    let (mut read, mut told) = (0, Vec::new());
    programs.0.ring.drain(&mut |event| match event {
        KernelEvent::EventsLost { count } => told.push(count),
        _ => read += 1,
    });
    // What has come since is of other tests.
    assert!(read >= sent, "{read} read, {sent} sent");
    assert_eq!(told.len(), 1, "one event says how many are missing");
    assert!(told[0] >= lost);
    let read_again = programs.0.status.received().map(|(_, count)| count).sum::<u64>();
    assert_eq!(read, read_again);
}

#[test]
fn losses_are_told_of_when_the_ring_buffer_is_empty() {
    let Some(mut programs) = Programs::load(DEFAULT_RING_BYTES) else { return };
    let cgroups = PodCgroups::new("batches");
    let below = cgroups.container().join("below");
    let lost = |programs: &Programs| programs.0.status.counters().iter().map(Counters::lost).sum::<u64>();
    // More events than are handed over at a time, and then some that do not fit.
    while lost(&programs) == 0 {
        std::fs::create_dir(&below).unwrap();
        std::fs::remove_dir(&below).unwrap();
    }
    let (mut drains, mut events) = (1, Vec::new());
    while !programs.0.ring.drain(&mut |event| events.push(event)) {
        assert!(!events.iter().any(|event| matches!(event, KernelEvent::EventsLost { .. })));
        drains += 1;
    }
    assert!(drains > 1, "{} events", events.len());
    assert!(matches!(events.last(), Some(KernelEvent::EventsLost { .. })));
}

#[test]
fn server_that_lost_events_knows_everything_again() {
    if !can_load() {
        return;
    }
    let mut server = Setup::new()
        .within(&["unshare", "--mount", "--propagation", "private"])
        .argument("--ebpf=require")
        .argument("--ebpf-ring-bytes=4KiB")
        .start();
    let cgroups = PodCgroups::new("converges");
    let metric = |name: &str| -> u64 {
        let (_, metrics) = server.http("/metrics");
        let values = metrics.lines().filter(|line| line.starts_with(name));
        values.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap() as u64).sum()
    };
    let scans = metric("pods_api_kernel_scans_total");
    // A stopped server reads nothing: the ring buffer fills up, and a container's life begins unseen.
    let stop =
        |signal| rustix::process::kill_process(Pid::from_raw(server.pid().cast_signed()).unwrap(), signal);
    stop(Signal::STOP).unwrap();
    let executions = flood(&cgroups);
    let unseen = cgroups.pod().join("beef".repeat(16));
    std::fs::create_dir(&unseen).unwrap();
    let unseen_id = super::pod::id(&unseen).0;
    let pin = format!("/proc/{}/root/sys/fs/bpf/pods-api/pods_cgroups", server.pid());
    let map = Map::HashMap(MapData::from_pin(pin).unwrap());
    let map: HashMap<_, u64, CgroupEntry> = HashMap::try_from(map).unwrap();
    stop(Signal::CONT).unwrap();
    eventually("a scan to find what was missed", PATIENCE, || {
        let known = map.get(&unseen_id, 0).is_ok();
        (known && metric("pods_api_kernel_scans_total") > scans).then_some(())
    });
    let (sent, lost) =
        (metric("pods_api_kernel_events_sent_total"), metric("pods_api_kernel_events_lost_total"));
    assert!(lost > 0 && sent + lost >= 2 * executions, "{sent} sent, {lost} lost");
    eventually("everything sent to be read", PATIENCE, || {
        let sent = metric("pods_api_kernel_events_sent_total");
        (metric("pods_api_kernel_events_read_total") == sent).then_some(())
    });
    std::fs::remove_dir(&unseen).unwrap();
    assert!(server.stop().success());
}
