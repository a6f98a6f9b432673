use super::claim::{ClaimId, Lease};
use super::lineage::Wake;
use super::run::{RunRef, RunState};
use crate::model::{BreadcrumbId, Timestamp};
use serde::Serialize;
use std::time::Duration;

/// Filter for the runs that [`RunLedger::runs`](super::RunLedger::runs) lists. Every condition that is set must hold.
///
/// Use it for small lists, such as the runs of one trigger. For services and long lists, use
/// [`RunQuery`](super::RunQuery), which has pages.
///
/// ```
/// use universal_executor::store::{RunFilter, RunRef, RunState};
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let order = store.create(NewBreadcrumb::new("order.v1")).await?;
/// let run = RunRef::new("pricing", order.id, order.version);
/// store.enqueue(vec![run.clone().into()]).await?;
///
/// let open = RunFilter::all().executor("pricing").trigger(order.id).state(RunState::Ready);
/// let runs = store.runs(&open.limit(10)).await?;
/// assert_eq!(runs.len(), 1);
/// assert_eq!((&runs[0].run, runs[0].attempts), (&run, 0));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
///
/// It is a snapshot: the run can change after the list was read.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunFilter {
    /// The ID of the executor whose runs are listed, or `None` for the runs of any executor.
    pub executor: Option<String>,
    /// The ID of the trigger whose runs are listed, or `None` for the runs of any trigger.
    pub trigger_id: Option<BreadcrumbId>,
    /// The states of the listed runs, or an empty list for runs in any state.
    pub states: Vec<RunState>,
    /// The ID of the claim of due runs that granted the listed runs' leases, or `None` for runs with or without leases. Only rows
    /// whose newest lease comes from this claim and has not ended are selected. The lease may have expired.
    pub claim: Option<ClaimId>,
    /// Maximum number of listed runs, or `None` for all runs.
    pub limit: Option<usize>,
}

impl RunFilter {
    /// Returns a filter for all runs of the tenant.
    ///
    /// Without a limit, the list has each run that the store retains, which can be millions.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Returns a filter for the runs whose newest lease was granted by the [claim](super::RunLedger::claim_next) with this ID.
    /// The list has their [leases](Run::lease).
    #[must_use]
    pub fn of_claim(id: ClaimId) -> Self {
        Self {
            claim: Some(id),
            ..Self::default()
        }
    }

    /// Restricts the filter to the runs of one executor.
    #[must_use]
    pub fn executor(mut self, id: impl Into<String>) -> Self {
        self.executor = Some(id.into());
        self
    }

    /// Restricts the filter to the runs of one trigger, in any version.
    #[must_use]
    pub fn trigger(mut self, id: BreadcrumbId) -> Self {
        self.trigger_id = Some(id);
        self
    }

    /// Adds a state to the states of the listed runs.
    ///
    /// Several calls select runs in one of several states.
    #[must_use]
    pub fn state(mut self, state: RunState) -> Self {
        self.states.push(state);
        self
    }

    /// Sets the maximum number of listed runs.
    ///
    /// The list then has the runs that are due first.
    #[must_use]
    pub fn limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }
}

/// A run's row in the ledger, as an item of a list.
///
/// The JSON form has all fields except [`due_for`](Self::due_for) and [`lease`](Self::lease).
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Run {
    /// The executor and the trigger version of the run, with the event of the trigger.
    pub run: RunRef,
    /// The state of the run in the ledger, such as ready, running or done. A run whose lease expired is ready.
    ///
    /// The states `Done`, `Failed`, `Skipped` and `Superseded` are final, see
    /// [`is_over`](RunState::is_over).
    pub state: RunState,
    /// The number of attempts since the run was added, woken or redone.
    pub attempts: u32,
    /// The time when the run is due: its scheduled time, the end of its lease, or the time limit of its suspension. `None` if no
    /// time makes the run due. A run behind another run of its ordering key also waits for that run.
    pub due: Option<Timestamp>,
    /// The duration since the run became claimable, by the store's clock. `None` if the run cannot be claimed now. A run behind
    /// another run of its ordering key counts as claimable.
    #[serde(skip)]
    pub due_for: Option<Duration>,
    /// The time when the run was added or woken. After the first claim of the current attempt, the time of that claim.
    pub since: Timestamp,
    /// The time when the run was added to the ledger. It stays the same when the run is redone. For a run that was added before
    /// the store recorded this time, it is [`since`](Self::since).
    pub added_at: Timestamp,
    /// The breadcrumbs or the time that the suspended run waits for. `None` if the run is not suspended.
    pub wake: Option<Wake>,
    /// The time of the suspension, by the store's clock, or `None` if the run is not suspended.
    ///
    /// A breadcrumb that was committed before or with the suspension has an `updated_at` at or before this time. A breadcrumb
    /// that was committed later has an `updated_at` after it. So a breadcrumb can wake the run if its `updated_at` is later than
    /// this time, or than the wake's [`since`](Wake::since) if that is earlier.
    pub suspended_at: Option<Timestamp>,
    /// The IDs of all breadcrumbs that the ledger recorded as writes of the run.
    pub written: Vec<BreadcrumbId>,
    /// The class of the run's failure, or the reason for which the run was skipped.
    pub reason: Option<String>,
    /// The code of the run's failure: the code of its dead letter, or [`cancelled`](super::RunEnd::CANCELLED). `None` for a run
    /// that did not fail, and for a run that failed before the store recorded codes.
    pub code: Option<String>,
    /// The cause of the last failed attempt since the run was added or redone: the error and its sources, without credentials, at
    /// most [1,000 bytes](super::DeadLetter::LONGEST_CAUSE). [`Profile::hide_errors`](crate::Profile::hide_errors) omits the
    /// executor's message.
    pub cause: Option<String>,
    /// The version of its executor to which the run was [transferred](super::RunLedger::transfer), until a worker accepts the
    /// run. This is a worker of that version. After the time of a run that left its position, a worker of any version accepts it.
    pub transferred_to: Option<String>,
    /// The lease of the run, if the filter is for [one claim](RunFilter::of_claim).
    #[serde(skip)]
    pub lease: Option<Lease>,
}

impl Run {
    /// Creates the row of a run without attempts.
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
