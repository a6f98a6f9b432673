use crate::agent::Provider;
use crate::error::BoxError;
use crate::model::Json;
use crate::workflow::{History, StepPath};
use async_trait::async_trait;
use std::sync::Arc;

/// Store of the conversations of the agents in a flow run. Later turns of the session continue these conversations.
#[async_trait]
pub(crate) trait Conversations: Send + Sync {
    /// Wraps an agent's model provider, so that each request also contains the agent's earlier messages. `path` is the step path
    /// of the agent.
    fn around(
        &self,
        path: &StepPath,
        history: History,
        provider: Arc<dyn Provider>,
    ) -> Arc<dyn Provider>;

    /// Saves the answer of an agent in its conversation. After a crash, the same answer can be passed again.
    async fn answered(&self, path: &StepPath, answered: Answered<'_>) -> Result<(), BoxError>;

    /// Returns `true` if an error means that the session with the conversations of the run's agents was deleted or cannot be
    /// read. The agent itself has not failed then, and a retry of its step would not help.
    fn is_over(&self, error: &BoxError) -> bool;
}

/// Answer of an agent, with the request that it answers, to be saved in the agent's conversation.
pub(crate) struct Answered<'a> {
    /// ID of the request to the agent if another agent called it, otherwise empty.
    pub(crate) request: &'a str,
    /// Input that the agent has answered.
    pub(crate) asked: &'a Json,
    /// Context of the agent's response.
    pub(crate) answer: &'a Json,
    /// Saved state of the agent's provider session, or `None` if no provider session was started.
    pub(crate) session: Option<&'a Json>,
}
