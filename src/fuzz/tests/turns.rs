//! Turns of agents and calls of tools, with answers and arguments from a model.

use super::{block_on, tools};
use crate::agent::{
    AgentDefinition, AgentExecutor, ChatResponse, ModelArguments, ScriptedModel, ToolCall,
};
use crate::executor::ExecutionContext;
use crate::fuzz::agents::{AGENT, ANSWER, ARGUMENTS, TOOL};
use crate::fuzz::vocabulary::SCHEMA_OF_JSON;
use crate::fuzz::{CONTEXT, Shape, Tape, any_json, structured};
use crate::machine::{Answer, ToolOutcome};
use crate::model::{Selector, is_reserved_schema, is_reserved_tag};
use crate::store::{BreadcrumbStore, Query};
use crate::tool::{ToolRegistry, json_tool};
use crate::{
    BreadcrumbStoreExt, Event, Json, MemoryStore, NewBreadcrumb, Outcome, UniversalExecutor,
};
use serde_json::Value;
use std::sync::Arc;

/// Maximum length of an error message in bytes.
const MAX_MESSAGE: usize = 2_000;

#[derive(Debug)]
struct Turn {
    agent: String,
    message: String,
    answers: Vec<ModelAnswer>,
}

/// One answer of the model: its text and its tool calls.
#[derive(Clone, Debug)]
struct ModelAnswer {
    text: String,
    calls: Vec<(String, String, String)>,
}

fn turn(tape: &mut Tape) -> Turn {
    let answers = (0..=tape.below(3)).map(|_| model_answer(tape)).collect();
    Turn {
        message: CONTEXT.text(tape),
        agent: AGENT.text(tape),
        answers,
    }
}

/// Generates a string as a provider returns it after parsing its JSON.
fn string(shape: &Shape, tape: &mut Tape) -> String {
    let text = shape.text(tape);
    match Json::from_text(text.clone()).map(Json::into_value) {
        Ok(Value::String(read)) => read,
        Ok(_) | Err(_) => text,
    }
}

fn model_answer(tape: &mut Tape) -> ModelAnswer {
    let text = string(&ANSWER, tape);
    let calls = (0..tape.below(3)).map(|number| {
        let id = if tape.once_in(8) {
            string(&TOOL, tape)
        } else {
            format!("c{number}")
        };
        (id, string(&TOOL, tape), ARGUMENTS.text(tape))
    });
    let calls = calls.collect();
    ModelAnswer { text, calls }
}

fn response(model_answer: &ModelAnswer) -> ChatResponse {
    let calls = model_answer.calls.iter().map(|(id, name, arguments)| {
        ToolCall::new(
            id.clone(),
            name.clone(),
            ModelArguments::from_text(arguments.clone()),
        )
    });
    let mut response = ChatResponse::calling(calls.collect());
    let words = ChatResponse::new(&*model_answer.text);
    if model_answer.calls.is_empty() {
        return words;
    }
    response.parts.splice(0..0, words.parts);
    response
}

fn run_turn(turn: &Turn) -> bool {
    let (Ok(agent), Ok(message)) = (
        Json::from_text(turn.agent.clone()),
        Json::from_text(turn.message.clone()),
    ) else {
        return false;
    };
    let Ok(mut definition) = AgentDefinition::from_json(&agent) else {
        return false;
    };
    definition.max_turns = definition.max_turns.min(5);
    let allowed = definition.responds_with.clone();
    let id = definition.agent_id.clone();
    block_on(async {
        let store = MemoryStore::default();
        let answers = turn.answers.clone();
        let model = ScriptedModel::answering(move |number, _| {
            let model_answer = answers.get(number - 1).or(answers.last());
            Ok(model_answer.map_or_else(|| ChatResponse::new("yes"), response))
        });
        let Ok(agent) = AgentExecutor::with_tools(
            definition,
            Arc::new(model),
            Arc::new(store.clone()),
            tools(),
        ) else {
            return false;
        };
        let Ok(message) = store
            .create(NewBreadcrumb::new("user.message.v1").context(message))
            .await
        else {
            return false;
        };
        let event = Event::created(&message);
        let outcome = agent.process_event(&event).await;
        if let Err(error) = &outcome {
            assert!(error.to_string().len() < MAX_MESSAGE, "{error}");
        }
        drop(agent.process_event(&event).await);
        for written in store
            .search(&Query::new(Selector::any()).limit(1_000))
            .await
            .unwrap()
        {
            if written.id != message.id {
                is_within_bounds(&written, &id, &allowed);
            }
        }
        matches!(outcome, Ok(Outcome::Responded { .. }))
    })
}

/// Asserts that an agent wrote nothing that its definition forbids, and that the author of each write is the agent.
fn is_within_bounds(written: &crate::Breadcrumb, agent: &str, allowed: &[String]) {
    let schema = written.schema_name.as_deref().unwrap_or_default();
    let own =
        ["agent.response.v1", "executor.failed.v1"].contains(&schema) || is_reserved_schema(schema);
    assert!(
        own || allowed.iter().any(|one| one == schema),
        "{written:?}"
    );
    assert_eq!(written.author(), Some(agent), "{written:?}");
    if let Some(creator) = written.context.get("creator") {
        assert_eq!(creator["id"], agent, "{written:?}");
    }
    assert!(
        !written.tags.iter().any(|tag| is_reserved_tag(tag)),
        "{written:?}"
    );
}

#[test]
fn any_answer_of_a_model_leads_to_writes_within_the_bounds_of_its_agent() {
    structured(turn, run_turn);
}

#[derive(Debug)]
struct Call {
    schema: String,
    tool: String,
    arguments: String,
    output: String,
}

fn call(tape: &mut Tape) -> Call {
    let mut output = String::new();
    any_json(tape, &mut output);
    Call {
        schema: SCHEMA_OF_JSON.text(tape),
        tool: string(&TOOL, tape),
        arguments: ARGUMENTS.text(tape),
        output,
    }
}

fn run_call(call: &Call) -> bool {
    let Ok(schema) = Json::from_text(call.schema.clone()) else {
        return false;
    };
    let output = Json::from_text(call.output.clone()).map_or(Value::Null, Json::into_value);
    let echo = json_tool(
        "echo",
        "Gives an output.",
        schema.into_value(),
        move |_, _| {
            let output = output.clone();
            async move { Ok(output) }
        },
    );
    let registry = match ToolRegistry::default().with(echo) {
        Ok(registry) => registry,
        Err(error) => {
            assert!(error.to_string().len() < MAX_MESSAGE, "{error}");
            return false;
        }
    };
    let arguments = crate::machine::ToolArguments::parse(&call.arguments);
    let call = crate::machine::MachineCall::new("c", &*call.tool, arguments);
    block_on(async {
        let run = ExecutionContext::for_trigger(NewBreadcrumb::new("user.message.v1"));
        let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
        match registry.call(call, Some("agent"), &run, &store).await {
            ToolOutcome::Answered(Answer::Error { code, message }) => {
                assert!(
                    code.len() < 100 && message.len() < 8_000,
                    "{code}: {message}"
                );
                false
            }
            ToolOutcome::Answered(Answer::Success(_)) => true,
            other => panic!("{other:?}"),
        }
    })
}

#[test]
fn any_call_is_answered_by_its_tool_or_with_an_error() {
    structured(call, run_call);
}
