//! Vectors in PostgreSQL stay consistent with the breadcrumbs, with several processes and failing embedders.

use crate::embedding::told::{Does, Told};
use crate::embedding::{in_memory, near, on_server};
use crate::postgres::server::store_in;
use futures::poll;
use serde_json::json;
use std::pin::pin;
use universal_executor::error::Retry;
use universal_executor::store::conformance::WordCounts;
use universal_executor::store::embedding::{EmbedError, EmbeddingConfig};
use universal_executor::store::{PostgresError, Query, StoreError, VectorQuery, Write};
use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, Patch, Selector};

fn note(text: &str) -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1").context(json!({"text": text}))
}

fn query(text: &str) -> VectorQuery {
    VectorQuery::new(Query::new(Selector::any()), text)
}

#[tokio::test]
async fn breadcrumbs_written_without_an_embedder_are_embedded_later() {
    let Some(server) = on_server() else { return };
    let name = server.one();
    let plain = store_in(&name).connect().await.unwrap();
    for n in 0..100 {
        plain.create(note(&format!("word{n}"))).await.unwrap();
    }
    plain
        .in_tenant("other")
        .create(note("apples"))
        .await
        .unwrap();

    let store = store_in(&name).embeddings(EmbeddingConfig::new(Told::new()));
    let store = store.connect().await.unwrap();

    assert_eq!(store.embedded().await.unwrap(), 0);
    assert_eq!(near(&store, "word42", 1_000).await.len(), 100);
    let other = store.in_tenant("other");
    other.embedded().await.unwrap();
    assert_eq!(near(&other, "apples", 10).await, ["apples"]);
}

#[tokio::test]
async fn vectors_are_made_once_for_all_processes() {
    let Some(server) = on_server() else { return };
    let (name, embedder) = (server.one(), Told::new());
    let connect = || {
        store_in(&name)
            .embeddings(EmbeddingConfig::new(embedder.clone()))
            .connect()
    };
    let (one, other) = (connect().await.unwrap(), connect().await.unwrap());
    one.create(note("apples")).await.unwrap();

    other.embedded().await.unwrap();

    assert_eq!(embedder.asked(), [["apples"]]);
    assert_eq!(near(&other, "apples", 1).await, ["apples"]);
}

#[tokio::test]
async fn an_embedder_that_fails_does_not_fail_the_commit() {
    let Some(server) = on_server() else { return };
    let embedder = Told::new();
    let store = server
        .builder()
        .embeddings(EmbeddingConfig::new(embedder.clone()));
    let store = store.connect().await.unwrap();
    embedder.shall(Does::Fail);

    let written = store.create(note("apples")).await.unwrap();

    assert_eq!(store.get(written.id).await.unwrap(), written);
    embedder.shall(Does::Answer);
    assert_eq!(store.embedded().await.unwrap(), 0);
    assert_eq!(near(&store, "apples", 1).await, ["apples"]);
}

#[tokio::test]
async fn the_embedder_is_called_without_locks_and_an_outdated_vector_is_not_stored() {
    let Some(server) = on_server() else { return };
    let embedder = Told::new();
    let store = server.builder().connections(2);
    let store = store
        .embeddings(EmbeddingConfig::new(embedder.clone()))
        .connect();
    let store = store.await.unwrap();
    embedder.shall(Does::Wait);
    let mut creating = pin!(store.create(note("apples")));
    while embedder.asked().is_empty() {
        assert!(poll!(creating.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    embedder.shall(Does::Answer);

    let written = store.latest("note.v1").await.unwrap().unwrap();
    let pears = Patch::new().context(json!({"text": "pears"}));
    store.update(written.id, 1, pears).await.unwrap();
    embedder.let_on();
    creating.await.unwrap();

    let found = store.vector_search(&query("pears")).await.unwrap();
    assert!(found[0].score > Some(0.99), "{found:?}");
}

#[tokio::test]
async fn a_zero_vector_is_not_found_and_not_requested_again() {
    let Some(server) = on_server() else { return };
    let (name, embedder) = (server.one(), Told::new());
    let connect = || {
        store_in(&name)
            .embeddings(EmbeddingConfig::new(embedder.clone()))
            .connect()
    };
    embedder.shall(Does::Zero);
    connect()
        .await
        .unwrap()
        .create(note("apples"))
        .await
        .unwrap();
    embedder.shall(Does::Answer);

    let store = connect().await.unwrap();
    store.embedded().await.unwrap();

    assert_eq!(embedder.asked(), [["apples"]]);
    assert!(near(&store, "apples", 10).await.is_empty());
}

#[tokio::test]
async fn a_store_with_vectors_of_another_model_does_not_connect_until_they_are_forgotten() {
    let Some(server) = on_server() else { return };
    let name = server.one();
    let told = |model| store_in(&name).embeddings(EmbeddingConfig::new(Told::named(model)));
    let old = told("old").connect().await.unwrap();
    old.create(note("apples")).await.unwrap();

    let error = told("new").connect().await.unwrap_err();

    let PostgresError::Embedder(cause) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(error.retry(), Retry::Never);
    let said = cause.to_string();
    for part in [r#""old" with 512"#, r#""new" with 512"#, "`forget_vectors`"] {
        assert!(said.contains(part), "{said}");
    }
    let new = told("new").forget_vectors().connect().await.unwrap();
    new.embedded().await.unwrap();
    assert_eq!(near(&new, "apples", 1).await, ["apples"]);
    let error = old.vector_search(&query("apples")).await.unwrap_err();
    old.create(note("pears")).await.unwrap();
    let is_told = matches!(error, StoreError::Embedding(EmbedError::OtherModel { .. }));
    assert!(is_told, "{error:?}");
    assert_eq!(
        near(&new, "apples", 10).await,
        ["apples"],
        "no vector of the other model must be found"
    );
}

/// The notes are equally near, exceed the number that is read at once, and are mostly not selected.
#[tokio::test]
async fn many_that_are_as_near_are_found_as_in_memory() {
    let Some(server) = on_server() else { return };
    let config = || EmbeddingConfig::new(WordCounts).batch(1_000);
    let memory = in_memory(config());
    let postgres = server
        .builder()
        .embeddings(config())
        .connect()
        .await
        .unwrap();
    let notes = (0..1_000).map(|n| {
        let text = if n % 3 == 0 {
            "apples"
        } else {
            "apples and pears"
        };
        let context = json!({"text": text, "deep": {"n": n % 100}, "number": n});
        Write::Create(
            NewBreadcrumb::new("note.v1")
                .context(context)
                .llm_hints(json!({"include": ["text"]})),
        )
    });
    let notes: Vec<Write> = notes.collect();
    memory.commit(notes.clone().into()).await.unwrap();
    postgres.commit(notes.into()).await.unwrap();

    for (selector, limit) in [
        (Selector::any(), 5),
        (Selector::any(), 400),
        (Selector::any(), 2_000),
        (Selector::any().matching("deep.n", "lt", 3), 20),
    ] {
        let query = VectorQuery::new(Query::new(selector).limit(limit), "apples");
        let here = memory.vector_search(&query).await.unwrap();
        let there = postgres.vector_search(&query).await.unwrap();

        let told = |found: &[universal_executor::store::Scored]| -> Vec<(String, Option<f64>)> {
            let told = found
                .iter()
                .map(|one| (one.breadcrumb.context["number"].to_string(), one.score));
            told.collect()
        };
        assert_eq!(told(&there), told(&here), "{limit}");
    }
}

#[tokio::test]
async fn a_store_can_be_closed_while_the_embedder_is_waited_for() {
    let Some(server) = on_server() else { return };
    let (name, embedder) = (server.one(), Told::new());
    embedder.shall(Does::Wait);
    let store = store_in(&name).embeddings(EmbeddingConfig::new(embedder.clone()).later());
    let store = store.connect().await.unwrap();
    store.create(note("apples")).await.unwrap();
    while embedder.asked().is_empty() {
        tokio::task::yield_now().await;
    }

    store.close().await;

    let store = store_in(&name).embeddings(EmbeddingConfig::new(Told::new()));
    let store = store.connect().await.unwrap();
    store.embedded().await.unwrap();
    assert_eq!(near(&store, "apples", 1).await, ["apples"]);
}
