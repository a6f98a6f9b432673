//! Vectors stay consistent with the breadcrumbs, even if the embedder fails.

use crate::embedding::told::{Does, Told};
use crate::embedding::{Folder, in_memory, near};
use futures::poll;
use serde_json::json;
use std::pin::pin;
use std::time::Duration;
use universal_executor::error::Retry;
use universal_executor::store::embedding::{EmbedError, EmbeddingConfig};
use universal_executor::store::{Query, SqliteError, StoreError, VectorQuery, Write};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, Patch, Selector, SqliteStore,
};

fn note(text: &str) -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1").context(json!({"text": text}))
}

fn query(text: &str) -> VectorQuery {
    VectorQuery::new(Query::new(Selector::any()), text)
}

fn bad_answer(error: StoreError) -> String {
    let StoreError::Embedding(EmbedError::BadAnswer { problem, .. }) = error else {
        panic!("{error:?}")
    };
    problem
}

#[tokio::test]
async fn a_commit_returns_once_its_breadcrumbs_can_be_found() {
    let embedder = Told::new();
    let store = in_memory(EmbeddingConfig::new(embedder.clone()));

    store.create(note("apples")).await.unwrap();

    assert_eq!(embedder.asked(), [["apples"]]);
    assert_eq!(near(&store, "apples", 1).await, ["apples"]);
}

#[tokio::test]
async fn only_the_final_versions_of_a_commit_are_embedded_in_batches() {
    let embedder = Told::new();
    let store = in_memory(EmbeddingConfig::new(embedder.clone()).batch(2));
    let gone = store.create(note("gone")).await.unwrap();
    let changed = store.create(note("before")).await.unwrap();
    let write = |version, text| Write::Update {
        id: changed.id,
        version,
        patch: Patch::new().context(json!({"text": text})),
    };
    let delete = Write::Delete {
        id: gone.id,
        by: None,
    };
    let writes = vec![
        write(1, "between"),
        write(2, "after"),
        Write::Create(note("one")),
        Write::Create(note("two")),
        delete,
    ];

    store.commit(writes.into()).await.unwrap();

    let asked = [vec!["two", "one"], vec!["after"]];
    assert_eq!(embedder.asked()[2..], asked);
}

#[tokio::test]
async fn an_embedder_that_fails_does_not_fail_the_commit_and_is_made_up_for() {
    let embedder = Told::new();
    let store = in_memory(EmbeddingConfig::new(embedder.clone()));
    embedder.shall(Does::Fail);

    let written = store.create(note("apples")).await.unwrap();

    assert_eq!(store.get(written.id).await.unwrap(), written);
    let error = store.embedded().await.unwrap_err();
    assert!(matches!(error.retry(), Retry::After(_)), "{error:?}");
    assert_eq!(
        error.to_string(),
        "cannot compute the vector of a text; see the cause"
    );
    embedder.shall(Does::Answer);
    assert_eq!(store.embedded().await.unwrap(), 0);
    assert_eq!(near(&store, "apples", 1).await, ["apples"]);
}

#[tokio::test(start_paused = true)]
async fn while_an_embedder_fails_no_commit_asks_it_and_the_background_tries_again() {
    let embedder = Told::new();
    let store = in_memory(EmbeddingConfig::new(embedder.clone()));
    embedder.shall(Does::Fail);
    store.create(note("first")).await.unwrap();
    let asked = embedder.asked().len();

    store.create(note("second")).await.unwrap();

    assert_eq!(
        embedder.asked().len(),
        asked,
        "the commit must not wait for the embedder"
    );
    embedder.shall(Does::Answer);
    tokio::time::sleep(Duration::from_secs(120)).await;
    embedder.shall(Does::Fail);
    let texts: Vec<_> = embedder.asked().concat();
    assert!(texts.contains(&"second".to_owned()), "{texts:?}");
    assert_eq!(
        store.embedded().await.unwrap(),
        0,
        "no text must wait for a vector"
    );
}

#[tokio::test(start_paused = true)]
async fn a_commit_waits_for_an_embedder_only_so_long() {
    let embedder = Told::new();
    let patience = Duration::from_secs(3);
    let store = in_memory(EmbeddingConfig::new(embedder.clone()).commit_timeout(patience));
    embedder.shall(Does::Wait);
    let begun = tokio::time::Instant::now();

    store.create(note("apples")).await.unwrap();

    assert_eq!(begun.elapsed(), patience);
    embedder.shall(Does::Answer);
    embedder.let_on();
    store.embedded().await.unwrap();
    assert_eq!(near(&store, "apples", 1).await, ["apples"]);
}

#[tokio::test]
async fn later_no_commit_waits_for_the_embedder() {
    let embedder = Told::new();
    let store = in_memory(EmbeddingConfig::new(embedder.clone()).later());
    embedder.shall(Does::Wait);

    for text in ["apples", "pears"] {
        store.create(note(text)).await.unwrap();
    }

    assert_eq!(
        store.latest("note.v1").await.unwrap().unwrap().context["text"],
        "pears"
    );
    embedder.shall(Does::Answer);
    embedder.let_on();
    store.embedded().await.unwrap();
    assert_eq!(near(&store, "apples", 1).await, ["apples"]);
    assert_eq!(near(&store, "pears", 1).await, ["pears"]);
}

#[tokio::test]
async fn a_commit_with_later_embedding_does_not_wait_for_the_embedder() {
    let embedder = Told::new();
    let store = in_memory(EmbeddingConfig::new(embedder.clone()).later());

    store.create(note("apples")).await.unwrap();

    while embedder.asked().is_empty() {
        tokio::task::yield_now().await;
    }
    assert_eq!(embedder.asked(), [["apples"]]);
}

#[tokio::test]
async fn a_vector_of_a_replaced_version_is_not_stored() {
    let embedder = Told::new();
    let store = in_memory(EmbeddingConfig::new(embedder.clone()));
    embedder.shall(Does::Wait);
    let mut creating = pin!(store.create(note("apples")));
    assert!(poll!(creating.as_mut()).is_pending());
    while embedder.asked().is_empty() {
        assert!(poll!(creating.as_mut()).is_pending());
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
async fn the_embedding_of_an_abandoned_commit_is_repeated_later() {
    let embedder = Told::new();
    let store = in_memory(EmbeddingConfig::new(embedder.clone()));
    store.embedded().await.unwrap();
    embedder.shall(Does::Wait);
    {
        let mut creating = pin!(store.create(note("apples")));
        while embedder.asked().is_empty() {
            assert!(poll!(creating.as_mut()).is_pending());
        }
    }
    embedder.shall(Does::Answer);

    // Any further use of the store repeats the lost work.
    store.vector_search(&query("pears")).await.unwrap();
    while embedder.asked().len() < 3 {
        tokio::task::yield_now().await;
    }

    store.embedded().await.unwrap();
    assert_eq!(near(&store, "apples", 1).await, ["apples"]);
}

#[tokio::test]
async fn a_text_that_is_refused_does_not_keep_others_from_being_found() {
    let embedder = Told::new();
    let store = in_memory(EmbeddingConfig::new(embedder.clone()).later());
    embedder.shall(Does::Refuse("poison"));
    for text in ["apples", "poison", "pears"] {
        store.create(note(text)).await.unwrap();
    }

    assert_eq!(store.embedded().await.unwrap(), 1);
    assert_eq!(near(&store, "pears", 1).await, ["pears"]);
    assert_eq!(near(&store, "apples", 10).await.len(), 2);
}

#[tokio::test]
async fn a_response_without_one_finite_vector_per_text_is_an_error() {
    let embedder = Told::new();
    let store = in_memory(EmbeddingConfig::new(embedder.clone()));

    for (does, problem) in [
        (Does::Forget, "0 vectors for 1 texts"),
        (Does::Shorten, "a vector of 511 dimensions instead of 512"),
        (Does::Spoil, "a vector with a number that is not finite"),
    ] {
        embedder.shall(does);
        let error = store.vector_search(&query("apples")).await.unwrap_err();
        assert_eq!(bad_answer(error), problem);
    }
}

#[tokio::test]
async fn a_zero_vector_is_not_found_and_finds_nothing() {
    let embedder = Told::new();
    let store = in_memory(EmbeddingConfig::new(embedder.clone()));
    embedder.shall(Does::Zero);
    store.create(note("apples")).await.unwrap();

    assert!(
        store
            .vector_search(&query("apples"))
            .await
            .unwrap()
            .is_empty()
    );
    embedder.shall(Does::Answer);
    assert!(
        store
            .vector_search(&query("apples"))
            .await
            .unwrap()
            .is_empty()
    );
    assert_eq!(store.embedded().await.unwrap(), 0);
    let asked = embedder.asked().len();
    assert!(store.vector_search(&query(" \n")).await.unwrap().is_empty());
    assert_eq!(embedder.asked().len(), asked, "no text must be embedded");
}

#[tokio::test]
async fn a_file_that_was_written_without_an_embedder_is_made_up_for() {
    let folder = Folder::new();
    let store = folder.file().open().await.unwrap();
    for n in 0..100 {
        store.create(note(&format!("word{n}"))).await.unwrap();
    }
    store
        .in_tenant("other")
        .create(note("apples"))
        .await
        .unwrap();
    store.close().await;
    let embedder = Told::new();

    let store = folder
        .file()
        .embeddings(EmbeddingConfig::new(embedder.clone()))
        .open()
        .await
        .unwrap();

    assert_eq!(store.embedded().await.unwrap(), 0);
    assert_eq!(near(&store, "word42", 1_000).await.len(), 100);
    let other = store.in_tenant("other");
    other.embedded().await.unwrap();
    assert_eq!(near(&other, "apples", 10).await, ["apples"]);
}

#[tokio::test]
async fn a_file_that_was_searched_before_is_searched_as_it_is_now() {
    let folder = Folder::new();
    let store = folder.file().embeddings(EmbeddingConfig::new(Told::new()));
    let store = store.open().await.unwrap();
    let written = store.create(note("apples")).await.unwrap();
    store.create(note("pears")).await.unwrap();
    assert_eq!(near(&store, "plums", 10).await.len(), 2);

    let plums = Patch::new().context(json!({"text": "plums"}));
    store.update(written.id, 1, plums).await.unwrap();

    for _ in 0..2 {
        let found = store.vector_search(&query("plums")).await.unwrap();
        assert_eq!(found[0].breadcrumb.version, 2);
        assert!(found[0].score > Some(0.99), "{found:?}");
    }
}

#[tokio::test]
async fn vectors_in_a_file_are_made_once() {
    let folder = Folder::new();
    let embedder = Told::new();
    let open = || {
        folder
            .file()
            .embeddings(EmbeddingConfig::new(embedder.clone()))
            .open()
    };
    let store = open().await.unwrap();
    store.create(note("apples")).await.unwrap();
    store.close().await;
    let store = open().await.unwrap();

    store.embedded().await.unwrap();

    assert_eq!(embedder.asked(), [["apples"]]);
    assert_eq!(near(&store, "apples", 1).await, ["apples"]);
}

#[tokio::test]
async fn a_file_with_vectors_of_another_model_does_not_open_until_they_are_forgotten() {
    let folder = Folder::new();
    let open = |model| {
        folder
            .file()
            .embeddings(EmbeddingConfig::new(Told::named(model)))
    };
    let store = open("old").open().await.unwrap();
    store.create(note("apples")).await.unwrap();
    store.close().await;

    let error = open("new").open().await.unwrap_err();

    let SqliteError::Embedder(cause) = &error else {
        panic!("{error:?}")
    };
    assert_eq!(error.retry(), Retry::Never);
    let said = cause.to_string();
    for part in [r#""old" with 512"#, r#""new" with 512"#, "`forget_vectors`"] {
        assert!(said.contains(part), "{said}");
    }
    let store = open("new").forget_vectors().open().await.unwrap();
    store.embedded().await.unwrap();
    assert_eq!(near(&store, "apples", 1).await, ["apples"]);
}

#[tokio::test]
async fn a_store_whose_vectors_were_replaced_by_another_model_reports_it() {
    let folder = Folder::new();
    let open = |model| {
        folder
            .file()
            .embeddings(EmbeddingConfig::new(Told::named(model)))
    };
    let old = open("old").open().await.unwrap();
    old.create(note("apples")).await.unwrap();
    let new = open("new").forget_vectors().open().await.unwrap();
    new.embedded().await.unwrap();

    let error = old.vector_search(&query("apples")).await.unwrap_err();
    old.create(note("pears")).await.unwrap();

    assert!(
        matches!(error, StoreError::Embedding(EmbedError::OtherModel { .. })),
        "{error:?}"
    );
    assert_eq!(
        near(&new, "apples", 10).await,
        ["apples"],
        "no vector of the other model must be found"
    );
}

#[tokio::test]
async fn a_store_can_be_closed_while_the_embedder_is_waited_for() {
    let folder = Folder::new();
    let embedder = Told::new();
    embedder.shall(Does::Wait);
    let config = EmbeddingConfig::new(embedder.clone()).later();
    let store = folder.file().embeddings(config).open().await.unwrap();
    store.create(note("apples")).await.unwrap();
    while embedder.asked().is_empty() {
        tokio::task::yield_now().await;
    }

    store.close().await;

    let config = EmbeddingConfig::new(Told::new());
    let store: SqliteStore = folder.file().embeddings(config).open().await.unwrap();
    store.embedded().await.unwrap();
    assert_eq!(near(&store, "apples", 1).await, ["apples"]);
}
