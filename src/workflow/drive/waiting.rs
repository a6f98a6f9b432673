//! What steps wait for that others do, and what answers them: no I/O, no clock.

use crate::agent::human::{self, Decision};
use crate::executor::{Asked, ContextError};
use crate::machine::Answer;
use crate::model::{Breadcrumb, Json, Selector, Timestamp};
use crate::tool::{self, People, ToolExecutor};
use crate::workflow::{StepOutcome, StepTask};
use serde::{Deserialize, Serialize};

/// Something that a step waits for.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Wait {
    /// Names the request, and its answer too.
    pub(super) ticket: String,
    /// Only what comes after this answers it.
    pub(super) since: Timestamp,
    /// Nothing answers it after this.
    pub(super) until: Timestamp,
    pub(super) on: Awaited,
}

#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Awaited {
    /// A breadcrumb that the step says.
    Event,
    /// The answer of a person, to the step or to its tool.
    Person { of: Vec<String> },
    /// That a person agrees to the call of the step.
    Approval {
        digest: String,
        /// The approvers.
        #[serde(default)]
        by: People,
        /// The digest of the definitions of the workflow and the tool.
        #[serde(default)]
        definition: String,
    },
    /// The result of a tool that is served elsewhere.
    Tool,
}

/// What a wait came to.
#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    /// The step has this result, if it is one.
    Result(Json),
    /// The tool of the step may be called, with the arguments that the person put in the place of those in the question, if any.
    Approved(Option<Json>),
    Failed(Answer),
}

impl Wait {
    /// What is looked for; none if the step does not wait for a breadcrumb.
    pub(super) fn selector(&self, task: &StepTask) -> Option<Selector> {
        let tagged = |schema| Selector::schema(schema).all_tags([tool::request_tag(&self.ticket)]);
        match (&self.on, task) {
            (Awaited::Event, StepTask::WaitFor { event }) => Some(event.clone()),
            (
                Awaited::Event,
                StepTask::Agent { .. }
                | StepTask::Tool { .. }
                | StepTask::Model { .. }
                | StepTask::Ask { .. }
                | StepTask::Emit { .. },
            ) => None,
            (Awaited::Person { .. } | Awaited::Approval { .. }, _) => Some(tagged(human::RESPONSE)),
            (Awaited::Tool, _) => Some(tagged(ToolExecutor::RESPONSE)),
        }
    }

    /// Reads the reply in a breadcrumb; `None` if the breadcrumb is not an answer. The contents of the reply come from `shown`, the
    /// part of the breadcrumb's context that a model may see; everything that decides whether the breadcrumb counts comes from
    /// the whole context.
    pub(super) fn reply(&self, found: &Breadcrumb, shown: &Json, task: &StepTask) -> Option<Reply> {
        if found.updated_at > self.until {
            return None;
        }
        let decided = |digest, of: &People| {
            let decision = human::decision(found, shown, &self.ticket, digest, of)?;
            Some(match decision {
                Decision::Approved(changed) => Reply::Approved(changed),
                Decision::Answered(Answer::Success(answer)) => Reply::Result(answer),
                Decision::Answered(answer @ Answer::Error { .. }) => Reply::Failed(answer),
            })
        };
        match &self.on {
            Awaited::Event => {
                let is_later = found.updated_at > self.since;
                is_later.then(|| Reply::Result(shown.clone()))
            }
            Awaited::Person { of } => decided(None, &People::from(&**of)),
            Awaited::Approval { digest, by, .. } => decided(Some(&**digest), by),
            Awaited::Tool => {
                let StepTask::Tool { tool, .. } = task else {
                    return None;
                };
                match tool::answer_of(found, shown, &self.ticket, tool)? {
                    Answer::Success(output) => Some(Reply::Result(output)),
                    answer @ Answer::Error { .. } => Some(Reply::Failed(answer)),
                }
            }
        }
    }

    /// Returns the answer to use if hints withhold the contents of the breadcrumb.
    pub(super) fn withheld(&self, cause: Option<&ContextError>) -> Answer {
        match (&self.on, cause) {
            (Awaited::Approval { .. }, _) => Answer::error("rejected", human::REJECTED),
            (Awaited::Event | Awaited::Person { .. } | Awaited::Tool, None) => tool::withheld(),
            (Awaited::Event | Awaited::Person { .. } | Awaited::Tool, Some(cause)) => {
                Answer::error("withheld", cause.to_string())
            }
        }
    }

    /// Returns the request that it waits for an answer to; none if any breadcrumb that matches will do.
    pub(super) fn asked(&self) -> Option<Asked<'_>> {
        let (schema, of_person) = match &self.on {
            Awaited::Event => return None,
            Awaited::Person { .. } | Awaited::Approval { .. } => (human::REQUEST, true),
            Awaited::Tool => (ToolExecutor::REQUEST, false),
        };
        Some(Asked {
            schema,
            request_id: &self.ticket,
            of_person,
        })
    }

    /// How the step ends if nothing has answered in time; none if it ends as one whose time is up while it is at work.
    pub(super) fn late(&self) -> Option<StepOutcome> {
        match &self.on {
            Awaited::Event | Awaited::Person { .. } | Awaited::Tool => None,
            Awaited::Approval { .. } => Some(StepOutcome::failure(
                "expired",
                "nobody has approved the call in time; it was not made",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, NewBreadcrumb};
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
    fn only_who_is_asked_answers_and_only_in_time() {
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
            })
        };

        assert_eq!(
            reply(&of("ann"), &answer(15), &ask()),
            Some(Reply::Result(json!("yes").into()))
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
            Some(Reply::Result(json!({"amount": 3}).into()))
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
