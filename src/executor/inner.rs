//! Runs within a run, with their own trigger, idempotency key and saved state, but the lease, clock and write origin of the outer
//! run.

use super::resumed::Resumed;
use super::state_storage::StateStorage;
use std::sync::Arc;

/// Properties of a run within a run that differ from the outer run.
#[derive(Debug)]
pub(crate) struct InnerRun {
    /// The idempotency key of the inner run for external calls. It starts with the key of the outer run.
    pub(crate) key: String,
    /// The saved state with which a run within another run resumes, or `None` if it starts from the beginning.
    pub(crate) resumed: Option<Resumed>,
    /// Storage that saves the state of the inner run as part of the outer run's state.
    pub(crate) state_storage: Arc<dyn StateStorage>,
    /// If `true`, the trigger of the inner run contains text of the user whose message the outer run answers.
    pub(crate) for_user: bool,
}
