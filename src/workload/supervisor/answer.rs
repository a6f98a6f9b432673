//! Answers of people to the questions of turns.

use crate::clock::wall_micros;
use crate::error::Retry;
use crate::model::{Breadcrumb, Json, NewBreadcrumb, Selector, Timestamp};
use crate::request::{answers_to, human};
use crate::store::{BreadcrumbStore, BreadcrumbStoreExt as _, Query, StoreError};
use crate::tool::{Checker, People, ROLE, request_tag};
use serde_json::{Value, json};
use std::sync::Arc;

/// An answer to the question of a turn has no effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnAnswerError {
    /// No question has this ticket.
    #[error("no question has the ticket {ticket:?}")]
    Unknown {
        /// The ticket.
        ticket: String,
    },
    /// The question was answered before.
    #[error("question {ticket:?} is not open: {} answered it", by.as_deref().unwrap_or("a person"))]
    NotOpen {
        /// The ticket of the question.
        ticket: String,
        /// The name of the person with the answer that counts.
        by: Option<String>,
    },
    /// The person may not answer.
    #[error("{person:?} may not answer question {ticket:?}; allowed: {}", allowed.join(", "))]
    NotAllowed {
        /// The ticket of the question.
        ticket: String,
        /// The name of the person.
        person: String,
        /// The names of the people with the right to answer. A supervisor knows no roles of people.
        allowed: Vec<String>,
    },
    /// The time for an answer is over.
    #[error("question {ticket:?} expired at {at}")]
    Expired {
        /// The ticket of the question.
        ticket: String,
        /// The end of the time.
        at: Timestamp,
    },
    /// The answer does not fit the question.
    #[error("the answer to question {ticket:?} is not valid: {problem}")]
    Invalid {
        /// The ticket of the question.
        ticket: String,
        /// The problem.
        problem: String,
    },
    /// The question cannot be read, or the answer cannot be written.
    #[error("cannot answer a question")]
    Store(#[from] StoreError),
}

impl TurnAnswerError {
    /// Returns when a retry can succeed.
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unknown { .. }
            | Self::NotOpen { .. }
            | Self::NotAllowed { .. }
            | Self::Expired { .. }
            | Self::Invalid { .. } => Retry::Never,
            Self::Store(source) => source.retry(),
        }
    }

    /// Returns the code of the error, for logs and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "unknown_question",
            Self::NotOpen { .. } => "not_open",
            Self::NotAllowed { .. } => "not_allowed",
            Self::Expired { .. } => "expired",
            Self::Invalid { .. } => "invalid_answer",
            Self::Store(source) => source.code(),
        }
    }
}

/// Maximum number of breadcrumbs with one ticket that are read.
const MOST: usize = 1_000;

/// Writes the answer to a question, unless it has no effect. An equal answer of the same person is returned as it was written.
pub(super) async fn answer(
    store: &dyn BreadcrumbStore,
    ticket: &str,
    answer: &Json,
    by: &str,
) -> Result<Arc<Breadcrumb>, TurnAnswerError> {
    let asked = question(store, ticket).await?;
    let people = people(&asked.context);
    if let Some(list) = people.list_without(|list| is_in(by, list)) {
        return Err(TurnAnswerError::NotAllowed {
            ticket: ticket.to_owned(),
            person: by.to_owned(),
            allowed: list.to_vec(),
        });
    }
    let response = response(&asked.context, ticket, answer, by);
    let response = response.map_err(|problem| TurnAnswerError::Invalid {
        ticket: ticket.to_owned(),
        problem,
    })?;
    if let Some(earlier) = earlier(store, ticket, &asked.context, &people).await? {
        if earlier.context == response.context && earlier.created_by == response.created_by {
            return Ok(earlier);
        }
        return Err(TurnAnswerError::NotOpen {
            ticket: ticket.to_owned(),
            by: earlier.created_by.clone(),
        });
    }
    let expires_at = asked.context.text("expires_at");
    let expires_at = expires_at.and_then(|time| time.parse::<Timestamp>().ok());
    if let Some(at) = expires_at.filter(|end| *end < Timestamp::from_micros(wall_micros())) {
        let ticket = ticket.to_owned();
        return Err(TurnAnswerError::Expired { ticket, at });
    }
    Ok(store.create(response).await?)
}

/// Returns the first question with a ticket.
async fn question(
    store: &dyn BreadcrumbStore,
    ticket: &str,
) -> Result<Arc<Breadcrumb>, TurnAnswerError> {
    let selector = Selector::schema(human::REQUEST).all_tags([request_tag(ticket)]);
    let found = store.search(&Query::new(selector).limit(MOST)).await?;
    let is_asked = |found: &Arc<Breadcrumb>| found.context.text("requestId") == Some(ticket);
    let first = found.into_iter().rev().find(is_asked);
    first.ok_or_else(|| TurnAnswerError::Unknown {
        ticket: ticket.to_owned(),
    })
}

/// Returns the first answer that counts.
async fn earlier(
    store: &dyn BreadcrumbStore,
    ticket: &str,
    asked: &Json,
    people: &People,
) -> Result<Option<Arc<Breadcrumb>>, StoreError> {
    let query = Query::new(answers_to(ticket, human::RESPONSE)).limit(MOST);
    let found = store.search(&query).await?;
    let digest = asked.text("digest");
    let counts = |found: &Arc<Breadcrumb>| {
        let decision = human::decision(found, &found.context, ticket, digest, people);
        let answer = found.context.get("answer").unwrap_or(&Value::Null);
        decision.is_some() && (digest.is_some() || fits(asked, answer).is_ok())
    };
    Ok(found.into_iter().rev().find(counts))
}

/// Returns the people with the right to answer a question.
fn people(asked: &Json) -> People {
    let mut people = People::default();
    let list = |value: &Value| -> Vec<String> {
        let items = value.as_array().into_iter().flatten();
        items.filter_map(Value::as_str).map(str::to_owned).collect()
    };
    if let Some(first) = asked.get("of") {
        people.restrict_to(&list(first));
    }
    let others = asked.get("also_of").and_then(Value::as_array);
    for other in others.into_iter().flatten() {
        people.restrict_to(&list(other));
    }
    people
}

fn is_in(person: &str, list: &[String]) -> bool {
    !person.starts_with(ROLE) && list.iter().any(|one| one == person)
}

/// Returns the breadcrumb of an answer, or the reason why the answer does not fit its question. A question about a call takes `true` or
/// `false`.
fn response(asked: &Json, ticket: &str, answer: &Json, by: &str) -> Result<NewBreadcrumb, String> {
    let Some(digest) = asked.text("digest") else {
        fits(asked, answer)?;
        return Ok(human::answer(ticket, answer, by));
    };
    let Some(approved) = answer.as_bool() else {
        let problem = "a question about a call takes true or false";
        return Err(problem.to_owned());
    };
    let context = json!({"request_id": ticket, "approved": approved, "digest": digest});
    Ok(NewBreadcrumb::new(human::RESPONSE)
        .tag(request_tag(ticket))
        .created_by(by)
        .context(context))
}

/// Checks an answer by the schema of its question.
fn fits(asked: &Json, answer: &Value) -> Result<(), String> {
    match asked.get("schema") {
        Some(schema) => Checker::compile(schema)?.check(answer),
        None => Ok(()),
    }
}
