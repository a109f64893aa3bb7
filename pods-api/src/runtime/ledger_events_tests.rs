//! What the runtime's events tell and promise.

use super::*;

#[test]
fn exit_event_is_told_at_once_and_holds_while_the_runtime_lags() {
    let mut bench = Bench::new();
    bench.know("p", &runs());
    let now = bench.now;
    let change = bench.ledger.take_event(exit("a0"), now).expect("told at once");
    assert!(shows_end(&change.1));
    assert!(bench.ledger.take_event(exit("a0"), now).is_none(), "once");
    assert_eq!(bench.wanted(), [] as [&str; 0], "the runtime does not show it yet");
    // An answer asked for before the event, and one asked for after it.
    assert!(bench.read("p", &runs(), now - MS / 2).is_none());
    assert!(bench.read("p", &runs(), now + MS).is_none());
    assert!(shows_end(bench.ledger.pods[&PodUid::from("p")].view.as_ref().unwrap()));
    // It is asked for again until it shows.
    for _ in 0..3 {
        bench.wait(LAST_RETRY);
        assert_eq!(bench.wanted(), ["p"]);
        let now = bench.now;
        assert!(bench.read("p", &runs(), now).is_none());
    }
    bench.wait(MS);
    let now = bench.now;
    let settled = bench.read("p", &ended("Error"), now).expect("a change: the reason");
    assert!(!shows_end(&settled));
    assert_eq!(bench.ledger.awaited.len(), 0);
}

#[test]
fn end_is_read_when_the_runtime_may_show_it() {
    let mut bench = Bench::new();
    bench.know("p", &runs());
    let now = bench.now;
    // The kernel knows first, the exit follows, and then that the runtime has cleaned up.
    bench.ledger.expect_end("a0".into(), true, now);
    bench.ledger.take_event(exit("a0"), now + MS);
    bench.wait(20 * MS);
    assert_eq!(bench.wanted(), [] as [&str; 0]);
    let now = bench.now;
    bench.ledger.take_event(RuntimeEvent::Stopped("a0".into()), now);
    assert_eq!(bench.wanted(), ["p"]);
    bench.read("p", &ended("Error"), now);
    assert!(bench.ledger.awaited.is_empty());

    // Each alone is followed up in time, and a hint does not put off what is due sooner.
    for tell in [
        (|ledger, now| drop(ledger.take_event(exit("a0"), now))) as fn(&mut Ledger, Instant),
        |ledger, now| ledger.expect_end("a0".into(), true, now),
    ] {
        let mut bench = Bench::new();
        bench.know("p", &runs());
        tell(&mut bench.ledger, bench.now);
        bench.wait(END_LAG - MS);
        bench.ledger.expect_end("a0".into(), true, bench.now);
        bench.wait(MS);
        assert_eq!(bench.wanted(), ["p"]);
    }
    // Without events a hint is all there is.
    let mut bench = Bench::new();
    bench.know("p", &runs());
    bench.ledger.expect_end("a0".into(), false, bench.now);
    assert_eq!(bench.wanted(), ["p"]);
}

#[test]
fn runtime_that_insists_is_believed_in_the_end() {
    let mut bench = Bench::new();
    bench.know("p", &runs());
    let now = bench.now;
    bench.ledger.take_event(exit("a0"), now);
    bench.wait(SETTLE + MS);
    let now = bench.now;
    let change = bench.read("p", &runs(), now).expect("it runs after all");
    assert!(!shows_end(&change));
}

#[test]
fn exit_of_a_container_not_known_yet_is_kept_for_it() {
    let mut bench = Bench::new();
    let now = bench.now;
    assert!(bench.ledger.take_event(exit("a0"), now).is_none());
    assert_eq!(bench.ledger.next_lookup(), Some("a0".into()));
    bench.list(&[("p", &runs())], now + MS);
    let pod = bench.read("p", &runs(), now + MS).unwrap();
    assert!(shows_end(&pod));
}

#[test]
fn exit_of_an_older_container_changes_nothing() {
    let mut bench = Bench::new();
    bench.know("p", &view().ready("s").running("a", "a0").running("a", "a1"));
    let now = bench.now;
    assert!(bench.ledger.take_event(exit("a0"), now).is_none());
    assert!(bench.ledger.take_event(exit("a1"), now).is_some());
}

#[test]
fn promises_are_asked_for_with_growing_pauses_and_given_up() {
    let mut bench = Bench::new();
    let now = bench.now;
    bench.ledger.take_event(RuntimeEvent::Started("unknown".into()), now);
    let mut wishes = 0;
    for _ in 0..2 * SETTLE.as_millis() {
        while let Some(id) = bench.ledger.next_lookup() {
            bench.ledger.take_owner(&id, None);
            wishes += 1;
        }
        bench.wait(MS);
    }
    assert!((10..30).contains(&wishes), "{wishes} lookups of what never came");
    assert_eq!(bench.ledger.awaited.len(), 0);
    assert!(!bench.ledger.take_relist_wish(), "what one container does costs no list of all");
}

#[test]
fn pod_of_an_unknown_container_is_looked_up_and_read() {
    let mut bench = Bench::new();
    bench.know("p", &runs());
    let now = bench.now;
    bench.ledger.take_event(RuntimeEvent::Started("b0".into()), now);
    assert_eq!(bench.ledger.next_lookup(), Some("b0".into()));
    bench.ledger.look_at(&"b0".into());
    assert_eq!(bench.ledger.next_lookup(), None, "one lookup of an ID at a time");
    assert!(bench.ledger.take_owner(&"b0".into(), Some("q".into())), "a new pod");
    assert_eq!(bench.wanted(), ["q"]);
    let started = view().ready("t").running("b", "b0");
    assert!(bench.read("q", &started, now).is_some());
    assert!(bench.ledger.awaited.is_empty());
    // Told of again meanwhile, so asked for again.
    assert_eq!(bench.ledger.next_lookup(), Some("b0".into()));
    bench.ledger.take_failed_lookup(&"b0".into());
    assert!(bench.ledger.take_relist_wish());
}

#[test]
fn more_unknown_containers_than_can_be_looked_up_are_found_by_a_list() {
    let mut bench = Bench::new();
    for number in 0..=MAX_PENDING {
        bench.ledger.look_at(&format!("c{number}").as_str().into());
    }
    assert!(bench.ledger.take_relist_wish());
    assert_eq!(bench.ledger.lookups.len(), MAX_PENDING);
}

#[test]
fn promises_are_kept_by_what_they_promise() {
    let kept = |event: fn(ContainerId) -> RuntimeEvent, id: &str, view: &View| {
        let mut bench = Bench::new();
        let now = bench.now;
        bench.ledger.take_event(event(id.into()), now);
        bench.list(&[("p", view)], now + MS);
        bench.read("p", view, now + MS);
        bench.ledger.awaited.is_empty()
    };
    let made = view().ready("s").created("a", "a0");
    let stopped = view().stopped("s").running("a", "a0");
    for (event, id, view, is_kept) in [
        (RuntimeEvent::Created as fn(ContainerId) -> RuntimeEvent, "a0", &made, true),
        (RuntimeEvent::Created, "a1", &made, false),
        (RuntimeEvent::Started, "a0", &made, false),
        (RuntimeEvent::Started, "a0", &runs(), true),
        (RuntimeEvent::Started, "a0", &ended(""), true),
        (RuntimeEvent::Started, "s", &made, true),
        (RuntimeEvent::Stopped, "a0", &runs(), false),
        (RuntimeEvent::Stopped, "a0", &ended(""), true),
        (RuntimeEvent::Stopped, "s", &runs(), false),
        (RuntimeEvent::Stopped, "s", &stopped, true),
        (RuntimeEvent::Removed, "a0", &runs(), false),
        (RuntimeEvent::Removed, "a1", &runs(), true),
    ] {
        assert_eq!(kept(event, id, view), is_kept, "{:?}", event(id.into()));
    }
}

#[test]
fn late_word_of_a_start_does_not_hide_the_end() {
    for is_end_first in [false, true] {
        let mut bench = Bench::new();
        bench.know("p", &runs());
        let now = bench.now;
        if is_end_first {
            bench.ledger.expect_end("a0".into(), true, now);
        }
        bench.ledger.take_event(RuntimeEvent::Started("a0".into()), now);
        if !is_end_first {
            bench.ledger.expect_end("a0".into(), true, now);
        }
        assert_eq!(bench.wanted(), ["p"]);
        bench.read("p", &runs(), now);
        bench.wait(END_LAG - MS);
        assert_eq!(bench.wanted(), [] as [&str; 0]);
        bench.wait(MS);
        assert_eq!(bench.wanted(), ["p"]);
    }
}

#[test]
fn removal_counts_more_than_a_late_end() {
    let mut bench = Bench::new();
    bench.know("p", &runs());
    let now = bench.now;
    for event in [RuntimeEvent::Stopped, RuntimeEvent::Removed, RuntimeEvent::Stopped] {
        bench.ledger.take_event(event("a0".into()), now);
    }
    bench.read("p", &ended(""), now);
    assert_eq!(bench.ledger.awaited.len(), 1);
    bench.read("p", &view().ready("s"), now + MS);
    assert!(bench.ledger.awaited.is_empty());
}

#[test]
fn runtime_that_insists_is_asked_once_more_when_the_event_is_no_longer_believed() {
    let mut bench = Bench::new();
    bench.know("p", &runs());
    bench.ledger.take_event(exit("a0"), bench.now);
    let start = bench.now;
    while bench.now.duration_since(start) < SETTLE + Duration::from_millis(300) {
        bench.wait(MS);
        for uid in bench.wanted() {
            let now = bench.now;
            bench.read(&uid, &runs(), now);
        }
    }
    assert!(!shows_end(bench.ledger.pods[&PodUid::from("p")].view.as_ref().unwrap()));
    assert_eq!(bench.ledger.next_due(), None);
}
