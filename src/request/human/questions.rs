//! Lookup of the questions to people in a store by request ID.

use super::{QuestionTerms, REQUEST};
use crate::error::BoxError;
use crate::executor::{ExecutionContext, SentRequest};
use crate::model::{Breadcrumb, Selector, request_tag};
use crate::store::{BreadcrumbStore, Query, StoreError};
use std::sync::Arc;

/// Maximum number of questions to people that a lookup by one request ID reads.
pub(crate) const MAX_QUESTIONS: usize = 1_000;

/// Returns the questions to people with a request ID, oldest first, each with the data that decides which answers are accepted. Questions
/// that were changed after they were written are omitted.
///
/// # Errors
/// Returns the errors of the store.
pub(crate) async fn with_id(
    store: &dyn BreadcrumbStore,
    request_id: &str,
) -> Result<Vec<(Arc<Breadcrumb>, QuestionTerms)>, StoreError> {
    let selector = Selector::schema(REQUEST).all_tags([request_tag(request_id)]);
    let found = store
        .search(&Query::new(selector).limit(MAX_QUESTIONS))
        .await?;
    let read = found.into_iter().filter_map(|found| {
        let terms = QuestionTerms::of(&found)?;
        (terms.request_id == request_id).then_some((found, terms))
    });
    let mut questions: Vec<_> = read.collect();
    questions.sort_by_key(|(found, _)| (found.created_at, found.id));
    Ok(questions)
}

/// Returns `true` if the requester (a run, or an agent turn outside a run) accepts a breadcrumb as the answer to its request. A
/// turn outside a run can start again and ask an equal question under the same ID. The answer of a person must then be to the
/// newest question.
///
/// # Errors
/// Returns the errors of [`ExecutionContext::accepts`] and of the store.
pub(crate) async fn accepts(
    context: &ExecutionContext,
    answer: &Breadcrumb,
    sent_request: SentRequest<'_>,
    store: &dyn BreadcrumbStore,
) -> Result<bool, BoxError> {
    if !context.accepts(answer, sent_request, store).await? {
        return Ok(false);
    }
    if !sent_request.of_person || context.correlation_id().is_some() {
        return Ok(true);
    }
    let questions = with_id(store, sent_request.request_id).await?;
    let newest = questions.last();
    Ok(newest.is_none_or(|(_, terms)| terms.is_before(answer)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, NewBreadcrumb, Timestamp};
    use crate::request::human;
    use crate::store::{BreadcrumbStoreExt as _, MemoryStore};
    use serde_json::json;

    /// Returns `true` if an answer counts for a turn outside a run.
    async fn counts(store: &MemoryStore, answer: &Breadcrumb) -> bool {
        let trigger = NewBreadcrumb::new("go.v1");
        let trigger = trigger.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);
        let context = ExecutionContext::for_trigger(trigger);
        let sent_request = SentRequest {
            schema: REQUEST,
            request_id: "q-1",
            of_person: true,
        };
        accepts(&context, answer, sent_request, store)
            .await
            .unwrap()
    }

    #[tokio::test]
    async fn outside_a_run_an_answer_to_a_question_that_was_asked_again_does_not_count() {
        let store = MemoryStore::default();
        let ask = async || {
            let question = NewBreadcrumb::new(REQUEST).tag(request_tag("q-1"));
            let question = question.context(json!({"kind": "question", "requestId": "q-1"}));
            store.create(question).await.unwrap()
        };
        let write_answer = async |more: serde_json::Value| {
            let answer = human::response("q-1", "ann", more);
            store.create(answer).await.unwrap()
        };

        let first = ask().await;
        let yes = write_answer(json!({"answer": "yes"})).await;
        let counted_before = counts(&store, &yes).await;
        ask().await;
        let no = write_answer(json!({"answer": "no"})).await;
        let of_first = write_answer(json!({"answer": "no", "question": first.id})).await;

        assert!(counted_before && !counts(&store, &yes).await);
        assert!(counts(&store, &no).await && !counts(&store, &of_first).await);
    }

    #[tokio::test]
    async fn outside_a_run_an_answer_that_was_changed_does_not_count() {
        let store = MemoryStore::default();
        let answer = human::response("q-1", "ann", json!({"answer": "yes"}));
        let mut answer = answer.first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH);

        assert!(counts(&store, &answer).await);
        answer.version = 2;
        assert!(!counts(&store, &answer).await);
    }
}
