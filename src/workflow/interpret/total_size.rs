use super::progress::{Vars, variable_bytes};
use super::protocol::StepFailure;
use crate::model::Json;

/// The total size of all values of a flow run, and the limit of this size.
///
/// A value counts each time that the saved state contains it. Copies share memory only until a restart, so counting them once would let
/// the outcome of a run depend on restarts.
pub(super) struct TotalSize {
    bytes: usize,
    limit: usize,
}

impl TotalSize {
    pub(super) fn new(bytes: usize, limit: usize) -> Self {
        Self { bytes, limit }
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Checks that `more` bytes of values can be added to the run without exceeding the limit.
    ///
    /// # Errors
    /// Returns a failure with the code `too_large` that names the limit.
    pub(super) fn check(&self, more: usize) -> Result<(), StepFailure> {
        let total = self.bytes.saturating_add(more);
        if total <= self.limit {
            return Ok(());
        }
        let limit = self.limit;
        let message = format!(
            "the values of the run would take {total} bytes together, and policies.limits.total_bytes allows {limit}; store \
             less in variables, or run fewer steps at once"
        );
        Err(StepFailure::new("too_large", message))
    }

    /// Sets a variable of a flow, and updates the total size of the run's values. The caller has checked the size of the value.
    pub(super) fn set(&mut self, vars: &mut Vars, name: &str, value: Json) {
        self.add(variable_bytes(name, &value));
        if let Some(before) = vars.insert(name.to_owned(), value) {
            self.remove(variable_bytes(name, &before));
        }
    }

    pub(super) fn add(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    pub(super) fn remove(&mut self, bytes: usize) {
        self.bytes = self.bytes.saturating_sub(bytes);
    }
}
