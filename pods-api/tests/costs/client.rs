//! Calls and delivered events, as a worker serves them: one client's connection without a socket.

use pods_api::access::{Nowhere, Policy};
use pods_api::grpc::{Connection, Limits, Refusals, RequestCounters, Scope, Server, Shared};
use pods_api::http2::hpack::Encoder;
use pods_api::pod::{ByteMeter, PodStore, Published, SourceId, SourcePod, StoreConfig, Update};
use pods_api::transport::{Accept as _, Outgoing, Protocol as _};
use pods_api::watch::{Hub, HubConfig};
use pods_api_proto::k8s::io::api::core::v1::{Container, EnvVar, Pod, PodSpec};
use pods_api_proto::k8s::io::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use pods_api_proto::v1alpha1::GetPodRequest;
use prost::Message as _;
use std::num::NonZeroU32;
use std::os::fd::AsFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant};

use crate::allocations::allocations_of;

pub(crate) const PODS: usize = 100;
const CHANGING: usize = 7;
pub(crate) const MASK: &str = "metadata.name,metadata.namespace,metadata.labels,status.phase,status.podIPs";

/// What a client asks for, or gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exchange {
    Get,
    MaskedGet,
    List,
    MaskedList,
    /// An event at its watch.
    Event,
}

/// A server with pods, and one client's connection to it without a socket.
pub(crate) struct Client {
    connection: Connection,
    out: Outgoing,
    store: PodStore,
    woken: Arc<Woken>,
    next_stream: u32,
    version: usize,
    now: Instant,
    _socket: UnixStream,
    _runtime: tokio::runtime::Runtime,
}

/// Notes that the hub has woken the connection's worker.
#[derive(Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Release);
    }
}

impl Client {
    pub(crate) fn new() -> Self {
        // Builds the tables of the schema, once per process: not the cost of any one call.
        let _ = pods_api::wire::Mask::identity();
        let (snapshots, meter) = (Arc::new(Published::new(Arc::default())), ByteMeter::default());
        let (hub, publisher) = Hub::new(snapshots.clone(), meter.clone(), HubConfig::default());
        let (store, thread) = PodStore::spawn(&StoreConfig::default(), snapshots, meter, publisher).unwrap();
        // It ends with the process.
        std::mem::forget(thread);
        let unlimited = NonZeroU32::new(1_000_000_000).unwrap();
        let shared = Shared {
            store: store.clone(),
            hub,
            policy: Policy::for_root_and(rustix::process::geteuid().as_raw()),
            identify: Arc::new(Nowhere),
            locate: Arc::new(Nowhere),
            refusals: Refusals::default(),
            limits: Limits::new(Scope::Server, unlimited, unlimited),
            counters: RequestCounters::default(),
            watch_buffer: 1024,
        };
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let server =
            Server::new(Arc::new(shared), tonic::service::Routes::default(), runtime.handle().clone());
        let (socket, _) = UnixStream::pair().unwrap();
        let (now, woken) = (Instant::now(), Arc::<Woken>::default());
        let connection = server.acceptor().accept(socket.as_fd(), &Waker::from(woken.clone()), now);
        let mut client = Self {
            connection,
            out: Outgoing::default(),
            store,
            woken,
            next_stream: 1,
            version: 0,
            now,
            _socket: socket,
            _runtime: runtime,
        };
        client.publish();
        // SETTINGS and WINDOW_UPDATE that open all windows.
        let mut hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
        hello.extend(frame(4, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]));
        hello.extend(frame(8, 0, 0, &(i32::MAX - 65_535).to_be_bytes()));
        hello.extend(frame(4, 1, 0, &[]));
        client.serve(&hello);
        let watch = client.request("/v1alpha1.Pods/WatchPods", &[], None);
        client.serve(&watch);
        client
    }

    /// Runs an operation; returns the allocations of the worker's part in it.
    pub(crate) fn run(&mut self, operation: Exchange) -> u64 {
        let get = GetPodRequest { pod_uid: uid(CHANGING) }.encode_to_vec();
        let request = match operation {
            Exchange::Get => self.request("/v1alpha1.Pods/GetPod", &get, None),
            Exchange::MaskedGet => self.request("/v1alpha1.Pods/GetPod", &get, Some(MASK)),
            Exchange::List => self.request("/v1alpha1.Pods/ListPods", &[], None),
            Exchange::MaskedList => self.request("/v1alpha1.Pods/ListPods", &[], Some(MASK)),
            Exchange::Event => {
                self.woken.0.store(false, Ordering::Relaxed);
                self.publish();
                while !self.woken.0.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                Vec::new()
            }
        };
        let serve = match operation {
            Exchange::Get => get_counted,
            Exchange::MaskedGet => masked_get_counted,
            Exchange::List => list_counted,
            Exchange::MaskedList => masked_list_counted,
            Exchange::Event => event_counted,
        };
        let (sent, allocations) = allocations_of(|| serve(self, &request));
        assert!(sent > 100, "{operation:?} sent {sent} bytes");
        allocations
    }

    /// What the worker does: takes received bytes, or a wake-up if there are none, and sends all there is to send.
    fn serve(&mut self, bytes: &[u8]) -> usize {
        if bytes.is_empty() {
            self.connection.wake(self.now);
        } else {
            self.connection.receive(bytes, self.now);
        }
        let mut sent = 0;
        loop {
            self.connection.gather(&mut self.out, 256 * 1024, self.now);
            let length = self.out.len();
            if length == 0 {
                return sent;
            }
            self.out.advance(length);
            sent += length;
        }
    }

    /// A whole request on a new stream, and the window that its answer will use.
    fn request(&mut self, path: &str, message: &[u8], mask: Option<&str>) -> Vec<u8> {
        let mut block = Encoder::default();
        let mut fields = vec![
            (":method", "POST"),
            (":scheme", "http"),
            (":path", path),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ];
        fields.extend(mask.map(|mask| ("x-kubernetes-fieldmask", mask)));
        fields.iter().for_each(|(name, value)| block.field(name.as_bytes(), value.as_bytes()));
        let stream = self.next_stream;
        self.next_stream += 2;
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        let mut request = frame(1, 4, stream, &block.finish());
        request.extend(frame(0, 1, stream, &[&[0], &length[..], message].concat()));
        request
    }

    /// Changes one pod and waits until the snapshot has it.
    fn publish(&mut self) {
        self.version += 1;
        let version = self.version;
        let pods =
            (0..PODS).map(|number| pod(number, if number == CHANGING { version } else { 0 })).collect();
        let revision = self.store.load().revision();
        self.store.updates().send(Update::Set { source: SourceId::Manifest, pods }).unwrap();
        let deadline = Instant::now() + Duration::from_secs(120);
        while self.store.load().revision() == revision || !self.store.readiness().is_ready() {
            assert!(Instant::now() < deadline, "the change is published");
            std::thread::yield_now();
        }
    }
}

/// [`Client::serve`] under the names that callgrind counts.
macro_rules! counted {
    ($($name:ident)*) => {
        $(#[inline(never)]
        fn $name(client: &mut Client, bytes: &[u8]) -> usize {
            client.serve(bytes)
        })*
    };
}

counted! { get_counted masked_get_counted list_counted masked_list_counted event_counted }

fn uid(number: usize) -> String {
    format!("{number:08x}-0000-4000-8000-000000000000")
}

/// A pod of about 6 kB.
pub(crate) fn pod(number: usize, version: usize) -> SourcePod {
    let (name, namespace) = (format!("pod-{number}"), format!("team-{}", number % 7));
    let variable = |index| EnvVar {
        name: Some(format!("VARIABLE_{index}")),
        value: Some("v".repeat(80)),
        ..Default::default()
    };
    let container = |index| Container {
        name: Some(format!("container-{index}")),
        image: Some("registry.example/team/app:1.2.3".into()),
        env: (0..20).map(variable).collect(),
        ..Default::default()
    };
    let labels = [("app".to_owned(), "web".to_owned()), ("version".to_owned(), version.to_string())];
    let pod = Pod {
        metadata: Some(ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(namespace.clone()),
            uid: Some(uid(number)),
            labels: labels.into(),
            ..Default::default()
        }),
        spec: Some(PodSpec { containers: (0..3).map(container).collect(), ..Default::default() }),
        ..Default::default()
    };
    SourcePod {
        uid: uid(number).into(),
        namespace: namespace.into(),
        name: name.into(),
        is_uid_provisional: false,
        pod: pod.encode_to_vec().into(),
    }
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}
