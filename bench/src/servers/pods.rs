//! The pods of a comparison server: read by every call, changed by the ingest thread.

use std::collections::BTreeMap;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard};

use anyhow::Context as _;
use bytes::Bytes;
use pods_api_proto::v1alpha1::ListPodsResponse;
use prost::Message as _;
use tokio::sync::broadcast;

use crate::generate::{self, Plan};
use crate::load::uid_of;

/// Changes a slow watcher may fall behind before it is cut, as pods-api's default.
const WATCH_BUFFER: usize = 1_024;

/// The pods by UID, in the order List returns them.
pub(crate) struct Pods {
    /// Written by the ingest thread, read by calls; held while a change is sent, so that a subscriber sees each
    /// change either in its snapshot or as an event.
    by_uid: RwLock<BTreeMap<String, Bytes>>,
    /// From the ingest thread to every watch.
    changes: broadcast::Sender<Bytes>,
    /// Called by the ingest thread with each change, for a server that has no use for the channel.
    listener: OnceLock<Listener>,
}

type Listener = Box<dyn Fn(&Bytes) + Send + Sync>;

impl Pods {
    pub(crate) fn new(by_uid: BTreeMap<String, Bytes>) -> Self {
        Self {
            by_uid: RwLock::new(by_uid),
            changes: broadcast::channel(WATCH_BUFFER).0,
            listener: OnceLock::new(),
        }
    }

    pub(crate) fn generate(plan: Plan) -> anyhow::Result<Self> {
        let shapes = generate::shapes(plan, true);
        Ok(Self::new(
            shapes.iter().map(|shape| (shape.uid.clone(), generate::encode(shape).into())).collect(),
        ))
    }

    /// The pods as they are now, and every change from now on.
    pub(crate) fn subscribe(&self) -> (Vec<Bytes>, broadcast::Receiver<Bytes>) {
        let by_uid = self.read();
        (by_uid.values().cloned().collect(), self.changes.subscribe())
    }

    /// Sets who is told of each change; the first call counts.
    pub(crate) fn listen(&self, listener: impl Fn(&Bytes) + Send + Sync + 'static) {
        self.listener.get_or_init(|| Box::new(listener));
    }

    pub(crate) fn list(&self) -> Vec<Bytes> {
        self.read().values().cloned().collect()
    }

    pub(crate) fn get(&self, uid: &str) -> Option<Bytes> {
        self.read().get(uid).cloned()
    }

    /// Stores a changed pod and tells the watchers.
    pub(super) fn change(&self, uid: &str, pod: Bytes) {
        let mut by_uid = self.by_uid.write().unwrap_or_else(PoisonError::into_inner);
        by_uid.insert(uid.to_owned(), pod.clone());
        if let Some(listener) = self.listener.get() {
            listener(&pod);
        }
        // No receiver is no error: nobody watches.
        let _ = self.changes.send(pod);
    }

    fn read(&self) -> RwLockReadGuard<'_, BTreeMap<String, Bytes>> {
        self.by_uid.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Encodes pods as the ListPodsResponse that [`decode_dump`] reads.
pub(crate) fn encode_dump(pods: Vec<Bytes>) -> Vec<u8> {
    ListPodsResponse { pods }.encode_to_vec()
}

/// Reads an encoded ListPodsResponse, as served by any server of the API.
pub(crate) fn decode_dump(dump: Bytes) -> anyhow::Result<BTreeMap<String, Bytes>> {
    let response = ListPodsResponse::decode(dump).context("decoding the dump")?;
    response.pods.into_iter().map(|pod| Ok((uid_of(&pod)?, pod))).collect()
}
