//! Unanswered requests of a run to agents, models, people and tools. No I/O.

use super::human::QuestionSchema;
use super::{Reply, agents, answers_to, human};
use crate::executor::SentRequest;
use crate::machine::Answer;
use crate::model::{Breadcrumb, Json, Selector, Timestamp, request_tag};
use crate::tool::{self, People, ToolExecutor};
use std::collections::BTreeMap;

/// A request of a run that waits for its answer, borrowed from the saved state of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending<'r> {
    /// The ID of the run's request, which the answer repeats.
    pub(crate) request_id: &'r str,
    /// The expected kind of answer to the run's request, for example a person's decision or a tool's result.
    pub(crate) expected: Expected<'r>,
}

/// The expected kind of answer to a request of a run: from an agent, a model, a tool or a person.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Expected<'r> {
    /// The answer of another agent to the run's request.
    Agent { agent: &'r str },
    /// The decision about a tool call by a permitted person. `by` lists the permitted people, and `digest` identifies
    /// the tool call.
    Approval { digest: &'r str, by: &'r People },
    /// A model's answer, which the run requested with a tool request because another service calls the model.
    Model { tool: &'r str },
    /// A person's answer to a question of the run. The answer must fit the question's schema. `of` lists the permitted people,
    /// and an empty list permits everyone.
    Question {
        of: &'r [String],
        /// The JSON Schema that the run checks the answer against, or `None` without a check.
        schema: Option<&'r QuestionSchema>,
    },
    /// The result of a tool call that the run requested.
    Tool { tool: &'r str },
}

impl<'r> Pending<'r> {
    /// Returns the reply that a breadcrumb contains to this request of a run, or `None` if the breadcrumb is not the answer to
    /// this request. An answer of an agent must follow from the run with this correlation ID.
    ///
    /// The contents of the reply come from `shown`, the part of the breadcrumb's context that a model may see.
    /// Everything that decides whether the breadcrumb counts comes from the whole context.
    pub(crate) fn reply(
        self,
        breadcrumb: &Breadcrumb,
        shown: &Json,
        correlation_id: Option<&str>,
    ) -> Option<Reply> {
        if breadcrumb.schema_name.as_deref() != Some(self.schema()) {
            return None;
        }
        let id = self.request_id;
        match self.expected {
            Expected::Agent { agent } => {
                agents::answer_of(breadcrumb, shown, id, agent, correlation_id).map(Reply::Answer)
            }
            Expected::Approval { digest, by } => {
                human::decision(breadcrumb, shown, id, Some(digest), by)
            }
            Expected::Question { of, schema } => {
                let people = People::from(of);
                let reply = human::decision(breadcrumb, shown, id, None, &people);
                reply.filter(|_| human::has_fit_answer(&breadcrumb.context, schema))
            }
            Expected::Model { tool } | Expected::Tool { tool } => {
                tool::answer_of(breadcrumb, shown, id, tool).map(Reply::Answer)
            }
        }
    }

    /// Returns the error answer that the run receives if the `llm_hints` of the original answer's breadcrumb hide its contents.
    pub(crate) fn withheld_answer(self) -> Answer {
        match self.expected {
            Expected::Approval { .. } => Answer::error("rejected", human::REJECTED),
            Expected::Agent { .. }
            | Expected::Model { .. }
            | Expected::Question { .. }
            | Expected::Tool { .. } => tool::withheld(),
        }
    }

    /// Returns the error answer that the run receives after the timeout of its request.
    pub(crate) fn timeout_answer(self) -> Answer {
        let code = match self.sent_request().of_person {
            true => "expired",
            false => "timeout",
        };
        let message = match self.expected {
            Expected::Agent { agent } => {
                format!("agent {agent} has not answered in time, and may still be running")
            }
            Expected::Approval { .. } => {
                "no person approved the call in time; the call was not made".to_owned()
            }
            Expected::Model { .. } => "the model has not answered in time".to_owned(),
            Expected::Question { .. } => "no person answered the question in time".to_owned(),
            Expected::Tool { tool } => {
                format!("tool {tool} has not answered in time, and may have done its work")
            }
        };
        Answer::error(code, message)
    }

    /// Returns the schema name and the ID of this request of a run. `ExecutionContext::accepts` compares them with the store's
    /// records to check an answer.
    pub(crate) fn sent_request(self) -> SentRequest<'r> {
        let (schema, _) = self.schemas();
        SentRequest {
            schema,
            request_id: self.request_id,
            of_person: schema == human::REQUEST,
        }
    }

    /// Returns the selector of the answer to this request.
    pub(crate) fn selector(self) -> Selector {
        answers_to(self.request_id, self.schema())
    }

    /// Returns the schema name of the answer to this request.
    fn schema(self) -> &'static str {
        let (_, schema) = self.schemas();
        schema
    }

    /// Returns the schema names of this request and of its answer.
    fn schemas(self) -> (&'static str, &'static str) {
        match self.expected {
            Expected::Agent { .. } => (agents::REQUEST, agents::RESPONSE),
            Expected::Approval { .. } | Expected::Question { .. } => {
                (human::REQUEST, human::RESPONSE)
            }
            Expected::Model { .. } | Expected::Tool { .. } => {
                (ToolExecutor::REQUEST, ToolExecutor::RESPONSE)
            }
        }
    }
}

/// Returns the deadline by the store's clock for a person's answer, if the requester waits for the answer until the time `until`.
///
/// Outside a run, `until` is a time of the machine's clock, and the margin allows for the difference of the two clocks.
/// The waiting side checks for answers a last time at the end of the wait.
pub(crate) fn answer_deadline(until: Timestamp, is_run: bool) -> Timestamp {
    match is_run {
        true => until,
        false => until + human::CLOCK_MARGIN,
    }
}

/// Returns the selectors that match the answers to these requests of a run, one selector for each schema name.
pub(crate) fn selectors<'r>(pending: impl Iterator<Item = Pending<'r>>) -> Vec<Selector> {
    let mut tags: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for request in pending {
        let tags = tags.entry(request.schema()).or_default();
        tags.push(request_tag(request.request_id));
    }
    tags.into_iter()
        .map(|(schema, tags)| Selector::schema(schema).any_tags(tags))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outside_a_run_an_answer_counts_until_the_end_of_the_time_and_the_difference_of_the_clocks() {
        let until = Timestamp::from_micros(20);

        assert_eq!(answer_deadline(until, true), until);
        assert_eq!(answer_deadline(until, false), until + human::CLOCK_MARGIN);
    }
}
