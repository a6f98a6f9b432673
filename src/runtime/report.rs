use crate::executor::{ExecutorError, Outcome};
use serde::Serialize;

/// Counts of the events and runs that a runtime has processed.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunReport {
    /// Events that the event source delivered, including events of breadcrumbs that the executors wrote.
    pub events: u64,
    /// Breadcrumbs without an event that a sweep found in the store and that concerned an executor, a wait or a definition.
    pub found_by_sweep: u64,
    /// Events that the event source dropped because the runtime was too slow.
    pub missed: u64,
    /// Runs that ended with a response.
    pub responded: u64,
    /// Runs that ended as failed, each with a dead letter.
    pub failed: u64,
    /// Number of times that a run was suspended to wait for a breadcrumb or a time.
    pub suspended: u64,
    /// Runs that needed no work: unmatched, superseded, already done, claimed by another worker, or of a paused executor. Also runs
    /// whose trigger is deleted or was written by the executor itself.
    pub skipped: u64,
    /// Failed attempts after which the runtime retries the run.
    pub postponed: u64,
    /// Errors of the event source, and attempts after which the run stays claimed until the run's lease expires. Also event deliveries
    /// whose runs the ledger rejects.
    pub errors: u64,
    /// Panics that ended the task of a run because nothing caught them.
    pub panics: u64,
    /// Runs that had not ended at the end of the drain and were dropped. Another worker continues them.
    pub dropped: u64,
    /// IDs of the executors on a store without a run ledger. Their runs are recorded only in this process, so a trigger may be
    /// executed again after a restart.
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
