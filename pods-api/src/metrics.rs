//! Every metric family: name, help, and where its value is read.
//!
//! Rooms keep plain counters of their own; a scrape reads them. So no metric is kept twice, and no room depends on
//! the exposition format.

use crate::grpc::{Api, Method, Rejection, RequestCounters};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric as _};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;

/// Label names and values of one sample.
pub type Labels<'a> = &'a [(&'a str, &'a str)];

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
        ConstCounter::new(value).encode(self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?)
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

/// The documented request metrics (rules E.3.3 to E.3.5), and ours for calls they leave out.
pub(crate) fn requests(scrape: &mut Scrape<'_>, requests: &RequestCounters) -> fmt::Result {
    let of = |wanted: Option<Method>| {
        let mut sums = std::collections::BTreeMap::<(&str, &str), u64>::new();
        for (api, method, code, count) in requests.iter() {
            let is_documented = matches!(method, Method::List | Method::Get | Method::Watch);
            if wanted.map_or(is_documented, |wanted| wanted == method) {
                *sums.entry((api.as_str(), code.go_name())).or_default() += count;
            }
        }
        sums.into_iter().map(|((api, code), count)| {
            ([("server_api_version", api.to_owned()), ("status_code", code.to_owned())], count)
        })
    };
    scrape.counters("kubelet_pod_requests", "[ALPHA] Cumulative number of pod requests that ended", of(None))?;
    scrape.counters(
        "kubelet_pod_requests_list",
        "[ALPHA] Cumulative number of ListPods requests that ended",
        of(Some(Method::List)),
    )?;
    scrape.counters(
        "kubelet_pod_requests_get",
        "[ALPHA] Cumulative number of GetPod requests that ended",
        of(Some(Method::Get)),
    )?;
    scrape.counters(
        "kubelet_pod_requests_watch",
        "[ALPHA] Cumulative number of WatchPods requests that ended",
        of(Some(Method::Watch)),
    )?;
    let node = requests.iter().filter(|(api, ..)| *api == Api::Node).map(|(_, method, code, count)| {
        ([("method", method.as_str().to_owned()), ("status_code", code.go_name().to_owned())], count)
    });
    scrape.counters("pods_api_node_requests", "Calls of podsapi.v1.Node that ended", node)?;
    scrape.counters(
        "pods_api_requests_rejected",
        "Calls turned away before they were counted as requests, by reason",
        [([("reason", "rate_limit".to_owned())], requests.rejections(Rejection::RateLimit))],
    )
}
