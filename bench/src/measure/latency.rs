//! Latency histograms, free of coordinated omission: what is recorded runs from the intended start of a request,
//! so a stalled server is charged for the requests that could not even be sent.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

const MAX_NANOS: u64 = 600_000_000_000;
/// Three significant digits: an error of at most 0.1%.
const SIGNIFICANT_DIGITS: u8 = 3;
/// Percentiles of the curve in reports: half the rest each step, which is what a logarithmic axis shows evenly.
const CURVE_HALVINGS: i32 = 14;

/// A histogram of durations.
pub(crate) struct Latency(Histogram<u64>);

/// A histogram, reduced to what reports show. Times are nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) count: u64,
    pub(crate) mean: f64,
    pub(crate) p50: u64,
    pub(crate) p90: u64,
    pub(crate) p99: u64,
    pub(crate) p999: u64,
    pub(crate) max: u64,
    /// (percentile, nanoseconds), rising.
    pub(crate) curve: Vec<(f64, u64)>,
}

impl Latency {
    pub(crate) fn new() -> Self {
        let histogram = Histogram::new_with_bounds(1, MAX_NANOS, SIGNIFICANT_DIGITS);
        Self(histogram.expect("the bounds are valid constants"))
    }

    pub(crate) fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn summary(&self) -> Summary {
        if self.0.is_empty() {
            return Summary::default();
        }
        let at = |quantile| self.0.value_at_quantile(quantile);
        let curve = (0..=CURVE_HALVINGS)
            .map(|halvings| 1.0 - 0.5f64.powi(halvings))
            // Beyond the number of samples every percentile is the maximum.
            .take_while(|quantile| (1.0 - quantile) * self.0.len() as f64 >= 1.0)
            .map(|quantile| (quantile * 100.0, at(quantile)))
            .collect();
        Summary {
            count: self.0.len(),
            mean: self.0.mean(),
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: self.0.max(),
            curve,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_samples() {
        let mut latency = Latency::new();
        for micros in 1..=1000 {
            latency.record(Duration::from_micros(micros));
        }
        let summary = latency.summary();
        for (value, wanted) in
            [(summary.p50, 500e3), (summary.p90, 900e3), (summary.p99, 990e3), (summary.max, 1000e3)]
        {
            assert!((value as f64 / wanted - 1.0).abs() < 0.002, "{value} instead of {wanted}");
        }
        assert_eq!(summary.count, 1000);
        assert!(summary.curve.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1));
        assert_eq!(summary.curve.len(), 10, "1 - 2^-9 is the last percentile that 1000 samples support");
    }

    #[test]
    fn empty_histogram_has_an_empty_summary() {
        assert_eq!(Latency::new().summary(), Summary::default());
    }

    #[test]
    fn durations_out_of_range_are_kept_at_the_bound() {
        let mut latency = Latency::new();
        latency.record(Duration::ZERO);
        latency.record(Duration::from_secs(100_000));
        assert_eq!(latency.summary().count, 2);
        assert!(latency.summary().max >= MAX_NANOS);
    }
}
