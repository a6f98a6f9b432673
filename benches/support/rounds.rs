//! Summary of paired rounds: the median, with the lowest and the highest round.

use std::fmt;

/// Median, lowest and highest value of several rounds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    lowest: f64,
    highest: f64,
}

impl Spread {
    /// Returns the spread of one value per round, or `None` without a round.
    pub(crate) fn of(mut values: Vec<f64>) -> Option<Self> {
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let upper = *values.get(middle)?;
        let lower = *values.get(values.len() - 1 - middle)?;
        Some(Self {
            median: f64::midpoint(lower, upper),
            lowest: *values.first()?,
            highest: *values.last()?,
        })
    }

    /// Returns the spread of `values[i] / base[i]`, where `i` is the round of both values. A ratio within one round cancels
    /// the drift of the machine between rounds.
    pub(crate) fn of_ratios(values: &[f64], base: &[f64]) -> Option<Self> {
        let ratios = values.iter().zip(base).map(|(value, base)| value / base);
        Self::of(ratios.collect())
    }
}

/// Writes the median with the lowest and the highest round in brackets.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            median,
            lowest,
            highest,
        } = self;
        write!(f, "{median:.2} [{lowest:.2} to {highest:.2}]")
    }
}
