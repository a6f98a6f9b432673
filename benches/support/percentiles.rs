//! Percentiles of samples, and medians over rounds.

use std::fmt;

/// Returns the smallest sample that is at least as large as `percent` percent of all samples, or NaN without samples.
/// With fewer than 100 samples, the 99th percentile is therefore the maximum.
pub(crate) fn percentile(samples: &[f64], percent: f64) -> f64 {
    let sorted = sorted(samples);
    let rank = (percent / 100.0 * sorted.len() as f64).ceil() as usize;
    sorted
        .get(rank.saturating_sub(1))
        .copied()
        .unwrap_or(f64::NAN)
}

/// The median of one value per round, with the lowest and the highest round. All are NaN without rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
}

impl Spread {
    pub(crate) fn of(rounds: &[f64]) -> Self {
        let sorted = sorted(rounds);
        let at = |index: usize| sorted.get(index).copied().unwrap_or(f64::NAN);
        let last = sorted.len().saturating_sub(1);
        Self {
            median: f64::midpoint(at(last / 2), at(sorted.len() / 2)),
            lowest: at(0),
            highest: at(last),
        }
    }
}

/// Prints `median (lowest to highest)` with the precision of the format string, one decimal by default.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(1);
        let Self {
            median,
            lowest,
            highest,
        } = self;
        let text = format!("{median:.digits$} ({lowest:.digits$} to {highest:.digits$})");
        match f.width() {
            Some(width) => write!(f, "{text:>width$}"),
            None => f.write_str(&text),
        }
    }
}

fn sorted(values: &[f64]) -> Vec<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted
}
