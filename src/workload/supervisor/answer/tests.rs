use super::*;
use crate::model::{BreadcrumbId, request_tag};
use crate::store::{
    BreadcrumbStoreExt as _, Capabilities, Commit, Committed, MemoryStore, RunLedger, Scored,
    StoreId, VectorQuery, Write,
};
use async_trait::async_trait;

/// A store that records its own user as the author of each breadcrumb, as a server does that knows the owner of a
/// token.
#[derive(Debug, Default)]
struct OneAuthor(MemoryStore);

#[async_trait]
impl BreadcrumbStore for OneAuthor {
    fn tenant(&self) -> &str {
        self.0.tenant()
    }

    fn identity(&self) -> StoreId {
        self.0.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities().chosen_author(false)
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.0.get(id).await
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        self.0.search(query).await
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        self.0.vector_search(query).await
    }

    async fn commit(&self, mut commit: Commit) -> Result<Committed, StoreError> {
        for write in &mut commit.writes {
            if let Write::Create(new) = write {
                new.created_by = Some("service".to_owned());
            }
        }
        self.0.commit(commit).await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        None
    }
}

/// Writes a question about a call of `pay`, which ann may answer, with other fields.
async fn ask(store: &impl BreadcrumbStore, more: &Value) {
    let mut context = json!({
        "kind": "approval", "requestId": "t-1", "digest": "d", "of": ["ann", "bob"],
        "arguments": {"amount": 5},
    });
    let fields = context.as_object_mut().unwrap();
    fields.extend(more.as_object().unwrap().clone());
    let question = NewBreadcrumb::new(human::REQUEST).tag(request_tag("t-1"));
    store.create(question.context(context)).await.unwrap();
}

async fn answer_as(
    store: &dyn BreadcrumbStore,
    by: &str,
    approved: bool,
) -> Result<Arc<Breadcrumb>, TurnAnswerError> {
    answer(store, "t-1", &json!(approved).into(), by).await
}

#[tokio::test]
async fn one_of_two_different_answers_that_are_given_at_once_is_accepted() {
    let store = MemoryStore::default();
    ask(&store, &json!({})).await;

    let both = tokio::join!(
        answer_as(&store, "ann", true),
        answer_as(&store, "bob", false)
    );

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

    let approved = answer_as(&store, "ann", true).await.unwrap();

    assert_ne!(approved.id, changed.id);
}

#[tokio::test]
async fn a_question_whose_time_is_over_takes_no_answer() {
    let store = MemoryStore::default();
    let end = Timestamp::from_micros(1);
    ask(&store, &json!({"expires_at": end})).await;

    let error = answer_as(&store, "ann", true).await.unwrap_err();

    assert!(
        matches!(error, TurnAnswerError::Expired { at, .. } if at == end),
        "{error:?}"
    );
    let answers = store.recent(human::RESPONSE, 10).await.unwrap();
    assert!(answers.is_empty(), "{answers:?}");
}

#[tokio::test]
async fn an_answer_that_the_store_records_under_a_name_without_permission_is_an_error() {
    let store = OneAuthor::default();
    ask(&store, &json!({})).await;

    let error = answer_as(&store, "ann", true).await.unwrap_err();

    let TurnAnswerError::NotAllowed {
        person, allowed, ..
    } = error
    else {
        panic!("{error:?}");
    };
    assert_eq!(
        (&*person, allowed),
        ("service", vec!["ann".to_owned(), "bob".to_owned()])
    );
}

#[tokio::test]
async fn an_equal_answer_is_accepted_if_the_store_records_another_author() {
    let store = OneAuthor::default();
    ask(&store, &json!({"of": []})).await;

    let first = answer_as(&store, "ann", true).await.unwrap();
    let again = answer_as(&store, "ann", true).await.unwrap();
    let other = answer_as(&store, "bob", true).await.unwrap_err();

    assert_eq!(first.id, again.id);
    assert!(
        matches!(other, TurnAnswerError::NotOpen { .. }),
        "{other:?}"
    );
}

#[tokio::test]
async fn an_answer_that_another_user_changed_can_be_repeated() {
    let store = MemoryStore::default();
    ask(&store, &json!({})).await;
    let first = answer_as(&store, "ann", true).await.unwrap();
    let patch = crate::model::Patch::new().title("changed");
    store.update(first.id, 1, patch).await.unwrap();

    let again = answer_as(&store, "ann", true).await.unwrap();

    assert_ne!(again.id, first.id);
}

#[tokio::test]
async fn an_answer_after_the_end_of_the_time_does_not_close_a_question() {
    let store = MemoryStore::default();
    let end = Timestamp::from_micros(1);
    ask(&store, &json!({"expires_at": end})).await;
    let late = human::response("t-1", "bob", json!({"approved": false, "digest": "d"}));
    store.create(late).await.unwrap();

    let error = answer_as(&store, "ann", true).await.unwrap_err();

    assert!(
        matches!(error, TurnAnswerError::Expired { .. }),
        "{error:?}"
    );
}

#[tokio::test]
async fn an_equal_copy_of_a_question_with_an_earlier_end_does_not_close_the_question() {
    let store = MemoryStore::default();
    ask(&store, &json!({"expires_at": "2200-01-01T00:00:00Z"})).await;
    ask(&store, &json!({"expires_at": "1970-01-01T00:00:00Z"})).await;

    answer_as(&store, "ann", true).await.unwrap();
}

#[tokio::test]
async fn a_ticket_that_a_copy_with_other_arguments_has_takes_no_answer() {
    let store = MemoryStore::default();
    ask(&store, &json!({"expires_at": "2200-01-01T00:00:00Z"})).await;
    ask(&store, &json!({"expires_at": "2200-01-02T00:00:00Z"})).await;
    let repeated = answer_as(&store, "ann", true).await;
    ask(&store, &json!({"arguments": {"amount": 6}})).await;

    let different = answer_as(&store, "ann", true).await.unwrap_err();

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
    let question = store.latest(human::REQUEST).await.unwrap().unwrap();
    let patch = crate::model::Patch::new().title("Another question");
    store.update(question.id, 1, patch).await.unwrap();

    let error = answer_as(&store, "ann", true).await.unwrap_err();

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
