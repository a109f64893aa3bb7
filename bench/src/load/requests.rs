//! Unary load: GetPod or ListPods, closed loop or open loop.

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::channels::{Channels, Target};
use crate::client::{Call, Event};
use crate::generate::Random;
use crate::measure::{Cost, Latency, Meter, Summary};

/// How long answers are awaited after the end.
const GRACE: Duration = Duration::from_secs(5);

/// When requests start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Pace {
    /// A new request as soon as one is answered: shows cost and throughput. Its latencies say nothing about waiting.
    Closed,
    /// So many requests a second, whatever the server does; latencies run from the intended start.
    Open {
        rate: f64,
        /// Exponential gaps instead of even ones.
        poisson: bool,
    },
}

/// A unary workload.
#[derive(Clone, Debug)]
pub(crate) struct RequestPlan {
    /// Calls to make, in turn.
    pub(crate) calls: Vec<Call>,
    pub(crate) connections: usize,
    /// Streams open at a time on each connection.
    pub(crate) streams: usize,
    pub(crate) pace: Pace,
    pub(crate) warm_up: Duration,
    pub(crate) duration: Duration,
    /// Ends the measurement early, after so many answers.
    pub(crate) requests: Option<u64>,
}

/// What a unary workload showed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RequestOutcome {
    /// Requests answered with OK and one message.
    pub(crate) answered: u64,
    /// Other answers, by gRPC code.
    pub(crate) failed: BTreeMap<u32, u64>,
    /// Open loop: requests that had no answer at the end; their latency so far is in `latency`.
    pub(crate) unfinished: u64,
    pub(crate) message_bytes: u64,
    pub(crate) elapsed_nanos: u64,
    pub(crate) latency: Summary,
    /// Open loop: how late requests were sent, by the client's doing or for lack of room on the connections.
    pub(crate) lateness: Summary,
    pub(crate) server: Option<Cost>,
    pub(crate) client: Cost,
}

impl RequestOutcome {
    /// Requests that had an answer, whatever it was.
    fn ended(&self) -> u64 {
        self.answered + self.failed.values().sum::<u64>()
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.answered as f64 * 1e9 / self.elapsed_nanos.max(1) as f64
    }
}

/// Runs a unary workload.
pub(crate) fn request(target: &Target, plan: &RequestPlan) -> anyhow::Result<RequestOutcome> {
    let mut load = Load::new(target, plan)?;
    if plan.pace == Pace::Closed {
        load.channels.block_on_read()?;
    } else {
        // The default slack of 50 µs would show in every latency.
        rustix::thread::set_current_timer_slack(NonZeroU64::new(1))?;
    }
    load.run()
}

struct Load<'a> {
    target: &'a Target,
    plan: &'a RequestPlan,
    channels: Channels,
    in_flight: Vec<usize>,
    slots: Vec<Slot>,
    free: Vec<usize>,
    /// Intended starts of requests that no connection had room for yet.
    backlog: VecDeque<Instant>,
    next_call: usize,
    next_channel: usize,
    dirty: Vec<usize>,
    measured: Option<Measured>,
}

/// A request in flight; its index is the tag.
struct Slot {
    due: Instant,
    messages: u32,
    bytes: u64,
}

struct Measured {
    /// An open loop counts the requests that are due from here on.
    due_from: Instant,
    meter: Meter,
    outcome: RequestOutcome,
    latency: Latency,
    lateness: Latency,
}

struct Answer {
    slot: usize,
    status: u32,
}

impl<'a> Load<'a> {
    fn new(target: &'a Target, plan: &'a RequestPlan) -> anyhow::Result<Self> {
        Ok(Self {
            target,
            plan,
            channels: Channels::connect(target, plan.connections)?,
            in_flight: vec![0; plan.connections],
            slots: Vec::new(),
            free: Vec::new(),
            backlog: VecDeque::new(),
            next_call: 0,
            next_channel: 0,
            dirty: Vec::new(),
            measured: None,
        })
    }

    fn run(mut self) -> anyhow::Result<RequestOutcome> {
        let start = Instant::now();
        let measure_from = start + self.plan.warm_up;
        let end = measure_from + self.plan.duration;
        let mut arrivals = match self.plan.pace {
            Pace::Closed => None,
            Pace::Open { rate, poisson } => Some(Arrivals::new(start, rate, poisson)),
        };
        if arrivals.is_none() {
            self.backlog.extend(std::iter::repeat_n(start, self.plan.connections * self.plan.streams));
        }
        let mut answers = Vec::new();
        loop {
            let now = Instant::now();
            if self.measured.is_none() && now >= measure_from {
                self.begin_measuring(measure_from)?;
            }
            let seen = self.measured.as_ref().map_or(0, |measured| measured.outcome.ended());
            let enough = self.plan.requests.is_some_and(|limit| seen >= limit);
            // A server too slow for the time given still gets to answer: once, or what was due.
            let complete = || if self.plan.pace == Pace::Closed { seen > 0 } else { self.is_idle() };
            let finished = now >= end && (complete() || now >= end + GRACE);
            if finished || enough {
                return self.finish(end);
            }
            let mut timeout = None;
            if let Some(arrivals) = &mut arrivals {
                while arrivals.next <= now && arrivals.next < end {
                    self.backlog.push_back(arrivals.take());
                }
                let last = if now < end { end } else { end + GRACE };
                let wake = if arrivals.next < end { arrivals.next } else { last };
                timeout = Some(wake.saturating_duration_since(now));
            }
            self.dispatch(now)?;
            let ready = self.channels.wait(timeout)?;
            for channel in &ready {
                self.read(*channel, &mut answers)?;
                let now = Instant::now();
                for answer in answers.drain(..) {
                    self.record(&answer, now);
                    self.in_flight[*channel] -= 1;
                    self.free.push(answer.slot);
                    if arrivals.is_none() {
                        self.backlog.push_back(now);
                    }
                }
                self.next_channel = *channel;
                self.dispatch(now)?;
                self.channels.flush(*channel)?;
            }
            self.channels.done_with(ready);
        }
    }

    fn is_idle(&self) -> bool {
        self.backlog.is_empty() && self.in_flight.iter().all(|count| *count == 0)
    }

    /// Starts as many waiting requests as the connections have room for.
    fn dispatch(&mut self, now: Instant) -> anyhow::Result<()> {
        let mut full = 0;
        while let Some(due) = self.backlog.front().copied()
            && full < self.channels.len()
        {
            let channel = self.next_channel;
            let slot = self.free.pop().unwrap_or(self.slots.len());
            let call = &self.plan.calls[self.next_call % self.plan.calls.len()];
            if self.in_flight[channel] >= self.plan.streams
                || !self.channels.start(channel, call, slot as u64)
            {
                if slot < self.slots.len() {
                    self.free.push(slot);
                }
                full += 1;
                self.next_channel = (channel + 1) % self.channels.len();
                continue;
            }
            let state = Slot { due, messages: 0, bytes: 0 };
            if slot == self.slots.len() {
                self.slots.push(state);
            } else {
                self.slots[slot] = state;
            }
            self.backlog.pop_front();
            self.in_flight[channel] += 1;
            self.next_call += 1;
            if self.plan.pace != Pace::Closed {
                // Spread an open loop's requests; a closed loop stays with the connection that has just answered,
                // whose next requests then share a write.
                self.next_channel = (channel + 1) % self.channels.len();
                if let Some(measured) = &mut self.measured
                    && due >= measured.due_from
                {
                    measured.lateness.record(now.saturating_duration_since(due));
                }
            }
            if self.dirty.last() != Some(&channel) {
                self.dirty.push(channel);
            }
        }
        while let Some(channel) = self.dirty.pop() {
            self.channels.flush(channel)?;
        }
        Ok(())
    }

    fn read(&mut self, channel: usize, answers: &mut Vec<Answer>) -> anyhow::Result<()> {
        let slots = &mut self.slots;
        self.channels.read(channel, &mut |event| match event {
            Event::Message { tag, length, .. } => {
                let slot = &mut slots[tag as usize];
                slot.messages += 1;
                slot.bytes += length as u64;
            }
            Event::End { tag, status, .. } => answers.push(Answer { slot: tag as usize, status }),
        })
    }

    fn record(&mut self, answer: &Answer, now: Instant) {
        let Some(measured) = &mut self.measured else { return };
        let slot = &self.slots[answer.slot];
        // A closed loop counts the answers after the warm-up instead.
        if self.plan.pace != Pace::Closed && slot.due < measured.due_from {
            return;
        }
        match (answer.status, slot.messages) {
            (0, 1) => {
                measured.outcome.answered += 1;
                measured.outcome.message_bytes += slot.bytes;
                measured.latency.record(now.saturating_duration_since(slot.due));
            }
            // OK with another number of messages than one breaks the contract of a unary call: INTERNAL.
            (0, _) => *measured.outcome.failed.entry(13).or_default() += 1,
            (status, _) => *measured.outcome.failed.entry(status).or_default() += 1,
        }
    }

    fn begin_measuring(&mut self, due_from: Instant) -> anyhow::Result<()> {
        self.measured = Some(Measured {
            due_from,
            meter: self.target.meter()?,
            outcome: RequestOutcome::default(),
            latency: Latency::new(),
            lateness: Latency::new(),
        });
        Ok(())
    }

    fn finish(self, end: Instant) -> anyhow::Result<RequestOutcome> {
        let Some(measured) = self.measured else { return Ok(RequestOutcome::default()) };
        let Measured { due_from, meter, mut outcome, mut latency, lateness } = measured;
        let costs = meter.finish()?;
        (outcome.server, outcome.client) = (costs.server, costs.client);
        outcome.elapsed_nanos = costs.client.elapsed_nanos;
        if self.plan.pace != Pace::Closed {
            let now = Instant::now();
            let free: std::collections::HashSet<usize> = self.free.into_iter().collect();
            let in_flight = (0..self.slots.len()).filter(|slot| !free.contains(slot));
            let waiting = in_flight.map(|slot| self.slots[slot].due).chain(self.backlog);
            for due in waiting.filter(|due| *due >= due_from) {
                outcome.unfinished += 1;
                latency.record(now - due);
            }
            // Answers were awaited beyond the last arrival; the rate is that of the arrivals' time.
            let window = end.saturating_duration_since(due_from).as_nanos() as u64;
            outcome.elapsed_nanos = outcome.elapsed_nanos.min(window);
        }
        outcome.latency = latency.summary();
        outcome.lateness = lateness.summary();
        Ok(outcome)
    }
}

/// Intended start times of an open loop.
struct Arrivals {
    start: Instant,
    next: Instant,
    gap: Duration,
    count: u32,
    random: Option<Random>,
}

impl Arrivals {
    fn new(start: Instant, rate: f64, poisson: bool) -> Self {
        Self {
            start,
            next: start,
            gap: Duration::from_secs_f64(1.0 / rate),
            count: 0,
            random: poisson.then(|| Random::new(1)),
        }
    }

    fn take(&mut self) -> Instant {
        let due = self.next;
        match &mut self.random {
            // The inverse of the exponential distribution's cumulative function.
            Some(random) => self.next += self.gap.mul_f64(-random.unit().ln()),
            // From the start, not from the last arrival: the rounding of the gap would add up.
            None => {
                self.count += 1;
                self.next = self.start + self.gap * self.count;
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_arrivals_keep_the_rate() {
        let start = Instant::now();
        let mut arrivals = Arrivals::new(start, 1_000.0, false);
        let last = (0..=5_000).map(|_| arrivals.take()).last().unwrap();
        assert_eq!(last - start, Duration::from_secs(5));
    }

    #[test]
    fn poisson_arrivals_keep_the_rate_and_vary_as_much_as_they_should() {
        let start = Instant::now();
        let mut arrivals = Arrivals::new(start, 1_000.0, true);
        let dues: Vec<_> = (0..20_000).map(|_| arrivals.take()).collect();
        let gaps: Vec<f64> = dues.windows(2).map(|pair| (pair[1] - pair[0]).as_secs_f64() * 1e3).collect();
        let spread = crate::measure::Spread::of(&gaps).unwrap();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        assert!((mean - 1.0).abs() < 0.05, "{mean}");
        assert!((spread.variation - 1.0).abs() < 0.05, "an exponential gap deviates as much as its mean");
    }
}
