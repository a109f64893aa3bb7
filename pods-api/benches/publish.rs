//! What a change costs the store, and what its readers pay for it, on nodes of 100 to 10,000 pods of 6 kB.
//!
//! `cargo bench -p pods-api --bench publish`. Only the named step is timed: what prepares it, and what clears up after
//! it, is not.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use pods_api::pod::testing::PodSketch;
use pods_api::pod::{
    ByteMeter, Now, Published, Readiness, Snapshot, SourceId, SourcePod, StoreStats, Update, Writer,
};
use pods_api::watch::{Contract, Hub, HubConfig, Next, Publisher, View, WatchOptions, Watcher};
use pods_api::wire::Mask;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

const POD_BYTES: usize = 6_000;
const NODE_SIZES: [usize; 3] = [100, 1_000, 10_000];

struct Node {
    writer: Writer<Publisher>,
    hub: Hub,
    published: Arc<Published<Snapshot>>,
    pods: usize,
    generation: u64,
}

impl Node {
    fn new(pods: usize) -> Self {
        let published = Arc::new(Published::new(Arc::default()));
        let meter = ByteMeter::default();
        let (hub, publisher) = Hub::new(published.clone(), meter.clone(), HubConfig::default());
        let readiness = Arc::new(Readiness::new([]));
        let stats = Arc::new(StoreStats::default());
        let writer = Writer::new(published.clone(), readiness, stats, meter, Duration::ZERO, publisher);
        let mut node = Self { writer, hub, published, pods, generation: 0 };
        let pods = (0..pods).map(|number| node.pod(number)).collect();
        node.writer.apply([Update::Set { source: SourceId::Manifest, pods }], Now::read());
        node
    }

    fn pod(&mut self, number: usize) -> SourcePod {
        self.generation += 1;
        PodSketch::new(&format!("{number:08}-5b1c-4f6e-9d7a-0242ac120002"))
            .label("app", "bench")
            .ip("10.1.2.3")
            .generation(self.generation)
            .padding(POD_BYTES - 200)
            .source_pod()
    }

    /// A change of one pod, another one each time.
    fn change(&mut self) -> Update {
        let number = (self.generation as usize).wrapping_mul(7919) % self.pods;
        Update::Changes { source: SourceId::Manifest, pods: vec![self.pod(number)], gone: Vec::new() }
    }

    /// How long `read` takes, each time of a snapshot that has just been published.
    fn time_after_changes<T>(&mut self, rounds: u64, read: impl Fn(&Snapshot) -> T) -> Duration {
        let mut took = Duration::ZERO;
        for _ in 0..rounds {
            let update = self.change();
            self.writer.apply([update], Now::read());
            let start = Instant::now();
            black_box(read(&self.published.load()));
            took += start.elapsed();
        }
        took
    }

    fn watchers(&self, count: usize) -> Vec<Watcher> {
        self.watchers_of(&View::whole(Contract::V1alpha1), count)
    }

    fn watchers_of(&self, view: &View, count: usize) -> Vec<Watcher> {
        let open = |_| self.hub.subscribe(view.clone(), WatchOptions::default()).expect("below the limits");
        (0..count).map(open).collect()
    }
}

/// Takes everything that waits; returns how many messages that was.
fn drain(watchers: &mut [Watcher]) -> u64 {
    let mut messages = 0;
    for watcher in watchers {
        watcher.fill();
        while let Next::Frame(frame) = watcher.next() {
            black_box(frame);
            messages += 1;
        }
    }
    messages
}

/// One changed pod: merge, record, snapshot, log, wake.
fn publish(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("publish");
    for pods in NODE_SIZES {
        for watchers in [0, 1_000] {
            let mut node = Node::new(pods);
            let mut open = node.watchers(watchers);
            drain(&mut open);
            group.bench_function(BenchmarkId::new(format!("{watchers}_watchers"), pods), |bencher| {
                bencher.iter_custom(|rounds| {
                    let mut took = Duration::ZERO;
                    for _ in 0..rounds {
                        let (update, now) = (node.change(), Now::read());
                        let start = Instant::now();
                        node.writer.apply([update], now);
                        took += start.elapsed();
                        drain(&mut open);
                    }
                    took
                });
            });
        }
    }
    group.finish();
}

/// ListPods: the first of all, the first after one event, and one more of the same snapshot.
fn list(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("list");
    for pods in NODE_SIZES {
        group.bench_function(BenchmarkId::new("after_one_event", pods), |bencher| {
            let mut node = Node::new(pods);
            black_box(node.published.load_full().list_message());
            bencher.iter_custom(|rounds| node.time_after_changes(rounds, |snapshot| snapshot.list_message()));
        });
        group.bench_function(BenchmarkId::new("unchanged", pods), |bencher| {
            let node = Node::new(pods);
            bencher.iter(|| black_box(node.published.load().list_message()));
        });
    }
    group.sample_size(10);
    for pods in NODE_SIZES {
        group.bench_function(BenchmarkId::new("first", pods), |bencher| {
            bencher.iter_custom(|rounds| {
                (0..rounds)
                    .map(|_| {
                        let node = Node::new(pods);
                        let start = Instant::now();
                        black_box(node.published.load().list_message());
                        start.elapsed()
                    })
                    .sum()
            });
        });
    }
    group.finish();
}

/// GetPod's lookup and answer.
fn get(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("get");
    for pods in NODE_SIZES {
        let node = Node::new(pods);
        let uids: Vec<_> = node.published.load().iter().map(|record| record.uid().clone()).collect();
        let mut number = 0;
        group.bench_function(BenchmarkId::new("by_uid", pods), |bencher| {
            bencher.iter(|| {
                number = (number + 7919) % uids.len();
                let snapshot = node.published.load();
                black_box(snapshot.get(uids[number].as_str()).map(|record| record.get_message()))
            });
        });
    }
    group.finish();
}

/// ListPods of 500 pods under a mask: cut for the first caller, shared with the next, and in part cut again after an
/// event; beside the same of whole pods.
fn masked_list(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("list_500_pods");
    let mut node = Node::new(500);
    let mask = Mask::parse("metadata.name,metadata.namespace,metadata.uid,status.phase,status.podIPs");
    for (name, mask) in [("whole", Mask::All), ("masked", mask.expect("fields of a Pod"))] {
        let _ = node.published.load().masked_list_message(&mask);
        group.bench_function(format!("{name}_again"), |bencher| {
            bencher.iter(|| black_box(node.published.load().masked_list_message(&mask)));
        });
        group.bench_function(format!("{name}_after_one_event"), |bencher| {
            bencher.iter_custom(|rounds| {
                node.time_after_changes(rounds, |snapshot| snapshot.masked_list_message(&mask))
            });
        });
        group.sample_size(10).bench_function(format!("{name}_first"), |bencher| {
            bencher.iter_custom(|rounds| {
                (0..rounds)
                    .map(|_| {
                        let fresh = Node::new(500);
                        let start = Instant::now();
                        black_box(fresh.published.load().masked_list_message(&mask));
                        start.elapsed()
                    })
                    .sum()
            });
        });
    }
    group.finish();
}

/// As [`drain`], but one message from each watcher in turn: what clients that come back together do.
fn drain_side_by_side(watchers: &mut [Watcher]) -> u64 {
    let mut messages = 0;
    loop {
        let before = messages;
        for watcher in &mut *watchers {
            if let Next::Frame(frame) = watcher.next() {
                black_box(frame);
                messages += 1;
            }
        }
        if messages == before {
            return messages;
        }
    }
}

/// The workers' side: one event taken by each of 1,000 watchers, and one watcher's initial sync.
fn watch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("watch");
    let mut node = Node::new(500);
    let mut open = node.watchers(1_000);
    drain(&mut open);
    group.bench_function("event_to_1000_watchers", |bencher| {
        bencher.iter_custom(|rounds| {
            let mut took = Duration::ZERO;
            for _ in 0..rounds {
                let update = node.change();
                node.writer.apply([update], Now::read());
                let start = Instant::now();
                assert_eq!(drain(&mut open), 1_000);
                took += start.elapsed();
            }
            took
        });
    });
    drop(open);
    group.bench_function("initial_sync_of_500_pods", |bencher| {
        bencher.iter(|| assert_eq!(drain(&mut node.watchers(1)), 501));
    });
    let mask = Mask::parse("metadata.labels,status.phase,status.podIPs").expect("fields of a Pod");
    let masked = View::new(Contract::V1alpha1, &mask);
    group.sample_size(10);
    for (name, view) in [("whole", View::whole(Contract::V1alpha1)), ("masked", masked)] {
        group.bench_function(format!("1000_{name}_initial_syncs_of_500_pods"), |bencher| {
            bencher.iter(|| {
                assert_eq!(drain_side_by_side(&mut node.watchers_of(&view, 1_000)), 501_000);
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().measurement_time(Duration::from_secs(3)).warm_up_time(Duration::from_millis(500));
    targets = publish, list, masked_list, get, watch
}
criterion_main!(benches);
