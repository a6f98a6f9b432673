use crate::error::BoxError;
use crate::machine::Deferral;
use crate::model::Json;
use serde_json::json;
use std::fmt;

/// The error by which a tool hands its call over to another agent: what that agent answers is the result of the call.
///
/// As every deferral it can be taken up only where an agent calls the tool. A request by a breadcrumb is answered with
/// the error `cannot_defer`.
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

/// The error by which a tool asks a person: what that person answers is the result of the call.
///
/// It is a deferral of the kind `question`, with `{"question": text, "options": [..]}`; see [`handoff`] for where it
/// can be taken up.
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

/// The error by which a tool leaves its result to anybody else: a kind, by a name that whoever drives the
/// [machine](crate::machine) knows, and what it is about. An [agent](crate::agent::AgentExecutor) knows handoffs and
/// questions, and answers any other kind with the error `cannot_defer`.
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

/// What a person is asked.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Question {
    /// The question itself.
    pub text: String,
    /// The answers to choose from; any answer if there are none, which is the default.
    pub options: Vec<String>,
}

impl Question {
    /// A question that is answered freely.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            options: Vec::new(),
        }
    }

    /// Adds answers to choose from.
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

/// A deferral on its way from the function of a tool.
#[derive(Debug)]
pub(super) struct Deferred(pub(super) Deferral);

impl fmt::Display for Deferred {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the result comes later")
    }
}

impl std::error::Error for Deferred {}
