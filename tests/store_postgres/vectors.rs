//! The table for vectors, with the extension and without.

use crate::server::{Namespaces, store_in, url};
use futures::future::join_all;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};
use std::time::Duration;
use universal_executor::store::StoreError;
use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, PostgresStore};

fn note() -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
}

async fn tell(connection: &mut PgConnection, sql: String) {
    let told = sqlx::raw_sql(AssertSqlSafe(sql)).execute(connection).await;
    told.unwrap();
}

async fn count(connection: &mut PgConnection, sql: String) -> i64 {
    let count = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(connection);
    count.await.unwrap()
}

#[tokio::test]
async fn vectors_go_with_their_breadcrumb_and_are_found_by_an_index() {
    let namespaces = Namespaces::default();
    let name = namespaces.one();
    let store = store_in(&name).connect().await.unwrap();
    let now = store.create(note()).await.unwrap().updated_at;
    let brief = note().ttl(now + Duration::from_secs(60));
    let made = store.create(brief).await.unwrap();
    let mut other = PgConnection::connect(&url()).await.unwrap();

    let at_once = (0..4).map(|_| store.index_vectors("it's a model", 3));
    let indexed = join_all(at_once).await;
    let insert = format!(
        "INSERT INTO {name}.ux_embeddings VALUES (1, '{}', 1, 'it''s a model', 3, '[1,2,3]')",
        made.id
    );
    tell(&mut other, insert).await;

    assert!(
        store.has_vectors() && indexed.iter().all(Result::is_ok),
        "{indexed:?}"
    );
    assert!(!store.capabilities().vector_search);
    let indexes = format!(
        "SELECT count(*) FROM pg_indexes WHERE schemaname = '{name}' AND tablename = 'ux_embeddings'
         AND indexdef LIKE '%hnsw%vector(3)%vector_cosine_ops%it''''s a model%'"
    );
    assert_eq!(count(&mut other, indexes).await, 1);
    let asked = format!(
        "SET enable_seqscan = off; SET search_path = {name}, public; EXPLAIN (FORMAT TEXT)
         SELECT breadcrumb_id FROM ux_embeddings WHERE model = 'it''s a model' AND dimensions = 3
         ORDER BY embedding::vector(3) <=> '[1,2,2]' LIMIT 1"
    );
    let plan = sqlx::raw_sql(AssertSqlSafe(asked))
        .fetch_all(&mut other)
        .await;
    let plan: Vec<String> = plan
        .unwrap()
        .iter()
        .map(|row| sqlx::Row::get(row, 0))
        .collect();
    assert!(
        plan.concat().contains("Index Scan using ux_embeddings_"),
        "{plan:?}"
    );
    store.pass(Duration::from_secs(61));
    store.create(note()).await.unwrap();
    let left = format!("SELECT count(*) FROM {name}.ux_embeddings");
    assert_eq!(count(&mut other, left).await, 0);
}

#[tokio::test]
async fn an_index_of_too_many_dimensions_is_refused() {
    let namespaces = Namespaces::default();
    let store = namespaces.builder().connect().await.unwrap();

    for dimensions in [0, 2_001] {
        let refused = store.index_vectors("model", dimensions).await;

        assert!(
            matches!(refused, Err(StoreError::Forbidden { .. })),
            "{refused:?}"
        );
    }
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

/// A database in which a user may make tables in one schema and nothing else.
#[tokio::test]
async fn a_user_who_may_not_make_the_extension_has_everything_else() {
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

    let store = PostgresStore::builder(url)
        .schema("poor")
        .connect()
        .await
        .unwrap();

    works_without(&store).await;
    store.close().await;
    tell(&mut admin, format!("DROP DATABASE {name} WITH (FORCE)")).await;
    tell(&mut admin, format!("DROP ROLE {name}")).await;
}

async fn works_without(store: &PostgresStore) {
    let made = store.create(note()).await.unwrap();
    let found = store.latest("note.v1").await.unwrap();
    let indexed = store.index_vectors("model", 3).await;

    assert!(!store.has_vectors());
    assert_eq!(found, Some(made));
    assert!(
        matches!(indexed, Err(StoreError::Unsupported { .. })),
        "{indexed:?}"
    );
}
