//! Storage for the state of a run within a run, which the outer run saves.

use super::context_error::ContextError;
use crate::model::Json;
use async_trait::async_trait;
use std::fmt;

/// Storage for the state of a run within a run, as part of the outer run's state.
#[async_trait]
pub(crate) trait StateStorage: fmt::Debug + Send + Sync {
    /// Saves the state of the inner run. Resolves when the state is stored.
    async fn save_state(&self, state: Json) -> Result<(), ContextError>;
}
