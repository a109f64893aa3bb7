//! Start, loss of the driver, shortage, loss of the socket, end.

use super::super::testing::{Helper, helper_directory, refuse};
use super::*;
use crate::transport::{Rebound, RingError, StartError};
use std::os::fd::AsRawFd as _;
use std::thread;

const THIS: &str = "transport::tests::lifecycle";

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

over_both_drivers! {
    fn shutdown_lets_connections_finish_and_removes_the_socket_first(transport) {
        let server = Server::start(transport);
        let mut busy = server.connect();
        command(&mut busy, b's', 4 << 20);
        let mut some = vec![0; 1000];
        busy.read_exact(&mut some).unwrap();
        let path = server.path.clone();
        let reading = thread::spawn(move || {
            eventually("the socket is removed", || !path.exists());
            assert!(UnixStream::connect(&path).is_err());
            let mut rest = Vec::new();
            busy.read_to_end(&mut rest).unwrap();
            assert_eq!(rest.len(), (4 << 20) - 1000);
            assert_pattern(&rest, 1000);
        });
        let drained = server.reactor.shutdown(Duration::from_secs(20));
        assert!(drained.in_time && !drained.has_panicked);
        reading.join().unwrap();
    }

    fn shutdown_cuts_what_does_not_finish_in_time(transport) {
        let server = Server::start(transport);
        let mut hanging = server.connect();
        command(&mut hanging, b'h', 0);
        assert_answers(&mut hanging);
        let mut stalled = server.connect();
        command(&mut stalled, b's', 4 << 20);
        eventually("it is stuck", || server.total(|counters| counters.bytes_sent) > 1000);
        let started = Instant::now();
        let drained = server.reactor.shutdown(Duration::from_millis(100));
        assert!(!drained.in_time && !drained.has_panicked);
        assert!(started.elapsed() >= Duration::from_millis(100));
        assert_eq!(hanging.read(&mut [0]).unwrap(), 0);
    }

    fn dropping_the_reactor_closes_everything(transport) {
        let server = Server::start(transport);
        let mut client = server.connect();
        assert_answers(&mut client);
        drop(server);
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    }

    // SOCK-5
    fn a_deleted_socket_comes_back_and_old_connections_live_on(transport) {
        let server = Server::start(transport);
        let mut old = server.connect();
        assert_answers(&mut old);
        assert_eq!(server.reactor.check_listener().unwrap(), None);
        for _ in 0..3 {
            // In the backlog of the socket that is about to be given up, perhaps.
            let mut waiting = server.connect();
            std::fs::remove_file(&server.path).unwrap();
            assert_eq!(server.reactor.check_listener().unwrap(), Some(Rebound::SocketDeleted));
            let mut new = server.connect();
            assert_answers(&mut new);
            assert_answers(&mut waiting);
            assert_answers(&mut old);
        }
    }

    fn a_worker_that_panics_is_told(transport) {
        let server = Server::with(ReactorConfig { transport, workers: 2, ..ReactorConfig::default() });
        let mut clients = [server.connect(), server.connect()];
        clients.iter_mut().for_each(assert_answers);
        command(&mut clients[1], b'p', 0);
        eventually("the worker has ended", || !server.reactor.status().workers[1].is_running);
        // The accepting one goes on and gives the other one nothing more.
        assert!(server.reactor.status().accepting);
        let mut more = [server.connect(), server.connect(), server.connect()];
        more.iter_mut().for_each(assert_answers);
        assert!(server.reactor.shutdown(Duration::from_secs(20)).has_panicked);
    }

    fn nothing_is_left_open(transport) {
        let root = TempDir::new().unwrap();
        let name = if transport == Transport::Epoll { "epoll" } else { "io_uring" };
        Helper::start(&format!("{THIS}::helper_leaves_nothing_open_on_{name}"), root.path()).passes();
    }

    // SOCK-4
    fn accepting_pauses_without_descriptors_and_recovers(transport) {
        let root = TempDir::new().unwrap();
        let name = if transport == Transport::Epoll { "epoll" } else { "io_uring" };
        Helper::start(&format!("{THIS}::helper_runs_out_of_descriptors_on_{name}"), root.path()).passes();
    }
}

// URING-1
#[test]
fn a_ring_refused_by_seccomp_means_epoll_and_is_named() {
    let root = TempDir::new().unwrap();
    Helper::start(&format!("{THIS}::helper_is_refused_a_ring"), root.path()).passes();
}

// URING-2, URING-3
#[test]
fn a_ring_that_fails_later_hands_its_connections_to_epoll() {
    let root = TempDir::new().unwrap();
    Helper::start(&format!("{THIS}::helper_loses_its_ring"), root.path()).passes();
}

fn leaves_nothing_open(transport: Transport) {
    let before = open_descriptors();
    for _ in 0..5 {
        let server = Server::at(&helper_directory(), ReactorConfig { transport, ..ReactorConfig::default() });
        let mut clients: Vec<_> = (0..50).map(|_| server.connect()).collect();
        clients.iter_mut().for_each(assert_answers);
        for client in &mut clients[..10] {
            command(client, b's', 4 << 20);
        }
        clients.truncate(20);
        let Server { reactor, world, .. } = server;
        reactor.shutdown(Duration::from_millis(50));
        // The wakers that a test keeps are its own affair.
        drop((clients, world));
        assert_eq!(open_descriptors(), before);
    }
    assert_eq!(std::fs::read_dir(helper_directory()).unwrap().count(), 0);
}

#[test]
#[ignore = "runs in a process of its own, started by other tests"]
fn helper_leaves_nothing_open_on_io_uring() {
    leaves_nothing_open(Transport::IoUring);
}

#[test]
#[ignore = "runs in a process of its own, started by other tests"]
fn helper_leaves_nothing_open_on_epoll() {
    leaves_nothing_open(Transport::Epoll);
}

fn runs_out_of_descriptors(transport: Transport) {
    use rustix::net::{AddressFamily, SocketType};
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    // The clients' ends are in this process too: all are made before the limit falls, and connected after.
    let sockets: Vec<_> = (0..40)
        .map(|_| rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None).unwrap())
        .collect();
    let next = rustix::io::fcntl_dupfd_cloexec(&sockets[0], 0).unwrap();
    let limit = next.as_raw_fd() as u64 + 20;
    drop(next);
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: Some(limit), maximum }).unwrap();
    let server = Server::at(&helper_directory(), ReactorConfig { transport, ..ReactorConfig::default() });

    let address = rustix::net::SocketAddrUnix::new(&server.path).unwrap();
    let mut clients: Vec<UnixStream> = sockets
        .into_iter()
        .map(|socket| {
            rustix::net::connect(&socket, &address).unwrap();
            socket.into()
        })
        .collect();
    eventually("accepting is paused", || !server.reactor.status().accepting);
    let served = server.reactor.status().connections;
    assert!(served < 20, "{served} served");
    assert!(server.total(|counters| counters.accept_pauses) > 0);
    for client in &mut clients[..served] {
        assert_answers(client);
    }
    // Those that wait get their turn as the served ones go, long before any timer of theirs.
    for mut client in clients.drain(..) {
        assert_answers(&mut client);
    }
    eventually("accepting goes on", || server.reactor.status().accepting);
    assert_eq!(server.total(|counters| counters.connections), 40);
    assert_eq!(server.total(|counters| counters.refused), 0);
}

#[test]
#[ignore = "runs in a process of its own, started by other tests"]
fn helper_runs_out_of_descriptors_on_io_uring() {
    runs_out_of_descriptors(Transport::IoUring);
}

#[test]
#[ignore = "runs in a process of its own, started by other tests"]
fn helper_runs_out_of_descriptors_on_epoll() {
    runs_out_of_descriptors(Transport::Epoll);
}

#[test]
#[ignore = "runs in a process of its own, started by other tests"]
fn helper_is_refused_a_ring() {
    refuse(libc::SYS_io_uring_setup);
    let server = Server::at(&helper_directory(), ReactorConfig::default());
    for worker in &server.reactor.status().workers {
        assert_eq!(worker.driver, DriverKind::Epoll);
        let refusal = worker.refusal.as_deref();
        assert!(matches!(refusal, Some(RingError::Seccomp { call: "io_uring_setup" })), "{refusal:?}");
    }
    let mut client = server.connect();
    assert_answers(&mut client);
    drop(server);

    let listener = Listener::bind(ListenerConfig::new(helper_directory().join("test.sock"))).unwrap();
    let config = ReactorConfig { transport: Transport::IoUring, ..ReactorConfig::default() };
    let accept = TestAccept(Arc::default());
    let Err(StartError::IoUring(cause)) = Reactor::spawn(listener, accept, config) else { panic!("started") };
    assert!(cause.to_string().contains("seccomp"), "{cause}");
    assert!(!helper_directory().join("test.sock").exists());
}

#[test]
#[ignore = "runs in a process of its own, started by other tests"]
fn helper_loses_its_ring() {
    let server = Server::at(&helper_directory(), ReactorConfig::default());
    assert!(server.reactor.status().workers.iter().all(|worker| worker.driver == DriverKind::IoUring));
    let mut idle: Vec<_> = (0..20).map(|_| server.connect()).collect();
    idle.iter_mut().for_each(assert_answers);
    let mut watching = server.connect();
    command(&mut watching, b'w', 0);
    watching.read_exact(&mut [0; 8]).unwrap();
    let mut sending: Vec<_> = (0..4).map(|_| server.connect()).collect();
    for client in &mut sending {
        command(client, b's', 4 << 20);
        client.read_exact(&mut [0; 100]).unwrap();
    }
    let open = server.reactor.status().connections;

    refuse(libc::SYS_io_uring_enter);
    // The answers to these are what the rings fail at.
    for client in &mut idle {
        assert_answers(client);
    }
    server.world.publish(7);
    let mut value = [0; 8];
    watching.read_exact(&mut value).unwrap();
    assert_eq!(u64::from_be_bytes(value), 7);
    for (index, client) in sending.iter_mut().enumerate() {
        let mut rest = vec![0; (4 << 20) - 100];
        client.read_exact(&mut rest).unwrap_or_else(|error| panic!("connection {index}: {error}"));
        assert_pattern(&rest, 100);
        assert_answers(client);
    }
    let status = server.reactor.status();
    for worker in &status.workers {
        assert_eq!(worker.driver, DriverKind::Epoll);
        let refusal = worker.refusal.as_deref();
        assert!(matches!(refusal, Some(RingError::Seccomp { call: "io_uring_enter" })), "{refusal:?}");
    }
    assert_eq!((status.connections, server.closed_for(Close::DriverFailed)), (open, 0));
    let mut new = server.connect();
    assert_answers(&mut new);
    assert!(server.reactor.shutdown(Duration::from_secs(20)).in_time);
}
