use crate::agent::{AgentDefinition, AgentRunError, AnsweredBy, Usage};
use crate::error::excerpt;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The resources that all attempts of an agent run have used.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(super) struct Spent {
    /// The number of model answers in the run, or of starts of the agent's program.
    pub(super) turns: u32,
    /// The number of tool calls that the model requested in the run, including refused calls.
    tool_calls: u64,
    input_tokens: u64,
    output_tokens: u64,
    /// The time in milliseconds that the run has worked, not counting the time in which the run was suspended.
    milliseconds: u64,
    /// The models of a list that answered or failed in the run, in the order in which they first did so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    models: Vec<ModelUse>,
}

/// The answers and failures of one model of a list in an agent run.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
struct ModelUse {
    model: String,
    answers: u32,
    /// The number of failures of the model in the run, by their codes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    failures: BTreeMap<String, u32>,
}

/// Maximum number of models in the record of an agent run. The answers and failures of further models are not recorded.
const MAX_MODELS: usize = 32;

/// Maximum number of failure codes in the record of one model of an agent run. Further codes are not recorded.
const MAX_CODES: usize = 32;

/// Maximum size of a model name or of a failure code in the record of an agent run, in bytes. A longer name is cut.
const MAX_NAME_BYTES: usize = 64;

impl Spent {
    pub(super) fn add(&mut self, usage: Usage, calls: usize, is_turn: bool) {
        self.turns = self.turns.saturating_add(is_turn.into());
        self.tool_calls = self.tool_calls.saturating_add(calls as u64);
        self.input_tokens = self.input_tokens.saturating_add(usage.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens);
    }

    /// Counts the model of a list that answered, and the models before it that failed.
    pub(super) fn add_model(&mut self, answered_by: Option<&AnsweredBy>) {
        let Some(answered_by) = answered_by else {
            return;
        };
        for failed in answered_by.failed.iter().take(MAX_MODELS) {
            let code = excerpt(&failed.code, MAX_NAME_BYTES);
            let Some(model) = self.model(&failed.model) else {
                continue;
            };
            if model.failures.len() < MAX_CODES || model.failures.contains_key(&*code) {
                let count = model.failures.entry(code.into_owned()).or_default();
                *count = count.saturating_add(1);
            }
        }
        if let Some(model) = self.model(&answered_by.model) {
            model.answers = model.answers.saturating_add(1);
        }
    }

    /// Returns the record of a model, or `None` if the run has records of too many other models.
    fn model(&mut self, name: &str) -> Option<&mut ModelUse> {
        let name = excerpt(name, MAX_NAME_BYTES);
        let index = self.models.iter().position(|one| one.model == name);
        if index.is_none() && self.models.len() < MAX_MODELS {
            let model = name.into_owned();
            self.models.push(ModelUse {
                model,
                ..ModelUse::default()
            });
            return self.models.last_mut();
        }
        self.models.get_mut(index?)
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn answers_and_failures_are_counted_for_each_model_and_saved() {
        let mut spent = Spent::default();
        let answered_by = AnsweredBy::new("small").failed("large", "timeout");

        spent.add_model(None);
        spent.add_model(Some(&answered_by));
        spent.add_model(Some(&answered_by));
        spent.add_model(Some(&AnsweredBy::new("large")));

        let saved = json!(spent);
        let expected = json!([
            {"model": "large", "answers": 1, "failures": {"timeout": 2}},
            {"model": "small", "answers": 2},
        ]);
        assert_eq!(saved["models"], expected);
        let read: Spent = serde_json::from_value(saved).unwrap();
        assert_eq!(json!(read)["models"], expected);
    }

    #[test]
    fn the_record_of_models_is_bounded() {
        let mut spent = Spent::default();

        for number in 0..100 {
            let long = format!("{number}{}", "x".repeat(1_000));
            let answered_by = AnsweredBy::new("small")
                .failed("large", &long)
                .failed(&long, "timeout");
            spent.add_model(Some(&answered_by));
        }

        assert_eq!(spent.models.len(), MAX_MODELS);
        assert_eq!(spent.models[0].failures.len(), MAX_CODES);
        assert!(json!(spent).to_string().len() < 10_000);
    }
}
