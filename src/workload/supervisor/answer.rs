//! Answers of people to the questions of suspended turns.

use crate::clock::wall_micros;
use crate::error::{Retry, excerpt};
use crate::model::{Breadcrumb, Json, NewBreadcrumb, Timestamp};
use crate::request::human::{CLOCK_MARGIN, QuestionTerms, WrittenAnswer, questions};
use crate::request::{answers_to, human};
use crate::store::{BreadcrumbStore, Query, StoreError};
use crate::tool::ROLE;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// Error returned when a person's answer to the question of a suspended turn has no effect.
///
/// [`Supervisor::answer`](super::Supervisor::answer) returns it. Only [`Store`](Self::Store) can
/// succeed with a repeated call; the other variants need another ticket, person or answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnAnswerError {
    /// No question has this ticket (the ID of a question), or the breadcrumb of the question was changed after its
    /// first version.
    #[error(
        "no question has the ticket {:?}; pass the field `requestId` of the question's human.request.v1 breadcrumb",
        excerpt(ticket, 80)
    )]
    Unknown {
        /// The ticket that no question has.
        ticket: String,
    },
    /// Several different questions have this ticket. A turn asks different questions under different tickets, so other
    /// writers created all but one, and the person may have seen other arguments than the call has.
    #[error(
        "the ticket {:?} is ambiguous, because several different questions have this ticket; delete all of these question breadcrumbs except one",
        excerpt(ticket, 80)
    )]
    Ambiguous {
        /// The ticket that several questions have.
        ticket: String,
    },
    /// The question of the workload turn was already answered.
    #[error(
        "question {:?} is not open: {} answered it",
        excerpt(ticket, 80),
        excerpt(by.as_deref().unwrap_or("a person"), 80)
    )]
    NotOpen {
        /// The ticket (ID) of the question that the workload turn asked.
        ticket: String,
        /// The name of the person who gave the earlier, valid answer.
        by: Option<String>,
    },
    /// The person is not allowed to answer the question of the workload turn.
    #[error(
        "person {:?} may not answer question {:?}; allowed: {}",
        excerpt(person, 80),
        excerpt(ticket, 80),
        allowed.join(", ")
    )]
    NotAllowed {
        /// The ticket (ID) of the question that the workload turn asked.
        ticket: String,
        /// The name of the person who gave the answer, or the author that the store recorded instead.
        person: String,
        /// The names of the people with the right to answer the turn's question. A supervisor does not know the roles
        /// of people.
        allowed: Vec<String>,
    },
    /// The question of the workload turn has expired, according to the clock of this machine.
    #[error(
        "question {:?} expired at {at}; resume its turn without an answer",
        excerpt(ticket, 80)
    )]
    Expired {
        /// The ticket (ID) of the question that the workload turn asked.
        ticket: String,
        /// The time at which the question expired.
        at: Timestamp,
    },
    /// The answer does not fit the question of the workload turn.
    #[error(
        "the answer to question {:?} is not valid: {problem}",
        excerpt(ticket, 80)
    )]
    Invalid {
        /// The ticket (ID) of the question that the workload turn asked.
        ticket: String,
        /// The reason why the answer does not fit the question.
        problem: String,
    },
    /// The store failed to read the question of the workload turn, or to write the answer to the question.
    #[error(
        "cannot read a question that a chat turn asked a person, or write the answer; see the cause"
    )]
    Store(#[from] StoreError),
}

impl TurnAnswerError {
    /// Returns the delay after which another attempt to answer the question can succeed, or [`Retry::Never`].
    #[must_use]
    pub fn retry(&self) -> Retry {
        match self {
            Self::Unknown { .. }
            | Self::Ambiguous { .. }
            | Self::NotOpen { .. }
            | Self::NotAllowed { .. }
            | Self::Expired { .. }
            | Self::Invalid { .. } => Retry::Never,
            Self::Store(source) => source.retry(),
        }
    }

    /// Returns the code of the error, such as `expired` or `not_allowed`, for logs and metrics.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "unknown_question",
            Self::Ambiguous { .. } => "ambiguous_question",
            Self::NotOpen { .. } => "not_open",
            Self::NotAllowed { .. } => "not_allowed",
            Self::Expired { .. } => "expired",
            Self::Invalid { .. } => "invalid_answer",
            Self::Store(source) => source.code(),
        }
    }
}

/// Writes an answer to a turn's question, or returns an error if the answer has no effect. Returns an equal earlier
/// answer of the same person.
pub(super) async fn answer(
    store: &dyn BreadcrumbStore,
    ticket: &str,
    answer: &Json,
    by: &str,
) -> Result<Arc<Breadcrumb>, TurnAnswerError> {
    let terms = question(store, ticket).await?;
    if let Some(list) = terms.people.list_without(|list| is_in(by, list)) {
        return Err(TurnAnswerError::NotAllowed {
            ticket: ticket.to_owned(),
            person: by.to_owned(),
            allowed: list.to_vec(),
        });
    }
    let response = response(&terms, answer, by);
    let response = response.map_err(|problem| TurnAnswerError::Invalid {
        ticket: ticket.to_owned(),
        problem,
    })?;
    if let Some(earlier) = earlier_answer(store, &terms).await? {
        return match human::is_same(store, &earlier, &response) {
            true => Ok(earlier),
            false => Err(not_open_error(ticket, &earlier)),
        };
    }
    // The turn decides by the clock of its machine too: its context has no clock of the store.
    let now = Timestamp::from_micros(wall_micros());
    if let Some(at) = terms.expired(now, Duration::ZERO) {
        let ticket = ticket.to_owned();
        return Err(TurnAnswerError::Expired { ticket, at });
    }
    let is_counted = |found: &Breadcrumb| counts(&terms, found);
    match human::write_once(store, &terms, response, is_counted).await? {
        WrittenAnswer::Own(written) if !is_counted(&written) => {
            Err(invalid_answer_error(ticket, &terms, &written))
        }
        WrittenAnswer::Own(written) => Ok(written),
        WrittenAnswer::Other(earlier) => Err(not_open_error(ticket, &earlier)),
    }
}

fn not_open_error(ticket: &str, earlier: &Breadcrumb) -> TurnAnswerError {
    TurnAnswerError::NotOpen {
        ticket: ticket.to_owned(),
        by: earlier.created_by.clone(),
    }
}

/// Creates the error for a written answer that is not valid. The answer was late, or the store recorded another author
/// than the answering person.
fn invalid_answer_error(
    ticket: &str,
    terms: &QuestionTerms,
    written: &Breadcrumb,
) -> TurnAnswerError {
    let ticket = ticket.to_owned();
    if let Some(at) = terms.expired(written.updated_at, CLOCK_MARGIN) {
        return TurnAnswerError::Expired { ticket, at };
    }
    let author = written.created_by.clone().unwrap_or_default();
    let list = terms.people.list_without(|list| is_in(&author, list));
    TurnAnswerError::NotAllowed {
        ticket,
        person: author,
        allowed: list.unwrap_or_default().to_vec(),
    }
}

/// Returns the [`QuestionTerms`] of a question: the data that decides whether an answer is valid. A turn that starts
/// again can write an equal question again. An answer must then be to the newest question. The latest expiry applies,
/// because a copy with an earlier expiry must not close the question.
async fn question(
    store: &dyn BreadcrumbStore,
    ticket: &str,
) -> Result<QuestionTerms, TurnAnswerError> {
    let mut questions = questions::with_id(store, ticket).await?;
    let Some((newest, mut terms)) = questions.pop() else {
        let ticket = ticket.to_owned();
        return Err(TurnAnswerError::Unknown { ticket });
    };
    let newest_contents = question_contents(&newest);
    if questions
        .iter()
        .any(|(other, _)| question_contents(other) != newest_contents)
    {
        let ticket = ticket.to_owned();
        return Err(TurnAnswerError::Ambiguous { ticket });
    }
    let expiries = questions.iter().filter_map(|(_, other)| other.expires_at);
    terms.expires_at = expiries.chain(terms.expires_at).max();
    Ok(terms)
}

/// Returns the contents of a turn's question, except for the question's expiry.
fn question_contents(question: &Breadcrumb) -> Value {
    let mut context = (*question.context).clone();
    if let Value::Object(fields) = &mut context {
        fields.remove("expires_at");
    }
    context
}

/// Returns the first valid answer to a turn's question, or `None` if no valid answer exists.
async fn earlier_answer(
    store: &dyn BreadcrumbStore,
    terms: &QuestionTerms,
) -> Result<Option<Arc<Breadcrumb>>, StoreError> {
    let answers = answers_to(&terms.request_id, human::RESPONSE);
    let query = Query::new(answers).limit(questions::MAX_QUESTIONS);
    let found = store.search(&query).await?;
    let mut oldest_first = found.into_iter().rev();
    Ok(oldest_first.find(|found| counts(terms, found)))
}

/// Returns `true` if an answer is valid: the answer was written after the question and before the question's expiry.
/// The clock of the store can differ from the clock of the turn.
fn counts(terms: &QuestionTerms, answer: &Breadcrumb) -> bool {
    terms.is_before(answer) && terms.counts_in_time(answer, CLOCK_MARGIN)
}

fn is_in(person: &str, list: &[String]) -> bool {
    !person.starts_with(ROLE) && list.iter().any(|permitted| permitted == person)
}

/// Creates the breadcrumb of a person's answer, or returns the reason why the answer does not fit its question. A
/// question about a tool call takes `true` or `false`.
fn response(terms: &QuestionTerms, answer: &Json, by: &str) -> Result<NewBreadcrumb, String> {
    // The principal is in the context, because a store can record another author.
    let principal = json!({"name": by});
    let context = if let Some(digest) = &terms.digest {
        let Some(approved) = answer.as_bool() else {
            return Err("a question about a tool call takes true or false".to_owned());
        };
        json!({"approved": approved, "digest": digest, "principal": principal})
    } else {
        terms.fits(answer)?;
        json!({"answer": **answer, "principal": principal})
    };
    Ok(human::response(&terms.request_id, by, context))
}

#[cfg(test)]
mod tests;
