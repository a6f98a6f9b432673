use std::fmt;

/// Operation of a store, its ledger or an event source. Wrappers such as [`Instrumented`](super::Instrumented) name each call by
/// its operation.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Operation {
    /// [`BreadcrumbStore::get`](super::BreadcrumbStore::get).
    Get,
    /// [`BreadcrumbStore::search`](super::BreadcrumbStore::search).
    Search,
    /// [`BreadcrumbStore::vector_search`](super::BreadcrumbStore::vector_search).
    VectorSearch,
    /// [`BreadcrumbStore::commit`](super::BreadcrumbStore::commit).
    Commit,
    /// [`RunLedger::enqueue`](super::RunLedger::enqueue).
    Enqueue,
    /// [`RunLedger::claim`](super::RunLedger::claim).
    Claim,
    /// [`RunLedger::claim_next`](super::RunLedger::claim_next).
    ClaimNext,
    /// [`RunLedger::heartbeat`](super::RunLedger::heartbeat).
    Heartbeat,
    /// [`RunLedger::retry`](super::RunLedger::retry).
    Retry,
    /// [`RunLedger::release`](super::RunLedger::release).
    Release,
    /// [`RunLedger::transfer`](super::RunLedger::transfer).
    Transfer,
    /// [`RunLedger::accept_transfers`](super::RunLedger::accept_transfers).
    AcceptTransfers,
    /// [`RunLedger::record_worker`](super::RunLedger::record_worker).
    RecordWorker,
    /// [`RunLedger::workers`](super::RunLedger::workers).
    Workers,
    /// [`RunLedger::save_positions`](super::RunLedger::save_positions).
    SavePositions,
    /// [`RunLedger::positions`](super::RunLedger::positions).
    Positions,
    /// [`RunLedger::save`](super::RunLedger::save).
    Save,
    /// [`RunLedger::resume`](super::RunLedger::resume).
    Resume,
    /// [`RunLedger::redo`](super::RunLedger::redo).
    Redo,
    /// [`RunLedger::cancel`](super::RunLedger::cancel).
    Cancel,
    /// [`RunLedger::skip`](super::RunLedger::skip).
    Skip,
    /// [`RunLedger::pause_executor`](super::RunLedger::pause_executor).
    PauseExecutor,
    /// [`RunLedger::resume_executor`](super::RunLedger::resume_executor).
    ResumeExecutor,
    /// [`RunLedger::paused_executors`](super::RunLedger::paused_executors).
    PausedExecutors,
    /// [`RunLedger::request`](super::RunLedger::request).
    Request,
    /// [`RunLedger::runs`](super::RunLedger::runs).
    Runs,
    /// [`RunLedger::runs_page`](super::RunLedger::runs_page).
    RunsPage,
    /// [`RunLedger::written_by`](super::RunLedger::written_by).
    WrittenBy,
    /// [`EventSource::subscribe`](crate::EventSource::subscribe).
    Subscribe,
    /// The next delivery of a subscription to an event source.
    Next,
    /// [`Delivery::ack`](crate::Delivery::ack).
    Ack,
    /// [`Delivery::nack`](crate::Delivery::nack).
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

    /// Returns the name in logs and metrics, such as `get` or `claim_next`.
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
