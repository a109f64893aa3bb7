//! The comparison server `floor`: blocking threads that write stored bytes.
//!
//! One thread per connection reads requests and answers up to `batch` of them with one vectored write, the fewest
//! system calls that answering allows. A watching connection is handed to the thread `fan-out`, which writes each
//! change to each of them.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut as _, Bytes, BytesMut};
use pods_api_proto::v1alpha1::{EventType, GetPodResponse, ListPodsResponse, WatchPodsEvent};
use prost::Message as _;
use tokio::sync::broadcast;

use super::Pods;
use crate::floor::{self, KIND_GET, KIND_LIST, KIND_WATCH, REQUEST_BYTES};

/// Every thread only holds a read buffer and a list of slices.
const STACK_BYTES: usize = 256 * 1024;
const READ_BYTES: usize = 64 * 1024;
/// UIO_MAXIOV: how many slices one writev takes.
const MAX_SLICES: usize = 1024;
const PREFIX_BYTES: usize = 5;
/// Key and length of a field.
const MAX_FIELD_HEADER_BYTES: usize = 11;
/// Lengths, prefix, type and the field header of the pod.
const MAX_EVENT_HEADER_BYTES: usize = floor::LENGTHS_BYTES + PREFIX_BYTES + 2 + MAX_FIELD_HEADER_BYTES;
static PADDING: [u8; 4096] = [0; 4096];

/// Connections that watch. The connection threads add to it, the thread `fan-out` writes to all.
type Watchers = Arc<Mutex<Vec<Arc<UnixStream>>>>;

pub(super) fn run(listener: &UnixListener, pods: &Arc<Pods>, batch: usize) -> anyhow::Result<()> {
    let watchers = Watchers::default();
    let (_, changes) = pods.subscribe();
    let fan_out_to = Arc::clone(&watchers);
    std::thread::Builder::new().name("fan-out".to_owned()).spawn(move || fan_out(changes, &fan_out_to))?;
    loop {
        let (stream, _) = listener.accept()?;
        let connection = Connection {
            stream: Arc::new(stream),
            pods: Arc::clone(pods),
            watchers: Arc::clone(&watchers),
            batch: batch.max(1),
        };
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            // A client that leaves ends its thread; there is nobody to tell.
            let _ = connection.serve();
        })?;
    }
}

fn fan_out(mut changes: broadcast::Receiver<Bytes>, watchers: &Watchers) {
    loop {
        match changes.blocking_recv() {
            Ok(pod) => {
                let mut parts = Vec::with_capacity(3);
                event(EventType::Modified, pod, &mut BytesMut::new(), &mut parts);
                let mut watchers = watchers.lock().unwrap_or_else(PoisonError::into_inner);
                watchers.retain(|watcher| write_all(watcher, &parts).is_ok());
            }
            // The floor has no opinion on slow watchers; they miss what the channel could not hold.
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return,
        }
    }
}

struct Connection {
    stream: Arc<UnixStream>,
    pods: Arc<Pods>,
    watchers: Watchers,
    batch: usize,
}

impl Connection {
    fn serve(self) -> io::Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        let mut filled = 0;
        loop {
            let read = (&*self.stream).read(&mut buffer[filled..])?;
            if read == 0 {
                return Ok(());
            }
            filled += read;
            let whole = filled - filled % REQUEST_BYTES;
            let mut responses = Vec::new();
            let mut answered = 0;
            for request in buffer[..whole].chunks_exact(REQUEST_BYTES) {
                match request[0] {
                    KIND_GET => self.get(request, &mut responses),
                    KIND_LIST => self.list(&mut responses),
                    KIND_WATCH => return self.watch(),
                    kind => return Err(io::Error::other(format!("request of unknown kind {kind}"))),
                }
                answered += 1;
                if answered % self.batch == 0 {
                    write_all(&self.stream, &std::mem::take(&mut responses))?;
                }
            }
            write_all(&self.stream, &responses)?;
            buffer.copy_within(whole..filled, 0);
            filled -= whole;
        }
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

    /// Writes what exists, in large writes, leaves later changes to the thread `fan-out`, and waits for the client
    /// to go: a thread that ended earlier would take what it has cost out of the process's figures.
    fn watch(self) -> io::Result<()> {
        {
            // Held over the first sync, so that no change falls between it and the fan-out.
            let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
            let pods = self.pods.list();
            let mut parts = Vec::with_capacity(3 * pods.len() + 3);
            let mut heads = BytesMut::with_capacity((pods.len() + 1) * MAX_EVENT_HEADER_BYTES);
            for pod in pods {
                event(EventType::Added, pod, &mut heads, &mut parts);
            }
            event(EventType::InitialSyncComplete, Bytes::new(), &mut heads, &mut parts);
            write_all(&self.stream, &parts)?;
            watchers.push(Arc::clone(&self.stream));
        }
        while (&*self.stream).read(&mut [0; 64]).is_ok_and(|read| read > 0) {}
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        watchers.retain(|watcher| !Arc::ptr_eq(watcher, &self.stream));
        Ok(())
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
