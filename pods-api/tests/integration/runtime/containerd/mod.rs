//! The whole server beside a real containerd, with a watch that remembers what it saw.

mod away;
mod life;
mod rest;
mod starts;
mod subscribers;

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pods_api_proto::v1alpha1::pods_client::PodsClient;
use pods_api_proto::v1alpha1::{GetPodRequest, WatchPodsRequest};

use super::bench::describe;
use super::node::{self, IMAGE, Node, Recipe, SandboxOptions};
use crate::harness::{PATIENCE, Server, Setup, eventually};

const FOREVER: &[&str] = &["/bin/sh", "-c", "while :; do sleep 1000; done"];
const WAITS: &str = "Pending a:waiting(ContainerCreating) r0";

/// The server, a watch on it, and the runtime.
struct Stage {
    server: Server,
    watch: Watch,
    node: Node,
}

impl Stage {
    fn new() -> Self {
        let node = Node::start();
        let setup = Setup::new().argument("--rate-limit-qps=1000000").argument("--rate-limit-burst=1000000");
        Self::beside(node, setup)
    }

    /// Starts the server and the watch beside a containerd, and waits until the server follows its events.
    fn beside(node: Node, setup: Setup) -> Self {
        let server = setup.argument("--cri-socket").argument(node.socket().to_str().unwrap()).start();
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
    node::executor().block_on(async {
        let mut client = PodsClient::new(node::connect(&server.socket()).await.unwrap());
        match client.get_pod(GetPodRequest { pod_uid: uid.to_owned() }).await {
            Ok(answer) => describe(&answer.into_inner().pod),
            Err(status) => format!("{:?}", status.code()),
        }
    })
}

/// A watch that remembers what it saw of each pod. Ends with the server.
#[derive(Clone)]
struct Watch(Arc<Mutex<HashMap<String, Vec<String>>>>);

impl Watch {
    fn start(server: &Server) -> Self {
        let seen = Arc::new(Mutex::new(HashMap::<String, Vec<String>>::new()));
        let (socket, into) = (server.socket(), seen.clone());
        std::thread::spawn(move || {
            node::executor().block_on(async {
                let mut client = PodsClient::new(node::connect(&socket).await.unwrap());
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
        Self(seen)
    }

    fn history(&self, uid: &str) -> Vec<String> {
        self.0.lock().unwrap().get(uid).cloned().unwrap_or_default()
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

fn pod_ips(stage: &Stage, uid: &str) -> Vec<String> {
    let pod = pod(&stage.server, uid);
    pod.status.unwrap_or_default().pod_i_ps.iter().map(|pod| pod.ip().to_owned()).collect()
}

fn pod(server: &Server, uid: &str) -> pods_api_proto::k8s::io::api::core::v1::Pod {
    let bytes = node::executor().block_on(async {
        let mut client = PodsClient::new(node::connect(&server.socket()).await.unwrap());
        client.get_pod(GetPodRequest { pod_uid: uid.to_owned() }).await.unwrap().into_inner().pod
    });
    prost::Message::decode(bytes).unwrap()
}
