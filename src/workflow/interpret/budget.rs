use crate::model::{MAX_SEARCH_STEPS, Path};
use crate::workflow::expression::Unresolved;
use serde_json::Value;
use std::cell::Cell;

/// Maximum number of regular expressions with variables that one flow run compiles.
const MAX_PATTERNS: u64 = 1_000;

/// Number of bytes of built values that cost as much of a flow's work budget as the start of one step.
const STEP_BYTES: usize = 4 << 10;
/// Number of JSONPath search steps that cost as much of a flow's work budget as the start of one step.
const STEP_SEARCHES: usize = 1 << 12;
/// Cost of compiling one regular expression in a flow's work budget, as a number of started steps.
const PATTERN_STEPS: usize = 16;

/// Work budget of one call of the flow interpreter: the number of steps that can still begin. Large values, searches and regular
/// expressions also use up the budget.
pub(super) struct WorkBudget {
    /// Number of flow steps that can still begin in the current call of the flow interpreter. A large value, a search and a
    /// regular expression count as several steps.
    steps: Cell<u64>,
    /// Remaining number of search steps for the JSONPaths of the flow step that is being interpreted.
    searches: Cell<usize>,
    /// Number of regular expressions with variables that the flow run has compiled.
    patterns: Cell<u64>,
}

impl WorkBudget {
    pub(super) fn new(steps: u64, patterns: u64) -> Self {
        Self {
            steps: Cell::new(steps),
            searches: Cell::new(MAX_SEARCH_STEPS),
            patterns: Cell::new(patterns),
        }
    }

    pub(super) fn is_exhausted(&self) -> bool {
        self.steps.get() == 0
    }

    /// Charges the work budget of the interpreter call for the start of a flow step.
    pub(super) fn begin(&self) {
        self.charge(1);
    }

    /// Restores the full number of JSONPath search steps before the next step of the flow is interpreted.
    pub(super) fn renew_searches(&self) {
        self.searches.set(MAX_SEARCH_STEPS);
    }

    /// Charges the work budget for a value that a step builds, by the size of the value in bytes.
    pub(super) fn build(&self, bytes: usize) {
        self.charge(bytes / STEP_BYTES);
    }

    /// Charges the work budget for the search of a value by a JSONPath.
    ///
    /// # Errors
    /// Returns [`Unresolved::Searches`] if the JSONPaths of the step take too many search steps.
    pub(super) fn search(&self, path: &Path, value: &Value) -> Result<(), Unresolved> {
        let remaining = self.searches.get();
        let Some(steps) = path.search_steps(value, remaining) else {
            return Err(Unresolved::Searches(MAX_SEARCH_STEPS));
        };
        self.searches.set(remaining - steps);
        self.charge(steps / STEP_SEARCHES);
        Ok(())
    }

    /// Charges the work budget of the interpreter call for the compilation of a regular expression.
    ///
    /// # Errors
    /// Returns [`Unresolved::Patterns`] if the run has compiled too many regular expressions.
    pub(super) fn compile_pattern(&self) -> Result<(), Unresolved> {
        let patterns = self.patterns.get().saturating_add(1);
        if patterns > MAX_PATTERNS {
            return Err(Unresolved::Patterns(MAX_PATTERNS));
        }
        self.patterns.set(patterns);
        self.charge(PATTERN_STEPS);
        Ok(())
    }

    /// Returns the number of regular expressions with variables that the flow run has compiled.
    pub(super) fn compiled(&self) -> u64 {
        self.patterns.get()
    }

    fn charge(&self, steps: usize) {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        self.steps.set(self.steps.get().saturating_sub(steps));
    }
}
