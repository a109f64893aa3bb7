//! Containers found by their process from its first instruction on, and by their ID, while the runtime starts one after
//! the other.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use pods_api_proto::podsapi::v1::lookup_request::Key;
use pods_api_proto::podsapi::v1::node_client::NodeClient;
use pods_api_proto::podsapi::v1::{LookupRequest, LookupResponse};

use super::Stage;
use crate::harness::{PATIENCE, Server, Setup, cannot_run, eventually};
use crate::runtime::node::{self, IMAGE, Node, Recipe, SandboxOptions, missing};

const UID: &str = "7c0f6a52-0000-4000-8000-00000000d001";
/// Says how many containers are started.
const COUNT: &str = "PODS_API_TEST_STARTS";
const DEFAULT_COUNT: u32 = 25;

/// BPF-7, CRI-3
#[test]
fn every_container_is_found_by_its_process_from_its_first_instruction_on() {
    if let Some(why) = missing() {
        return cannot_run(&why);
    }
    let count = std::env::var(COUNT).map_or(DEFAULT_COUNT, |count| count.parse().unwrap());
    let setup = Setup::new()
        // It may have to mount the bpf filesystem, which it leaves mounted.
        .within(&["unshare", "--mount", "--propagation", "private"])
        .argument("--ebpf=auto")
        .argument("--rate-limit-qps=1000000")
        .argument("--rate-limit-burst=1000000");
    let mut stage = Stage::beside(Node::start(), setup);
    let is_told_of_processes = stage.server.http("/readyz?verbose").1.contains("events: eBPF");
    let command = &["/bin/busybox", "sleep", "0.3"];
    stage.pod(UID, &format!("restartPolicy: Always, containers: [{{name: a, image: '{IMAGE}'}}]"));
    let sandbox = stage.node.sandbox(UID, &format!("{UID}-node-1"), 0, SandboxOptions::default());
    // Until the runtime has told of it, its cgroup looks like a container's.
    eventually("the sandbox to be known for one", PATIENCE, || {
        let answer =
            ask(&stage.server, Key::ContainerId(sandbox[..20].to_owned())).expect("a sandbox is a pod");
        answer.container_id.is_empty().then_some(())
    });

    let mut times = Vec::new();
    let mut misses = Vec::new();
    for attempt in 0..count {
        let container = stage.node.create(&sandbox, &Recipe { attempt, ..Recipe::shell("a", command) });
        let (server, id) = (stage.server.socket(), container.clone());
        let watching = thread::spawn(move || {
            loop {
                let pid = first_process(&id);
                let start = Instant::now();
                let answer = ask_at(&server, Key::Pid(pid));
                // The runtime's own processes come first. They fork in the cgroup, execute nothing and are gone in no
                // time: only the kernel tells of them.
                let is_gone = answer.as_ref().is_err_and(|error| error.contains("there is no process"));
                if is_told_of_processes || !is_gone {
                    break (pid, answer, start.elapsed());
                }
            }
        });
        assert!(stage.node.try_start(&container));
        let (pid, answer, took) = watching.join().unwrap();
        times.push(took);
        match answer {
            Ok(answer) => {
                let uid = answer.pod.unwrap().metadata.unwrap().uid.unwrap();
                assert_eq!((&*uid, &*answer.container_id), (UID, &*container), "process {pid}");
            }
            Err(status) => misses.push(format!("process {pid}: {status}")),
        }
        let by_id =
            ask(&stage.server, Key::ContainerId(format!("containerd://{}", &container[..16]))).unwrap();
        assert_eq!(by_id.container_id, container);
        stage.node.stop(&container);
        // Only events know a process that has ended by the time it is asked for.
        if is_told_of_processes {
            let ended = ask(&stage.server, Key::Pid(pid)).expect("what has just ended is still known");
            assert_eq!(ended.container_id, container, "process {pid}, which has ended");
        }
        stage.node.kubelet().remove(&container).unwrap();
    }
    times.sort_unstable();
    eprintln!(
        "{count} starts, eBPF: {is_told_of_processes}, {} misses; from the process being seen to the answer: median {:?}, longest {:?}",
        misses.len(),
        times[times.len() / 2],
        times[times.len() - 1]
    );
    assert!(misses.is_empty(), "{misses:#?}");
    let metrics = stage.server.http("/metrics").1;
    let hints = metrics.lines().find_map(|line| line.strip_prefix("pods_api_runtime_hints_total "));
    let hints: u32 = hints.and_then(|count| count.parse().ok()).expect("hints are counted");
    assert!(hints >= 2 * count, "{hints} hints of {count} containers that came up and ended");
    // The name comes with the status.
    let last = stage.node.run(&sandbox, &Recipe { attempt: count, ..Recipe::shell("a", super::FOREVER) });
    eventually("the container's name", PATIENCE, || {
        let answer = ask(&stage.server, Key::ContainerId(last.clone())).unwrap();
        (answer.container_name == "a").then_some(())
    });
}

/// The first process in a container's cgroup, as soon as it is there: before it executes the container's program.
fn first_process(container: &str) -> i32 {
    let unified = fs::read_to_string("/proc/self/mounts").unwrap();
    let mount =
        unified.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2")).expect("runc needs one");
    let mount = PathBuf::from(mount.split(' ').nth(1).unwrap());
    let file = mount.join(format!("kubepods/burstable/pod{UID}/{container}/cgroup.procs"));
    let start = Instant::now();
    loop {
        let processes = fs::read_to_string(&file).unwrap_or_default();
        if let Some(pid) = processes.lines().next() {
            return pid.parse().unwrap();
        }
        assert!(start.elapsed() < PATIENCE, "waited for a process in {}", file.display());
        thread::sleep(Duration::from_micros(50));
    }
}

fn ask(server: &Server, key: Key) -> Result<LookupResponse, String> {
    ask_at(&server.socket(), key)
}

/// A lookup that waits.
fn ask_at(socket: &Path, key: Key) -> Result<LookupResponse, String> {
    let wait = Some(PATIENCE.try_into().unwrap());
    node::executor().block_on(async {
        let mut client = NodeClient::new(node::connect(socket).await.unwrap());
        let answer = client.lookup(LookupRequest { key: Some(key), wait }).await;
        answer.map(tonic::Response::into_inner).map_err(|status| status.to_string())
    })
}
