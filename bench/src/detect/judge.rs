//! Holds what a watch said against what is known to have happened. No I/O.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::measure::Latency;
use crate::report::DetectionMode;

/// Something that the watch said.
#[derive(Clone, Debug)]
pub(super) struct Claim {
    pub(super) at: Instant,
    pub(super) uid: String,
    pub(super) container: String,
    pub(super) said: Said,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Runs,
    HasEnded,
    PodIsGone,
}

/// A container's life, as far as it is known and was told.
#[derive(Clone, Copy, Debug, Default)]
struct Life {
    /// From here on its death could be told.
    killed: Option<Instant>,
    /// When the kernel said that its process is dead.
    died: Option<Instant>,
    is_told_running: bool,
    told: Option<Instant>,
}

/// Everything that happened and was said so far.
#[derive(Debug, Default)]
pub(super) struct Judge {
    lives: HashMap<String, Life>,
    false_claims: Vec<String>,
}

impl Judge {
    pub(super) fn kills(&mut self, container: &str, now: Instant) {
        self.lives.entry(container.to_owned()).or_default().killed = Some(now);
    }

    pub(super) fn died(&mut self, container: &str, at: Instant) {
        self.lives.entry(container.to_owned()).or_default().died = Some(at);
    }

    pub(super) fn hears(&mut self, claim: Claim) {
        let Claim { at, uid, container, said } = claim;
        let life = self.lives.entry(container.clone()).or_default();
        let falsehood = match said {
            // A pod whose manifest is there is never gone.
            Said::PodIsGone => Some("is gone"),
            // The dead do not rise; before that was told it is only late.
            Said::Runs if life.told.is_some() => Some("runs again"),
            Said::Runs => {
                life.is_told_running = true;
                None
            }
            // Nobody can know it before.
            Said::HasEnded if life.killed.is_none_or(|killed| at < killed) => Some("has ended"),
            Said::HasEnded => {
                life.told.get_or_insert(at);
                None
            }
        };
        if let Some(falsehood) = falsehood {
            self.false_claims.push(format!("pod {uid}, container {container}: {falsehood}"));
        }
    }

    pub(super) fn is_told_running(&self, container: &str) -> bool {
        self.lives.get(container).is_some_and(|life| life.is_told_running)
    }

    pub(super) fn is_told_dead(&self, container: &str) -> bool {
        self.lives.get(container).is_some_and(|life| life.told.is_some())
    }

    /// The outcome of all deaths.
    pub(super) fn verdict(&self, mode: &str) -> DetectionMode {
        let (mut deaths, mut missed, mut latency) = (0, 0, Latency::new());
        for life in self.lives.values() {
            let Some(died) = life.died else { continue };
            deaths += 1;
            match life.told {
                // The kernel may be asked a little later than the server learns of it.
                Some(told) => {
                    latency.record(told.saturating_duration_since(died).max(Duration::from_nanos(1)));
                }
                None => missed += 1,
            }
        }
        DetectionMode {
            mode: mode.to_owned(),
            deaths,
            missed,
            false_claims: self.false_claims.len() as u64,
            first_false_claim: self.false_claims.first().cloned(),
            latency: latency.summary(),
            failure: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_deaths_that_happened_are_true() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut judge = Judge::default();
        let say = |judge: &mut Judge, container: &str, said, ms| {
            judge.hears(Claim { at: at(ms), uid: "u".into(), container: container.into(), said });
        };
        say(&mut judge, "a", Said::Runs, 0);
        say(&mut judge, "b", Said::Runs, 0);
        assert!(judge.is_told_running("a") && !judge.is_told_dead("a"));
        judge.kills("a", at(10));
        judge.died("a", at(11));
        // What was on its way is not false.
        say(&mut judge, "a", Said::Runs, 12);
        say(&mut judge, "a", Said::HasEnded, 14);
        say(&mut judge, "a", Said::HasEnded, 20);
        judge.kills("c", at(30));
        judge.died("c", at(31));
        let verdict = judge.verdict("events");
        assert_eq!((verdict.deaths, verdict.missed, verdict.false_claims), (2, 1, 0));
        assert!(verdict.latency.p50.abs_diff(3_000_000) < 10_000, "{}", verdict.latency.p50);
        say(&mut judge, "a", Said::Runs, 21);
        say(&mut judge, "b", Said::HasEnded, 22);
        say(&mut judge, "", Said::PodIsGone, 23);
        assert_eq!(judge.verdict("events").false_claims, 3);
        assert_eq!(
            judge.verdict("events").first_false_claim.as_deref(),
            Some("pod u, container a: runs again")
        );
    }

    #[test]
    fn death_told_before_the_kill_is_false_and_does_not_count_as_told() {
        let start = Instant::now();
        let mut judge = Judge::default();
        judge.kills("a", start + Duration::from_millis(5));
        judge.hears(Claim { at: start, uid: "u".into(), container: "a".into(), said: Said::HasEnded });
        judge.died("a", start + Duration::from_millis(6));
        let verdict = judge.verdict("lists");
        assert_eq!((verdict.missed, verdict.false_claims), (1, 1));
    }
}
