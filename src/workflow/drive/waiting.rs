//! Types for flow steps that wait for a breadcrumb, and for the replies that end such a wait. Pure: no I/O and no clock.

use crate::executor::ContextError;
use crate::machine::Answer;
use crate::model::{Breadcrumb, Json, Selector, Timestamp};
use crate::request::human::QuestionSchema;
use crate::request::{Expected, Pending, Reply};
use crate::tool::{self, People};
use crate::workflow::StepTask;
use serde::{Deserialize, Serialize};

/// The wait of a step of a flow run for a breadcrumb.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Wait {
    /// ID of the request that the waiting step sent, such as a question to a person or a call of another service's tool. The
    /// answer breadcrumb contains the same ID.
    pub(super) ticket: String,
    /// Time at which the step's wait starts. Earlier breadcrumbs are not answers.
    pub(super) since: Timestamp,
    /// Time at which the step's wait times out. Later breadcrumbs are not answers.
    pub(super) until: Timestamp,
    pub(super) on: Awaited,
}

/// Kind of answer that a step waits for.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Awaited {
    /// The step is a `wait_for` step, and waits for a breadcrumb that its selector matches.
    Event,
    /// The step waits for a person's answer. The step or the tool of the step asked the question.
    Person {
        of: Vec<String>,
        /// JSON Schema that the person's answer must match, if the question came from a tool that set a schema.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<QuestionSchema>,
    },
    /// The step waits for a person's approval of its tool call.
    Approval {
        digest: String,
        /// The people with the right to approve the tool call.
        #[serde(default)]
        by: People,
        /// Digest that the workflow and tool definitions had when the approval was requested, to detect later changes of the
        /// definitions.
        #[serde(default)]
        definition: String,
    },
    /// The step waits for the result of a tool of another service.
    Tool,
}

impl Wait {
    /// Returns the pending request of a waiting step, or `None` for a `wait_for` step, which makes no request.
    pub(super) fn pending<'w>(&'w self, task: &'w StepTask) -> Option<Pending<'w>> {
        let expected = match &self.on {
            Awaited::Event => return None,
            Awaited::Person { of, schema } => Expected::Question {
                of,
                schema: schema.as_ref(),
            },
            Awaited::Approval { digest, by, .. } => Expected::Approval { digest, by },
            Awaited::Tool => Expected::Tool {
                tool: tool_of(task)?,
            },
        };
        Some(Pending {
            request_id: &self.ticket,
            expected,
        })
    }

    /// Returns the selector of the breadcrumbs that may answer a waiting step, or `None` if the step does not wait for a breadcrumb.
    pub(super) fn selector(&self, task: &StepTask) -> Option<Selector> {
        if let (Awaited::Event, StepTask::WaitFor { event }) = (&self.on, task) {
            return Some(event.clone());
        }
        self.pending(task).map(Pending::selector)
    }

    /// Reads the reply to a waiting step in a breadcrumb, or returns `None` if the breadcrumb is not an answer. The contents of the reply
    /// come from `shown`, the part of the breadcrumb's context that a model may see. The whole context decides whether the breadcrumb is an
    /// answer.
    pub(super) fn reply(&self, found: &Breadcrumb, shown: &Json, task: &StepTask) -> Option<Reply> {
        if found.updated_at > self.until {
            return None;
        }
        if self.on == Awaited::Event {
            let is_later = found.updated_at > self.since;
            return is_later.then(|| Reply::Answer(Answer::Success(shown.clone())));
        }
        self.pending(task)?.reply(found, shown, None)
    }

    /// Returns the error that a waiting step receives instead of an answer that models may not see.
    pub(super) fn withheld(&self, cause: Option<&ContextError>, task: &StepTask) -> Answer {
        let is_approval = matches!(self.on, Awaited::Approval { .. });
        match cause.filter(|_| !is_approval) {
            Some(cause) => Answer::error("withheld", cause.to_string()),
            None => {
                let pending = self.pending(task);
                pending.map_or_else(tool::withheld, Pending::withheld_answer)
            }
        }
    }
}

/// Returns the name of the tool that a step calls, or `None` if the step is not a tool step.
pub(super) fn tool_of(task: &StepTask) -> Option<&str> {
    match task {
        StepTask::Tool { tool, .. } => Some(tool),
        StepTask::Agent { .. }
        | StepTask::Model { .. }
        | StepTask::WaitFor { .. }
        | StepTask::Ask { .. }
        | StepTask::Emit { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, NewBreadcrumb};
    use crate::request::human;
    use serde_json::{Value, json};

    fn wait(on: Awaited) -> Wait {
        Wait {
            ticket: "t-1".to_owned(),
            since: Timestamp::from_micros(10),
            until: Timestamp::from_micros(20),
            on,
        }
    }

    fn said(schema: &str, context: Value, at: i64) -> Breadcrumb {
        let new = NewBreadcrumb::new(schema)
            .created_by("ann")
            .context(context);
        new.first_version(BreadcrumbId::default(), Timestamp::from_micros(at))
    }

    fn reply(wait: &Wait, found: &Breadcrumb, task: &StepTask) -> Option<Reply> {
        wait.reply(found, &found.context, task)
    }

    fn ask() -> StepTask {
        StepTask::Ask {
            question: "Go on?".to_owned(),
            of: Vec::new(),
            output: None,
        }
    }

    #[test]
    fn only_an_asked_person_can_answer_and_only_before_the_deadline() {
        let answer = |at| {
            said(
                human::RESPONSE,
                json!({"request_id": "t-1", "answer": "yes"}),
                at,
            )
        };
        let of = |who: &str| {
            wait(Awaited::Person {
                of: vec![who.to_owned()],
                schema: None,
            })
        };

        assert_eq!(
            reply(&of("ann"), &answer(15), &ask()),
            Some(Reply::Answer(Answer::success(json!("yes"))))
        );
        assert_eq!(reply(&of("bob"), &answer(15), &ask()), None);
        assert_eq!(reply(&of("ann"), &answer(21), &ask()), None);
    }

    #[test]
    fn an_event_counts_only_if_it_came_after_the_step_began() {
        let paid = |at| said("paid.v1", json!({"amount": 3}), at);
        let task = StepTask::WaitFor {
            event: Selector::schema("paid.v1"),
        };
        let wait = wait(Awaited::Event);

        assert_eq!(reply(&wait, &paid(10), &task), None);
        assert_eq!(
            reply(&wait, &paid(11), &task),
            Some(Reply::Answer(Answer::success(json!({"amount": 3}))))
        );
    }

    #[test]
    fn an_approval_is_of_the_call_that_was_shown() {
        let approve = |digest: &str| {
            said(
                human::RESPONSE,
                json!({"request_id": "t-1", "approved": true, "digest": digest}),
                15,
            )
        };
        let asked = |by: &str| {
            wait(Awaited::Approval {
                digest: "d".to_owned(),
                by: People::from(&[by.to_owned()][..]),
                definition: String::new(),
            })
        };
        let (of_ann, of_bob) = (asked("ann"), asked("bob"));

        assert_eq!(
            reply(&of_ann, &approve("d"), &ask()),
            Some(Reply::Approved(None))
        );
        assert_eq!(reply(&of_ann, &approve("other"), &ask()), None);
        assert_eq!(reply(&of_bob, &approve("d"), &ask()), None);
    }

    #[cfg(feature = "validate")]
    #[test]
    fn an_answer_that_violates_the_schema_of_the_question_is_ignored() {
        let asked = json!({"question": "Which city?", "schema": {"enum": ["Bern", "Basel"]}});
        let waits = |asked: &Value| {
            wait(Awaited::Person {
                of: Vec::new(),
                schema: QuestionSchema::of(asked, "schema"),
            })
        };
        let answer = |city: &str| {
            let context = json!({"request_id": "t-1", "answer": city});
            said(human::RESPONSE, context, 15)
        };
        let (bounded, free) = (waits(&asked), waits(&json!({})));

        assert_eq!(reply(&bounded, &answer("Paris"), &ask()), None);
        assert!(reply(&bounded, &answer("Bern"), &ask()).is_some());
        assert!(reply(&free, &answer("Paris"), &ask()).is_some());
    }

    #[test]
    fn a_wait_for_a_person_that_an_earlier_version_saved_has_no_schema() {
        let saved = json!({"person": {"of": ["ann"]}});

        let read: Awaited = Json::from(saved.clone()).parse().unwrap();

        let expected = Awaited::Person {
            of: vec!["ann".to_owned()],
            schema: None,
        };
        assert_eq!(read, expected);
        assert_eq!(json!(read), saved);
    }

    #[test]
    fn a_wait_for_an_approval_that_an_earlier_version_saved_is_for_everyone() {
        let saved = json!({"approval": {"digest": "d"}});

        let read: Awaited = Json::from(saved).parse().unwrap();

        let expected = Awaited::Approval {
            digest: "d".to_owned(),
            by: People::default(),
            definition: String::new(),
        };
        assert_eq!(read, expected);
    }
}
