//! Answers of people to the questions of turns.

use crate::clock::wall_micros;
use crate::error::{Retry, excerpt};
use crate::model::{Breadcrumb, Json, NewBreadcrumb, Selector, Timestamp, request_tag};
use crate::request::human::{Terms, Written};
use crate::request::{answers_to, human};
use crate::store::{BreadcrumbStore, Query, StoreError};
use crate::tool::ROLE;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// An answer to the question of a turn has no effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TurnAnswerError {
    /// No question has this ticket, or the question was changed since it was written.
    #[error("no question has the ticket {:?}", excerpt(ticket, 80))]
    Unknown {
        /// The ticket.
        ticket: String,
    },
    /// Several different questions have this ticket. One of them may show other arguments than the call of the other has.
    #[error(
        "several different questions have the ticket {:?}, so the ticket does not say which one the person saw; delete the breadcrumb of the copy",
        excerpt(ticket, 80)
    )]
    Ambiguous {
        /// The ticket.
        ticket: String,
    },
    /// The question was answered before.
    #[error(
        "question {:?} is not open: {} answered it",
        excerpt(ticket, 80),
        excerpt(by.as_deref().unwrap_or("a person"), 80)
    )]
    NotOpen {
        /// The ticket of the question.
        ticket: String,
        /// The name of the person with the answer that counts.
        by: Option<String>,
    },
    /// The person may not answer.
    #[error(
        "{:?} may not answer question {:?}; allowed: {}",
        excerpt(person, 80),
        excerpt(ticket, 80),
        allowed.join(", ")
    )]
    NotAllowed {
        /// The ticket of the question.
        ticket: String,
        /// The name of the person.
        person: String,
        /// The names of the people with the right to answer. A supervisor knows no roles of people.
        allowed: Vec<String>,
    },
    /// The time for an answer is over, by the clock of this machine.
    #[error("question {:?} expired at {at}", excerpt(ticket, 80))]
    Expired {
        /// The ticket of the question.
        ticket: String,
        /// The end of the time.
        at: Timestamp,
    },
    /// The answer does not fit the question.
    #[error(
        "the answer to question {:?} is not valid: {problem}",
        excerpt(ticket, 80)
    )]
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
            | Self::Ambiguous { .. }
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
            Self::Ambiguous { .. } => "ambiguous_question",
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
    if let Some(earlier) = earlier(store, &terms).await? {
        if earlier.context == response.context && earlier.created_by == response.created_by {
            return Ok(earlier);
        }
        return Err(not_open(ticket, &earlier));
    }
    // The turn decides by the clock of its machine too: its context has no clock of the store.
    let now = Timestamp::from_micros(wall_micros());
    if let Some(at) = terms.expired(now, Duration::ZERO) {
        let ticket = ticket.to_owned();
        return Err(TurnAnswerError::Expired { ticket, at });
    }
    let is_counted = |found: &Breadcrumb| counts(&terms, found);
    match human::write_once(store, &terms, response, is_counted).await? {
        Written::Own(written) => Ok(written),
        Written::Other(earlier) => Err(not_open(ticket, &earlier)),
    }
}

fn not_open(ticket: &str, earlier: &Breadcrumb) -> TurnAnswerError {
    TurnAnswerError::NotOpen {
        ticket: ticket.to_owned(),
        by: earlier.created_by.clone(),
    }
}

/// Returns the terms of the question with a ticket. A turn that starts again can write the same question again: the newest one applies.
async fn question(store: &dyn BreadcrumbStore, ticket: &str) -> Result<Terms, TurnAnswerError> {
    let selector = Selector::schema(human::REQUEST).all_tags([request_tag(ticket)]);
    let found = store.search(&Query::new(selector).limit(MOST)).await?;
    let read = found.iter().filter_map(|found| {
        let terms = Terms::of(found)?;
        (terms.request_id == ticket).then_some((found, terms))
    });
    let mut questions: Vec<(&Arc<Breadcrumb>, Terms)> = read.collect();
    questions.sort_by_key(|(found, _)| (found.created_at, found.id));
    let Some((newest, terms)) = questions.pop() else {
        let ticket = ticket.to_owned();
        return Err(TurnAnswerError::Unknown { ticket });
    };
    let asked = shown(newest);
    match questions.iter().all(|(other, _)| shown(other) == asked) {
        true => Ok(terms),
        false => Err(TurnAnswerError::Ambiguous {
            ticket: ticket.to_owned(),
        }),
    }
}

/// Returns the contents of a question without its time.
fn shown(question: &Breadcrumb) -> Value {
    let mut context = (*question.context).clone();
    if let Value::Object(fields) = &mut context {
        fields.remove("expires_at");
    }
    context
}

/// Returns the first answer that counts.
async fn earlier(
    store: &dyn BreadcrumbStore,
    terms: &Terms,
) -> Result<Option<Arc<Breadcrumb>>, StoreError> {
    let query = Query::new(answers_to(&terms.request_id, human::RESPONSE)).limit(MOST);
    let found = store.search(&query).await?;
    let mut oldest_first = found.into_iter().rev();
    Ok(oldest_first.find(|found| counts(terms, found)))
}

/// Returns `true` if an answer counts for the turn: it came after the question.
fn counts(terms: &Terms, answer: &Breadcrumb) -> bool {
    answer.updated_at >= terms.asked_at && terms.counts(answer)
}

fn is_in(person: &str, list: &[String]) -> bool {
    !person.starts_with(ROLE) && list.iter().any(|one| one == person)
}

/// Returns the breadcrumb of an answer, or the reason why the answer does not fit its question. A question about a call takes `true` or
/// `false`.
fn response(terms: &Terms, answer: &Json, by: &str) -> Result<NewBreadcrumb, String> {
    let context = if let Some(digest) = &terms.digest {
        let Some(approved) = answer.as_bool() else {
            return Err("a question about a call takes true or false".to_owned());
        };
        json!({"approved": approved, "digest": digest})
    } else {
        terms.fits(answer)?;
        json!({"answer": **answer})
    };
    Ok(human::response(&terms.request_id, by, context))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{BreadcrumbStoreExt as _, MemoryStore};

    /// Writes a question about a call of `pay`, which ann may answer, with other fields.
    async fn ask(store: &MemoryStore, more: &Value) {
        let mut context = json!({
            "kind": "approval", "requestId": "t-1", "digest": "d", "of": ["ann", "bob"],
            "arguments": {"amount": 5},
        });
        let fields = context.as_object_mut().unwrap();
        fields.extend(more.as_object().unwrap().clone());
        let asked = NewBreadcrumb::new(human::REQUEST).tag(request_tag("t-1"));
        store.create(asked.context(context)).await.unwrap();
    }

    async fn says(
        store: &MemoryStore,
        by: &str,
        approved: bool,
    ) -> Result<Arc<Breadcrumb>, TurnAnswerError> {
        answer(store, "t-1", &json!(approved).into(), by).await
    }

    #[tokio::test]
    async fn one_of_two_different_answers_that_are_given_at_once_is_accepted() {
        let store = MemoryStore::default();
        ask(&store, &json!({})).await;

        let both = tokio::join!(says(&store, "ann", true), says(&store, "bob", false));

        let (accepted, refused) = match both {
            (Ok(accepted), Err(refused)) | (Err(refused), Ok(accepted)) => (accepted, refused),
            other => panic!("{other:?}"),
        };
        let TurnAnswerError::NotOpen { by, .. } = refused else {
            panic!("{refused:?}");
        };
        assert_eq!(by, accepted.created_by);
    }

    #[tokio::test]
    async fn an_answer_with_arguments_that_the_rules_forbid_leaves_the_question_open() {
        let store = MemoryStore::default();
        let rule = json!({"by": ["bob"]});
        ask(&store, &json!({"changeable": true, "change_rules": [rule]})).await;
        let changed = NewBreadcrumb::new(human::RESPONSE).tag(request_tag("t-1"));
        let changed = changed.created_by("ann").context(json!({
            "request_id": "t-1", "approved": true, "digest": "d", "arguments": {"amount": 900},
        }));
        let changed = store.create(changed).await.unwrap();

        let approved = says(&store, "ann", true).await.unwrap();

        assert_ne!(approved.id, changed.id);
    }

    #[tokio::test]
    async fn a_question_whose_time_is_over_takes_no_answer() {
        let store = MemoryStore::default();
        let end = Timestamp::from_micros(1);
        ask(&store, &json!({"expires_at": end})).await;

        let error = says(&store, "ann", true).await.unwrap_err();

        assert!(
            matches!(error, TurnAnswerError::Expired { at, .. } if at == end),
            "{error:?}"
        );
        let answers = store.recent(human::RESPONSE, 10).await.unwrap();
        assert!(answers.is_empty(), "{answers:?}");
    }

    #[tokio::test]
    async fn a_ticket_of_different_questions_takes_no_answer() {
        let store = MemoryStore::default();
        ask(&store, &json!({"expires_at": "2200-01-01T00:00:00Z"})).await;
        ask(&store, &json!({"expires_at": "2200-01-02T00:00:00Z"})).await;
        let repeated = says(&store, "ann", true).await;
        ask(&store, &json!({"arguments": {"amount": 6}})).await;

        let different = says(&store, "ann", true).await.unwrap_err();

        assert!(repeated.is_ok(), "{repeated:?}");
        assert!(
            matches!(different, TurnAnswerError::Ambiguous { .. }),
            "{different:?}"
        );
    }

    #[tokio::test]
    async fn a_question_that_was_changed_takes_no_answer() {
        let store = MemoryStore::default();
        ask(&store, &json!({})).await;
        let asked = store.latest(human::REQUEST).await.unwrap().unwrap();
        let patch = crate::model::Patch::new().title("Another question");
        store.update(asked.id, 1, patch).await.unwrap();

        let error = says(&store, "ann", true).await.unwrap_err();

        assert!(
            matches!(error, TurnAnswerError::Unknown { .. }),
            "{error:?}"
        );
    }

    #[test]
    fn an_error_repeats_at_most_an_excerpt_of_ticket_and_person() {
        let (ticket, person) = ("t".repeat(10_000), "p".repeat(10_000));
        let error = TurnAnswerError::NotAllowed {
            ticket,
            person,
            allowed: Vec::new(),
        };

        let message = error.to_string();
        assert!(message.len() < 300, "{}", message.len());
    }
}
