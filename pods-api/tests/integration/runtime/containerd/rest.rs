//! What this server costs a node on which nothing happens: its own CPU time, and the runtime's on its account.

use std::time::{Duration, Instant};

use super::{FOREVER, Stage};
use crate::harness::{PATIENCE, Setup, eventually};
use crate::runtime::node::{Kubelet, Node, Recipe, SandboxOptions};

/// Long enough for two lists.
const SPAN: Duration = Duration::from_secs(65);
/// Each pod is read again after so long at the earliest.
const REFRESH: Duration = Duration::from_secs(300);

/// Minutes long, and for a quiet machine: `cargo test -p pods-api --test integration -- --ignored --nocapture at_rest`.
/// A build for debugging shows an upper bound; with `--release` the bound is asserted.
#[test]
#[ignore = "takes minutes, and wants the machine to itself"]
fn with_250_pods_at_rest_next_to_nothing_is_used() {
    let (ours, runtimes) = measure(250);
    let is_bound = !cfg!(debug_assertions);
    assert!(!is_bound || (ours < 0.3 && runtimes < 0.3), "within 0.3 % of a core each");
}

/// As above, for the growth: nothing is asserted, as memory and the number of processes may end it early.
#[test]
#[ignore = "takes minutes, and wants the machine to itself"]
fn with_1000_pods_at_rest_little_is_used() {
    measure(1000);
}

/// The shares of a core, in percent, that this server takes with so many pods at rest, and the runtime on its account.
fn measure(pods: usize) -> (f64, f64) {
    let node = Node::start();
    make(&node, 0..pods);
    let containerd = node.pid();
    let before = cpu_time(containerd);
    let stage = Stage::beside(node, Setup::new());
    for number in 0..pods {
        let uid = format!("rest-{number}");
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: {uid}, uid: {uid}}}\n\
             spec: {{hostNetwork: true, containers: [{{name: a, image: 'a:1'}}]}}\n"
        );
        stage.server.write_manifest(&format!("{uid}.yaml"), &text);
    }
    let last = format!("rest-{}", pods - 1);
    stage.watch.wait_for(&last, |text| text.starts_with("Running a:running"));
    // The lists that follow the start of the event stream are over.
    std::thread::sleep(Duration::from_secs(5));
    // Every pod has been read once: what the trickle of reads adds later.
    let pass = [cpu_time(stage.server.pid()), cpu_time(containerd) - before];
    let trickle = pass.map(|spent| 100.0 * spent.as_secs_f64() / REFRESH.as_secs_f64());
    let lists = share(&[stage.server.pid(), containerd], SPAN);
    let Stage { server, node: _node, .. } = stage;
    drop(server);
    let alone = share(&[containerd], SPAN)[0];
    let (ours, runtimes) = (lists[0] + trickle[0], lists[1] - alone + trickle[1]);
    eprintln!(
        "{pods} pods at rest: ours {ours:.3} %, the runtime's on our account {runtimes:.3} % of a core; lists {lists:.3?}, \
         start and first pass {pass:.3?}, containerd without us {alone:.3} %"
    );
    (ours, runtimes)
}

/// Makes pods on four connections at a time.
fn make(node: &Node, numbers: std::ops::Range<usize>) {
    let numbers: Vec<_> = numbers.collect();
    let threads: Vec<_> = numbers
        .chunks(numbers.len().div_ceil(4))
        .map(|chunk| {
            let (chunk, mut kubelet) = (chunk.to_vec(), node.connect().unwrap());
            std::thread::spawn(move || chunk.iter().for_each(|number| make_one(&mut kubelet, *number)))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

fn make_one(kubelet: &mut Kubelet, number: usize) {
    let uid = format!("rest-{number}");
    let options = SandboxOptions { is_host_network: true, ..SandboxOptions::default() };
    let sandbox = kubelet.sandbox(&uid, &uid, 0, options).unwrap();
    let container = kubelet.create(&sandbox, &Recipe::shell("a", FOREVER)).unwrap();
    kubelet.start(&container).unwrap();
}

/// The share of a core, in percent, that each process takes over `span`.
fn share(pids: &[u32], span: Duration) -> Vec<f64> {
    let (start, before) = (Instant::now(), pids.iter().map(|pid| cpu_time(*pid)).collect::<Vec<_>>());
    eventually("the end of the measurement", span + PATIENCE, || (start.elapsed() >= span).then_some(()));
    let took = start.elapsed();
    let spent = pids.iter().zip(before).map(|(pid, before)| cpu_time(*pid) - before);
    spent.map(|spent| 100.0 * spent.as_secs_f64() / took.as_secs_f64()).collect()
}

/// The CPU time of all threads of a process, from the scheduler's own account.
fn cpu_time(pid: u32) -> Duration {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).unwrap().filter_map(Result::ok);
    let of_thread = |thread: std::fs::DirEntry| -> Option<u64> {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse().ok()
    };
    Duration::from_nanos(threads.filter_map(of_thread).sum())
}
