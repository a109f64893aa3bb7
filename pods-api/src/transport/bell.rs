//! Wakes a worker from other threads, with a system call only if it sleeps.
//!
//! Any thread rings; only the worker answers and sleeps. Any number of rings before the worker looks count as one, so
//! what they announce must be found elsewhere: in a log, a queue, a phase.

#[cfg(feature = "loom")]
use loom::sync::atomic::{AtomicU8, Ordering};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
#[cfg(not(feature = "loom"))]
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::Wake;

const AWAKE: u8 = 0;
const SLEEPING: u8 = 1;
const RUNG: u8 = 2;

/// One worker's bell: the state that decides whether to interrupt its sleep, and the descriptor that does it.
#[derive(Debug)]
pub(super) struct Bell {
    state: State,
    event: OwnedFd,
}

/// Guards the worker's sleep. All decisions are made by read-modify-writes of this one value, so whichever of a ring
/// and a falling asleep comes second sees the first.
#[derive(Debug)]
struct State(AtomicU8);

impl Bell {
    pub(super) fn new() -> Result<Self, Errno> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { state: State(AtomicU8::new(AWAKE)), event })
    }

    /// Makes the worker look for news soon. What was written before is visible to it then.
    pub(super) fn ring(&self) {
        if self.state.ring() {
            // The count is never read and cannot overflow in the life of a machine: drivers watch for the edge.
            let written = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
            debug_assert_eq!(written, Ok(8));
        }
    }

    /// Whether the bell was rung since the last call. The worker is awake from here on.
    pub(super) fn answer(&self) -> bool {
        self.state.answer()
    }

    /// Whether the worker may sleep now; if not, there is news.
    pub(super) fn try_sleep(&self) -> bool {
        self.state.try_sleep()
    }
}

impl AsFd for Bell {
    /// Becomes readable, as an edge, when the bell is rung in the worker's sleep.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.ring();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ring();
    }
}

impl State {
    /// Returns whether the worker sleeps and has to be interrupted, by this caller and no other.
    fn ring(&self) -> bool {
        // Release: pairs with the Acquire in `answer`, which then sees what the caller wrote before. A swap even if
        // the bell is already rung: otherwise there would be nothing to pair with.
        self.0.swap(RUNG, Ordering::Release) == SLEEPING
    }

    fn answer(&self) -> bool {
        // Relaxed: a ring that this load misses is seen by `try_sleep`, or the next time round.
        if self.0.load(Ordering::Relaxed) == AWAKE {
            return false;
        }
        // Acquire: pairs with the Release in `ring`.
        self.0.swap(AWAKE, Ordering::Acquire) == RUNG
    }

    fn try_sleep(&self) -> bool {
        // Relaxed: nothing is read on the strength of it; after a failure `answer` does the acquiring.
        self.0.compare_exchange(AWAKE, SLEEPING, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

#[cfg(test)]
#[cfg(not(feature = "loom"))]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_sleep_prevents_it_and_costs_no_system_call() {
        let bell = Bell::new().unwrap();
        bell.ring();
        bell.ring();
        assert!(!bell.try_sleep());
        assert!(bell.answer());
        assert!(!bell.answer());
        assert!(bell.try_sleep());
        assert_eq!(rustix::io::read(&bell, &mut [0; 8]), Err(Errno::AGAIN), "the descriptor was written to");
    }

    #[test]
    fn only_the_first_ring_in_a_sleep_writes() {
        let bell = Bell::new().unwrap();
        assert!(bell.try_sleep());
        bell.ring();
        bell.ring();
        let mut count = [0; 8];
        assert_eq!(rustix::io::read(&bell, &mut count), Ok(8));
        assert_eq!(u64::from_ne_bytes(count), 1);
        assert!(bell.answer());
    }

    #[test]
    fn waking_for_another_reason_is_no_ring() {
        let bell = Bell::new().unwrap();
        assert!(bell.try_sleep());
        assert!(!bell.answer());
        assert!(bell.try_sleep());
    }
}

#[cfg(test)]
#[cfg(feature = "loom")]
mod loom_models {
    use super::*;
    use loom::sync::Notify;
    use loom::sync::atomic::AtomicU32;
    use loom::thread;

    /// Each producer publishes one value and rings; the worker sleeps only when it may. The values are relaxed, so
    /// that only the bell makes them visible. A ring that is lost, or that does not carry its value, leaves the worker
    /// asleep for good in some interleaving, which loom reports as a deadlock.
    fn rings_carry_values(producers: usize) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let state = Arc::new(State(AtomicU8::new(AWAKE)));
            let event = Arc::new(Notify::new());
            let values: Arc<[AtomicU32]> = (0..producers).map(|_| AtomicU32::new(0)).collect();
            let threads: Vec<_> = (0..producers)
                .map(|index| {
                    let (state, event, values) =
                        (Arc::clone(&state), Arc::clone(&event), Arc::clone(&values));
                    thread::spawn(move || {
                        values[index].store(7, Ordering::Relaxed);
                        if state.ring() {
                            event.notify();
                        }
                    })
                })
                .collect();
            let mut is_complete = false;
            while !is_complete {
                if state.try_sleep() {
                    event.wait();
                }
                if state.answer() {
                    is_complete = values.iter().all(|value| value.load(Ordering::Relaxed) == 7);
                }
            }
            for thread in threads {
                thread.join().unwrap();
            }
        });
    }

    #[test]
    fn a_ring_is_not_lost() {
        rings_carry_values(1);
    }

    #[test]
    fn rings_that_coincide_are_not_lost() {
        rings_carry_values(2);
    }
}
