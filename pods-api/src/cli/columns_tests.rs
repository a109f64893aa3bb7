//! What kubectl shows for pods in every stage, as a table of cases.

use super::*;
use k8s::api::core::v1::{Container, ContainerStateRunning, ContainerStateWaiting, PodCondition};

const NOW: i64 = 1_700_000_000;

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn ago(seconds: i64) -> Option<Time> {
    Some(Time { seconds: Some(NOW - seconds), nanos: None })
}

fn running() -> ContainerState {
    ContainerState { running: Some(ContainerStateRunning::default()), ..Default::default() }
}

fn waiting(reason: &str) -> ContainerState {
    let waiting = ContainerStateWaiting { reason: text(reason), ..Default::default() };
    ContainerState { waiting: Some(waiting), ..Default::default() }
}

fn exited(code: i32, reason: &str) -> ContainerState {
    let terminated =
        ContainerStateTerminated { exit_code: Some(code), reason: text(reason), ..Default::default() };
    ContainerState { terminated: Some(terminated), ..Default::default() }
}

fn killed(signal: i32) -> ContainerState {
    let terminated = ContainerStateTerminated {
        exit_code: Some(128 + signal),
        signal: Some(signal),
        ..Default::default()
    };
    ContainerState { terminated: Some(terminated), ..Default::default() }
}

/// A pod under construction: containers are named by their position.
#[derive(Default)]
struct Case(Pod);

impl Case {
    fn phase(phase: &str) -> Self {
        let mut case = Self::default();
        case.status().phase = text(phase);
        case
    }

    fn meta(&mut self) -> &mut ObjectMeta {
        self.0.metadata.get_or_insert_default()
    }

    fn spec(&mut self) -> &mut PodSpec {
        self.0.spec.get_or_insert_default()
    }

    fn status(&mut self) -> &mut PodStatus {
        self.0.status.get_or_insert_default()
    }

    fn container(mut self, state: ContainerState, ready: bool) -> Self {
        let name = text(&format!("c{}", self.spec().containers.len()));
        self.spec().containers.push(Container { name: name.clone(), ..Default::default() });
        let status = ContainerStatus { name, state: Some(state), ready: Some(ready), ..Default::default() };
        self.status().container_statuses.push(status);
        self
    }

    fn init(mut self, state: ContainerState) -> Self {
        let name = text(&format!("i{}", self.spec().init_containers.len()));
        self.spec().init_containers.push(Container { name: name.clone(), ..Default::default() });
        let status = ContainerStatus { name, state: Some(state), ..Default::default() };
        self.status().init_container_statuses.push(status);
        self
    }

    fn sidecar(self, state: ContainerState, started: bool, ready: bool) -> Self {
        let mut case = self.init(state);
        case.spec().init_containers.last_mut().unwrap().restart_policy = text("Always");
        let status = case.status().init_container_statuses.last_mut().unwrap();
        (status.started, status.ready) = (Some(started), Some(ready));
        case
    }

    /// The container added last has been restarted.
    fn restarted(mut self, count: i32, seconds_ago: i64) -> Self {
        let is_init = self.status().container_statuses.is_empty();
        let status = self.status();
        let list = if is_init { &mut status.init_container_statuses } else { &mut status.container_statuses };
        let container = list.last_mut().unwrap();
        container.restart_count = Some(count);
        let mut last = exited(1, "Error");
        last.terminated.as_mut().unwrap().finished_at = ago(seconds_ago);
        container.last_state = Some(last);
        self
    }

    fn condition(mut self, kind: &str, status: &str, reason: &str) -> Self {
        let condition = PodCondition {
            r#type: text(kind),
            status: text(status),
            reason: text(reason),
            ..Default::default()
        };
        self.status().conditions.push(condition);
        self
    }

    fn deleted(mut self) -> Self {
        self.meta().deletion_timestamp = ago(1);
        self
    }

    fn reason(mut self, reason: &str) -> Self {
        self.status().reason = text(reason);
        self
    }

    /// READY, STATUS and RESTARTS.
    fn shows(&self) -> (String, String, String) {
        let row = Row::of(&self.0, NOW);
        (row.ready, row.status, row.restarts)
    }
}

#[track_caller]
fn assert_shows(case: &Case, ready: &str, status: &str, restarts: &str) {
    assert_eq!(case.shows(), (ready.to_owned(), status.to_owned(), restarts.to_owned()));
}

#[test]
fn containers_at_work_give_ready_count_and_phase() {
    let case = Case::phase("Running").container(running(), true).container(running(), false);
    assert_shows(&case, "1/2", "Running", "0");
    let case = Case::phase("Pending").container(waiting("ContainerCreating"), false);
    assert_shows(&case, "0/1", "ContainerCreating", "0");
    assert_shows(&Case::phase("Pending"), "0/0", "Pending", "0");
}

#[test]
fn first_container_with_a_reason_gives_the_status() {
    let case = Case::phase("Running")
        .container(waiting("CrashLoopBackOff"), false)
        .restarted(4, 90)
        .container(exited(1, "Error"), false);
    assert_shows(&case, "0/2", "CrashLoopBackOff", "4 (90s ago)");
}

#[test]
fn exits_without_reason_show_code_or_signal() {
    assert_shows(&Case::phase("Failed").container(exited(3, ""), false), "0/1", "ExitCode:3", "0");
    assert_shows(&Case::phase("Failed").container(killed(9), false), "0/1", "Signal:9", "0");
    assert_shows(&Case::phase("Failed").container(exited(137, "OOMKilled"), false), "0/1", "OOMKilled", "0");
}

#[test]
fn completed_container_beside_a_running_one_does_not_complete_the_pod() {
    let pod = || Case::phase("Running").container(exited(0, "Completed"), false).container(running(), true);
    assert_shows(&pod().condition("Ready", "True", ""), "1/2", "Running", "0");
    assert_shows(&pod().condition("Ready", "False", ""), "1/2", "NotReady", "0");
    assert_shows(&Case::phase("Succeeded").container(exited(0, "Completed"), false), "0/1", "Completed", "0");
}

#[test]
fn init_container_at_work_gives_the_status() {
    let pod = |state| Case::phase("Pending").init(exited(0, "Completed")).init(state);
    let idle = || waiting("PodInitializing");
    assert_shows(&pod(running()).container(idle(), false), "0/1", "Init:1/2", "0");
    assert_shows(&pod(idle()).container(idle(), false), "0/1", "Init:1/2", "0");
    assert_shows(&pod(waiting("ErrImagePull")).container(idle(), false), "0/1", "Init:ErrImagePull", "0");
    assert_shows(&pod(exited(2, "Error")).container(idle(), false), "0/1", "Init:Error", "0");
    assert_shows(&pod(exited(2, "")).container(idle(), false), "0/1", "Init:ExitCode:2", "0");
    assert_shows(&pod(killed(11)).container(idle(), false), "0/1", "Init:Signal:11", "0");
}

#[test]
fn restarts_of_init_containers_count_only_while_they_run() {
    let initializing = Case::phase("Pending").init(running()).restarted(2, 30);
    assert_shows(&initializing, "0/0", "Init:0/1", "2 (30s ago)");
    let done =
        Case::phase("Running").init(exited(0, "Completed")).restarted(2, 30).container(running(), true);
    assert_shows(&done, "1/1", "Running", "0");
}

#[test]
fn sidecar_counts_as_a_container_and_keeps_its_restarts() {
    let case =
        Case::phase("Running").sidecar(running(), true, true).restarted(1, 300).container(running(), true);
    assert_shows(&case, "2/2", "Running", "1 (5m ago)");
    let case = Case::phase("Running").sidecar(running(), true, false).container(running(), true);
    assert_shows(&case, "1/2", "Running", "0");
    let starting =
        Case::phase("Pending").sidecar(running(), false, false).container(waiting("PodInitializing"), false);
    assert_shows(&starting, "0/2", "Init:0/1", "0");
}

#[test]
fn sidecar_that_fails_in_an_initialized_pod_does_not_hide_its_containers() {
    let case = Case::phase("Running")
        .sidecar(waiting("CrashLoopBackOff"), false, false)
        .container(running(), true)
        .condition("Initialized", "True", "");
    assert_shows(&case, "1/2", "Init:CrashLoopBackOff", "0");
}

#[test]
fn deletion_shows_unless_the_pod_has_ended() {
    assert_shows(&Case::phase("Running").container(running(), true).deleted(), "1/1", "Terminating", "0");
    assert_shows(
        &Case::phase("Succeeded").container(exited(0, "Completed"), false).deleted(),
        "0/1",
        "Completed",
        "0",
    );
    let lost = Case::phase("Running").container(running(), true).reason("NodeLost").deleted();
    assert_shows(&lost, "1/1", "Unknown", "0");
}

#[test]
fn reason_of_the_status_and_scheduling_gates_come_before_the_phase() {
    assert_shows(&Case::phase("Failed").reason("Evicted"), "0/0", "Evicted", "0");
    let gated = Case::phase("Pending").condition("PodScheduled", "False", "SchedulingGated");
    assert_shows(&gated, "0/0", "SchedulingGated", "0");
}

#[test]
fn age_comes_from_creation_or_start_or_the_manifest() {
    let age = |case: &Case| Row::of(&case.0, NOW).age;
    let mut case = Case::phase("Running");
    assert_eq!(age(&case), "<unknown>");
    case.meta().annotations.insert(CONFIG_SEEN.to_owned(), "2023-11-14T22:13:15.123456789Z".to_owned());
    assert_eq!(age(&case), "5s");
    case.status().start_time = ago(600);
    assert_eq!(age(&case), "10m");
    case.meta().creation_timestamp = ago(86_400 * 3);
    assert_eq!(age(&case), "3d");
}

#[test]
fn spans_grow_coarser() {
    let day = 86_400;
    let cases = [
        (-3, "0s"),
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (125, "2m5s"),
        (600, "10m"),
        (10_799, "179m"),
        (10_800, "3h"),
        (11_100, "3h5m"),
        (28_800, "8h"),
        (172_799, "47h"),
        (172_800, "2d"),
        (2 * day + 3_600, "2d1h"),
        (8 * day, "8d"),
        (729 * day, "729d"),
        (730 * day, "2y"),
        (735 * day, "2y5d"),
        (2_920 * day, "8y"),
        (2_990 * day, "8y"),
    ];
    for (seconds, expected) in cases {
        assert_eq!(span(seconds), expected, "{seconds} s");
    }
}

#[test]
fn empty_pod_has_cells_too() {
    let row = Row::of(&Pod::default(), NOW);
    assert_eq!((row.ip.as_str(), row.node.as_str(), row.status.as_str()), ("<none>", "<none>", ""));
}
