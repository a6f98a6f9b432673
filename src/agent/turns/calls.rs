//! Tool calls between a model, the machine and a registry: each has its own words for them.

use crate::agent::{Message, ToolCall as ModelCall};
use crate::machine::{Answer, Arguments, CallId, ToolCall, ToolOutcome};
use serde_json::Value;

/// The id of a call within its run. Some providers number the calls of each answer anew, so the same id in a later turn
/// is another call.
pub(super) fn id(turn: u32, call: &ModelCall) -> CallId {
    format!("{turn}:{}", call.id).into()
}

/// A call as the machine takes it.
pub(super) fn of_model(turn: u32, call: &ModelCall) -> ToolCall {
    let arguments = match call.arguments.json() {
        Ok(json) => json.clone().into(),
        Err(error) => unreadable(call, error.reason),
    };
    ToolCall::new(id(turn, call), &*call.name, arguments)
}

/// A call that may not be whole, although it could be read: `{}` may be all that is left of it.
pub(super) fn cut_off(turn: u32, call: &ModelCall) -> ToolCall {
    let problem = "the answer came to its limit of tokens, so they may be cut off";
    let arguments = unreadable(call, problem.to_owned());
    ToolCall::new(id(turn, call), &*call.name, arguments)
}

fn unreadable(call: &ModelCall, problem: String) -> Arguments {
    Arguments::Unreadable {
        text: call.arguments.text().to_owned(),
        problem,
    }
}

/// What a call came to, for the machine.
pub(super) fn answer(outcome: ToolOutcome) -> Answer {
    match outcome {
        ToolOutcome::Answered(answer) => answer,
        ToolOutcome::Deferred(_) => Answer::error(
            "cannot_defer",
            "the tool leaves its result to somebody else, and there is nobody here who would give it",
        ),
    }
}

/// What became of a call that an earlier attempt may have made.
pub(super) fn unknown_outcome() -> Answer {
    Answer::error(
        "outcome_unknown",
        "the call was interrupted and is not made again, so its outcome is unknown",
    )
}

/// What the model is told of a call.
pub(super) fn message(call_id: &str, answer: Answer) -> Message {
    match answer {
        Answer::Success(output) => Message::tool_result(call_id, text(output.into_value())),
        Answer::Error { code, message } => {
            Message::tool_error(call_id, format!("{code}: {message}"))
        }
    }
}

fn text(output: Value) -> String {
    match output {
        Value::String(text) => text,
        other @ (Value::Null
        | Value::Bool(_)
        | Value::Number(_)
        | Value::Array(_)
        | Value::Object(_)) => other.to_string(),
    }
}
