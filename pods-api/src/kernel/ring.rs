//! Reads the ring buffer that the kernel programs fill. Lives on the `kernel` thread.
//!
//! Lost events show in the programs' counters, not in the buffer. A rise is passed on as one event that says how many,
//! once the buffer has been read to its end: a scan before that would be older than events still to come, and what
//! these tell of would stay if its end is among the lost.

use super::event::{Feed, KernelEvent};
use super::load::Attached;
use super::logger::ToTracing;
use super::status::EbpfStatus;
use crate::pod::{CgroupId, Pid};
use aya::maps::{MapData, RingBuf};
use aya_log::EbpfLogger;
use pods_api_common::{EventHeader, EventKind};
use std::fmt;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use tracing::warn;

/// Events handed over in one go, so that a storm leaves the thread time for everything else.
const BATCH: usize = 4096;

/// The reading end of the ring buffer, and with it the programs: they are detached when this is dropped.
pub struct Ring {
    events: RingBuf<MapData>,
    logger: Option<EbpfLogger<ToTracing>>,
    status: Arc<EbpfStatus>,
    lost: u64,
    attached: Attached,
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("lost", &self.lost).field("attached", &self.attached).finish()
    }
}

impl Ring {
    pub(super) fn new(
        events: RingBuf<MapData>,
        logger: Option<EbpfLogger<ToTracing>>,
        attached: Attached,
        status: Arc<EbpfStatus>,
    ) -> Self {
        Self { events, logger, status, lost: 0, attached }
    }

    /// Passes on that events were lost since last time: `lost` in all.
    fn report_losses(&mut self, lost: u64, apply: &mut dyn FnMut(KernelEvent)) {
        // The counters of the CPUs are not read at one moment, but each only ever rises.
        if let Some(count) = lost.checked_sub(self.lost).filter(|count| *count > 0) {
            self.lost = lost;
            apply(KernelEvent::EventsLost { count });
        }
    }
}

impl Feed for Ring {
    fn fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }

    fn drain(&mut self, apply: &mut dyn FnMut(KernelEvent)) -> bool {
        // Read first: what was in the buffer before these losses is read below. Later ones are of the next time.
        let lost = self.status.lost();
        let mut is_empty = false;
        for _ in 0..BATCH {
            let Some(bytes) = self.events.next() else {
                is_empty = true;
                break;
            };
            match parse(&bytes) {
                Some((kind, event)) => {
                    self.status.count_received(kind);
                    apply(event);
                }
                None => warn!(bytes = bytes.len(), "event of the kernel programs is not understood"),
            }
        }
        if is_empty {
            self.report_losses(lost, apply);
        }
        if let Some(logger) = &mut self.logger {
            logger.flush();
        }
        is_empty
    }
}

fn parse(bytes: &[u8]) -> Option<(EventKind, KernelEvent)> {
    let (kind, header, path) = EventHeader::parse(bytes)?;
    let id = CgroupId(header.cgroup_id);
    let pid = || Pid::new(i32::try_from(header.pid).ok()?);
    let event = match kind {
        EventKind::CgroupCreated => {
            KernelEvent::CgroupCreated { id, path: String::from_utf8_lossy(path).into_owned() }
        }
        EventKind::CgroupPopulated => KernelEvent::CgroupPopulated { id, is_populated: header.value != 0 },
        EventKind::CgroupReleased => KernelEvent::CgroupReleased { id },
        EventKind::ProcessAttached => KernelEvent::ProcessAttached { cgroup: id, pid: pid()? },
        EventKind::ProcessExecuted => KernelEvent::ProcessExecuted { cgroup: id, pid: pid()? },
        EventKind::ProcessExited => KernelEvent::ProcessExited { cgroup: id, pid: pid()? },
        EventKind::OomKilled => KernelEvent::OomKilled { cgroup: id, pid: pid()? },
    };
    Some((kind, event))
}
