//! The store gives up on a text that the embedder cannot process, and on no other text.

use crate::embedding::told::{Does, Told};
use crate::embedding::{Folder, in_memory, near};
use serde_json::json;
use universal_executor::store::Write;
use universal_executor::store::embedding::EmbeddingConfig;
use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Patch};

/// Failures of an embedder at a text with the word "poison".
const WAYS: [Does; 4] = [
    Does::Refuse("poison"),
    Does::Break("poison"),
    Does::Panic("poison"),
    Does::SpoilOne("poison"),
];

fn note(text: &str) -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1").context(json!({"text": text}))
}

/// Writes seven notes and one note that may be poisonous in one commit. The latter is embedded first.
async fn write(store: &impl BreadcrumbStore, last: &str) {
    let texts = (1..8).map(|n| format!("word{n}")).chain([last.to_owned()]);
    let writes: Vec<_> = texts.map(|text| Write::Create(note(&text))).collect();
    store.commit(writes.into()).await.unwrap();
}

/// Returns the number of found notes, in which the original words must be found.
async fn found(store: &MemoryStore) -> usize {
    let mut found = near(store, "word1", 100).await;
    found.sort();
    found.dedup();
    found.len()
}

#[tokio::test]
async fn a_commit_with_a_text_that_the_embedder_cannot_do_is_found_but_for_that() {
    for does in WAYS {
        let embedder = Told::new();
        let store = in_memory(EmbeddingConfig::new(embedder.clone()));
        embedder.shall(does);

        write(&store, "poison").await;

        let texts = near(&store, "word1", 100).await;
        assert_eq!(texts.len(), 7, "{does:?}");
        assert!(!texts.contains(&"poison".to_owned()), "{does:?}");
    }
}

#[tokio::test]
async fn abandoned_texts_of_a_backfill_are_counted_and_not_retried_after_a_reopen() {
    for does in WAYS {
        let folder = Folder::new();
        let embedder = Told::new();
        let plain = folder.file().open().await.unwrap();
        for round in ["poison one", "word8", "poison two"] {
            write(&plain, round).await;
        }
        plain.close().await;
        embedder.shall(does);
        let open = || {
            folder
                .file()
                .embeddings(EmbeddingConfig::new(embedder.clone()).batch(5))
                .open()
        };

        let store = open().await.unwrap();
        let given_up = store.embedded().await.unwrap();
        store.close().await;
        let asked = embedder.asked().len();
        let store = open().await.unwrap();
        let left = store.embedded().await.unwrap();

        assert_eq!((given_up, left), (2, 0), "{does:?}");
        assert_eq!(
            embedder.asked().len(),
            asked,
            "{does:?}: the text must not be embedded again"
        );
        assert_eq!(near(&store, "word8", 100).await.len(), 22, "{does:?}");
    }
}

#[tokio::test]
async fn a_text_that_was_given_up_is_tried_again_once_it_changes() {
    let embedder = Told::new();
    let store = in_memory(EmbeddingConfig::new(embedder.clone()));
    embedder.shall(Does::Break("poison"));
    let written = store.create(note("poison")).await.unwrap();
    assert!(near(&store, "apples", 1).await.is_empty());

    let apples = Patch::new().context(json!({"text": "apples"}));
    store.update(written.id, 1, apples).await.unwrap();

    assert_eq!(near(&store, "apples", 1).await, ["apples"]);
}

#[tokio::test]
async fn a_store_embeds_later_commits_after_it_abandoned_a_text() {
    let embedder = Told::new();
    let store = in_memory(EmbeddingConfig::new(embedder.clone()));
    embedder.shall(Does::Break("poison"));
    store.create(note("poison")).await.unwrap();

    store.create(note("apples")).await.unwrap();

    assert_eq!(embedder.asked().last().unwrap(), &["apples"]);
    assert_eq!(near(&store, "apples", 1).await, ["apples"]);
}

#[tokio::test]
async fn a_batch_with_a_too_large_response_is_requested_in_parts() {
    let embedder = Told::new();
    let store = in_memory(EmbeddingConfig::new(embedder.clone()));
    embedder.shall(Does::AtMost(2));

    write(&store, "word8").await;

    assert_eq!(found(&store).await, 8);
    let sizes: Vec<_> = embedder.asked().iter().map(Vec::len).collect();
    assert_eq!(sizes[..8], [8, 1, 4, 2, 2, 4, 2, 2]);
}

#[tokio::test]
async fn an_embedder_that_can_do_nothing_is_asked_twice_and_nothing_is_given_up() {
    for does in [
        Does::Refuse(""),
        Does::Break(""),
        Does::Panic(""),
        Does::Spoil,
    ] {
        let embedder = Told::new();
        let store = in_memory(EmbeddingConfig::new(embedder.clone()));
        embedder.shall(does);

        write(&store, "word8").await;

        assert_eq!(embedder.asked().len(), 2, "{does:?}");
        store.embedded().await.unwrap_err();
        embedder.shall(Does::Answer);
        assert_eq!(store.embedded().await.unwrap(), 0, "{does:?}");
        assert_eq!(found(&store).await, 8, "{does:?}");
    }
}

#[tokio::test]
async fn an_embedder_that_sheds_load_is_asked_once() {
    let embedder = Told::new();
    let store = in_memory(EmbeddingConfig::new(embedder.clone()));
    embedder.shall(Does::Fail);

    write(&store, "word8").await;

    assert_eq!(embedder.asked().len(), 1);
}

#[tokio::test]
async fn an_embedder_that_goes_down_at_any_call_is_soon_left_alone_and_nothing_more_is_given_up() {
    /// Number of calls until the store gives up: with the poisonous text alone, with a plain text, and with both again.
    const GIVEN_UP: usize = 8;
    for after in 0..16 {
        let embedder = Told::new();
        let store = in_memory(EmbeddingConfig::new(embedder.clone()));
        embedder.shall(Does::Sink("poison", after));

        write(&store, "poison").await;

        let asked = embedder.asked().len();
        assert!(asked <= after + 5, "{asked} calls, down after {after}");
        embedder.shall(Does::Answer);
        assert_eq!(store.embedded().await.unwrap(), 0, "down after {after}");
        let all = if after < GIVEN_UP { 8 } else { 7 };
        assert_eq!(found(&store).await, all, "down after {after}");
    }
}

#[tokio::test]
async fn a_batch_of_unembeddable_texts_is_abandoned_after_five_calls_per_text() {
    let embedder = Told::new();
    let store = in_memory(EmbeddingConfig::new(embedder.clone()));
    embedder.shall(Does::Break("word"));

    write(&store, "word8").await;

    assert_eq!(embedder.asked().len(), 5 * 8);
    assert_eq!(store.embedded().await.unwrap(), 0);
    assert_eq!(
        embedder.asked().len(),
        5 * 8,
        "no text must be embedded again"
    );
}
