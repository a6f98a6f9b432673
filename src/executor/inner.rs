//! Runs within a run: each has a trigger, a key and a state of its own, and lease, clock and stamp of the whole.

use super::context_error::ContextError;
use super::resumed::Resumed;
use crate::model::Json;
use async_trait::async_trait;
use std::fmt;
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

/// Keeps the state of a run within a run, as part of the state of the whole.
#[async_trait]
pub(crate) trait KeepState: fmt::Debug + Send + Sync {
    /// Resolves when the state is kept.
    async fn keep(&self, state: Json) -> Result<(), ContextError>;
}
