//! Executes model steps: one request to the model, and a second one if the answer does not match the requested output.

use super::event::StepEventKind;
use super::model_tap::Listener;
use super::outcome::{bad_output, failed_with};
use super::step::Step;
use crate::agent::guardrail::Denied;
use crate::agent::{ChatMessage, ChatModel as _, ChatRequest, Output, ResponseSchema};
use crate::error::BoxError;
use crate::executor::{fenced, label};
use crate::model::Json;
use crate::workflow::{ModelInput, StepOutcome, TextPart};
use serde_json::Value;
use std::collections::BTreeSet;
use std::sync::Arc;

impl Step<'_> {
    pub(super) async fn model(
        &self,
        name: &str,
        prompt: Option<&str>,
        input: &ModelInput,
        output: Option<&str>,
    ) -> Result<StepOutcome, BoxError> {
        let workflow = self.assembly.workflow();
        let listener = Listener {
            emitter: Arc::clone(&self.emitter),
            path: self.ready.path.clone(),
        };
        let Some(model) = self.assembly.model(name, Some(listener.clone())) else {
            return Ok(StepOutcome::failure(
                "unknown_model",
                "the workflow has no such model",
            ));
        };
        let output = output.and_then(|name| self.assembly.outputs.get(name));
        let spec = workflow.models.get(name);
        let prompt = prompt.and_then(|prompt| workflow.prompts.get(prompt));
        let mut messages = self.messages(prompt.map(|prompt| &**prompt), input, output);
        // After an invalid answer, the model gets the problem and one more chance.
        for repairs in [1, 0] {
            let shown = match self.assembly.guardrails.input(messages.clone()).await {
                Ok(shown) => shown,
                Err(denied) => return Ok(StepOutcome::failure("denied", denied.to_string())),
            };
            let mut request = ChatRequest::new(shown);
            request.model = spec.and_then(|spec| spec.model.clone());
            request.temperature = spec.and_then(|spec| spec.temperature);
            request.response_schema =
                output.map(|output| ResponseSchema::new("answer", output.schema.clone()).lenient());
            let answer = match model.chat(&request).await {
                Ok(response) => response.text().into_owned(),
                Err(error) => return failed_with(error.into()),
            };
            let problem = match self.examine(&answer, output).await {
                Ok(result) => return Ok(StepOutcome::success(result)),
                Err(Objection::Denied(denied)) => {
                    return Ok(StepOutcome::failure("denied", denied.to_string()));
                }
                Err(Objection::Repair(problem)) => problem,
            };
            if repairs == 0 {
                return Ok(bad_output(&problem, &answer));
            }
            listener.report(StepEventKind::Repaired {
                problem: problem.clone(),
            });
            messages.push(ChatMessage::assistant(answer));
            messages.push(ChatMessage::user(format!(
                "That is not the output that was asked for: {problem}. Answer again."
            )));
        }
        Ok(StepOutcome::failure(
            "bad_output",
            "the model gave no valid answer",
        ))
    }

    /// Checks the answer of a model with the guardrails and the output schema, and returns the result of the step.
    async fn examine(&self, answer: &str, output: Option<&Output>) -> Result<Value, Objection> {
        let text = match self.assembly.guardrails.output(answer.to_owned()).await {
            Ok(text) => text,
            Err(denied) if denied.try_again => return Err(Objection::Repair(denied.reason)),
            Err(denied) => return Err(Objection::Denied(denied)),
        };
        match output {
            None => Ok(text.into()),
            Some(output) => {
                let read = output.read(&text);
                read.map(Json::into_value).map_err(Objection::Repair)
            }
        }
    }
}

/// Reason why the answer of a model is not accepted as the result of a model step.
enum Objection {
    /// A guardrail denies the answer of the model.
    Denied(Denied),
    /// Description of a problem in the model's answer. The step can ask the model to correct the answer.
    Repair(String),
}

impl Step<'_> {
    /// Returns the messages that a model step sends to its model. The text of the definition and the user's own message are
    /// unchanged, and all other values are fenced data. Next to the user's message, the schema of the answer is in the system
    /// message.
    fn messages(
        &self,
        prompt: Option<&str>,
        input: &ModelInput,
        output: Option<&Output>,
    ) -> Vec<ChatMessage> {
        let schema = output.map(|output| {
            let schema = &output.schema;
            format!("Answer with nothing but JSON that fits this schema: {schema}")
        });
        let mut instructions: Vec<String> = prompt.map(str::to_owned).into_iter().collect();
        let text = match input {
            ModelInput::Text(parts) => with_line(instruction(parts), schema),
            ModelInput::Data(value) => match value.as_str() {
                Some(words) if self.is_user_message(value) => {
                    instructions.extend(schema);
                    words.to_owned()
                }
                Some(_) | None => {
                    let task = match prompt {
                        Some(_) => "Do what your instructions say with the input.",
                        None => "Answer the input.",
                    };
                    with_line(format!("{}\n{task}", fenced([("input", value)])), schema)
                }
            },
        };
        let instructions = instructions.join("\n\n");
        let system = (prompt.is_some() || !instructions.is_empty()).then_some(instructions);
        let system = system.map(ChatMessage::system);
        system
            .into_iter()
            .chain([ChatMessage::user(text)])
            .collect()
    }
}

fn with_line(text: String, line: Option<String>) -> String {
    match line {
        Some(line) => format!("{text}\n{line}"),
        None => text,
    }
}

/// Returns the text that a model step sends to its model as the request. The values of the variables come first, as separate data
/// sections. The text of the definition follows, with a label in place of each value.
fn instruction(parts: &[TextPart]) -> String {
    let (mut text, mut values) = (String::new(), Vec::new());
    let mut known = BTreeSet::new();
    for part in parts {
        match part {
            TextPart::Text(plain) => text.push_str(plain),
            TextPart::Value { source, value } => {
                if known.insert(source) {
                    values.push((source.as_str(), value));
                }
                text.push_str(&label(source));
            }
        }
    }
    if values.is_empty() {
        return text;
    }
    let data = fenced(values);
    format!(
        "{data}\nIn the task below, [data ..] stands for the data in the section of that name.\n\n{text}"
    )
}
