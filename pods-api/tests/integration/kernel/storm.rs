//! More events than the ring buffer holds (BPF-1, MET-1).

use pods_api::kernel::{Feed as _, KernelEvent};
use pods_api_common::Counters;

use super::Programs;
use super::pod::PodCgroups;

/// The smallest ring buffer: 128 events of processes.
const RING_BYTES: u32 = 4096;
const EXECUTIONS: u64 = 500;

#[test]
fn what_does_not_fit_is_counted_to_the_last_event() {
    let Some(mut programs) = Programs::load(RING_BYTES) else { return };
    let cgroups = PodCgroups::new("storm");
    let script = format!("i=0; while [ $i -lt {EXECUTIONS} ]; do /bin/true; i=$((i+1)); done");
    // Nobody reads meanwhile.
    cgroups.shell(&script).wait().unwrap();
    cgroups.remove();

    let counters = programs.0.status.counters();
    let sum = |field: fn(&Counters) -> u64| counters.iter().map(field).sum::<u64>();
    let (sent, lost) = (sum(|counters| counters.sent), sum(Counters::lost));
    assert!(lost > 0);
    assert_eq!(lost, sum(|counters| counters.ring_full), "for no other cause");
    // An execution and an end for each; other tests' cgroups may add to it, nothing takes away.
    assert!(sent + lost >= 2 * EXECUTIONS, "{sent} sent, {lost} lost");

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
