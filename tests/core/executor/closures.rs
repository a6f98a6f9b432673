//! Executors made of closures.

use serde_json::{Value, json};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::executor::{
    BoundExecutor, ExecutorBuilder, InvalidExecutor, NoState, OrderingKey,
};
use universal_executor::model::Patch;
use universal_executor::store::{RunFilter, RunRef, Wake};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, ExecutionContext,
    MemoryStore, NewBreadcrumb, Outcome, Response, RunLedger, Selector, Subscription,
    Subscriptions, UniversalExecutor, async_trait, executor, suspend,
};

fn order(id: u64) -> NewBreadcrumb {
    NewBreadcrumb::new("order.v1").context(json!({"id": id}))
}

fn on_orders() -> Subscription {
    Subscription::trigger("order.v1")
}

fn receipt(context: Value) -> Response {
    Response::create(NewBreadcrumb::new("receipt.v1").context(context))
}

#[tokio::test]
async fn a_closure_answers_its_trigger_once() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    let clerk = executor("clerk")
        .on(on_orders())
        .execute(|cx| async move { Ok(receipt(json!({"order": cx.trigger().context["id"]}))) })
        .bind(&store)?;
    let event = Event::created(&*store.create(order(7)).await?);

    assert!(matches!(
        clerk.process_event(&event).await?,
        Outcome::Responded { .. }
    ));
    assert!(matches!(
        clerk.process_event(&event).await?,
        Outcome::AlreadyDone { .. }
    ));

    let receipts = store.recent("receipt.v1", 10).await?;
    assert_eq!(receipts.len(), 1);
    assert_eq!(receipts[0].context["order"], 7);
    Ok(())
}

#[tokio::test]
async fn each_call_gets_the_sources_and_a_clone_of_the_state() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    let calls = Arc::new(AtomicUsize::new(0));
    let clerk = executor("clerk")
        .on(on_orders())
        .reads(Subscription::context("price.v1").key("price"))
        .state(Arc::clone(&calls))
        .execute(|cx, calls| async move {
            let call = calls.fetch_add(1, Ordering::SeqCst);
            let price = cx.require("price")?["amount"].clone();
            Ok(receipt(json!({"call": call, "price": price})))
        })
        .bind(&store)?;
    store
        .create(NewBreadcrumb::new("price.v1").context(json!({"amount": 5})))
        .await?;

    for id in 0..2 {
        clerk
            .process_event(&Event::created(&*store.create(order(id)).await?))
            .await?;
    }

    let newest = store.latest("receipt.v1").await?.ok_or("no receipt")?;
    assert_eq!(
        (&newest.context["call"], &newest.context["price"]),
        (&json!(1), &json!(5))
    );
    assert_eq!(calls.load(Ordering::SeqCst), 2);
    Ok(())
}

#[tokio::test]
async fn a_closure_can_return_errors_of_different_types_and_use_captured_values()
-> Result<(), BoxError> {
    let store = MemoryStore::default();
    let (reads, limit) = (store.clone(), String::from("100"));
    let clerk = executor("clerk")
        .on(on_orders())
        .execute(move |cx| {
            let (reads, limit) = (reads.clone(), limit.clone());
            async move {
                let limit: u64 = limit.parse()?;
                let found = reads.get(cx.trigger().id).await?;
                let id = found.context["id"].as_u64().ok_or("the order has no ID")?;
                let order: Value = serde_json::from_str(&format!("{{\"id\": {id}}}"))?;
                cx.require("order")?;
                Ok(receipt(json!({"order": order, "limit": limit})))
            }
        })
        .bind(&store)?;
    let event = Event::created(&*store.create(order(7)).await?);

    let outcome = clerk.process_event(&event).await?;

    assert!(matches!(outcome, Outcome::Failed { .. }), "{outcome:?}");
    let run = store.runs(&RunFilter::all()).await?.pop().ok_or("no run")?;
    assert!(run.cause.is_some_and(|cause| cause.contains("\"order\"")));
    Ok(())
}

#[tokio::test]
async fn the_settings_of_the_builder_are_the_profile_of_the_executor() -> Result<(), BoxError> {
    let clerk = executor("clerk")
        .on(on_orders())
        .responds_with(["receipt.v1"])
        .timeout(Duration::from_secs(3))
        .attempts(2)
        .ordered_by(OrderingKey::tag("session:"))
        .at_most_once()
        .profile(|profile| profile.hop_limit(4))
        .execute(|_| async { Ok(Response::none()) })
        .bind(&MemoryStore::default())?;

    let profile = clerk.profile();
    assert_eq!(profile.responds_with, Some(vec!["receipt.v1".to_owned()]));
    assert_eq!(
        (profile.timeout, profile.retry.attempts, profile.hop_limit),
        (Duration::from_secs(3), 2, 4)
    );
    assert_eq!(profile.ordering, OrderingKey::tag("session:"));
    assert_eq!(
        profile.execution,
        universal_executor::executor::Execution::AtMostOnce
    );
    Ok(())
}

#[tokio::test]
async fn a_closure_can_suspend_its_run() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    let clerk = executor("clerk")
        .on(on_orders())
        .execute(|cx| async move {
            let Some(resumed) = cx.resumed() else {
                let payment = Selector::schema("payment.v1");
                return Err(
                    suspend(Wake::on(payment), json!({"asked": true})).writing(Response::none())
                );
            };
            Ok(receipt(json!({"asked": resumed.state["asked"]})))
        })
        .bind(&store)?;
    let event = Event::created(&*store.create(order(7)).await?);

    assert!(matches!(
        clerk.process_event(&event).await?,
        Outcome::Suspended { .. }
    ));
    let payment = store.create(NewBreadcrumb::new("payment.v1")).await?;
    let ledger = store.ledger().ok_or("no ledger")?;
    ledger
        .resume(&RunRef::of("clerk", &event), payment.id)
        .await?;

    assert!(matches!(
        clerk.process_event(&event).await?,
        Outcome::Responded { .. }
    ));
    let receipt = store.latest("receipt.v1").await?.ok_or("no receipt")?;
    assert_eq!(receipt.context["asked"], true);
    Ok(())
}

/// A wrapper that forwards only the methods without a default implementation.
struct Wrapped(BoundExecutor);

#[async_trait]
impl UniversalExecutor for Wrapped {
    fn id(&self) -> &str {
        self.0.id()
    }

    fn subscriptions(&self) -> &Subscriptions {
        self.0.subscriptions()
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        self.0.store()
    }

    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError> {
        self.0.execute(trigger, context).await
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        self.0.respond(trigger, output).await
    }
}

#[tokio::test]
async fn a_wrapper_around_a_closure_writes_the_same_response() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    let old = store.create(NewBreadcrumb::new("draft.v1")).await?;
    let done = store
        .create(NewBreadcrumb::new("todo.v1").context(json!({"open": true})))
        .await?;
    let (old, todo) = (old.id, done.id);
    let clerk = executor("clerk")
        .on(on_orders())
        .execute(move |_| async move {
            let patch = Patch::default().context(json!({"open": false}));
            Ok(receipt(json!({"big": u64::MAX}))
                .and_update(todo, 1, patch)
                .and_delete(old))
        });
    let event = Event::created(&*store.create(order(7)).await?);

    let outcome = Wrapped(clerk.bind(&store)?).process_event(&event).await?;

    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
    let receipt = store.latest("receipt.v1").await?.ok_or("no receipt")?;
    assert_eq!(receipt.context["big"], u64::MAX);
    assert_eq!(store.get(todo).await?.context["open"], false);
    assert!(store.get(old).await.is_err());
    Ok(())
}

#[test]
fn a_subscription_of_the_wrong_role_is_an_error_that_names_the_method() {
    let store = MemoryStore::default();
    let finish = |builder: ExecutorBuilder<NoState>| {
        let executor = builder.execute(|_: ExecutionContext| async { Ok(Response::none()) });
        executor.bind(&store).unwrap_err().to_string()
    };

    let context = finish(executor("clerk").on(Subscription::context("price.v1")));
    let trigger = finish(
        executor("clerk")
            .on(on_orders())
            .reads(Subscription::trigger("price.v1")),
    );

    let expected = "the context subscription of executor \"clerk\" to \"price.v1\" was passed to .on(..); pass it to .reads(..)";
    assert_eq!(context, expected);
    assert!(
        trigger.ends_with("was passed to .reads(..); pass it to .on(..)"),
        "{trigger}"
    );
}

#[test]
fn an_executor_that_cannot_work_is_refused_with_its_cause() {
    let store = MemoryStore::default();
    let none = || executor("clerk").execute(|_| async { Ok(Response::none()) });
    let error = none().bind(&store).unwrap_err();
    assert!(
        matches!(error, InvalidExecutor::NoTrigger { .. }),
        "{error:?}"
    );

    let twice = executor("clerk")
        .on(on_orders())
        .reads(Subscription::context("price.v1").key("same"))
        .reads(Subscription::context("stock.v1").key("same"))
        .execute(|_| async { Ok(Response::none()) });
    let error = twice.bind(&store).unwrap_err();
    assert!(
        error.source().unwrap().to_string().contains("\"same\""),
        "{error:?}"
    );

    let unnamed = executor("")
        .on(on_orders())
        .execute(|_| async { Ok(Response::none()) });
    assert_eq!(unnamed.bind(&store).unwrap_err(), InvalidExecutor::NoId);
}
