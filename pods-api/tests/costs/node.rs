//! The steps between a changed pod and its frame at a watcher, one by one, and the parsers on the way of a request.

use bytes::Bytes;
use pods_api::http2::hpack::{Decoder, Sink, huffman};
use pods_api::pod::{ByteMeter, Now, Published, Readiness, SourceId, StoreStats, Update, Writer};
use pods_api::watch::{Contract, Hub, HubConfig, Next, Publisher, View, WatchOptions, Watcher};
use pods_api::wire::Mask;
use pods_api::wire::testing::plausible_pod;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use crate::allocations::allocations_of;
use crate::client::{MASK, PODS, pod};

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The store takes a changed pod, publishes the snapshot and appends the event, one watch being open.
    Publish,
    /// A watcher moves the event from the log into its ring, and takes it out.
    Take,
    /// The fields of a mask are cut out of a pod.
    Project,
    /// The field section of a first request, Huffman-coded.
    HpackDecode,
}

/// A store's writer without its thread, and one watch.
pub(crate) struct Node {
    writer: Writer<Publisher>,
    watcher: Watcher,
    mask: Mask,
    projected: Vec<u8>,
    decoder: Decoder<()>,
    block: Vec<u8>,
    version: usize,
    pod: Bytes,
}

struct Discard;

impl Sink for Discard {
    type Mark = ();

    fn examine(&self, _name: &[u8], _value: &[u8]) {}

    fn field(&mut self, name: &[u8], value: &[u8], (): ()) {
        black_box((name, value));
    }
}

impl Node {
    pub(crate) fn new() -> Self {
        let (published, meter) = (Arc::new(Published::new(Arc::default())), ByteMeter::default());
        let (hub, publisher) = Hub::new(published.clone(), meter.clone(), HubConfig::default());
        let readiness = Arc::new(Readiness::new([]));
        let stats = Arc::new(StoreStats::default());
        let mut writer = Writer::new(published, readiness, stats, meter, Duration::ZERO, publisher);
        let pods = (0..PODS).map(|number| pod(number, 0)).collect();
        writer.apply([Update::Set { source: SourceId::Manifest, pods }], Now::read());
        let view = View::whole(Contract::V1alpha1);
        let mut watcher = hub.subscribe(view, WatchOptions::default()).unwrap();
        while let Next::Frame(_) = watcher.next() {}
        let mask = Mask::parse(MASK).unwrap();
        let mut block = vec![0x83, 0x86];
        let fields = [
            (":path", "/v1alpha1.Pods/GetPod"),
            (":authority", "localhost"),
            ("content-type", "application/grpc"),
            ("user-agent", "grpc-go/1.80.0"),
            ("te", "trailers"),
        ];
        for text in fields.iter().flat_map(|(name, value)| [*name, *value]) {
            // A literal with incremental indexing, before its name.
            if fields.iter().any(|(name, _)| *name == text) {
                block.push(0x40);
            }
            block.push(0x80 | u8::try_from(huffman::encoded_len(text.as_bytes())).unwrap());
            huffman::encode(text.as_bytes(), &mut block);
        }
        Self {
            writer,
            watcher,
            mask,
            projected: Vec::with_capacity(8192),
            decoder: Decoder::new(4096),
            block,
            version: 0,
            pod: plausible_pod(7, 6 << 10),
        }
    }

    /// Takes a step; returns its allocations.
    pub(crate) fn run(&mut self, step: Step) -> u64 {
        match step {
            Step::Publish => {
                let (update, now) = (self.change(), Now::read());
                let ((), allocations) = allocations_of(|| self.publish_counted(update, now));
                self.take_counted();
                allocations
            }
            Step::Take => {
                let update = self.change();
                self.publish_counted(update, Now::read());
                let (frames, allocations) = allocations_of(|| self.take_counted());
                assert_eq!(frames, 1);
                allocations
            }
            Step::Project => {
                let ((), allocations) = allocations_of(|| self.project_counted());
                assert!(self.projected.len() > 50);
                allocations
            }
            Step::HpackDecode => allocations_of(|| self.decode_counted()).1,
        }
    }

    fn change(&mut self) -> Update {
        self.version += 1;
        Update::Changes { source: SourceId::Manifest, pods: vec![pod(7, self.version)], gone: Vec::new() }
    }

    #[inline(never)]
    fn publish_counted(&mut self, update: Update, now: Now) {
        self.writer.apply([update], now);
    }

    #[inline(never)]
    fn take_counted(&mut self) -> usize {
        self.watcher.fill();
        let mut frames = 0;
        while let Next::Frame(frame) = self.watcher.next() {
            black_box(frame);
            frames += 1;
        }
        frames
    }

    #[inline(never)]
    fn project_counted(&mut self) {
        self.projected.clear();
        self.mask.project(&self.pod, &mut self.projected).unwrap();
    }

    #[inline(never)]
    fn decode_counted(&mut self) {
        assert!(self.decoder.decode(&self.block, &mut Discard).is_ok());
    }
}
