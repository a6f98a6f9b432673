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

    /// Keeps what an agent has answered. After a crash it may be told again.
    async fn answered(&self, path: &StepPath, answered: Answered<'_>) -> Result<(), BoxError>;

    /// Whether an error is one of the conversations, which are not there any more: the agent has not failed, and another attempt at
    /// its step would not help.
    fn is_over(&self, error: &BoxError) -> bool;
}

/// What an agent has come to.
pub(crate) struct Answered<'a> {
    /// What names the request, if another agent asked; else empty.
    pub(crate) request: &'a str,
    pub(crate) asked: &'a Json,
    /// The context of its response.
    pub(crate) answer: &'a Json,
    /// What its provider keeps; none if it was never started.
    pub(crate) session: Option<&'a Json>,
}
