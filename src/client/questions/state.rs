//! The state of a question to a person, as serializable data without a store handle.

use crate::model::{Breadcrumb, Timestamp};
use crate::request::human;
use crate::store::RunState;
use serde::Serialize;

/// The state of a question to a person. Returned by [`Questions::state`](super::Questions::state).
///
/// Its JSON is an object with the field `state`: `open`, `answered`, `expired` or `closed`.
///
/// # Examples
/// ```
/// use universal_executor::client::QuestionState;
///
/// let json = serde_json::to_value(QuestionState::Open).unwrap();
/// assert_eq!(json, serde_json::json!({"state": "open"}));
/// ```
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "state")]
#[non_exhaustive]
pub enum QuestionState {
    /// The question is open: the run would accept an answer.
    ///
    /// A method of [`Questions`](super::Questions) can answer it.
    Open,
    /// The question is answered: the run accepts one of the answers.
    ///
    /// A further answer fails with [`AnswerError::NotOpen`](super::AnswerError::NotOpen), unless it
    /// is the same answer of the same person.
    Answered {
        /// Name of the author of the answer that the question's run accepted, as the store recorded the name.
        by: Option<String>,
        /// The creation time of the answer that the question's run accepted.
        at: Timestamp,
        /// If `true`, the person approved the tool call; if `false`, the person refused the tool call. `None` for a question that
        /// is not an approval.
        approved: Option<bool>,
    },
    /// The question's deadline has passed, and the run that asked the question has accepted no answer. The run continues without
    /// an answer, or has continued.
    Expired {
        /// The deadline for a person's answer to the question.
        at: Timestamp,
    },
    /// The question is closed: its run stopped waiting for an answer, for a reason other than the question's deadline.
    Closed {
        /// The state of the run that asked the question. It is `failed` if the run was cancelled, `suspended` if the run waits for
        /// something else.
        run: RunState,
    },
}

impl QuestionState {
    /// Returns the state of a question that has an accepted answer.
    pub(super) fn answered(answer: &Breadcrumb, is_approval: bool) -> Self {
        Self::Answered {
            by: answer.created_by.clone(),
            at: answer.created_at,
            approved: human::approved(&answer.context).filter(|_| is_approval),
        }
    }

    /// Returns the state of a question that has no accepted answer. `run` is the state of a run that no longer waits for an answer, with
    /// the time when the run was woken. `expired` is a deadline that has passed.
    pub(super) fn unanswered(
        run: Option<(RunState, Timestamp)>,
        expired: Option<Timestamp>,
    ) -> Self {
        let ended = run.filter(|(state, _)| match state {
            RunState::Failed | RunState::Skipped | RunState::Superseded => true,
            RunState::Ready | RunState::Running | RunState::Suspended | RunState::Done => false,
        });
        match (run, expired) {
            (None, None) => Self::Open,
            (Some((run, _)), None) => Self::Closed { run },
            // The end of the time wakes a run that waits, which can fail later. A run that was not woken was cancelled.
            (_, Some(at)) => match ended.filter(|(_, woken)| *woken < at) {
                Some((run, _)) => Self::Closed { run },
                None => Self::Expired { at },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, NewBreadcrumb};
    use serde_json::{Value, json};

    fn answer(context: Value) -> Breadcrumb {
        let answer = human::response("q-1", "ann", context);
        answer.first_version(BreadcrumbId::NIL, Timestamp::from_micros(1))
    }

    #[test]
    fn the_json_of_the_state_of_a_question_is_stable() {
        let at = Timestamp::from_micros(1);
        let time = "1970-01-01T00:00:00.000001Z";
        let approved = answer(json!({"approved": true}));
        let run = RunState::Failed;

        for (state, expected) in [
            (QuestionState::Open, json!({"state": "open"})),
            (
                QuestionState::answered(&approved, true),
                json!({"state": "answered", "by": "ann", "at": time, "approved": true}),
            ),
            (
                QuestionState::answered(&answer(json!({"answer": "yes"})), false),
                json!({"state": "answered", "by": "ann", "at": time, "approved": null}),
            ),
            (
                QuestionState::Expired { at },
                json!({"state": "expired", "at": time}),
            ),
            (
                QuestionState::Closed { run },
                json!({"state": "closed", "run": "failed"}),
            ),
        ] {
            assert_eq!(serde_json::to_value(&state).unwrap(), expected);
        }
    }

    #[test]
    fn an_approval_has_the_decision_of_the_answer_in_both_forms() {
        let decision = |context| {
            let state = QuestionState::answered(&answer(context), true);
            let QuestionState::Answered { approved, .. } = state else {
                panic!("{state:?}");
            };
            approved
        };

        assert_eq!(decision(json!({"approved": false})), Some(false));
        assert_eq!(decision(json!({"decision": "approve"})), Some(true));
        assert_eq!(decision(json!({"decision": "reject"})), Some(false));
    }

    #[test]
    fn an_unanswered_question_expires_after_its_time_or_is_closed_with_its_run() {
        let at = Timestamp::from_micros(1);
        let state = QuestionState::unanswered;

        assert_eq!(state(None, None), QuestionState::Open);
        assert_eq!(state(None, Some(at)), QuestionState::Expired { at });
        for run in [RunState::Done, RunState::Suspended, RunState::Failed] {
            let woken = Some((run, at));
            assert_eq!(state(woken, Some(at)), QuestionState::Expired { at });
            assert_eq!(state(woken, None), QuestionState::Closed { run });
        }
        let run = RunState::Failed;
        let not_woken = Some((run, Timestamp::UNIX_EPOCH));
        for end in [None, Some(at)] {
            assert_eq!(state(not_woken, end), QuestionState::Closed { run });
        }
    }

    #[test]
    fn an_answer_without_a_writer_has_no_name() {
        let answer = NewBreadcrumb::new(human::RESPONSE).context(json!({"answer": 1}));
        let answer = answer.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);

        let state = QuestionState::answered(&answer, false);

        let expected = QuestionState::Answered {
            by: None,
            at: Timestamp::UNIX_EPOCH,
            approved: None,
        };
        assert_eq!(state, expected);
    }
}
