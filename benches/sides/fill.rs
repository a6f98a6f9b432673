//! Filled SQLite files, and searches in them.

use super::TEXT;
use serde_json::json;
use std::path::Path;
use universal_executor::store::{Commit, Durability, Query, Write};
use universal_executor::{BreadcrumbStore, NewBreadcrumb, Selector, SqliteStore};

/// Number of breadcrumbs in one commit.
const AT_ONCE: usize = 500;
/// Number of schemas, and number of consecutive breadcrumbs of one session.
const SCHEMAS: usize = 20;

/// Adds `n` breadcrumbs in large commits.
pub(crate) async fn add(store: &SqliteStore, n: usize, new: impl Fn(usize) -> NewBreadcrumb) {
    let places: Vec<usize> = (0..n).collect();
    for places in places.chunks(AT_ONCE) {
        let writes = places.iter().map(|place| Write::Create(new(*place)));
        let commit = Commit::from(writes.collect::<Vec<_>>());
        store.commit(commit).await.unwrap();
    }
}

/// Creates a file with `n` breadcrumbs.
pub(crate) async fn make(file: &Path, n: usize, new: impl Fn(usize) -> NewBreadcrumb) {
    let store = SqliteStore::builder(file).durability(Durability::Normal);
    let store = store.open().await.unwrap();
    add(&store, n, new).await;
    store.close().await;
}

/// Returns one of many breadcrumbs: with one of the schemas, a rare tag, a frequent tag, and a tag that all breadcrumbs have.
pub(crate) fn one_of_many(place: usize) -> NewBreadcrumb {
    NewBreadcrumb::new(schema(place))
        .tag(session(place))
        .tag(format!("group:{}", place % 7))
        .tag("everything")
        .context(json!({"text": TEXT, "place": place, "third": third(place)}))
}

fn schema(place: usize) -> String {
    format!("kind-{}.v1", place % SCHEMAS)
}

fn session(place: usize) -> String {
    format!("session:{}", place / SCHEMAS)
}

/// Returns a value that a third of the breadcrumbs of each schema has.
fn third(place: usize) -> usize {
    place / SCHEMAS % 3
}

/// A function that returns a query which finds the breadcrumb at a position.
pub(crate) type Asked = fn(usize) -> Query;

/// The measured searches. Each search finds at least one breadcrumb.
pub(crate) const SEARCHES: [(&str, Asked); 9] = [
    ("latest of a schema", |place| {
        Query::new(Selector::schema(schema(place))).limit(1)
    }),
    ("10 recent of a schema", |place| {
        Query::new(Selector::schema(schema(place)))
    }),
    ("10 of a tag that few have", |place| {
        Query::new(Selector::any().all_tags([session(place)]))
    }),
    ("10 of a tag that all have", |_| {
        Query::new(Selector::any().all_tags(["everything"]))
    }),
    ("schema and a tag that few have", |place| {
        Query::new(Selector::schema(schema(place)).all_tags([session(place)]))
    }),
    ("schema and a tag that all have", |place| {
        Query::new(Selector::schema(schema(place)).all_tags(["everything"]))
    }),
    ("two tags that some have", |place| {
        let group = format!("group:{}", place % 7);
        Query::new(Selector::any().all_tags([group, "everything".to_owned()]))
    }),
    ("one of two tags", |place| {
        Query::new(Selector::any().any_tags([session(place), "group:3".to_owned()]))
    }),
    ("schema and context", |place| {
        let third = third(place);
        Query::new(Selector::schema(schema(place)).matching("$.third", "eq", third))
    }),
];
