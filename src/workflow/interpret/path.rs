use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

/// Path of a step in a run, for example `main/3/review#2` for the second iteration of `review` in the step at position 3 of `main`.
///
/// The parts of a path are the IDs of steps and branches, or positions counted from 0 for steps without an ID. The name of a flow comes
/// before its steps, and `then`, `else`, `case0`, `try`, `on_failure` or `escalation0` before the steps of such a list. The same step of
/// the same definition always has the same path.
///
/// Use it to relate the events of a step, or to find a step in a dashboard. It prints as its text.
///
/// ```
/// use universal_executor::workflow::StepPath;
///
/// let path = StepPath::new("main/3/review#2");
/// assert_eq!(path.as_str(), "main/3/review#2");
/// assert_eq!(path.to_string(), "main/3/review#2");
/// ```
#[derive(Clone, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct StepPath(Arc<str>);

impl StepPath {
    /// Creates a step path from its text, without a check.
    #[must_use]
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// Returns the text of the step path.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the paths of the enclosing steps and flows, the innermost first.
    pub(super) fn outer(&self) -> impl Iterator<Item = Self> + '_ {
        let ends = self.0.rmatch_indices(['/', '#']);
        ends.filter_map(|(end, _)| Some(Self::new(self.0.get(..end)?)))
    }

    pub(super) fn child(&self, segment: &str) -> Self {
        Self(format!("{}/{segment}", self.0).into())
    }

    /// Returns the path of this step's iteration with the given number, counted from 1.
    pub(super) fn iteration(&self, number: u64) -> Self {
        Self(format!("{}#{number}", self.0).into())
    }

    /// Returns the two ranges of step paths, in path order, that together contain exactly the steps inside this step.
    pub(super) fn below(&self) -> [(Bound<Self>, Bound<Self>); 2] {
        // `$` follows `#` and `0` follows `/` in byte order, so they end the ranges of the paths that continue with `#` or `/`.
        [("#", "$"), ("/", "0")].map(|(first, end)| {
            let bound = |mark: &str| Self(format!("{}{mark}", self.0).into());
            (Bound::Excluded(bound(first)), Bound::Excluded(bound(end)))
        })
    }
}

impl fmt::Display for StepPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for StepPath {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn the_paths_below_a_path_exclude_its_neighbours() {
        let texts = [
            "m/a", "m/a#1", "m/a#1/x", "m/a-b", "m/a.b", "m/a/x", "m/a0", "m/ab",
        ];
        let paths: BTreeSet<StepPath> = texts.map(StepPath::from).into_iter().collect();

        let below = StepPath::from("m/a").below();
        let below: Vec<_> = below
            .iter()
            .flat_map(|range| paths.range(range.clone()))
            .collect();

        let expected = ["m/a#1", "m/a#1/x", "m/a/x"].map(StepPath::from);
        assert_eq!(below, expected.iter().collect::<Vec<_>>());
    }
}
