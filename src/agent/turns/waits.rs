//! What a run has asked others for by a breadcrumb, and what answers it: no I/O, no clock.

use crate::agent::human::{self, Decision};
use crate::agent::{AgentExecutor, agents};
use crate::executor::Asked;
use crate::machine::{Answer, CallId};
use crate::model::{Breadcrumb, Json, NewBreadcrumb, Selector, Timestamp};
use crate::store::Wake;
use crate::tool::{self, People, ToolExecutor};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::Duration;

/// Something that was asked for.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Wait {
    /// Names the request; its answer names it too.
    pub(super) request_id: String,
    /// Until when the answer counts, once it is asked for.
    pub(super) until: Timestamp,
    /// The time of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) asked_at: Option<Timestamp>,
    pub(super) awaited: Awaited,
    /// What asks for it, until that is written.
    #[serde(skip)]
    pub(super) unwritten: Option<Unwritten>,
}

/// A request that is written when the run is suspended: its time counts from then on.
pub(super) struct Unwritten {
    /// How long an answer may take.
    pub(super) lasts: Duration,
    /// The request, from the time until which its answer counts.
    pub(super) request: Box<dyn FnOnce(Timestamp) -> NewBreadcrumb + Send + Sync>,
}

impl fmt::Debug for Unwritten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unwritten")
            .field("lasts", &self.lasts)
            .finish_non_exhaustive()
    }
}

/// What is waited for.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Awaited {
    /// The result of a tool.
    Tool { call: CallId, tool: String },
    /// The answer of another agent, which may be the last word of the run.
    Agent {
        call: CallId,
        agent: String,
        is_last: bool,
    },
    /// That a person agrees to a call.
    Approval {
        call: CallId,
        digest: String,
        /// The approvers.
        by: People,
        /// What it would be called with.
        arguments: Json,
    },
    /// The answer of a person.
    Question { call: CallId },
    /// The answer of a model.
    Model { tool: String },
}

/// What a wait came to.
#[derive(Debug, PartialEq)]
pub(super) enum Reply {
    Answer(Answer),
    /// The call is approved, with the arguments that the person put in the place of those in the question, if any.
    Approved(Option<Json>),
}

impl Wait {
    /// The call it is for; none of a model.
    pub(super) fn call(&self) -> Option<&CallId> {
        match &self.awaited {
            Awaited::Tool { call, .. }
            | Awaited::Agent { call, .. }
            | Awaited::Approval { call, .. }
            | Awaited::Question { call } => Some(call),
            Awaited::Model { .. } => None,
        }
    }

    /// Reads the reply in a breadcrumb; `None` if the breadcrumb is not the answer to this run, by its correlation ID. The
    /// contents of the reply come from `shown`, the part of the breadcrumb's context that a model may see.
    pub(super) fn reply(
        &self,
        found: &Breadcrumb,
        shown: &Json,
        correlation_id: Option<&str>,
    ) -> Option<Reply> {
        let id = &*self.request_id;
        if found.schema_name.as_deref() != Some(self.schema()) || self.is_late(found) {
            return None;
        }
        let decided = |digest, by: &People| {
            human::decision(found, shown, id, digest, by).map(|decision| match decision {
                Decision::Approved(changed) => Reply::Approved(changed),
                Decision::Answered(answer) => Reply::Answer(answer),
            })
        };
        match &self.awaited {
            Awaited::Tool { tool, .. } | Awaited::Model { tool } => {
                tool::answer_of(found, shown, id, tool).map(Reply::Answer)
            }
            Awaited::Agent { agent, .. } => {
                agents::answer_of(found, shown, id, agent, correlation_id).map(Reply::Answer)
            }
            Awaited::Approval { digest, by, .. } => decided(Some(&**digest), by),
            Awaited::Question { .. } => decided(None, &People::default()),
        }
    }

    /// Returns `true` if hints shape the answer. The answer of a model is its own output, which the crate reads.
    pub(super) fn is_shaped(&self) -> bool {
        match &self.awaited {
            Awaited::Tool { .. }
            | Awaited::Agent { .. }
            | Awaited::Approval { .. }
            | Awaited::Question { .. } => true,
            Awaited::Model { .. } => false,
        }
    }

    /// Returns the reply to use if hints withhold the contents of the answer.
    pub(super) fn withheld(&self) -> Answer {
        match &self.awaited {
            Awaited::Approval { .. } => Answer::error("rejected", human::REJECTED),
            Awaited::Tool { .. }
            | Awaited::Agent { .. }
            | Awaited::Question { .. }
            | Awaited::Model { .. } => tool::withheld(),
        }
    }

    /// Returns the request that it waits for an answer to.
    pub(super) fn asked(&self) -> Asked<'_> {
        let (schema, of_person) = match &self.awaited {
            Awaited::Tool { .. } | Awaited::Model { .. } => (ToolExecutor::REQUEST, false),
            Awaited::Agent { .. } => (agents::REQUEST, false),
            Awaited::Approval { .. } | Awaited::Question { .. } => (human::REQUEST, true),
        };
        Asked {
            schema,
            request_id: &self.request_id,
            of_person,
        }
    }

    /// Whether something comes after the time in which a person had to decide.
    fn is_late(&self, found: &Breadcrumb) -> bool {
        match &self.awaited {
            Awaited::Approval { .. } | Awaited::Question { .. } => found.updated_at > self.until,
            // What was done late is done.
            Awaited::Tool { .. } | Awaited::Agent { .. } | Awaited::Model { .. } => false,
        }
    }

    /// The request, to be written at this time; none if it is written.
    pub(super) fn write(&mut self, now: Timestamp) -> Option<NewBreadcrumb> {
        let Unwritten { lasts, request } = self.unwritten.take()?;
        (self.asked_at, self.until) = (Some(now), now + lasts);
        Some(request(self.until))
    }

    /// What it came to when nobody has answered in time.
    pub(super) fn late(&self) -> Reply {
        let (code, message) = match &self.awaited {
            Awaited::Tool { tool, .. } => (
                "timeout",
                format!("tool {tool} has not answered in time; it may have done its work"),
            ),
            Awaited::Agent { agent, .. } => (
                "timeout",
                format!("agent {agent} has not answered in time; it may still be at work"),
            ),
            Awaited::Approval { .. } => (
                "expired",
                "nobody has approved the call in time; it was not made".to_owned(),
            ),
            Awaited::Question { .. } => (
                "expired",
                "nobody has answered the question in time".to_owned(),
            ),
            Awaited::Model { .. } => ("timeout", "the model has not answered in time".to_owned()),
        };
        Reply::Answer(Answer::error(code, message))
    }

    fn schema(&self) -> &'static str {
        match &self.awaited {
            Awaited::Tool { .. } | Awaited::Model { .. } => ToolExecutor::RESPONSE,
            Awaited::Agent { .. } => AgentExecutor::RESPONSE,
            Awaited::Approval { .. } | Awaited::Question { .. } => human::RESPONSE,
        }
    }

    fn tag(&self) -> String {
        format!("request:{}", self.request_id)
    }

    pub(super) fn selector(&self) -> Selector {
        Selector::schema(self.schema()).all_tags([self.tag()])
    }
}

/// What wakes a run that waits for these: the first answer to any of them, or the first that comes too late.
pub(super) fn wake(waits: &[Wait], since: Timestamp) -> Wake {
    let mut wake = Wake::default().since(since);
    for wait in waits {
        wake = wake.or_on(wait.selector());
        let until = wake.until.map_or(wait.until, |until| until.min(wait.until));
        wake = wake.until(until);
    }
    wake
}

/// What finds all that may have come, one schema at a time.
pub(super) fn selectors(waits: &[Wait]) -> Vec<Selector> {
    let mut schemas: Vec<_> = waits.iter().map(Wait::schema).collect();
    schemas.sort_unstable();
    schemas.dedup();
    let selector = |schema| {
        let these = waits.iter().filter(|wait| wait.schema() == schema);
        Selector::schema(schema).any_tags(these.map(Wait::tag))
    };
    schemas.into_iter().map(selector).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
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
}
