//! The runtime room and the store together, beside a fake runtime.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pods_api::pod::{
    ByteMeter, Change, ChangeKind, EventSink, PodStore, Published, Snapshot, SourceId, SourcePod,
    StoreConfig, StoreThread, Update,
};
use pods_api::runtime::{RuntimeConfig, RuntimeSource, SocketChoice};
use pods_api_proto::k8s::io::api::core::v1;
use prost::Message as _;
use tempfile::TempDir;

use super::fake::{FakeRuntime, State};
use crate::harness::{PATIENCE, eventually};

/// Short enough for a test, long enough that nothing that works comes near it.
pub(crate) const DEADLINE: Duration = Duration::from_millis(700);

/// A pod and what was shown of it, one text per event.
#[derive(Clone, Default)]
struct Recorder(Arc<Mutex<Vec<(String, String)>>>);

impl EventSink for Recorder {
    fn publish(&mut self, _: &Snapshot, changes: &[Arc<Change>]) {
        let text = |change: &Arc<Change>| {
            let uid = change.record().uid().to_string();
            match change.kind() {
                ChangeKind::Deleted => (uid, "deleted".to_owned()),
                _ => (uid, describe(&change.record().pod())),
            }
        };
        self.0.lock().unwrap().extend(changes.iter().map(text));
    }
}

/// A pod's status as a short text: `PHASE a:running(a0) r0 ready`.
pub(crate) fn describe(pod: &[u8]) -> String {
    let status = v1::Pod::decode(pod).unwrap().status.unwrap_or_default();
    let entry = |entry: &v1::ContainerStatus| {
        let state = entry.state.clone().unwrap_or_default();
        let id = entry.container_id().rsplit('/').next().unwrap_or_default().to_owned();
        let state = match (state.waiting, state.running, state.terminated) {
            (Some(waiting), ..) => format!("waiting({})", waiting.reason()),
            (_, Some(_), _) => format!("running({id})"),
            (.., Some(end)) => format!("{}/{}({id})", end.exit_code(), end.reason()),
            _ => "none".to_owned(),
        };
        let last = entry.last_state.as_ref().and_then(|last| last.terminated.as_ref());
        let last = last.map_or(String::new(), |last| format!(" last={}/{}", last.exit_code(), last.reason()));
        let ready = if entry.ready() { " ready" } else { "" };
        format!(" {}:{state} r{}{ready}{last}", entry.name(), entry.restart_count())
    };
    let entries: String =
        status.init_container_statuses.iter().chain(&status.container_statuses).map(entry).collect();
    format!("{}{entries}", status.phase())
}

/// A pod with one container `a`, as a source has it.
pub(crate) fn pod(uid: &str) -> v1::Pod {
    let mut pod = v1::Pod::default();
    let metadata = pod.metadata.get_or_insert_default();
    metadata.name = Some(uid.to_owned());
    metadata.namespace = Some("default".to_owned());
    metadata.uid = Some(uid.to_owned());
    let container =
        v1::Container { name: Some("a".to_owned()), image: Some("a:1".to_owned()), ..Default::default() };
    pod.spec.get_or_insert_default().containers.push(container);
    pod
}

/// Everything of one test.
pub(crate) struct Bench {
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) store: PodStore,
    pub(crate) room: Option<RuntimeSource>,
    runtime: Option<FakeRuntime>,
    events: Recorder,
    thread: Option<StoreThread>,
    directory: TempDir,
}

impl Bench {
    /// A runtime that calls itself containerd 1.6 with native events, once `prepare` has filled it.
    pub(crate) fn new(prepare: impl FnOnce(&mut State)) -> Self {
        let mut state = State::default();
        (state.name, state.version) = ("containerd".to_owned(), "1.6.20".to_owned());
        state.has_native_events = true;
        prepare(&mut state);
        let state = Arc::new(Mutex::new(state));
        let directory = tempfile::tempdir().unwrap();
        let events = Recorder::default();
        let config =
            StoreConfig { required: vec![SourceId::Cri, SourceId::ApiServer], ..StoreConfig::default() };
        let snapshot = Arc::new(Published::new(Arc::default()));
        let (store, thread) =
            PodStore::spawn(&config, snapshot, ByteMeter::default(), events.clone()).unwrap();
        let runtime = Some(FakeRuntime::start(&directory.path().join("cri.sock"), &state));
        Self { state, store, room: None, runtime, events, thread: Some(thread), directory }
    }

    /// A runtime that runs one container, `a0` in the sandbox `s` of pod `p`, which the API server has too, and the
    /// room over it once it shows that.
    pub(crate) fn with_one_running(list_interval: Duration) -> Self {
        let prepare = |state: &mut State| {
            state.sandbox("p", "s");
            state.container("a0");
        };
        let bench = Self::new(prepare).start(list_interval);
        bench.pods(&["p"]);
        bench.wait_for("p", "Running a:running(a0) r0 ready");
        bench
    }

    /// Starts the room. `list_interval` holds with and without events, so that a test knows what found a change.
    pub(crate) fn start(self, list_interval: Duration) -> Self {
        self.start_with(|config| {
            config.list_interval = list_interval;
            config.list_interval_with_events = list_interval;
            config.second_list = list_interval;
        })
    }

    /// Starts the room with a configuration of the test's own.
    pub(crate) fn start_with(mut self, configure: impl FnOnce(&mut RuntimeConfig)) -> Self {
        let socket = SocketChoice::Path(self.socket("cri.sock"));
        let mut config = RuntimeConfig { deadline: DEADLINE, ..RuntimeConfig::new(socket) };
        configure(&mut config);
        let updates = self.store.updates();
        self.room = Some(RuntimeSource::spawn(config, move |update| drop(updates.send(update))).unwrap());
        self
    }

    /// Hands the store what the API server would say: pods without a status of the kubelet's, or with one.
    pub(crate) fn source(&self, pods: &[v1::Pod]) {
        let source_pod = |pod: &v1::Pod| {
            let metadata = pod.metadata.as_ref().unwrap();
            SourcePod {
                uid: metadata.uid().into(),
                namespace: metadata.namespace().into(),
                name: metadata.name().into(),
                is_uid_provisional: false,
                pod: pod.encode_to_vec().into(),
            }
        };
        let pods = pods.iter().map(source_pod).collect();
        self.store.updates().send(Update::Set { source: SourceId::ApiServer, pods }).unwrap();
    }

    /// The pods named as the API server has them, without a word of the kubelet.
    pub(crate) fn pods(&self, uids: &[&str]) {
        let pods: Vec<_> = uids.iter().map(|uid| pod(uid)).collect();
        self.source(&pods);
    }

    pub(crate) fn wait_ready(&self) {
        eventually("readiness", PATIENCE, || self.store.readiness().is_ready().then_some(()));
    }

    /// What is shown of a pod.
    pub(crate) fn shown(&self, uid: &str) -> String {
        self.store.load().get(uid).map_or_else(|| "none".to_owned(), |record| describe(&record.pod()))
    }

    /// Waits until that is shown of a pod, and told: the store shows first.
    #[track_caller]
    pub(crate) fn wait_for(&self, uid: &str, expected: &str) {
        let start = std::time::Instant::now();
        let told = if expected == "none" { "deleted" } else { expected };
        let is_told = || self.history(uid).last().is_none_or(|last| last == told);
        while self.shown(uid) != expected || !is_told() {
            assert!(start.elapsed() < PATIENCE, "{uid} is {}, must become {expected}", self.shown(uid));
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until the room follows the runtime's events.
    pub(crate) fn wait_for_events(&self) {
        let status = self.room.as_ref().unwrap().status().clone();
        eventually("the event stream", PATIENCE, || {
            (status.report().events.as_str() != "none").then_some(())
        });
    }

    /// What was told of a pod so far, in order.
    pub(crate) fn history(&self, uid: &str) -> Vec<String> {
        let events = self.events.0.lock().unwrap();
        events.iter().filter(|(of, _)| of == uid).map(|(_, text)| text.clone()).collect()
    }

    pub(crate) fn with<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        change(&mut self.state.lock().unwrap())
    }

    pub(crate) fn calls(&self, call: &str) -> u64 {
        self.with(|state| state.calls.get(call).copied().unwrap_or_default())
    }

    /// A socket in the test's directory; the runtime's is `cri.sock`.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Ends the runtime as a crash would.
    pub(crate) fn kill_runtime(&mut self) {
        self.runtime = None;
    }

    pub(crate) fn start_runtime(&mut self) {
        self.runtime = Some(FakeRuntime::start(&self.socket("cri.sock"), &self.state));
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.room = None;
        self.thread.take().unwrap().stop().unwrap();
    }
}
