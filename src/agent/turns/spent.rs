use crate::agent::{AgentDefinition, AgentRunError, Usage};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The resources that all attempts of an agent run have used.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub(super) struct Spent {
    /// The number of model answers in the run, or of starts of the agent's program.
    pub(super) turns: u32,
    /// The number of tool calls that the model requested in the run, including refused calls.
    tool_calls: u64,
    input_tokens: u64,
    output_tokens: u64,
    /// The time in milliseconds that the run has worked, not counting the time in which the run was suspended.
    milliseconds: u64,
}

impl Spent {
    pub(super) fn add(&mut self, usage: Usage, calls: usize, is_turn: bool) {
        self.turns = self.turns.saturating_add(is_turn.into());
        self.tool_calls = self.tool_calls.saturating_add(calls as u64);
        self.input_tokens = self.input_tokens.saturating_add(usage.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens);
    }

    /// Counts a start of the agent's external program towards the definition's `max_turns`.
    pub(super) fn start(&mut self) {
        self.turns = self.turns.saturating_add(1);
    }

    pub(super) fn time(&self) -> Duration {
        Duration::from_millis(self.milliseconds)
    }

    pub(super) fn set_time(&mut self, time: Duration) {
        self.milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    }

    /// Returns an error if the agent run has reached its maximum number of model requests or program starts, or used up a
    /// budget for tokens, tool calls or time.
    ///
    /// # Errors
    /// [`AgentRunError::TurnsUsedUp`] and [`AgentRunError::BudgetUsedUp`].
    pub(super) fn check(&self, definition: &AgentDefinition) -> Result<(), AgentRunError> {
        let turns = self.turns;
        if turns >= definition.max_turns {
            return Err(AgentRunError::TurnsUsedUp { turns });
        }
        self.check_budgets(definition)
    }

    /// Returns an error if the agent run has used up a budget for tokens, tool calls or time, without a check of `max_turns`.
    ///
    /// # Errors
    /// [`AgentRunError::BudgetUsedUp`].
    pub(super) fn check_budgets(&self, definition: &AgentDefinition) -> Result<(), AgentRunError> {
        let budgets = definition.budgets;
        let tokens = self.input_tokens.saturating_add(self.output_tokens);
        let used_up = |budget, limit| Err(AgentRunError::BudgetUsedUp { budget, limit });
        match (budgets.tokens, budgets.calls, budgets.seconds) {
            (Some(limit), _, _) if tokens >= limit => used_up("tokens", limit),
            (_, Some(limit), _) if self.tool_calls > limit => used_up("calls", limit),
            (_, _, Some(limit)) if self.time().as_secs() >= limit => used_up("seconds", limit),
            (_, _, _) => Ok(()),
        }
    }
}
