//! Following the runtime's events takes none away from others who follow them: the kubelet is one.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pods_api_proto::containerd::events::TaskExit;
use pods_api_proto::containerd::services::events::v1::SubscribeRequest;
use pods_api_proto::containerd::services::events::v1::events_client::EventsClient;
use pods_api_proto::runtime::v1 as cri;
use pods_api_proto::runtime::v1::runtime_service_client::RuntimeServiceClient;
use prost::Message as _;
use tokio::sync::mpsc;

use super::Stage;
use crate::harness::{PATIENCE, cannot_run, eventually};
use crate::runtime::node::{self, IMAGE, Recipe, SandboxOptions, missing};

const CONTAINERS: usize = 12;

type Seen = Arc<Mutex<Vec<String>>>;

#[test]
fn every_subscriber_gets_every_event() {
    if let Some(why) = missing() {
        return cannot_run(&why);
    }
    let mut stage = Stage::new();
    let version = stage.node.kubelet().version().unwrap();
    let socket = stage.node.socket();
    let mut subscribers = vec![follow_native(&socket), follow_native(&socket)];
    // Where CRI's stream is split among its readers, the one reader must be the kubelet.
    if !version.starts_with("1.6") {
        subscribers.push(follow_cri(&socket));
    }
    let uid = "crowd";
    let names: Vec<_> = (0..CONTAINERS).map(|number| format!("c{number:02}")).collect();
    let containers: Vec<_> = names.iter().map(|name| format!("{{name: {name}, image: '{IMAGE}'}}")).collect();
    stage.pod(uid, &format!("restartPolicy: Never, containers: [{}]", containers.join(", ")));
    let options = SandboxOptions { is_host_network: true, ..SandboxOptions::default() };
    let sandbox = stage.node.sandbox(uid, uid, 0, options);
    // An exit that is repeated until all have it shows that all subscriptions stand.
    let mut attempt = 0;
    eventually("the subscriptions", PATIENCE, || {
        let probe = Recipe { attempt, ..Recipe::shell("probe", &["/bin/sh", "-c", "exit 0"]) };
        let probe = stage.node.run(&sandbox, &probe);
        attempt += 1;
        let have_it = || subscribers.iter().all(|seen: &Seen| seen.lock().unwrap().contains(&probe));
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end && !have_it() {
            std::thread::sleep(Duration::from_millis(5));
        }
        have_it().then_some(())
    });
    let mut ids = Vec::new();
    let mut shown = String::from("Failed");
    for (number, name) in names.iter().enumerate() {
        let script = format!("exit {number}");
        let id = stage.node.run(&sandbox, &Recipe::shell(name, &["/bin/sh", "-c", &script]));
        let reason = if number == 0 { "Completed" } else { "Error" };
        shown.push_str(&format!(" {name}:{number}/{reason}({id}) r0"));
        ids.push(id);
    }
    stage.shows(uid, &shown, &[]);
    for (number, subscriber) in subscribers.iter().enumerate() {
        eventually(&format!("subscriber {number} to have every exit"), PATIENCE, || {
            let seen = subscriber.lock().unwrap();
            ids.iter().all(|id| seen.contains(id)).then_some(())
        });
    }
    // The server had them too, and not by its lists, which are 30 s apart.
    assert!(stage.server.http("/readyz?verbose").1.contains("events: containerd"));
    eprintln!("containerd {version}: {} subscribers beside the server", subscribers.len());
}

fn follow_native(socket: &Path) -> Seen {
    follow(socket, |channel, into| async move {
        let filters = vec!["topic==\"/tasks/exit\"".to_owned()];
        let mut events =
            EventsClient::new(channel).subscribe(SubscribeRequest { filters }).await.ok()?.into_inner();
        while let Some(envelope) = events.message().await.ok()? {
            into.send(TaskExit::decode(&*envelope.event?.value).ok()?.container_id).ok()?;
        }
        None
    })
}

fn follow_cri(socket: &Path) -> Seen {
    follow(socket, |channel, into| async move {
        let mut client = RuntimeServiceClient::new(channel);
        let events = client.get_container_events(cri::GetEventsRequest {}).await.ok()?;
        let mut events = events.into_inner();
        while let Some(event) = events.message().await.ok()? {
            if event.container_event_type() == cri::ContainerEventType::ContainerStoppedEvent {
                into.send(event.container_id).ok()?;
            }
        }
        None
    })
}

/// Collects what a subscriber on a connection of its own sends. Ends with the runtime.
fn follow<F: Future<Output = Option<()>>>(
    socket: &Path,
    subscribe: impl FnOnce(tonic::transport::Channel, mpsc::UnboundedSender<String>) -> F + Send + 'static,
) -> Seen {
    let seen = Seen::default();
    let (socket, into) = (socket.to_owned(), seen.clone());
    std::thread::spawn(move || {
        node::executor().block_on(async {
            let channel = node::connect(&socket).await.unwrap();
            let (sender, mut receiver) = mpsc::unbounded_channel();
            let collect = async {
                while let Some(id) = receiver.recv().await {
                    into.lock().unwrap().push(id);
                }
            };
            tokio::join!(subscribe(channel, sender), collect);
        });
    });
    seen
}
