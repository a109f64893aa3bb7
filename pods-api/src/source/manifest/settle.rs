//! Decides when a changed file is worth reading, so that no half-written manifest is taken for the pod.
//!
//! A reader that reacts to each event sees files in the middle of an edit: empty, cut off (and a cut-off YAML text is
//! often a valid pod with a shorter image), or gone for the moment between two renames. With static pods each
//! such view is another UID, so pods would be deleted and added back (MAN-2, MAN-4, MAN-7). Pure: time is handed in.

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::time::{Duration, Instant};

/// After the last event of a complete file: joins a rename with the chmod and touch that follow it.
const QUIET: Duration = Duration::from_millis(3);
/// How long a writer that does not close its file is waited for.
const OPEN_WRITER: Duration = Duration::from_secs(1);
/// How long a name may be absent in an edit that moves the old file away.
const ABSENCE: Duration = Duration::from_millis(100);
/// A file written again within this time is probably being written in pieces.
const PIECES: Duration = Duration::from_secs(1);
/// The longest wait between such pieces.
const MAX_QUIET: Duration = Duration::from_millis(300);
/// Names waited for at once. More means that scanning the directory is cheaper.
const MAX_PENDING: usize = 4_096;

/// What happened to a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    /// Somebody writes and has not closed it.
    Writing,
    /// A writer closed it.
    Written,
    /// A complete file took the name, or its attributes changed.
    Replaced,
    /// The name is gone.
    Gone,
}

/// The names that changed and when each is to be looked at.
#[derive(Debug, Default)]
pub(super) struct Settle {
    pending: HashMap<OsString, Pending>,
    /// When names were last written, and how often in short order.
    writes: HashMap<OsString, (Instant, u32)>,
}

#[derive(Debug)]
struct Pending {
    since: Instant,
    due: Instant,
    is_open: bool,
}

impl Settle {
    /// Takes one event. `false` when there are too many: the caller scans the directory instead.
    pub(super) fn on_change(&mut self, name: &OsStr, change: Change, now: Instant) -> bool {
        let wait = match change {
            Change::Writing => OPEN_WRITER,
            Change::Written => self.quiet_after_write(name, now),
            Change::Replaced => QUIET,
            Change::Gone => ABSENCE,
        };
        if let Some(pending) = self.pending.get_mut(name) {
            // A chmod in the middle of a write does not complete the file.
            if change == Change::Replaced && pending.is_open {
                return true;
            }
            pending.due = now + wait;
            pending.is_open = change == Change::Writing;
            return true;
        }
        if self.pending.len() == MAX_PENDING {
            return false;
        }
        let pending = Pending { since: now, due: now + wait, is_open: change == Change::Writing };
        self.pending.insert(name.to_owned(), pending);
        true
    }

    fn quiet_after_write(&mut self, name: &OsStr, now: Instant) -> Duration {
        self.writes.retain(|_, (last, _)| now.duration_since(*last) < PIECES);
        let pieces = self.writes.get(name).map_or(0, |&(_, pieces)| pieces + 1);
        if self.writes.len() < MAX_PENDING {
            self.writes.insert(name.to_owned(), (now, pieces));
        }
        QUIET.saturating_mul(4_u32.saturating_pow(pieces)).min(MAX_QUIET)
    }

    /// Removes and gives the names whose time has come, in order.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<OsString> {
        let mut due: Vec<_> =
            self.pending.extract_if(|_, pending| pending.due <= now).map(|(name, _)| name).collect();
        due.sort_unstable();
        due
    }

    /// The next time that [`Settle::take_due`] gives something.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.pending.values().map(|pending| pending.due).min()
    }

    /// Whether a scan should leave the name to the events: it is changing, and has not been for longer than `limit`.
    pub(super) fn is_settling(&self, name: &OsStr, limit: Duration, now: Instant) -> bool {
        self.pending.get(name).is_some_and(|pending| now.duration_since(pending.since) < limit)
    }

    /// Forgets all names.
    pub(super) fn clear(&mut self) {
        self.pending.clear();
        self.writes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Change::{Gone, Replaced, Writing, Written};

    /// Plays events at milliseconds and gives when, in milliseconds, `a` was due.
    fn due_times(events: &[(u64, Change)]) -> Vec<u64> {
        let start = Instant::now();
        let mut settle = Settle::default();
        let mut due = Vec::new();
        let mut events = events.iter().peekable();
        for ms in 0..20_000 {
            let now = start + Duration::from_millis(ms);
            while let Some((_, change)) = events.next_if(|(at, _)| *at == ms) {
                assert!(settle.on_change(OsStr::new("a"), *change, now));
            }
            due.extend(settle.take_due(now).iter().map(|_| ms));
        }
        due
    }

    #[test]
    fn a_complete_file_is_read_after_a_short_quiet() {
        assert_eq!(due_times(&[(10, Writing), (11, Written)]), [14]);
        // MAN-7: rename over, chmod and touch.
        assert_eq!(due_times(&[(10, Replaced), (11, Replaced), (12, Replaced)]), [15]);
    }

    #[test]
    fn an_open_file_is_read_when_its_writer_closes_it() {
        // MAN-4: pieces over five seconds, a chmod in between.
        let mut events: Vec<_> = (0..5_000).step_by(10).map(|ms| (ms, Writing)).collect();
        events.extend([(5_000, Replaced), (5_001, Written)]);
        assert_eq!(due_times(&events), [5_004]);
        // A writer that never closes is not waited for without end.
        assert_eq!(due_times(&[(0, Writing)]), [1_000]);
    }

    #[test]
    fn a_file_appended_to_in_pieces_is_read_when_they_stop() {
        let events: Vec<_> = (0..5_000).step_by(100).map(|ms| (ms, Written)).collect();
        // The first pieces, which are no pod yet, may be looked at; later ones not before the last.
        let due = due_times(&events);
        assert_eq!(due.last(), Some(&5_200));
        assert!(due[..due.len() - 1].iter().all(|&ms| ms <= 300), "{due:?}");
    }

    #[test]
    fn a_name_moved_away_and_written_anew_is_never_absent() {
        // MAN-2: the dance of an editor that keeps a backup.
        assert_eq!(due_times(&[(0, Gone), (1, Writing), (30, Written)]), [33]);
        assert_eq!(due_times(&[(0, Gone)]), [100]);
    }

    #[test]
    fn the_number_of_names_is_bounded() {
        let now = Instant::now();
        let mut settle = Settle::default();
        for number in 0..MAX_PENDING {
            assert!(settle.on_change(OsStr::new(&number.to_string()), Written, now));
        }
        assert!(!settle.on_change(OsStr::new("one more"), Written, now));
        assert_eq!(settle.writes.len(), MAX_PENDING);
        assert!(settle.is_settling(OsStr::new("7"), Duration::from_secs(20), now));
        settle.clear();
        assert_eq!(settle.next_due(), None);
    }
}
