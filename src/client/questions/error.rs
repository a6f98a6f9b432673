//! The error of a person's answer that has no effect.

use crate::client::ClientError;
use crate::error::{Retry, excerpt};
use crate::model::Timestamp;
use crate::store::RunState;

/// Error returned when the answer of a person to a question has no effect.
///
/// Returned by the methods of [`Questions`](super::Questions). Except after
/// [`Client`](Self::Client), the answer has no effect. An open question stays open, and another
/// person or another answer can succeed.
///
/// | variant | [code](Self::code) | remedy |
/// |---|---|---|
/// | `Unknown` | `unknown_question` | check the ID, or list the open questions again |
/// | `Ambiguous` | `ambiguous_question` | delete the copied question |
/// | `NotOpen` | `not_open` | show the author of the answer, or the state of the run |
/// | `NotAllowed` | `not_allowed` | ask one of the people in `allowed` |
/// | `Expired` | `expired` | none; the run continues without an answer |
/// | `Invalid` | `invalid_answer` | correct the answer by `problem` |
/// | `WrongKind` | `wrong_kind` | call one of the methods in `expected` |
/// | `NotChangeable` | `not_changeable` | approve or reject the call unchanged |
/// | `Client` | that of the client error | retry if [`retry`](Self::retry) allows it |
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AnswerError {
    /// No question to a person has the ID that the caller passed.
    #[error(
        "no question to a person has the ID {:?}; pass the field `id` of a QuestionView",
        excerpt(id, 80)
    )]
    Unknown {
        /// The ID that belongs to no question.
        id: String,
    },
    /// Several executors have asked a question with this ID. One of the questions may show other arguments than the call of the other has.
    #[error(
        "the question ID {:?} is ambiguous, because several executors have asked a question with this ID; delete all of these question breadcrumbs except one",
        excerpt(id, 80)
    )]
    Ambiguous {
        /// The ID that several questions have.
        id: String,
    },
    /// The question was answered before, or its run does not wait for the answer any more.
    #[error("question {:?} is not open: {}", excerpt(id, 80), closed(by.as_deref(), *at, *run))]
    NotOpen {
        /// ID of the question that is not open.
        id: String,
        /// Name of the author of the answer that the question's run accepted, as the store recorded the name. `None` without an
        /// accepted answer or a recorded name.
        by: Option<String>,
        /// The creation time of the answer that the question's run accepted, or `None` without such an answer.
        at: Option<Timestamp>,
        /// The state of the run that asked the question, if the run has ended.
        run: Option<RunState>,
    },
    /// The person may not answer the question.
    #[error(
        "person {:?} may not answer question {:?}; allowed: {}",
        excerpt(person, 80),
        excerpt(id, 80),
        allowed.join(", ")
    )]
    NotAllowed {
        /// ID of the question that the person may not answer.
        id: String,
        /// The name of the person who may not answer the question. If the store recorded the answer under another name, this
        /// name.
        person: String,
        /// The approvers of the question: people, and roles as `role:<name>`. If several rules apply, the approvers of the first rule that
        /// does not permit the person.
        allowed: Vec<String>,
    },
    /// The deadline for the person's answer has passed. Changed arguments of a tool call can have an earlier deadline.
    #[error(
        "question {:?} expired at {at}, so the answer has no effect; send a new request to the executor",
        excerpt(id, 80)
    )]
    Expired {
        /// ID of the expired question.
        id: String,
        /// The deadline that the person's answer missed.
        at: Timestamp,
    },
    /// The answer does not match the JSON Schema that the question sets for answers, or the changed arguments do not match the
    /// input schema of the tool.
    #[error("the answer to question {:?} is not valid: {problem}", excerpt(id, 80))]
    Invalid {
        /// ID of the question with the invalid answer.
        id: String,
        /// The problem with a person's answer, with the path of the invalid value in the answer or in the changed tool arguments.
        problem: String,
    },
    /// The caller used a method of `Questions` that does not answer this kind of question, such as `approve` for a question that is not a
    /// tool approval.
    #[error(
        "question {:?} cannot be answered with the called method of Questions; use {expected}",
        excerpt(id, 80)
    )]
    WrongKind {
        /// ID of the question that was answered with a method for another kind of question.
        id: String,
        /// The methods of `Questions` that answer the question.
        expected: &'static str,
    },
    /// The question does not permit a change of the tool call's arguments.
    ///
    /// The reason is one of three. The rules for changed arguments have more than 16 KiB or contain characters that reorder text. The
    /// arguments contain such characters, so the question shows them as escapes. An earlier version of the crate asked the question.
    #[error(
        "cannot change the tool call arguments in question {:?}; approve or reject the tool call",
        excerpt(id, 80)
    )]
    NotChangeable {
        /// ID of the question about the tool call.
        id: String,
    },
    /// The question cannot be read from the store, or the answer cannot be written.
    ///
    /// The answer may have been written. The same answer again is safe.
    #[error("cannot read a question to a person, or store its answer; see the cause")]
    Client(#[from] ClientError),
}

fn closed(by: Option<&str>, at: Option<Timestamp>, run: Option<RunState>) -> String {
    match (by, at, run) {
        (_, _, Some(RunState::Suspended)) => "the run waits for something else".to_owned(),
        (Some(by), Some(at), _) => format!("{} answered it at {at}", excerpt(by, 80)),
        (_, Some(at), _) => format!("an earlier answer was accepted at {at}"),
        (_, None, Some(state)) => format!("the run that asked is {state}"),
        (_, None, None) => "an earlier answer was accepted".to_owned(),
    }
}

impl AnswerError {
    /// Returns the delay after which another attempt to answer the question can succeed, or [`Retry::Never`].
    ///
    /// Only [`Client`](Self::Client) can allow a retry; all other errors return [`Retry::Never`].
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unknown { .. }
            | Self::Ambiguous { .. }
            | Self::NotOpen { .. }
            | Self::NotAllowed { .. }
            | Self::Expired { .. }
            | Self::Invalid { .. }
            | Self::NotChangeable { .. }
            | Self::WrongKind { .. } => Retry::Never,
            Self::Client(source) => source.retry(),
        }
    }

    /// Returns a stable code of the error for logs and metrics, for example `not_open`.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "unknown_question",
            Self::Ambiguous { .. } => "ambiguous_question",
            Self::NotOpen { .. } => "not_open",
            Self::NotAllowed { .. } => "not_allowed",
            Self::Expired { .. } => "expired",
            Self::Invalid { .. } => "invalid_answer",
            Self::NotChangeable { .. } => "not_changeable",
            Self::WrongKind { .. } => "wrong_kind",
            Self::Client(source) => source.code(),
        }
    }
}
