//! The whole server beside a real containerd: a pod's life in every variety, and a containerd that is killed under
//! load. containerd is started once for all steps, which takes seconds; each step has a pod of its own.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use pods_api_proto::v1alpha1::pods_client::PodsClient;
use pods_api_proto::v1alpha1::{GetPodRequest, WatchPodsRequest};

use super::bench::describe;
use super::client;
use super::node::{IMAGE, Node, Recipe, SandboxOptions, missing};
use crate::harness::{PATIENCE, Server, Setup, cannot_run, eventually};

const FOREVER: &[&str] = &["/bin/sh", "-c", "while :; do sleep 1000; done"];
/// Lists are this far apart without events.
const RELIST: Duration = Duration::from_secs(1);

/// The server, a watch on it, and the runtime.
struct Stage {
    server: Server,
    watch: Watch,
    node: Node,
}

impl Stage {
    fn new() -> Self {
        let node = Node::start();
        let server = Setup::new()
            .argument("--cri-socket")
            .argument(node.socket().to_str().unwrap())
            .argument("--rate-limit-qps=1000000")
            .argument("--rate-limit-burst=1000000")
            .start();
        let watch = Watch::start(&server);
        eventually("the event stream", PATIENCE, || {
            server.http("/readyz?verbose").1.contains("events: containerd").then_some(())
        });
        Self { server, watch, node }
    }

    /// Writes the manifest of a pod whose UID is given, as one that the kubelet would have hashed.
    fn pod(&self, uid: &str, spec: &str) {
        let text =
            format!("apiVersion: v1\nkind: Pod\nmetadata: {{name: {uid}, uid: {uid}}}\nspec: {{{spec}}}\n");
        self.server.write_manifest(&format!("{uid}.yaml"), &text);
        self.watch.wait_for(uid, |text| text.starts_with("Pending"));
    }

    /// A pod with the container `a`, its sandbox, and what the container is to do.
    fn simple(&mut self, uid: &str, policy: &str, command: &[&str]) -> (String, String) {
        self.pod(uid, &format!("restartPolicy: {policy}, containers: [{{name: a, image: '{IMAGE}'}}]"));
        let sandbox = self.node.sandbox(uid, &format!("{uid}-node-1"), 0, SandboxOptions::default());
        let container = self.node.run(&sandbox, &Recipe::shell("a", command));
        (sandbox, container)
    }

    /// Waits until GetPod shows the status, in which `$a` stands for a container's ID.
    #[track_caller]
    fn shows(&self, uid: &str, expected: &str, ids: &[(&str, &str)]) {
        let expected = with_ids(expected, ids);
        let start = Instant::now();
        loop {
            let shown = get(&self.server, uid);
            if shown == expected {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "{uid} is shown as\n{shown}\nmust become\n{expected}");
            std::thread::sleep(Duration::from_millis(5));
        }
        self.watch.wait_for(uid, |text| text == expected);
    }

    /// The states that the watch went through, in order, without those that only an event has told of yet.
    fn saw(&self, uid: &str, expected: &[&str], ids: &[(&str, &str)]) {
        let history = self.watch.history(uid);
        let settled = |text: &String| !text.contains("/(") && !text.contains("waiting()");
        let mut seen: Vec<_> = history.iter().filter(|text| settled(text)).cloned().collect();
        seen.dedup();
        let expected: Vec<_> = expected.iter().map(|text| with_ids(text, ids)).collect();
        assert_eq!(seen, expected, "{uid}; in full: {history:#?}");
    }
}

fn with_ids(text: &str, ids: &[(&str, &str)]) -> String {
    ids.iter().fold(text.to_owned(), |text, (name, id)| text.replace(&format!("${name}"), id))
}

fn get(server: &Server, uid: &str) -> String {
    client::executor().block_on(async {
        let mut client = PodsClient::new(client::connect(&server.socket()).await.unwrap());
        match client.get_pod(GetPodRequest { pod_uid: uid.to_owned() }).await {
            Ok(answer) => describe(&answer.into_inner().pod),
            Err(status) => format!("{:?}", status.code()),
        }
    })
}

/// A watch that remembers what it saw of each pod.
struct Watch {
    seen: Arc<Mutex<HashMap<String, Vec<String>>>>,
    _thread: JoinHandle<()>,
}

impl Watch {
    fn start(server: &Server) -> Self {
        let seen = Arc::new(Mutex::new(HashMap::<String, Vec<String>>::new()));
        let (socket, into) = (server.socket(), seen.clone());
        // Ends with the server.
        let thread = std::thread::spawn(move || {
            client::executor().block_on(async {
                let mut client = PodsClient::new(client::connect(&socket).await.unwrap());
                let mut stream = client.watch_pods(WatchPodsRequest {}).await.unwrap().into_inner();
                while let Ok(Some(event)) = stream.message().await {
                    let Ok(pod) = <pods_api_proto::k8s::io::api::core::v1::Pod as prost::Message>::decode(
                        event.pod.clone(),
                    ) else {
                        continue;
                    };
                    let uid = pod.metadata.unwrap_or_default().uid.unwrap_or_default();
                    let text = if event.r#type == 3 { "deleted".to_owned() } else { describe(&event.pod) };
                    into.lock().unwrap().entry(uid).or_default().push(text);
                }
            });
        });
        Self { seen, _thread: thread }
    }

    fn history(&self, uid: &str) -> Vec<String> {
        self.seen.lock().unwrap().get(uid).cloned().unwrap_or_default()
    }

    #[track_caller]
    fn wait_for(&self, uid: &str, is_it: impl Fn(&str) -> bool) {
        let start = Instant::now();
        while !self.history(uid).last().is_some_and(|text| is_it(text)) {
            assert!(start.elapsed() < PATIENCE, "{uid}: the watch saw {:#?}", self.history(uid));
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn status_follows_a_real_containerd() {
    if let Some(why) = missing() {
        return cannot_run(&why);
    }
    let mut stage = Stage::new();
    runs_and_ends(&mut stage);
    fails_in_every_way(&mut stage);
    restarts(&mut stage);
    runs_in_order(&mut stage);
    has_addresses(&mut stage);
    gets_the_kubelets_uid(&mut stage);
    leaves(&mut stage);
}

const WAITS: &str = "Pending a:waiting(ContainerCreating) r0";

fn runs_and_ends(stage: &mut Stage) {
    let (_, a) =
        stage.simple("exit-0", "Never", &["/bin/sh", "-c", "sleep 0.5; echo done > /dev/termination-log"]);
    let ids = [("a", &*a)];
    stage.shows("exit-0", "Succeeded a:0/Completed($a) r0", &ids);
    stage.saw("exit-0", &[WAITS, "Running a:running($a) r0 ready", "Succeeded a:0/Completed($a) r0"], &ids);

    let (_, a) = stage.simple("exit-7", "Never", &["/bin/sh", "-c", "sleep 0.5; exit 7"]);
    let ids = [("a", &*a)];
    stage.shows("exit-7", "Failed a:7/Error($a) r0", &ids);
    stage.saw("exit-7", &[WAITS, "Running a:running($a) r0 ready", "Failed a:7/Error($a) r0"], &ids);

    // A process executed in a container ends: the container does not.
    let (_, a) = stage.simple("exec", "Always", FOREVER);
    let ids = [("a", &*a)];
    stage.shows("exec", "Running a:running($a) r0 ready", &ids);
    let events = stage.watch.history("exec").len();
    stage.node.execute(&a, "exit 0");
    // What comes after it shows that nothing came of it.
    stage.node.stop(&a);
    stage.shows("exec", "Running a:137/Error($a) r0", &ids);
    let after = stage.watch.history("exec").split_off(events);
    assert!(after.iter().all(|text| text.contains(":137/")), "{after:?}");
}

fn fails_in_every_way(stage: &mut Stage) {
    let uid = "start-error";
    stage.pod(uid, &format!("restartPolicy: Never, containers: [{{name: a, image: '{IMAGE}'}}]"));
    let sandbox = stage.node.sandbox(uid, uid, 0, SandboxOptions::default());
    let a = stage.node.create(&sandbox, &Recipe::shell("a", &["/no/such/program"]));
    assert!(!stage.node.try_start(&a));
    stage.shows(uid, "Failed a:128/StartError($a) r0", &[("a", &a)]);

    let limited = |stage: &mut Stage, uid: &str, script: &str| {
        stage.pod(uid, &format!("restartPolicy: Never, containers: [{{name: a, image: '{IMAGE}'}}]"));
        let sandbox = stage.node.sandbox(uid, uid, 0, SandboxOptions::default());
        let command = ["/bin/sh", "-c", script];
        let recipe = Recipe { memory_limit: 16 << 20, ..Recipe::shell("a", &command) };
        stage.node.run(&sandbox, &recipe)
    };
    let a = limited(stage, "oom", "exec /bin/busybox dd if=/dev/zero of=/dev/null bs=200M count=1");
    stage.shows("oom", "Failed a:137/OOMKilled($a) r0", &[("a", &a)]);
    let a = limited(stage, "oom-child", "/bin/busybox dd if=/dev/zero of=/dev/null bs=200M count=1; exit 0");
    stage.shows("oom-child", "Succeeded a:0/OOMKilled($a) r0", &[("a", &a)]);
    // STAT-5: killed, and memory has nothing to do with it.
    let (_, a) = stage.simple("killed", "Never", FOREVER);
    stage.shows("killed", "Running a:running($a) r0 ready", &[("a", &a)]);
    stage.node.stop(&a);
    stage.shows("killed", "Failed a:137/Error($a) r0", &[("a", &a)]);
}

fn restarts(stage: &mut Stage) {
    let (sandbox, first) = stage.simple("restart", "Always", &["/bin/sh", "-c", "sleep 0.5; exit 3"]);
    let ids = [("a", &*first)];
    stage.shows("restart", "Running a:3/Error($a) r0", &ids);
    let second = stage.node.run(&sandbox, &Recipe { attempt: 1, ..Recipe::shell("a", FOREVER) });
    let ids = [("a", &*first), ("b", &*second)];
    stage.shows("restart", "Running a:running($b) r1 ready last=3/Error", &ids);
    let steps = [
        WAITS,
        "Running a:running($a) r0 ready",
        "Running a:3/Error($a) r0",
        "Running a:running($b) r1 ready last=3/Error",
    ];
    stage.saw("restart", &steps, &ids);

    // The sandbox is stopped, and another one takes its place.
    let (sandbox, first) = stage.simple("sandbox", "Always", FOREVER);
    stage.shows("sandbox", "Running a:running($a) r0 ready", &[("a", &first)]);
    let ip = stage.node.ip(&sandbox);
    stage.node.stop_sandbox(&sandbox);
    stage.shows("sandbox", "Running a:137/Error($a) r0", &[("a", &first)]);
    assert_eq!(pod_ips(stage, "sandbox"), [ip], "rule C.3.4");
    let sandbox = stage.node.sandbox("sandbox", "sandbox-node-1", 1, SandboxOptions::default());
    let second = stage.node.run(&sandbox, &Recipe { attempt: 1, ..Recipe::shell("a", FOREVER) });
    stage.shows("sandbox", "Running a:running($a) r1 ready last=137/Error", &[("a", &second)]);
    let ip = stage.node.ip(&sandbox);
    assert_eq!(pod_ips(stage, "sandbox"), [ip]);
}

fn runs_in_order(stage: &mut Stage) {
    let uid = "init";
    let containers = format!(
        "restartPolicy: Never, initContainers: [{{name: i, image: '{IMAGE}'}}, \
         {{name: s, image: '{IMAGE}', restartPolicy: Always}}], \
         containers: [{{name: b, image: '{IMAGE}'}}, {{name: a, image: '{IMAGE}'}}]"
    );
    stage.pod(uid, &containers);
    let sandbox = stage.node.sandbox(uid, uid, 0, SandboxOptions::default());
    let short = ["/bin/sh", "-c", "sleep 0.3"];
    let i = stage.node.run(&sandbox, &Recipe::shell("i", &short));
    let waits = "s:waiting(PodInitializing) r0 a:waiting(PodInitializing) r0 b:waiting(PodInitializing) r0";
    stage.shows(uid, &format!("Pending i:0/Completed($i) r0 ready {waits}"), &[("i", &i)]);
    let s = stage.node.run(&sandbox, &Recipe::shell("s", FOREVER));
    let waits = "a:waiting(PodInitializing) r0 b:waiting(PodInitializing) r0";
    let ids = [("i", &*i), ("s", &*s)];
    stage.shows(uid, &format!("Pending i:0/Completed($i) r0 ready s:running($s) r0 ready {waits}"), &ids);
    let a = stage.node.run(&sandbox, &Recipe::shell("a", &short));
    let b = stage.node.run(&sandbox, &Recipe::shell("b", FOREVER));
    let done = "i:0/Completed($i) r0 ready s:running($s) r0 ready";
    let ids = [("i", &*i), ("s", &*s), ("a", &*a), ("b", &*b)];
    stage.shows(uid, &format!("Running {done} a:0/Completed($a) r0 b:running($b) r0 ready"), &ids);
    stage.node.stop(&b);
    // Rule C.7.6 h: the sidecar still runs.
    stage.shows(uid, &format!("Running {done} a:0/Completed($a) r0 b:137/Error($b) r0"), &ids);
    stage.node.stop(&s);
    let done = "i:0/Completed($i) r0 ready s:137/Error($s) r0";
    stage.shows(uid, &format!("Failed {done} a:0/Completed($a) r0 b:137/Error($b) r0"), &ids);
}

fn pod_ips(stage: &Stage, uid: &str) -> Vec<String> {
    let pod = pod(&stage.server, uid);
    pod.status.unwrap_or_default().pod_i_ps.iter().map(|pod| pod.ip().to_owned()).collect()
}

fn pod(server: &Server, uid: &str) -> pods_api_proto::k8s::io::api::core::v1::Pod {
    let bytes = client::executor().block_on(async {
        let mut client = PodsClient::new(client::connect(&server.socket()).await.unwrap());
        client.get_pod(GetPodRequest { pod_uid: uid.to_owned() }).await.unwrap().into_inner().pod
    });
    prost::Message::decode(bytes).unwrap()
}

fn has_addresses(stage: &mut Stage) {
    let (sandbox, a) = stage.simple("address", "Always", FOREVER);
    stage.shows("address", "Running a:running($a) r0 ready", &[("a", &a)]);
    let ip = stage.node.ip(&sandbox);
    assert!(ip.starts_with("10.213.7."), "{ip}");
    assert_eq!(pod_ips(stage, "address"), [ip]);

    let uid = "host-network";
    stage.pod(uid, &format!("hostNetwork: true, containers: [{{name: a, image: '{IMAGE}'}}]"));
    let options = SandboxOptions { is_host_network: true, ..SandboxOptions::default() };
    let sandbox = stage.node.sandbox(uid, uid, 0, options);
    let a = stage.node.run(&sandbox, &Recipe::shell("a", FOREVER));
    stage.shows(uid, "Running a:running($a) r0 ready", &[("a", &a)]);
    // Rule C.3.6: nothing tells the node's address here.
    assert_eq!(pod_ips(stage, uid), [] as [&str; 0]);
    let ready = |uid| {
        let status = pod(&stage.server, uid).status.unwrap();
        let kind = "PodReadyToStartContainers";
        status.conditions.iter().any(|condition| condition.r#type() == kind && condition.status() == "True")
    };
    assert!(ready("address") && ready(uid));
}

/// MAN-8, rule A.7.5: a manifest without a UID is listed under the one that its sandbox carries.
fn gets_the_kubelets_uid(stage: &mut Stage) {
    let uid = "0123456789abcdef0123456789abcdef";
    let annotations = [("kubernetes.io/config.source", "file"), ("kubernetes.io/config.hash", uid)];
    let options = SandboxOptions { annotations: &annotations, ..SandboxOptions::default() };
    let text = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: static}}\nspec: {{containers: [{{name: a, image: '{IMAGE}'}}]}}\n"
    );
    stage.server.write_manifest("static.yaml", &text);
    let sandbox = stage.node.sandbox(uid, "static-node-1", 0, options);
    let a = stage.node.run(&sandbox, &Recipe::shell("a", FOREVER));
    stage.shows(uid, "Running a:running($a) r0 ready", &[("a", &a)]);
    let metadata = pod(&stage.server, uid).metadata.unwrap();
    assert_eq!(
        (metadata.name(), &*metadata.annotations["kubernetes.io/config.hash"]),
        ("static-node-1", uid)
    );
    let listed = String::from_utf8(stage.server.client(&["get", "pods", "-o", "name"]).stdout).unwrap();
    assert_eq!(listed.matches("static-node-1").count(), 1, "{listed}");
}

fn leaves(stage: &mut Stage) {
    let (sandbox, a) = stage.simple("leaves", "Always", FOREVER);
    stage.shows("leaves", "Running a:running($a) r0 ready", &[("a", &a)]);
    stage.server.remove_manifest("leaves.yaml");
    eventually("a deletion timestamp", PATIENCE, || {
        pod(&stage.server, "leaves").metadata?.deletion_timestamp
    });
    // It runs, so it is there.
    assert_eq!(get(&stage.server, "leaves"), format!("Running a:running({a}) r0 ready"));
    stage.node.remove_sandbox(&sandbox);
    stage.watch.wait_for("leaves", |text| text == "deleted");
    assert_eq!(get(&stage.server, "leaves"), "NotFound");
    let history = stage.watch.history("leaves");
    assert_eq!(history.iter().filter(|text| *text == "deleted").count(), 1, "{history:?}");
}

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
    for round in 0..3 {
        let told: Vec<_> = steady.iter().map(|(uid, _)| stage.watch.history(uid).len()).collect();
        // One ends while containerd is away, one just before, one is being started.
        let (dying, before, started) =
            (format!("dying-{round}"), format!("before-{round}"), format!("started-{round}"));
        let (_, d) = stage.simple(&dying, "Never", &["/bin/sh", "-c", "sleep 1.5; exit 9"]);
        let (_, b) = stage.simple(&before, "Never", &["/bin/sh", "-c", "exit 5"]);
        let (_, s) = stage.simple(&started, "Always", FOREVER);
        stage.node.kill();
        eventually("the loss to be noticed", PATIENCE, || {
            stage.server.http("/readyz?verbose").1.contains("no runtime answers").then_some(())
        });
        // Long enough for the one that is dying to be dead.
        let dead = Instant::now() + Duration::from_secs(2);
        while Instant::now() < dead {
            for (uid, a) in &steady {
                assert_eq!(get(&stage.server, uid), format!("Running a:running({a}) r0 ready"));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        stage.node.spawn();
        let back = Instant::now();
        stage.shows(&dying, "Failed a:9/Error($a) r0", &[("a", &d)]);
        stage.shows(&before, "Failed a:5/Error($a) r0", &[("a", &b)]);
        stage.shows(&started, "Running a:running($a) r0 ready", &[("a", &s)]);
        // The connection is tried again after 2 s at the latest; then two lists must do.
        let limit = Duration::from_secs(2) + 2 * RELIST + Duration::from_secs(1);
        assert!(back.elapsed() < limit, "right again after {:?}", back.elapsed());
        for ((uid, a), told) in steady.iter().zip(told) {
            assert_eq!(get(&stage.server, uid), format!("Running a:running({a}) r0 ready"));
            assert_eq!(stage.watch.history(uid).len(), told, "{uid}: {:?}", stage.watch.history(uid));
        }
    }
}
