//! The saved form of an agent run's requests that wait for answers. The module does no I/O and reads no clock.

use crate::machine::CallId;
use crate::model::{Breadcrumb, Json, NewBreadcrumb, Timestamp};
use crate::request::human::QuestionSchema;
use crate::request::{Expected, Pending, Reply, answer_deadline};
use crate::store::Wake;
use crate::tool::People;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// A request of an agent run that waits for its answer.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Wait {
    /// The ID of the agent run's request, which the answer repeats.
    pub(super) request_id: String,
    /// The time until which the run accepts an answer to its request. Set when the request is written.
    pub(super) until: Timestamp,
    /// The time at which the run's request was written as a breadcrumb, or `None` if it is not written yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asked_at: Option<Timestamp>,
    pub(super) awaited: Awaited,
    /// The run's request that is still to be written as a breadcrumb, or `None` once it is written.
    #[serde(skip)]
    pub(super) unwritten: Option<Unwritten>,
}

/// A request of an agent run that becomes a breadcrumb when the run is suspended. Its timeout starts then.
pub(super) struct Unwritten {
    /// The duration for which the agent run waits for an answer to its request.
    pub(super) lasts: Duration,
    /// The function that creates the breadcrumb of the agent run's request. It receives the end of the timeout.
    pub(super) request: Box<dyn FnOnce(Timestamp) -> NewBreadcrumb + Send + Sync>,
}

impl fmt::Debug for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwritten")
            .field("lasts", &self.lasts)
            .finish_non_exhaustive()
    }
}

/// The kind of answer for which an agent run waits: of a tool, another agent, a person, or a model served as a tool.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Awaited {
    /// The run waits for the result of a tool.
    Tool { call: CallId, tool: String },
    /// The run waits for the answer of another agent. If `is_last`, it is the answer of the run.
    Agent {
        call: CallId,
        agent: String,
        is_last: bool,
    },
    /// The run waits for a person's decision to approve or reject a tool call.
    Approval {
        call: CallId,
        digest: String,
        /// The people who may approve the tool call.
        by: People,
        /// The arguments of the tool call that the question shows to the approvers.
        arguments: Json,
    },
    /// The run waits for the answer of a person to a tool's question.
    Question {
        call: CallId,
        /// The JSON Schema that the person's answer must match, or `None` if the tool's question has no schema.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        schema: Option<QuestionSchema>,
    },
    /// The run waits for the answer of a model that is served as a tool.
    Model { tool: String },
}

impl Wait {
    /// Returns the ID of the tool call that waits for the answer, or `None` for a model request.
    pub(super) fn call(&self) -> Option<&CallId> {
        match &self.awaited {
            Awaited::Tool { call, .. }
            | Awaited::Agent { call, .. }
            | Awaited::Approval { call, .. }
            | Awaited::Question { call, .. } => Some(call),
            Awaited::Model { .. } => None,
        }
    }

    /// Returns a [`Pending`], which recognises and parses the answers to this request of the run.
    pub(super) fn pending(&self) -> Pending<'_> {
        let expected = match &self.awaited {
            Awaited::Tool { tool, .. } => Expected::Tool { tool },
            Awaited::Agent { agent, .. } => Expected::Agent { agent },
            Awaited::Approval { digest, by, .. } => Expected::Approval { digest, by },
            Awaited::Question { schema, .. } => Expected::Question {
                of: &[],
                schema: schema.as_ref(),
            },
            Awaited::Model { tool } => Expected::Model { tool },
        };
        Pending {
            request_id: &self.request_id,
            expected,
        }
    }

    /// Reads the reply to the agent run's request from a breadcrumb, or returns `None` if the breadcrumb is not a valid reply.
    /// `correlation_id` is the correlation ID of the run. The contents of the reply come from `shown`, the part of the breadcrumb's context
    /// that a model may see.
    pub(super) fn reply(
        &self,
        found: &Breadcrumb,
        shown: &Json,
        correlation_id: Option<&str>,
    ) -> Option<Reply> {
        let pending = self.pending();
        // A late answer of a tool or an agent still counts, because its work is done.
        let until = answer_deadline(self.until, correlation_id.is_some());
        if pending.sent_request().of_person && found.updated_at > until {
            return None;
        }
        pending.reply(found, shown, correlation_id)
    }

    /// Returns `true` if `llm_hints` apply to the answer, so that the run receives only the contents that a model may see. Hints do not
    /// apply to the answer of a model, which the crate itself reads.
    pub(super) fn is_shaped(&self) -> bool {
        !matches!(self.awaited, Awaited::Model { .. })
    }

    /// Returns the breadcrumb of the run's request, to be written at the time `now`, or `None` if it is already written.
    pub(super) fn write(&mut self, now: Timestamp) -> Option<NewBreadcrumb> {
        let Unwritten { lasts, request } = self.unwritten.take()?;
        (self.asked_at, self.until) = (Some(now), now + lasts);
        Some(request(self.until))
    }
}

/// Returns the wake condition of a run that waits for requests: an answer to one of the requests, or the first timeout.
pub(super) fn wake(waits: &[Wait], since: Timestamp) -> Wake {
    let mut wake = Wake::default().since(since);
    let selectors = waits.iter().map(|wait| wait.pending().selector());
    wake.selectors.extend(selectors);
    wake.until = waits.iter().map(|wait| wait.until).min();
    wake
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(feature = "validate")]
    use crate::model::BreadcrumbId;
    use serde_json::json;

    #[test]
    fn a_wait_for_an_approval_that_an_earlier_version_saved_is_read() {
        let saved = json!({"approval": {
            "call": "1:1", "digest": "d", "by": ["ann"], "arguments": {"amount": 5},
        }});

        let read: Awaited = Json::from(saved.clone()).parse().unwrap();

        let expected = Awaited::Approval {
            call: "1:1".into(),
            digest: "d".to_owned(),
            by: People::from(&["ann".to_owned()][..]),
            arguments: json!({"amount": 5}).into(),
        };
        assert_eq!(read, expected);
        assert_eq!(json!(read), saved);
    }

    #[test]
    fn a_wait_for_an_answer_that_an_earlier_version_saved_has_no_schema() {
        let saved = json!({"question": {"call": "1:1"}});

        let read: Awaited = Json::from(saved.clone()).parse().unwrap();

        let call = "1:1".into();
        assert_eq!(read, Awaited::Question { call, schema: None });
        assert_eq!(json!(read), saved);
    }

    #[cfg(feature = "validate")]
    #[test]
    fn an_answer_that_violates_the_schema_of_the_question_is_ignored() {
        let question = json!({"schema": {"enum": ["Bern", "Basel"]}});
        let wait = Wait {
            request_id: "q-1".to_owned(),
            until: Timestamp::from_micros(20),
            asked_at: None,
            awaited: Awaited::Question {
                call: "1:1".into(),
                schema: QuestionSchema::of(&question, "schema"),
            },
            unwritten: None,
        };
        let reply = |city: &str| {
            let context = json!({"request_id": "q-1", "answer": city});
            let answer = NewBreadcrumb::new("human.response.v1").context(context);
            let answer = answer.first_version(BreadcrumbId::NIL, Timestamp::from_micros(1));
            wait.reply(&answer, &answer.context, Some("run"))
        };

        assert_eq!(reply("Paris"), None);
        assert!(reply("Bern").is_some());
    }
}
