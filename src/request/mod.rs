//! Requests of a run to tools, agents and people, as breadcrumbs, and the answers to them.

pub(crate) mod agents;
pub(crate) mod human;
#[cfg(feature = "agents")]
mod pending;

#[cfg(feature = "agents")]
pub(crate) use pending::{Expected, Pending, answer_deadline, selectors};

use crate::machine::Answer;
use crate::model::{Json, Selector, request_tag};

/// The reply in a breadcrumb that answers a request of a run.
#[derive(Debug, PartialEq)]
pub(crate) enum Reply {
    Answer(Answer),
    /// A person has approved the tool call. If the person changed the arguments of the call, the variant contains the new
    /// arguments.
    Approved(Option<Json>),
}

/// Returns the selector of the answers to a run's request, with `schema` as the schema name of the answers.
pub(crate) fn answers_to(request_id: &str, schema: &str) -> Selector {
    Selector::schema(schema).all_tags([request_tag(request_id)])
}
