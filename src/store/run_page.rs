use super::run::RunState;
use super::run_list::Run;
use crate::model::Timestamp;
use serde::Serialize;

/// Query for a page of the runs in a ledger, see [`RunLedger::runs_page`](super::RunLedger::runs_page). Every condition that is
/// set must hold.
///
/// ```
/// use universal_executor::store::RunQuery;
/// use universal_executor::{BreadcrumbStore, MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let Some(ledger) = store.ledger() else { return Err("the store has no ledger".into()) };
/// let mut query = RunQuery::failed().code("cancelled");
/// loop {
///     let page = ledger.runs_page(&query).await?;
///     for run in &page.runs {
///         println!("{} at {}", run.run, run.added_at);
///     }
///     let Some(next) = page.next else { break };
///     query = query.after(next);
/// }
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct RunQuery {
    /// The ID of the executor whose runs are selected, or `None` for the runs of any executor.
    pub executor: Option<String>,
    /// The states of the selected runs, or an empty list for runs in any state.
    pub states: Vec<RunState>,
    /// The [code](Run::code) of the failure of the selected runs, or `None` for runs with any code or without failure.
    pub code: Option<String>,
    /// The earliest time at which a selected run was [added](Run::added_at), inclusive.
    pub added_from: Option<Timestamp>,
    /// The time before which a selected run was [added](Run::added_at), exclusive.
    pub added_before: Option<Timestamp>,
    /// The position after the previous page of runs, at which this page starts, or `None` for the first page.
    pub after: Option<RunCursor>,
    /// Maximum number of runs on the page, from 1 to [`MAX_LIMIT`](Self::MAX_LIMIT). Defaults to
    /// [`DEFAULT_LIMIT`](Self::DEFAULT_LIMIT).
    pub limit: Option<usize>,
}

impl RunQuery {
    /// Default for the maximum number of runs on a page.
    pub const DEFAULT_LIMIT: usize = 100;
    /// Largest permitted maximum number of runs on a page.
    pub const MAX_LIMIT: usize = 1_000;

    /// Returns a query for all runs of the tenant.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Returns a query for the failed runs of the tenant.
    ///
    /// ```
    /// use universal_executor::store::{RunQuery, RunState};
    ///
    /// let timeouts = RunQuery::failed().executor("pricing").code("timeout").limit(20);
    /// assert_eq!(timeouts.states, [RunState::Failed]);
    /// assert_eq!(timeouts.page_size(), 20);
    /// ```
    #[must_use]
    pub fn failed() -> Self {
        Self::all().state(RunState::Failed)
    }

    /// Restricts the query to the runs of one executor.
    #[must_use]
    pub fn executor(mut self, id: impl Into<String>) -> Self {
        self.executor = Some(id.into());
        self
    }

    /// Adds a state to the states of the selected runs.
    ///
    /// Several calls select runs in one of several states.
    #[must_use]
    pub fn state(mut self, state: RunState) -> Self {
        self.states.push(state);
        self
    }

    /// Restricts the query to runs that failed with this code.
    ///
    /// Only failed runs have a code, such as `error`, `timeout` or `cancelled`.
    #[must_use]
    pub fn code(mut self, code: impl Into<String>) -> Self {
        self.code = Some(code.into());
        self
    }

    /// Restricts the query to runs that were added at a time or later.
    ///
    /// The time is by the store's clock, and inclusive.
    #[must_use]
    pub fn added_from(mut self, time: Timestamp) -> Self {
        self.added_from = Some(time);
        self
    }

    /// Restricts the query to runs that were added before a time.
    ///
    /// The time is by the store's clock, and exclusive. With [`added_from`](Self::added_from()), it
    /// selects an interval, such as the last day.
    #[must_use]
    pub fn added_before(mut self, time: Timestamp) -> Self {
        self.added_before = Some(time);
        self
    }

    /// Sets the position after the previous page of runs, at which this page starts.
    #[must_use]
    pub fn after(mut self, page: RunCursor) -> Self {
        self.after = Some(page);
        self
    }

    /// Sets the maximum number of runs on the page, clamped to 1 to [`MAX_LIMIT`](Self::MAX_LIMIT).
    #[must_use]
    pub fn limit(mut self, runs: usize) -> Self {
        self.limit = Some(runs);
        self
    }

    /// Returns the maximum number of runs on the page, for the implementation of a ledger.
    #[must_use]
    pub fn page_size(&self) -> usize {
        let limit = self.limit.unwrap_or(Self::DEFAULT_LIMIT);
        limit.clamp(1, Self::MAX_LIMIT)
    }

    /// Returns `true` if the query selects runs in the state `state`.
    pub(in crate::store) fn has_state(&self, state: RunState) -> bool {
        self.states.is_empty() || self.states.contains(&state)
    }

    /// Returns the run states, as stored in the rows, that a database must select for the page, each with a condition on the rows
    /// ([`RowSelection`]). A row that is stored as running or suspended counts as ready after its lease or wait has ended.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(in crate::store) fn stored_states(&self) -> Vec<(RunState, RowSelection)> {
        let ready = self.has_state(RunState::Ready);
        let stored = |state: RunState| match state {
            RunState::Running | RunState::Suspended => match (ready, self.has_state(state)) {
                (true, true) => Some(RowSelection::Any),
                (true, false) => Some(RowSelection::Due),
                (false, true) => Some(RowSelection::NotDue),
                (false, false) => None,
            },
            RunState::Ready => ready.then_some(RowSelection::Any),
            RunState::Done | RunState::Failed | RunState::Skipped | RunState::Superseded => {
                self.has_state(state).then_some(RowSelection::Over)
            }
        };
        let stored = RunState::ALL
            .into_iter()
            .filter_map(|state| Some((state, stored(state)?)));
        stored.collect()
    }
}

/// Selection among the ledger rows with one stored run state: all rows, only due rows, or only rows that are not due.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(in crate::store) enum RowSelection {
    /// All rows with the stored run state. Each can be due.
    Any,
    /// Only the rows with the stored run state that are due.
    Due,
    /// Only the rows with the stored run state that are not due yet.
    NotDue,
    /// All rows with the stored run state, which are never due because their runs have ended.
    Over,
}

/// Position between two pages of runs from [`RunLedger::runs_page`](super::RunLedger::runs_page). It is valid for the tenant and
/// the store that returned it, for as long as they exist. Its JSON form is a number.
///
/// Send it to a client as a number, and restore it with `RunCursor::from`:
///
/// ```
/// use universal_executor::store::{RunCursor, RunQuery};
///
/// let cursor = RunCursor::from(42);
/// assert_eq!(cursor.as_u64(), 42);
/// let next_page = RunQuery::all().after(cursor).limit(5_000);
/// assert_eq!(next_page.page_size(), RunQuery::MAX_LIMIT);
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
pub struct RunCursor(u64);

impl RunCursor {
    /// Returns the position between two pages of runs as a number. Ledger implementations use the number, and a service can send
    /// it to a client.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl From<u64> for RunCursor {
    fn from(position: u64) -> Self {
        Self(position)
    }
}

/// Answer of [`RunLedger::runs_page`](super::RunLedger::runs_page): one page of runs.
///
/// Pass [`next`](Self::next) to [`RunQuery::after()`] for the next page. A page can be empty.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct RunPage {
    /// The runs of the page, the most recently enqueued first.
    pub runs: Vec<Run>,
    /// The position after this page of runs, for the query of the next page, or `None` if this page is the last one.
    pub next: Option<RunCursor>,
}

impl RunPage {
    /// Creates a page from runs with their positions in the ledger, newest first. `runs` has up to
    /// [`page_size`](RunQuery::page_size) runs, and one more if this page is not the last one.
    ///
    /// ```
    /// use universal_executor::BreadcrumbId;
    /// use universal_executor::model::Timestamp;
    /// use universal_executor::store::{Run, RunPage, RunQuery, RunRef, RunState};
    ///
    /// let run = |version| {
    ///     let run = RunRef::new("pricing", BreadcrumbId::NIL, version);
    ///     Run::new(run, RunState::Ready, Timestamp::UNIX_EPOCH)
    /// };
    /// // A ledger reads one row more than the page has, to learn whether there is another page.
    /// let page = RunPage::new(vec![(7, run(2)), (6, run(1))], &RunQuery::all().limit(1));
    /// assert_eq!(page.runs.len(), 1);
    /// assert_eq!(page.next.map(|next| next.as_u64()), Some(7));
    /// ```
    #[must_use]
    pub fn new(mut runs: Vec<(u64, Run)>, query: &RunQuery) -> Self {
        let size = query.page_size();
        let has_more = runs.len() > size;
        runs.truncate(size);
        let last = runs.last().filter(|_| has_more);
        let next = last.map(|(position, _)| RunCursor(*position));
        Self {
            next,
            runs: runs.into_iter().map(|(_, run)| run).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::BreadcrumbId;
    use crate::store::RunRef;
    use serde_json::json;

    #[test]
    fn the_json_of_a_page_of_runs_is_stable() {
        let run = |version| {
            let run = RunRef::new("clerk", BreadcrumbId::NIL, version);
            Run::new(run, RunState::Ready, Timestamp::UNIX_EPOCH)
        };
        let query = RunQuery::all().limit(1);
        let page = RunPage::new(vec![(7, run(2)), (6, run(1))], &query);
        let last = RunPage::new(vec![(6, run(1))], &query);

        let expected = json!({"runs": [run(2)], "next": 7});
        assert_eq!(serde_json::to_value(&page).unwrap(), expected);
        let expected = json!({"runs": [run(1)], "next": null});
        assert_eq!(serde_json::to_value(&last).unwrap(), expected);
    }
}
