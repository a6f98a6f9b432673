use crate::model::{MAX_SEARCH_STEPS, Path};
use crate::workflow::expression::Unresolved;
use serde_json::Value;
use std::cell::Cell;

/// The maximum number of regular expressions with variables that one run compiles.
const MAX_PATTERNS: u64 = 1_000;

/// The bytes, search steps and regular expressions that take about as long as one step that begins and ends.
const STEP_BYTES: usize = 4 << 10;
const STEP_SEARCHES: usize = 1 << 12;
const PATTERN_STEPS: usize = 16;

/// The work that a walk may do.
pub(super) struct WorkBudget {
    /// The steps that may begin before others have their turn. A large value, a search and a regular expression count as several.
    left: Cell<u64>,
    /// The steps that the step at hand may take to search values.
    searches: Cell<usize>,
    /// The regular expressions that the run has compiled.
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

    /// Takes the work of a step that begins.
    pub(super) fn begin(&self) {
        self.spend(1);
    }

    /// Gives the step at hand its own steps for searches.
    pub(super) fn renew_searches(&self) {
        self.searches.set(MAX_SEARCH_STEPS);
    }

    /// Takes the work of a value of so many bytes that is built.
    pub(super) fn build(&self, bytes: usize) {
        self.spend(bytes / STEP_BYTES);
    }

    /// Takes the work of a search.
    ///
    /// # Errors
    /// [`Unresolved::Searches`] if the step has searched too much.
    pub(super) fn search(&self, path: &Path, value: &Value) -> Result<(), Unresolved> {
        let left = self.searches.get();
        let Some(steps) = path.search_steps(value, left) else {
            return Err(Unresolved::Searches(MAX_SEARCH_STEPS));
        };
        self.searches.set(left - steps);
        self.spend(steps / STEP_SEARCHES);
        Ok(())
    }

    /// Takes the work of a regular expression that is compiled for the run.
    ///
    /// # Errors
    /// [`Unresolved::Patterns`] if the run has compiled too many.
    pub(super) fn compile_pattern(&self) -> Result<(), Unresolved> {
        let patterns = self.patterns.get().saturating_add(1);
        if patterns > MAX_PATTERNS {
            return Err(Unresolved::Patterns(MAX_PATTERNS));
        }
        self.patterns.set(patterns);
        self.spend(PATTERN_STEPS);
        Ok(())
    }

    /// Returns the regular expressions that the run has compiled.
    pub(super) fn compiled(&self) -> u64 {
        self.patterns.get()
    }

    fn spend(&self, steps: usize) {
        let steps = u64::try_from(steps).unwrap_or(u64::MAX);
        self.left.set(self.left.get().saturating_sub(steps));
    }
}
