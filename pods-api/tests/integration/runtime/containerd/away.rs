//! A containerd that is killed under load: nothing is lost, and nothing false is told.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::{FOREVER, Stage, Watch, get};
use crate::harness::{PATIENCE, cannot_run, eventually};
use crate::runtime::node::{IMAGE, Kubelet, Recipe, SandboxOptions, missing};

/// Lists are this far apart without events.
const RELIST: Duration = Duration::from_secs(1);
/// Pods that are made and removed at least, however quickly containerd was back each time.
const CHURN: usize = 11;

#[test]
fn containerd_killed_under_load_loses_nothing() {
    if let Some(why) = missing() {
        return cannot_run(&why);
    }
    let mut stage = Stage::new();
    let mut steady = Vec::new();
    for number in 0..4 {
        let uid = format!("steady-{number}");
        let (_, a) = stage.simple(&uid, "Always", FOREVER);
        steady.push((uid, a));
    }
    for (uid, a) in &steady {
        stage.shows(uid, "Running a:running($a) r0 ready", &[("a", a)]);
    }
    let mut watches = vec![stage.watch.clone(), Watch::start(&stage.server), Watch::start(&stage.server)];
    let churn = Churn::start(&stage);
    for round in 0..3 {
        let told: Vec<_> = steady.iter().map(|(uid, _)| stage.watch.history(uid).len()).collect();
        // One ends while containerd is away, one just before, one is being started.
        let (dying, before, started) =
            (format!("dying-{round}"), format!("before-{round}"), format!("started-{round}"));
        // Told by its message file, for nothing else reaches it then.
        let script = ["/bin/sh", "-c", "while [ ! -s /dev/termination-log ]; do sleep 0.05; done; exit 9"];
        let (sandbox, d) = stage.simple(&dying, "Never", &script);
        let message_file = stage.node.kubelet().message_file(&sandbox, &Recipe::shell("a", &script));
        let (_, b) = stage.simple(&before, "Never", &["/bin/sh", "-c", "exit 5"]);
        let (_, s) = stage.simple(&started, "Always", FOREVER);
        stage.node.kill();
        eventually("the loss to be noticed", PATIENCE, || {
            stage.server.http("/readyz?verbose").1.contains("no runtime answers").then_some(())
        });
        watches.push(Watch::start(&stage.server));
        std::fs::write(message_file, "die").unwrap();
        // Long enough for it to be dead.
        let dead = Instant::now() + Duration::from_secs(2);
        while Instant::now() < dead {
            for (uid, a) in &steady {
                assert_eq!(get(&stage.server, uid), format!("Running a:running({a}) r0 ready"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        stage.node.spawn();
        let back = Instant::now();
        // containerd sometimes loses the code of what ends while it is away: its is the last word.
        for (uid, id, code) in [(&dying, &d, 9), (&before, &b, 5)] {
            let mut word = || stage.node.kubelet().end_of(id).unwrap();
            let (shown, reason) = eventually("containerd's word", PATIENCE, &mut word);
            assert!(
                (shown, &*reason) == (code, "Error") || (shown, &*reason) == (255, "Unknown"),
                "{shown}/{reason}"
            );
            stage.shows(uid, &format!("Failed a:{shown}/{reason}($a) r0"), &[("a", id)]);
        }
        stage.shows(&started, "Running a:running($a) r0 ready", &[("a", &s)]);
        // The connection is tried again after 2 s at the latest; then two lists must do.
        let limit = Duration::from_secs(2) + 2 * RELIST + Duration::from_secs(1);
        assert!(back.elapsed() < limit, "right again after {:?}", back.elapsed());
        for ((uid, a), told) in steady.iter().zip(told) {
            assert_eq!(get(&stage.server, uid), format!("Running a:running({a}) r0 ready"));
            assert_eq!(stage.watch.history(uid).len(), told, "{uid}: {:?}", stage.watch.history(uid));
        }
    }
    let made = churn.stop();
    assert!(made.len() >= CHURN, "{} pods were made and removed", made.len());
    for uid in &made {
        stage.watch.wait_for(uid, |text| text == "deleted");
        let history = stage.watch.history(uid);
        let steps: Vec<_> = history.iter().map(|text| Step::of(text)).collect();
        assert!(steps.is_sorted() && steps.first() == Some(&Step::Waits), "{uid}: {history:#?}");
        assert_eq!(history.iter().filter(|text| *text == "deleted").count(), 1, "{uid}: {history:#?}");
    }
    let (whole, late) = watches.split_at(3);
    for (uid, watch) in made.iter().flat_map(|uid| whole.iter().map(move |watch| (uid, watch))) {
        watch.wait_for(uid, |text| text == "deleted");
        assert_eq!(watch.history(uid), stage.watch.history(uid), "{uid}: all watches see the same");
    }
    // One that was opened while the runtime was away sees the same from there on.
    for (uid, watch) in made.iter().flat_map(|uid| late.iter().map(move |watch| (uid, watch))) {
        let (history, all) = (watch.history(uid), stage.watch.history(uid));
        assert!(all.ends_with(&history), "{uid}: {history:#?} of {all:#?}");
    }
    eprintln!("{} pods were made and removed meanwhile", made.len());
}

/// How far a pod of the churn has come. It never goes back.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Waits,
    Created,
    Runs,
    Ended,
    Deleted,
}

impl Step {
    fn of(text: &str) -> Self {
        match text {
            "deleted" => Self::Deleted,
            _ if text.contains("waiting(ContainerCreating)") => Self::Waits,
            _ if text.contains("waiting(") => Self::Created,
            _ if text.contains("a:running(") && text.ends_with(" ready") => Self::Runs,
            _ => Self::Ended,
        }
    }
}

/// Makes pods and removes them again, one after the other, on a thread of its own. Whatever containerd's death cuts
/// off is cleaned up when it is back, as a kubelet would.
struct Churn {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<String>>,
}

impl Churn {
    fn start(stage: &Stage) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (is_over, manifests, watch) = (stop.clone(), stage.server.manifests(), stage.watch.clone());
        let connect = stage.node.connector();
        let thread = std::thread::spawn(move || {
            let mut kubelet = None;
            let mut made = Vec::new();
            while !is_over.load(Ordering::Relaxed) || made.len() < CHURN {
                let uid = format!("churn-{}", made.len());
                let manifest = manifests.join(format!("{uid}.yaml"));
                live(&mut kubelet, &uid, &manifest, &watch);
                remove(&mut kubelet, &connect, &uid, &watch);
                made.push(uid);
            }
            made
        });
        Self { stop, thread }
    }

    /// Ends the churn once it has made enough of them; returns the UIDs of its pods.
    fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

/// One pod from its manifest to the manifest's removal.
fn live(kubelet: &mut Option<Kubelet>, uid: &str, manifest: &Path, watch: &Watch) {
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {uid}, uid: {uid}}}\n\
         spec: {{hostNetwork: true, containers: [{{name: a, image: '{IMAGE}'}}]}}\n"
    );
    let temporary = manifest.with_file_name(".churn.new");
    std::fs::write(&temporary, text).unwrap();
    std::fs::rename(temporary, manifest).unwrap();
    watch.wait_for(uid, |_| true);
    let mut make = || {
        let kubelet = kubelet.as_mut()?;
        let options = SandboxOptions { is_host_network: true, ..SandboxOptions::default() };
        let sandbox = kubelet.sandbox(uid, uid, 0, options).ok()?;
        let container = kubelet.create(&sandbox, &Recipe::shell("a", FOREVER)).ok()?;
        kubelet.start(&container).ok()
    };
    if make().is_none() {
        *kubelet = None;
    }
    // While it has its manifest it is never gone, and once it runs it does so to the end.
    let history = watch.history(uid);
    let runs = history.iter().position(|text| Step::of(text) == Step::Runs);
    let after = runs.map_or(&[][..], |runs| &history[runs..]);
    assert!(after.iter().all(|text| Step::of(text) == Step::Runs), "{uid}: {history:#?}");
    assert!(!history.contains(&"deleted".to_owned()), "{uid}: {history:#?}");
    std::fs::remove_file(manifest).unwrap();
}

/// Ends and removes what the runtime has of a pod, as soon as there is a runtime.
fn remove(kubelet: &mut Option<Kubelet>, connect: &impl Fn() -> Option<Kubelet>, uid: &str, watch: &Watch) {
    let mut is_first = true;
    eventually(&format!("{uid} to be removed"), 2 * PATIENCE, || {
        if kubelet.is_none() {
            *kubelet = connect();
        }
        let connection = kubelet.as_mut()?;
        let sandboxes = connection.sandboxes_of(Some(uid)).ok();
        let history = watch.history(uid);
        if std::mem::take(&mut is_first) && history.iter().any(|text| Step::of(text) == Step::Runs) {
            assert!(!history.contains(&"deleted".to_owned()), "{uid} still runs: {history:#?}");
        }
        let outcome = sandboxes.map(|sandboxes| {
            sandboxes.iter().try_for_each(|sandbox| connection.remove_sandbox(sandbox)).is_ok()
        });
        if outcome != Some(true) {
            *kubelet = None;
        }
        (outcome == Some(true)).then_some(())
    });
}
