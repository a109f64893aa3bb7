//! Medians with their range, and growth exponents.

use serde::{Deserialize, Serialize};

/// The samples of one figure, reduced to median and range.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) min: f64,
    pub(crate) max: f64,
    /// Coefficient of variation: standard deviation over mean.
    pub(crate) variation: f64,
}

impl Spread {
    /// None for no samples, or for samples that are not numbers.
    pub(crate) fn of(samples: &[f64]) -> Option<Self> {
        let mut sorted = samples.to_vec();
        if sorted.is_empty() || sorted.iter().any(|sample| !sample.is_finite()) {
            return None;
        }
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let median = if sorted.len().is_multiple_of(2) {
            f64::midpoint(sorted[middle - 1], sorted[middle])
        } else {
            sorted[middle]
        };
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        let variance = sorted.iter().map(|sample| (sample - mean).powi(2)).sum::<f64>() / sorted.len() as f64;
        let variation = if mean == 0.0 { 0.0 } else { variance.sqrt() / mean.abs() };
        Some(Self { median, min: sorted[0], max: sorted[sorted.len() - 1], variation })
    }
}

/// `y = constant * x ^ exponent`, fitted to measured points.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Fit {
    pub(crate) exponent: f64,
    pub(crate) constant: f64,
    /// Share of the variance that the fit explains, 0 to 1.
    pub(crate) r_squared: f64,
}

/// Fits a power law by least squares on logarithms; None with fewer than two distinct positive points.
pub(crate) fn fit_power_law(points: &[(f64, f64)]) -> Option<Fit> {
    let logs: Vec<(f64, f64)> =
        points.iter().filter(|(x, y)| *x > 0.0 && *y > 0.0).map(|(x, y)| (x.ln(), y.ln())).collect();
    let count = logs.len() as f64;
    let mean_x = logs.iter().map(|(x, _)| x).sum::<f64>() / count;
    let mean_y = logs.iter().map(|(_, y)| y).sum::<f64>() / count;
    let covariance: f64 = logs.iter().map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance_x: f64 = logs.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
    let variance_y: f64 = logs.iter().map(|(_, y)| (y - mean_y).powi(2)).sum();
    if logs.len() < 2 || variance_x == 0.0 {
        return None;
    }
    let exponent = covariance / variance_x;
    let r_squared = if variance_y == 0.0 { 1.0 } else { covariance.powi(2) / (variance_x * variance_y) };
    Some(Fit { exponent, constant: (mean_y - exponent * mean_x).exp(), r_squared })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_of_odd_and_even_samples() {
        let spread = Spread::of(&[3.0, 1.0, 2.0]).unwrap();
        assert_eq!((spread.median, spread.min, spread.max), (2.0, 1.0, 3.0));
        assert_eq!(Spread::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
        assert_eq!(Spread::of(&[5.0; 4]).unwrap().variation, 0.0);
        assert_eq!(Spread::of(&[]), None);
        assert_eq!(Spread::of(&[1.0, f64::NAN]), None);
    }

    #[test]
    fn variation_is_deviation_over_mean() {
        // Deviation of 1 and 3 is 1, their mean 2.
        assert!((Spread::of(&[1.0, 3.0]).unwrap().variation - 0.5).abs() < 1e-12);
    }

    #[test]
    fn fit_recovers_exponent_and_constant() {
        for (exponent, constant) in [(0.0, 7.0), (1.0, 0.25), (1.5, 3.0), (2.0, 1e-3)] {
            let points: Vec<_> =
                [100.0f64, 1_000.0, 10_000.0].iter().map(|x| (*x, constant * x.powf(exponent))).collect();
            let fit = fit_power_law(&points).unwrap();
            assert!((fit.exponent - exponent).abs() < 1e-9, "{fit:?}");
            assert!((fit.constant / constant - 1.0).abs() < 1e-9, "{fit:?}");
            assert!(fit.r_squared > 0.999_999);
        }
    }

    #[test]
    fn noise_lowers_r_squared() {
        let fit = fit_power_law(&[(1.0, 1.0), (10.0, 50.0), (100.0, 20.0), (1000.0, 1000.0)]).unwrap();
        assert!(fit.r_squared < 0.95);
    }

    #[test]
    fn no_fit_without_two_distinct_points() {
        assert_eq!(fit_power_law(&[]), None);
        assert_eq!(fit_power_law(&[(1.0, 2.0)]), None);
        assert_eq!(fit_power_law(&[(2.0, 2.0), (2.0, 3.0)]), None);
        assert_eq!(fit_power_law(&[(0.0, 2.0), (2.0, 3.0)]), None);
    }
}
