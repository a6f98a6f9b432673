//! The tables for vectors and their index, with and without the extension.

use crate::postgres::counter::Counter;
use crate::postgres::server::{Namespaces, store_in, url};
use futures::future::join_all;
use serde_json::json;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};
use std::error::Error as _;
use std::time::Duration;
use universal_executor::error::Retry;
use universal_executor::store::conformance::WordCounts;
use universal_executor::store::embedding::{EmbedError, Embedder, EmbeddingConfig};
use universal_executor::store::{PostgresError, Query, StoreError, VectorQuery, Write};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, Patch, PostgresStore, Selector, async_trait,
};

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

async fn tell(connection: &mut PgConnection, sql: String) {
    let told = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await;
    told.unwrap();
}

async fn text(connection: &mut PgConnection, sql: &str) -> Option<String> {
    let text = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(connection);
    text.await.unwrap()
}

fn config() -> EmbeddingConfig {
    EmbeddingConfig::new(WordCounts).batch(1_000)
}

/// Writes notes with a unique word and a common word. One in a hundred has the tag "few".
async fn fill(store: &PostgresStore, n: usize) {
    let writes = (0..n).map(|n| {
        let tag = if n % 100 == 0 { "few" } else { "many" };
        let context = json!({"text": format!("w{n} x{}", n % 7), "n": n});
        Write::Create(NewBreadcrumb::new("note.v1").tag(tag).context(context))
    });
    store
        .commit(writes.collect::<Vec<_>>().into())
        .await
        .unwrap();
}

/// Returns the ten notes that are nearest to one of them, with their similarities.
async fn nearest(store: &PostgresStore, selector: Selector) -> Vec<(u64, Option<f64>)> {
    let query = VectorQuery::new(Query::new(selector), "w500 x3");
    let found = store.vector_search(&query).await.unwrap();
    let found = found
        .iter()
        .map(|one| (one.breadcrumb.context["n"].as_u64().unwrap(), one.score));
    found.collect()
}

/// Returns the number of uses of a vector index.
async fn scans(connection: &mut PgConnection, name: &str) -> i64 {
    let scans = format!(
        "SELECT idx_scan FROM pg_stat_user_indexes WHERE schemaname = '{name}' AND indexrelname = 'ux_embeddings_near_512'"
    );
    count(connection, scans).await
}

/// An embedder with more dimensions than an index supports.
#[derive(Debug)]
struct Long;

#[async_trait]
impl Embedder for Long {
    async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, EmbedError> {
        Ok(vec![vec![1.0; self.dimensions()]; texts.len()])
    }

    fn dimensions(&self) -> usize {
        2_001
    }

    fn model(&self) -> &str {
        "long"
    }
}

async fn count(connection: &mut PgConnection, sql: String) -> i64 {
    let count = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(connection);
    count.await.unwrap()
}

#[tokio::test]
async fn a_vector_goes_with_its_version_and_with_its_breadcrumb() {
    let namespaces = Namespaces::default();
    let name = namespaces.one();
    let store = store_in(&name)
        .embeddings(config())
        .connect()
        .await
        .unwrap();
    let mut other = PgConnection::connect(&url()).await.unwrap();
    let (changed, deleted) = (
        store.create(note()).await.unwrap(),
        store.create(note()).await.unwrap(),
    );
    let brief = note().ttl(changed.updated_at + Duration::from_secs(60));
    store.create(brief).await.unwrap();
    let kept =
        format!("SELECT string_agg(version::text, ' ' ORDER BY version) FROM {name}.ux_embeddings");
    assert_eq!(text(&mut other, &kept).await.as_deref(), Some("1 1 1"));

    store
        .update(changed.id, 1, Patch::new().title("other"))
        .await
        .unwrap();
    assert_eq!(text(&mut other, &kept).await.as_deref(), Some("1 1 2"));
    store.delete(deleted.id).await.unwrap();
    assert_eq!(text(&mut other, &kept).await.as_deref(), Some("1 2"));
    store.advance_clock(Duration::from_secs(61));
    store.create(note()).await.unwrap();
    assert_eq!(
        text(&mut other, &kept).await.as_deref(),
        Some("1 2"),
        "the new breadcrumb's vector must replace the expired one"
    );
    // A process without an embedder also removes outdated vectors.
    let plain = store_in(&name).connect().await.unwrap();
    plain
        .update(changed.id, 2, Patch::new().title("third"))
        .await
        .unwrap();

    assert_eq!(text(&mut other, &kept).await.as_deref(), Some("1"));
}

#[tokio::test]
async fn an_index_is_made_by_one_and_searched_by_all_that_connect_later() {
    let namespaces = Namespaces::default();
    let name = namespaces.one();
    let open = || store_in(&name).embeddings(config()).connect();
    let store = open().await.unwrap();
    fill(&store, 1_000).await;
    let mut other = PgConnection::connect(&url()).await.unwrap();
    let exact = nearest(&store, Selector::any()).await;

    let indexed = join_all((0..4).map(|_| store.index_vectors())).await;
    tell(
        &mut other,
        format!("ANALYZE {name}.ux_embeddings; ANALYZE {name}.ux_breadcrumbs"),
    )
    .await;

    assert!(indexed.iter().all(Result::is_ok), "{indexed:?}");
    let indexes = format!(
        // Exclude the indexes of other tests first, because they may be deleted meanwhile.
        "WITH own AS MATERIALIZED (SELECT oid FROM pg_class WHERE relkind = 'i' AND relnamespace = '{name}'::regnamespace)
         SELECT count(*) FROM own WHERE pg_get_indexdef(oid) LIKE '%hnsw%vector(512)%vector_cosine_ops%'"
    );
    assert_eq!(count(&mut other, indexes).await, 1);
    let later = open().await.unwrap();
    for store in [store, later] {
        let before = scans(&mut other, &name).await;
        assert_eq!(nearest(&store, Selector::any()).await[0].1, exact[0].1);
        store.close().await;
        // The server counts the scan when the connection has ended.
        while scans(&mut other, &name).await == before {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn a_vector_index_does_not_reduce_the_results_of_a_selector() {
    let namespaces = Namespaces::default();
    let store = namespaces
        .builder()
        .embeddings(config())
        .connect()
        .await
        .unwrap();
    fill(&store, 600).await;
    let few = || Selector::any().all_tags(["few"]);
    let hidden = || Selector::any().matching("n", "lt", 12);
    let exact = (
        nearest(&store, few()).await,
        nearest(&store, hidden()).await,
    );

    store.index_vectors().await.unwrap();

    assert_eq!((exact.0.len(), exact.1.len()), (6, 10));
    assert_eq!(
        (
            nearest(&store, few()).await,
            nearest(&store, hidden()).await
        ),
        exact
    );
}

#[tokio::test]
async fn an_index_that_was_given_up_is_made_anew() {
    let namespaces = Namespaces::default();
    let name = namespaces.one();
    let store = store_in(&name)
        .embeddings(config())
        .connect()
        .await
        .unwrap();
    store.index_vectors().await.unwrap();
    let mut other = PgConnection::connect(&url()).await.unwrap();
    let index = format!("'{name}.ux_embeddings_near_512'::regclass");
    let spoil = format!("UPDATE pg_index SET indisvalid = FALSE WHERE indexrelid = {index}");
    tell(&mut other, spoil).await;

    store.index_vectors().await.unwrap();

    let valid = format!("SELECT count(*) FROM pg_index WHERE indexrelid = {index} AND indisvalid");
    assert_eq!(count(&mut other, valid).await, 1);
}

#[tokio::test]
async fn a_vector_index_needs_an_embedder_and_a_supported_number_of_dimensions() {
    let namespaces = Namespaces::default();
    let long = namespaces.builder().embeddings(EmbeddingConfig::new(Long));
    let (long, plain) = (
        long.connect().await.unwrap(),
        namespaces.builder().connect().await.unwrap(),
    );

    let (refused, unsupported) = (long.index_vectors().await, plain.index_vectors().await);

    assert!(
        matches!(refused, Err(StoreError::Forbidden { .. })),
        "{refused:?}"
    );
    assert!(
        matches!(unsupported, Err(StoreError::Unsupported { .. })),
        "{unsupported:?}"
    );
}

#[tokio::test]
async fn the_table_that_nothing_was_written_to_is_made_anew() {
    let namespaces = Namespaces::default();
    let name = namespaces.one();
    store_in(&name).connect().await.unwrap().close().await;
    let mut other = PgConnection::connect(&url()).await.unwrap();
    let older = format!(
        "DROP TABLE {name}.ux_embedder; ALTER TABLE {name}.ux_embeddings ALTER embedding SET NOT NULL"
    );
    tell(&mut other, older).await;

    let store = store_in(&name)
        .embeddings(config())
        .connect()
        .await
        .unwrap();

    fill(&store, 2).await;
    assert_eq!(nearest(&store, Selector::any()).await.len(), 2);
}

#[tokio::test]
async fn round_trips_by_meaning_are_few() {
    let namespaces = Namespaces::default();
    let counter = Counter::start().await;
    let builder = PostgresStore::builder(counter.url()).schema(namespaces.one());
    let store = builder.embeddings(config()).connect().await.unwrap();
    // No two notes are equally near, because ties would make the search inspect more notes.
    let notes = (0..30).map(|n| {
        let context = json!({"text": format!("w500{}", " pears".repeat(n)), "n": n});
        let hints = json!({"include": ["text"]});
        Write::Create(
            NewBreadcrumb::new("note.v1")
                .context(context)
                .llm_hints(hints),
        )
    });
    store
        .commit(notes.collect::<Vec<_>>().into())
        .await
        .unwrap();
    let mut least = Vec::new();

    for is_indexed in [false, true] {
        if is_indexed {
            store.index_vectors().await.unwrap();
        }
        let mut counts = Vec::new();
        for _ in 0..6 {
            counter.take();
            nearest(&store, Selector::schema("note.v1")).await;
            counts.push(counter.take());
        }
        least.push(counts.into_iter().min());
    }

    assert_eq!(
        least,
        [Some(1), Some(3)],
        "one round trip for an exact search, three with an index"
    );
    let mut counts = Vec::new();
    for _ in 0..6 {
        counter.take();
        store.create(note()).await.unwrap();
        counts.push(counter.take());
    }
    // The commit, plus one round trip for the schema's hints and one for the vector.
    assert_eq!(counts.into_iter().min(), Some(4));
}

#[tokio::test]
async fn without_vectors_everything_else_works() {
    let namespaces = Namespaces::default();
    let store = namespaces
        .builder()
        .without_vectors()
        .connect()
        .await
        .unwrap();

    works_without(&store).await;
}

#[tokio::test]
async fn embeddings_without_the_vector_extension_are_refused_with_a_solution() {
    let namespaces = Namespaces::default();
    let builder = namespaces.builder().without_vectors().embeddings(config());

    let refused = builder.connect().await.unwrap_err();

    assert!(
        matches!(refused, PostgresError::NoVectors(_)),
        "{refused:?}"
    );
    assert_eq!(refused.retry(), Retry::Never);
    assert!(
        refused.to_string().contains("`CREATE EXTENSION vector`"),
        "{refused}"
    );
}

/// The user may only create tables in one schema of the database.
#[tokio::test]
async fn a_user_without_permission_to_create_the_extension_has_all_other_features() {
    let name = format!("ux_poor_{}", std::process::id());
    let mut admin = PgConnection::connect(&url()).await.unwrap();
    tell(
        &mut admin,
        format!("CREATE ROLE {name} LOGIN PASSWORD 'poor'"),
    )
    .await;
    tell(&mut admin, format!("CREATE DATABASE {name}")).await;
    let options: PgConnectOptions = url().parse().unwrap();
    let mut inside = options.clone().database(&name).connect().await.unwrap();
    tell(
        &mut inside,
        format!("CREATE SCHEMA poor AUTHORIZATION {name}"),
    )
    .await;
    inside.close().await.unwrap();
    let url = format!(
        "postgres://{name}:poor@{}:{}/{name}",
        options.get_host(),
        options.get_port()
    );

    let builder = || PostgresStore::builder(&url).schema("poor");
    let store = builder().connect().await.unwrap();
    let refused = builder().embeddings(config()).connect().await.unwrap_err();

    works_without(&store).await;
    assert!(
        matches!(refused, PostgresError::NoVectors(_)),
        "{refused:?}"
    );
    let cause = refused.source().unwrap().to_string();
    assert!(cause.contains("permission denied"), "{cause}");
    store.close().await;
    tell(&mut admin, format!("DROP DATABASE {name} WITH (FORCE)")).await;
    tell(&mut admin, format!("DROP ROLE {name}")).await;
}

async fn works_without(store: &PostgresStore) {
    let made = store.create(note()).await.unwrap();
    let found = store.latest("note.v1").await.unwrap();
    let indexed = store.index_vectors().await;

    assert!(!store.has_vectors());
    assert_eq!(found, Some(made));
    assert!(
        matches!(indexed, Err(StoreError::Unsupported { .. })),
        "{indexed:?}"
    );
}
