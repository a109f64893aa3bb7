//! Sockets: a set of connections to one server, multiplexed with epoll.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, bail};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};

use crate::client::{Call, Connection, Event, Session, Settings};
use crate::floor::FloorSession;
use crate::measure::Meter;

const READ_BYTES: usize = 256 * 1024;
/// A server that sends nothing for so long while something is awaited has failed.
const STALL: Duration = Duration::from_secs(20);

/// The protocol a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Protocol {
    Http2,
    Floor,
}

/// Where and how to reach a server.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(crate) socket: PathBuf,
    pub(crate) protocol: Protocol,
    pub(crate) settings: Settings,
    /// The server's process, if its cost is to be measured.
    pub(crate) pid: Option<u32>,
    /// Whether the server's system calls are counted, which slows it down.
    pub(crate) count_syscalls: bool,
}

impl Target {
    /// Begins a measurement of the server and of this process.
    pub(super) fn meter(&self) -> anyhow::Result<Meter> {
        Meter::start(self.pid, self.count_syscalls)
    }
}

/// Open connections to one server.
pub(crate) struct Channels {
    epoll: OwnedFd,
    channels: Vec<Channel>,
    events: Vec<epoll::Event>,
    ready: Vec<usize>,
    buffer: Vec<u8>,
    blocking: bool,
}

struct Channel {
    stream: UnixStream,
    session: Box<dyn Session>,
    awaits_room: bool,
}

impl Channels {
    pub(crate) fn connect(target: &Target, count: usize) -> anyhow::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut channels = Vec::with_capacity(count);
        for index in 0..count {
            let stream = UnixStream::connect(&target.socket)
                .with_context(|| format!("connecting to {} ({index} are open)", target.socket.display()))?;
            stream.set_nonblocking(true)?;
            epoll::add(&epoll, &stream, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)?;
            let session: Box<dyn Session> = match target.protocol {
                Protocol::Http2 => Box::new(Connection::new(target.settings)),
                Protocol::Floor => Box::new(FloorSession::new(target.settings.capture_bytes)),
            };
            channels.push(Channel { stream, session, awaits_room: false });
        }
        Ok(Self {
            epoll,
            channels,
            events: Vec::with_capacity(count.clamp(1, 1024)),
            ready: Vec::new(),
            buffer: vec![0; READ_BYTES],
            blocking: false,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.channels.len()
    }

    /// Waits in `read` instead of epoll, which saves a lone connection two system calls per answer.
    pub(crate) fn block_on_read(&mut self) -> anyhow::Result<()> {
        if let [channel] = &mut self.channels[..] {
            channel.stream.set_nonblocking(false)?;
            channel.stream.set_read_timeout(Some(STALL))?;
            self.blocking = true;
        }
        Ok(())
    }

    /// Queues a call; [`Channels::flush`] sends it. False when the peer has no room for it now.
    pub(crate) fn start(&mut self, channel: usize, call: &Call, tag: u64) -> bool {
        self.channels[channel].session.start(call, tag)
    }

    /// Waits until a connection has something to read or room for what could not be written; returns which.
    ///
    /// Without a timeout a silence of 20 s is an error.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> anyhow::Result<Vec<usize>> {
        let mut ready = std::mem::take(&mut self.ready);
        ready.clear();
        if self.blocking {
            ready.push(0);
            return Ok(ready);
        }
        // epoll_wait counts milliseconds; ppoll on the epoll descriptor takes nanoseconds.
        let limit = timeout.unwrap_or(STALL);
        if !limit.is_zero() {
            let timespec = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() };
            let mut descriptors = [PollFd::new(&self.epoll, PollFlags::IN)];
            let polled = rustix::io::retry_on_intr(|| poll(&mut descriptors, Some(&timespec)))?;
            if polled == 0 && timeout.is_none() {
                bail!("the server has sent nothing for {} s", STALL.as_secs());
            }
        }
        self.events.clear();
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut self.events), Some(&now))?;
        ready.extend(self.events.iter().map(|event| event.data.u64() as usize));
        Ok(ready)
    }

    /// Gives the list back, so that waiting allocates nothing.
    pub(crate) fn done_with(&mut self, ready: Vec<usize>) {
        self.ready = ready;
    }

    /// Reads once from a connection and reports what that completes.
    pub(crate) fn read(&mut self, channel: usize, on: &mut dyn FnMut(Event<'_>)) -> anyhow::Result<()> {
        let Channel { stream, session, .. } = &mut self.channels[channel];
        match stream.read(&mut self.buffer) {
            Ok(0) => bail!("the server closed connection {channel}"),
            Ok(read) => session.receive(&self.buffer[..read], on),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !self.blocking => Ok(()),
            Err(error) => Err(error).with_context(|| format!("reading from connection {channel}")),
        }
    }

    /// Writes what a connection has to send, as far as the socket takes it.
    pub(crate) fn flush(&mut self, channel: usize) -> anyhow::Result<()> {
        let Channel { stream, session, awaits_room } = &mut self.channels[channel];
        let output = session.output();
        let mut written = 0;
        while written < output.len() {
            match stream.write(&output[written..]) {
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => {
                    return Err(error).with_context(|| format!("writing to connection {channel}"));
                }
            }
        }
        output.drain(..written);
        let blocked = !output.is_empty();
        if blocked != *awaits_room {
            *awaits_room = blocked;
            let mut interest = epoll::EventFlags::IN;
            interest.set(epoll::EventFlags::OUT, blocked);
            epoll::modify(&self.epoll, &*stream, epoll::EventData::new_u64(channel as u64), interest)?;
        }
        Ok(())
    }
}
