//! Ratios between contenders, and what they are worth on a noisy machine.

use crate::measure::Spread;
use crate::report::{Entry, Ratio, Sample, Verdict};

/// Rounds that agree within this share of their median make a ratio clear.
const CLEAR: f64 = 0.15;

type Figure = (&'static str, fn(&Sample) -> f64);

const FIGURES: [Figure; 3] = [
    ("cpu", |sample| sample.cpu_micros),
    ("p50", |sample| sample.latency.p50 as f64),
    ("p99", |sample| sample.latency.p99 as f64),
];

/// The ratios of the first contender to each other one, and of those to the floor.
pub(crate) fn ratios(entries: &[Entry]) -> Vec<Ratio> {
    let floor = entries.iter().find(|entry| entry.contender == "floor");
    let first = entries.first();
    let mut pairs: Vec<(&Entry, &Entry)> = Vec::new();
    for entry in entries {
        pairs.extend(first.filter(|first| first.contender != entry.contender).map(|first| (first, entry)));
        let to_floor = floor.filter(|floor| floor.contender != entry.contender).map(|floor| (entry, floor));
        pairs.extend(to_floor.filter(|(of, _)| first.is_none_or(|first| first.contender != of.contender)));
    }
    let each = |(of, to): (&Entry, &Entry)| {
        FIGURES.iter().filter_map(|figure| ratio(of, to, figure)).collect::<Vec<_>>()
    };
    pairs.into_iter().flat_map(each).collect()
}

fn ratio(of: &Entry, to: &Entry, (figure, value): &Figure) -> Option<Ratio> {
    let rounds: Vec<f64> = of.samples.iter().zip(&to.samples).map(|(of, to)| value(of) / value(to)).collect();
    let spread = Spread::of(&rounds)?;
    Some(Ratio {
        of: of.contender.clone(),
        to: to.contender.clone(),
        figure: (*figure).to_owned(),
        spread,
        verdict: verdict(&spread, rounds.len()),
    })
}

fn verdict(spread: &Spread, rounds: usize) -> Verdict {
    let near = |value: f64| (value / spread.median - 1.0).abs() <= CLEAR;
    if rounds >= 3 && near(spread.min) && near(spread.max) {
        Verdict::Clear
    } else if rounds >= 3 && (spread.min > 1.0 || spread.max < 1.0) {
        Verdict::Direction
    } else {
        Verdict::Noise
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(contender: &str, cpu: &[f64]) -> Entry {
        let samples = cpu.iter().map(|cpu| Sample { cpu_micros: *cpu, ..Sample::default() }).collect();
        Entry { samples, ..Entry::new(contender) }
    }

    #[test]
    fn drift_of_the_machine_cancels_out_of_a_ratio() {
        let entries = [entry("ours", &[10.0, 20.0, 40.0]), entry("floor", &[5.0, 10.0, 20.0])];
        let ratios = ratios(&entries);
        let cpu = ratios.iter().find(|ratio| ratio.figure == "cpu").unwrap();
        assert_eq!((cpu.of.as_str(), cpu.to.as_str()), ("ours", "floor"));
        assert_eq!((cpu.spread.min, cpu.spread.max, cpu.verdict), (2.0, 2.0, Verdict::Clear));
    }

    #[test]
    fn every_pair_occurs_once() {
        let entries = [entry("ours", &[1.0; 3]), entry("floor", &[1.0; 3]), entry("tonic", &[1.0; 3])];
        let pairs: Vec<_> = ratios(&entries)
            .into_iter()
            .filter(|ratio| ratio.figure == "cpu")
            .map(|ratio| (ratio.of, ratio.to))
            .collect();
        let pair = |of: &str, to: &str| (of.to_owned(), to.to_owned());
        assert_eq!(pairs, [pair("ours", "floor"), pair("ours", "tonic"), pair("tonic", "floor")]);
    }

    #[test]
    fn noisy_rounds_are_called_noise() {
        let verdict_of = |cpu: &[f64]| {
            let entries = [entry("ours", cpu), entry("floor", &vec![1.0; cpu.len()])];
            ratios(&entries)[0].verdict
        };
        assert_eq!(verdict_of(&[0.8, 1.0, 1.3]), Verdict::Noise, "the rounds contradict each other");
        assert_eq!(verdict_of(&[1.2, 2.0, 3.0]), Verdict::Direction);
        assert_eq!(verdict_of(&[0.2, 0.5, 0.9]), Verdict::Direction);
        assert_eq!(verdict_of(&[1.9, 2.0, 2.1]), Verdict::Clear);
        assert_eq!(verdict_of(&[2.0, 2.0]), Verdict::Noise, "two rounds prove nothing");
    }

    #[test]
    fn contender_without_samples_has_no_ratio() {
        assert!(ratios(&[entry("ours", &[]), entry("floor", &[1.0; 3])]).is_empty());
    }
}
