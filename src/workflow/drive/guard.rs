//! Guardrails of a workflow definition, each limited to the stage for which the definition names it.

use super::AssemblyError;
use super::assembly_error::unknown;
use crate::agent::ChatMessage;
use crate::agent::guardrail::{Decision, Guardrail, Guardrails};
use crate::error::BoxError;
use crate::machine::Answer;
use crate::model::Json;
use crate::services::Services;
use crate::workflow::GuardrailNames;
use async_trait::async_trait;
use std::sync::Arc;

/// Returns the guardrails of a workflow definition, in the order in which the definition names them.
pub(super) fn chain(
    names: &GuardrailNames,
    services: &Services,
) -> Result<Guardrails, AssemblyError> {
    let mut chain = Guardrails::default();
    for (stage, names) in [
        (Stage::Input, &names.input),
        (Stage::Output, &names.output),
        (Stage::ToolCall, &names.tool_call),
        (Stage::ToolResult, &names.tool_result),
    ] {
        for name in names {
            let found = services.guardrails().get(name);
            let guardrail =
                found.ok_or_else(|| unknown("guardrail", name, services.guardrails()))?;
            let guardrail = Arc::clone(guardrail);
            chain = chain.with(At { stage, guardrail });
        }
    }
    Ok(chain)
}

#[derive(Clone, Copy, PartialEq)]
enum Stage {
    Input,
    Output,
    ToolCall,
    ToolResult,
}

/// A registered guardrail that checks only the stage for which the workflow definition names it.
struct At {
    stage: Stage,
    guardrail: Arc<dyn Guardrail>,
}

#[async_trait]
impl Guardrail for At {
    fn name(&self) -> &str {
        self.guardrail.name()
    }

    async fn input(
        &self,
        messages: &[ChatMessage],
    ) -> Result<Decision<Vec<ChatMessage>>, BoxError> {
        match self.stage == Stage::Input {
            true => self.guardrail.input(messages).await,
            false => Ok(Decision::Allow),
        }
    }

    async fn output(&self, text: &str) -> Result<Decision<String>, BoxError> {
        match self.stage == Stage::Output {
            true => self.guardrail.output(text).await,
            false => Ok(Decision::Allow),
        }
    }

    async fn tool_call(&self, tool: &str, arguments: &Json) -> Result<Decision<Json>, BoxError> {
        match self.stage == Stage::ToolCall {
            true => self.guardrail.tool_call(tool, arguments).await,
            false => Ok(Decision::Allow),
        }
    }

    async fn tool_result(&self, tool: &str, answer: &Answer) -> Result<Decision<Answer>, BoxError> {
        match self.stage == Stage::ToolResult {
            true => self.guardrail.tool_result(tool, answer).await,
            false => Ok(Decision::Allow),
        }
    }
}
