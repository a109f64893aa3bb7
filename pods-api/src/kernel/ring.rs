//! Reads the ring buffer that the kernel programs fill. Lives on the `kernel` thread.
//!
//! Lost events show in the programs' counters, not in the buffer: they are compared after each reading, and a rise is
//! passed on as one event that says how many.

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

    /// Passes on that events were lost since last time.
    fn report_losses(&mut self, apply: &mut dyn FnMut(KernelEvent)) {
        let lost = self.status.lost();
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

    fn drain(&mut self, apply: &mut dyn FnMut(KernelEvent)) {
        for _ in 0..BATCH {
            let Some(bytes) = self.events.next() else { break };
            match parse(&bytes) {
                Some((kind, event)) => {
                    self.status.count_received(kind);
                    apply(event);
                }
                None => warn!(bytes = bytes.len(), "event of the kernel programs is not understood"),
            }
        }
        self.report_losses(apply);
        if let Some(logger) = &mut self.logger {
            logger.flush();
        }
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
