//! Processes of pods as events told of them.
//!
//! Of a process that lives, `/proc` tells the truth, and is read under a pidfd. This table answers for those that have
//! just ended: the ones behind an event that a reader comes too late for. Numbers are given away anew, so that an ended
//! process is kept for seconds only. The kernel thread edits, readers have clones.

use crate::pod::{CgroupId, Pid};
use imbl::OrdMap;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// How long the number of an ended process is taken for its own: far shorter than numbers need to come round.
const KEEP: Duration = Duration::from_secs(10);
/// Overflow rule: the ones that ended first go; if none has, the new one is not taken in, and `/proc` answers for it.
const MAX_PROCESSES: usize = 32_768;

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    /// Where it runs, or ran last.
    pub(super) cgroup: CgroupId,
    /// When its end was told of.
    pub(super) ended: Option<Instant>,
}

/// Processes by number.
#[derive(Debug, Clone, Default)]
pub(super) struct Processes(OrdMap<Pid, Process>);

impl Processes {
    pub(super) fn get(&self, pid: Pid) -> Option<Process> {
        self.0.get(&pid).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// The kernel thread's table.
#[derive(Debug, Default)]
pub(super) struct ProcessTable {
    processes: Processes,
    /// The order of ending. May hold processes whose number is another's since.
    ended: VecDeque<(Instant, Pid)>,
}

impl ProcessTable {
    pub(super) fn processes(&self) -> &Processes {
        &self.processes
    }

    /// Takes in that a process runs in a cgroup. Returns whether that is new.
    pub(super) fn insert(&mut self, pid: Pid, cgroup: CgroupId) -> bool {
        let process = Process { cgroup, ended: None };
        if self.processes.get(pid) == Some(process) {
            return false;
        }
        if self.processes.len() >= MAX_PROCESSES && !self.remove_oldest() {
            return false;
        }
        self.processes.0.insert(pid, process);
        true
    }

    /// Forgets a process that runs: it has left its pod. Returns whether it was known.
    pub(super) fn remove(&mut self, pid: Pid) -> bool {
        let is_running = self.processes.get(pid).is_some_and(|process| process.ended.is_none());
        is_running && self.processes.0.remove(&pid).is_some()
    }

    /// Takes in that a process has ended.
    pub(super) fn end(&mut self, pid: Pid, now: Instant) -> bool {
        let Some(process) = self.processes.0.get_mut(&pid).filter(|process| process.ended.is_none()) else {
            return false;
        };
        process.ended = Some(now);
        self.ended.push_back((now, pid));
        true
    }

    /// Ends all that `is_alive` does not know: events of their end may have been lost.
    pub(super) fn sweep(&mut self, now: Instant, is_alive: impl Fn(Pid) -> bool) {
        let lost =
            |(pid, process): (&Pid, &Process)| (process.ended.is_none() && !is_alive(*pid)).then_some(*pid);
        let ended: Vec<_> = self.processes.0.iter().filter_map(lost).collect();
        for pid in ended {
            self.end(pid, now);
        }
    }

    /// Forgets those that ended a while ago.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        let before = self.processes.len();
        while let Some((at, pid)) = self.ended.front().copied()
            && now.duration_since(at) >= KEEP
        {
            self.ended.pop_front();
            self.remove_ended(pid, at);
        }
        self.processes.len() < before
    }

    /// When the next one is to be forgotten.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.ended.front().map(|(at, _)| *at + KEEP)
    }

    /// Removes the process that ended first. `false` if none has.
    fn remove_oldest(&mut self) -> bool {
        while let Some((at, pid)) = self.ended.pop_front() {
            if self.remove_ended(pid, at) {
                return true;
            }
        }
        false
    }

    /// Removes the process that ended at that time, unless its number is another's since.
    fn remove_ended(&mut self, pid: Pid, at: Instant) -> bool {
        let is_same = self.processes.get(pid).is_some_and(|process| process.ended == Some(at));
        is_same && self.processes.0.remove(&pid).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pid(number: i32) -> Pid {
        Pid::new(number).unwrap()
    }

    #[test]
    fn ended_process_is_known_for_a_while_and_its_number_may_be_anothers() {
        let start = Instant::now();
        let mut table = ProcessTable::default();
        assert!(table.insert(pid(7), CgroupId(1)) && !table.insert(pid(7), CgroupId(1)));
        assert!(table.end(pid(7), start) && !table.end(pid(7), start));
        assert!(!table.expire(start + KEEP / 2));
        assert_eq!(table.processes().get(pid(7)).unwrap().cgroup, CgroupId(1));
        // The number comes round before its time is over: the new owner stays.
        table.insert(pid(7), CgroupId(2));
        table.expire(start + KEEP);
        assert_eq!(table.processes().get(pid(7)), Some(Process { cgroup: CgroupId(2), ended: None }));
        table.end(pid(7), start + KEEP);
        assert!(table.expire(start + 2 * KEEP) && table.processes().get(pid(7)).is_none());
        assert_eq!(table.next_expiry(), None);
    }

    #[test]
    fn number_that_was_given_away_anew_does_not_take_a_later_end_with_it() {
        let start = Instant::now();
        let mut table = ProcessTable::default();
        for number in [7, 8] {
            table.insert(pid(number), CgroupId(1));
        }
        table.end(pid(7), start);
        table.insert(pid(7), CgroupId(2));
        table.end(pid(8), start + KEEP / 2);
        table.expire(start + KEEP);
        assert!(table.processes().get(pid(8)).is_some(), "it ended only half that time ago");
        assert!(table.expire(start + KEEP + KEEP / 2) && table.processes().get(pid(8)).is_none());
    }

    #[test]
    fn number_of_processes_is_bounded_and_ended_ones_go_first() {
        let start = Instant::now();
        let mut table = ProcessTable::default();
        for number in 1..=MAX_PROCESSES as i32 {
            assert!(table.insert(pid(number), CgroupId(1)));
        }
        let next = pid(MAX_PROCESSES as i32 + 1);
        assert!(!table.insert(next, CgroupId(1)));
        table.end(pid(5), start);
        assert!(table.insert(next, CgroupId(1)) && table.processes().get(pid(5)).is_none());
    }

    #[test]
    fn process_that_has_left_is_forgotten_and_one_that_has_ended_is_not() {
        let start = Instant::now();
        let mut table = ProcessTable::default();
        table.insert(pid(7), CgroupId(1));
        table.insert(pid(8), CgroupId(1));
        table.end(pid(8), start);
        assert!(table.remove(pid(7)) && !table.remove(pid(7)) && !table.remove(pid(8)));
        assert!(table.processes().get(pid(7)).is_none() && table.processes().get(pid(8)).is_some());
    }

    #[test]
    fn lost_ends_are_found_by_looking() {
        let start = Instant::now();
        let mut table = ProcessTable::default();
        table.insert(pid(1), CgroupId(1));
        table.insert(pid(2), CgroupId(1));
        table.sweep(start, |pid| pid.as_raw() == 1);
        let ended = |number| table.processes().get(pid(number)).unwrap().ended;
        assert_eq!((ended(1), ended(2)), (None, Some(start)));
    }
}
