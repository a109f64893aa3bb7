//! Watches of selected fields.

use super::*;
use crate::wire::Mask;
use pods_api_proto::documented::PodWatchResponse;

fn view(contract: Contract, mask: &str) -> View {
    View::new(contract, &Mask::parse(mask).unwrap())
}

fn frames(watcher: &mut Watcher) -> Vec<Frame> {
    std::iter::from_fn(|| match watcher.next() {
        Next::Frame(frame) => Some(frame),
        _ => None,
    })
    .collect()
}

/// The pods of v1alpha1 frames, with their types.
fn pods(watcher: &mut Watcher) -> Vec<(EventType, Pod)> {
    let decode = |frame: &Frame| {
        let event: WatchPodsEvent = decode_message(&frame.to_bytes());
        (event.r#type(), Pod::decode(event.pod).unwrap())
    };
    frames(watcher).iter().map(decode).collect()
}

#[test]
fn selected_fields_and_identity_are_sent() {
    // Rule F.2.6.
    let mut node = Node::with_pods(1);
    node.stage_as("000", PodSketch::new("000").label("app", "web").ip("10.0.0.1").padding(500));
    node.publish();
    let mut watcher =
        node.hub.subscribe(view(Contract::V1alpha1, "status.podIPs"), WatchOptions::default()).unwrap();
    let pods = pods(&mut watcher);
    let (EventType::Added, pod) = &pods[0] else { panic!("{pods:?}") };
    let metadata = pod.metadata.as_ref().unwrap();
    assert_eq!((metadata.uid(), metadata.name(), metadata.namespace()), ("000", "pod-000", "default"));
    assert!(metadata.labels.is_empty() && metadata.generation.is_none() && pod.spec.is_none());
    let status = pod.status.as_ref().unwrap();
    assert_eq!((status.pod_i_ps.len(), status.phase.is_none()), (1, true));
    assert_eq!(pods[1].0, EventType::InitialSyncComplete);
}

#[test]
fn change_that_the_mask_hides_is_not_sent() {
    // Rule F.2.7.
    let mut node = Node::with_pods(2);
    let mut masked =
        node.hub.subscribe(view(Contract::V1alpha1, "status.podIPs"), WatchOptions::default()).unwrap();
    let mut whole = node.watch(WatchOptions::default());
    frames(&mut masked);
    whole.drain();
    node.put("000");
    node.stage_as("001", PodSketch::new("001").ip("10.0.0.9"));
    node.publish();
    node.remove("000");
    let kinds: Vec<_> = pods(&mut masked).iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [EventType::Modified, EventType::Deleted]);
    whole.drain();
    assert_eq!(whole.events.len(), 3);
}

#[test]
fn selector_sees_labels_that_the_mask_hides() {
    let mut node = Node::with_pods(1);
    let options = WatchOptions { selector: selecting("app=web"), ..WatchOptions::default() };
    let mut masked = node.hub.subscribe(view(Contract::V1alpha1, "status.podIPs"), options).unwrap();
    frames(&mut masked);
    for sketch in [
        PodSketch::new("000").label("app", "web"),
        // A label changes that is neither shown nor selected by.
        PodSketch::new("000").label("app", "web").label("tier", "1"),
        PodSketch::new("000").label("app", "db"),
    ] {
        node.stage_as("000", sketch);
        node.publish();
    }
    let events = pods(&mut masked);
    let kinds: Vec<_> = events.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [EventType::Added, EventType::Deleted]);
    assert!(events.iter().all(|(_, pod)| pod.metadata.as_ref().unwrap().labels.is_empty()));
}

#[test]
fn coalesced_watch_does_not_repeat_what_looks_the_same() {
    let mut node = Node::with_pods(2);
    let mut masked = node.hub.subscribe(view(Contract::V1alpha1, "status.podIPs"), options(1, true)).unwrap();
    frames(&mut masked);
    let original = node.pods["000"].clone();
    for sketch in [original.clone().ip("10.0.0.1"), original.clone().ip("10.0.0.2"), original] {
        node.stage_as("000", sketch);
        node.publish();
        masked.fill();
    }
    node.stage_as("001", PodSketch::new("001").ip("10.0.0.3"));
    node.publish();
    let events = pods(&mut masked);
    let uids: Vec<_> = events.iter().map(|(_, pod)| pod.metadata.as_ref().unwrap().uid()).collect();
    assert_eq!(uids, ["001"], "000 came back to what the client has");
}

#[test]
fn documented_watch_tells_deletion_under_any_mask() {
    let mut node = Node::with_pods(1);
    let mut masked =
        node.hub.subscribe(view(Contract::Documented, "status.phase"), WatchOptions::default()).unwrap();
    node.remove("000");
    let last = frames(&mut masked).pop().unwrap();
    let pod = decode_message::<PodWatchResponse>(&last.to_bytes()).pod.unwrap();
    let metadata = pod.metadata.unwrap();
    assert_eq!(metadata.deletion_timestamp.unwrap().seconds(), 1_700_000_000);
    assert_eq!(metadata.annotations["pods-api/deleted"], "true");
    assert_eq!((pod.status.unwrap().phase(), pod.spec), ("Running", None));
}

#[test]
fn ceiling_holds_for_identity_and_deletion_too() {
    let ceiling = Mask::parse("metadata.uid,status.phase").unwrap();
    let mut node = Node::with_pods(1);
    for contract in [Contract::V1alpha1, Contract::Documented] {
        node.put("000");
        let view = View::whole(contract).below(&ceiling);
        let mut watcher = node.hub.subscribe(view, WatchOptions::default()).unwrap();
        node.remove("000");
        for frame in frames(&mut watcher) {
            let pod = match contract {
                Contract::V1alpha1 => {
                    Pod::decode(decode_message::<WatchPodsEvent>(&frame.to_bytes()).pod).unwrap()
                }
                Contract::Documented => decode_message::<PodWatchResponse>(&frame.to_bytes()).pod.unwrap(),
            };
            let Some(metadata) = pod.metadata else { continue };
            assert_eq!((metadata.uid(), &metadata.name, &metadata.deletion_timestamp), ("000", &None, &None));
        }
    }
}

#[test]
fn equal_masks_share_a_log_and_its_frames() {
    let mut node = Node::with_pods(3);
    let mut watchers = ["status.podIPs,metadata.labels", "metadata.labels, status.podIPs"]
        .map(|mask| node.hub.subscribe(view(Contract::V1alpha1, mask), WatchOptions::default()).unwrap());
    assert_eq!(node.hub.view_count(), 1);
    let address = |frame: &Frame| frame.to_bytes().as_ptr();
    // The initial syncs run side by side, as after a restart of all clients.
    for _ in 0..3 {
        let [a, b] = watchers.each_mut().map(|watcher| match watcher.next() {
            Next::Frame(frame) => address(&frame),
            other => panic!("{other:?}"),
        });
        assert_eq!(a, b);
    }
    watchers.iter_mut().for_each(|watcher| drop(frames(watcher)));
    node.stage_as("000", PodSketch::new("000").label("a", "b"));
    node.publish();
    let [a, b] = watchers.each_mut().map(frames);
    assert_eq!(address(&a[0]), address(&b[0]));
}
