//! Faults of the server that the store declares, avoids or reports.

use super::server::{Fault, Match, Server};
use super::{OWNER, builder, store};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use universal_executor::error::Retry;
use universal_executor::store::{
    Commit, DeadLetter, Query, SplitCharacter, StoreError, VectorQuery, Write,
};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, Event,
    ExecutionContext, MemoryStore, NewBreadcrumb, Outcome, Patch, RcrtStore, Response, Selector,
    Subscription, Subscriptions, UniversalExecutor, WithLedger, async_trait,
};

/// Returns a context whose JSON has byte 200 within a character. The JSON starts with `{"text":"`, which has nine bytes.
fn split() -> Value {
    json!({"text": format!("{}\u{e9}", "x".repeat(190))})
}

/// Pauses the next update between its version check and its write.
fn pause_update(server: &Server) -> Arc<Notify> {
    let go = Arc::new(Notify::new());
    server.fail(Match("PATCH", ""), Fault::Between(Arc::clone(&go)));
    go
}

async fn note(store: &RcrtStore, text: &str) -> BreadcrumbId {
    let note = NewBreadcrumb::new("note.v1").context(json!({"text": text}));
    store.create(note).await.unwrap().id
}

#[tokio::test]
async fn vector_search_finds_an_updated_breadcrumb_by_the_text_of_its_first_version() {
    let server = Server::start().await;
    let store = store(&server);
    let apples = note(&store, "red apples grow on old trees").await;
    let market = note(&store, "the stock market fell sharply").await;
    let patch = Patch::new().context(json!({"text": "a cat sleeps in the sun"}));
    store.update(apples, 1, patch).await.unwrap();

    let nearest = async |text: &str| {
        let query = Query::new(Selector::schema("note.v1")).limit(1);
        let found = store.vector_search(&VectorQuery::new(query, text)).await;
        found.unwrap().remove(0).breadcrumb
    };

    assert_eq!(nearest("apples on trees").await.id, apples);
    assert_eq!(nearest("apples on trees").await.version, 2);
    assert_eq!(nearest("the stock market").await.id, market);
}

/// Starts an update, and waits until the server has received it.
async fn begun_update(
    server: &Server,
    store: &RcrtStore,
    id: BreadcrumbId,
) -> JoinHandle<Result<Arc<Breadcrumb>, StoreError>> {
    let store = store.clone();
    let update = async move { store.update(id, 1, Patch::new().title("slow")).await };
    let update = tokio::spawn(update);
    while server.seen("PATCH", "/").is_empty() {
        tokio::task::yield_now().await;
    }
    update
}

#[tokio::test]
async fn of_two_concurrent_updates_from_one_version_both_can_succeed_and_the_last_one_wins() {
    let server = Server::start().await;
    let store = store(&server);
    let id = note(&store, "a").await;
    let go = pause_update(&server);
    let slow = begun_update(&server, &store, id).await;
    let fast = store.update(id, 1, Patch::new().title("fast")).await;
    go.notify_one();
    let slow = slow.await.unwrap().unwrap();

    assert_eq!(fast.unwrap().title, "fast");
    assert_eq!((slow.version, &*slow.title), (2, "slow"));
    assert_eq!(store.get(id).await.unwrap(), slow);
    assert!(!store.capabilities().exclusive_updates);
}

#[tokio::test]
async fn an_update_that_was_replaced_at_once_is_returned_as_it_was_made() {
    let server = Server::start().await;
    let store = store(&server);
    let id = note(&store, "a").await;
    let go = pause_update(&server);
    let slow = begun_update(&server, &store, id).await;
    // The other update replaces this update before the client reads it back.
    let read = Arc::new(Notify::new());
    let fast = tokio::spawn({
        let store = store.clone();
        async move { store.update(id, 1, Patch::new().title("fast")).await }
    });
    while server.seen("PATCH", "/").len() < 2 {
        tokio::task::yield_now().await;
    }
    server.fail(Match("GET", "/full"), Fault::Wait(Arc::clone(&read)));
    let reads = server.seen("GET", "/").len();
    while server.seen("GET", "/").len() == reads {
        tokio::task::yield_now().await;
    }
    go.notify_one();
    slow.await.unwrap().unwrap();
    read.notify_one();

    assert_eq!(fast.await.unwrap().unwrap().title, "fast");
    assert_eq!(store.get(id).await.unwrap().title, "slow");
}

#[tokio::test]
async fn an_update_at_which_the_server_would_panic_is_refused_before_anything_is_written() {
    let server = Server::start().await;
    let store = store(&server);
    let id = note(&store, "a").await;
    let before = server.seen("POST", "/").len();
    let commit = Commit::from(vec![
        Write::Create(NewBreadcrumb::new("note.v1")),
        Write::Update {
            id,
            version: 1,
            patch: Patch::new().context(split()),
        },
    ]);

    let error = store.commit(commit).await.unwrap_err();

    assert_eq!(error.retry(), Retry::Never);
    let StoreError::Refused { source, .. } = error else {
        panic!("{error}");
    };
    let text = source.to_string();
    for part in [
        "cannot update breadcrumb",
        &*id.to_string(),
        "write 1 of the commit",
        "byte 200",
        "would panic",
        "create a new breadcrumb",
        "refuse_split_characters(false)",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let cause = source.downcast_ref::<SplitCharacter>().unwrap();
    assert_eq!((cause.id, cause.write), (id, 1));
    assert_eq!(server.seen("POST", "/").len(), before);
    assert!(server.seen("PATCH", "/").is_empty());
}

#[tokio::test]
async fn only_an_update_with_byte_200_inside_a_character_is_refused() {
    let server = Server::start().await;
    let store = store(&server);
    let text = |before: usize, after: &str| {
        let context = json!({"text": format!("{}{after}", "x".repeat(before))});
        NewBreadcrumb::new("note.v1").context(context)
    };
    let id = store.create(text(190, "\u{e9}")).await.unwrap().id;

    for (version, context) in [
        (1, text(189, "\u{e9}").context),
        (2, text(191, "\u{e9}").context),
        (3, text(190, "ee").context),
        // The JSON of each of these contexts has at most 200 bytes.
        (4, text(187, "\u{e9}").context),
        (5, json!("x".repeat(198)).into()),
    ] {
        let patch = Patch::new().context(context.into_value());
        store.update(id, version, patch).await.unwrap();
    }

    let refused = store.update(id, 6, Patch::new().context(split())).await;
    assert!(
        matches!(refused, Err(StoreError::Refused { .. })),
        "{refused:?}"
    );
    let title = Patch::new().title("\u{e9}".repeat(300));
    store.update(id, 6, title).await.unwrap();
}

#[tokio::test]
async fn the_text_of_a_context_is_checked_as_the_server_writes_it() {
    let server = Server::start().await;
    let store = store(&server);
    let id = note(&store, "a").await;
    // In this key order and with these spaces, byte 200 starts a character. In sorted order, it does not.
    let written = format!(r#"{{ "text" : "{}\u00e9", "a": 1 }}"#, "x".repeat(184));
    let context = universal_executor::Json::from_text(written).unwrap();
    let mut patch = Patch::new();
    patch.context = Some(context);

    let refused = store.update(id, 1, patch.clone()).await;

    assert!(
        matches!(refused, Err(StoreError::Refused { .. })),
        "{refused:?}"
    );
    let unchecked = builder(&server, OWNER).refuse_split_characters(false);
    let sent = unchecked.build().unwrap().update(id, 1, patch).await;
    assert!(
        matches!(sent, Err(StoreError::Unavailable { .. })),
        "{sent:?}"
    );
    assert_eq!(store.get(id).await.unwrap().version, 1);
}

#[tokio::test]
async fn a_store_for_a_fixed_server_sends_every_update() {
    let server = Server::start().await;
    let unchecked = builder(&server, OWNER).refuse_split_characters(false);
    let store = unchecked.build().unwrap();
    let id = note(&store, "a").await;

    let failed = store.update(id, 1, Patch::new().context(split())).await;

    assert!(
        matches!(failed, Err(StoreError::Unavailable { .. })),
        "{failed:?}"
    );
    assert_eq!(server.seen("PATCH", "/").len(), 3);
}

/// An executor that answers each question by updating it.
struct Rewrite {
    subscriptions: Subscriptions,
    store: WithLedger<RcrtStore, MemoryStore>,
}

#[async_trait]
impl UniversalExecutor for Rewrite {
    fn id(&self) -> &str {
        "rewrite"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, _: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        // The key `a` sorts before the field with the executor's name.
        Ok(json!({"a": format!("{}\u{e9}", "x".repeat(193))}))
    }

    async fn respond(&self, question: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        let patch = Patch::new().context(output);
        Ok(Response::update(question.id, question.version, patch))
    }
}

#[tokio::test]
async fn a_run_with_such_an_update_fails_at_once_with_the_reason_in_its_dead_letter() {
    let server = Server::start().await;
    let runs = MemoryStore::default().in_tenant(OWNER);
    let executor = Rewrite {
        subscriptions: Subscriptions::new([Subscription::trigger("question.v1")]).unwrap(),
        store: WithLedger::new(store(&server), runs),
    };
    let store = &executor.store;
    let question = NewBreadcrumb::new("question.v1");
    let question = store.create(question).await.unwrap();

    let outcome = executor.process_event(&Event::created(&question)).await;

    let letter = store.latest(DeadLetter::SCHEMA).await.unwrap().unwrap();
    let text = letter.context.to_string();
    assert!(
        text.contains("permanent") && text.contains("byte 200"),
        "{text}"
    );
    assert!(
        !matches!(outcome, Ok(Outcome::Responded { .. })),
        "{outcome:?}"
    );
    assert!(server.seen("PATCH", "/").is_empty());
}

#[tokio::test]
async fn the_server_knows_no_owner_whose_name_is_not_a_uuid() {
    let server = Server::start().await;
    let request = |owner: &str| {
        let headers = [(
            "authorization".to_owned(),
            format!("Bearer {}", super::server::token_of(owner)),
        )];
        super::server::Request {
            method: "POST".to_owned(),
            path: "/breadcrumbs".to_owned(),
            query: std::collections::HashMap::new(),
            headers: headers.into(),
            body: br#"{"title": "a", "context": {}, "tags": []}"#.to_vec(),
        }
    };

    let (named, own) = (request("theirs"), request(OWNER));

    assert_eq!(server.answer(&named).await.unwrap().status, 401);
    assert_eq!(server.answer(&own).await.unwrap().status, 200);
}
