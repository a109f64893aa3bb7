//! Slow clients, bounds and the end.

use super::*;
use crate::watch::SubscribeError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Wake, Waker};

#[test]
fn lagged_watcher_gets_what_its_ring_holds_and_ends() {
    // WATCH-1, rule E.6.4.
    let mut node = Node::with_pods(5);
    let mut client = node.watch(options(16, false));
    client.drain();
    for _ in 0..40 {
        node.put("003");
        client.watcher.fill();
    }
    assert_eq!((client.watcher.pending(), node.hub.stats().dropped()), (16, 1));
    assert_eq!(client.drain(), Some(EndReason::Lagged));
    assert_eq!(client.events, expected_events(&node.history, client.since())[..16]);
    assert_eq!(client.take(1), Some(Next::End(EndReason::Lagged)), "said again");
    assert_eq!((node.hub.stats().dropped(), node.hub.stats().cut_for_memory()), (1, 0));
}

#[test]
fn watcher_is_not_slow_because_a_burst_is_larger_than_its_ring() {
    let mut node = Node::with_pods(100);
    let (mut reading, mut stalled) = (node.watch(options(8, false)), node.watch(options(8, false)));
    reading.drain();
    stalled.drain();
    (0..100).for_each(|number| node.stage(&format!("{number:03}")));
    node.publish();
    reading.watcher.fill();
    stalled.watcher.fill();
    assert_eq!(reading.drain(), None);
    assert_eq!(reading.events, expected_events(&node.history, reading.since()));
    // What follows the burst counts: a client that does not read is ended after its ring's worth of it.
    for _ in 0..9 {
        node.put("000");
        stalled.watcher.fill();
    }
    assert_eq!(stalled.drain(), Some(EndReason::Lagged));
    assert_eq!(reading.drain(), None);
}

#[test]
fn coalescing_watcher_ends_equal_to_the_list() {
    // WATCH-1, WATCH-6: 5,000 updates of ten pods.
    let mut node = Node::with_pods(10);
    let mut client = node.watch(options(16, true));
    client.drain();
    for round in 0..5_000 {
        node.put(&format!("{:03}", round % 10));
        if round % 100 == 0 {
            node.remove("005");
        }
        client.watcher.fill();
    }
    assert_eq!(client.watcher.pending(), 10);
    assert_eq!(client.drain(), None);
    assert_eq!(client.state, node.list());
    assert!(client.events.len() <= 10, "{}", client.events.len());
    assert_eq!((node.hub.stats().dropped(), node.hub.stats().coalesced()), (0, 1));
}

#[test]
fn pods_that_come_and_go_unseen_cost_a_stalled_coalescing_watcher_nothing() {
    let mut node = Node::with_pods(1);
    let mut client = node.watch(options(4, true));
    client.drain();
    for number in 0..1_000 {
        node.put(&format!("job-{number}"));
        node.remove(&format!("job-{number}"));
        client.watcher.fill();
    }
    assert!(client.watcher.pending() <= 4, "{}", client.watcher.pending());
    client.drain();
    assert_eq!(client.state, node.list());
}

#[test]
fn oldest_readers_are_cut_when_too_much_is_pinned() {
    let mut node = Node::new(HubConfig { max_pinned_bytes: 300_000, ..HubConfig::default() });
    node.stage_as("big", PodSketch::new("big").padding(10_000));
    node.publish();
    let mut stalled = [(); 3].map(|()| node.watch(WatchOptions::default()));
    stalled.iter_mut().for_each(|client| assert_eq!(client.drain(), None));
    let mut reading = node.watch(WatchOptions::default());
    let mut cut_at = None;
    for round in 0..200 {
        node.put("big");
        reading.drain();
        stalled.iter_mut().for_each(|client| client.watcher.fill());
        if node.hub.stats().cut_for_memory() == 3 && cut_at.is_none() {
            cut_at = Some(round);
        }
    }
    let cut_at = cut_at.expect("the stalled watchers were cut");
    assert!((25..40).contains(&cut_at), "cut after about 300 kB: {cut_at}");
    assert!(node.hub.stats().pinned_bytes() < 50_000 * 10);
    for client in &mut stalled {
        assert_eq!(client.drain(), Some(EndReason::Lagged));
        assert!(client.events.is_empty());
    }
    assert_eq!((reading.drain(), reading.events.len()), (None, 200));
    assert_eq!(node.hub.stats().dropped(), 3);
}

#[test]
fn stalled_initial_sync_is_cut_when_too_much_is_pinned() {
    let mut node = Node::new(HubConfig { max_pinned_bytes: 300_000, ..HubConfig::default() });
    node.stage_as("big", PodSketch::new("big").padding(10_000));
    node.publish();
    let mut stalled = node.watch(WatchOptions::default());
    for _ in 0..60 {
        node.put("big");
        stalled.watcher.fill();
    }
    assert_eq!(stalled.drain(), Some(EndReason::Lagged));
    assert!(!stalled.synced);
}

#[test]
fn nothing_is_held_once_watchers_are_gone() {
    // WATCH-5.
    let mut node = Node::with_pods(10);
    for _ in 0..1_000 {
        let mut client = node.watch(WatchOptions::default());
        client.take(3);
        node.put("001");
        client.watcher.fill();
    }
    node.publish();
    let held = node.published.load().iter().map(|record| record.held_bytes()).sum::<usize>();
    assert_eq!((node.hub.watcher_count(), node.hub.view_count(), node.meter.bytes()), (0, 0, held));
}

#[test]
fn watcher_that_waits_for_nothing_keeps_at_most_a_segment() {
    let mut node = Node::with_pods(1);
    let mut watcher = WatchOptions { selector: selecting("app=none"), ..WatchOptions::default() };
    watcher.ring = 4;
    let mut client = node.watch(watcher);
    client.drain();
    node.stage_as("000", PodSketch::new("000").padding(10_000));
    (0..500).for_each(|_| node.put("000"));
    client.watcher.fill();
    let kept = node.meter.bytes() / 10_000;
    assert!(kept < 40, "{kept} states are kept");
}

#[test]
fn frames_of_selected_fields_count_as_pinned() {
    let mut node = Node::with_pods(1);
    node.stage_as("000", PodSketch::new("000").label("key", &"v".repeat(10_000)));
    node.publish();
    let view = View::new(
        Contract::V1alpha1,
        &crate::wire::Mask::parse("metadata.labels,metadata.generation").unwrap(),
    );
    let mut watcher = node.hub.subscribe(view, WatchOptions::default()).unwrap();
    while let Next::Frame(_) = watcher.next() {}
    (0..100).for_each(|_| node.put("000"));
    watcher.fill();
    // Each event keeps a record and a frame of its own.
    let kept = node.meter.bytes() / 10_000;
    assert!((200..210).contains(&kept), "{kept}");
}

#[test]
fn shutdown_ends_every_watch_and_refuses_new_ones() {
    let mut node = Node::with_pods(3);
    let mut clients = [(); 2].map(|()| node.watch(WatchOptions::default()));
    clients[0].drain();
    node.put("001");
    node.hub.close();
    for client in &mut clients {
        assert_eq!(client.drain(), Some(EndReason::Shutdown));
    }
    let refused = node.hub.subscribe(View::whole(Contract::V1alpha1), WatchOptions::default());
    assert_eq!(refused.unwrap_err(), SubscribeError::Closed);
    assert_eq!(node.hub.stats().dropped(), 0);
}

#[test]
fn numbers_of_watchers_and_views_are_bounded() {
    let node = Node::new(HubConfig { max_watchers: 2, max_views: 1, ..HubConfig::default() });
    let first = node.watch(WatchOptions::default());
    let subscribe = |contract| node.hub.subscribe(View::whole(contract), WatchOptions::default());
    assert_eq!(subscribe(Contract::Documented).unwrap_err(), SubscribeError::TooManyViews { limit: 1 });
    let second = node.watch(WatchOptions::default());
    assert_eq!(subscribe(Contract::V1alpha1).unwrap_err(), SubscribeError::TooManyWatchers { limit: 2 });
    drop((first, second));
    assert!(subscribe(Contract::Documented).is_ok());
}

#[test]
fn registry_shows_open_watches() {
    let mut node = Node::with_pods(2);
    let mut client = node.watch(options(8, true));
    client.drain();
    node.put("000");
    client.watcher.fill();
    let infos = node.hub.watchers();
    assert_eq!(infos.len(), 1);
    assert_eq!((infos[0].id, infos[0].sent, infos[0].pending), (client.watcher.id(), 3, 1));
    assert!(infos[0].synced && infos[0].coalesce);
}

#[test]
fn each_worker_is_woken_once_for_a_publication() {
    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let mut node = Node::with_pods(1);
    let count = Arc::new(Count::default());
    let waker = Waker::from(count.clone());
    let ids = [node.hub.add_waker(&waker), node.hub.add_waker(&waker)];
    node.put("000");
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
    node.hub.remove_waker(ids[0]);
    node.put("000");
    assert_eq!(count.0.load(Ordering::Relaxed), 2);
    node.hub.remove_waker(ids[1]);
    node.put("000");
    node.publish();
    assert_eq!(count.0.load(Ordering::Relaxed), 2);
}
