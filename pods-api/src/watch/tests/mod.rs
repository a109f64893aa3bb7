//! Tests of the whole engine: a writer, the hub, and clients that check every message they get.

mod churn;
mod limits;
mod masked;
mod model;
mod sequence;

use super::{Contract, EndReason, Frame, Hub, HubConfig, Next, Publisher, View, WatchOptions, Watcher};
use crate::pod::testing::{PodSketch, decode_message};
use crate::pod::{
    ByteMeter, Change, ChangeKind, EventSink, Now, Published, Readiness, Selector, Snapshot, SourceId,
    StoreStats, Update, Writer,
};
use pods_api_proto::k8s::io::api::core::v1::Pod;
use pods_api_proto::v1alpha1::{EventType, WatchPodsEvent};
use prost::Message as _;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// uid → generation: what a client, a list or a model believes.
type State = BTreeMap<String, i64>;

/// One event as the writer made it.
#[derive(Debug, Clone, PartialEq)]
struct Event {
    revision: u64,
    kind: ChangeKind,
    uid: String,
    generation: i64,
}

/// Every event, recorded beside the real publisher.
#[derive(Debug, Clone, Default)]
struct History(Arc<Mutex<Vec<Event>>>);

struct RecordingPublisher {
    publisher: Publisher,
    history: History,
}

impl EventSink for RecordingPublisher {
    fn publish(&mut self, snapshot: &Snapshot, changes: &[Arc<Change>]) {
        let events = changes.iter().map(|change| Event {
            revision: change.revision().0,
            kind: change.kind(),
            uid: change.record().uid().to_string(),
            generation: generation_of(change.record().pod_bytes()),
        });
        self.history.0.lock().unwrap().extend(events);
        self.publisher.publish(snapshot, changes);
    }
}

impl History {
    /// The events after `revision`, in order.
    fn after(&self, revision: u64) -> Vec<Event> {
        let history = self.0.lock().unwrap();
        history[history.partition_point(|event| event.revision <= revision)..].to_vec()
    }

    /// The state that the events up to `revision` lead to.
    fn state_at(&self, revision: u64) -> State {
        let mut state = State::new();
        for event in self.0.lock().unwrap().iter().take_while(|event| event.revision <= revision) {
            match event.kind {
                ChangeKind::Deleted => state.remove(&event.uid),
                _ => state.insert(event.uid.clone(), event.generation),
            };
        }
        state
    }
}

fn generation_of(pod: &[u8]) -> i64 {
    Pod::decode(pod).unwrap().metadata.unwrap().generation()
}

fn state_of(snapshot: &Snapshot) -> State {
    snapshot.iter().map(|record| (record.uid().to_string(), generation_of(record.pod_bytes()))).collect()
}

/// A writer without its thread, and the hub it publishes to.
struct Node {
    hub: Hub,
    writer: Writer<RecordingPublisher>,
    published: Arc<Published<Snapshot>>,
    meter: ByteMeter,
    history: History,
    pods: BTreeMap<String, PodSketch>,
    last_generation: u64,
}

impl Node {
    fn new(config: HubConfig) -> Self {
        let published = Arc::new(Published::new(Arc::default()));
        let meter = ByteMeter::default();
        let (hub, publisher) = Hub::new(published.clone(), meter.clone(), config);
        let history = History::default();
        let sink = RecordingPublisher { publisher, history: history.clone() };
        let readiness = Arc::new(Readiness::new([]));
        let stats = Arc::new(StoreStats::default());
        let writer = Writer::new(published.clone(), readiness, stats, meter.clone(), Duration::ZERO, sink);
        Self { hub, writer, published, meter, history, pods: BTreeMap::new(), last_generation: 0 }
    }

    /// A node with `pods` pods, `000` and on.
    fn with_pods(pods: usize) -> Self {
        let mut node = Self::new(HubConfig::default());
        (0..pods).for_each(|number| node.stage(&format!("{number:03}")));
        node.publish();
        node
    }

    /// Adds or changes a pod, to be published later.
    fn stage(&mut self, uid: &str) {
        let sketch = self.pods.remove(uid).unwrap_or_else(|| PodSketch::new(uid));
        self.stage_as(uid, sketch);
    }

    fn stage_as(&mut self, uid: &str, sketch: PodSketch) {
        self.last_generation += 1;
        self.pods.insert(uid.to_owned(), sketch.generation(self.last_generation));
    }

    /// Publishes all pods as one change set.
    fn publish(&mut self) {
        let pods = self.pods.values().map(PodSketch::source_pod).collect();
        self.apply(Update::Set { source: SourceId::Manifest, pods });
    }

    fn put(&mut self, uid: &str) {
        self.stage(uid);
        let pod = self.pods[uid].source_pod();
        self.apply(Update::Changes { source: SourceId::Manifest, pods: vec![pod], gone: Vec::new() });
    }

    fn remove(&mut self, uid: &str) {
        self.pods.remove(uid);
        self.apply(Update::Changes { source: SourceId::Manifest, pods: Vec::new(), gone: vec![uid.into()] });
    }

    fn apply(&mut self, update: Update) {
        self.writer.apply([update], Now { instant: Instant::now(), unix_seconds: 1_700_000_000 });
    }

    fn list(&self) -> State {
        state_of(&self.published.load())
    }

    fn watch(&self, options: WatchOptions) -> Client {
        Client::new(self.hub.subscribe(View::whole(Contract::V1alpha1), options).unwrap())
    }
}

/// A client that believes what it is told, and checks that each message is one it may get.
#[derive(Debug)]
struct Client {
    watcher: Watcher,
    state: State,
    events: Vec<(ChangeKind, String, i64)>,
    synced: bool,
    last_uid: Option<String>,
    newest: State,
}

impl Client {
    fn new(watcher: Watcher) -> Self {
        Self {
            watcher,
            state: State::new(),
            events: Vec::new(),
            synced: false,
            last_uid: None,
            newest: State::new(),
        }
    }

    fn since(&self) -> u64 {
        self.watcher.since().0
    }

    /// Takes up to `messages` messages; returns what came instead of one, if anything.
    fn take(&mut self, messages: usize) -> Option<Next> {
        for _ in 0..messages {
            match self.watcher.next() {
                Next::Frame(frame) => self.receive(&frame),
                other => return Some(other),
            }
        }
        None
    }

    /// Reads until nothing waits.
    fn drain(&mut self) -> Option<EndReason> {
        match self.take(usize::MAX) {
            Some(Next::End(reason)) => Some(reason),
            _ => None,
        }
    }

    fn receive(&mut self, frame: &Frame) {
        let event: WatchPodsEvent = decode_message(&frame.to_bytes());
        if event.r#type() == EventType::InitialSyncComplete {
            assert!(event.pod.is_empty());
            assert!(!std::mem::replace(&mut self.synced, true), "one marker");
            return;
        }
        let pod = Pod::decode(event.pod.clone()).unwrap();
        let metadata = pod.metadata.unwrap();
        let uid = metadata.uid().to_owned();
        if !self.synced {
            assert_eq!(event.r#type(), EventType::Added, "nothing but ADDED before the marker");
            assert!(self.last_uid.as_ref() < Some(&uid), "in UID order");
            self.last_uid = Some(uid.clone());
        }
        let kind = match event.r#type() {
            EventType::Added => ChangeKind::Added,
            EventType::Modified => ChangeKind::Modified,
            EventType::Deleted => ChangeKind::Deleted,
            other => panic!("unexpected {other:?}"),
        };
        if kind == ChangeKind::Deleted {
            assert!(self.state.remove(&uid).is_some(), "DELETED of {uid}, which the client has not");
            assert!(pod.spec.is_none() && pod.status.is_none() && metadata.generation.is_none());
        } else {
            let generation = metadata.generation();
            let had = self.state.insert(uid.clone(), generation);
            assert_eq!(had.is_some(), kind == ChangeKind::Modified, "{kind:?} of {uid}");
            let newest = self.newest.insert(uid.clone(), generation);
            assert!(newest < Some(generation) || had.is_none(), "{uid} went back in time");
        }
        if self.synced {
            self.events.push((kind, uid, metadata.generation()));
        }
    }
}

/// What a client that keeps up must have got after its initial sync.
fn expected_events(history: &History, since: u64) -> Vec<(ChangeKind, String, i64)> {
    let generation = |event: &Event| if event.kind == ChangeKind::Deleted { 0 } else { event.generation };
    history.after(since).iter().map(|event| (event.kind, event.uid.clone(), generation(event))).collect()
}

fn options(ring: usize, coalesce: bool) -> WatchOptions {
    WatchOptions { ring, coalesce, ..WatchOptions::default() }
}

fn selecting(selector: &str) -> Option<Arc<Selector>> {
    Some(Arc::new(Selector::parse(selector).unwrap()))
}
