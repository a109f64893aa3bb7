//! A run beside an older one: ratios are compared, because absolute figures belong to one machine and one day.

use super::model::{Ratio, Run};
use super::text::{Table, significant};

/// Changes smaller than this share are left out of what is called a change.
const NOTABLE: f64 = 0.1;

/// Returns a table of the ratios in both runs.
pub(crate) fn compare_runs(new: &Run, old: &Run) -> String {
    let mut table = Table::new(&["workload", "figure", "of / to", "then", "now", "change"]);
    let before = |workload: &str, ratio: &Ratio| {
        old.comparison.as_ref()?.ratio(workload, &ratio.of, &ratio.to, &ratio.figure)
    };
    let workloads = new.comparison.iter().flat_map(|comparison| &comparison.workloads);
    for workload in workloads {
        for ratio in &workload.ratios {
            let Some(then) = before(&workload.id, ratio) else { continue };
            table.row(vec![
                workload.id.clone(),
                ratio.figure.clone(),
                format!("{} / {}", ratio.of, ratio.to),
                significant(then.spread.median),
                significant(ratio.spread.median),
                change(then, ratio),
            ]);
        }
    }
    for series in new.density.iter().flat_map(|density| &density.series) {
        let (Some(now), Some(then)) = (series.fit, old.growth(&series.figure)) else { continue };
        table.row(vec![
            "growth".to_owned(),
            series.figure.clone(),
            "exponent".to_owned(),
            significant(then.exponent),
            significant(now.exponent),
            String::new(),
        ]);
    }
    table.to_string()
}

/// A change is one when the ranges of both runs do not overlap.
fn change(before: &Ratio, now: &Ratio) -> String {
    let share = now.spread.median / before.spread.median - 1.0;
    if now.spread.min <= before.spread.max && before.spread.min <= now.spread.max {
        return "within noise".to_owned();
    }
    let word = match share {
        share if share.abs() < NOTABLE => "",
        share if share > 0.0 => " worse",
        _ => " better",
    };
    format!("{:+.0}%{word}", share * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::model::tests::example;

    #[test]
    fn only_ranges_that_do_not_overlap_are_a_change() {
        let (old, mut new) = (example(20.0), example(20.0));
        assert!(compare_runs(&new, &old).contains("within noise"));
        let ratio = &mut new.comparison.as_mut().unwrap().workloads[0].ratios[0];
        (ratio.spread.min, ratio.spread.median, ratio.spread.max) = (2.4, 2.5, 2.6);
        assert!(compare_runs(&new, &old).contains("+100% worse"));
        assert!(compare_runs(&old, &new).contains("-50% better"));
    }

    #[test]
    fn workloads_of_one_run_only_are_left_out() {
        let mut old = example(20.0);
        old.comparison = None;
        assert!(!compare_runs(&example(20.0), &old).contains("get-1x1"));
    }
}
