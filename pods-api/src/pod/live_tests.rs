use super::*;
use crate::pod::testing::PodSketch;
use crate::pod::{
    ByteMeter, ChangeKind, EventSink, Published, Readiness, Snapshot, SourceId, StoreStats, Update,
};
use crate::pod::{Change, Writer};
use pods_api_proto::k8s::io::api::core::v1;
use prost::Message as _;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Has a sandbox, and nothing to say of the status.
#[derive(Debug)]
struct WithSandbox(&'static str);

impl LiveStatus for WithSandbox {
    fn status(&self, _: &LiveInputs<'_>) -> Option<Bytes> {
        None
    }

    fn is_running(&self) -> bool {
        true
    }

    fn is_absent(&self) -> bool {
        false
    }

    fn containers(&self) -> Vec<ContainerRef> {
        vec![ContainerRef { id: self.0.into(), is_sandbox: true }]
    }
}

/// Shows its text as the phase, with the base that it was given, or the last one; says of its pod whether it runs.
#[derive(Debug)]
struct Fixed(&'static str, bool);

impl LiveStatus for Fixed {
    fn status(&self, inputs: &LiveInputs<'_>) -> Option<Bytes> {
        let phase = |pod: &[u8]| v1::Pod::decode(pod).unwrap().status.unwrap_or_default().phase().to_owned();
        let base = match (inputs.base, inputs.last_base) {
            (Some(base), _) => format!(" base={}", phase(&base.pod)),
            (None, Some(last)) => format!(" last={}", phase(&last.pod)),
            (None, None) => String::new(),
        };
        let status = v1::PodStatus { phase: Some(format!("{}{base}", self.0)), ..Default::default() };
        (!self.0.is_empty()).then(|| status.encode_to_vec().into())
    }

    fn is_running(&self) -> bool {
        self.1
    }

    fn is_absent(&self) -> bool {
        self.0 == "absent"
    }
}

#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl EventSink for Recorder {
    fn publish(&mut self, _: &Snapshot, changes: &[Arc<Change>]) {
        let text = |change: &Arc<Change>| {
            let pod = v1::Pod::decode(&*change.record().pod()).unwrap();
            let deletion = pod.metadata.and_then(|metadata| metadata.deletion_timestamp);
            let deletion = deletion.map_or(String::new(), |time| format!(" deletion={}", time.seconds()));
            let phase = pod.status.unwrap_or_default().phase.unwrap_or_default();
            match change.kind() {
                ChangeKind::Deleted => format!("deleted {}", change.record().uid()),
                kind => format!("{kind:?} {} {phase}{deletion}", change.record().uid()).to_lowercase(),
            }
        };
        self.0.lock().unwrap().extend(changes.iter().map(text));
    }
}

struct Fixture {
    writer: Writer<Recorder>,
    events: Recorder,
    readiness: Arc<Readiness>,
    published: Arc<Published<Snapshot>>,
}

impl Fixture {
    fn new() -> Self {
        let (events, readiness) = (Recorder::default(), Arc::new(Readiness::new([SourceId::Cri])));
        let published = Arc::new(Published::new(Arc::default()));
        let writer = Writer::new(
            published.clone(),
            readiness.clone(),
            Arc::new(StoreStats::default()),
            ByteMeter::default(),
            Duration::from_secs(60),
            events.clone(),
        );
        Self { writer, events, readiness, published }
    }

    fn apply(&mut self, update: Update) -> Vec<String> {
        self.writer.apply([update], Now { instant: Instant::now(), unix_seconds: 1_000 });
        std::mem::take(&mut self.events.0.lock().unwrap())
    }

    fn source(&mut self, source: SourceId, uids: &[&str]) -> Vec<String> {
        let pods = uids.iter().map(|uid| PodSketch::new(uid).source_pod()).collect();
        self.apply(Update::Set { source, pods })
    }

    fn live(&mut self, pods: &[(&str, &'static str, bool)]) -> Vec<String> {
        self.apply(Update::Live { pods: views(pods) })
    }

    fn live_set(&mut self, pods: &[(&str, &'static str, bool)]) -> Vec<String> {
        self.apply(Update::LiveSet { pods: views(pods), absent: Arc::new(Fixed("absent", false)) })
    }
}

fn views(pods: &[(&str, &'static str, bool)]) -> Vec<(PodUid, Arc<dyn LiveStatus>)> {
    let view = |(uid, phase, is_running): &(&str, &'static str, bool)| {
        let fixed: Arc<dyn LiveStatus> = Arc::new(Fixed(phase, *is_running));
        (PodUid::from(*uid), fixed)
    };
    pods.iter().map(view).collect()
}

#[test]
fn status_is_laid_over_pods_of_any_source_in_any_order() {
    let mut fixture = Fixture::new();
    assert_eq!(fixture.source(SourceId::Manifest, &["a", "b"]), ["added a running", "added b running"]);
    assert_eq!(fixture.readiness.waiting_for(), ["cri"]);
    // What no source has is not served (rules C.1.7, C.11.4), but remembered.
    let events = fixture.live_set(&[("a", "one", true), ("c", "orphan", true)]);
    assert_eq!(events, ["modified a one", "modified b absent"]);
    assert!(fixture.readiness.is_ready());
    assert_eq!(fixture.source(SourceId::Manifest, &["a", "b", "c"]), ["added c orphan"]);
    assert_eq!(fixture.live(&[("a", "two", true), ("b", "absent", false)]), ["modified a two"]);
    // A status that cannot be worked out leaves the source's.
    assert_eq!(fixture.live(&[("a", "", true)]), ["modified a running"]);
    assert_eq!(fixture.live_set(&[]), ["modified a absent", "modified c absent"]);
}

#[test]
fn pod_stays_with_a_deletion_timestamp_while_the_runtime_runs_it() {
    let mut fixture = Fixture::new();
    fixture.source(SourceId::Manifest, &["a", "b"]);
    fixture.live_set(&[("a", "running", true)]);
    assert_eq!(fixture.source(SourceId::Manifest, &[]), ["deleted b", "modified a running deletion=1030"]);
    assert_eq!(fixture.live(&[("a", "ending", true)]), ["modified a ending deletion=1030"]);
    assert_eq!(fixture.live_set(&[("a", "ending", true)]), [] as [&str; 0]);
    // A source brings it back: the timestamp is withdrawn.
    assert_eq!(fixture.source(SourceId::Manifest, &["a"]), ["modified a ending"]);
    fixture.source(SourceId::Manifest, &[]);
    assert_eq!(fixture.live_set(&[("a", "ended", false)]), ["deleted a"]);
    assert_eq!(fixture.live_set(&[]), [] as [&str; 0]);
}

#[test]
fn deletion_timestamp_of_the_source_is_kept_and_its_grace_period_counts() {
    let now = Now { instant: Instant::now(), unix_seconds: 1_000 };
    let deletion = |pod: &v1::Pod| {
        let bytes = with_deletion_timestamp(&pod.encode_to_vec().into(), now).unwrap();
        v1::Pod::decode(&*bytes).unwrap().metadata.unwrap().deletion_timestamp.unwrap().seconds()
    };
    let mut pod = v1::Pod { spec: Some(v1::PodSpec::default()), ..Default::default() };
    assert_eq!(deletion(&pod), 1_030);
    pod.spec.as_mut().unwrap().termination_grace_period_seconds = Some(5);
    assert_eq!(deletion(&pod), 1_005);
    pod.spec.as_mut().unwrap().termination_grace_period_seconds = Some(-5);
    assert_eq!(deletion(&pod), 1_000);
    let time =
        pods_api_proto::k8s::io::apimachinery::pkg::apis::meta::v1::Time { seconds: Some(7), nanos: None };
    pod.metadata.get_or_insert_default().deletion_timestamp = Some(time);
    assert_eq!(deletion(&pod), 7);
}

#[test]
fn same_name_under_a_new_uid_is_listed_beside_the_old_one_while_it_runs() {
    // Rules C.11.5, E.7.11.
    let mut fixture = Fixture::new();
    let web = |uid: &str| PodSketch::new(uid).name("web-0").source_pod();
    let set = |uid: &str| Update::Set { source: SourceId::Manifest, pods: vec![web(uid)] };
    fixture.apply(set("old"));
    fixture.live_set(&[("old", "running", true)]);
    assert_eq!(fixture.apply(set("new")), ["added new absent", "modified old running deletion=1030"]);
    assert_eq!(fixture.live(&[("old", "ended", false)]), ["deleted old"]);
}

#[test]
fn kubelets_word_is_the_base_and_stays_so_while_the_pod_leaves() {
    let mut fixture = Fixture::new();
    let told = |phase: &str| {
        let sketch = PodSketch::new("a").source_pod();
        let mut pod = v1::Pod::decode(&*sketch.pod).unwrap();
        pod.status = Some(v1::PodStatus { phase: Some(phase.to_owned()), ..Default::default() });
        SourcePod { pod: pod.encode_to_vec().into(), ..sketch }
    };
    let set = |source, phase| Update::Set { source, pods: vec![told(phase)] };
    fixture.apply(set(SourceId::Manifest, "Pending"));
    // A manifest's status is nobody's word.
    assert_eq!(fixture.live_set(&[("a", "x", true)]), ["modified a x"]);
    assert_eq!(fixture.apply(set(SourceId::ApiServer, "api")), ["modified a x base=api"]);
    // Rule B.5.3: of a pod that is not static the API server tells first.
    assert_eq!(fixture.apply(set(SourceId::Kubelet, "kubelet")), [] as [&str; 0]);
    assert_eq!(fixture.apply(set(SourceId::Upstream, "upstream")), ["modified a x base=upstream"]);
    // STAT-3: without a source of the kubelet's words it is no base any more, but not forgotten.
    for source in [SourceId::Upstream, SourceId::ApiServer] {
        fixture.source(source, &[]);
    }
    assert_eq!(fixture.source(SourceId::Kubelet, &[]), ["modified a x last=kubelet"]);
    assert_eq!(fixture.apply(set(SourceId::ApiServer, "api")), ["modified a x base=api"]);
    fixture.source(SourceId::Manifest, &[]);
    assert_eq!(fixture.source(SourceId::ApiServer, &[]), ["modified a x base=api deletion=1030"]);
}

#[test]
fn containers_are_found_as_soon_as_anyone_names_them() {
    let mut fixture = Fixture::new();
    let containers = |fixture: &Fixture, prefix: &str| {
        let pods = fixture.published.load();
        pods.containers(prefix).map(|(id, pod, _)| format!("{id} {pod}")).collect::<Vec<_>>()
    };
    let set = |sketch: PodSketch| Update::Set { source: SourceId::Manifest, pods: vec![sketch.source_pod()] };
    // CRI-4: the ID comes later than the status.
    fixture.apply(set(PodSketch::new("a").container_id("")));
    assert_eq!(containers(&fixture, ""), [] as [&str; 0]);
    fixture.apply(set(PodSketch::new("a").container_id("containerd://c1")));
    assert_eq!(containers(&fixture, "c"), ["c1 a"]);
    // CRI-3: a sandbox is in no status, so that no event tells of it.
    let live: Arc<dyn LiveStatus> = Arc::new(WithSandbox("s1"));
    assert_eq!(fixture.apply(Update::Live { pods: vec![("a".into(), live)] }), [] as [&str; 0]);
    assert_eq!(containers(&fixture, "s"), ["s1 a"]);
    let live: Arc<dyn LiveStatus> = Arc::new(WithSandbox("s2"));
    fixture.apply(Update::Live { pods: vec![("a".into(), live)] });
    assert_eq!(containers(&fixture, ""), ["c1 a", "s2 a"], "the old one is gone");
    let gone: Arc<dyn LiveStatus> = Arc::new(Fixed("", false));
    fixture.apply(Update::Live { pods: vec![("a".into(), gone)] });
    assert_eq!(fixture.apply(Update::Set { source: SourceId::Manifest, pods: vec![] }), ["deleted a"]);
    assert_eq!(containers(&fixture, "c"), ["c1 a"], "findable while the tombstone is");
}

#[test]
fn kubelets_own_list_tells_first_of_static_pods() {
    let mut fixture = Fixture::new();
    let told = |phase: &str| {
        let sketch = PodSketch::new("a").source_pod();
        let mut pod = v1::Pod::decode(&*sketch.pod).unwrap();
        let annotations = &mut pod.metadata.as_mut().unwrap().annotations;
        annotations.insert("kubernetes.io/config.source".to_owned(), "file".to_owned());
        pod.status = Some(v1::PodStatus { phase: Some(phase.to_owned()), ..Default::default() });
        SourcePod { pod: pod.encode_to_vec().into(), ..sketch }
    };
    fixture.live_set(&[("a", "x", true)]);
    for (source, phase) in [(SourceId::ApiServer, "api"), (SourceId::Kubelet, "kubelet")] {
        fixture.apply(Update::Set { source, pods: vec![told(phase)] });
    }
    let shown = fixture.apply(Update::Live { pods: views(&[("a", "y", true)]) });
    assert_eq!(shown, ["modified a y base=kubelet"]);
}
