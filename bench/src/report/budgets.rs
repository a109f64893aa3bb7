//! Budgets: the ratios and growth exponents that a run must keep.

use std::fmt;
use std::path::Path;

use anyhow::Context as _;
use serde::Deserialize;

use super::model::Run;
use super::text::significant;

/// The contents of a budget file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Budgets {
    #[serde(default)]
    ratio: Vec<RatioBudget>,
    #[serde(default)]
    growth: Vec<GrowthBudget>,
    #[serde(default)]
    detection: Vec<DetectionBudget>,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct RatioBudget {
    workload: String,
    of: String,
    to: String,
    figure: String,
    at_most: f64,
    /// Whether it holds for the run under a CPU quota.
    #[serde(default)]
    under_quota: bool,
    /// What the budget protects.
    why: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct GrowthBudget {
    figure: String,
    exponent_at_most: f64,
    why: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct DetectionBudget {
    mode: String,
    p50_ms: f64,
    p99_ms: f64,
    why: String,
}

/// How a run stands to one budget.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) budget: String,
    pub(crate) measured: String,
    pub(crate) outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Kept,
    /// Above the budget, but not so that the machine's noise could not be the reason.
    Unclear,
    Missed,
    /// The run did not include it.
    Unmeasured,
}

impl fmt::Display for Outcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Kept => "kept",
            Self::Unclear => "unclear",
            Self::Missed => "MISSED",
            Self::Unmeasured => "not measured",
        })
    }
}

impl Budgets {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        toml::from_str(&text).with_context(|| format!("decoding {}", path.display()))
    }

    /// Holds a run against every budget.
    pub(crate) fn check(&self, run: &Run) -> Vec<Finding> {
        let ratios = self.ratio.iter().map(|budget| budget.check(run));
        let growths = self.growth.iter().map(|budget| budget.check(run));
        let detections = self.detection.iter().map(|budget| budget.check(run));
        ratios.chain(growths).chain(detections).collect()
    }
}

impl RatioBudget {
    fn check(&self, run: &Run) -> Finding {
        let Self { workload, of, to, figure, at_most, under_quota, why } = self;
        let (comparison, place) =
            if *under_quota { (&run.limited, " under a CPU quota") } else { (&run.comparison, "") };
        let budget = format!("{workload}{place}: {figure} of {of} over {to} at most {at_most} ({why})");
        let Some(ratio) =
            comparison.as_ref().and_then(|comparison| comparison.ratio(workload, of, to, figure))
        else {
            return Finding { budget, measured: String::new(), outcome: Outcome::Unmeasured };
        };
        let spread = ratio.spread;
        let measured = [spread.median, spread.min, spread.max].map(significant);
        let outcome = match spread.median <= *at_most {
            true => Outcome::Kept,
            false if spread.min <= *at_most => Outcome::Unclear,
            false => Outcome::Missed,
        };
        let [median, min, max] = measured;
        Finding { budget, measured: format!("{median} ({min} to {max})"), outcome }
    }
}

impl GrowthBudget {
    fn check(&self, run: &Run) -> Finding {
        let Self { figure, exponent_at_most, why } = self;
        let budget = format!("growth of {figure}: exponent at most {exponent_at_most} ({why})");
        let Some(fit) = run.growth(figure) else {
            return Finding { budget, measured: String::new(), outcome: Outcome::Unmeasured };
        };
        let outcome = if fit.exponent <= *exponent_at_most { Outcome::Kept } else { Outcome::Missed };
        Finding { budget, measured: significant(fit.exponent), outcome }
    }
}

impl DetectionBudget {
    /// Times depend on the machine, so they only say whether to look; a claim that is false, or missing, is a miss.
    fn check(&self, run: &Run) -> Finding {
        let Self { mode, p50_ms, p99_ms, why } = self;
        let budget = format!(
            "death of a container told by {mode}: p50 at most {p50_ms} ms, p99 {p99_ms} ms, none falsely ({why})"
        );
        let Some(found) = run.detection(mode) else {
            return Finding { budget, measured: String::new(), outcome: Outcome::Unmeasured };
        };
        let [p50, p99] = [found.latency.p50, found.latency.p99].map(|nanos| nanos as f64 / 1e6);
        let outcome = match found.false_claims + found.missed {
            0 if p50 <= *p50_ms && p99 <= *p99_ms => Outcome::Kept,
            0 => Outcome::Unclear,
            _ => Outcome::Missed,
        };
        let measured = format!(
            "{}, {} ms, {} false, {} missed",
            significant(p50),
            significant(p99),
            found.false_claims,
            found.missed
        );
        Finding { budget, measured, outcome }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::tests::example;

    fn outcomes(budgets: &str) -> Vec<Outcome> {
        let budgets: Budgets = toml::from_str(budgets).unwrap();
        budgets.check(&example(20.0)).into_iter().map(|finding| finding.outcome).collect()
    }

    fn ratio(workload: &str, at_most: f64) -> String {
        format!(
            "[[ratio]]\nworkload='{workload}'\nof='pods-api'\nto='floor'\nfigure='cpu'\nat_most={at_most}\nwhy='w'\n"
        )
    }

    #[test]
    fn ratio_is_held_against_median_and_range() {
        // The example's ratio is 1.25, from 1.2 to 1.3.
        assert_eq!(outcomes(&ratio("get-1x1", 1.26)), [Outcome::Kept]);
        assert_eq!(outcomes(&ratio("get-1x1", 1.21)), [Outcome::Unclear]);
        assert_eq!(outcomes(&ratio("get-1x1", 1.19)), [Outcome::Missed]);
        assert_eq!(outcomes(&ratio("list", 9.0)), [Outcome::Unmeasured]);
        // Under the quota it is 0.5.
        assert_eq!(outcomes(&format!("{}under_quota=true", ratio("get-1x1", 0.6))), [Outcome::Kept]);
    }

    #[test]
    fn growth_is_held_against_its_exponent() {
        let growth =
            |most: f64| format!("[[growth]]\nfigure='list CPU µs'\nexponent_at_most={most}\nwhy='w'\n");
        assert_eq!(outcomes(&growth(1.1)), [Outcome::Kept]);
        assert_eq!(outcomes(&growth(0.9)), [Outcome::Missed]);
    }

    #[test]
    fn detection_is_held_against_its_times_and_its_truth() {
        let budgets = |p50: f64| format!("[[detection]]\nmode='events'\np50_ms={p50}\np99_ms=20\nwhy='w'\n");
        assert_eq!(outcomes(&budgets(3.0)), [Outcome::Kept]);
        assert_eq!(outcomes(&budgets(2.0)), [Outcome::Unclear]);
        assert_eq!(outcomes(&budgets(3.0).replace("events", "lists")), [Outcome::Unmeasured]);
        let mut run = example(20.0);
        run.detection.as_mut().unwrap().modes[0].false_claims = 1;
        let findings = toml::from_str::<Budgets>(&budgets(3.0)).unwrap().check(&run);
        assert_eq!(findings[0].outcome, Outcome::Missed);
    }

    #[test]
    fn misspelt_budget_is_refused() {
        assert!(toml::from_str::<Budgets>("[[ratios]]\n").is_err());
    }

    #[test]
    fn budgets_of_the_project_are_readable_and_name_real_workloads() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("budgets.toml");
        let budgets = Budgets::read(&path).unwrap();
        let workloads: Vec<&str> =
            crate::compare::Workload::all().iter().map(|workload| workload.id()).collect();
        assert!(!budgets.ratio.is_empty() && !budgets.growth.is_empty());
        for budget in &budgets.ratio {
            assert!(workloads.contains(&budget.workload.as_str()), "{}", budget.workload);
            assert!(["cpu", "p50", "p99"].contains(&budget.figure.as_str()), "{}", budget.figure);
        }
    }
}
