//! The reactor as its clients see it, over both drivers, with a small protocol of its own.

mod lifecycle;
mod serving;
mod stress;

use super::testing::eventually;
use super::{
    Accept, Close, DriverKind, Listener, ListenerConfig, Outgoing, Protocol, Reactor, ReactorConfig,
    Transport,
};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io::{Read as _, Write as _};
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::task::Waker;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Runs each test once per driver.
macro_rules! over_both_drivers {
    ($($(#[$attribute:meta])* fn $name:ident($transport:ident) $body:block)+) => {
        mod io_uring {
            use super::*;
            $(#[test] $(#[$attribute])* fn $name() { let $transport = Transport::IoUring; $body })+
        }
        mod epoll {
            use super::*;
            $(#[test] $(#[$attribute])* fn $name() { let $transport = Transport::Epoll; $body })+
        }
    };
}
use over_both_drivers;

/// A reactor that speaks the test protocol on a socket in a directory of its own.
struct Server {
    // Before the directory that its socket is in.
    reactor: Reactor,
    path: PathBuf,
    world: Arc<World>,
    _directory: Option<TempDir>,
}

/// What the protocols of a server share with the test.
#[derive(Default)]
struct World {
    /// Sent by watching connections whenever it has changed.
    value: AtomicU64,
    wakers: Mutex<Vec<Waker>>,
}

impl World {
    /// Sets the value and tells every worker, as the writer of a log does.
    fn publish(&self, value: u64) {
        self.value.store(value, Ordering::Relaxed);
        for waker in &*self.wakers.lock().unwrap() {
            waker.wake_by_ref();
        }
    }
}

impl Server {
    fn start(transport: Transport) -> Self {
        Self::with(ReactorConfig { transport, ..ReactorConfig::default() })
    }

    fn with(config: ReactorConfig) -> Self {
        let directory = TempDir::new().unwrap();
        let server = Self::at(directory.path(), config);
        Self { _directory: Some(directory), ..server }
    }

    fn at(directory: &Path, config: ReactorConfig) -> Self {
        // Made here, lest a worker be busy with it when its timers are checked.
        pattern(0, 0);
        let path = directory.join("test.sock");
        let world = Arc::new(World::default());
        let listener = Listener::bind(ListenerConfig::new(&path)).unwrap();
        let reactor = Reactor::spawn(listener, TestAccept(Arc::clone(&world)), config).unwrap();
        Self { reactor, path, world, _directory: None }
    }

    fn connect(&self) -> UnixStream {
        let client = UnixStream::connect(&self.path).unwrap();
        client.set_read_timeout(Some(super::testing::PATIENCE)).unwrap();
        client.set_write_timeout(Some(super::testing::PATIENCE)).unwrap();
        client
    }

    fn closed_for(&self, cause: Close) -> u64 {
        self.reactor.status().workers.iter().map(|worker| worker.counters.closed_for(cause)).sum()
    }

    fn total(&self, counter: impl Fn(&super::Counters) -> u64) -> u64 {
        self.reactor.status().workers.iter().map(|worker| counter(&worker.counters)).sum()
    }
}

/// Sends a command of the test protocol.
fn command(client: &mut UnixStream, command: u8, number: u32) {
    let mut message = [command; 5];
    message[1..].copy_from_slice(&number.to_be_bytes());
    client.write_all(&message).unwrap();
}

/// Asks for an answer and sees that the connection works.
#[track_caller]
fn assert_answers(client: &mut UnixStream) {
    command(client, b's', 3);
    let mut answer = [0; 3];
    client.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [0, 1, 2]);
}

/// Reads to the end and sees that it is the pattern, `length` bytes of it.
#[track_caller]
fn assert_pattern_and_end(mut client: UnixStream, length: usize) {
    let mut received = Vec::new();
    client.read_to_end(&mut received).unwrap();
    assert_eq!(received.len(), length);
    assert_pattern(&received, 0);
}

#[track_caller]
fn assert_pattern(bytes: &[u8], from: usize) {
    if bytes != pattern(from, bytes.len()) {
        let wrong = bytes.iter().enumerate().find(|(index, byte)| [**byte] != *pattern(from + index, 1));
        panic!("wrong from {wrong:?} on");
    }
}

/// What the server sends at a position. Its period is a prime, so that a shifted or repeated piece shows.
fn pattern(from: usize, length: usize) -> Bytes {
    static PATTERN: LazyLock<Bytes> =
        LazyLock::new(|| (0..PERIOD + (12 << 20)).map(|position| (position % PERIOD) as u8).collect());
    const PERIOD: usize = 251;
    PATTERN.slice(from % PERIOD..from % PERIOD + length)
}

/// The test protocol: commands of five bytes, a letter and a number.
///
/// `s` sends so many bytes of the pattern, in pieces of at most the number that `c` has set; `e` echoes all that
/// follows; `w` sends the world's value, 8 bytes, now and after each change; `n` does so from the next change on, which is
/// so many and comes at once; `t` sends `t` after so many
/// milliseconds; `q` ends the connection; `h` keeps it open through a shutdown; `p` panics.
struct TestProtocol {
    world: Arc<World>,
    input: Vec<u8>,
    output: VecDeque<Bytes>,
    piece: usize,
    is_echo: bool,
    /// The value last sent, in a connection that watches.
    watched: Option<u64>,
    deadline: Option<Instant>,
    has_quit: bool,
    hangs: bool,
}

struct TestAccept(Arc<World>);

impl Accept for TestAccept {
    type Protocol = TestProtocol;

    fn accept(&self, socket: BorrowedFd<'_>, waker: &Waker, _: Instant) -> TestProtocol {
        let peer = rustix::net::sockopt::socket_peercred(socket).unwrap();
        assert_eq!(peer.pid, rustix::process::getpid());
        let mut wakers = self.0.wakers.lock().unwrap();
        if !wakers.iter().any(|known| known.will_wake(waker)) {
            wakers.push(waker.clone());
        }
        TestProtocol {
            world: Arc::clone(&self.0),
            input: Vec::new(),
            output: VecDeque::new(),
            piece: 64 * 1024,
            is_echo: false,
            watched: None,
            deadline: None,
            has_quit: false,
            hangs: false,
        }
    }
}

impl TestProtocol {
    fn run(&mut self, letter: u8, number: usize, now: Instant) {
        match letter {
            b's' => {
                let mut from = 0;
                while from < number {
                    let length = self.piece.min(number - from);
                    self.output.push_back(pattern(from, length));
                    from += length;
                }
            }
            b'c' => self.piece = number,
            b'e' => self.is_echo = true,
            b'w' => self.watched = Some(u64::MAX),
            b'n' => {
                // As when another thread answers a request before the worker has come back from receiving it.
                self.watched = Some(self.world.value.load(Ordering::Relaxed));
                return self.world.publish(number as u64);
            }
            b't' => self.deadline = Some(now + Duration::from_millis(number as u64)),
            b'q' => self.has_quit = true,
            b'h' => self.hangs = true,
            letter => panic!("asked to panic by {letter}"),
        }
        self.wake(now);
    }
}

impl Protocol for TestProtocol {
    fn receive(&mut self, bytes: &[u8], now: Instant) {
        self.input.extend_from_slice(bytes);
        while !self.is_echo && self.input.len() >= 5 {
            let rest = self.input.split_off(5);
            let message = std::mem::replace(&mut self.input, rest);
            let number = u32::from_be_bytes(message[1..].try_into().unwrap());
            self.run(message[0], number as usize, now);
        }
        if self.is_echo && !self.input.is_empty() {
            self.output.push_back(std::mem::take(&mut self.input).into());
        }
    }

    fn receive_end(&mut self, _: Instant) {
        self.has_quit = true;
    }

    fn wake(&mut self, _: Instant) {
        if let Some(seen) = &mut self.watched {
            let value = self.world.value.load(Ordering::Relaxed);
            if std::mem::replace(seen, value) != value {
                self.output.push_back(value.to_be_bytes().to_vec().into());
            }
        }
    }

    fn wants_wake(&self) -> bool {
        self.watched.is_some()
    }

    fn gather(&mut self, out: &mut Outgoing, budget: usize, _: Instant) {
        while out.len() < budget
            && let Some(piece) = self.output.pop_front()
        {
            out.push(piece);
        }
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    fn timeout(&mut self, now: Instant) {
        assert!(self.deadline.take().is_some_and(|deadline| deadline <= now));
        self.output.push_back(Bytes::from_static(b"t"));
    }

    fn shutdown(&mut self, _: Instant) {
        self.has_quit |= !self.hangs;
    }

    fn is_done(&self) -> bool {
        self.has_quit && self.output.is_empty()
    }
}
