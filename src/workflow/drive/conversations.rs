use crate::agent::Provider;
use crate::error::BoxError;
use crate::model::Json;
use crate::workflow::{History, StepPath};
use async_trait::async_trait;
use std::sync::Arc;

/// Keeps what the agents in a run say, and shows it to them again.
#[async_trait]
pub(crate) trait Conversations: Send + Sync {
    /// The provider of the agent at a path, with what its agent is shown of the past.
    fn around(
        &self,
        path: &StepPath,
        history: History,
        provider: Arc<dyn Provider>,
    ) -> Arc<dyn Provider>;

    /// Keeps what an agent was asked and has answered. After a crash it may be told again.
    async fn answered(&self, path: &StepPath, asked: &Json, answer: &Json) -> Result<(), BoxError>;
}
