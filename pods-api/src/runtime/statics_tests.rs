use super::*;
use crate::pod::{Namespace, PodName};
use crate::runtime::status::UnixNanos;

const HOLD_BACK: Duration = Duration::from_secs(5);

fn manifest(own: &str, name: &str, label: &str) -> SourcePod {
    let mut pod = v1::Pod::default();
    let metadata = pod.metadata.get_or_insert_default();
    metadata.name = Some(name.to_owned());
    metadata.uid = Some(own.to_owned());
    metadata.labels.insert("version".to_owned(), label.to_owned());
    metadata.annotations.insert(CONFIG_HASH.to_owned(), own.to_owned());
    metadata.annotations.insert(CONFIG_SEEN.to_owned(), "ours".to_owned());
    SourcePod {
        uid: own.into(),
        namespace: Namespace::from("default"),
        name: PodName::from(name),
        is_uid_provisional: true,
        pod: pod.encode_to_vec().into(),
    }
}

fn sandbox(uid: &str, name: &str, label: &str, created: i64) -> SandboxIdentity {
    let text = |entries: &[(&str, &str)]| {
        entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    SandboxIdentity {
        uid: uid.into(),
        namespace: Namespace::from("default"),
        name: PodName::from(name),
        is_ready: true,
        created_at: UnixNanos::new(created),
        labels: text(&[("version", label), ("io.kubernetes.pod.uid", uid)]),
        annotations: text(&[(CONFIG_SOURCE, "file"), (CONFIG_SEEN, "the kubelet's"), (CONFIG_HASH, uid)]),
    }
}

fn set(pods: &[SourcePod]) -> Update {
    Update::Set { source: SourceId::Manifest, pods: pods.to_vec() }
}

/// Static pods on their way to a store that keeps what it is told.
struct Fixture {
    statics: StaticPods,
    store: Option<BTreeMap<PodUid, SourcePod>>,
}

impl Fixture {
    fn new() -> Self {
        Self { statics: StaticPods::new(HOLD_BACK), store: None }
    }

    /// What the store has after the source's update, if it was told anything.
    fn take(&mut self, update: Update, now: Instant) -> Option<Vec<String>> {
        let update = self.statics.take(update, now);
        self.store(update)
    }

    fn release(&mut self, now: Instant) -> Option<Vec<String>> {
        let update = self.statics.release(now);
        self.store(update)
    }

    fn store(&mut self, update: Option<Update>) -> Option<Vec<String>> {
        match update? {
            Update::Set { pods, .. } => {
                assert!(self.store.is_none(), "the full set comes once");
                self.store = Some(pods.into_iter().map(|pod| (pod.uid.clone(), pod)).collect());
            }
            Update::Changes { pods, gone, .. } => {
                let store = self.store.as_mut().expect("the full set comes first");
                for uid in gone {
                    assert!(store.remove(&uid).is_some(), "{uid} was not there");
                }
                store.extend(pods.into_iter().map(|pod| (pod.uid.clone(), pod)));
            }
            other => panic!("{other:?}"),
        }
        Some(self.store.iter().flatten().map(|(uid, _)| uid.to_string()).collect())
    }
}

fn changes(pods: &[SourcePod], gone: &[&str]) -> Update {
    let gone = gone.iter().map(|&uid| uid.into()).collect();
    Update::Changes { source: SourceId::Manifest, pods: pods.to_vec(), gone }
}

fn some(uids: &[&str]) -> Option<Vec<String>> {
    Some(uids.iter().map(|uid| (*uid).to_owned()).collect())
}

#[test]
fn runtimes_uid_is_adopted_with_its_annotations() {
    // MAN-8, rule A.7.5.
    let (mut statics, now) = (Fixture::new(), Instant::now());
    statics.statics.take_sandboxes(&[sandbox("kubelet", "etcd-n", "1", 5)]);
    assert_eq!(statics.take(set(&[manifest("own", "etcd-n", "1")]), now), some(&["kubelet"]), "told at once");
    let told = &statics.store.as_ref().unwrap()["kubelet"];
    let metadata = v1::Pod::decode(&*told.pod).unwrap().metadata.unwrap();
    assert_eq!((told.uid.as_str(), metadata.uid()), ("kubelet", "kubelet"));
    assert_eq!(
        (&*metadata.annotations[CONFIG_HASH], &*metadata.annotations[CONFIG_SEEN]),
        ("kubelet", "the kubelet's")
    );
    assert_eq!(statics.take(set(&[manifest("own", "etcd-n", "1")]), now), None, "the same again");
}

#[test]
fn first_set_waits_for_the_runtime_but_not_for_ever() {
    let (mut statics, now) = (Fixture::new(), Instant::now());
    assert_eq!(statics.take(set(&[manifest("a", "a", "1"), manifest("b", "b", "1")]), now), None);
    statics.statics.take_sandboxes(&[sandbox("kubelet-a", "a", "1", 5)]);
    assert_eq!(statics.release(now), None, "a set without b would be incomplete");
    assert_eq!(statics.statics.next_due(), Some(now + HOLD_BACK));
    assert_eq!(statics.release(now + HOLD_BACK), some(&["b", "kubelet-a"]));
    assert_eq!(statics.statics.next_due(), None);
    // The better UID comes later: the old one is gone from the same set (no duplicates).
    statics.statics.take_sandboxes(&[sandbox("kubelet-b", "b", "1", 6), sandbox("kubelet-a", "a", "1", 5)]);
    assert_eq!(statics.release(now + 2 * HOLD_BACK), some(&["kubelet-a", "kubelet-b"]));
}

#[test]
fn first_set_waits_no_longer_for_manifests_that_change_all_the_time() {
    let (mut statics, start) = (Fixture::new(), Instant::now());
    let edited = |version: &str| set(&[manifest(version, "a", version)]);
    assert_eq!(statics.take(edited("v1"), start), None);
    assert_eq!(statics.take(edited("v2"), start + Duration::from_secs(4)), None);
    assert_eq!(statics.statics.next_due(), Some(start + HOLD_BACK));
    assert_eq!(statics.release(start + HOLD_BACK), some(&["v2"]));
    // From then on each has its own time.
    let now = start + Duration::from_secs(8);
    assert_eq!(statics.take(edited("v3"), now), some(&[]));
    assert_eq!(statics.statics.next_due(), Some(now + HOLD_BACK));
}

#[test]
fn edited_manifest_does_not_get_the_old_sandboxs_uid() {
    // Rule A.7.6, with an edit that the sandbox does not show.
    let (mut statics, now) = (Fixture::new(), Instant::now());
    statics.statics.take_sandboxes(&[sandbox("old", "a", "1", 5)]);
    assert_eq!(statics.take(set(&[manifest("v1", "a", "1"), manifest("x", "x", "1")]), now), None);
    assert_eq!(statics.release(now + HOLD_BACK), some(&["old", "x"]));
    let now = now + HOLD_BACK;
    let edited = || set(&[manifest("v2", "a", "1"), manifest("x", "x", "1")]);
    assert_eq!(statics.take(edited(), now), some(&["x"]), "held back");
    statics.statics.take_sandboxes(&[sandbox("new", "a", "1", 9), sandbox("old", "a", "1", 5)]);
    assert_eq!(statics.release(now), some(&["new", "x"]));
}

#[test]
fn sandbox_of_another_version_is_told_by_its_labels() {
    let (mut statics, now) = (Fixture::new(), Instant::now());
    statics.statics.take_sandboxes(&[sandbox("old", "a", "1", 5)]);
    statics.take(set(&[manifest("v2", "a", "2")]), now);
    assert_eq!(statics.release(now + HOLD_BACK), some(&["v2"]));
    statics.statics.take_sandboxes(&[sandbox("old", "a", "1", 5), sandbox("new", "a", "2", 9)]);
    assert_eq!(statics.release(now + HOLD_BACK), some(&["new"]));
}

#[test]
fn newest_ready_sandbox_wins_and_others_do_not_count() {
    let now = Instant::now();
    let with = |sandboxes: &[SandboxIdentity]| {
        let mut statics = Fixture::new();
        statics.statics.take_sandboxes(sandboxes);
        let told = statics.take(set(&[manifest("own", "a", "1")]), now);
        told.map_or("held".to_owned(), |told| told[0].clone())
    };
    let stopped = |mut sandbox: SandboxIdentity| {
        sandbox.is_ready = false;
        sandbox
    };
    let api = |mut sandbox: SandboxIdentity| {
        sandbox.annotations.insert(CONFIG_SOURCE.to_owned(), "api".to_owned());
        sandbox
    };
    assert_eq!(with(&[sandbox("older", "a", "1", 5), sandbox("newer", "a", "1", 6)]), "newer");
    assert_eq!(with(&[sandbox("ready", "a", "1", 5), stopped(sandbox("newer", "a", "1", 6))]), "ready");
    assert_eq!(with(&[stopped(sandbox("stopped", "a", "1", 6))]), "stopped");
    assert_eq!(with(&[api(sandbox("mirror", "a", "1", 6))]), "held");
    assert_eq!(with(&[sandbox("other", "b", "1", 6)]), "held");
}

#[test]
fn adopted_uid_stays_when_the_sandbox_is_gone_and_follows_the_kubelet() {
    let (mut statics, now) = (Fixture::new(), Instant::now());
    statics.statics.take_sandboxes(&[sandbox("one", "a", "1", 5)]);
    assert_eq!(statics.take(set(&[manifest("own", "a", "1")]), now), some(&["one"]));
    statics.statics.take_sandboxes(&[]);
    assert_eq!(statics.release(now), None);
    // MAN-8: another version of the kubelet hashes the same manifest to another UID.
    statics.statics.take_sandboxes(&[sandbox("two", "a", "1", 9)]);
    assert_eq!(statics.release(now), some(&["two"]));
}

#[test]
fn explicit_uids_and_other_updates_pass() {
    let (mut statics, now) = (Fixture::new(), Instant::now());
    let explicit = SourcePod { is_uid_provisional: false, ..manifest("explicit", "a", "1") };
    assert_eq!(statics.take(set(&[explicit]), now), some(&["explicit"]));
    assert_eq!(statics.take(set(&[]), now), some(&[]));
    let other = Update::Set { source: SourceId::ApiServer, pods: Vec::new() };
    let passed = statics.statics.take(other, now);
    assert!(matches!(passed, Some(Update::Set { source: SourceId::ApiServer, .. })));
}

#[test]
fn only_changes_follow_the_first_set() {
    let (mut statics, now) = (Fixture::new(), Instant::now());
    let explicit =
        |uid: &str, label: &str| SourcePod { is_uid_provisional: false, ..manifest(uid, uid, label) };
    assert_eq!(statics.take(set(&[explicit("a", "1"), explicit("b", "1")]), now), some(&["a", "b"]));
    let told = |update| match update {
        Some(Update::Changes { pods, gone, .. }) => {
            let pods: Vec<_> = pods.iter().map(|pod| pod.uid.to_string()).collect();
            (pods, gone.iter().map(PodUid::to_string).collect::<Vec<_>>())
        }
        other => panic!("{other:?}"),
    };
    let update = statics.statics.take(changes(&[explicit("b", "2"), explicit("a", "1")], &[]), now);
    assert_eq!(told(update), (vec!["b".to_owned()], vec![]));
    let update = statics.statics.take(changes(&[explicit("c", "1")], &["a"]), now);
    assert_eq!(told(update), (vec!["c".to_owned()], vec!["a".to_owned()]));
    // A manifest that leaves while it is held back was never there.
    assert!(statics.statics.take(changes(&[manifest("own", "d", "1")], &[]), now).is_none());
    assert!(statics.statics.take(changes(&[], &["own"]), now).is_none());
    assert_eq!(statics.statics.next_due(), None);
    // The same set again is no change; one without a pod removes it.
    assert!(statics.statics.take(set(&[explicit("b", "2"), explicit("c", "1")]), now).is_none());
    assert_eq!(told(statics.statics.take(set(&[explicit("c", "1")]), now)), (vec![], vec!["b".to_owned()]));
}

#[test]
fn stated_uid_belongs_to_the_manifest_that_states_it() {
    let (mut statics, now) = (Fixture::new(), Instant::now());
    statics.statics.take_sandboxes(&[sandbox("x", "a", "1", 5)]);
    assert_eq!(statics.take(set(&[manifest("own", "a", "1")]), now), some(&["x"]));
    let stated = SourcePod { is_uid_provisional: false, ..manifest("x", "b", "1") };
    let update = statics.statics.take(changes(&[stated], &[]), now);
    let Some(Update::Changes { pods, .. }) = update else { panic!("{update:?}") };
    let names: Vec<_> = pods.iter().map(|pod| (pod.uid.as_str(), pod.name.as_str())).collect();
    assert_eq!(names, [("own", "a"), ("x", "b")]);
    statics.statics.take_sandboxes(&[sandbox("x", "a", "1", 5), sandbox("y", "other", "1", 6)]);
    assert!(statics.statics.release(now).is_none(), "the sandbox's UID is another manifest's");
}
