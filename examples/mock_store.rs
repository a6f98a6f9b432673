//! Test of an executor with a mock store: with prepared breadcrumbs, and with expectations.
//!
//! Run with `cargo run --example mock_store`. In your own project, enable the feature `mock` in the dev-dependency.

#![expect(clippy::print_stdout, reason = "the output is the point of an example")]

use serde_json::{Value, json};
use universal_executor::store::StoreError;
use universal_executor::store::mock::{MockBreadcrumbStore, store_with};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, ExecutionContext,
    NewBreadcrumb, Outcome, Response, Subscription, Subscriptions, UniversalExecutor, async_trait,
};

/// The tested executor, which counts the notes of a session.
struct Counter {
    store: MockBreadcrumbStore,
    subscriptions: Subscriptions,
}

#[async_trait]
impl UniversalExecutor for Counter {
    fn id(&self) -> &str {
        "counter"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, _: &Breadcrumb, context: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(json!({"notes": context.many("notes").len()}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(Response::create(
            NewBreadcrumb::new("count.v1").context(output),
        ))
    }
}

fn counter(store: MockBreadcrumbStore) -> Result<Counter, BoxError> {
    let notes = Subscription::context("note.v1").key("notes").recent(100);
    let subscriptions = Subscriptions::new([Subscription::trigger("count.request.v1"), notes])?;
    Ok(Counter {
        store,
        subscriptions,
    })
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), BoxError> {
    let request: Breadcrumb = NewBreadcrumb::new("count.request.v1").into();
    let event = Event::created(&request);

    let notes = [
        Breadcrumb::from(NewBreadcrumb::new("note.v1")),
        NewBreadcrumb::new("note.v1").into(),
    ];
    let counter_of_two = counter(store_with(notes.into_iter().chain([request])))?;
    counter_of_two.process_event(&event).await?;
    let count = counter_of_two
        .store
        .latest("count.v1")
        .await?
        .ok_or("the executor wrote no count")?;
    println!("with two notes: {}", count.context);

    let mut down = MockBreadcrumbStore::new();
    down.expect_tenant().return_const("default".to_owned());
    down.expect_ledger().returning(|| None);
    down.expect_get().times(1).returning(|_| {
        let source = "connection refused".into();
        Err(StoreError::Unavailable {
            store: "mock",
            retry_after: std::time::Duration::ZERO,
            source,
        })
    });
    let outcome: Result<Outcome, _> = counter(down)?.process_event(&event).await;
    println!(
        "with the store down: {:?}",
        outcome.map_err(|error| error.retry())
    );
    Ok(())
}
