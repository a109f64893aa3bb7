//! What one client sees, in order.

use super::*;
use pods_api_proto::documented::PodWatchResponse;

#[test]
fn watch_begins_with_every_pod_in_uid_order_and_one_marker() {
    let node = Node::with_pods(150);
    let mut client = node.watch(WatchOptions::default());
    assert_eq!(client.take(150), None);
    assert!(!client.watcher.synced());
    assert_eq!(client.take(2), Some(Next::Idle));
    assert!(client.watcher.synced() && client.synced);
    assert_eq!((client.state.clone(), client.watcher.sent()), (node.list(), 151));
}

#[test]
fn watch_of_an_empty_node_begins_with_the_marker() {
    // Rule E.5.5.
    let node = Node::with_pods(0);
    let mut client = node.watch(WatchOptions::default());
    client.drain();
    assert!(client.synced && client.state.is_empty());
}

#[test]
fn each_later_event_is_sent_once_and_in_order() {
    let mut node = Node::with_pods(3);
    let mut client = node.watch(WatchOptions::default());
    node.put("001");
    client.drain();
    node.put("new");
    node.remove("000");
    client.watcher.fill();
    assert_eq!(client.watcher.pending(), 2);
    client.drain();
    assert_eq!(client.events, expected_events(&node.history, client.since()));
    assert_eq!(client.state, node.list());
}

#[test]
fn queued_event_never_shows_a_later_state() {
    // WATCH-3.
    let mut node = Node::with_pods(1);
    let mut client = node.watch(WatchOptions::default());
    client.drain();
    (0..100).for_each(|_| node.put("000"));
    client.drain();
    let generations: Vec<_> = client.events.iter().map(|(_, _, generation)| *generation).collect();
    assert_eq!(generations, (2..102).collect::<Vec<_>>());
}

#[test]
fn recreated_pod_of_the_same_name_survives_the_old_ones_deletion() {
    // WATCH-9: a client keyed by name must end with the new pod.
    let mut node = Node::new(HubConfig::default());
    node.stage_as("zz-old", PodSketch::new("zz-old").name("web-0"));
    node.publish();
    for coalesce in [false, true] {
        let mut client = node.watch(options(1, coalesce));
        client.drain();
        node.pods.clear();
        node.stage_as("aa-new", PodSketch::new("aa-new").name("web-0"));
        node.publish();
        client.watcher.fill();
        node.put("aa-new");
        node.put("aa-new");
        client.drain();
        let kinds: Vec<_> = client.events.iter().map(|(kind, uid, _)| (*kind, uid.as_str())).collect();
        assert_eq!(
            kinds[..2],
            [(ChangeKind::Deleted, "zz-old"), (ChangeKind::Added, "aa-new")],
            "{coalesce}"
        );
        node.pods.clear();
        node.stage_as("zz-old", PodSketch::new("zz-old").name("web-0"));
        node.publish();
    }
}

#[test]
fn initial_sync_of_a_slow_client_completes_and_ends_equal_to_the_list() {
    // WATCH-4: 2,000 pods, a client that takes a few at a time, far more changes meanwhile than the ring holds.
    let mut node = Node::with_pods(2_000);
    let mut client = node.watch(options(16, false));
    for round in 0..200 {
        assert_eq!(client.take(10), None);
        node.put(&format!("{:03}", round % 7));
        if round % 5 == 0 {
            node.remove(&format!("{:03}", 100 + round));
        }
        client.watcher.fill();
    }
    assert!(!client.watcher.synced());
    assert_eq!(client.state, node.history.state_at(client.since()), "the sync shows one snapshot");
    assert_eq!(client.drain(), None);
    assert_eq!(client.state, node.list());
    assert!(client.events.len() < 60, "changes meanwhile are coalesced: {}", client.events.len());
    assert_eq!(node.hub.stats().dropped(), 0);
    // Caught up, it is back to single events.
    (0..10).for_each(|_| node.put("000"));
    client.drain();
    assert_eq!(client.events.iter().rev().take_while(|(_, uid, _)| uid == "000").count(), 10);
}

#[test]
fn changes_during_a_short_initial_sync_are_sent_one_by_one() {
    let mut node = Node::with_pods(10);
    let mut client = node.watch(WatchOptions::default());
    client.take(5);
    (0..20).for_each(|_| node.put("003"));
    client.watcher.fill();
    client.drain();
    assert_eq!(client.events, expected_events(&node.history, client.since()));
}

#[test]
fn selector_turns_changes_of_labels_into_coming_and_going() {
    let mut node = Node::with_pods(2);
    let web = |uid: &str| PodSketch::new(uid).label("app", "web");
    let mut client = node.watch(WatchOptions { selector: selecting("app=web"), ..WatchOptions::default() });
    client.drain();
    assert!(client.synced && client.state.is_empty());
    node.stage_as("000", web("000"));
    node.publish();
    node.put("000");
    node.put("001");
    node.stage_as("000", PodSketch::new("000"));
    node.publish();
    node.remove("000");
    client.drain();
    let kinds: Vec<_> = client.events.iter().map(|(kind, uid, _)| (*kind, uid.as_str())).collect();
    assert_eq!(
        kinds,
        [(ChangeKind::Added, "000"), (ChangeKind::Modified, "000"), (ChangeKind::Deleted, "000")]
    );
}

#[test]
fn documented_watch_sends_states_and_marks_the_last_one() {
    let mut node = Node::with_pods(2);
    let mut watcher = node.hub.subscribe(View::whole(Contract::Documented), WatchOptions::default()).unwrap();
    node.put("001");
    node.remove("000");
    let mut pods = Vec::new();
    while let Next::Frame(frame) = watcher.next() {
        let response: PodWatchResponse = decode_message(&frame.to_bytes());
        pods.push(response.pod.unwrap());
    }
    assert!(watcher.synced());
    let seen: Vec<_> = pods
        .iter()
        .map(|pod| {
            let metadata = pod.metadata.as_ref().unwrap();
            let deleted = metadata.deletion_timestamp.as_ref().map(|time| time.seconds());
            assert_eq!(
                deleted.is_some(),
                metadata.annotations.get("pods-api/deleted").is_some_and(|v| v == "true")
            );
            assert!(pod.spec.is_some(), "the last state is whole");
            (metadata.uid(), metadata.generation(), deleted)
        })
        .collect();
    assert_eq!(seen, [("000", 1, None), ("001", 2, None), ("001", 3, None), ("000", 1, Some(1_700_000_000))]);
}

#[test]
fn frames_of_one_view_are_shared() {
    let mut node = Node::with_pods(1);
    for contract in [Contract::V1alpha1, Contract::Documented] {
        let mut watchers =
            [(); 2].map(|()| node.hub.subscribe(View::whole(contract), WatchOptions::default()).unwrap());
        for watcher in &mut watchers {
            while let Next::Frame(_) = watcher.next() {}
        }
        node.put("000");
        let [a, b] = watchers.each_mut().map(|watcher| match watcher.next() {
            Next::Frame(frame) => frame.into_parts(),
            other => panic!("{other:?}"),
        });
        assert_eq!(a[1].as_ptr(), b[1].as_ptr());
        assert_eq!(a, b);
    }
    assert_eq!(node.hub.view_count(), 0, "logs go with their last watcher");
}
