use crate::model::{MAX_SEARCH_STEPS, Path};
use crate::workflow::expression::Unresolved;
use serde_json::Value;
use std::cell::Cell;

/// Maximum number of regular expressions with variables that one flow run compiles.
const MAX_PATTERNS: u64 = 1_000;

/// Exchange rates between the kinds of work of a flow run: this number of bytes or search steps counts as one step, and a pattern counts as
/// this number of steps.
const STEP_BYTES: usize = 4 << 10;
const STEP_SEARCHES: usize = 1 << 12;
const PATTERN_STEPS: usize = 16;

/// The remaining work of one call of the interpreter, which walks once through the run.
pub(super) struct WorkBudget {
    /// Number of steps of the run that can still begin in this call. A large value, a search and a regular expression count as several
    /// steps.
    left: Cell<u64>,
    /// Number of search steps that the JSONPaths of the current step can still take.
    searches: Cell<usize>,
    /// Number of regular expressions that the run has compiled.
    patterns: Cell<u64>,
}

impl WorkBudget {
    pub(super) fn new(left: u64, patterns: u64) -> Self {
        Self {
            left: Cell::new(left),
            searches: Cell::new(MAX_SEARCH_STEPS),
            patterns: Cell::new(patterns),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.left.get() == 0
    }

    /// Counts a step that begins against the work budget.
    pub(super) fn begin(&self) {
        self.spend(1);
    }

    /// Resets the number of search steps that JSONPaths can take, for the next step of the flow.
    pub(super) fn renew_searches(&self) {
        self.searches.set(MAX_SEARCH_STEPS);
    }

    /// Counts a value that a step builds against the work budget, by its size in bytes.
    pub(super) fn build(&self, bytes: usize) {
        self.spend(bytes / STEP_BYTES);
    }

    /// Counts the search of a value by a JSONPath against the work budget.
    ///
    /// # Errors
    /// Returns [`Unresolved::Searches`] if the searches of the step take too many steps.
    pub(super) fn search(&self, path: &Path, value: &Value) -> Result<(), Unresolved> {
        let left = self.searches.get();
        let Some(steps) = path.search_steps(value, left) else {
            return Err(Unresolved::Searches(MAX_SEARCH_STEPS));
        };
        self.searches.set(left - steps);
        self.spend(steps / STEP_SEARCHES);
        Ok(())
    }

    /// Counts a regular expression that is compiled for the run against the work budget.
    ///
    /// # Errors
    /// Returns [`Unresolved::Patterns`] if the run has compiled too many.
    pub(super) fn compile_pattern(&self) -> Result<(), Unresolved> {
        let patterns = self.patterns.get().saturating_add(1);
        if patterns > MAX_PATTERNS {
            return Err(Unresolved::Patterns(MAX_PATTERNS));
        }
        self.patterns.set(patterns);
        self.spend(PATTERN_STEPS);
        Ok(())
    }

    /// Returns the number of regular expressions that the run has compiled.
    pub(super) fn compiled(&self) -> u64 {
        self.patterns.get()
    }

    fn spend(&self, steps: usize) {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        self.left.set(self.left.get().saturating_sub(steps));
    }
}
