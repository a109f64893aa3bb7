//! An append-only log: one writer, any number of readers that never wait and never slow the writer.
//!
//! A chain of fixed segments. Each slot is filled once and each segment linked to the next once, so reading is an
//! acquire load per entry. The log itself holds the newest segment only; older ones live as long as a reader stands in
//! or before them, and go when the slowest reader has passed. Safe code on `OnceLock`: an entry costs one flag more
//! than with unsafe cells, and a read the same single load.

use super::sync::{AtomicU64, Ordering, Slot};
use crate::pod::Published;
use std::sync::Arc;

/// Entries of a segment. Small, because the newest segment is kept even when every reader has passed it.
#[cfg(not(feature = "loom"))]
const SEGMENT_ENTRIES: usize = 32;
#[cfg(feature = "loom")]
const SEGMENT_ENTRIES: usize = 2;

/// The log. Appended to by the store's thread only.
#[derive(Debug)]
pub(super) struct Log<T> {
    newest: Published<Segment<T>>,
    /// How many entries there have been. Written by the writer after the entry is in its slot; readers use it to see
    /// how far behind they are, never to find an entry.
    appended: AtomicU64,
}

/// A run of entries.
#[derive(Debug)]
pub(super) struct Segment<T> {
    /// The position of the first entry.
    base: u64,
    slots: Box<[Slot<T>]>,
    next: Slot<Arc<Self>>,
}

/// A place in the log. Belongs to one watcher.
#[derive(Debug)]
pub(super) struct Reader<T> {
    segment: Arc<Segment<T>>,
    position: u64,
}

impl<T> Log<T> {
    pub(super) fn new() -> Self {
        Self { newest: Published::new(Arc::new(Segment::new(0))), appended: AtomicU64::new(0) }
    }

    /// Appends an entry. Only the single writer may call this; a second one panics in [`Slot::set`].
    pub(super) fn append(&self, entry: T) {
        // Relaxed: this thread wrote it.
        let position = self.appended.load(Ordering::Relaxed);
        let mut segment = self.newest.load_full();
        if position - segment.base == SEGMENT_ENTRIES as u64 {
            let next = Arc::new(Segment::new(position));
            segment.next.set(next.clone());
            self.newest.store(next.clone());
            segment = next;
        }
        segment.slots[(position - segment.base) as usize].set(entry);
        // Release pairs with the Acquire in `appended`: whoever counts an entry can read it.
        self.appended.store(position + 1, Ordering::Release);
    }

    /// How many entries have been appended.
    pub(super) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// A reader that sees every entry appended from now on, after at most a segment of older ones.
    pub(super) fn reader(&self) -> Reader<T> {
        let segment = self.newest.load_full();
        Reader { position: segment.base, segment }
    }
}

impl<T> Segment<T> {
    fn new(base: u64) -> Self {
        Self { base, slots: (0..SEGMENT_ENTRIES).map(|_| Slot::new()).collect(), next: Slot::new() }
    }
}

/// A reader far behind holds a long chain: taking it apart in a loop keeps the drop from recursing through it.
impl<T> Drop for Segment<T> {
    fn drop(&mut self) {
        let mut next = self.next.take();
        while let Some(mut segment) = next.and_then(Arc::into_inner) {
            next = segment.next.take();
        }
    }
}

impl<T> Reader<T> {
    /// The position of the entry that [`Reader::peek`] gives.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// The entry at the reader's place; `None` when it has not been appended yet.
    pub(super) fn peek(&mut self) -> Option<&T> {
        while self.position - self.segment.base >= SEGMENT_ENTRIES as u64 {
            let next = self.segment.next.get()?.clone();
            self.segment = next;
        }
        self.segment.slots[(self.position - self.segment.base) as usize].get()
    }

    /// Moves to the following entry.
    pub(super) fn advance(&mut self) {
        self.position += 1;
    }

    /// Moves forward to `position`.
    pub(super) fn seek(&mut self, position: u64) {
        debug_assert!(position >= self.position, "a log is read forward");
        self.position = position;
    }

    /// Stands where `other` stands. Costs a shared counter only when the segments differ.
    pub(super) fn catch_up_with(&mut self, other: &Self) {
        if !Arc::ptr_eq(&self.segment, &other.segment) {
            self.segment = other.segment.clone();
        }
        self.position = other.position;
    }
}

impl<T> Clone for Reader<T> {
    fn clone(&self) -> Self {
        Self { segment: self.segment.clone(), position: self.position }
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;
    use std::thread;

    fn drain<T: Copy>(reader: &mut Reader<T>) -> Vec<T> {
        let mut entries = Vec::new();
        while let Some(entry) = reader.peek() {
            entries.push(*entry);
            reader.advance();
        }
        entries
    }

    #[test]
    fn reader_sees_what_is_appended_after_it_in_order() {
        let log = Log::new();
        (0..100).for_each(|entry| log.append(entry));
        let mut reader = log.reader();
        (100..200).for_each(|entry| log.append(entry));
        let entries = drain(&mut reader);
        assert!(entries.len() < 100 + SEGMENT_ENTRIES);
        assert!(entries.iter().copied().eq(entries[0]..200));
        assert_eq!((reader.position(), log.appended()), (200, 200));
    }

    #[test]
    fn segments_go_when_the_slowest_reader_has_passed() {
        let entry = Arc::new(());
        let log = Log::new();
        let (mut slow, mut fast) = (log.reader(), log.reader());
        (0..1_000).for_each(|_| log.append(entry.clone()));
        while fast.peek().is_some() {
            fast.advance();
        }
        assert_eq!(Arc::strong_count(&entry), 1_001, "the slow reader holds everything");
        while slow.peek().is_some() {
            slow.advance();
        }
        assert!(Arc::strong_count(&entry) <= 1 + SEGMENT_ENTRIES);
    }

    #[test]
    fn long_chain_is_dropped_without_recursion() {
        let log = Log::new();
        let reader = log.reader();
        (0..300_000u32).for_each(|entry| log.append(entry));
        // 128 KiB would not hold 9,375 nested drops.
        let dropper = move || {
            drop(log);
            drop(reader);
        };
        thread::Builder::new().stack_size(128 * 1024).spawn(dropper).unwrap().join().unwrap();
    }

    #[test]
    fn concurrent_readers_lose_nothing() {
        const ENTRIES: u32 = 200_000;
        let log = Arc::new(Log::new());
        let readers: Vec<_> = (0..3)
            .map(|_| {
                let mut reader = log.reader();
                thread::spawn(move || {
                    for expected in 0..ENTRIES {
                        let entry = loop {
                            match reader.peek() {
                                Some(entry) => break *entry,
                                None => thread::yield_now(),
                            }
                        };
                        assert_eq!(entry, expected);
                        reader.advance();
                    }
                })
            })
            .collect();
        (0..ENTRIES).for_each(|entry| log.append(entry));
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    }
}
