use super::claim::{ClaimId, Lease};
use super::lineage::Wake;
use super::run::{RunRef, RunState};
use crate::model::{BreadcrumbId, Timestamp};
use serde::Serialize;
use std::time::Duration;

/// Selection of the rows to list.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunFilter {
    /// Of one executor.
    pub executor: Option<String>,
    /// On one trigger.
    pub trigger_id: Option<BreadcrumbId>,
    /// In one of these states; any if empty.
    pub states: Vec<RunState>,
    /// Only runs whose newest lease comes from this claim and has not ended; such a lease may have expired.
    pub claim: Option<ClaimId>,
    /// Maximum number of rows. All rows if `None`.
    pub limit: Option<usize>,
}

impl RunFilter {
    /// Every row.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Runs whose newest lease comes from one [claim](super::RunLedger::claim_next), with their [leases](Run::lease).
    #[must_use]
    pub fn of_claim(id: ClaimId) -> Self {
        Self {
            claim: Some(id),
            ..Self::default()
        }
    }

    /// Only of an executor.
    #[must_use]
    pub fn executor(mut self, id: impl Into<String>) -> Self {
        self.executor = Some(id.into());
        self
    }

    /// Only on a trigger.
    #[must_use]
    pub fn trigger(mut self, id: BreadcrumbId) -> Self {
        self.trigger_id = Some(id);
        self
    }

    /// Also those in a state.
    #[must_use]
    pub fn state(mut self, state: RunState) -> Self {
        self.states.push(state);
        self
    }

    /// At most so many.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// One row of the ledger.
///
/// Its JSON has all fields but [`due_for`](Self::due_for) and [`lease`](Self::lease).
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Run {
    /// The executor and the trigger version of the run, with the event that led to it.
    pub run: RunRef,
    /// Its state; a run whose lease ran out is ready.
    pub state: RunState,
    /// Number of attempts since the run was added, woken or redone.
    pub attempts: u32,
    /// The time when the run is due: its scheduled time, or the end of its lease or wait. `None` if no time makes it
    /// due. A run behind another one of its ordering key also waits for that run.
    pub due: Option<Timestamp>,
    /// Time for which the run could have been claimed, by the store's clock. `None` unless it can be claimed now. A run behind another one of
    /// its ordering key counts as claimable.
    #[serde(skip)]
    pub due_for: Option<Duration>,
    /// The time when the run was added or woken; once claimed, the time of the first claim of its current attempt.
    pub since: Timestamp,
    /// The time when the run was added to the ledger, which stays the same when it is redone. For a run that was added before the
    /// store recorded this time, it is [`since`](Self::since).
    pub added_at: Timestamp,
    /// The breadcrumbs or the time that the run waits for. `None` if it does not wait.
    pub wake: Option<Wake>,
    /// The time of the suspension, by the store's clock. `None` unless the run is suspended. The `updated_at` of a
    /// breadcrumb is at or before this time if it was committed before or with the suspension, and after this time if
    /// it was committed later. So a breadcrumb can wake the run if its `updated_at` is later than this time, or than
    /// the wake's [`since`](Wake::since) if that is earlier.
    pub suspended_at: Option<Timestamp>,
    /// The IDs of the breadcrumbs that the run wrote.
    pub written: Vec<BreadcrumbId>,
    /// The class of its failure, or why it was skipped.
    pub reason: Option<String>,
    /// The code of its failure: that of its dead letter, or [`cancelled`](super::RunEnd::CANCELLED). `None` for a run that did not
    /// fail, and for one that failed before the store recorded codes.
    pub code: Option<String>,
    /// Cause of the last failed attempt since it was added or redone: the error and its sources, without credentials, at most
    /// [1,000 bytes](super::DeadLetter::LONGEST_CAUSE). [`Profile::hide_errors`](crate::Profile::hide_errors) omits the
    /// words of the executor.
    pub cause: Option<String>,
    /// The version of its executor to which the run was [transferred](super::RunLedger::transfer), until a worker accepts it:
    /// one of that version or, once the time of a run that left its position has passed, one of any version.
    pub transferred_to: Option<String>,
    /// Its lease, if the filter asked for [one claim](RunFilter::of_claim).
    #[serde(skip)]
    pub lease: Option<Lease>,
}

impl Run {
    /// A row of a run that was just added.
    #[must_use]
    pub fn new(run: RunRef, state: RunState, since: Timestamp) -> Self {
        Self {
            run,
            state,
            attempts: 0,
            due: None,
            due_for: None,
            since,
            added_at: since,
            wake: None,
            suspended_at: None,
            written: Vec::new(),
            reason: None,
            code: None,
            cause: None,
            transferred_to: None,
            lease: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Selector;
    use serde_json::json;

    #[test]
    fn the_json_of_a_run_is_stable() {
        let at = Timestamp::from_micros(1);
        let run = RunRef::new("clerk", BreadcrumbId::NIL, 2);
        let mut run = Run::new(run, RunState::Suspended, at);
        run.wake = Some(Wake::on(Selector::schema("human.response.v1")));
        run.written.push(BreadcrumbId::NIL);
        run.due_for = Some(Duration::from_secs(1));

        let (id, at) = (BreadcrumbId::NIL.to_string(), at.to_string());
        let expected = json!({
            "run": {"executor": "clerk", "trigger_id": id, "trigger_version": 2},
            "state": "suspended", "attempts": 0, "due": null, "since": at, "added_at": at,
            "wake": {"selectors": [{"schema_name": "human.response.v1"}], "until": null, "since": null},
            "suspended_at": null, "written": [id], "reason": null, "code": null, "cause": null,
            "transferred_to": null,
        });
        assert_eq!(serde_json::to_value(&run).unwrap(), expected);
    }
}
