use super::*;
use crate::pod::testing::{PodSketch, snapshot_of};
use std::sync::Mutex;

const C1: &str = "/kubepods/burstable/pod0123456789abcdef0123456789abcdef/c1";
const POD: &str = "0123456789abcdef0123456789abcdef";

type Hints = Arc<Mutex<Vec<Hint>>>;
type Written = Arc<Mutex<BTreeMap<u64, CgroupEntry>>>;

/// A map in the kernel, as what was written into it.
#[derive(Debug)]
struct Map(Written);

impl CgroupMap for Map {
    fn put(&mut self, id: CgroupId, entry: &CgroupEntry) {
        self.0.lock().unwrap().insert(id.0, entry.clone());
    }

    fn remove(&mut self, id: CgroupId) {
        self.0.lock().unwrap().remove(&id.0);
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
        tracker.take_scan(&[], true, now, &pods);
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

    fn entry(&self, id: u64) -> Option<CgroupEntry> {
        self.map.lock().unwrap().get(&id).cloned()
    }
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
    let found = Found { id: CgroupId(3), path: C1.to_owned() };
    fixture.tracker.take_scan(&[found], true, fixture.now, &fixture.pods);
    fixture.advance(Duration::ZERO);
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
    fixture.tracker.take_scan(&[], false, fixture.now, &fixture.pods);
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
    let found = Found { id: CgroupId(4), path: C1.replace("c1", "c2") };
    fixture.tracker.take_scan(&[found], true, fixture.now, &fixture.pods);
    assert_eq!(fixture.advance(Duration::ZERO), [ended(), Hint::Appeared(POD.into(), "c2".into())]);
    let tables = fixture.view.tables();
    assert!(tables.cgroups.get(CgroupId(3)).unwrap().released.is_some());
    assert!(tables.cgroups.get(CgroupId(4)).unwrap().released.is_none());
}

#[test]
fn kernels_map_has_the_name_as_soon_as_a_source_tells_it() {
    let mut fixture = Fixture::new(&[]);
    fixture.apply([created(3, C1), created(4, &format!("{C1}/below"))]);
    let nameless = CgroupEntry { pod: POD.into(), container: Some("c1".into()), name: None };
    assert_eq!(fixture.entry(3), Some(nameless.clone()));
    assert_eq!(fixture.entry(4), Some(nameless.clone()), "what a container makes is its own");
    fixture.pods = snapshot_of(&[PodSketch::new(POD).namespace("shop").name("web")]);
    fixture.advance(FIRST_RETRY);
    let named = CgroupEntry { name: Some(("shop".into(), "web".into())), ..nameless };
    assert_eq!((fixture.entry(3), fixture.entry(4)), (Some(named.clone()), Some(named)));
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
    fixture.advance(LAST_RETRY);
    assert!(fixture.entry(3).unwrap().name.is_some());
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
