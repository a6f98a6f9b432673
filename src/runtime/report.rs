use crate::executor::{ExecutorError, Outcome};
use serde::Serialize;

/// What happened while a runtime ran.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunReport {
    /// Events that were delivered, those of what the executors wrote included.
    pub events: u64,
    /// Breadcrumbs that concerned somebody and that no event had told of: found in the store.
    pub found_by_sweep: u64,
    /// Events that the source dropped because this was too slow.
    pub missed: u64,
    /// Runs that responded.
    pub responded: u64,
    /// Runs that gave up, each with a dead letter.
    pub failed: u64,
    /// Number of times that a run was suspended: it began to wait for a breadcrumb or a time.
    pub suspended: u64,
    /// Runs with nothing to do: unmatched, gone, superseded, own, over before, in another worker's hands or of a paused executor.
    pub skipped: u64,
    /// Attempts after which a run is tried again.
    pub postponed: u64,
    /// Errors of the source, and of runs that are left to the end of their lease.
    pub errors: u64,
    /// Panics that escaped an executor.
    pub panics: u64,
    /// Runs that had not ended at the end of the drain and were dropped. Another worker continues them.
    pub dropped: u64,
    /// Executors on a store without a run ledger, whose runs are recorded only in this process: after a restart a trigger may be
    /// executed again.
    pub without_ledger: Vec<String>,
}

impl RunReport {
    pub(super) fn count(&mut self, outcome: &Result<Outcome, ExecutorError>) {
        let count = match outcome {
            Ok(Outcome::Responded { .. }) => &mut self.responded,
            Ok(Outcome::Failed { .. }) => &mut self.failed,
            Ok(Outcome::Suspended { .. }) => &mut self.suspended,
            Ok(
                Outcome::Unmatched
                | Outcome::ContextNoted
                | Outcome::OwnBreadcrumb
                | Outcome::Gone
                | Outcome::Superseded
                | Outcome::AlreadyDone { .. }
                | Outcome::InProgress { .. }
                | Outcome::Paused { .. },
            ) => &mut self.skipped,
            Err(ExecutorError::Postponed { .. }) => &mut self.postponed,
            Err(_) => &mut self.errors,
        };
        *count += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_json_of_a_report_is_stable() {
        let report = RunReport {
            events: 2,
            responded: 1,
            without_ledger: vec!["clerk".to_owned()],
            ..RunReport::default()
        };

        let expected = json!({
            "events": 2, "found_by_sweep": 0, "missed": 0, "responded": 1, "failed": 0, "suspended": 0,
            "skipped": 0, "postponed": 0, "errors": 0, "panics": 0, "dropped": 0,
            "without_ledger": ["clerk"],
        });
        assert_eq!(serde_json::to_value(&report).unwrap(), expected);
    }
}
