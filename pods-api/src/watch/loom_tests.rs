//! Every interleaving of the engine's threads, explored by loom:
//! `cargo test -p pods-api --features loom --lib loom`.

use super::log::Log;
use super::{Contract, EndReason, Hub, HubConfig, Next, View, WatchOptions, Watcher};
use crate::pod::testing::{PodSketch, decode_message};
use crate::pod::{ByteMeter, Now, Published, Readiness, SourceId, StoreStats, Update, Writer};
use loom::thread;
use pods_api_proto::v1alpha1::{EventType, WatchPodsEvent};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// A reader that starts anywhere sees every later entry once and in order, across segments.
#[test]
fn loom_reader_follows_the_writer_across_segments() {
    explore(|| {
        let log = Arc::new(Log::new());
        log.append(0u64);
        let mut reader = log.reader();
        let writer = {
            let log = log.clone();
            thread::spawn(move || (1..5).for_each(|entry| log.append(entry)))
        };
        let mut seen = Vec::new();
        for _ in 0..2 {
            // Whoever counts an entry can read it.
            let appended = log.appended();
            while let Some(entry) = reader.peek() {
                seen.push(*entry);
                reader.advance();
            }
            assert!(seen.len() as u64 >= appended);
        }
        writer.join().unwrap();
        while let Some(entry) = reader.peek() {
            seen.push(*entry);
            reader.advance();
        }
        assert_eq!(seen, [0, 1, 2, 3, 4]);
    });
}

/// A reader that is made while the writer appends starts at or before what is appended next.
#[test]
fn loom_new_reader_misses_nothing_appended_after_it() {
    explore(|| {
        let log = Arc::new(Log::new());
        let writer = {
            let log = log.clone();
            thread::spawn(move || (0..4).for_each(|entry: u64| log.append(entry)))
        };
        let mut reader = log.reader();
        let appended = log.appended();
        writer.join().unwrap();
        let mut seen = Vec::new();
        while let Some(entry) = reader.peek() {
            seen.push(*entry);
            reader.advance();
        }
        // Possibly some of the newest segment from before, then everything.
        assert!(seen.first().is_none_or(|first| *first <= appended));
        assert_eq!(seen.last(), Some(&3));
        assert!(seen.windows(2).all(|pair| pair[0] + 1 == pair[1]));
    });
}

struct Node {
    hub: Hub,
    writer: Writer<super::Publisher>,
}

impl Node {
    fn new() -> Self {
        let published = Arc::new(Published::new(Arc::default()));
        let meter = ByteMeter::default();
        let (hub, publisher) = Hub::new(published.clone(), meter.clone(), HubConfig::default());
        let readiness = Arc::new(Readiness::new([]));
        let stats = Arc::new(StoreStats::default());
        let writer = Writer::new(published, readiness, stats, meter, Duration::from_secs(60), publisher);
        Self { hub, writer }
    }

    fn put(&mut self, generation: u64) {
        let pod = PodSketch::new("a").generation(generation).source_pod();
        let update = Update::Changes { source: SourceId::Manifest, pods: vec![pod], gone: Vec::new() };
        self.writer.apply([update], Now { instant: Instant::now(), unix_seconds: 0 });
    }
}

/// The types of the frames that wait.
fn drain(watcher: &mut Watcher) -> (Vec<EventType>, Next) {
    let mut events = Vec::new();
    loop {
        match watcher.next() {
            Next::Frame(frame) => events.push(decode_message::<WatchPodsEvent>(&frame.to_bytes()).r#type()),
            other => return (events, other),
        }
    }
}

/// A watch that is opened while the writer publishes gets each revision exactly once: in its snapshot or as an event.
#[test]
fn loom_subscription_neither_loses_nor_repeats_an_event() {
    explore(|| {
        let mut node = Node::new();
        let hub = node.hub.clone();
        let writer = thread::spawn(move || {
            (1..4).for_each(|generation| node.put(generation));
        });
        let mut watcher = hub.subscribe(View::whole(Contract::V1alpha1), WatchOptions::default()).unwrap();
        let since = watcher.since().0;
        let (mut events, _) = drain(&mut watcher);
        writer.join().unwrap();
        events.extend(drain(&mut watcher).0);
        let mut expected = Vec::new();
        if since > 0 {
            expected.push(EventType::Added);
        }
        expected.push(EventType::InitialSyncComplete);
        for revision in since + 1..4 {
            expected.push(if revision == 1 { EventType::Added } else { EventType::Modified });
        }
        assert_eq!(events, expected, "since {since}");
    });
}

/// The last watcher of a view may leave while the next one comes: the next one still gets every event.
#[test]
fn loom_log_is_not_dropped_under_a_new_watcher() {
    explore(|| {
        let mut node = Node::new();
        let hub = node.hub.clone();
        let first = hub.subscribe(View::whole(Contract::V1alpha1), WatchOptions::default()).unwrap();
        let leaving = thread::spawn(move || drop(first));
        let mut watcher = hub.subscribe(View::whole(Contract::V1alpha1), WatchOptions::default()).unwrap();
        node.put(1);
        leaving.join().unwrap();
        node.put(2);
        let (events, next) = drain(&mut watcher);
        assert_eq!(events, [EventType::InitialSyncComplete, EventType::Added, EventType::Modified]);
        assert_eq!(next, Next::Idle);
    });
}

/// A watch that is opened while the hub closes is refused or ended.
#[test]
fn loom_closing_reaches_every_watcher() {
    explore(|| {
        let hub = Node::new().hub;
        let closing = {
            let hub = hub.clone();
            thread::spawn(move || hub.close())
        };
        let watcher = hub.subscribe(View::whole(Contract::V1alpha1), WatchOptions::default());
        closing.join().unwrap();
        if let Ok(mut watcher) = watcher {
            assert_eq!(drain(&mut watcher).1, Next::End(EndReason::Shutdown));
        }
    });
}
