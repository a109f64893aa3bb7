//! Families into the exposition format: what the metrics are written through. Runs on the control thread.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::time::Duration;

/// What a family's values are taken through.
#[derive(Debug)]
pub struct Scrape<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Scrape<'_> {
    /// One counter without labels. `name` leaves out `_total`, which the format adds.
    ///
    /// # Errors
    /// When the text cannot be written.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        ConstCounter::new(value).encode(self.encoder.encode_descriptor(
            name,
            help,
            None,
            MetricType::Counter,
        )?)
    }

    /// One gauge without labels.
    ///
    /// # Errors
    /// When the text cannot be written.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        ConstGauge::new(value).encode(self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }

    /// A family of counters.
    ///
    /// # Errors
    /// When the text cannot be written.
    pub fn counters<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([(&'static str, String); N], u64)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in samples {
            ConstCounter::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }

    /// A histogram without labels; `counts` has one element more than `bounds`, for what is above them all.
    ///
    /// # Errors
    /// When the text cannot be written.
    pub fn histogram(
        &mut self,
        name: &str,
        help: &str,
        bounds: &[f64],
        counts: &[u64],
        sum: Duration,
    ) -> fmt::Result {
        let bounds = bounds.iter().copied().chain([f64::INFINITY]);
        let buckets: Vec<_> = bounds.zip(counts.iter().copied()).collect();
        let total = counts.iter().sum();
        self.encoder
            .encode_descriptor(name, help, None, MetricType::Histogram)?
            .encode_histogram::<NoLabelSet>(sum.as_secs_f64(), total, &buckets, None)
    }

    /// A family of gauges.
    ///
    /// # Errors
    /// When the text cannot be written.
    pub fn gauges<const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        samples: impl IntoIterator<Item = ([(&'static str, String); N], f64)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in samples {
            ConstGauge::new(value).encode(family.encode_family(&labels)?)?;
        }
        Ok(())
    }
}

/// Makes a function that writes families into a collector.
pub struct Families<F>(pub F);

impl<F> fmt::Debug for Families<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Families")
    }
}

impl<F: Fn(&mut Scrape<'_>) -> fmt::Result + Send + Sync + 'static> Collector for Families<F> {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.0(&mut Scrape { encoder })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus_client::registry::Registry;

    // OpenMetrics 1.0.0: a histogram has a bucket with +Inf, and it equals the count.
    #[test]
    fn histogram_ends_with_the_bucket_without_a_bound() {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Families(|scrape: &mut Scrape<'_>| {
            scrape.histogram("x_seconds", "help", &[0.1, 1.0], &[3, 2, 1], Duration::from_secs(4))
        })));
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let samples: Vec<_> = text.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(
            samples,
            [
                "x_seconds_sum 4.0",
                "x_seconds_count 6",
                "x_seconds_bucket{le=\"0.1\"} 3",
                "x_seconds_bucket{le=\"1.0\"} 5",
                "x_seconds_bucket{le=\"+Inf\"} 6",
            ]
        );
    }
}
