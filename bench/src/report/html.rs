//! A run as one HTML page that needs nothing else: plots are inline, colours follow the reader's theme.

use std::fmt::Write as _;

use super::budgets::{Finding, Outcome};
use super::model::{Comparison, Density, DetectionMode, Run, WorkloadResult};
use super::svg::{Axis, Bar, Line, bars, escape, lines};
use super::tables;
use super::text::significant;
use crate::measure::Summary;

const STYLE: &str = "
:root{color-scheme:light dark;--ink:#1b1f24;--paper:#fff;--soft:#667;--grid:#d8dce2;
--c0:#0b6bcb;--c1:#7a7f87;--c2:#c2410c;--c3:#15803d;--c4:#8b3fc7;--c5:#b0820b}
@media(prefers-color-scheme:dark){:root{--ink:#e6e8eb;--paper:#15181c;--soft:#9aa3ad;--grid:#333a42;
--c0:#58a6ff;--c1:#9aa3ad;--c2:#fb923c;--c3:#4ade80;--c4:#c792ea;--c5:#facc15}}
body{background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,sans-serif;max-width:860px;margin:2rem auto;padding:0 1rem}
pre{overflow-x:auto;font:12px/1.45 ui-monospace,monospace;border:1px solid var(--grid);padding:.6rem}
table{border-collapse:collapse}td,th{padding:.15rem .7rem .15rem 0;text-align:left;vertical-align:top}
h2{margin-top:2.2rem}h3{margin:1.6rem 0 .3rem}.soft{color:var(--soft)}.missed{color:var(--c2);font-weight:600}
svg{width:100%;max-width:720px;height:auto;display:block}
.label{font:12px system-ui,sans-serif;fill:var(--ink)}.tick{font:11px system-ui,sans-serif;fill:var(--soft)}
.grid{stroke:var(--grid);fill:none}.whisker{stroke:var(--ink);fill:none}
.fill0{fill:var(--c0)}.fill1{fill:var(--c1)}.fill2{fill:var(--c2)}.fill3{fill:var(--c3)}.fill4{fill:var(--c4)}.fill5{fill:var(--c5)}
.line0,.line1,.line2,.line3,.line4,.line5{fill:none;stroke-width:2}
.line0{stroke:var(--c0)}.line1{stroke:var(--c1)}.line2{stroke:var(--c2)}.line3{stroke:var(--c3)}.line4{stroke:var(--c4)}.line5{stroke:var(--c5)}
";

/// Returns the page of a run; `against` is the table of an older one.
pub(crate) fn page(run: &Run, findings: &[Finding], against: Option<&str>) -> String {
    let mut html = String::from("<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\">");
    put(
        &mut html,
        format_args!(
            "<meta name=\"viewport\" content=\"width=device-width\"><title>pods-api performance</title><style>{STYLE}</style></head><body><h1>pods-api performance</h1><p class=\"soft\">{}</p>",
            escape(&tables::machine(&run.machine)).replace('\n', "<br>")
        ),
    );
    put(
        &mut html,
        format_args!(
            "<p>Ratios within one run are what counts; absolute times belong to this machine and this day. CPU is the server's. Whiskers are the range over all rounds.</p>"
        ),
    );
    budget_section(&mut html, findings);
    if let Some(comparison) = &run.comparison {
        comparison_section(&mut html, "Side by side", comparison);
    }
    if let Some(limited) = &run.limited {
        let cores = limited.cpu_quota.unwrap_or_default();
        comparison_section(&mut html, &format!("Under a quota of {cores} CPUs"), limited);
    }
    if let Some(density) = &run.density {
        density_section(&mut html, density);
    }
    if let Some(detection) = &run.detection {
        let title = "From a container's death to the event at a watch";
        put(&mut html, format_args!("<h2>{title}</h2>{}", detection_curves(&detection.modes)));
    }
    if let Some(table) = against {
        put(&mut html, format_args!("<h2>Against an older run</h2><pre>{}</pre>", escape(table)));
    }
    put(
        &mut html,
        format_args!("<h2>All figures</h2><pre>{}</pre></body></html>\n", escape(&tables::summary(run))),
    );
    html
}

fn budget_section(html: &mut String, findings: &[Finding]) {
    if findings.is_empty() {
        return;
    }
    html.push_str("<h2>Budgets</h2><table>");
    for finding in findings {
        let class = if finding.outcome == Outcome::Missed { " class=\"missed\"" } else { "" };
        put(
            html,
            format_args!(
                "<tr><td{class}>{}</td><td>{}</td><td>{}</td></tr>",
                finding.outcome,
                escape(&finding.measured),
                escape(&finding.budget)
            ),
        );
    }
    html.push_str("</table>");
}

fn comparison_section(html: &mut String, title: &str, comparison: &Comparison) {
    put(html, format_args!("<h2>{title}</h2>"));
    for workload in &comparison.workloads {
        workload_section(html, workload);
    }
}

fn workload_section(html: &mut String, workload: &WorkloadResult) {
    put(html, format_args!("<h3>{}</h3>", escape(&workload.title)));
    let cpu: Vec<Bar> = workload
        .entries
        .iter()
        .filter_map(|entry| {
            let spread = entry.cpu_micros?;
            Some(Bar {
                label: entry.contender.clone(),
                value: spread.median,
                range: Some((spread.min, spread.max)),
            })
        })
        .collect();
    put(
        html,
        format_args!(
            "<p class=\"soft\">Server CPU per {}</p>{}",
            escape(&workload.operation),
            bars(&cpu, "µs")
        ),
    );
    let ours = workload.entries.first().map(|entry| entry.contender.as_str()).unwrap_or_default();
    let ratios: Vec<String> = workload
        .ratios
        .iter()
        .filter(|ratio| ratio.figure == "cpu" && ratio.of == ours)
        .map(|ratio| {
            format!(
                "{} over {}: {}{}",
                ratio.of,
                ratio.to,
                significant(ratio.spread.median),
                tables::mark(ratio.verdict)
            )
        })
        .collect();
    put(html, format_args!("<p>{}</p>", escape(&ratios.join(" · "))));
    let curves: Vec<Line> = workload
        .entries
        .iter()
        .filter_map(|entry| {
            // The round whose median latency is the median of all rounds.
            let mut samples: Vec<_> = entry.samples.iter().collect();
            samples.sort_by_key(|sample| sample.latency.p50);
            Some(curve(&entry.contender, &samples.get(samples.len() / 2)?.latency))
        })
        .collect();
    html.push_str(&percentiles(curves));
}

fn detection_curves(modes: &[DetectionMode]) -> String {
    percentiles(modes.iter().map(|mode| curve(&mode.mode, &mode.latency)).collect())
}

/// A latency by percentile, each step halving the rest.
fn curve(label: &str, latency: &Summary) -> Line {
    let points = latency
        .curve
        .iter()
        .map(|(percentile, nanos)| (1.0 / (1.0 - percentile / 100.0), *nanos as f64 / 1e3));
    Line { label: label.to_owned(), points: points.collect() }
}

/// The plot of such curves; nothing where none has a shape.
fn percentiles(mut curves: Vec<Line>) -> String {
    curves.retain(|line| line.points.len() > 1);
    if curves.is_empty() {
        return String::new();
    }
    let last = curves.iter().filter_map(|line| line.points.last()).map(|point| point.0).fold(2.0, f64::max);
    let ticks =
        [(1.0, "min"), (2.0, "50%"), (10.0, "90%"), (100.0, "99%"), (1_000.0, "99.9%"), (10_000.0, "99.99%")];
    let percentiles = Axis {
        title: "percentile".to_owned(),
        ticks: ticks
            .into_iter()
            .filter(|tick| tick.0 <= last)
            .map(|(at, label)| (at, label.to_owned()))
            .collect(),
        range: (1.0, last),
        logarithmic: true,
    };
    let times = curves.iter().flat_map(|line| line.points.iter().map(|point| point.1));
    let times = Axis::powers_of_ten("latency in µs", times);
    lines(&curves, &percentiles, &times)
}

fn density_section(html: &mut String, density: &Density) {
    put(html, format_args!("<h2>Growth of {} with the number of pods</h2>", escape(&density.server)));
    for (title, unit) in [("Times", "µs"), ("Start and first sync", "ms"), ("Memory", "MB")] {
        let growth: Vec<Line> = density
            .series
            .iter()
            .filter(|series| series.figure.ends_with(unit))
            .map(|series| {
                let exponent =
                    series.fit.map_or_else(String::new, |fit| format!(" ^{}", significant(fit.exponent)));
                let name = series.figure.trim_end_matches(unit).trim_end();
                Line { label: format!("{name}{exponent}"), points: series.points.clone() }
            })
            .collect();
        if growth.is_empty() {
            continue;
        }
        let points = || growth.iter().flat_map(|line| line.points.iter());
        let pods = Axis::powers_of_ten("pods", points().map(|point| point.0));
        let values = Axis::powers_of_ten(unit, points().map(|point| point.1));
        put(html, format_args!("<h3>{title}</h3>{}", lines(&growth, &pods, &values)));
    }
}

fn put(html: &mut String, part: std::fmt::Arguments<'_>) {
    html.write_fmt(part).expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::tests::example;

    #[test]
    fn page_holds_everything_and_fetches_nothing() {
        let missed = Finding { budget: "a <budget>".into(), measured: "2".into(), outcome: Outcome::Missed };
        let html = page(&example(20.0), &[missed], Some("old & new"));
        for part in [
            "<svg",
            "a &lt;budget&gt;",
            "old &amp; new",
            "GetPod &lt;1 x 1&gt;",
            "pods-api over floor: 1.25",
            "prefers-color-scheme",
        ] {
            assert!(html.contains(part), "{part} is missing");
        }
        for part in ["http://", "https://", "<script", "src=", "@import", "url("] {
            assert!(!html.contains(part), "{part} would make the page depend on something");
        }
        assert_eq!(html.matches("<svg").count(), html.matches("</svg>").count());
    }
}
