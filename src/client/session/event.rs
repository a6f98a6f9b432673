//! Events of a turn of a chat session, as clients receive them.

use super::super::QuestionView;
use crate::executor::Record;
use crate::store::RunState;
use serde::Serialize;
use std::fmt;

/// An event of a chat session's turn, with the cursor after the event.
///
/// Returned by [`Turn::next`](super::Turn::next). The JSON form has the fields `cursor` and
/// `event`, for server-sent events or a WebSocket.
///
/// # Examples
/// ```
/// use universal_executor::client::Envelope;
///
/// /// Formats an event as a server-sent event. The browser returns the ID after a reconnect.
/// fn line(envelope: &Envelope) -> Result<String, serde_json::Error> {
///     let data = serde_json::to_string(&envelope.event)?;
///     Ok(format!("id: {}\ndata: {data}\n\n", envelope.cursor))
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Envelope {
    /// Cursor at the position after this event of the chat turn, to resume the turn with the next event.
    /// [`Session::resume`](super::Session::resume) continues at the cursor.
    ///
    /// It contains the request ID of the turn and no secret. It is valid while the store has the
    /// message of the turn.
    pub cursor: String,
    /// The event itself, such as a piece of the answer or a tool call of the chat turn.
    pub event: TurnEvent,
}

/// An event of a turn of a chat session: a piece of the answer, a tool call, a question, or the end.
///
/// A client that shows only the answer handles [`Text`](Self::Text), [`Restarted`](Self::Restarted)
/// and [`End`](Self::End). The JSON form is an object with the name of the event, such as
/// `{"text": "Hi"}`, or the string `"missed"`.
///
/// # Examples
/// ```
/// use universal_executor::client::TurnEvent;
///
/// /// Updates the text on the screen.
/// fn show(screen: &mut String, event: &TurnEvent) {
///     match event {
///         TurnEvent::Text(text) => screen.push_str(text),
///         TurnEvent::Restarted { .. } | TurnEvent::ToolCalled { .. } => screen.clear(),
///         TurnEvent::End(end) => *screen = end.to_string(),
///         _ => {}
///     }
/// }
/// let mut screen = String::new();
/// show(&mut screen, &TurnEvent::Text("Hel".to_owned()));
/// show(&mut screen, &TurnEvent::Restarted { attempt: 2 });
/// assert!(screen.is_empty());
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnEvent {
    /// A piece of the answer that the model is writing.
    ///
    /// Append it to the earlier pieces. A run writes pieces about five times per second at most.
    Text(String),
    /// The model call is repeated: a worker was lost, an attempt failed, or the answer was not usable. Discard the text since the last
    /// event of another kind. In rare cases that text is not repeated, and only the [end](Self::End) has it.
    Restarted {
        /// The number of the run's attempt in which the model call is repeated, counted from 1. It stays the same if the run
        /// repeats the call within one attempt.
        attempt: u32,
    },
    /// An agent calls a tool during the turn.
    ///
    /// The arguments are not part of the event. The final answer can omit text from before the
    /// call.
    ToolCalled {
        /// The ID of the tool call.
        call: String,
        /// The name of the called tool, as the model wrote it.
        tool: String,
    },
    /// A tool call of an agent has a result.
    ///
    /// The model receives the result, even an error, and continues the turn.
    ToolAnswered {
        /// The ID of the tool call that has a result.
        call: String,
        /// If `true`, the result of the tool call is an error.
        is_error: bool,
    },
    /// Some events of the chat turn were omitted, because the store was too slow. [`End`](Self::End) has the whole answer.
    ///
    /// No action is needed if the client shows the text of the end.
    Missed,
    /// The turn waits for the answer of a person. After [`Session::resume`](super::Session::resume) an open question is repeated.
    ///
    /// Answer it with [`Questions`](crate::client::Questions). The turn then continues with further
    /// events.
    Question(Box<QuestionView>),
    /// The chat turn has ended. No event follows.
    End(TurnEnd),
}

impl TurnEvent {
    pub(super) fn of(record: Record, attempt: u32) -> Self {
        match record {
            Record::Text(text) => Self::Text(text),
            Record::ToolCalled { call, tool } => Self::ToolCalled { call, tool },
            Record::ToolAnswered { call, is_error } => Self::ToolAnswered { call, is_error },
            Record::Repeated => Self::Restarted { attempt },
            Record::Missed => Self::Missed,
        }
    }
}

/// The outcome of a turn of a chat session. Its `Display` form is the text of the answer, or the reason for its absence.
///
/// Content of [`TurnEvent::End`], and the field `end` of [`PastTurn`](super::PastTurn).
///
/// # Examples
/// ```
/// use universal_executor::client::TurnEnd;
///
/// let end = TurnEnd::Completed { text: "Hello!".to_owned() };
/// assert_eq!(end.text(), Some("Hello!"));
/// assert_eq!(end.to_string(), "Hello!");
/// assert_eq!(TurnEnd::Cancelled.text(), None);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum TurnEnd {
    /// The executor answered the chat message of this turn.
    Completed {
        /// The text of the executor's answer, which replaces all text that was streamed. A structured output is JSON. Empty if the executor
        /// wrote no response.
        text: String,
    },
    /// The turn failed for good: its run ended as failed, or its answer reports an error.
    ///
    /// [`Client::redo`](crate::client::Client::redo) repeats a failed run. An answer with the status
    /// `error` also counts as a failed turn, but its run is done and cannot be redone.
    Failed {
        /// The code of the last error of the chat turn's run.
        code: String,
        /// The last error of the chat turn's run and its sources, without credentials.
        cause: Option<String>,
    },
    /// The chat turn was cancelled.
    ///
    /// [`Turn::cancel`](super::Turn::cancel) or [`Client::cancel`](crate::client::Client::cancel)
    /// ended its run.
    Cancelled,
    /// The chat turn ended without an answer. The message was changed or deleted before the answer, the executor does not accept
    /// the message, or the ledger no longer has the turn's run.
    Unanswered {
        /// The state of the chat turn's run, either `skipped` or `superseded`.
        state: RunState,
        /// The reason why the chat turn has no answer, such as `unmatched`, `gone` or `run_missing`.
        reason: Option<String>,
    },
}

impl TurnEnd {
    /// Returns the text of the executor's answer, or `None` if the chat turn ended in any other way than
    /// [`Completed`](Self::Completed).
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Completed { text } => Some(text),
            Self::Failed { .. } | Self::Cancelled | Self::Unanswered { .. } => None,
        }
    }
}

impl fmt::Display for TurnEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Completed { text } => f.write_str(text),
            Self::Failed { code, cause } => {
                write!(f, "the turn failed with {code}")?;
                match cause {
                    Some(cause) => write!(f, ": {cause}"),
                    None => Ok(()),
                }
            }
            Self::Cancelled => f.write_str("the turn was cancelled"),
            Self::Unanswered { state, reason } => {
                let reason = reason.as_deref().unwrap_or(state.as_str());
                write!(f, "the executor did not answer the message: {reason}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_json_of_events_is_stable() {
        let json = |event: TurnEvent| {
            let cursor = "id#1.2.3.4.0".to_owned();
            serde_json::to_value(Envelope { cursor, event }).unwrap()["event"].take()
        };
        let cases: Vec<(TurnEvent, Value)> = vec![
            (TurnEvent::Text("Hi".into()), json!({"text": "Hi"})),
            (
                TurnEvent::Restarted { attempt: 2 },
                json!({"restarted": {"attempt": 2}}),
            ),
            (
                TurnEvent::of(
                    Record::ToolCalled {
                        call: "1".into(),
                        tool: "pay".into(),
                    },
                    1,
                ),
                json!({"tool_called": {"call": "1", "tool": "pay"}}),
            ),
            (
                TurnEvent::of(
                    Record::ToolAnswered {
                        call: "1".into(),
                        is_error: true,
                    },
                    1,
                ),
                json!({"tool_answered": {"call": "1", "is_error": true}}),
            ),
            (TurnEvent::Missed, json!("missed")),
            (
                TurnEvent::End(TurnEnd::Completed { text: "Hi".into() }),
                json!({"end": {"completed": {"text": "Hi"}}}),
            ),
            (
                TurnEvent::End(TurnEnd::Failed {
                    code: "timeout".into(),
                    cause: None,
                }),
                json!({"end": {"failed": {"code": "timeout", "cause": null}}}),
            ),
            (
                TurnEvent::End(TurnEnd::Cancelled),
                json!({"end": "cancelled"}),
            ),
            (
                TurnEvent::End(TurnEnd::Unanswered {
                    state: RunState::Skipped,
                    reason: Some("gone".into()),
                }),
                json!({"end": {"unanswered": {"state": "skipped", "reason": "gone"}}}),
            ),
        ];
        for (event, expected) in cases {
            assert_eq!(json(event), expected);
        }
    }
}
