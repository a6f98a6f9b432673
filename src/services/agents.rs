//! Agents whose model is registered in [`Services`].

use super::Services;
use crate::agent::{Agent, AgentError, AgentExecutor};
use crate::store::BreadcrumbStore;
use std::sync::Arc;

impl Agent {
    /// Binds the agent to a store like [`bind`](Self::bind), and takes the model that the agent names from `services`.
    /// An agent that [names its model](Self::new) gets the model or provider with that name. The agent does not get the
    /// tools and guardrails of `services`.
    ///
    /// # Errors
    /// Returns [`AgentError::Model`] if `services` has no such model, otherwise the errors of [`bind`](Self::bind).
    pub fn bind_with<B>(self, store: &B, services: &Services) -> Result<AgentExecutor, AgentError>
    where
        B: BreadcrumbStore + Clone + 'static,
    {
        self.bind_with_lookup(Arc::new(store.clone()), |agent, model| {
            let found = services.find_provider(model);
            found.map_err(|source| AgentError::Model {
                agent: agent.to_owned(),
                source: source.into(),
            })
        })
    }
}
