use super::*;
use crate::pod::{ByteMeter, CgroupId, Published, StoreConfig, StoreThread};
use rustix::event::{EventfdFlags, eventfd};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;

fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !condition() {
        assert!(Instant::now() < deadline, "waited for {what}");
        thread::sleep(Duration::from_millis(1));
    }
}

/// A directory tree stands in for a mounted hierarchy.
struct Fixture {
    directory: tempfile::TempDir,
    hints: Arc<Mutex<Vec<Hint>>>,
    _store: StoreThread,
    room: KernelRoom,
}

impl Fixture {
    fn new(feed: Option<NamedFeed>, is_v2: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy { mount: directory.path().to_owned(), above: String::new(), is_v2 };
        Self::over(directory, feed, move || Ok(vec![hierarchy.clone()]))
    }

    fn over(
        directory: tempfile::TempDir,
        feed: Option<NamedFeed>,
        mounted: impl Fn() -> io::Result<Vec<Hierarchy>> + Send + 'static,
    ) -> Self {
        let published = Arc::new(Published::new(Arc::default()));
        let (store, store_thread) =
            PodStore::spawn(&StoreConfig::default(), published, ByteMeter::default(), ()).unwrap();
        let hints = Arc::<Mutex<Vec<Hint>>>::default();
        let config = KernelConfig {
            root: CgroupRoot::default(),
            keep: Duration::from_secs(60),
            feed,
            map: None,
            hint: {
                let hints = hints.clone();
                Box::new(move |hint| hints.lock().unwrap().push(hint))
            },
            store,
        };
        let room = KernelRoom::spawn_over(config, mounted).unwrap();
        Self { directory, hints, _store: store_thread, room }
    }

    fn make(&self, path: &str) {
        std::fs::create_dir_all(self.directory.path().join(path)).unwrap();
    }

    fn is_scanned(&self) -> bool {
        self.room.view().report().last_scan.is_some()
    }

    fn summary(&self) -> String {
        self.room.view().summary(Instant::now())
    }
}

/// Events that the test tells.
#[derive(Debug)]
struct Told {
    /// Rung when there are some.
    bell: OwnedFd,
    events: Mutex<Vec<KernelEvent>>,
    /// How often there were some when they were read.
    readings: AtomicU64,
    /// How many are handed over at a time.
    batch: usize,
}

/// A feed whose events the test writes.
#[derive(Debug)]
struct Script(Arc<Told>);

impl Feed for Script {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.bell.as_fd()
    }

    fn drain(&mut self, apply: &mut dyn FnMut(KernelEvent)) -> bool {
        let _ = rustix::io::read(&self.0.bell, &mut [0; 8]);
        let mut events = self.0.events.lock().unwrap();
        self.0.readings.fetch_add(u64::from(!events.is_empty()), Ordering::Relaxed);
        let count = self.0.batch.min(events.len());
        events.drain(..count).for_each(apply);
        events.is_empty()
    }
}

fn script() -> (Arc<Told>, Option<NamedFeed>) {
    script_in_batches(usize::MAX)
}

fn script_in_batches(batch: usize) -> (Arc<Told>, Option<NamedFeed>) {
    let bell = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC).unwrap();
    let script = Arc::new(Told { bell, events: Mutex::default(), readings: AtomicU64::new(0), batch });
    (script.clone(), Some(("script", Box::new(Script(script)))))
}

fn tell(script: &Told, event: KernelEvent) {
    script.events.lock().unwrap().push(event);
    rustix::io::write(&script.bell, &1_u64.to_ne_bytes()).unwrap();
}

const C1: &str = "kubepods/pod0123456789abcdef0123456789abcdef/c1";

#[test]
fn containers_are_followed_by_inotify_without_ebpf() {
    let fixture = Fixture::new(None, true);
    eventually("the first scan", || fixture.is_scanned());
    fixture.make(C1);
    eventually("the container", || fixture.room.view().counts().containers == 1);
    assert_eq!(
        *fixture.hints.lock().unwrap(),
        [Hint::Appeared("0123456789abcdef0123456789abcdef".into(), "c1".into())]
    );
    assert!(fixture.summary().contains("2 cgroups of pods below") && fixture.summary().contains("inotify"));
    std::fs::remove_dir(fixture.directory.path().join(C1)).unwrap();
    let is_released = || {
        fixture.room.view().tables().cgroups.by_container_prefix("c1").all(|(_, it)| it.released.is_some())
    };
    eventually("its removal", is_released);
}

#[test]
fn feed_replaces_inotify_and_its_losses_make_a_scan() {
    let (script, feed) = script();
    let fixture = Fixture::new(feed, true);
    eventually("the first scan", || fixture.is_scanned());
    assert_eq!(fixture.room.view().report().events, Some("script"));
    tell(&script, KernelEvent::CgroupCreated { id: CgroupId(1), path: format!("/{C1}") });
    eventually("the event", || fixture.room.view().counts().containers == 1);
    // Made without an event.
    fixture.make("kubepods/pod0123456789abcdef0123456789abcdef/c2");
    tell(&script, KernelEvent::EventsLost { count: 3 });
    let of = |prefix: &str| {
        let tables = fixture.room.view().tables();
        tables.cgroups.by_container_prefix(prefix).next().map(|(_, cgroup)| cgroup.released.is_some())
    };
    eventually("the scan to find it", || of("c2") == Some(false));
    assert_eq!(of("c1"), Some(true), "the scan does not find it");
    assert!(fixture.hints.lock().unwrap().contains(&Hint::Everything));
    assert!(fixture.summary().contains("3 events lost"), "{}", fixture.summary());
}

#[test]
fn events_in_quick_succession_are_read_some_at_a_time() {
    let (script, feed) = script();
    let fixture = Fixture::new(feed, true);
    eventually("the first scan", || fixture.is_scanned());
    let start = Instant::now();
    for _ in 0..100 {
        tell(&script, KernelEvent::CgroupReleased { id: CgroupId(1) });
        thread::sleep(GATHER / 10);
    }
    eventually("all of them", || fixture.room.view().counts().events == 100);
    let readings = script.readings.load(Ordering::Relaxed);
    let most = start.elapsed().as_nanos() / GATHER.as_nanos() + 2;
    assert!(u128::from(readings) <= most, "{readings} readings, at most {most}");
}

#[test]
fn scan_waits_until_all_events_that_are_there_are_read() {
    let (script, feed) = script_in_batches(2);
    let fixture = Fixture::new(feed, true);
    eventually("the first scan", || fixture.is_scanned());
    let scans = || fixture.room.view().counts().scans;
    let is_past = |at: Instant| at.elapsed() >= MIN_SCAN_INTERVAL;
    eventually("the next scan to be allowed", || fixture.room.view().report().last_scan.is_some_and(is_past));
    let before = scans();
    // The loss is of the removal of the cgroups that the events behind it tell of.
    let created = |id| KernelEvent::CgroupCreated { id: CgroupId(id), path: format!("/kubepods/podx/c{id}") };
    let mut events = vec![KernelEvent::EventsLost { count: 9 }];
    events.extend((1..=9).map(created));
    *script.events.lock().unwrap() = events;
    fixture.room.view().ring();
    eventually("the scan", || scans() > before);
    eventually("the cgroups to be gone", || {
        let tables = fixture.room.view().tables();
        tables.cgroups.len() == 9 && tables.cgroups.iter().all(|(_, cgroup)| cgroup.released.is_some())
    });
    assert_eq!(scans(), before + 1);
}

#[test]
fn batches_follow_each_other_without_a_pause() {
    let (script, feed) = script_in_batches(1);
    let fixture = Fixture::new(feed, true);
    eventually("the first scan", || fixture.is_scanned());
    let count = 5_000;
    script
        .events
        .lock()
        .unwrap()
        .extend((0..count).map(|id| KernelEvent::CgroupReleased { id: CgroupId(id) }));
    let start = Instant::now();
    fixture.room.view().ring();
    eventually("all of them", || fixture.room.view().counts().events == count);
    let with_pauses = GATHER * count as u32;
    assert!(start.elapsed() < with_pauses, "{:?}, with pauses {with_pauses:?}", start.elapsed());
}

#[test]
fn hybrid_nodes_are_followed_where_their_pods_are() {
    // CG-6
    let directory = tempfile::tempdir().unwrap();
    let of = |name: &str, is_v2| {
        let mount = directory.path().join(name);
        std::fs::create_dir(&mount).unwrap();
        Hierarchy { mount, above: String::new(), is_v2 }
    };
    let mounted = vec![of("unified", true), of("memory", false)];
    let (script, feed) = script();
    std::fs::create_dir_all(directory.path().join("memory").join(C1)).unwrap();
    let fixture = Fixture::over(directory, feed, move || Ok(mounted.clone()));
    eventually("the container", || fixture.room.view().counts().containers == 1);
    let report = fixture.room.view().report();
    assert!(report.hierarchy.unwrap().ends_with("memory") && report.events == Some("inotify"));
    // The kernel's events are about the other hierarchy, whose numbers are not these.
    tell(&script, KernelEvent::CgroupCreated { id: CgroupId(1), path: "/kubepods/podx/c9".into() });
    tell(&script, KernelEvent::EventsLost { count: 1 });
    eventually("the feed to be read", || fixture.room.view().counts().lost == 1);
    assert_eq!(fixture.room.view().counts().containers, 1);
}

#[test]
fn room_without_a_hierarchy_says_so_and_goes_on() {
    let fixture = Fixture::over(tempfile::tempdir().unwrap(), None, || Ok(Vec::new()));
    eventually("the first scan", || fixture.is_scanned());
    assert!(fixture.summary().contains("mount the node's /sys/fs/cgroup"), "{}", fixture.summary());
    assert!(!fixture.room.view().report().has_failed);
}

/// A feed with a bug.
#[derive(Debug)]
struct Panics(OwnedFd);

impl Feed for Panics {
    fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    fn drain(&mut self, _: &mut dyn FnMut(KernelEvent)) -> bool {
        panic!("a bug in a feed, which this test is about");
    }
}

#[test]
fn failure_of_the_thread_shows_and_takes_nothing_down() {
    let feed: Box<dyn Feed> = Box::new(Panics(eventfd(0, EventfdFlags::CLOEXEC).unwrap()));
    let fixture = Fixture::new(Some(("panics", feed)), true);
    eventually("the failure", || fixture.room.view().report().has_failed);
    assert!(fixture.summary().contains("has failed"));
}
