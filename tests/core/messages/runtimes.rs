//! Errors of building, starting and commanding a runtime.

use crate::support::{Probe, Shim};
use std::time::Duration;
use universal_executor::executor::Executor;
use universal_executor::{
    BreadcrumbStore as _, BreadcrumbStoreExt as _, MemoryStore, NewBreadcrumb, Response, Runtime,
    Subscription, executor,
};

fn clerk() -> Executor {
    executor("clerk")
        .on(Subscription::trigger("order.v1"))
        .execute(|_| async { Ok(Response::none()) })
}

#[tokio::test]
async fn a_command_to_an_unknown_executor_names_it() {
    let runtime = Runtime::on(&MemoryStore::default()).build().unwrap();

    let error = runtime.pause("clerk").await.unwrap_err();

    let expected = "the runtime has no executor with ID \"clerk\"; check the ID, or add the executor to the runtime";
    assert_eq!(error.to_string(), expected);
}

#[tokio::test]
async fn a_command_on_a_store_without_a_ledger_names_the_executor_and_the_wrapper() {
    let store = MemoryStore::default();
    let clerk = Probe::on("order.v1", "clerk", &Shim::without_ledger(&store));
    let runtime = Runtime::builder(store.events()).executor(clerk);

    let error = runtime.build().unwrap().pause("clerk").await.unwrap_err();

    let expected = "the store of executor \"clerk\" has no run ledger, so its runs cannot be redone, cancelled or skipped, and the executor cannot be paused; add a ledger with WithLedger";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_executor_without_a_store_is_named_with_the_ways_to_add_one() {
    let builder = Runtime::builder(MemoryStore::default().events());

    let error = builder.executor(clerk()).build().unwrap_err();

    let expected = "executor \"clerk\" has no store; call .bind(&store) on it, or build the runtime with Runtime::on(&store)";
    assert_eq!(error.to_string(), expected);
}

#[test]
fn an_executor_on_another_store_is_named_with_both_stores() {
    let (store, other) = (MemoryStore::default(), MemoryStore::default());
    let elsewhere = clerk().bind(&other).unwrap();

    let error = Runtime::on(&store).executor(elsewhere).build().unwrap_err();

    let (store, other) = (store.identity(), other.identity());
    let expected = format!(
        "executor \"clerk\" is bound to the store {other}, and its runtime runs on {store}; bind the executor to a clone of the runtime's store, or run it in a separate runtime"
    );
    assert_eq!(error.to_string(), expected);
}

#[tokio::test(start_paused = true)]
async fn older_triggers_are_counted_with_the_three_ways_to_start() {
    let store = MemoryStore::default();
    for _ in 0..3 {
        let order = NewBreadcrumb::new("order.v1");
        store.create(order).await.unwrap();
    }
    tokio::time::advance(Duration::from_secs(7_200)).await;

    let error = Runtime::on(&store)
        .executor(clerk())
        .start()
        .await
        .unwrap_err();

    let expected = "executor \"clerk\" starts for the first time, and 3 breadcrumbs that match its triggers are older than an hour; call .first_start with FirstStart::Oldest to process all of them, with FirstStart::Now to skip them, or with FirstStart::Since(time) to process those since a time";
    assert_eq!(error.to_string(), expected);
}
