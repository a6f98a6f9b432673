//! The tool catalog is one breadcrumb, regardless of the number of publishers.

use crate::support::all;
use crate::tools::{echo, only, registry};
use futures::future::join_all;
use serde_json::json;
use std::time::Duration;
use universal_executor::store::{Fault, Faulty, StoreError};
use universal_executor::tool::{Catalog, Published};
use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, Patch, WithLedger};

#[tokio::test(start_paused = true)]
async fn three_workers_that_publish_at_once_leave_one_catalog_written_once() {
    let store = MemoryStore::default();
    let catalog = Catalog::of(&registry([echo("a"), echo("b")]));

    // Each call takes some time, so all publishers read the store before the first one has written.
    let slow = Faulty::new(store.clone(), |_, _| Fault::Delay(Duration::from_millis(1)));
    let done = join_all((0..3).map(|_| catalog.publish(&slow))).await;
    let done: Vec<Published> = done.into_iter().map(Result::unwrap).collect();

    let created = done.iter().filter(|done| **done == Published::Created);
    assert_eq!(created.count(), 1, "{done:?}");
    let written = only(&store, Catalog::SCHEMA).await;
    assert_eq!(written.version, 1);
    assert_eq!(written.context["tools"][1]["name"], "b");
    assert_eq!(written.tags, ["tool:catalog", "catalog:tools"]);
}

#[tokio::test]
async fn workers_on_many_threads_leave_one_catalog() {
    for _ in 0..20 {
        let store = MemoryStore::default();
        let tasks: Vec<_> = (0..4)
            .map(|_| {
                let (store, catalog) = (store.clone(), Catalog::of(&registry([echo("a")])));
                tokio::task::spawn_blocking(move || {
                    let handle = tokio::runtime::Handle::current();
                    handle.block_on(async move { catalog.publish(&store).await })
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap().unwrap();
        }

        assert_eq!(only(&store, Catalog::SCHEMA).await.version, 1);
    }
}

#[tokio::test]
async fn nothing_is_written_unless_something_changed() {
    let store = MemoryStore::default();
    let one = Catalog::of(&registry([echo("a")]));
    let two = Catalog::of(&registry([echo("a"), echo("b")]));

    let done = [
        one.publish(&store).await.unwrap(),
        one.publish(&store).await.unwrap(),
        two.publish(&store).await.unwrap(),
        two.publish(&store).await.unwrap(),
    ];

    use Published::{Created, Unchanged, Updated};
    assert_eq!(done, [Created, Unchanged, Updated, Unchanged]);
    assert_eq!(only(&store, Catalog::SCHEMA).await.version, 2);
}

#[tokio::test]
async fn a_catalog_that_was_deleted_is_created_again() {
    let store = MemoryStore::default();
    let catalog = Catalog::of(&registry([echo("a")]));
    for _ in 0..3 {
        assert_eq!(catalog.publish(&store).await.unwrap(), Published::Created);
        let written = only(&store, Catalog::SCHEMA).await;

        store.delete(written.id).await.unwrap();
    }
}

#[tokio::test]
async fn catalogs_of_other_names_stand_beside_one_another() {
    let store = MemoryStore::default();

    for name in ["mail", "web"] {
        let catalog = Catalog::of(&registry([echo(name)])).named(name);
        catalog.publish(&store).await.unwrap();
    }

    assert_eq!(all(&store, Catalog::SCHEMA).await.len(), 2);
}

#[tokio::test]
async fn a_forged_catalog_is_corrected_and_adds_no_tool() -> Result<(), StoreError> {
    let store = MemoryStore::default();
    let tools = registry([echo("a")]);
    let catalog = Catalog::of(&tools);
    catalog.publish(&store).await?;
    let written = only(&store, Catalog::SCHEMA).await;
    let forged = Patch::new().context(json!({"tools": [{"name": "delete-all"}]}));
    store.update(written.id, 1, forged).await?;

    let done = catalog.publish(&store).await?;

    assert_eq!(done, Published::Updated);
    let put_right = store.get(written.id).await?;
    assert_eq!(put_right.context["tools"][0]["name"], "a");
    assert!(tools.get("delete-all").is_none());
    Ok(())
}

#[tokio::test]
async fn a_store_with_the_ledger_of_another_has_one_catalog_too() {
    let (store, ledger) = (MemoryStore::default(), MemoryStore::default());
    let both = WithLedger::new(store.clone(), ledger);
    let catalog = Catalog::of(&registry([echo("a")]));

    let done = [
        catalog.publish(&both).await.unwrap(),
        catalog.publish(&both).await.unwrap(),
    ];

    assert_eq!(done, [Published::Created, Published::Unchanged]);
    assert_eq!(all(&store, Catalog::SCHEMA).await.len(), 1);
}
