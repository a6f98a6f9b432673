//! Conditions that must not prevent the end of a turn: endless output, listeners, leftovers, and a store that fails once.

use crate::workload::{Setup, code, flow, parrot};
use serde_json::{Value, json};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use universal_executor::model::Timestamp;
use universal_executor::store::{Fault, Faulty, Moment, Operation, Wake};
use universal_executor::workflow::MayRetry;
use universal_executor::workload::{
    Definition, NativeDefinition, Restart, RunCx, SubscriberItem, Supervisor, TurnStatus,
    WorkloadEvent, WorkloadEventKind, WorkloadExecutor,
};
use universal_executor::{
    BoxError, BreadcrumbStore, BreadcrumbStoreExt as _, Event, MemoryStore, NewBreadcrumb, Profile,
    Services, Subscription, Subscriptions, UniversalExecutor as _, suspend,
};

fn on(store: impl BreadcrumbStore) -> Setup {
    Setup::new(Services::new(), Arc::new(store))
}

fn supervisor(definition: impl Definition + 'static) -> Supervisor {
    let supervisor = on(MemoryStore::default()).supervisor(Arc::new(definition));
    supervisor.build().unwrap()
}

fn executor(definition: impl Definition + 'static, store: &MemoryStore) -> WorkloadExecutor {
    let messages = Subscriptions::new([Subscription::trigger("user.message.v1")]).unwrap();
    let setup = on(store.clone());
    setup
        .executor("desk", Arc::new(definition), messages)
        .unwrap()
}

async fn message(store: &MemoryStore) -> Event {
    let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "hi"}));
    Event::created(&store.create(message).await.unwrap())
}

/// Creates a workload that sends events without ever waiting.
fn talker() -> NativeDefinition {
    NativeDefinition::new("talker", |cx: RunCx, _| async move {
        for _ in 0..100_000 {
            cx.say("more").await;
        }
        Ok(json!("done"))
    })
}

#[tokio::test]
async fn a_turn_that_emits_events_endlessly_can_be_cancelled() {
    let supervisor = supervisor(talker());
    let mut subscriber = supervisor.subscribe("one").unwrap();
    let turn = supervisor.send("one", "go").unwrap();

    subscriber.next().await.unwrap();
    supervisor.cancel("one");

    assert_eq!(turn.outcome().await.status, TurnStatus::Cancelled);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_emits_events_endlessly_ends_at_its_timeout() {
    let store = MemoryStore::default();
    let told: Arc<Mutex<Vec<WorkloadEventKind>>> = Arc::default();
    let notes = Arc::clone(&told);
    let begun = Arc::new(Semaphore::new(0));
    let begins = Arc::clone(&begun);
    let second = Duration::from_secs(1);
    let desk = executor(talker(), &store)
        .with_profile(Profile::new("workload").timeout(second))
        .with_events(move |event: WorkloadEvent| {
            begins.add_permits(1);
            notes.lock().unwrap().push(event.kind);
        });
    let event = message(&store).await;

    let run = tokio::spawn(async move { desk.process_event(&event).await.map(drop) });
    begun.acquire().await.unwrap().forget();
    tokio::time::advance(second * 2).await;
    drop(run.await.unwrap());

    let end = WorkloadEventKind::failed("cancelled", "the turn was stopped");
    assert_eq!(told.lock().unwrap().last(), Some(&end));
}

#[tokio::test(start_paused = true)]
async fn a_panicking_event_listener_does_not_affect_the_turn() {
    let store = MemoryStore::default();
    let tried = Arc::new(AtomicUsize::new(0));
    let tries = Arc::clone(&tried);
    let works = NativeDefinition::new("works", move |_, _| {
        tries.fetch_add(1, Ordering::SeqCst);
        async { Ok(json!("done")) }
    });
    let called = Arc::new(AtomicUsize::new(0));
    let calls = Arc::clone(&called);
    let desk = executor(works, &store).with_events(move |_| {
        calls.fetch_add(1, Ordering::SeqCst);
        std::panic::resume_unwind(Box::new(()));
    });

    let event = message(&store).await;
    let done = desk.process_event(&event).await;

    assert!(done.is_ok(), "{done:?}");
    assert_eq!(tried.load(Ordering::SeqCst), 1);
    // The listener is called for the start and the end.
    assert_eq!(called.load(Ordering::SeqCst), 2);
    let result = store.latest(WorkloadExecutor::RESULT).await.unwrap();
    assert_eq!(result.unwrap().context["output"], "done");
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_stream_ends_at_close_even_if_a_workload_leaks_its_context() {
    let supervisor = supervisor(NativeDefinition::new("leaves", |cx: RunCx, _| async move {
        tokio::spawn(async move {
            let _kept = cx;
            std::future::pending::<()>().await;
        });
        Ok(Value::Null)
    }));
    let mut subscriber = supervisor.subscribe("one").unwrap();
    supervisor.send("one", "go").unwrap().outcome().await;

    supervisor.close().await;
    let ended = timeout(Duration::from_secs(60), async {
        while let Some(SubscriberItem::Event(_)) = subscriber.next().await {}
    });

    assert_eq!(ended.await, Ok(()));
}

#[tokio::test]
async fn turns_that_are_dropped_while_they_wait_count_as_ended() {
    let begun = Arc::new(Semaphore::new(0));
    let begins = Arc::clone(&begun);
    let supervisor = supervisor(NativeDefinition::new("hangs", move |_, _| {
        begins.add_permits(1);
        std::future::pending::<Result<Value, BoxError>>()
    }));
    let turns = [(); 3].map(|()| supervisor.send("one", "go").unwrap());
    begun.acquire().await.unwrap().forget();

    supervisor.cancel("one");
    for turn in turns {
        assert_eq!(turn.outcome().await.status, TurnStatus::Cancelled);
    }

    let health = supervisor.health();
    assert_eq!((health.ended, health.waiting), (3, 0), "{health:?}");
}

/// Returns a store and the number of its next searches that will fail.
fn failing() -> (impl BreadcrumbStore, Arc<AtomicUsize>) {
    let left = Arc::new(AtomicUsize::new(0));
    let fails = Arc::clone(&left);
    let store = Faulty::new(MemoryStore::default(), move |operation, at| {
        let is_one = operation == Operation::Search && at == Moment::Before;
        match is_one && fails.load(Ordering::SeqCst) > 0 {
            true => {
                fails.fetch_sub(1, Ordering::SeqCst);
                Fault::Fail
            }
            false => Fault::None,
        }
    });
    (store, left)
}

#[tokio::test(start_paused = true)]
async fn a_turn_resumes_after_a_failed_lookup_in_the_store() {
    let (store, fails) = failing();
    let waits = NativeDefinition::new("waits", |cx: RunCx, _| async move {
        match cx.context().resumed() {
            None => Err(suspend(Wake::at(Timestamp::from_micros(0)), json!(1)).into()),
            Some(_) => Ok(json!("done")),
        }
    });
    let restart = Restart {
        attempts: NonZeroU32::new(3).unwrap(),
        ..Restart::default()
    };
    let supervisor = on(store).supervisor(Arc::new(waits));
    let supervisor = supervisor.restart(restart).build().unwrap();
    let first = supervisor.send("one", "go").unwrap().outcome().await;
    let mut subscriber = supervisor.subscribe("one").unwrap();

    fails.store(1, Ordering::SeqCst);
    let outcome = supervisor.resume("one").unwrap().outcome().await;
    supervisor.close().await;

    assert_eq!(outcome.final_text().as_deref(), Some("done"), "{outcome:?}");
    assert_eq!(outcome.run, first.run);
    let mut told = Vec::new();
    while let Some(SubscriberItem::Event(event)) = subscriber.next().await {
        assert_eq!(event.run, first.run);
        told.push(event.kind.clone());
    }
    let output = json!("done").into();
    let expected = [
        WorkloadEventKind::Started,
        WorkloadEventKind::Final { output },
    ];
    assert_eq!(told, expected);
}

#[tokio::test]
async fn an_input_that_a_flow_does_not_take_is_not_taken_elsewhere_either() {
    let flow = flow(json!({
        "flows": {"main": {"steps": [{"return": "done"}]}},
    }));
    let setup = crate::workload::setup(&parrot(), &MemoryStore::default());
    let supervisor = setup.supervisor(Arc::new(flow)).build().unwrap();

    let turn = supervisor.send("one", "x".repeat(300 << 10)).unwrap();
    let status = turn.outcome().await.status;

    assert_eq!(code(&status), "refused", "{status:?}");
    let retry = MayRetry::Never;
    assert!(matches!(&status, TurnStatus::Failed { retry: found, .. } if *found == retry));
}
