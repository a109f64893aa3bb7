//! Frames of selected fields that watches in their initial sync share.
//!
//! After a restart a thousand clients ask for the same fields of the same pods at once; each pod is then projected
//! once, not a thousand times. Whole pods need none of this: their frames are slices of the records. The frames live
//! while a watch of the view is in its initial sync, and count as bytes that watchers pin.

use super::sync::Mutex;
use super::view::{Frame, View};
use crate::pod::{ByteMeter, Charge, PodUid, Published, Record, Revision};
use std::sync::{Arc, Weak};

/// The most frames kept: more pods come and go than this only while a client stalls in its sync.
const MAX_FRAMES: usize = 16 * 1024;

/// The frames of one view.
#[derive(Debug)]
pub(super) struct SharedSync {
    frames: Published<Frames>,
    meter: ByteMeter,
}

type Frames = imbl::HashMap<PodUid, Arc<SharedFrame>>;

#[derive(Debug)]
struct SharedFrame {
    revision: Revision,
    frame: Frame,
    _charge: Charge,
}

/// Where watches that begin at the same time find the same [`SharedSync`].
#[derive(Debug)]
pub(super) struct SharedSyncs(Mutex<Weak<SharedSync>>);

impl SharedSyncs {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    /// The frames that are being shared now, or a new set of them.
    pub(super) fn join(&self, meter: &ByteMeter) -> Arc<SharedSync> {
        // Guards the one pointer; held for no longer than it takes to upgrade it.
        let mut current = self.0.lock().expect("no holder panics");
        current.upgrade().unwrap_or_else(|| {
            let frames = Published::new(Arc::default());
            let shared = Arc::new(SharedSync { frames, meter: meter.clone() });
            *current = Arc::downgrade(&shared);
            shared
        })
    }
}

impl SharedSync {
    /// The ADDED frame of a record: somebody else's, or made now for everybody.
    pub(super) fn added(&self, view: &View, record: &Record) -> Frame {
        let is_current = |shared: &&Arc<SharedFrame>| shared.revision == record.revision();
        if let Some(shared) = self.frames.load().get(record.uid()).filter(is_current) {
            return shared.frame.clone();
        }
        let frame = view.added(record);
        let charge = self.meter.charge(frame.len());
        let shared = SharedFrame { revision: record.revision(), frame: frame.clone(), _charge: charge };
        let shared = Arc::new(shared);
        self.frames.update(|frames| {
            let mut frames = Frames::clone(frames);
            if frames.len() < MAX_FRAMES {
                frames.insert(record.uid().clone(), shared.clone());
            }
            frames
        });
        frame
    }
}
