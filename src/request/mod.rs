//! Requests of a run to tools, agents and people, as breadcrumbs, and the answers to them.

pub(crate) mod agents;
pub(crate) mod human;
mod pending;

pub(crate) use pending::{Expected, Pending, answers_to, answers_until, question_in, selectors};

use crate::machine::Answer;
use crate::model::Json;

/// The reply in a breadcrumb that answers a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Reply {
    Answer(Answer),
    /// The call is approved, with the arguments that the person put in the place of those in the question, if any.
    Approved(Option<Json>),
}
