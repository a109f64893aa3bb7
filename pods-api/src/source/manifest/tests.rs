//! The running source, against real files and the kernel's events.

use super::*;
use crate::pod::{PodUid, SourceId, SourcePod};
use pods_api_proto::k8s::io::api::core::v1::Pod;
use prost::Message as _;
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::Mutex;
use std::time::Instant;

/// How long something that must happen may take on a loaded machine.
const DEADLINE: Duration = Duration::from_secs(20);

/// A source on a temporary directory, and every set that it published.
struct Bench {
    root: tempfile::TempDir,
    sets: Arc<Mutex<Vec<Vec<SourcePod>>>>,
    source: Option<ManifestSource>,
}

impl Bench {
    /// A bench whose directory is `m` in the root; not started.
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("m")).unwrap();
        Self { root, sets: Arc::default(), source: None }
    }

    fn start(&mut self, path: &str) {
        // Rescans are left out, so that what is seen was seen by events.
        self.start_with(path, Duration::from_secs(3600));
    }

    fn start_with(&mut self, path: &str, rescan: Duration) {
        let mut config = ManifestConfig::new(format!("{}/{path}", self.root.path().display()), "n".into());
        config.rescan = rescan;
        let sets = Arc::clone(&self.sets);
        let mut published = PublishedPods::default();
        let sink = move |update| sets.lock().unwrap().push(published.apply(update));
        self.source = Some(ManifestSource::spawn(config, sink).unwrap());
        self.eventually("a first scan", |bench| bench.status().report().last_scan.is_some());
    }

    fn status(&self) -> &ManifestStatus {
        self.source.as_ref().unwrap().status()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join("m").join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Every set so far, each pod as `NAME IMAGE`.
    fn history(&self) -> Vec<Vec<String>> {
        self.sets.lock().unwrap().iter().map(|set| set.iter().map(describe).collect()).collect()
    }

    fn last(&self) -> Vec<String> {
        self.history().pop().unwrap_or_default()
    }

    #[track_caller]
    fn eventually(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + DEADLINE;
        while !holds(self) {
            assert!(Instant::now() < deadline, "not in time: {what}; sets: {:?}", self.history());
            std::thread::yield_now();
        }
    }

    #[track_caller]
    fn publishes(&self, expected: &[&str]) {
        self.eventually(&format!("{expected:?}"), |bench| {
            !bench.history().is_empty() && bench.last() == expected
        });
    }

    /// Checks that the pod `a` was in every set after the first one that had it, and each time with a whole image.
    #[track_caller]
    fn never_lost(&self, images: impl Fn(&str) -> bool) {
        let history = self.history();
        let sets = history.iter().skip_while(|set| set.is_empty());
        for set in sets {
            let [pod] = &set[..] else { panic!("{history:?}") };
            let (name, image) = pod.split_once(' ').unwrap();
            assert!(name == "a-n" && images(image), "{history:?}");
        }
    }
}

/// The set that follows from a source's updates, as the store has it.
#[derive(Debug, Default)]
pub(super) struct PublishedPods(Option<BTreeMap<PodUid, SourcePod>>);

impl PublishedPods {
    /// The set after one more update, in the order of the names.
    pub(super) fn apply(&mut self, update: Update) -> Vec<SourcePod> {
        match update {
            Update::Set { source: SourceId::Manifest, pods } => {
                assert!(self.0.is_none(), "the full set comes once");
                self.0 = Some(pods.into_iter().map(|pod| (pod.uid.clone(), pod)).collect());
            }
            Update::Changes { source: SourceId::Manifest, pods, gone } => {
                let set = self.0.as_mut().expect("the full set comes first");
                for uid in gone {
                    assert!(set.remove(&uid).is_some(), "{uid} was not there");
                }
                set.extend(pods.into_iter().map(|pod| (pod.uid.clone(), pod)));
            }
            other => panic!("{other:?}"),
        }
        let mut set: Vec<_> = self.0.iter().flat_map(BTreeMap::values).cloned().collect();
        set.sort_by(|a, b| a.name.as_str().cmp(b.name.as_str()));
        set
    }
}

fn describe(pod: &SourcePod) -> String {
    let decoded = Pod::decode(pod.pod.clone()).unwrap();
    let spec = decoded.spec.unwrap();
    let image = spec.containers[0].image();
    format!("{} {}", pod.name, image.strip_prefix("i:").unwrap_or(image))
}

fn manifest(name: &str, image: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\nspec:\n  containers:\n  - name: c\n    image: i:{image}\n"
    )
}

#[test]
fn manifests_are_found_changed_and_removed() {
    let mut bench = Bench::new();
    bench.write("a", &manifest("a", "1"));
    // Rule A.1.1: the slash does not matter.
    bench.start("m/");
    bench.publishes(&["a-n 1"]);
    bench.write("b", &manifest("b", "1"));
    bench.publishes(&["a-n 1", "b-n 1"]);
    bench.write("a", &manifest("a", "2"));
    bench.publishes(&["a-n 2", "b-n 1"]);
    fs::remove_file(bench.path("b")).unwrap();
    bench.publishes(&["a-n 2"]);
    // Rule A.6.2: hidden names are ignored until they get another.
    bench.write(".c", &manifest("c", "1"));
    fs::rename(bench.path(".c"), bench.path("c")).unwrap();
    bench.publishes(&["a-n 2", "c-n 1"]);
    // And a link is a file that is complete at once.
    fs::write(bench.root.path().join("d"), manifest("d", "1")).unwrap();
    fs::hard_link(bench.root.path().join("d"), bench.path("d")).unwrap();
    symlink(bench.root.path().join("d"), bench.path("e")).unwrap();
    fs::remove_file(bench.path("d")).unwrap();
    bench.publishes(&["a-n 2", "c-n 1", "d-n 1"]);
    bench.source.take().unwrap().stop();
}

#[test]
fn an_edit_is_published_within_milliseconds() {
    let mut bench = Bench::new();
    bench.write("a", &manifest("a", "0"));
    bench.start("m");
    let mut times = Vec::new();
    for edit in 1..=20 {
        fs::write(bench.path(".new"), manifest("a", &edit.to_string())).unwrap();
        let start = Instant::now();
        fs::rename(bench.path(".new"), bench.path("a")).unwrap();
        bench.publishes(&[&format!("a-n {edit}")]);
        times.push(start.elapsed());
    }
    times.sort_unstable();
    // Three milliseconds of quiet are meant; the bound leaves room for a machine that does other things.
    assert!(times[10] < Duration::from_millis(100), "{times:?}");
}

#[test]
fn two_hundred_edits_end_in_the_last_content() {
    // MAN-2: the ways in which vim (two), nano, sed -i and a plain shell replace a file.
    let mut bench = Bench::new();
    bench.write("a", &manifest("a", "0"));
    bench.start("m");
    for edit in 1..=200 {
        let text = manifest("a", &edit.to_string());
        let (file, backup) = (bench.path("a"), bench.path("a~"));
        match edit % 5 {
            0 => {
                fs::rename(&file, &backup).unwrap();
                fs::write(&file, text).unwrap();
                fs::remove_file(&backup).unwrap();
            }
            1 => {
                fs::copy(&file, &backup).unwrap();
                bench.write(".a.swp", "swap");
                fs::write(&file, text).unwrap();
                fs::remove_file(bench.path(".a.swp")).unwrap();
                fs::remove_file(&backup).unwrap();
            }
            2 => fs::write(&file, text).unwrap(),
            3 => {
                bench.write("sedAbCd", &text);
                fs::rename(bench.path("sedAbCd"), &file).unwrap();
            }
            _ => {
                bench.write("4913", "");
                fs::remove_file(bench.path("4913")).unwrap();
                bench.write(".a.tmp", &text);
                fs::rename(bench.path(".a.tmp"), &file).unwrap();
            }
        }
        if edit % 40 == 0 {
            bench.publishes(&[&format!("a-n {edit}")]);
        }
    }
    bench.publishes(&["a-n 200"]);
    bench.never_lost(|image| image.parse::<u32>().is_ok());
    assert_eq!(bench.status().report().failing, 0);
}

#[test]
fn rename_chmod_and_touch_are_one_change() {
    // MAN-7.
    let mut bench = Bench::new();
    bench.write("a", &manifest("a", "1"));
    bench.start("m");
    bench.write(".a", &manifest("a", "2"));
    fs::rename(bench.path(".a"), bench.path("a")).unwrap();
    fs::set_permissions(bench.path("a"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::File::open(bench.path("a")).unwrap().set_modified(std::time::SystemTime::now()).unwrap();
    bench.publishes(&["a-n 2"]);
    assert_eq!(bench.history(), [["a-n 1"], ["a-n 2"]]);
}

#[test]
fn a_file_written_byte_by_byte_is_read_when_it_is_complete() {
    // MAN-4. Many prefixes of this text are valid pods with another image.
    let mut bench = Bench::new();
    bench.write("a", &manifest("a", "old"));
    bench.start("m");
    let mut file = fs::File::create(bench.path("a")).unwrap();
    for byte in manifest("a", "registry.example/new").bytes() {
        file.write_all(&[byte]).unwrap();
    }
    assert_eq!(bench.history(), [["a-n old"]]);
    drop(file);
    bench.publishes(&["a-n registry.example/new"]);
    assert_eq!(bench.history().len(), 2);
    assert_eq!(bench.status().decode_failures_total(), 0);
}

#[test]
fn a_file_appended_to_in_pieces_never_shows_a_part() {
    // MAN-4, with a writer that closes after each piece.
    let mut bench = Bench::new();
    bench.write("a", &manifest("a", "old"));
    bench.start("m");
    let text = manifest("a", "registry.example/new");
    fs::write(bench.path("a"), "").unwrap();
    for byte in text.bytes() {
        let mut file = fs::File::options().append(true).open(bench.path("a")).unwrap();
        file.write_all(&[byte]).unwrap();
    }
    bench.publishes(&["a-n registry.example/new"]);
    bench.never_lost(|image| image == "old" || image == "registry.example/new");
}

#[test]
fn a_missing_directory_is_an_empty_set_until_it_appears() {
    // Rule A.1.2, MAN-6.
    let mut bench = Bench::new();
    fs::remove_dir(bench.root.path().join("m")).unwrap();
    bench.start("m");
    bench.publishes(&[]);
    assert_eq!(bench.status().report().path_problem.as_deref(), Some("does not exist"));
    fs::create_dir(bench.root.path().join("m")).unwrap();
    bench.write("a", &manifest("a", "1"));
    bench.publishes(&["a-n 1"]);
    assert_eq!(bench.status().report().path_problem, None);
    // Removed, and made anew.
    fs::remove_dir_all(bench.root.path().join("m")).unwrap();
    bench.publishes(&[]);
    fs::create_dir(bench.root.path().join("m")).unwrap();
    bench.write("a", &manifest("a", "2"));
    bench.publishes(&["a-n 2"]);
}

#[test]
fn a_directory_deep_in_nothing_is_found_when_it_appears() {
    let mut bench = Bench::new();
    bench.start("x/y/z");
    bench.publishes(&[]);
    fs::create_dir_all(bench.root.path().join("x/y/z")).unwrap();
    fs::write(bench.root.path().join("x/y/z/a"), manifest("a", "1")).unwrap();
    bench.publishes(&["a-n 1"]);
}

#[test]
fn a_replaced_directory_is_followed_without_a_gap() {
    let mut bench = Bench::new();
    let at = |name: &str| bench.root.path().join(name);
    for (directory, image) in [("v1", "1"), ("v2", "2")] {
        fs::create_dir(at(directory)).unwrap();
        fs::write(at(directory).join("a"), manifest("a", image)).unwrap();
    }
    // A symlink that is pointed elsewhere.
    symlink("v1", at("link")).unwrap();
    symlink("v2", at("link.new")).unwrap();
    let (link, new_link) = (at("link"), at("link.new"));
    let (old, new, aside) = (at("v2"), at("v3"), at("aside"));
    bench.start("link");
    bench.publishes(&["a-n 1"]);
    fs::rename(new_link, link).unwrap();
    bench.publishes(&["a-n 2"]);
    // The directory behind it, renamed away and replaced.
    fs::create_dir(&new).unwrap();
    fs::write(new.join("a"), manifest("a", "3")).unwrap();
    fs::rename(&old, aside).unwrap();
    fs::rename(&new, &old).unwrap();
    bench.publishes(&["a-n 3"]);
    bench.never_lost(|_| true);
}

#[test]
fn a_volume_of_the_atomic_writer_is_followed() {
    // MAN-3: files are links through `..data`, which is swapped.
    let mut bench = Bench::new();
    for (version, image) in [("..1", "1"), ("..2", "2")] {
        fs::create_dir(bench.path(version)).unwrap();
        bench.write(&format!("{version}/a"), &manifest("a", image));
    }
    symlink("..1", bench.path("..data")).unwrap();
    symlink("..data/a", bench.path("a")).unwrap();
    bench.start("m");
    bench.publishes(&["a-n 1"]);
    symlink("..2", bench.path("..tmp")).unwrap();
    fs::rename(bench.path("..tmp"), bench.path("..data")).unwrap();
    bench.publishes(&["a-n 2"]);
}

#[test]
fn a_change_without_an_event_is_found_by_the_rescan() {
    // Rule A.6.1, MAN-3: the target of a symlink is not watched.
    let mut bench = Bench::new();
    let target = bench.root.path().join("target");
    symlink(&target, bench.path("a")).unwrap();
    bench.start_with("m", Duration::from_millis(20));
    bench.publishes(&[]);
    fs::write(&target, manifest("a", "1")).unwrap();
    bench.publishes(&["a-n 1"]);
    fs::write(&target, manifest("a", "2")).unwrap();
    bench.publishes(&["a-n 2"]);
    fs::remove_file(&target).unwrap();
    bench.publishes(&[]);
}

#[test]
fn without_inotify_the_rescans_go_on() {
    // Nodes with many containers run out of inotify instances.
    let bench = Bench::new();
    bench.write("a", &manifest("a", "1"));
    let mut config = ManifestConfig::new(bench.path(""), "n".into());
    config.rescan = Duration::from_millis(20);
    let status = Arc::new(ManifestStatus::default());
    let (sender, sets) = std::sync::mpsc::channel();
    let mut published = PublishedPods::default();
    let sink = move |update| sender.send(published.apply(update)).unwrap();
    let worker = worker::Worker::new(config, Arc::clone(&status), || Err(rustix::io::Errno::MFILE), sink);
    let stop = rustix::event::eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| worker.run(&stop));
        assert_eq!(sets.recv_timeout(DEADLINE).unwrap().iter().map(describe).collect::<Vec<_>>(), ["a-n 1"]);
        bench.write("a", &manifest("a", "2"));
        let second = sets.recv_timeout(DEADLINE);
        rustix::io::write(&stop, &1_u64.to_ne_bytes()).unwrap();
        assert_eq!(second.unwrap().iter().map(describe).collect::<Vec<_>>(), ["a-n 2"]);
    });
    let problem = status.report().path_problem.clone().unwrap();
    assert!(problem.contains("there are no events"), "{problem}");
}

#[test]
fn one_file_is_a_source_too() {
    // Rules A.1.1 and A.1.9.
    let mut bench = Bench::new();
    bench.write("a", &manifest("a", "1"));
    bench.write("b", &manifest("b", "1"));
    bench.start("m/a");
    bench.publishes(&["a-n 1"]);
    bench.write(".a", &manifest("a", "2"));
    fs::rename(bench.path(".a"), bench.path("a")).unwrap();
    bench.publishes(&["a-n 2"]);
    bench.write("a", "nothing");
    bench.eventually("a failure", |bench| bench.status().report().failing == 1);
    assert_eq!(bench.last(), ["a-n 2"]);
    bench.write("a", &manifest("a", "3"));
    bench.publishes(&["a-n 3"]);
    // Missing is an empty set, and a directory of the name is one.
    fs::remove_file(bench.path("a")).unwrap();
    bench.publishes(&[]);
    fs::create_dir(bench.path("a")).unwrap();
    bench.write("a/x", &manifest("x", "1"));
    bench.publishes(&["x-n 1"]);
}

#[test]
fn neither_directory_nor_file_is_an_error_and_no_set() {
    // Rule A.1.2.
    let mut bench = Bench::new();
    let _socket = std::os::unix::net::UnixListener::bind(bench.path("s")).unwrap();
    let config = ManifestConfig::new(bench.path("s"), "n".into());
    let source = ManifestSource::spawn(config, |_| panic!("published")).unwrap();
    bench.source = Some(source);
    bench.eventually("a report", |bench| {
        bench.status().report().path_problem.as_deref() == Some("is neither a directory nor a regular file")
    });
    assert!(bench.status().report().last_scan.is_none());
}

#[test]
fn extensions_can_be_chosen() {
    // MAN-1's option.
    let bench = Bench::new();
    for name in ["a.yaml", "a.yaml.bak", "b.json", "c"] {
        bench.write(name, &manifest(&name.replace('.', "-"), "1"));
    }
    let mut config = ManifestConfig::new(bench.path(""), "n".into());
    config.extensions = vec!["yaml".to_owned(), "json".to_owned()];
    let (sender, sets) = std::sync::mpsc::channel();
    let source = ManifestSource::spawn(config, move |update| sender.send(update).unwrap()).unwrap();
    let pods = PublishedPods::default().apply(sets.recv_timeout(DEADLINE).unwrap());
    assert_eq!(pods.iter().map(|pod| pod.name.as_str()).collect::<Vec<_>>(), ["a-yaml-n", "b-json-n"]);
    source.stop();
}

#[test]
fn an_overflow_of_the_event_queue_leads_to_a_scan() {
    // MAN-3. The sink blocks, so that nobody reads the events.
    let bench = Bench::new();
    bench.write("a", &manifest("a", "1"));
    bench.write("b", &manifest("b", "1"));
    let limit = fs::read_to_string("/proc/sys/fs/inotify/max_queued_events").unwrap();
    let limit: usize = limit.trim().parse().unwrap();
    let mut config = ManifestConfig::new(bench.path(""), "n".into());
    config.rescan = Duration::from_secs(3600);
    // A channel without room: each send waits for the test.
    let (sender, sets) = std::sync::mpsc::sync_channel(0);
    let source = ManifestSource::spawn(config, move |update| {
        let _ = sender.send(update);
    })
    .unwrap();
    // From here on the watch is open and the thread waits in the sink.
    let deadline = Instant::now() + DEADLINE;
    while source.status().rescans_total() == 0 {
        assert!(Instant::now() < deadline);
        std::thread::yield_now();
    }
    // Equal events in a row are one event, so two files take turns.
    let files = ["a", "b"].map(|name| fs::File::open(bench.path(name)).unwrap());
    for turn in 0..limit + 10 {
        files[turn % 2].set_permissions(fs::Permissions::from_mode(0o644)).unwrap();
    }
    bench.write("a", &manifest("a", "2"));
    let mut published = PublishedPods::default();
    loop {
        let pods = published.apply(sets.recv_timeout(deadline - Instant::now()).unwrap());
        if pods.iter().map(describe).eq(["a-n 2", "b-n 1"]) {
            break;
        }
    }
    assert_eq!(source.status().overflows_total(), 1);
    drop(sets);
    source.stop();
}

#[test]
fn two_thousand_manifests_load_at_once() {
    let mut bench = Bench::new();
    for number in 0..2_000 {
        bench.write(&format!("p{number}.yaml"), &manifest(&format!("p{number}"), "1"));
    }
    let start = Instant::now();
    bench.start_with("m", Duration::from_millis(50));
    bench.eventually("all pods", |bench| bench.status().report().pods == 2_000);
    // Generous for a debug build on a shared machine; a release build needs a fraction of a second.
    assert!(start.elapsed() < DEADLINE);
    assert_eq!(bench.sets.lock().unwrap().len(), 1, "the first set is whole");
    // Rescans change nothing and decode nothing.
    let scans = bench.status().rescans_total();
    bench.eventually("more scans", |bench| bench.status().rescans_total() > scans + 3);
    assert_eq!(bench.sets.lock().unwrap().len(), 1);
}

#[test]
fn dropping_the_source_ends_its_thread() {
    let mut bench = Bench::new();
    bench.start("m");
    let sets = Arc::downgrade(&bench.sets);
    bench.source = None;
    assert_eq!(sets.strong_count(), 1, "the thread, which holds the sink, is gone");
}
