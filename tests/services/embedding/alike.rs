//! All stores return the same search results, in the same order, with the same scores.

use crate::embedding::{Folder, in_memory, on_server};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::json;
use universal_executor::store::conformance::WordCounts;
use universal_executor::store::embedding::EmbeddingConfig;
use universal_executor::store::{Query, VectorQuery};
use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, Patch, Selector};

/// A change of a note, which is identified by its number.
#[derive(Clone, Debug)]
enum Step {
    Create(String, bool),
    Change(usize, String),
    Delete(usize),
}

fn text() -> impl Strategy<Value = String> {
    vec(
        prop::sample::select(vec!["a", "b", "c", "d", "e", "f"]),
        0..5,
    )
    .prop_map(|words| words.join(" "))
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (text(), any::<bool>()).prop_map(|(text, tagged)| Step::Create(text, tagged)),
        2 => (any::<usize>(), text()).prop_map(|(n, text)| Step::Change(n, text)),
        1 => any::<usize>().prop_map(Step::Delete),
    ]
}

fn query() -> impl Strategy<Value = VectorQuery> {
    let least = prop::option::of(0.0..1.0);
    (text(), 0..8_usize, any::<bool>(), least).prop_map(|(text, limit, tagged, least)| {
        let selector = Selector::schema("note.v1");
        let selector = if tagged {
            selector.all_tags(["tagged"])
        } else {
            selector
        };
        let mut query = VectorQuery::new(Query::new(selector).limit(limit), text);
        query.min_score = least;
        query
    })
}

/// Executes the steps, and then returns the result of each query: the number of each note, and its similarity.
async fn found(
    store: &impl BreadcrumbStore,
    steps: &[Step],
    queries: &[VectorQuery],
) -> Vec<Vec<(u64, Option<f64>)>> {
    let mut notes = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let context = |text: &str| json!({"text": text, "number": number});
        match step {
            Step::Create(text, tagged) => {
                let new = NewBreadcrumb::new("note.v1").context(context(text));
                let new = if *tagged { new.tag("tagged") } else { new };
                notes.push(store.create(new).await.unwrap());
            }
            Step::Change(n, text) if !notes.is_empty() => {
                let at = n % notes.len();
                let patch = Patch::new().context(context(text));
                let (id, version) = (notes[at].id, notes[at].version);
                notes[at] = store.update(id, version, patch).await.unwrap();
            }
            Step::Delete(n) if !notes.is_empty() => {
                let gone = notes.remove(n % notes.len());
                store.delete(gone.id).await.unwrap();
            }
            Step::Change(..) | Step::Delete(_) => {}
        }
    }
    let mut all = Vec::new();
    for query in queries {
        let found = store.vector_search(query).await.unwrap();
        let found = found.iter().map(|one| {
            let number = one.breadcrumb.context["number"].as_u64().unwrap();
            (number, one.score)
        });
        all.push(found.collect());
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn memory_and_sqlite_stores_find_the_same_breadcrumbs_for_any_writes(
        steps in vec(step(), 0..40),
        queries in vec(query(), 1..6),
    ) {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let folder = Folder::new();
        let config = || EmbeddingConfig::new(WordCounts);

        let (memory, file) = tokio.block_on(async {
            let memory = in_memory(config());
            let file = folder.file().embeddings(config()).open().await.unwrap();
            (found(&memory, &steps, &queries).await, found(&file, &steps, &queries).await)
        });

        prop_assert_eq!(memory, file);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn memory_and_postgres_stores_find_the_same_breadcrumbs_for_any_writes(
        steps in vec(step(), 0..40),
        queries in vec(query(), 1..6),
    ) {
        let Some(server) = on_server() else { return Ok(()) };
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let config = || EmbeddingConfig::new(WordCounts);

        let (memory, postgres) = tokio.block_on(async {
            let memory = in_memory(config());
            let postgres = server.builder().embeddings(config()).connect().await.unwrap();
            (found(&memory, &steps, &queries).await, found(&postgres, &steps, &queries).await)
        });

        prop_assert_eq!(memory, postgres);
    }
}

#[tokio::test]
async fn many_notes_are_compared_as_few_are() {
    let store = in_memory(EmbeddingConfig::new(WordCounts));
    for n in 0..3_000 {
        let tag = if n % 100 == 0 { "few" } else { "many" };
        let new = NewBreadcrumb::new("note.v1")
            .tag(tag)
            .context(json!({"text": format!("w{n} x{}", n % 7)}));
        store.create(new).await.unwrap();
    }

    let near = |selector: Selector| {
        let query = VectorQuery::new(Query::new(selector).limit(20), "w1400 x3");
        let store = &store;
        async move {
            let found = store.vector_search(&query).await.unwrap();
            let found = found.iter().map(|one| (one.breadcrumb.id, one.score));
            found.collect::<Vec<_>>()
        }
    };
    // One query uses an index of tags, and the other one compares all vectors.
    let by_index = near(Selector::any().all_tags(["few"])).await;
    let by_all = near(Selector::any().matching("text", "matches", "^w[0-9]*00 |^w0 ")).await;

    assert_eq!(by_index.len(), 20);
    assert_eq!(by_index, by_all);
}
