//! Which pods are to be read, or which containers to be looked up: each once, the latest wish first, a bounded number
//! at one time. What failed last has a row of its own, oldest first, and few of the reads: however many keys hang, the
//! others are read.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

/// Reads at one time. One that hangs must not hold up the others; many at once only wait for each other inside the
/// runtime.
const MAX_READS: usize = 8;
/// How many of them may be retries of what failed last: that hangs as likely as not.
const MAX_RETRIES: usize = 2;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Waiting,
    Reading,
    /// Wished for again while it is read: the read began too early to count.
    ReadingAndWaiting,
}

/// What is wished of one key.
#[derive(Debug, Clone, Copy)]
struct Place {
    wish: Wish,
    /// Tells its entry in the stack or the row from older ones, which no longer count.
    number: u64,
    is_retry: bool,
}

/// The reads to make.
///
/// Bounded by the number of keys, each of which is in it once.
#[derive(Debug)]
pub(super) struct ReadQueue<K> {
    /// The newest last. An entry counts only while `places` has its key waiting with this number.
    stack: Vec<(K, u64)>,
    /// What failed last, the oldest first: the newest first would let two that hang keep out all others.
    retries: VecDeque<(K, u64)>,
    places: HashMap<K, Place>,
    reading: usize,
    retrying: usize,
    last_number: u64,
}

impl<K> Default for ReadQueue<K> {
    fn default() -> Self {
        Self {
            stack: Vec::new(),
            retries: VecDeque::new(),
            places: HashMap::new(),
            reading: 0,
            retrying: 0,
            last_number: 0,
        }
    }
}

impl<K: Clone + Eq + Hash> ReadQueue<K> {
    /// Wishes for a read that begins from now on.
    pub(super) fn push(&mut self, key: K) {
        self.wish(key, false);
    }

    /// Wishes for a read of what failed last.
    pub(super) fn retry(&mut self, key: K) {
        self.wish(key, true);
    }

    fn wish(&mut self, key: K, is_retry: bool) {
        self.last_number += 1;
        let place = Place { wish: Wish::Waiting, number: self.last_number, is_retry };
        match self.places.get_mut(&key) {
            // Its place in the row stays as it is.
            Some(Place { wish: Wish::Waiting, is_retry: true, .. }) if is_retry => return,
            Some(Place { wish: wish @ (Wish::Reading | Wish::ReadingAndWaiting), .. }) => {
                *wish = Wish::ReadingAndWaiting;
                return;
            }
            // Its place in the stack moves to the top; the old entry no longer counts.
            Some(waiting) => *waiting = place,
            None => {
                self.places.insert(key.clone(), place);
            }
        }
        if is_retry {
            self.retries.push_back((key, place.number));
        } else {
            self.stack.push((key, place.number));
        }
        let (places, limit) = (&self.places, 2 * self.places.len() + 64);
        if self.stack.len() > limit {
            self.stack.retain(|entry| counts(places, entry));
        }
        if self.retries.len() > limit {
            self.retries.retain(|entry| counts(places, entry));
        }
    }

    /// The next to read, if another read may begin.
    pub(super) fn next(&mut self) -> Option<K> {
        if self.reading >= MAX_READS {
            return None;
        }
        let key = self.pop_retry().or_else(|| self.pop())?;
        let place = self.places.get_mut(&key)?;
        place.wish = Wish::Reading;
        self.reading += 1;
        self.retrying += usize::from(place.is_retry);
        Some(key)
    }

    fn pop_retry(&mut self) -> Option<K> {
        if self.retrying >= MAX_RETRIES {
            return None;
        }
        std::iter::from_fn(|| self.retries.pop_front())
            .find(|entry| counts(&self.places, entry))
            .map(|(key, _)| key)
    }

    fn pop(&mut self) -> Option<K> {
        std::iter::from_fn(|| self.stack.pop()).find(|entry| counts(&self.places, entry)).map(|(key, _)| key)
    }

    /// Takes note of the end of a read.
    pub(super) fn finish(&mut self, key: &K) {
        if self.end(key) {
            self.push(key.clone());
        }
    }

    /// Takes note that a read failed.
    pub(super) fn fail(&mut self, key: &K) {
        if self.end(key) {
            self.retry(key.clone());
        }
    }

    /// Forgets a read, if one is under way. True if it was wished for again meanwhile.
    fn end(&mut self, key: &K) -> bool {
        if !self.is_reading(key) {
            return false;
        }
        let Some(place) = self.places.remove(key) else { return false };
        self.reading -= 1;
        self.retrying -= usize::from(place.is_retry);
        place.wish == Wish::ReadingAndWaiting
    }

    /// Whether a read is under way.
    pub(super) fn is_reading(&self, key: &K) -> bool {
        self.places.get(key).is_some_and(|place| place.wish != Wish::Waiting)
    }

    /// Forgets everything: the reads under way have been given up.
    pub(super) fn abandon(&mut self) {
        *self = Self { last_number: self.last_number, ..Self::default() };
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.places.len() - self.reading
    }
}

/// Whether an entry is its key's latest, and the key still waits.
fn counts<K: Eq + Hash>(places: &HashMap<K, Place>, (key, number): &(K, u64)) -> bool {
    places.get(key).is_some_and(|place| place.wish == Wish::Waiting && place.number == *number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::PodUid;

    #[test]
    fn latest_wish_comes_first_and_each_pod_once() {
        let mut queue = ReadQueue::<PodUid>::default();
        for uid in ["a", "b", "c", "a"] {
            queue.push(uid.into());
        }
        assert_eq!(queue.len(), 3);
        let order: Vec<_> = std::iter::from_fn(|| queue.next()).map(|uid| uid.to_string()).collect();
        assert_eq!(order, ["a", "c", "b"]);
    }

    #[test]
    fn pod_wished_for_during_its_read_is_read_again() {
        let mut queue = ReadQueue::<PodUid>::default();
        queue.push("a".into());
        assert_eq!(queue.next(), Some("a".into()));
        queue.push("a".into());
        queue.push("a".into());
        assert_eq!(queue.next(), None, "one read of a pod at a time");
        queue.finish(&"a".into());
        assert_eq!(queue.next(), Some("a".into()));
        queue.finish(&"a".into());
        assert_eq!((queue.next(), queue.len()), (None, 0));
    }

    #[test]
    fn reads_at_one_time_are_bounded_and_so_is_memory() {
        let mut queue = ReadQueue::<PodUid>::default();
        for round in 0..10_000 {
            queue.push(format!("{}", round % 20).as_str().into());
        }
        assert!(queue.stack.len() < 200, "{}", queue.stack.len());
        let begun: Vec<_> = std::iter::from_fn(|| queue.next()).collect();
        assert_eq!((begun.len(), queue.len()), (MAX_READS, 20 - MAX_READS));
        queue.finish(&begun[0]);
        assert!(queue.next().is_some());
        queue.abandon();
        queue.push("a".into());
        assert_eq!(queue.next(), Some("a".into()));
    }

    #[test]
    fn what_failed_last_has_few_of_the_reads_and_each_its_turn() {
        let mut queue = ReadQueue::<PodUid>::default();
        for uid in ["a", "b", "c", "d", "a"] {
            queue.retry(uid.into());
        }
        let next = |queue: &mut ReadQueue<PodUid>| queue.next().map(|uid| uid.to_string());
        assert_eq!((next(&mut queue), next(&mut queue)), (Some("a".into()), Some("b".into())));
        assert_eq!(next(&mut queue), None, "two hang");
        queue.push("new".into());
        assert_eq!(next(&mut queue), Some("new".into()));
        // Those that hang are wished for again all the time, and still come last.
        queue.retry("a".into());
        queue.fail(&"a".into());
        queue.fail(&"b".into());
        queue.retry("b".into());
        assert_eq!((next(&mut queue), next(&mut queue)), (Some("c".into()), Some("d".into())));
        queue.finish(&"c".into());
        assert_eq!(next(&mut queue), Some("a".into()));
        queue.finish(&"d".into());
        // Somebody waits for what would be retried: it keeps no slot of the retries.
        queue.push("b".into());
        assert_eq!(next(&mut queue), Some("b".into()));
        assert_eq!((queue.retrying, queue.reading, queue.len()), (1, 3, 0));
        for round in 0..10_000 {
            queue.retry(format!("{}", round % 20).as_str().into());
            queue.push(format!("{}", round % 20).as_str().into());
        }
        assert!(queue.retries.len() < 200 && queue.stack.len() < 200);
    }
}
