//! Ends of runs on a failing store: every requester receives an answer.

use crate::support::{Call, Do, Probe, Shim, all, event_of, put, unavailable};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::advance;
use universal_executor::executor::ExecutorError;
use universal_executor::store::{FailureClass, RunRef};
use universal_executor::tool::{ToolExecutor, json_tool};
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, MemoryStore, Outcome, Patch, Response,
    RunLedger, Selector, UniversalExecutor, Wake, retry_after, suspend,
};

const SECOND: Duration = Duration::from_secs(1);

/// Creates a tool that returns its input or panics.
fn echo(store: impl BreadcrumbStore, panics: bool) -> ToolExecutor {
    let echo = json_tool(
        "echo",
        "Says it again.",
        json!({}),
        move |input, _| async move {
            assert!(!panics, "planned panic");
            Ok(input)
        },
    );
    ToolExecutor::new(echo, Arc::new(store)).unwrap()
}

async fn request(store: &MemoryStore) -> Arc<Breadcrumb> {
    put(
        store,
        "tool.request.v1",
        json!({"tool": "echo", "input": 1}),
    )
    .await
}

/// Creates a store that fails the first matching call.
fn failing_once(store: &MemoryStore, fails: fn(&Call<'_>) -> bool) -> Shim {
    let failed = AtomicBool::new(false);
    Shim::new(store, move |call| {
        if fails(&call) && !failed.swap(true, Ordering::SeqCst) {
            Do::Fail(unavailable())
        } else {
            Do::Pass
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_request_that_could_not_be_read_at_first_is_answered_by_a_tool_of_one_attempt() {
    let store = MemoryStore::default();
    let tool = echo(
        failing_once(&store, |call| matches!(call, Call::Get(_))),
        false,
    );
    let request = request(&store).await;

    let first = tool.process_event(&event_of(&request)).await;
    advance(10 * SECOND).await;
    let second = tool.process_event(&event_of(&request)).await.unwrap();

    assert!(
        matches!(first, Err(ExecutorError::Postponed { .. })),
        "{first:?}"
    );
    assert!(matches!(second, Outcome::Responded { .. }), "{second:?}");
    assert_eq!(
        all(&store, "tool.response.v1").await[0].context["status"],
        "success"
    );
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_fails_once_does_not_cost_the_requester_the_answer() {
    let store = MemoryStore::default();
    let writes =
        |call: &Call<'_>| matches!(call, Call::Commit(commit) if !commit.writes.is_empty());
    let tool = echo(failing_once(&store, writes), true);
    let request = request(&store).await;

    let first = tool.process_event(&event_of(&request)).await;
    advance(10 * SECOND).await;
    let second = tool.process_event(&event_of(&request)).await.unwrap();

    assert!(
        matches!(first, Err(ExecutorError::Postponed { .. })),
        "{first:?}"
    );
    assert!(matches!(second, Outcome::Failed { .. }), "{second:?}");
    assert_eq!(
        all(&store, "tool.response.v1").await[0].context["status"],
        "error"
    );
    assert_eq!(all(&store, "executor.failed.v1").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_tool_without_a_ledger_answers_a_panic_too() {
    let store = MemoryStore::default();
    let tool = echo(Shim::without_ledger(&store), true);
    let request = request(&store).await;

    let outcome = tool.process_event(&event_of(&request)).await.unwrap();

    let failed = Outcome::Failed {
        class: FailureClass::Panic,
        written: Vec::new(),
    };
    assert_eq!(outcome.name(), failed.name());
    assert_eq!(
        all(&store, "tool.response.v1").await[0].context["status"],
        "error"
    );
}

#[tokio::test(start_paused = true)]
async fn the_time_a_run_was_suspended_does_not_count_as_its_age() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let asks = Probe::on("question.v1", "asks", &store).executing(|context| async move {
        if context.resumed().is_none() {
            let approval = Wake::on(Selector::schema("approval.v1"));
            return Err(suspend(approval, json!({})).writing(Response::none()));
        }
        Err(retry_after(SECOND, "429"))
    });
    asks.sees(&question).await.unwrap();
    advance(25 * 3_600 * SECOND).await;
    let approval = put(&store, "approval.v1", json!({})).await;
    let run = RunRef::of("asks", &event_of(&question));
    store.resume(&run, approval.id).await.unwrap();

    let outcome = asks.sees(&question).await;

    assert!(
        matches!(outcome, Err(ExecutorError::Postponed { .. })),
        "{outcome:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn an_event_that_comes_before_its_version_does_not_keep_the_version_from_running() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let probe = Probe::on("question.v1", "prober", &store);
    let forged = Event {
        version: 2,
        ..event_of(&question)
    };
    let mut outcome = probe.process_event(&forged).await;
    while let Err(ExecutorError::Postponed { delay, .. }) = outcome {
        advance(delay).await;
        outcome = probe.process_event(&forged).await;
    }
    assert!(matches!(outcome, Ok(Outcome::Failed { .. })), "{outcome:?}");
    let second = store
        .update(question.id, 1, Patch::new().title("second"))
        .await
        .unwrap();

    let outcome = probe.process_event(&Event::updated(&second)).await.unwrap();

    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
    assert_eq!(probe.executed(), 1);
}
