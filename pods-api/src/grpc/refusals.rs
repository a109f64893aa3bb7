//! The log of refused calls, bounded: a caller that tries again and again is named once a minute.

use super::counters::Method;
use crate::access::{Peer, PeerKey};
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::warn;

/// How long a caller that was named is not named again.
const QUIET: Duration = Duration::from_secs(60);

/// The most callers named within that time; others are counted by the metric alone.
const MAX_NAMED: usize = 64;

/// Who was named lately, and how many of its calls were refused since. Guarded by a mutex that refused calls take,
/// on any worker or the control thread; held for one look-up.
#[derive(Debug, Default)]
pub struct Refusals(Mutex<HashMap<PeerKey, Named>>);

#[derive(Debug)]
struct Named {
    at: Instant,
    more: u64,
}

impl Refusals {
    /// Logs that a call was refused, unless that caller was named lately.
    pub(super) fn log(&self, peer: &Peer, method: Method, reason: &str) {
        let Some(more) = self.name(peer.key(), Instant::now()) else { return };
        warn!(
            method = method.as_str(),
            pid = peer.pid.map(|pid| pid.as_raw()),
            uid = peer.uid,
            gid = peer.gid,
            pod = peer.pod().map(tracing::field::display),
            reason,
            more_since_last = (more > 0).then_some(more),
            "call refused by the access policy"
        );
    }

    /// How many refused calls of that caller have not been logged; `None` if it shall not be named now.
    fn name(&self, caller: PeerKey, now: Instant) -> Option<u64> {
        let mut named = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = named.get_mut(&caller) {
            if now.saturating_duration_since(known.at) < QUIET {
                known.more += 1;
                return None;
            }
            known.at = now;
            return Some(std::mem::take(&mut known.more));
        }
        if named.len() >= MAX_NAMED {
            named.retain(|_, known| now.saturating_duration_since(known.at) < QUIET);
        }
        (named.len() < MAX_NAMED).then(|| {
            named.insert(caller, Named { at: now, more: 0 });
            0
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(uid: u32) -> PeerKey {
        Peer::unknown(uid, 0).key()
    }

    #[test]
    fn a_caller_is_named_once_a_minute_with_what_was_left_out() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        assert_eq!(refusals.name(key(1), start), Some(0));
        for second in 0..59 {
            assert_eq!(refusals.name(key(1), start + Duration::from_secs(second)), None);
        }
        assert_eq!(refusals.name(key(2), start), Some(0), "another caller is named");
        assert_eq!(refusals.name(key(1), start + QUIET), Some(59));
    }

    #[test]
    fn many_callers_cannot_fill_the_log() {
        let (refusals, start) = (Refusals::default(), Instant::now());
        let named = (0..1000).filter(|uid| refusals.name(key(*uid), start).is_some()).count();
        assert_eq!(named, MAX_NAMED);
        assert_eq!(refusals.name(key(5000), start + QUIET), Some(0));
        assert_eq!(refusals.0.lock().unwrap().len(), 1);
    }
}
