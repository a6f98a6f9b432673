//! Executors that an operator pauses and resumes while events arrive.

use crate::runtime_order::harness::{
    ExecutionLog, SECOND, count, from_beginning, in_state, until, until_ended,
};
use crate::support::{Call, Do, Probe, Shim, event_of, eventually, put, runs};
use futures::FutureExt as _;
use serde_json::json;
use std::error::Error as _;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use universal_executor::error::Retry;
use universal_executor::executor::Outcome;
use universal_executor::runtime::RuntimeError;
use universal_executor::store::{PausedExecutor, RunState};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Patch, Response,
    RunLedger, UniversalExecutor,
};

/// Creates an executor that answers each trigger after the number of seconds in the trigger.
fn prober(store: &(impl BreadcrumbStore + Clone), id: &str, notebook: &ExecutionLog) -> Probe {
    let notebook = notebook.clone();
    Probe::on("question.v1", id, store)
        .executing(move |context| {
            let notebook = notebook.clone();
            async move {
                let note = notebook.start(&context);
                let seconds = context.trigger().context["n"].as_u64().unwrap_or_default();
                sleep(SECOND * u32::try_from(seconds).unwrap()).await;
                notebook.end(note);
                Ok(json!({}))
            }
        })
        .writing(Response::create(NewBreadcrumb::new("answer.v1")))
}

#[tokio::test(start_paused = true)]
async fn a_paused_executor_finishes_its_runs_and_starts_the_others_once_it_is_resumed() {
    let store = MemoryStore::default();
    let notebook = ExecutionLog::default();
    put(&store, "question.v1", json!({"key": "a", "n": 5})).await;
    let runtime = from_beginning(&store)
        .executor(prober(&store, "prober", &notebook))
        .sweep_every(Duration::from_secs(3_600))
        .build()
        .unwrap();

    let stop = async {
        eventually(async || notebook.len() == 1).await;
        assert!(runtime.pause("prober").await.unwrap());
        assert!(
            !runtime.pause("prober").await.unwrap(),
            "a second pause must change nothing"
        );
        for n in 0..3 {
            put(&store, "question.v1", json!({"key": "b", "n": n})).await;
        }
        until(&store, "answer.v1", 1).await;
        eventually(async || runs(&store).await.len() == 4).await;
        sleep(SECOND * 600).await;
        assert_eq!(notebook.len(), 1, "no other run must start");
        assert_eq!(in_state(&store, RunState::Ready).await.len(), 3);

        let resumed = Instant::now();
        assert!(runtime.resume("prober").await.unwrap());
        until_ended(&store, 4).await;
        assert!(
            resumed.elapsed() < SECOND * 60,
            "the run must not wait for a sweep"
        );
        assert!(
            !runtime.resume("prober").await.unwrap(),
            "a second resume must change nothing"
        );
    };
    let report = runtime.run_until(stop).await.unwrap();

    assert_eq!(count(&store, "answer.v1").await, 4);
    assert_eq!(report.responded, 4);
}

#[tokio::test(start_paused = true)]
async fn another_process_finds_the_runs_of_a_resumed_executor_with_its_next_sweep() {
    let store = MemoryStore::default();
    let notebook = ExecutionLog::default();
    store.pause_executor("prober").await.unwrap();
    put(&store, "question.v1", json!({"key": "a"})).await;
    let runtime = from_beginning(&store)
        .executor(prober(&store, "prober", &notebook))
        .sweep_every(SECOND * 60)
        .build()
        .unwrap();

    let stop = async {
        eventually(async || runs(&store).await.len() == 1).await;
        sleep(SECOND * 90).await;
        assert_eq!(notebook.len(), 0, "the run must not start");
        store.resume_executor("prober").await.unwrap();
        let resumed = Instant::now();
        until_ended(&store, 1).await;
        assert!(resumed.elapsed() <= SECOND * 61);
    };
    runtime.run_until(stop).await.unwrap();

    assert_eq!(count(&store, "answer.v1").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_pause_of_one_executor_leaves_the_others_at_work() {
    let store = MemoryStore::default();
    let (paused, other) = (ExecutionLog::default(), ExecutionLog::default());
    store.pause_executor("paused").await.unwrap();
    for n in 0..10 {
        put(&store, "question.v1", json!({"key": "a", "n": n % 2})).await;
    }
    let runtime = from_beginning(&store)
        .executor(prober(&store, "paused", &paused))
        .executor(prober(&store, "other", &other))
        .build()
        .unwrap();

    runtime
        .run_until(until(&store, "answer.v1", 10))
        .await
        .unwrap();

    assert_eq!((paused.len(), other.len()), (0, 10));
    assert_eq!(in_state(&store, RunState::Ready).await.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn an_event_for_a_paused_executor_is_processed_to_a_run_that_waits() {
    let store = MemoryStore::default();
    let notebook = ExecutionLog::default();
    let question = put(&store, "question.v1", json!({"key": "a"})).await;
    let event = event_of(&question);
    let prober = prober(&store, "prober", &notebook);
    store.pause_executor("prober").await.unwrap();
    let [PausedExecutor { since, .. }] = store.paused_executors().await.unwrap()[..] else {
        panic!("the event must be processed to a waiting run");
    };

    let outcome = prober.process_event(&event).await.unwrap();

    assert_eq!(outcome, Outcome::Paused { since });
    assert_eq!(outcome.name(), "paused");
    assert_eq!(notebook.len(), 0);
    assert_eq!(in_state(&store, RunState::Ready).await.len(), 1);
    store.resume_executor("prober").await.unwrap();
    let outcome = prober.process_event(&event).await.unwrap();
    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_later_version_of_the_trigger_of_a_running_run_waits_for_the_end_of_a_pause() {
    let store = MemoryStore::default();
    let notebook = ExecutionLog::default();
    let question = put(&store, "question.v1", json!({"key": "a"})).await;
    let changed = Patch::new().context(json!({"key": "a", "n": 1}));
    let newer = store.update(question.id, 1, changed).await.unwrap();
    let pausing = store.clone();
    let shim = Shim::new(&store, move |call| {
        // The read of the trigger shows that the run is claimed.
        if let Call::Get(_) = call {
            pausing
                .pause_executor("prober")
                .now_or_never()
                .unwrap()
                .unwrap();
        }
        Do::Pass
    });
    let prober = prober(&shim, "prober", &notebook);

    let outcome = prober.process_event(&event_of(&question)).await.unwrap();

    assert_eq!(outcome, Outcome::Superseded);
    assert_eq!(notebook.len(), 0);
    assert_eq!(in_state(&store, RunState::Ready).await.len(), 1);
    store.resume_executor("prober").await.unwrap();
    let outcome = prober.process_event(&Event::updated(&newer)).await.unwrap();
    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_cannot_be_paused_reports_the_reason() {
    let store = MemoryStore::default();
    let prober = prober(&store, "prober", &ExecutionLog::default());
    let runtime = from_beginning(&store).executor(prober).build().unwrap();

    let (unpaused, unresumed) = (
        runtime.pause("nobody").await.unwrap_err(),
        runtime.resume("nobody").await.unwrap_err(),
    );

    for error in [&unpaused, &unresumed] {
        assert!(matches!(error, RuntimeError::UnknownExecutor { id } if id == "nobody"));
    }
    for n in 0..PausedExecutor::MOST {
        store.pause_executor(&n.to_string()).await.unwrap();
    }
    let full = runtime.pause("prober").await.unwrap_err();
    assert!(matches!(&full, RuntimeError::Pause { id, .. } if &**id == "prober"));
    let source = full.source().unwrap().to_string();
    assert_eq!(
        source,
        "MemoryStore is full: it holds at most 10000 paused executors"
    );
    assert!(matches!(full.retry(), Retry::After(_)));
    assert!(
        !store.pause_executor("7").await.unwrap(),
        "a second pause must change nothing"
    );
}
