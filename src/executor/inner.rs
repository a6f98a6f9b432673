//! Runs within a run: each has a trigger, a key and a state of its own, and lease, clock and stamp of the whole.

use super::keep_state::KeepState;
use super::resumed::Resumed;
use std::sync::Arc;

/// What a run within a run has of its own.
#[derive(Debug)]
pub(crate) struct Inner {
    /// What calls to the outside world carry; it begins with that of the whole.
    pub(crate) key: String,
    /// What it goes on with.
    pub(crate) resumed: Option<Resumed>,
    /// Who keeps its state.
    pub(crate) keeper: Arc<dyn KeepState>,
    /// If `true`, the trigger is the words of the user that the outer run answers.
    pub(crate) for_user: bool,
}
