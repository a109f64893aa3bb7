use super::super::tests::PublishedPods;
use super::*;
use crate::pod::{SourceId, Update};
use std::fs;

/// A directory of manifests, read at times that the test chooses.
struct Bench {
    directory: tempfile::TempDir,
    files: Files,
    status: Arc<ManifestStatus>,
    start: Instant,
    /// What was published, as the store has it then.
    store: PublishedPods,
}

impl Bench {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let status = Arc::new(ManifestStatus::default());
        let config = ManifestConfig::new(directory.path(), "n".into());
        let files = Files::new(Arc::new(config), Arc::clone(&status));
        Self { directory, files, status, start: Instant::now(), store: PublishedPods::default() }
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.directory.path().join(file), text).unwrap();
    }

    fn remove(&self, file: &str) {
        fs::remove_file(self.directory.path().join(file)).unwrap();
    }

    fn at(&self, seconds: f64) -> Instant {
        self.start + Duration::from_secs_f64(seconds)
    }

    fn rescan(&mut self, seconds: f64) -> Option<Vec<String>> {
        let names = directory::candidates(self.directory.path(), &directory::NameFilter::default()).unwrap();
        let now = self.at(seconds);
        self.files.rescan(&names, now, |_| false);
        self.changed(seconds)
    }

    fn refresh(&mut self, file: &str, seconds: f64) -> Option<Vec<String>> {
        let now = self.at(seconds);
        self.files.refresh(OsStr::new(file), now);
        self.changed(seconds)
    }

    /// The new set, if it changed, as `NAME IMAGE` in the order of the names.
    fn changed(&mut self, seconds: f64) -> Option<Vec<String>> {
        let update = self.files.take_changed(self.at(seconds))?;
        Some(self.store.apply(update).iter().map(describe).collect())
    }

    fn report(&self) -> ManifestReport {
        let mut report = ManifestReport::default();
        self.files.report(&mut report);
        report
    }
}

fn describe(pod: &SourcePod) -> String {
    use prost::Message as _;
    let decoded = pods_api_proto::k8s::io::api::core::v1::Pod::decode(pod.pod.clone()).unwrap();
    let spec = decoded.spec.unwrap();
    let image = spec.containers[0].image();
    format!("{} {}", pod.name, image.strip_prefix("i:").unwrap_or(image))
}

fn manifest(name: &str, image: &str) -> String {
    format!("{{apiVersion: v1, kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, image: 'i:{image}'}}]}}}}")
        .replace("{apiVersion", "# YAML\n{apiVersion")
}

fn set(pods: &[&str]) -> Option<Vec<String>> {
    Some(pods.iter().map(|&pod| pod.to_owned()).collect())
}

#[test]
fn the_first_set_is_published_even_if_empty() {
    // Rule A.1.8.
    let mut bench = Bench::new();
    assert_eq!(bench.rescan(0.0), set(&[]));
    assert_eq!(bench.rescan(1.0), None);
}

#[test]
fn pods_come_in_the_order_of_their_paths() {
    // Rule A.1.4.
    let mut bench = Bench::new();
    for name in ["b", "a", "C"] {
        bench.write(name, &manifest(&name.to_lowercase(), "1"));
    }
    bench.files.rescan(&["C", "a", "b"].map(OsString::from), bench.start, |_| false);
    let Some(Update::Set { pods, .. }) = bench.files.take_changed(bench.start) else {
        panic!("the first set")
    };
    assert!(pods.iter().map(describe).eq(["c-n 1", "a-n 1", "b-n 1"]));
}

#[test]
fn after_the_first_set_only_changes_are_told() {
    // Rule A.6.3, to the same effect: the first time all, then what differs.
    let mut bench = Bench::new();
    for name in ["a", "b", "c"] {
        bench.write(name, &manifest(name, "1"));
    }
    assert_eq!(bench.rescan(0.0), set(&["a-n 1", "b-n 1", "c-n 1"]));
    bench.write("b", &manifest("b", "2"));
    bench.remove("c");
    bench.files.refresh(OsStr::new("b"), bench.start);
    bench.files.refresh(OsStr::new("c"), bench.start);
    let update = bench.files.take_changed(bench.start);
    let Some(Update::Changes { source: SourceId::Manifest, pods, gone }) = update else {
        panic!("{update:?}")
    };
    assert!(pods.iter().map(describe).eq(["b-n 2"]));
    // The UID is a digest of the content: the old one of `b` is gone, and that of `c`.
    assert_eq!(gone.len(), 2);
    assert!(!gone.contains(&pods[0].uid));
}

#[test]
fn a_pod_that_moves_to_another_file_stays() {
    // A stated UID does not depend on the path (rule A.3.2).
    let mut bench = Bench::new();
    let text = manifest("a", "1").replace("metadata: {", "metadata: {uid: own, ");
    bench.write("a", &text);
    assert_eq!(bench.rescan(0.0), set(&["a-n 1"]));
    bench.write("b", &text);
    bench.remove("a");
    assert_eq!(bench.rescan(1.0), set(&["a-n 1"]));
    assert_eq!(
        bench.store.apply(Update::Changes { source: SourceId::Manifest, pods: vec![], gone: vec![] }).len(),
        1
    );
}

#[test]
fn a_bad_file_leaves_the_others_alone() {
    // Rule A.1.6, MAN-5.
    let mut bench = Bench::new();
    bench.write("a", &manifest("a", "1"));
    bench.write("b", &manifest("b", "1").replace("name: b", "name: b, labels: {version: 5}"));
    bench.write("c", "");
    assert_eq!(bench.rescan(0.0), set(&["a-n 1"]));
    let report = bench.report();
    assert_eq!((report.files, report.pods, report.failing), (3, 1, 2));
    assert_eq!(report.failures[0].0, bench.directory.path().join("b"));
    let message = &report.failures[0].1;
    assert!(message.contains("/b:2: metadata.labels"), "{message}");
    assert_eq!(bench.status.decode_failures_total(), 2);
    // The same failure is told once.
    bench.rescan(20.0);
    assert_eq!(bench.status.decode_failures_total(), 2);
}

#[test]
fn a_manifest_that_stops_decoding_keeps_its_pod_until_a_late_rescan() {
    // Rule A.1.9 as this server has it, MAN-4.
    let mut bench = Bench::new();
    bench.write("a", &manifest("a", "1"));
    bench.rescan(0.0);
    bench.write("a", "kind: Pod");
    assert_eq!(bench.refresh("a", 15.0), None);
    assert_eq!(bench.rescan(20.0), None, "only five seconds after the failure");
    // A second failure does not prolong it.
    bench.write("a", "kind: Po");
    assert_eq!(bench.refresh("a", 30.0), None);
    assert_eq!(bench.changed(36.0), None, "only a rescan drops it");
    assert_eq!(bench.rescan(40.0), set(&[]));
    bench.write("a", &manifest("a", "2"));
    assert_eq!(bench.refresh("a", 41.0), set(&["a-n 2"]));
    assert_eq!(bench.report().failing, 0);
}

#[test]
fn a_manifest_that_decodes_again_in_time_was_never_gone() {
    let mut bench = Bench::new();
    bench.write("a", &manifest("a", "1"));
    bench.rescan(0.0);
    for round in 0..3 {
        let second = f64::from(round) * 30.0;
        bench.write("a", "");
        assert_eq!(bench.refresh("a", second + 1.0), None);
        bench.write("a", &manifest("a", "1"));
        assert_eq!(bench.refresh("a", second + 2.0), None);
        assert_eq!(bench.rescan(second + 25.0), None);
    }
}

#[test]
fn a_single_file_keeps_its_pod() {
    // Rule A.1.9.
    let mut bench = Bench::new();
    bench.write("a", "");
    bench.files.config = Arc::new(ManifestConfig::new(bench.directory.path().join("a"), "n".into()));
    bench.files.set_layout(Layout::File);
    assert_eq!(bench.rescan(0.0), None, "nothing was ever known, so nothing is said");
    bench.write("a", &manifest("a", "1"));
    assert_eq!(bench.rescan(1.0), set(&["a-n 1"]));
    bench.write("a", "");
    assert_eq!(bench.rescan(2.0), None);
    assert_eq!(bench.rescan(1000.0), None);
    bench.files.clear();
    assert_eq!(bench.changed(1001.0), set(&[]));
}

#[test]
fn of_two_files_with_one_pod_the_last_path_wins() {
    // Rule A.6.3, MAN-1.
    let mut bench = Bench::new();
    bench.write("a.yaml", &manifest("a", "1"));
    bench.write("a.yaml.bak", &manifest("a", "0"));
    assert_eq!(bench.rescan(0.0), set(&["a-n 0"]));
    assert_eq!((bench.report().duplicates, bench.status.duplicates_total()), (1, 1));
    assert_eq!(bench.rescan(20.0), None);
    assert_eq!(bench.status.duplicates_total(), 1);
    bench.remove("a.yaml.bak");
    assert_eq!(bench.refresh("a.yaml.bak", 21.0), set(&["a-n 1"]));
    assert_eq!(bench.report().duplicates, 0);
}

#[test]
fn of_two_files_with_one_uid_the_last_path_wins() {
    let mut bench = Bench::new();
    for name in ["a", "b"] {
        bench.write(name, &manifest(name, "1").replace("metadata: {", "metadata: {uid: same, "));
    }
    assert_eq!(bench.rescan(0.0), set(&["b-n 1"]));
    assert_eq!(bench.status.duplicates_total(), 1);
}

#[test]
fn a_backup_copy_does_not_take_over_while_an_editor_writes() {
    // MAN-2: the copy appears, the file is written, the copy goes.
    let mut bench = Bench::new();
    bench.write("a", &manifest("a", "1"));
    bench.rescan(0.0);
    bench.write("a~", &manifest("a", "1"));
    assert_eq!(bench.refresh("a~", 1.0), None);
    bench.write("a", &manifest("a", "2"));
    assert_eq!(bench.refresh("a", 1.05), set(&["a-n 2"]));
    bench.remove("a~");
    assert_eq!(bench.refresh("a~", 1.1), None);
    assert_eq!(bench.status.duplicates_total(), 0);
    // A copy that stays is the last path, and wins.
    bench.write("a~", &manifest("a", "3"));
    assert_eq!(bench.refresh("a~", 2.0), None);
    assert_eq!(bench.files.next_contest(), Some(bench.at(2.2)));
    assert_eq!(bench.changed(2.2), set(&["a-n 3"]));
    assert_eq!(bench.status.duplicates_total(), 1);
}

#[test]
fn a_renamed_manifest_takes_over_when_the_old_name_is_gone() {
    // Rule A.3.3: another path is another UID.
    let mut bench = Bench::new();
    bench.write("a", &manifest("a", "1"));
    bench.rescan(0.0);
    fs::rename(bench.directory.path().join("a"), bench.directory.path().join("b")).unwrap();
    assert_eq!(bench.refresh("b", 1.0), None);
    assert_eq!(bench.refresh("a", 1.1), set(&["a-n 1"]));
}

#[test]
fn the_time_of_first_sight_stays_with_the_uid() {
    // Rule A.3.10.
    let mut bench = Bench::new();
    let text = manifest("a", "1").replace("metadata: {", "metadata: {uid: own, ");
    bench.write("a", &text);
    bench.rescan(0.0);
    let seen = |bench: &Bench| Arc::clone(&bench.files.seen[&PodUid::from("own")]);
    let first = seen(&bench);
    assert!(first.parse::<jiff::Timestamp>().is_ok(), "{first}");
    bench.write("a", &text.replace("i:1", "i:2"));
    assert_eq!(bench.refresh("a", 1.0), set(&["a-n 2"]));
    assert_eq!(seen(&bench), first);
    // Once the pod was gone it is seen anew.
    bench.remove("a");
    assert_eq!(bench.refresh("a", 2.0), set(&[]));
    bench.write("a", &text);
    bench.refresh("a", 3.0);
    assert_ne!(seen(&bench), first);
}

#[test]
fn what_did_not_change_is_not_published() {
    let mut bench = Bench::new();
    bench.write("a", &manifest("a", "1"));
    bench.rescan(0.0);
    // Touched, rewritten, and with another comment: the same pod.
    bench.write("a", &manifest("a", "1"));
    assert_eq!(bench.refresh("a", 1.0), None);
    bench.write("a", &format!("# more\n{}", manifest("a", "1")));
    assert_eq!(bench.refresh("a", 2.0), None);
}

#[test]
fn a_directory_in_the_place_of_a_manifest_has_no_pod() {
    // Rule A.1.5.
    let mut bench = Bench::new();
    bench.write("a", &manifest("a", "1"));
    bench.rescan(0.0);
    bench.remove("a");
    fs::create_dir(bench.directory.path().join("a")).unwrap();
    assert_eq!(bench.refresh("a", 1.0), set(&[]));
}
