//! Which pods are to be read, or which containers to be looked up: each once, the latest wish first, a bounded number
//! at one time.

use std::collections::HashMap;
use std::hash::Hash;

/// Reads at one time. One that hangs must not hold up the others; many at once only wait for each other inside the
/// runtime.
const MAX_READS: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wish {
    Waiting,
    Reading,
    /// Wished for again while it is read: the read began too early to count.
    ReadingAndWaiting,
}

/// The reads to make.
///
/// Bounded by the number of keys, each of which is in it once.
#[derive(Debug)]
pub(super) struct ReadQueue<K> {
    /// The newest last. An entry counts only while `wishes` has its key waiting with this number.
    stack: Vec<(K, u64)>,
    wishes: HashMap<K, (Wish, u64)>,
    reading: usize,
    last_number: u64,
}

impl<K> Default for ReadQueue<K> {
    fn default() -> Self {
        Self { stack: Vec::new(), wishes: HashMap::new(), reading: 0, last_number: 0 }
    }
}

impl<K: Clone + Eq + Hash> ReadQueue<K> {
    /// Wishes for a read that begins from now on.
    pub(super) fn push(&mut self, key: K) {
        self.last_number += 1;
        let number = self.last_number;
        let (wish, latest) = self.wishes.entry(key.clone()).or_insert((Wish::Waiting, number));
        match wish {
            Wish::Waiting => {
                // Its place in the stack moves to the top; the old entry no longer counts.
                *latest = number;
                self.stack.push((key, number));
            }
            Wish::Reading | Wish::ReadingAndWaiting => *wish = Wish::ReadingAndWaiting,
        }
        if self.stack.len() > 2 * self.wishes.len() + 64 {
            let wishes = &self.wishes;
            self.stack.retain(|(key, number)| wishes.get(key) == Some(&(Wish::Waiting, *number)));
        }
    }

    /// The next to read, if another read may begin.
    pub(super) fn next(&mut self) -> Option<K> {
        if self.reading >= MAX_READS {
            return None;
        }
        while let Some((key, number)) = self.stack.pop() {
            let Some(wish) = self.wishes.get_mut(&key).filter(|wish| **wish == (Wish::Waiting, number))
            else {
                continue;
            };
            wish.0 = Wish::Reading;
            self.reading += 1;
            return Some(key);
        }
        None
    }

    /// Takes note of the end of a read.
    pub(super) fn finish(&mut self, key: &K) {
        match self.wishes.get(key).map(|wish| wish.0) {
            Some(Wish::Reading) => {
                self.wishes.remove(key);
                self.reading -= 1;
            }
            Some(Wish::ReadingAndWaiting) => {
                self.wishes.remove(key);
                self.reading -= 1;
                self.push(key.clone());
            }
            Some(Wish::Waiting) | None => {}
        }
    }

    /// Whether a read is under way.
    pub(super) fn is_reading(&self, key: &K) -> bool {
        matches!(self.wishes.get(key), Some((Wish::Reading | Wish::ReadingAndWaiting, _)))
    }

    /// Forgets everything: the reads under way have been given up.
    pub(super) fn abandon(&mut self) {
        *self = Self { last_number: self.last_number, ..Self::default() };
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.wishes.len() - self.reading
    }
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
}
