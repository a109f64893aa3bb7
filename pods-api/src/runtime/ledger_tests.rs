use super::*;
use crate::runtime::status::testing::{View, view};
use crate::runtime::status::{Sandbox, UnixNanos};

#[path = "ledger_events_tests.rs"]
mod events;

const MS: Duration = Duration::from_millis(1);
const REFRESH: Duration = Duration::from_secs(60);

/// A ledger, and the clock of the test.
struct Bench {
    ledger: Ledger,
    now: Instant,
}

impl Bench {
    fn new() -> Self {
        Self { ledger: Ledger::default(), now: Instant::now() }
    }

    fn wait(&mut self, time: Duration) -> &mut Self {
        self.now += time;
        self.ledger.advance(self.now);
        self
    }

    fn list(&mut self, pods: &[(&str, &View)], began: Instant) -> Vec<String> {
        let pods = pods.iter().map(|(uid, view)| (PodUid::from(*uid), listed(view))).collect();
        let listing = Listing { pods, sandboxes: Vec::new() };
        let is_first = self.ledger.first_pass.is_none() && self.ledger.pods.is_empty();
        let gone = self.ledger.take_listing(&listing, began, is_first, REFRESH);
        gone.into_iter().map(|(uid, _)| uid.to_string()).collect()
    }

    fn read(&mut self, uid: &str, view: &View, began: Instant) -> Option<RuntimePod> {
        let pod = view.clone().build();
        let read = PodRead { sandboxes: pod.sandboxes().to_vec(), containers: pod.containers().to_vec() };
        let change = self.ledger.take_read(&uid.into(), began, (listed(view), read), self.now);
        change.map(|(of, pod)| {
            assert_eq!(of.as_str(), uid);
            pod
        })
    }

    /// What is to be read, in order.
    fn wanted(&mut self) -> Vec<String> {
        std::iter::from_fn(|| self.ledger.next_read()).map(|(uid, _)| uid.to_string()).collect()
    }

    /// Lists and reads one pod, so that it is known.
    fn know(&mut self, uid: &str, view: &View) {
        let began = self.now;
        self.list(&[(uid, view)], began);
        assert_eq!(self.wanted(), [uid]);
        self.read(uid, view, began);
        self.wait(MS);
    }
}

fn listed(view: &View) -> ListedPod {
    let pod = view.clone().build();
    let sandbox = |sandbox: &Sandbox| (sandbox.id.clone(), i32::from(!sandbox.is_ready));
    ListedPod {
        sandboxes: pod.sandboxes().iter().map(sandbox).collect(),
        containers: pod
            .containers()
            .iter()
            .map(|container| (container.id.clone(), (container.sandbox.clone(), container.state as i32)))
            .collect(),
    }
}

fn runs() -> View {
    view().ready("s").running("a", "a0")
}

fn ended(reason: &str) -> View {
    view().ready("s").exited("a", "a0", 1).reason(reason)
}

fn exit(id: &str) -> RuntimeEvent {
    RuntimeEvent::Exited(id.into(), Exit { code: 1, at: UnixNanos::new(1) })
}

fn shows_end(pod: &RuntimePod) -> bool {
    pod.containers()[0].unconfirmed_exit.is_some()
}

#[test]
fn only_changed_pods_are_read() {
    // Rule C.10.5.
    let mut bench = Bench::new();
    bench.know("p", &runs());
    let now = bench.now;
    bench.list(&[("p", &runs())], now);
    assert_eq!(bench.wanted(), [] as [&str; 0]);
    bench.list(&[("p", &ended("")), ("q", &runs())], now + MS);
    let mut wanted = bench.wanted();
    wanted.sort();
    assert_eq!(wanted, ["p", "q"]);
}

#[test]
fn every_pod_is_read_each_minute() {
    // Rule C.10.5: images and resources change without a change of state.
    let mut bench = Bench::new();
    bench.know("p", &runs());
    let later = bench.wait(REFRESH).now;
    bench.list(&[("p", &runs())], later);
    assert_eq!(bench.wanted(), ["p"]);
    let now = bench.now;
    assert!(bench.read("p", &runs(), now).is_none(), "the same again is not told");
}

#[test]
fn pods_due_for_a_read_come_a_few_at_a_time() {
    const PODS: usize = 95;
    let mut bench = Bench::new();
    let uids: Vec<_> = (0..PODS).map(|number| format!("p{number}")).collect();
    let view = runs();
    let pods: Vec<_> = uids.iter().map(|uid| (uid.as_str(), &view)).collect();
    let mut last_read: HashMap<String, Instant> = HashMap::new();
    for second in 0..600 {
        let now = bench.now;
        bench.list(&pods, now);
        let mut read = 0;
        while let Some((uid, _)) = bench.ledger.next_read() {
            let uid = uid.to_string();
            bench.read(&uid, &view, now);
            last_read.insert(uid, now);
            read += 1;
        }
        assert!(second == 0 || read <= PODS.div_ceil(REFRESH_SHARE), "{read} pods at second {second}");
        let oldest = last_read.values().min().unwrap();
        assert!(last_read.len() == PODS && now.duration_since(*oldest) <= REFRESH, "second {second}");
        bench.wait(Duration::from_secs(1));
    }
}

#[test]
fn older_answers_never_replace_newer_ones() {
    // Rule C.10.6.
    let mut bench = Bench::new();
    bench.know("p", &runs());
    let (early, late) = (bench.now, bench.now + MS);
    assert!(bench.read("p", &ended(""), late).is_some());
    assert!(bench.read("p", &runs(), early).is_none());
    bench.list(&[("p", &runs())], early);
    assert_eq!(bench.wanted(), [] as [&str; 0], "a list asked for before the read tells nothing");
    assert_eq!(bench.list(&[], early), [] as [&str; 0], "nor that the pod is gone");
}

#[test]
fn reason_that_comes_late_is_looked_for() {
    // STAT-4.
    let mut bench = Bench::new();
    bench.know("p", &runs());
    let now = bench.now;
    bench.read("p", &ended("Error"), now);
    for delay in [LATE_REASON[0], LATE_REASON[1] - LATE_REASON[0], LATE_REASON[2] - LATE_REASON[1]] {
        bench.wait(delay);
        assert_eq!(bench.wanted(), ["p"]);
        let now = bench.now;
        bench.ledger.queue.finish(&"p".into());
        bench.read("p", &ended("Error"), now);
    }
    assert_eq!(bench.ledger.next_due(), None);
    let now = bench.now;
    bench.ledger.take_event(RuntimeEvent::OutOfMemory("a0".into()), now);
    assert_eq!(bench.wanted(), ["p"]);
    assert!(bench.read("p", &ended("OOMKilled"), now).is_some());
}

#[test]
fn reason_of_an_end_found_at_first_sight_may_come_late_too() {
    // STAT-4: out of memory before the pod could be read once.
    let mut bench = Bench::new();
    let now = bench.now;
    bench.list(&[("old", &ended("Error"))], now);
    bench.wanted();
    bench.read("old", &ended("Error"), now);
    assert_eq!(
        bench.ledger.next_due(),
        None,
        "what had ended before this server began is not looked at again"
    );
    assert!(bench.ledger.take_first_pass().is_some());
    bench.list(&[("old", &ended("Error")), ("new", &ended("Error"))], now + MS);
    bench.wanted();
    bench.read("new", &ended("Error"), now + MS);
    bench.wait(LATE_REASON[0]);
    bench.ledger.queue.finish(&"new".into());
    assert_eq!(bench.wanted(), ["new"]);
}

#[test]
fn failed_read_keeps_everything_and_is_tried_again() {
    // Rule C.2.3.
    let mut bench = Bench::new();
    bench.know("p", &runs());
    let mut delays = Vec::new();
    for _ in 0..9 {
        let now = bench.now;
        bench.ledger.take_failure(&"p".into(), now);
        let due = bench.ledger.next_due().unwrap();
        delays.push(due.duration_since(now).as_millis());
        bench.wait(due.duration_since(now));
        assert_eq!(bench.wanted(), ["p"]);
    }
    assert_eq!(delays, [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
    let now = bench.now;
    assert!(bench.read("p", &runs(), now).is_none(), "nothing was told in between");
}

#[test]
fn first_pass_is_complete_when_every_pod_was_tried() {
    let mut bench = Bench::new();
    let now = bench.now;
    assert!(bench.ledger.take_first_pass().is_none(), "nothing listed");
    bench.list(&[("p", &runs()), ("q", &runs())], now);
    assert_eq!(bench.wanted().len(), 2);
    assert!(bench.ledger.take_first_pass().is_none());
    bench.read("p", &runs(), now);
    bench.ledger.take_failure(&"q".into(), now);
    let mut pods = bench.ledger.take_first_pass().expect("both tried");
    pods.sort_by(|a, b| a.0.cmp(&b.0));
    let summary: Vec<_> = pods.iter().map(|(uid, pod)| (uid.as_str(), pod.is_some())).collect();
    assert_eq!(summary, [("p", true), ("q", false)]);
    assert!(bench.ledger.take_first_pass().is_none(), "once");
    let mut empty = Bench::new();
    let now = empty.now;
    empty.list(&[], now);
    assert_eq!(empty.ledger.take_first_pass().map(|pods| pods.len()), Some(0));
}

#[test]
fn first_pass_does_not_wait_for_a_pod_that_left_while_the_runtime_was_away() {
    let mut bench = Bench::new();
    let now = bench.now;
    bench.list(&[("p", &runs()), ("gone", &runs())], now);
    bench.read("p", &runs(), now);
    bench.ledger.start_over();
    bench.list(&[("p", &runs())], now + MS);
    bench.read("p", &runs(), now + MS);
    assert!(bench.ledger.take_first_pass().is_some());
}

#[test]
fn pod_that_is_gone_is_told_once_and_forgotten() {
    let mut bench = Bench::new();
    bench.know("p", &runs());
    let now = bench.now;
    assert_eq!(bench.list(&[], now), ["p"]);
    assert!(bench.ledger.owners.is_empty());
    assert_eq!(bench.list(&[], now + MS), [] as [&str; 0]);
    assert!(bench.ledger.pods.is_empty());
}

#[test]
fn read_under_way_cannot_bring_a_gone_pod_back() {
    let mut bench = Bench::new();
    bench.know("p", &runs());
    let began = bench.now;
    bench.ledger.look_at(&"a0".into());
    assert_eq!(bench.wanted(), ["p"]);
    assert_eq!(bench.list(&[], began + MS), ["p"]);
    assert_eq!(bench.list(&[], began + 2 * MS), [] as [&str; 0]);
    assert!(bench.read("p", &runs(), began).is_none());
    assert_eq!(bench.list(&[], began + 3 * MS), [] as [&str; 0]);
    assert!(bench.ledger.pods.is_empty());
}

#[test]
fn forced_pod_is_told_again_though_nothing_changed() {
    let mut bench = Bench::new();
    bench.know("p", &runs());
    bench.ledger.force(&"p".into());
    bench.ledger.force(&"nothing there".into());
    assert_eq!(bench.wanted(), ["nothing there", "p"]);
    let now = bench.now;
    assert!(bench.read("p", &runs(), now).is_some());
    assert!(bench.read("p", &runs(), now + MS).is_none(), "once");
    assert!(bench.read("nothing there", &view(), now).is_some_and(|pod| pod.is_absent()));
}

#[test]
fn new_session_reads_everything_anew() {
    let mut bench = Bench::new();
    bench.know("p", &runs());
    bench.ledger.look_at(&"a0".into());
    assert_eq!(bench.wanted(), ["p"], "a read that will never come back");
    bench.ledger.start_over();
    assert!(bench.ledger.take_relist_wish());
    let now = bench.now;
    bench.list(&[("p", &runs())], now);
    assert_eq!(bench.wanted(), ["p"]);
    assert!(bench.read("p", &runs(), now).is_none(), "and tells only what differs");
    bench.list(&[("p", &runs())], now + MS);
    assert_eq!(bench.wanted(), [] as [&str; 0]);
}

#[test]
fn container_that_is_not_started_is_looked_at_until_it_is() {
    let mut bench = Bench::new();
    let made = view().ready("s").created("a", "a0");
    bench.know("p", &made);
    let mut delays = Vec::new();
    for _ in 0..13 {
        // Reads for other reasons make no further timers.
        let now = bench.now;
        bench.read("p", &made, now);
        let due = bench.ledger.next_due().unwrap();
        delays.push(due.duration_since(now).as_millis());
        bench.wait(due.duration_since(now));
        assert_eq!(bench.wanted(), ["p"]);
        bench.ledger.queue.finish(&"p".into());
    }
    assert_eq!(delays, [9, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 5_120, 10_000, 10_000, 10_000]);
    let now = bench.now;
    bench.read("p", &runs(), now);
    assert_eq!(bench.ledger.next_due(), None);
}

#[test]
fn list_spares_the_read_its_own_unless_something_was_heard_since() {
    let mut bench = Bench::new();
    let now = bench.now;
    bench.list(&[("p", &runs())], now);
    assert!(
        matches!(bench.ledger.next_read(), Some((_, Some((began, listed)))) if began == now && listed == self::listed(&runs()))
    );
    bench.read("p", &runs(), now);
    bench.list(&[("p", &ended(""))], now + MS);
    bench.ledger.look_at(&"a0".into());
    assert!(matches!(bench.ledger.next_read(), Some((_, None))));
}

#[test]
fn list_asked_for_before_something_was_heard_spares_no_read_its_own() {
    let mut bench = Bench::new();
    bench.know("p", &runs());
    let began = bench.now;
    bench.wait(MS);
    bench.ledger.look_at(&"a0".into());
    bench.list(&[("p", &ended(""))], began);
    assert!(matches!(bench.ledger.next_read(), Some((_, None))));
    bench.ledger.queue.finish(&"p".into());
    let now = bench.now;
    bench.list(&[("p", &ended(""))], now);
    assert!(matches!(bench.ledger.next_read(), Some((_, Some(_)))));
}

#[test]
fn pod_that_could_never_be_read_leaves_nothing_behind() {
    let mut bench = Bench::new();
    let now = bench.now;
    bench.list(&[("p", &runs())], now);
    assert_eq!(bench.wanted(), ["p"]);
    bench.ledger.take_failure(&"p".into(), now);
    assert_eq!(bench.list(&[], now + MS), ["p"]);
    assert!(bench.ledger.owners.is_empty());
}

#[test]
fn pods_that_fail_hold_up_no_other() {
    let mut bench = Bench::new();
    let failing: Vec<_> = (0..20).map(|number| format!("f{number}")).collect();
    let now = bench.now;
    let view = runs();
    let mut pods: Vec<_> = failing.iter().map(|uid| (uid.as_str(), &view)).collect();
    bench.list(&pods, now);
    for uid in &failing {
        bench.wanted();
        bench.ledger.take_failure(&uid.as_str().into(), now);
    }
    bench.wait(FIRST_FAILURE_RETRY);
    assert_eq!(bench.wanted().len(), 2);
    pods.push(("new", &view));
    bench.list(&pods, now + MS);
    assert_eq!(bench.wanted(), ["new"]);
}
