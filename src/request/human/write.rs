//! Writes of people's answers to questions. If several people answer a question at once, one answer counts.

use super::{QuestionTerms, hash};
use crate::model::{Breadcrumb, BreadcrumbId, NewBreadcrumb};
use crate::store::{BreadcrumbStore, BreadcrumbStoreExt as _, NewRequest, Requested, StoreError};
use std::sync::Arc;

/// The constant that takes the place of an executor ID in the idempotency keys for writing people's answers.
const ANSWERS: &str = "universal-executor:answers";

/// Maximum number of invalid answers that can be written to one question before further answers are refused.
const MAX_INVALID_ANSWERS: usize = 16;

/// The result of writing a person's answer to a question.
#[derive(Debug)]
pub(crate) enum WrittenAnswer {
    /// The written answer of the person, or an equal answer that the store already had. The answer may have no effect.
    Own(Arc<Breadcrumb>),
    /// A valid earlier answer that prevented the write of the new answer, because its contents or its author differ.
    Other(Arc<Breadcrumb>),
}

/// Writes a person's answer to a question, unless an earlier answer is valid. The idempotency keys of the store find
/// the earlier answers, and `counts` returns `true` for a valid one. Invalid answers do not prevent the write.
///
/// On a store without [keys](crate::store::Capabilities::keyed_requests), the answer is written in any case.
///
/// # Errors
/// Returns [`StoreError::KeyConflict`] after too many answers without effect, and the errors of the store.
pub(crate) async fn write_once(
    store: &dyn BreadcrumbStore,
    terms: &QuestionTerms,
    answer: NewBreadcrumb,
    counts: impl Fn(&Breadcrumb) -> bool + Send + Sync,
) -> Result<WrittenAnswer, StoreError> {
    let ledger = store.ledger();
    let Some(ledger) = ledger.filter(|_| store.capabilities().keyed_requests) else {
        return Ok(WrittenAnswer::Own(store.create(answer).await?));
    };
    let (mut last_invalid, mut attempts_left) = (None, MAX_INVALID_ANSWERS);
    loop {
        let key = key(terms, last_invalid);
        let request = NewRequest::new(ANSWERS, key.clone(), answer.clone());
        let (id, equal_version) = match ledger.request(request).await {
            Ok(Requested::Created { breadcrumb }) => return Ok(WrittenAnswer::Own(breadcrumb)),
            Ok(Requested::Existing { id, version }) => (id, Some(version)),
            Err(StoreError::KeyConflict { id, .. }) => (id, None),
            Err(error) => return Err(error),
        };
        match store.get(id).await {
            // An equal answer that was changed in the meantime counts as another answer.
            Ok(earlier) if equal_version == Some(earlier.version) => {
                return Ok(WrittenAnswer::Own(earlier));
            }
            Ok(earlier) if counts(&earlier) => {
                return Ok(match is_same(store, &earlier, &answer) {
                    true => WrittenAnswer::Own(earlier),
                    false => WrittenAnswer::Other(earlier),
                });
            }
            Ok(_) | Err(StoreError::NotFound { .. }) if attempts_left > 1 => {}
            Ok(_) | Err(StoreError::NotFound { .. }) => {
                let executor = ANSWERS.into();
                let key = key.into();
                return Err(StoreError::KeyConflict { executor, key, id });
            }
            Err(error) => return Err(error),
        }
        (last_invalid, attempts_left) = (Some(id), attempts_left - 1);
    }
}

/// Returns `true` if an earlier answer to a question equals a new one and is from the same person. A store can record
/// another author than the person, but the context of an answer names the person too.
pub(crate) fn is_same(
    store: &dyn BreadcrumbStore,
    earlier: &Breadcrumb,
    new: &NewBreadcrumb,
) -> bool {
    let is_by_same = earlier.created_by == new.created_by || !store.capabilities().chosen_author;
    is_by_same && earlier.context == new.context
}

/// Returns the idempotency key for the write of a person's answer to a question. The key depends on the last answer
/// without effect, if there is one.
fn key(terms: &QuestionTerms, last_invalid: Option<BreadcrumbId>) -> String {
    let question = terms.breadcrumb.to_string();
    match last_invalid {
        None => hash(&[&terms.request_id, &question]),
        Some(last_invalid) => hash(&[&terms.request_id, &question, &last_invalid.to_string()]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::human;
    use crate::store::MemoryStore;
    use serde_json::{Value, json};

    fn question() -> QuestionTerms {
        let question = NewBreadcrumb::new(human::REQUEST);
        let context = json!({"kind": "question", "requestId": "q-1", "of": ["ann", "bob"]});
        let question = question.context(context);
        let question =
            question.first_version(BreadcrumbId::NIL, crate::model::Timestamp::UNIX_EPOCH);
        QuestionTerms::of(&question).unwrap()
    }

    async fn write(
        store: &MemoryStore,
        terms: &QuestionTerms,
        by: &str,
        text: Value,
    ) -> WrittenAnswer {
        let answer = human::response("q-1", by, json!({"answer": text}));
        let written = write_once(store, terms, answer, |found| terms.counts(found));
        written.await.unwrap()
    }

    #[tokio::test]
    async fn one_of_several_answers_that_are_written_at_once_counts() {
        let (store, terms) = (MemoryStore::default(), question());

        let (one, two, same) = tokio::join!(
            write(&store, &terms, "ann", json!("yes")),
            write(&store, &terms, "bob", json!("no")),
            write(&store, &terms, "ann", json!("yes")),
        );

        let own = [&one, &two, &same].map(|one| matches!(one, WrittenAnswer::Own(_)));
        assert!(
            own == [true, false, true] || own == [false, true, false],
            "{own:?}"
        );
        let answers = store.recent(human::RESPONSE, 10).await.unwrap();
        assert_eq!(answers.len(), 1, "{answers:?}");
    }

    #[tokio::test]
    async fn an_answer_without_effect_does_not_exclude_the_next_one() {
        let (store, terms) = (MemoryStore::default(), question());

        let invalid = write(&store, &terms, "eve", json!("yes")).await;
        let counted = write(&store, &terms, "ann", json!("no")).await;
        let late = write(&store, &terms, "bob", json!("yes")).await;

        assert!(matches!(invalid, WrittenAnswer::Own(found) if !terms.counts(&found)));
        let WrittenAnswer::Own(counted) = counted else {
            panic!("the answer of ann was not written");
        };
        assert!(matches!(late, WrittenAnswer::Other(found) if found.id == counted.id));
    }

    #[tokio::test]
    async fn a_person_can_repeat_an_answer_that_another_user_changed() {
        let (store, terms) = (MemoryStore::default(), question());
        let WrittenAnswer::Own(first) = write(&store, &terms, "ann", json!("yes")).await else {
            panic!("the answer of ann was not written");
        };
        let title = crate::model::Patch::new()
            .title("changed")
            .updated_by("eve");
        store.update(first.id, 1, title).await.unwrap();

        let again = write(&store, &terms, "ann", json!("yes")).await;
        let once_more = write(&store, &terms, "ann", json!("yes")).await;

        let (WrittenAnswer::Own(again), WrittenAnswer::Own(once_more)) = (again, once_more) else {
            panic!("the answer of ann was not written again");
        };
        assert!(again.id != first.id && terms.counts(&again));
        assert_eq!(again.id, once_more.id);
    }

    #[tokio::test]
    async fn the_number_of_answers_without_effect_is_limited() {
        let (store, terms) = (MemoryStore::default(), question());
        for number in 0..MAX_INVALID_ANSWERS {
            let invalid = write(&store, &terms, "eve", json!(number)).await;
            assert!(matches!(invalid, WrittenAnswer::Own(_)), "{invalid:?}");
        }

        let answer = human::response("q-1", "ann", json!({"answer": "yes"}));
        let error = write_once(&store, &terms, answer, |found| terms.counts(found));

        let error = error.await.unwrap_err();
        assert!(matches!(error, StoreError::KeyConflict { .. }), "{error:?}");
    }
}
