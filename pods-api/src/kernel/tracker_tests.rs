use super::super::scan::Found;
use super::*;
use crate::pod::testing::{PodSketch, snapshot_of};
use std::collections::BTreeSet;
use std::sync::Mutex;

const C1: &str = "/kubepods/burstable/pod0123456789abcdef0123456789abcdef/c1";
const POD: &str = "0123456789abcdef0123456789abcdef";

type Hints = Arc<Mutex<Vec<Hint>>>;
type Written = Arc<Mutex<Contents>>;

/// What is in the kernel's maps.
#[derive(Debug, Default)]
struct Contents {
    entries: BTreeMap<u64, CgroupEntry>,
    tracked: BTreeSet<u64>,
    is_full: bool,
    swept: Vec<i32>,
}

/// The maps in the kernel.
#[derive(Debug)]
struct Map(Written);

impl CgroupMap for Map {
    fn put(&mut self, id: CgroupId, entry: &CgroupEntry) -> bool {
        let mut contents = self.0.lock().unwrap();
        if !contents.is_full {
            contents.entries.insert(id.0, entry.clone());
        }
        !contents.is_full
    }

    fn track(&mut self, id: CgroupId) -> bool {
        let mut contents = self.0.lock().unwrap();
        if !contents.is_full {
            contents.tracked.insert(id.0);
        }
        !contents.is_full
    }

    fn remove(&mut self, id: CgroupId) {
        self.0.lock().unwrap().entries.remove(&id.0);
    }

    fn sweep_processes(&mut self, is_alive: &dyn Fn(Pid) -> bool) {
        self.0.lock().unwrap().swept.extend((1..10).filter(|number| !is_alive(pid(*number))));
    }
}

struct Fixture {
    tracker: Tracker<Box<dyn FnMut(Hint)>>,
    hints: Hints,
    map: Written,
    view: Arc<KernelView>,
    pods: Snapshot,
    now: Instant,
}

impl Fixture {
    fn new(pods: &[PodSketch]) -> Self {
        let (hints, map) = (Hints::default(), Written::default());
        let view = KernelView::new().unwrap();
        let hint = {
            let hints = hints.clone();
            Box::new(move |hint| hints.lock().unwrap().push(hint)) as Box<dyn FnMut(Hint)>
        };
        let map_of_kernel: Box<dyn CgroupMap> = Box::new(Map(map.clone()));
        let root = CgroupRoot::default();
        let mut tracker =
            Tracker::new(root, Duration::from_secs(60), Some(map_of_kernel), hint, view.clone());
        let now = Instant::now();
        let pods = snapshot_of(pods);
        tracker.take_scan(&Scan::default(), true, now, &pods);
        Self { tracker, hints, map, view, pods, now }
    }

    /// Applies events and publishes; returns the hints that came of it.
    fn apply(&mut self, events: impl IntoIterator<Item = KernelEvent>) -> Vec<Hint> {
        for event in events {
            self.tracker.apply(event, self.now, &self.pods);
        }
        self.advance(Duration::ZERO)
    }

    fn advance(&mut self, time: Duration) -> Vec<Hint> {
        self.now += time;
        self.tracker.advance(self.now, &self.pods);
        std::mem::take(&mut self.hints.lock().unwrap())
    }

    /// Takes in a hierarchy that was read whole; returns the hints that came of it.
    fn scan(&mut self, found: &[(u64, &str)], is_v2: bool) -> Vec<Hint> {
        self.tracker.take_scan(&scan_of(found), is_v2, self.now, &self.pods);
        self.advance(Duration::ZERO)
    }

    fn entry(&self, id: u64) -> Option<CgroupEntry> {
        self.map.lock().unwrap().entries.get(&id).cloned()
    }
}

fn scan_of(found: &[(u64, &str)]) -> Scan {
    let of = |(id, path): &(u64, &str)| Found { id: CgroupId(*id), path: (*path).to_owned() };
    Scan { cgroups: found.iter().map(of).collect(), ..Scan::default() }
}

fn created(id: u64, path: &str) -> KernelEvent {
    KernelEvent::CgroupCreated { id: CgroupId(id), path: path.to_owned() }
}

fn populated(id: u64, is_populated: bool) -> KernelEvent {
    KernelEvent::CgroupPopulated { id: CgroupId(id), is_populated }
}

fn pid(number: i32) -> Pid {
    Pid::new(number).unwrap()
}

fn ended() -> Hint {
    Hint::Ended("c1".into())
}

fn appeared() -> Hint {
    Hint::Appeared(POD.into(), "c1".into())
}

#[test]
fn life_of_a_container_is_hinted_at_where_it_matters() {
    let mut fixture = Fixture::new(&[PodSketch::new(POD)]);
    assert_eq!(fixture.apply([created(2, "/kubepods/burstable/pod0123456789abcdef0123456789abcdef")]), []);
    assert_eq!(fixture.apply([created(3, C1)]), [appeared()]);
    assert_eq!(fixture.apply([created(3, C1)]), [], "told twice");
    assert_eq!(fixture.apply([populated(3, true)]), []);
    assert_eq!(
        fixture.apply([KernelEvent::OomKilled { cgroup: CgroupId(3), pid: pid(7) }]),
        [Hint::OutOfMemory("c1".into())]
    );
    assert_eq!(fixture.apply([populated(3, false), populated(3, false)]), [ended()]);
    assert_eq!(fixture.apply([KernelEvent::CgroupReleased { id: CgroupId(3) }]), [], "its end was told of");
    // What is no pod's is nothing to anyone.
    assert_eq!(fixture.apply([created(9, "/system.slice/sshd.service"), populated(9, true)]), []);
    assert_eq!(fixture.view.counts().cgroups, 2);
}

#[test]
fn first_program_of_a_container_ends_it_and_other_processes_do_not() {
    let mut fixture = Fixture::new(&[PodSketch::new(POD)]);
    let attached = |number| KernelEvent::ProcessAttached { cgroup: CgroupId(3), pid: pid(number) };
    let executed = |number| KernelEvent::ProcessExecuted { cgroup: CgroupId(3), pid: pid(number) };
    let exited = |number| KernelEvent::ProcessExited { cgroup: CgroupId(3), pid: pid(number) };
    // The runtime's own process comes first and goes.
    fixture.apply([created(3, C1), attached(6), populated(3, true)]);
    assert_eq!(fixture.apply([exited(6), executed(7), executed(8), exited(8)]), []);
    // One that was told to run in it, and ends.
    assert_eq!(fixture.apply([attached(9), executed(9), exited(9)]), []);
    assert_eq!(fixture.apply([exited(7)]), [ended()]);
    let tables = fixture.view.tables();
    assert_eq!(tables.processes.get(pid(9)).unwrap().cgroup, CgroupId(3));
}

#[test]
fn container_that_ran_before_has_no_known_first_process() {
    let mut fixture = Fixture::new(&[PodSketch::new(POD)]);
    assert_eq!(fixture.scan(&[(3, C1)], true), [appeared()]);
    let executed = KernelEvent::ProcessExecuted { cgroup: CgroupId(3), pid: pid(7) };
    assert_eq!(
        fixture.apply([executed, KernelEvent::ProcessExited { cgroup: CgroupId(3), pid: pid(7) }]),
        []
    );
}

#[test]
fn removal_alone_tells_of_an_end_on_v1_and_after_a_loss() {
    let released = || KernelEvent::CgroupReleased { id: CgroupId(3) };
    let mut fixture = Fixture::new(&[PodSketch::new(POD)]);
    fixture.apply([created(3, C1), populated(3, true)]);
    assert_eq!(fixture.apply([released(), released()]), [ended()]);
    let mut fixture = Fixture::new(&[PodSketch::new(POD)]);
    fixture.scan(&[], false);
    fixture.apply([created(3, C1)]);
    assert_eq!(fixture.apply([released()]), [ended()]);
}

#[test]
fn removed_cgroups_stay_findable_and_their_container_with_them() {
    let mut fixture = Fixture::new(&[PodSketch::new(POD)]);
    fixture.apply([created(3, C1), KernelEvent::CgroupReleased { id: CgroupId(3) }]);
    let is_findable = |fixture: &Fixture| fixture.view.tables().cgroups.by_container_prefix("c").count() == 1;
    fixture.advance(Duration::from_secs(59));
    assert!(is_findable(&fixture) && fixture.entry(3).is_none(), "the kernel's map holds what is there");
    fixture.advance(Duration::from_secs(1));
    assert!(!is_findable(&fixture) && fixture.tracker.next_due().is_none());
}

#[test]
fn scan_finds_what_events_did_not_tell_of() {
    // BPF-1
    let mut fixture = Fixture::new(&[PodSketch::new(POD)]);
    fixture.apply([created(3, C1), populated(3, true)]);
    assert_eq!(fixture.apply([KernelEvent::EventsLost { count: 5 }]), [Hint::Everything]);
    assert!(fixture.tracker.take_scan_wish() && !fixture.tracker.take_scan_wish());
    assert_eq!(fixture.view.counts().lost, 5);
    let hints = fixture.scan(&[(4, &C1.replace("c1", "c2"))], true);
    assert_eq!(hints, [ended(), Hint::Appeared(POD.into(), "c2".into())]);
    let tables = fixture.view.tables();
    assert!(tables.cgroups.get(CgroupId(3)).unwrap().released.is_some());
    assert!(tables.cgroups.get(CgroupId(4)).unwrap().released.is_none());
}

#[test]
fn kernels_map_has_the_name_as_soon_as_a_source_tells_it() {
    let mut fixture = Fixture::new(&[]);
    fixture.apply([created(3, C1)]);
    let nameless = CgroupEntry { pod: POD.into(), container: Some("c1".into()), name: None };
    assert_eq!(fixture.entry(3), Some(nameless.clone()));
    fixture.pods = snapshot_of(&[PodSketch::new(POD).namespace("shop").name("web")]);
    fixture.advance(FIRST_RETRY);
    let named = CgroupEntry { name: Some(("shop".into(), "web".into())), ..nameless };
    assert_eq!(fixture.entry(3), Some(named));
    assert_eq!(fixture.tracker.next_due(), None, "nothing more to wait for");
}

#[test]
fn container_of_an_unknown_pod_is_hinted_at_for_a_bounded_time_and_found_later() {
    // BPF-7
    let mut fixture = Fixture::new(&[]);
    let mut hints = fixture.apply([created(3, C1)]).len();
    for _ in 0..200 {
        hints += fixture.advance(Duration::from_millis(100)).len();
    }
    assert!((5..30).contains(&hints), "{hints}");
    assert_eq!(fixture.view.counts().unknown, 1);
    // Whoever looks later finds the pod.
    fixture.pods = snapshot_of(&[PodSketch::new(POD)]);
    fixture.advance(LATE_RETRY);
    assert!(fixture.entry(3).unwrap().name.is_some());
}

#[test]
fn cgroups_that_nobody_knows_are_looked_at_together() {
    let mut fixture = Fixture::new(&[]);
    for number in 0..50 {
        let path = format!("/kubepods/pod6b3f0a52-0000-4000-8000-{number:012}/c1");
        fixture.apply([created(100 + number, &path)]);
        fixture.advance(Duration::from_millis(37));
    }
    fixture.advance(RESOLVE_FOR);
    fixture.advance(LATE_RETRY);
    let start = fixture.now;
    let mut rounds = 0;
    while fixture.now < start + 10 * LATE_RETRY {
        let due = fixture.tracker.next_due().expect("their names may still come");
        fixture.advance(due - fixture.now);
        rounds += 1;
    }
    assert!(rounds <= 12, "{rounds} rounds");
}

#[test]
fn unusual_uid_is_known_as_soon_as_its_pod_is() {
    let path = "/kubepods.slice/kubepods-podmy_pod_1.slice/crio-c1.scope";
    let mut fixture = Fixture::new(&[]);
    assert_eq!(fixture.apply([created(3, path)]), []);
    assert_eq!(fixture.entry(3), None);
    fixture.pods = snapshot_of(&[PodSketch::new("my_pod-1")]);
    fixture.advance(FIRST_RETRY);
    assert_eq!(fixture.entry(3).unwrap().pod.as_str(), "my_pod-1");
}

#[test]
fn what_a_container_makes_below_itself_has_its_events_and_no_entry() {
    let mut fixture = Fixture::new(&[]);
    fixture.apply([created(4, &format!("{C1}/below"))]);
    assert_eq!((fixture.entry(4), fixture.tracker.next_due()), (None, None));
    assert!(fixture.map.lock().unwrap().tracked.contains(&4));
}

#[test]
fn numbers_of_v1_never_come_into_the_kernels_map() {
    // CG-6
    let mut fixture = Fixture::new(&[PodSketch::new(POD)]);
    assert_eq!(fixture.scan(&[(3, C1)], false), [appeared()]);
    assert_eq!(fixture.entry(3), None);
    // The hierarchy is another, and so is what has the same number and path there.
    assert_eq!(fixture.scan(&[(3, C1)], true), [ended(), appeared()]);
    assert!(fixture.entry(3).is_some());
    fixture.scan(&[(3, C1)], false);
    assert_eq!(fixture.entry(3), None);
    assert!(fixture.view.tables().cgroups.get(CgroupId(3)).unwrap().released.is_none());
    // A removal there is none of the kernel's map: the number may be another cgroup's.
    let entry = CgroupEntry { pod: POD.into(), container: None, name: None };
    fixture.map.lock().unwrap().entries.insert(3, entry);
    fixture.apply([KernelEvent::CgroupReleased { id: CgroupId(3) }]);
    assert!(fixture.entry(3).is_some());
}

#[test]
fn end_of_a_container_that_is_older_is_hinted_at() {
    let mut fixture = Fixture::new(&[PodSketch::new(POD)]);
    fixture.scan(&[(3, C1)], true);
    assert_eq!(fixture.apply([populated(3, false)]), [ended()]);
    let mut fixture = Fixture::new(&[PodSketch::new(POD)]);
    fixture.scan(&[(3, C1)], true);
    assert_eq!(fixture.apply([KernelEvent::CgroupReleased { id: CgroupId(3) }]), [ended()]);
}

#[test]
fn everything_is_hinted_at_once_a_second_and_the_last_loss_is_not_forgotten() {
    let mut fixture = Fixture::new(&[]);
    let lost = || [KernelEvent::EventsLost { count: 1 }];
    assert_eq!(fixture.apply(lost()), [Hint::Everything]);
    for _ in 0..9 {
        assert_eq!(fixture.advance(Duration::from_millis(100)), []);
        assert_eq!(fixture.apply(lost()), []);
    }
    assert_eq!(fixture.tracker.next_due(), Some(fixture.now + Duration::from_millis(100)));
    assert_eq!(fixture.advance(Duration::from_millis(100)), [Hint::Everything]);
    assert_eq!(fixture.tracker.next_due(), None);
    assert_eq!(fixture.advance(EVERYTHING_INTERVAL), [], "nothing was lost since");
}

#[test]
fn cgroup_for_which_there_was_no_room_gets_its_entry_later() {
    let mut fixture = Fixture::new(&[PodSketch::new(POD)]);
    fixture.map.lock().unwrap().is_full = true;
    assert_eq!(fixture.apply([created(3, C1)]), [appeared()]);
    for _ in 0..60 {
        assert_eq!(fixture.advance(LATE_RETRY), [], "its pod is known: there is nothing to ask");
    }
    assert_eq!((fixture.entry(3), fixture.view.counts().unknown), (None, 0));
    fixture.map.lock().unwrap().is_full = false;
    fixture.advance(LATE_RETRY);
    assert!(fixture.entry(3).is_some() && fixture.tracker.next_due().is_none());
}

#[test]
fn scan_that_is_not_whole_releases_nothing() {
    let mut fixture = Fixture::new(&[PodSketch::new(POD)]);
    fixture.apply([created(3, C1), populated(3, true)]);
    let scan = Scan { missing: Some("too many open files".to_owned()), ..Scan::default() };
    fixture.tracker.take_scan(&scan, true, fixture.now, &fixture.pods);
    assert_eq!(fixture.advance(Duration::ZERO), []);
    assert!(fixture.view.tables().cgroups.get(CgroupId(3)).unwrap().released.is_none());
    assert_eq!(fixture.scan(&[], true), [ended()]);
}

#[test]
fn process_that_leaves_its_pod_is_forgotten() {
    let mut fixture = Fixture::new(&[PodSketch::new(POD)]);
    let attached =
        |cgroup, number| KernelEvent::ProcessAttached { cgroup: CgroupId(cgroup), pid: pid(number) };
    fixture.apply([created(3, C1), attached(3, 7), attached(3, 8)]);
    fixture.apply([attached(1, 7)]);
    let tables = fixture.view.tables();
    assert!(tables.processes.get(pid(7)).is_none() && tables.processes.get(pid(8)).is_some());
}

#[test]
fn sweep_reaches_the_kernels_map() {
    let mut fixture = Fixture::new(&[]);
    fixture.tracker.sweep(fixture.now, |pid| pid.as_raw() != 7);
    assert_eq!(fixture.map.lock().unwrap().swept, [7]);
}
