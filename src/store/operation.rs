use std::fmt;

/// Operation of a store, its ledger or an event source. Wrappers such as [`Instrumented`](super::Instrumented) name each call by
/// its operation.
///
/// A fault plan of `Faulty` also decides by it. Its string form is its [`name`](Self::name).
///
/// ```
/// use universal_executor::store::Operation;
///
/// assert_eq!(Operation::ClaimNext.name(), "claim_next");
/// assert_eq!(Operation::ALL.len(), 32);
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// Reading one breadcrumb, [`BreadcrumbStore::get`](super::BreadcrumbStore::get).
    Get,
    /// Searching breadcrumbs by a query, [`BreadcrumbStore::search`](super::BreadcrumbStore::search).
    Search,
    /// Searching breadcrumbs by meaning, [`BreadcrumbStore::vector_search`](super::BreadcrumbStore::vector_search).
    VectorSearch,
    /// Committing writes and the end of a run, [`BreadcrumbStore::commit`](super::BreadcrumbStore::commit).
    Commit,
    /// Adding runs to the ledger, [`RunLedger::enqueue`](super::RunLedger::enqueue).
    Enqueue,
    /// Claiming one run, [`RunLedger::claim`](super::RunLedger::claim).
    Claim,
    /// Claiming due runs, [`RunLedger::claim_next`](super::RunLedger::claim_next).
    ClaimNext,
    /// Extending leases, [`RunLedger::heartbeat`](super::RunLedger::heartbeat).
    Heartbeat,
    /// Releasing a run for a later retry, [`RunLedger::retry`](super::RunLedger::retry).
    Retry,
    /// Releasing the lease of a run, which makes the run due at once,
    /// [`RunLedger::release`](super::RunLedger::release).
    Release,
    /// Releasing the lease of a run for workers with another executor version,
    /// [`RunLedger::transfer`](super::RunLedger::transfer).
    Transfer,
    /// Making transferred runs due, [`RunLedger::accept_transfers`](super::RunLedger::accept_transfers).
    AcceptTransfers,
    /// Storing the record with a worker's name and executors, [`RunLedger::record_worker`](super::RunLedger::record_worker).
    RecordWorker,
    /// Listing the workers, [`RunLedger::workers`](super::RunLedger::workers).
    Workers,
    /// Saving the event positions of executors, [`RunLedger::save_positions`](super::RunLedger::save_positions).
    SavePositions,
    /// Reading the saved event positions of executors, [`RunLedger::positions`](super::RunLedger::positions).
    Positions,
    /// Saving the progress of a run, [`RunLedger::save`](super::RunLedger::save).
    Save,
    /// Waking a suspended run, [`RunLedger::resume`](super::RunLedger::resume).
    Resume,
    /// Repeating a run, [`RunLedger::redo`](super::RunLedger::redo).
    Redo,
    /// Cancelling a run, [`RunLedger::cancel`](super::RunLedger::cancel) or
    /// [`RunLedger::enqueue_cancelled`](super::RunLedger::enqueue_cancelled).
    Cancel,
    /// Skipping a transferred run, [`RunLedger::skip`](super::RunLedger::skip).
    Skip,
    /// Pausing an executor, [`RunLedger::pause_executor`](super::RunLedger::pause_executor).
    PauseExecutor,
    /// Resuming a paused executor, [`RunLedger::resume_executor`](super::RunLedger::resume_executor).
    ResumeExecutor,
    /// Listing the paused executors, [`RunLedger::paused_executors`](super::RunLedger::paused_executors).
    PausedExecutors,
    /// Creating a breadcrumb at most once per idempotency key, [`RunLedger::request`](super::RunLedger::request).
    Request,
    /// Listing runs, [`RunLedger::runs`](super::RunLedger::runs).
    Runs,
    /// Reading a page of runs, [`RunLedger::runs_page`](super::RunLedger::runs_page).
    RunsPage,
    /// Reading the writers of breadcrumb versions, [`RunLedger::written_by`](super::RunLedger::written_by).
    WrittenBy,
    /// Subscribing to an event source, [`EventSource::subscribe`](crate::EventSource::subscribe).
    Subscribe,
    /// Receiving the next delivery of a subscription to an event source.
    Next,
    /// Acknowledging a delivered event, [`Delivery::ack`](crate::Delivery::ack).
    Ack,
    /// Nacking a delivered event, [`Delivery::nack`](crate::Delivery::nack).
    Nack,
}

impl Operation {
    /// All operations: first the operations of a store, then of its ledger, then of an event source.
    pub const ALL: [Self; 32] = [
        Self::Get,
        Self::Search,
        Self::VectorSearch,
        Self::Commit,
        Self::Enqueue,
        Self::Claim,
        Self::ClaimNext,
        Self::Heartbeat,
        Self::Retry,
        Self::Release,
        Self::Transfer,
        Self::AcceptTransfers,
        Self::RecordWorker,
        Self::Workers,
        Self::SavePositions,
        Self::Positions,
        Self::Save,
        Self::Resume,
        Self::Redo,
        Self::Cancel,
        Self::Skip,
        Self::PauseExecutor,
        Self::ResumeExecutor,
        Self::PausedExecutors,
        Self::Request,
        Self::Runs,
        Self::RunsPage,
        Self::WrittenBy,
        Self::Subscribe,
        Self::Next,
        Self::Ack,
        Self::Nack,
    ];

    /// Returns the name of the store or event source operation in logs and metrics, such as `get` or `claim_next`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Search => "search",
            Self::VectorSearch => "vector_search",
            Self::Commit => "commit",
            Self::Enqueue => "enqueue",
            Self::Claim => "claim",
            Self::ClaimNext => "claim_next",
            Self::Heartbeat => "heartbeat",
            Self::Retry => "retry",
            Self::Release => "release",
            Self::Transfer => "transfer",
            Self::AcceptTransfers => "accept_transfers",
            Self::RecordWorker => "record_worker",
            Self::Workers => "workers",
            Self::SavePositions => "save_positions",
            Self::Positions => "positions",
            Self::Save => "save",
            Self::Resume => "resume",
            Self::Redo => "redo",
            Self::Cancel => "cancel",
            Self::Skip => "skip",
            Self::PauseExecutor => "pause_executor",
            Self::ResumeExecutor => "resume_executor",
            Self::PausedExecutors => "paused_executors",
            Self::Request => "request",
            Self::Runs => "runs",
            Self::RunsPage => "runs_page",
            Self::WrittenBy => "written_by",
            Self::Subscribe => "subscribe",
            Self::Next => "next",
            Self::Ack => "ack",
            Self::Nack => "nack",
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
