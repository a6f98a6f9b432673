use crate::error::BoxError;
use crate::machine::Deferral;
use crate::model::Json;
use serde_json::json;
use std::fmt;

/// Returns an error with which a tool hands its call off to another agent. The answer of that agent becomes the result of the call.
///
/// A deferral works only if an agent calls the tool. The answer to a `tool.request.v1` is the error `cannot_defer`.
///
/// Return the error from the function of the tool. `agent` is the name of the agent that takes
/// over, and `prompt` is its task.
/// Agent and prompt have at most 128 KiB together; more is the error `output_too_large`.
///
/// ```
/// use serde_json::json;
/// use universal_executor::tool::{handoff, json_tool};
///
/// let translate = json_tool("translate", "Translates.", json!({"type": "string"}), |input, _| async move {
///     Err(handoff("translator", format!("Translate into English: {input}")))
/// });
/// # let _ = translate;
/// ```
#[must_use]
pub fn handoff(agent: impl Into<String>, prompt: impl Into<String>) -> BoxError {
    defer(Deferral::Handoff {
        agent: agent.into(),
        prompt: prompt.into(),
    })
}

/// Returns an error with which a tool asks a person a question. The answer of the person becomes the result of the call.
///
/// The error is a deferral of the kind `question`, with the payload `{"question": text, "options": [..]}`. Like [`handoff`], it
/// works only if an agent calls the tool.
///
/// The run of the agent is suspended until the person answers, so it occupies no worker meanwhile.
///
/// ```
/// use serde_json::json;
/// use universal_executor::tool::{Question, ask_human, json_tool};
///
/// let refund = json_tool("refund", "Refunds an order.", json!({"type": "object"}), |input, _| async move {
///     let question = format!("Refund order {}?", input["order"]);
///     Err(ask_human(Question::new(question).options(["yes", "no"])))
/// });
/// let name = json_tool("name", "Asks for a name.", json!({}), |_, _| async { Err(ask_human("Who are you?")) });
/// # let _ = (refund, name);
/// ```
#[must_use]
pub fn ask_human(question: impl Into<Question>) -> BoxError {
    let Question { text, options } = question.into();
    deferred("question", json!({"question": text, "options": options}))
}

/// Returns an error with which a tool defers its result, for a program that drives the [tool call machine](crate::machine).
///
/// `kind` is a name that the driver recognises, and `payload` describes the deferred work. An
/// [agent](crate::agent::AgentExecutor) supports only handoffs and questions. For any other kind, the result of the call is the
/// error `cannot_defer`.
///
/// Kind and payload have at most 128 KiB together; more is the error `output_too_large`.
///
/// ```
/// use serde_json::json;
/// use universal_executor::tool::{deferred, json_tool};
///
/// let sign = json_tool("sign", "Has a paper signed.", json!({"type": "object"}), |input, _| async move {
///     Err(deferred("signature", json!({"paper": input["paper"]})))
/// });
/// # let _ = sign;
/// ```
#[must_use]
pub fn deferred(kind: impl Into<String>, payload: impl Into<Json>) -> BoxError {
    defer(Deferral::Other {
        kind: kind.into(),
        payload: payload.into(),
    })
}

/// Question of a tool to a person. The answer becomes the result of the tool call.
///
/// A string converts to a question without options, so `ask_human("Who are you?")` works.
///
/// # Examples
/// ```
/// use universal_executor::tool::Question;
///
/// let question = Question::new("Refund order 7?").options(["yes", "no"]);
/// assert_eq!(question.options, ["yes", "no"]);
/// assert_eq!(Question::from("Why?"), Question::new("Why?"));
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Question {
    /// The text of the question that the tool asks a person.
    pub text: String,
    /// The answers that the person can choose from. If empty (the default), the person can give any answer.
    pub options: Vec<String>,
}

impl Question {
    /// Creates a question to a person without a list of options. The person can give any answer.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            options: Vec::new(),
        }
    }

    /// Adds answers that the person can choose from.
    ///
    /// A second call adds more answers.
    #[must_use]
    pub fn options<T: Into<String>>(mut self, options: impl IntoIterator<Item = T>) -> Self {
        self.options.extend(options.into_iter().map(Into::into));
        self
    }
}

impl<T: Into<String>> From<T> for Question {
    fn from(text: T) -> Self {
        Self::new(text)
    }
}

fn defer(deferral: Deferral) -> BoxError {
    Box::new(Deferred(deferral))
}

/// Error with which a tool's function reports that the result of the call comes later, for example from a person.
#[derive(Debug)]
pub(super) struct Deferred(pub(super) Deferral);

impl fmt::Display for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the tool deferred its result")
    }
}

impl std::error::Error for Deferred {}
