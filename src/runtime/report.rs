use crate::executor::{ExecutorError, Outcome};
use serde::Serialize;

/// Counts of the events and runs that a runtime has processed.
///
/// Returned at the end of [`Runtime::run_until`](super::Runtime::run_until),
/// [`Running::stop`](super::Running::stop) and the other methods that run a runtime. It counts from
/// the start of this call. For values while the runtime runs, use the [metrics](super::metrics).
/// The log line "the runtime stopped" has the same counts.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::{
///     Client, MemoryStore, NewBreadcrumb, Response, Runtime, Subscription, executor,
/// };
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let clerk = executor("clerk")
///     .on(Subscription::trigger("order.v1"))
///     .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("receipt.v1"))) });
/// let store = MemoryStore::default();
/// let running = Runtime::on(&store).executor(clerk).start().await?;
///
/// let client = Client::new(&store);
/// let request = client.request("clerk", NewBreadcrumb::new("order.v1")).send().await?;
/// request.wait(Duration::from_secs(30)).await?;
/// let report = running.stop().await?;
/// assert_eq!((report.responded, report.failed, report.dropped), (1, 0, 0));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
#[non_exhaustive]
pub struct RunReport {
    /// Events that the event source delivered, including events of breadcrumbs that the executors wrote.
    pub events: u64,
    /// Breadcrumbs that sweeps found in the store because their events did not arrive. Only breadcrumbs that concern an executor, a wait or
    /// a definition count.
    pub found_by_sweep: u64,
    /// Events that the event source dropped because the runtime was too slow.
    ///
    /// The runtime searches the store for the breadcrumbs of missed events, but does not find
    /// deletions.
    pub missed: u64,
    /// Runs that ended with a response.
    pub responded: u64,
    /// Runs that ended as failed, each with a dead letter.
    ///
    /// [`Client::runs`](crate::Client::runs) lists these runs.
    pub failed: u64,
    /// Number of times that a run was suspended to wait for a breadcrumb or a time.
    pub suspended: u64,
    /// Runs that needed no work: unmatched, superseded, already done, claimed by another worker, or of a paused executor. Also runs
    /// whose trigger is deleted or was written by the executor itself.
    pub skipped: u64,
    /// Number of attempts of runs that failed and led to a retry.
    pub postponed: u64,
    /// Number of errors of the event source, of event deliveries whose runs the ledger rejected, and of attempts that neither
    /// ended nor released their run. Such a run is claimed again at the latest when its lease expires.
    pub errors: u64,
    /// Panics that ended the task of a run because nothing caught them.
    ///
    /// Such a run is retried when its lease would have expired.
    pub panics: u64,
    /// Runs that had not ended at the end of the drain and were dropped. Another worker continues them.
    ///
    /// If this is not 0 at each stop, increase
    /// [`drain_timeout`](super::RuntimeBuilder::drain_timeout).
    pub dropped: u64,
    /// IDs of the executors on a store without a run ledger. Their runs are recorded only in this process, so a trigger may be
    /// executed again after a restart.
    ///
    /// [`WithLedger`](crate::WithLedger) adds a ledger to such a store.
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
