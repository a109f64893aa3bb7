use super::super::change::ChangeKind::{Added, Deleted, Modified};
use super::*;
use crate::pod::ChangeKind;
use crate::pod::testing::PodSketch;
use bytes::Bytes;
use std::sync::Mutex;

/// (kind, uid, revision) of an event.
type Noted = (ChangeKind, String, u64);

/// Remembers every event, by publication.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<Vec<Noted>>>>);

impl EventSink for Recorder {
    fn publish(&mut self, snapshot: &Snapshot, changes: &[Arc<Change>]) {
        let events: Vec<_> = changes
            .iter()
            .map(|change| (change.kind(), change.record().uid().to_string(), change.revision().0))
            .collect();
        assert!(events.last().is_none_or(|event| event.2 == snapshot.revision().0));
        self.0.lock().unwrap().push(events);
    }
}

struct Fixture {
    writer: Writer<Recorder>,
    events: Recorder,
    published: Arc<Published<Snapshot>>,
    readiness: Arc<Readiness>,
    stats: Arc<StoreStats>,
    now: Now,
}

impl Fixture {
    fn new() -> Self {
        let events = Recorder::default();
        let published = Arc::new(Published::new(Arc::default()));
        let readiness = Arc::new(Readiness::new([SourceId::Manifest]));
        let stats = Arc::new(StoreStats::default());
        let keep = Duration::from_secs(60);
        let meter = ByteMeter::default();
        let writer =
            Writer::new(published.clone(), readiness.clone(), stats.clone(), meter, keep, events.clone());
        let now = Now { instant: Instant::now(), unix_seconds: 1_000 };
        Self { writer, events, published, readiness, stats, now }
    }

    fn set(&mut self, pods: &[PodSketch]) -> Vec<Vec<Noted>> {
        self.writer.apply([set(pods)], self.now);
        std::mem::take(&mut self.events.0.lock().unwrap())
    }
}

fn set(pods: &[PodSketch]) -> Update {
    Update::Set { source: SourceId::Manifest, pods: pods.iter().map(PodSketch::source_pod).collect() }
}

fn event(kind: ChangeKind, uid: &str, revision: u64) -> Noted {
    (kind, uid.to_owned(), revision)
}

#[test]
fn change_set_is_ordered_deleted_added_modified() {
    let mut fixture = Fixture::new();
    let web = |uid| PodSketch::new(uid).name("web-0");
    assert_eq!(
        fixture.set(&[web("old"), PodSketch::new("a")]),
        [[event(Added, "a", 1), event(Added, "old", 2)]]
    );
    // WATCH-9, rule E.7.11: the new pod's UID sorts before the old one's.
    let events = fixture.set(&[web("new"), PodSketch::new("a").generation(2)]);
    assert_eq!(events, [[event(Deleted, "old", 3), event(Added, "new", 4), event(Modified, "a", 5)]]);
    let snapshot = fixture.published.load_full();
    let uids: Vec<_> = snapshot.by_name(&"default".into(), &"web-0".into()).map(|pod| pod.uid()).collect();
    assert_eq!(uids.iter().map(|uid| uid.as_str()).collect::<Vec<_>>(), ["new"]);
}

#[test]
fn unchanged_pods_give_no_event_and_no_publication() {
    let mut fixture = Fixture::new();
    fixture.set(&[PodSketch::new("a")]);
    let before = fixture.published.load_full();
    assert!(fixture.set(&[PodSketch::new("a")]).is_empty());
    assert!(Arc::ptr_eq(&before, &fixture.published.load_full()));
}

#[test]
fn batch_is_one_publication_with_one_event_per_change() {
    let mut fixture = Fixture::new();
    let states = [1, 2, 3].map(|generation| set(&[PodSketch::new("a").generation(generation)]));
    fixture.writer.apply(states, fixture.now);
    let expected = vec![event(Added, "a", 1), event(Modified, "a", 2), event(Modified, "a", 3)];
    assert_eq!(*fixture.events.0.lock().unwrap(), [expected]);
    assert_eq!((fixture.stats.events(Modified), fixture.stats.revision(), fixture.stats.pods()), (2, 3, 1));
    assert_eq!(fixture.stats.publish_histogram().buckets.iter().sum::<u64>(), 1);
}

#[test]
fn same_uid_under_another_name_is_deleted_and_added() {
    let mut fixture = Fixture::new();
    fixture.set(&[PodSketch::new("a")]);
    let events = fixture.set(&[PodSketch::new("a").name("renamed")]);
    assert_eq!(events, [[event(Deleted, "a", 2), event(Added, "a", 3)]]);
    assert!(fixture.published.load().tombstone("a").is_none(), "the UID is served again");
}

#[test]
fn deleted_pod_leaves_a_tombstone_for_its_time() {
    // WATCH-8.
    let mut fixture = Fixture::new();
    fixture.set(&[PodSketch::new("a").ip("10.0.0.1")]);
    fixture.set(&[]);
    let snapshot = fixture.published.load_full();
    assert!(snapshot.get("a").is_none());
    assert_eq!(snapshot.tombstone("a").map(|tombstone| tombstone.deleted), Some(Revision(2)));
    assert_eq!(snapshot.tombstones_by_name(&"default".into(), &"pod-a".into()).count(), 1);
    assert_eq!(snapshot.tombstones_by_ip("10.0.0.1".parse().unwrap()).count(), 1);
    assert_eq!(fixture.writer.next_expiry(), Some(fixture.now.instant + Duration::from_secs(60)));
    fixture.now.instant += Duration::from_secs(60);
    fixture.writer.apply([], fixture.now);
    let snapshot = fixture.published.load_full();
    assert_eq!((snapshot.tombstone_count(), snapshot.revision()), (0, Revision(2)));
    assert_eq!(fixture.writer.next_expiry(), None);
}

#[test]
fn first_set_makes_ready_even_when_empty() {
    // Rule A.6.9.
    let mut fixture = Fixture::new();
    assert_eq!(fixture.readiness.waiting_for(), ["manifest"]);
    fixture.set(&[]);
    assert!(fixture.readiness.is_ready());
}

#[test]
fn unreadable_pod_is_counted_and_the_last_good_state_stays() {
    let mut fixture = Fixture::new();
    fixture.set(&[PodSketch::new("a")]);
    let mut broken = PodSketch::new("a").source_pod();
    broken.pod = Bytes::from_static(b"\x0a\xff");
    fixture.writer.apply([Update::Set { source: SourceId::Manifest, pods: vec![broken] }], fixture.now);
    assert_eq!(fixture.stats.rejected(), 1);
    assert_eq!(fixture.published.load().get("a").map(|pod| pod.revision()), Some(Revision(1)));
}

#[test]
fn pod_is_in_memory_once() {
    let mut fixture = Fixture::new();
    fixture.set(&[PodSketch::new("a")]);
    let served = fixture.published.load().get("a").unwrap().pod();
    let held = fixture.writer.sources.served(&"a".into()).unwrap().pod;
    assert_eq!(held.as_ptr(), served.as_ptr());
}
