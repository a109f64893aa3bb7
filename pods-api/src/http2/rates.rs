//! Limits on frames that cost the server more than the client (RFC 9113 section 10.5): token buckets over the time
//! that the caller hands in.
//!
//! A bucket also takes credit for useful work. A gRPC client probes the bandwidth with a PING for each batch of DATA
//! it gets, and returns windows as it reads, so a busy connection sees thousands of both per second; without streams
//! the same numbers are a flood.

use std::time::{Duration, Instant};

/// How many of something a peer may do: at once, and per second for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// How many at once.
    pub burst: u32,
    /// How many per second in the long run; at least one.
    pub per_second: u32,
}

impl Limit {
    /// A limit.
    #[must_use]
    pub const fn new(burst: u32, per_second: u32) -> Self {
        Self { burst, per_second }
    }
}

/// A token bucket, kept as the time at which it would be full again.
#[derive(Debug)]
pub(crate) struct Meter {
    interval: Duration,
    tolerance: Duration,
    full_at: Instant,
    credit: u32,
    credit_limit: u32,
}

impl Meter {
    /// A full bucket. At most `credit_limit` tokens can be earned ahead.
    pub(crate) fn new(limit: Limit, credit_limit: u32, now: Instant) -> Self {
        let interval = Duration::from_secs(1) / limit.per_second.max(1);
        Self { interval, tolerance: interval * limit.burst, full_at: now, credit: 0, credit_limit }
    }

    /// Takes a token; false if there is none.
    #[must_use]
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        if self.credit > 0 {
            self.credit -= 1;
            return true;
        }
        let full_at = self.full_at.max(now) + self.interval;
        if full_at > now + self.tolerance {
            return false;
        }
        self.full_at = full_at;
        true
    }

    /// Adds tokens for useful work.
    pub(crate) fn earn(&mut self, tokens: u32) {
        self.credit = self.credit.saturating_add(tokens).min(self.credit_limit);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_then_the_rate_holds() {
        let start = Instant::now();
        let mut meter = Meter::new(Limit::new(3, 10), 0, start);
        assert_eq!((0..5).map(|_| meter.take(start)).collect::<Vec<_>>(), [true, true, true, false, false]);
        let later = start + Duration::from_millis(100);
        assert!(meter.take(later));
        assert!(!meter.take(later));
        let much_later = start + Duration::from_secs(60);
        assert_eq!((0..5).filter(|_| meter.take(much_later)).count(), 3);
    }

    #[test]
    fn work_earns_tokens_up_to_the_credit_limit() {
        let start = Instant::now();
        let mut meter = Meter::new(Limit::new(1, 1), 2, start);
        meter.earn(100);
        assert_eq!((0..5).filter(|_| meter.take(start)).count(), 3);
    }
}
