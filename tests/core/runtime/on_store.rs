//! A runtime on a store: the start positions of its executors, its start and its stop.

use super::{DAY, MINUTE, SECOND};
use crate::support::{Probe, all, eventually};
use serde_json::json;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::advance;
use universal_executor::agent::{Agent, ScriptedModel};
use universal_executor::executor::Executor;
use universal_executor::model::EventKind;
use universal_executor::runtime::{FirstStart, RunReport, RuntimeError};
use universal_executor::{
    BoxError, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Response, Runtime, Subscription,
    executor,
};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Creates an executor that answers each order with a receipt.
fn clerk() -> Executor {
    executor("clerk")
        .on(Subscription::trigger("order.v1"))
        .execute(|cx| async move {
            let id = cx.trigger().context["id"].clone();
            let receipt = NewBreadcrumb::new("receipt.v1").context(json!({"id": id}));
            Ok(Response::create(receipt))
        })
}

fn order(id: u64) -> NewBreadcrumb {
    NewBreadcrumb::new("order.v1").context(json!({"id": id}))
}

/// Returns the IDs of the orders with receipts.
async fn receipts(store: &MemoryStore) -> Vec<u64> {
    let all = all(store, "receipt.v1").await;
    let mut ids: Vec<u64> = all
        .iter()
        .filter_map(|receipt| receipt.context["id"].as_u64())
        .collect();
    ids.sort_unstable();
    ids
}

/// Runs the clerk until an order that is written after the start has its receipt.
async fn run(store: &MemoryStore, first: FirstStart, last: u64) -> Result<RunReport, BoxError> {
    let running = Runtime::on(store).executor(clerk()).first_start(first);
    let running = running.start().await?;
    store.create(order(last)).await?;
    eventually(async || receipts(store).await.contains(&last)).await;
    // Wait for triggers that must not be answered.
    tokio::time::sleep(MINUTE).await;
    Ok(running.stop().await?)
}

#[tokio::test(start_paused = true)]
async fn a_first_start_answers_the_last_hour() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    store.create(order(1)).await?;
    advance(HOUR - MINUTE).await;

    let report = run(&store, FirstStart::LastHour, 2).await?;

    assert_eq!(receipts(&store).await, [1, 2]);
    assert_eq!(report.responded, 2);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_first_start_with_older_triggers_fails_and_names_their_number() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    for id in 1..=600 {
        store.create(order(id)).await?;
    }
    store.create(NewBreadcrumb::new("other.v1")).await?;
    advance(HOUR + SECOND).await;
    store.create(order(601)).await?;

    let error = Runtime::on(&store)
        .executor(clerk())
        .start()
        .await
        .unwrap_err();

    let is_expected = matches!(&error, RuntimeError::OlderTriggers { executor, count: 600, is_exact: true } if executor == "clerk");
    assert!(is_expected, "{error:?}");
    assert!(error.to_string().contains("600 breadcrumbs"), "{error}");
    assert!(receipts(&store).await.is_empty());
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_user_decides_about_older_triggers() -> Result<(), BoxError> {
    for (name, expected) in [
        ("oldest", vec![1, 2, 3, 4]),
        ("since", vec![2, 3, 4]),
        ("now", vec![4]),
    ] {
        let store = MemoryStore::default();
        store.create(order(1)).await?;
        advance(HOUR).await;
        let second = store.create(order(2)).await?;
        advance(HOUR).await;
        store.create(order(3)).await?;
        let first = match name {
            "oldest" => FirstStart::Oldest,
            "since" => FirstStart::Since(second.updated_at),
            _ => FirstStart::Now,
        };

        run(&store, first, 4).await?;

        assert_eq!(receipts(&store).await, expected, "{name}");
    }
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_restart_continues_at_the_position_after_any_downtime() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    store.create(order(1)).await?;
    run(&store, FirstStart::Now, 2).await?;
    store.create(order(3)).await?;
    advance(10 * DAY).await;

    run(&store, FirstStart::LastHour, 4).await?;

    assert_eq!(receipts(&store).await, [2, 3, 4]);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_new_executor_beside_an_old_one_has_its_own_first_start() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    run(&store, FirstStart::Oldest, 1).await?;
    advance(2 * HOUR).await;
    let auditor = || {
        executor("auditor")
            .on(Subscription::trigger("order.v1"))
            .execute(|_| async { Ok(Response::none()) })
    };
    let both = || Runtime::on(&store).executor(clerk()).executor(auditor());

    let error = both().start().await.unwrap_err();

    let is_expected = matches!(&error, RuntimeError::OlderTriggers { executor, count: 1, .. } if executor == "auditor");
    assert!(is_expected, "{error:?}");
    let running = both().first_start(FirstStart::Now).start().await?;
    assert_eq!(running.stop().await?.responded, 0);
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_new_executor_does_not_get_the_events_that_an_old_one_catches_up_with()
-> Result<(), BoxError> {
    let store = MemoryStore::default();
    run(&store, FirstStart::Oldest, 1).await?;
    store.create(order(2)).await?;
    advance(HOUR / 2).await;
    let auditor = Probe::on("order.v1", "auditor", &store).shared();
    let both = Runtime::on(&store)
        .executor(clerk())
        .executor(Arc::clone(&auditor));

    let running = both.first_start(FirstStart::Now).start().await?;
    store.create(order(3)).await?;
    eventually(async || receipts(&store).await == [1, 2, 3]).await;
    tokio::time::sleep(MINUTE).await;

    assert_eq!(auditor.executed(), 1);
    assert_eq!(auditor.context(0).trigger().context["id"], 3);
    running.stop().await?;
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_deletion_during_a_downtime_is_answered() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    let undertaker = || {
        let deleted = Subscription::trigger("order.v1").on([EventKind::Deleted]);
        executor("undertaker").on(deleted).execute(|cx| async move {
            let id = cx.trigger().context["id"].clone();
            let receipt = NewBreadcrumb::new("receipt.v1").context(json!({"id": id}));
            Ok(Response::create(receipt))
        })
    };
    let start = || Runtime::on(&store).executor(undertaker()).start();
    start().await?.stop().await?;
    let first = store.create(order(1)).await?;
    store.delete(first.id).await?;
    advance(DAY).await;

    let running = start().await?;

    eventually(async || receipts(&store).await == [1]).await;
    running.stop().await?;
    Ok(())
}

#[tokio::test]
async fn an_executor_on_another_store_is_refused() -> Result<(), BoxError> {
    let (store, other) = (MemoryStore::default(), MemoryStore::default());

    let runtime = Runtime::on(&store).executor(clerk().bind(&other)?);

    let error = runtime.build().unwrap_err();
    assert!(
        matches!(&error, RuntimeError::OtherStore { id, .. } if id == "clerk"),
        "{error:?}"
    );
    let same = Runtime::on(&store).executor(clerk().bind(&store.clone())?);
    assert!(same.build().is_ok());
    Ok(())
}

#[tokio::test]
async fn executors_and_agents_without_a_store_need_one_from_the_runtime() {
    let events = MemoryStore::default().events();
    let error = Runtime::builder(events)
        .executor(clerk())
        .build()
        .unwrap_err();
    assert!(error.to_string().contains(".bind(&store)"), "{error}");

    let helper = Agent::new("helper", ScriptedModel::new(["Hi"]));
    let agent = helper.on(Subscription::trigger("user.message.v1"));
    let error = Runtime::builder(MemoryStore::default().events())
        .agent(agent)
        .build()
        .unwrap_err();
    assert!(
        matches!(&error, RuntimeError::NoStore { id } if id == "helper"),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_bad_executor_and_a_bad_agent_are_errors_of_the_start() {
    let store = MemoryStore::default();
    let nothing = executor("clerk").execute(|_| async { Ok(Response::none()) });
    let error = Runtime::on(&store)
        .executor(nothing)
        .start()
        .await
        .unwrap_err();
    assert!(
        error.source().unwrap().to_string().contains("no trigger"),
        "{error:?}"
    );

    let helper = Agent::new("helper", ScriptedModel::new(["Hi"]));
    let error = Runtime::on(&store).agent(helper).start().await.unwrap_err();
    assert!(matches!(error, RuntimeError::Agent(_)), "{error:?}");
}

#[tokio::test]
async fn an_agent_of_the_runtime_answers() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    let helper = Agent::new("helper", ScriptedModel::new(["Hello, Ann!"]))
        .instructions("Greet the user.")
        .on(Subscription::trigger("user.message.v1"));
    let running = Runtime::on(&store).agent(helper).start().await?;

    store
        .create(NewBreadcrumb::new("user.message.v1").context(json!({"message": "I am Ann"})))
        .await?;
    eventually(async || !all(&store, "agent.response.v1").await.is_empty()).await;

    let response = store
        .latest("agent.response.v1")
        .await?
        .ok_or("no response")?;
    assert_eq!(response.context.text("message"), Some("Hello, Ann!"));
    assert_eq!(running.stop().await?.responded, 1);
    Ok(())
}

/// Creates an executor that reports each start and waits for a permit.
fn slow(begun: &Arc<Notify>, permits: &Arc<Semaphore>) -> Executor {
    executor("slow")
        .on(Subscription::trigger("order.v1"))
        .state((Arc::clone(begun), Arc::clone(permits)))
        .execute(|cx, (begun, permits)| async move {
            begun.notify_one();
            permits.acquire().await?.forget();
            let id = cx.trigger().context["id"].clone();
            let receipt = NewBreadcrumb::new("receipt.v1").context(json!({"id": id}));
            Ok(Response::create(receipt))
        })
}

#[tokio::test]
async fn dropping_a_running_runtime_finishes_the_running_work() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    let (begun, permits) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let running = Runtime::on(&store)
        .executor(slow(&begun, &permits))
        .start()
        .await?;
    let runtime = Arc::clone(running.runtime());
    store.create(order(1)).await?;
    begun.notified().await;

    drop(running);
    store.create(order(2)).await?;
    permits.add_permits(2);

    eventually(async || !receipts(&store).await.is_empty()).await;
    // The runtime's task has the other handle until it ends.
    eventually(async || Arc::strong_count(&runtime) == 1).await;
    assert_eq!(
        receipts(&store).await,
        [1],
        "no run must be claimed after the drop"
    );
    Ok(())
}

#[tokio::test]
async fn a_dropped_stop_stops_the_runtime_nevertheless() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    let (begun, permits) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let running = Runtime::on(&store)
        .executor(slow(&begun, &permits))
        .start()
        .await?;
    let runtime = Arc::clone(running.runtime());
    store.create(order(1)).await?;
    begun.notified().await;

    drop(tokio::time::timeout(Duration::ZERO, running.stop()).await);
    permits.add_permits(1);

    eventually(async || !receipts(&store).await.is_empty()).await;
    // The runtime's task has the other handle until it ends.
    eventually(async || Arc::strong_count(&runtime) == 1).await;
    Ok(())
}

#[tokio::test]
async fn a_panic_of_an_executor_does_not_end_the_runtime() -> Result<(), BoxError> {
    let store = MemoryStore::default();
    let probe = Probe::on("order.v1", "probe", &store).executing(|_| async { panic!("no") });
    let running = Runtime::on(&store)
        .executor(probe)
        .executor(clerk())
        .start()
        .await?;

    store.create(order(1)).await?;

    eventually(async || !receipts(&store).await.is_empty()).await;
    running.stop().await?;
    Ok(())
}

#[cfg(all(feature = "signal", unix))]
fn terminate() {
    let pid = std::process::id().to_string();
    let status = std::process::Command::new("kill")
        .args(["-TERM", &pid])
        .status();
    assert!(status.unwrap().success());
}

#[cfg(all(feature = "signal", unix))]
#[tokio::test]
async fn a_signal_finishes_the_running_work_and_a_second_one_stops_at_once() -> Result<(), BoxError>
{
    let store = MemoryStore::default();
    let (begun, permits) = (Arc::default(), Arc::new(Semaphore::new(0)));
    let start = || {
        let runtime = Runtime::on(&store).executor(slow(&begun, &permits));
        tokio::spawn(runtime.run_until_signal())
    };

    let first = start();
    store.create(order(1)).await?;
    begun.notified().await;
    terminate();
    permits.add_permits(1);
    assert_eq!(first.await??.responded, 1);

    let second = start();
    store.create(order(2)).await?;
    begun.notified().await;
    // Wait until the first signal is received before the second one is sent, because the system merges pending signals.
    let mut received = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    terminate();
    received.recv().await;
    terminate();
    assert_eq!(second.await??.responded, 0);
    Ok(())
}
