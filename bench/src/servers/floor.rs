//! The comparison server `floor`: one thread that writes stored bytes.
//!
//! It waits in epoll, answers up to `batch` requests with one vectored write, and writes each change to each
//! watching connection. Threads that block in `read` would need a system call less, but the kernel wakes such a
//! thread also whenever its client makes room in the socket, which costs more. Writes do block: the clients it is
//! measured with always read.

use std::collections::HashMap;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, mpsc};

use anyhow::Context as _;
use bytes::{BufMut as _, Bytes, BytesMut};
use pods_api_proto::v1alpha1::{EventType, GetPodResponse, ListPodsResponse, WatchPodsEvent};
use prost::Message as _;
use rustix::event::epoll;

use super::Pods;
use crate::floor::{self, KIND_GET, KIND_LIST, KIND_WATCH, REQUEST_BYTES};

const READ_BYTES: usize = 64 * 1024;
const MAX_READY: usize = 256;
/// UIO_MAXIOV: how many slices one writev takes.
const MAX_SLICES: usize = 1024;
const PREFIX_BYTES: usize = 5;
/// Key and length of a field.
const MAX_FIELD_HEADER_BYTES: usize = 11;
/// Lengths, prefix, type and the field header of the pod.
const MAX_EVENT_HEADER_BYTES: usize = floor::LENGTHS_BYTES + PREFIX_BYTES + 2 + MAX_FIELD_HEADER_BYTES;
static PADDING: [u8; 4096] = [0; 4096];

/// Keys in the epoll set; connections have those above.
const LISTENER: u64 = 0;
const CHANGES: u64 = 1;

pub(super) fn run(listener: &UnixListener, pods: &Arc<Pods>, batch: usize) -> anyhow::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    // The ingest thread sends changes through the channel and a byte through the socket pair, which epoll can see.
    let (sender, changes) = mpsc::channel();
    let (bell, rung) = UnixStream::pair()?;
    pods.listen(move |pod| {
        // The receiver lives as long as the process.
        let _ = sender.send(pod.clone());
        let _ = (&bell).write(&[0]);
    });
    for (descriptor, key) in [(listener.as_fd(), LISTENER), (rung.as_fd(), CHANGES)] {
        epoll::add(&epoll, descriptor, epoll::EventData::new_u64(key), epoll::EventFlags::IN)?;
    }
    let mut floor = Floor {
        epoll,
        pods: Arc::clone(pods),
        batch: batch.max(1),
        connections: HashMap::new(),
        next: CHANGES + 1,
        buffer: vec![0; READ_BYTES],
    };
    let mut ready = Vec::with_capacity(MAX_READY);
    loop {
        ready.clear();
        rustix::io::retry_on_intr(|| {
            epoll::wait(&floor.epoll, rustix::buffer::spare_capacity(&mut ready), None)
        })
        .context("waiting")?;
        for event in &ready {
            match event.data.u64() {
                LISTENER => floor.accept(listener.accept()?.0)?,
                CHANGES => {
                    let _ = (&rung).read(&mut [0; 64])?;
                    changes.try_iter().for_each(|pod| floor.fan_out(pod));
                }
                key => floor.serve(key),
            }
        }
    }
}

struct Floor {
    epoll: OwnedFd,
    pods: Arc<Pods>,
    batch: usize,
    connections: HashMap<u64, Connection>,
    next: u64,
    buffer: Vec<u8>,
}

struct Connection {
    stream: UnixStream,
    /// Start of a request whose rest has not arrived.
    partial: Vec<u8>,
    watches: bool,
}

impl Floor {
    fn accept(&mut self, stream: UnixStream) -> anyhow::Result<()> {
        epoll::add(&self.epoll, &stream, epoll::EventData::new_u64(self.next), epoll::EventFlags::IN)?;
        self.connections.insert(self.next, Connection { stream, partial: Vec::new(), watches: false });
        self.next += 1;
        Ok(())
    }

    fn fan_out(&mut self, pod: Bytes) {
        let mut parts = Vec::new();
        event(EventType::Modified, pod, &mut BytesMut::new(), &mut parts);
        // A client that has left shows in its own event as well.
        self.connections
            .retain(|_, connection| !connection.watches || write_all(&connection.stream, &parts).is_ok());
    }

    /// Answers what a connection asks; one that has ended or fails is closed.
    fn serve(&mut self, key: u64) {
        let Some(mut connection) = self.connections.remove(&key) else { return };
        if self.answer(&mut connection).is_ok() {
            self.connections.insert(key, connection);
        }
    }

    fn answer(&mut self, connection: &mut Connection) -> io::Result<()> {
        let read = (&connection.stream).read(&mut self.buffer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut requests = std::mem::take(&mut connection.partial);
        requests.extend_from_slice(&self.buffer[..read]);
        let mut responses = Vec::new();
        let mut answered = 0;
        for request in requests.chunks_exact(REQUEST_BYTES) {
            match request[0] {
                KIND_GET => self.get(request, &mut responses),
                KIND_LIST => self.list(&mut responses),
                KIND_WATCH => {
                    self.first_sync(&mut responses);
                    connection.watches = true;
                }
                kind => return Err(io::Error::other(format!("request of unknown kind {kind}"))),
            }
            answered += 1;
            if answered % self.batch == 0 {
                write_all(&connection.stream, &std::mem::take(&mut responses))?;
            }
        }
        write_all(&connection.stream, &responses)?;
        let whole = requests.len() - requests.len() % REQUEST_BYTES;
        requests.drain(..whole);
        connection.partial = requests;
        Ok(())
    }

    fn get(&self, request: &[u8], responses: &mut Vec<Bytes>) {
        let length = usize::from(request[1]).min(REQUEST_BYTES - 2);
        let uid = std::str::from_utf8(&request[2..2 + length]).unwrap_or_default();
        let pod = self.pods.get(uid).unwrap_or_default();
        let message_bytes = GetPodResponse { pod: pod.clone() }.encoded_len();
        unary_message(message_bytes, vec![pod], responses);
    }

    fn list(&self, responses: &mut Vec<Bytes>) {
        let pods = ListPodsResponse { pods: self.pods.list() };
        unary_message(pods.encoded_len(), pods.pods, responses);
    }

    fn first_sync(&self, responses: &mut Vec<Bytes>) {
        let pods = self.pods.list();
        let mut heads = BytesMut::with_capacity((pods.len() + 1) * MAX_EVENT_HEADER_BYTES);
        for pod in pods {
            event(EventType::Added, pod, &mut heads, responses);
        }
        event(EventType::InitialSyncComplete, Bytes::new(), &mut heads, responses);
    }
}

/// Appends a unary response whose message consists of `pods` as field 1; the pods' bytes are shared, not copied.
fn unary_message(message_bytes: usize, pods: Vec<Bytes>, responses: &mut Vec<Bytes>) {
    let framed_bytes = PREFIX_BYTES + message_bytes;
    let padding = floor::unary_padding(framed_bytes);
    // One allocation for all that precedes the pods; `split` hands out parts of it.
    let mut head =
        BytesMut::with_capacity(floor::LENGTHS_BYTES + PREFIX_BYTES + pods.len() * MAX_FIELD_HEADER_BYTES);
    head.put_slice(&floor::lengths(framed_bytes, padding));
    put_prefix(&mut head, message_bytes);
    for pod in pods {
        put_field_header(1, pod.len(), &mut head);
        responses.push(head.split().freeze());
        responses.push(pod);
    }
    if !head.is_empty() {
        responses.push(head.freeze());
    }
    put_padding(padding, responses);
}

/// Appends a WatchPodsEvent: its head, the pod's shared bytes, and padding.
fn event(kind: EventType, pod: Bytes, heads: &mut BytesMut, parts: &mut Vec<Bytes>) {
    let message_bytes = WatchPodsEvent { r#type: kind.into(), pod: pod.clone() }.encoded_len();
    let framed_bytes = PREFIX_BYTES + message_bytes;
    let padding = floor::stream_padding(framed_bytes);
    heads.put_slice(&floor::lengths(framed_bytes, padding));
    put_prefix(heads, message_bytes);
    prost::encoding::int32::encode(1, &kind.into(), heads);
    if pod.is_empty() {
        parts.push(heads.split().freeze());
    } else {
        put_field_header(2, pod.len(), heads);
        parts.extend([heads.split().freeze(), pod]);
    }
    put_padding(padding, parts);
}

/// Key and length of a field of bytes.
fn put_field_header(field: u32, length: usize, out: &mut BytesMut) {
    prost::encoding::encode_key(field, prost::encoding::WireType::LengthDelimited, out);
    prost::encoding::encode_varint(length as u64, out);
}

fn put_padding(mut bytes: usize, parts: &mut Vec<Bytes>) {
    while bytes > 0 {
        let part = bytes.min(PADDING.len());
        parts.push(Bytes::from_static(&PADDING[..part]));
        bytes -= part;
    }
}

fn put_prefix(out: &mut BytesMut, message_bytes: usize) {
    out.put_u8(0);
    out.put_u32(message_bytes as u32);
}

fn write_all(mut stream: &UnixStream, parts: &[Bytes]) -> io::Result<()> {
    for parts in parts.chunks(MAX_SLICES) {
        let mut slices: Vec<IoSlice<'_>> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let mut rest = &mut slices[..];
        while !rest.is_empty() {
            let written = stream.write_vectored(rest)?;
            IoSlice::advance_slices(&mut rest, written);
        }
    }
    Ok(())
}
