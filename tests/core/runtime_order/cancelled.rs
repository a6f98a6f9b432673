//! Running and waiting runs that an operator cancels.

use crate::runtime_order::harness::{
    ExecutionLog, SECOND, count, from_beginning, in_state, tagged, until_ended,
};
use crate::support::{Probe, event_of, eventually, put};
use serde_json::json;
use std::future::pending;
use tokio::time::Instant;
use universal_executor::error::Retry;
use universal_executor::executor::OrderingKey;
use universal_executor::runtime::RuntimeError;
use universal_executor::store::{Cancelled, RunEnd, RunRef, RunState, StoreError};
use universal_executor::{MemoryStore, NewBreadcrumb, Profile, Response};

/// Creates an executor that answers each trigger, but hangs for the trigger with number 1.
fn prober(store: &MemoryStore, notebook: &ExecutionLog) -> Probe {
    let notebook = notebook.clone();
    let answer = NewBreadcrumb::new("answer.v1");
    Probe::on("question.v1", "prober", store)
        .profile(Profile::default().ordering(OrderingKey::tag("key:")))
        .executing(move |context| {
            let notebook = notebook.clone();
            async move {
                let note = notebook.start(&context);
                if context.trigger().context["n"] == 1 {
                    pending::<()>().await;
                }
                notebook.end(note);
                Ok(json!({}))
            }
        })
        .writing(Response::create(answer))
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_is_dropped_at_its_heartbeat_and_the_next_of_its_key_starts() {
    let store = MemoryStore::default();
    let notebook = ExecutionLog::default();
    let first = tagged(&store, "question.v1", "key:a", json!({"key": "a", "n": 1})).await;
    tagged(&store, "question.v1", "key:a", json!({"key": "a", "n": 2})).await;
    let prober = prober(&store, &notebook);
    let runtime = from_beginning(&store).executor(prober).build().unwrap();
    let run = RunRef::of("prober", &event_of(&first));
    let began = Instant::now();

    let stop = async {
        eventually(async || notebook.len() == 1).await;
        assert_eq!(runtime.cancel(&run).await.unwrap(), Cancelled::Running);
        until_ended(&store, 2).await;
    };
    let report = runtime.run_until(stop).await.unwrap();

    assert_eq!(count(&store, "answer.v1").await, 1, "one run has answered");
    assert_eq!((report.responded, report.failed), (1, 0));
    assert!(
        notebook.of("a", 1).end.is_none(),
        "the cancelled run must be dropped"
    );
    // Without the drop, the second run would wait for the first run's timeout of two minutes.
    assert!(notebook.of("a", 2).start - began < SECOND * 15);
    let failed = in_state(&store, RunState::Failed).await.remove(0);
    assert_eq!(failed.run, run);
    assert_eq!(failed.code.as_deref(), Some(RunEnd::CANCELLED));
    assert_eq!(count(&store, "executor.failed.v1").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_was_cancelled_before_it_started_never_starts_until_it_is_redone() {
    let store = MemoryStore::default();
    let notebook = ExecutionLog::default();
    tagged(&store, "question.v1", "key:a", json!({"key": "a", "n": 1})).await;
    let second = tagged(&store, "question.v1", "key:a", json!({"key": "a", "n": 2})).await;
    let prober = prober(&store, &notebook);
    let runtime = from_beginning(&store).executor(prober).build().unwrap();
    let run = RunRef::of("prober", &event_of(&second));

    let stop = async {
        eventually(async || notebook.len() == 1).await;
        assert_eq!(runtime.cancel(&run).await.unwrap(), Cancelled::Waiting);
        let first = in_state(&store, RunState::Running).await.remove(0).run;
        runtime.cancel(&first).await.unwrap();
        until_ended(&store, 2).await;
        assert_eq!(notebook.len(), 1, "the second run must not start");

        runtime.redo(&run).await.unwrap();
        until_ended(&store, 2).await;
        let over = Cancelled::Over(RunState::Done);
        assert_eq!(runtime.cancel(&run).await.unwrap(), over);
    };
    runtime.run_until(stop).await.unwrap();

    assert_eq!(notebook.len(), 2);
    assert_eq!(count(&store, "answer.v1").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_be_cancelled_reports_the_reason() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let prober = prober(&store, &ExecutionLog::default());
    let runtime = from_beginning(&store).executor(prober).build().unwrap();
    let cancel = async |executor: &str| {
        let run = RunRef::new(executor, question.id, 7);
        runtime.cancel(&run).await.unwrap_err()
    };

    let (nobody, unknown) = (cancel("nobody").await, cancel("prober").await);

    assert!(matches!(&nobody, RuntimeError::UnknownExecutor { id } if id == "nobody"));
    let source = StoreError::UnknownRun {
        run: RunRef::new("prober", question.id, 7),
    };
    assert!(
        matches!(&unknown, RuntimeError::Store { source: told, .. } if told.to_string() == source.to_string())
    );
    assert_eq!(
        (nobody.retry(), unknown.retry()),
        (Retry::Never, Retry::Never)
    );
}
