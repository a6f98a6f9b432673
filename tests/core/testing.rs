//! The testing kit: idle runtimes, the clock, assertions, recorded contexts and faults.

use futures::FutureExt as _;
use serde_json::json;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::agent::{Agent, ScriptedModel};
use universal_executor::client::{Principal, QuestionState};
use universal_executor::executor::{Executor, OrderingKey};
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::store::RunState;
use universal_executor::testing::{
    Contexts, Faults, Moment, Operation, Recorded, TestError, TestStore, assert_failed,
    assert_responded, assert_suspended,
};
use universal_executor::tool::{Approval, JsonTool, json_tool};
use universal_executor::{
    BoxError, BreadcrumbStore, BreadcrumbStoreExt, Client, ExecutionContext, NewBreadcrumb,
    Response, Runtime, Selector, Services, Subscription, UniversalExecutor, Wake, executor,
    permanent, retry_after, suspend,
};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(60 * 60);

fn order(id: u64) -> NewBreadcrumb {
    NewBreadcrumb::new("order.v1").context(json!({"id": id}))
}

/// Returns the response to an order.
fn receipt(context: &ExecutionContext) -> Response {
    let id = context.trigger().context["id"].clone();
    Response::create(NewBreadcrumb::new("receipt.v1").context(json!({"id": id})))
}

/// Creates an executor that answers each order with a receipt and counts its attempts.
fn clerk(attempts: &Arc<AtomicUsize>) -> Executor {
    executor("clerk")
        .on(Subscription::trigger("order.v1"))
        .state(Arc::clone(attempts))
        .execute(|cx, attempts| async move {
            attempts.fetch_add(1, Ordering::SeqCst);
            Ok(receipt(&cx))
        })
}

/// Creates an executor that suspends the run of each order and then answers with a receipt.
fn waiter(wake: impl Fn(&ExecutionContext) -> Wake + Send + Sync + 'static) -> Executor {
    executor("waiter")
        .on(Subscription::trigger("order.v1"))
        .ordered_by(OrderingKey::tag("session:"))
        .execute(move |cx| {
            let wake = wake(&cx);
            async move {
                match cx.resumed() {
                    None => Err(BoxError::from(suspend(wake, json!({})))),
                    Some(_) => Ok(receipt(&cx)),
                }
            }
        })
}

/// Creates a tool that does nothing.
fn refund() -> JsonTool {
    json_tool("refund", "Refunds an order.", json!({}), |_, _| async {
        Ok(json!("refunded"))
    })
}

async fn receipts(store: &TestStore) -> Result<usize, BoxError> {
    Ok(store.recent("receipt.v1", 100).await?.len())
}

#[tokio::test]
async fn a_runtime_stops_when_a_chain_of_runs_has_ended() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let archive = executor("archive")
        .on(Subscription::trigger("receipt.v1"))
        .execute(|_| async { Ok(Response::create(NewBreadcrumb::new("archived.v1"))) });
    let worker = Runtime::on(&store)
        .executor(clerk(&Arc::default()))
        .executor(archive)
        .build()?;
    let order = store.create(order(7)).await?;
    let began = store.now();

    let report = store.run_until_idle(&worker).await?;

    assert_eq!((report.responded, report.events), (2, 3));
    assert!(store.now().since(began) < SECOND);
    let receipts = assert_responded(&store, "clerk", order.id).await;
    assert_eq!(receipts.len(), 1);
    assert_eq!(receipts[0].context["id"], 7);
    assert_responded(&store, "archive", receipts[0].id).await;
    Ok(())
}

#[tokio::test]
async fn an_event_that_triggers_nothing_does_not_move_the_clock() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let worker = Runtime::on(&store).executor(clerk(&Arc::default()));
    let worker = worker.build()?;
    let began = store.now();

    let idle = store.run_until_idle(&worker).await?;
    store.create(NewBreadcrumb::new("note.v1")).await?;
    let noted = store.run_until_idle(&worker).await?;

    assert_eq!((idle.events, noted.events, noted.responded), (0, 1, 0));
    assert!(store.now().since(began) < SECOND);
    Ok(())
}

#[tokio::test]
async fn a_breadcrumb_that_is_written_while_the_runtime_runs_is_answered() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let helper = executor("helper")
        .on(Subscription::trigger("wish.v1"))
        .state(store.clone())
        .execute(|_, store| async move {
            // A write outside the run, as in a service.
            store.create(order(1)).await?;
            Ok(Response::none())
        });
    let runtime = Runtime::on(&store).executor(helper);
    let worker = runtime.executor(clerk(&Arc::default())).build()?;
    store.create(NewBreadcrumb::new("wish.v1")).await?;

    let report = store.run_until_idle(&worker).await?;

    assert_eq!((report.responded, receipts(&store).await?), (2, 1));
    Ok(())
}

#[tokio::test]
async fn a_retry_waits_until_the_test_advances_the_clock() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let attempts: Arc<AtomicUsize> = Arc::default();
    let flaky = executor("flaky")
        .on(Subscription::trigger("order.v1"))
        .state(Arc::clone(&attempts))
        .execute(|cx, attempts| async move {
            match attempts.fetch_add(1, Ordering::SeqCst) {
                0 => Err(retry_after(20 * SECOND, "the printer is busy")),
                _ => Ok(receipt(&cx)),
            }
        });
    let worker = Runtime::on(&store).executor(flaky).build()?;
    let order = store.create(order(1)).await?;

    let first = store.run_until_idle(&worker).await?;
    let second = store.run_until_idle(&worker).await?;

    assert_eq!((first.postponed, second.postponed), (1, 0));
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
    let delay = store.next_due().await?.ok_or("no retry")?;
    assert!(delay > 19 * SECOND && delay <= 20 * SECOND, "{delay:?}");

    store.advance(delay).await?;
    let third = store.run_until_idle(&worker).await?;

    assert_eq!(third.responded, 1);
    assert_eq!(attempts.load(Ordering::SeqCst), 2);
    assert_responded(&store, "flaky", order.id).await;
    assert_eq!(store.next_due().await?, None);
    Ok(())
}

#[tokio::test]
async fn the_clock_moves_while_a_run_sleeps() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let sleeper = executor("sleeper")
        .on(Subscription::trigger("order.v1"))
        .execute(|cx| async move {
            tokio::time::sleep(30 * SECOND).await;
            Ok(receipt(&cx))
        });
    let worker = Runtime::on(&store).executor(sleeper).build()?;
    let order = store.create(order(1)).await?;
    let began = store.now();

    store.run_until_idle(&worker).await?;

    assert_responded(&store, "sleeper", order.id).await;
    let took = store.now().since(began);
    assert!(took >= 30 * SECOND && took < MINUTE, "{took:?}");
    Ok(())
}

#[tokio::test]
async fn a_suspended_run_is_idle_until_its_time() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let waiter = waiter(|cx| Wake::at(cx.now() + HOUR));
    let worker = Runtime::on(&store).executor(waiter).build()?;
    let order = store.create(order(1)).await?;

    store.run_until_idle(&worker).await?;
    store.run_until_idle(&worker).await?;
    let run = assert_suspended(&store, "waiter", order.id).await;
    let due = store.next_due().await?.ok_or("no suspension")?;
    store.advance(HOUR).await?;
    let report = store.run_until_idle(&worker).await?;

    assert!(run.wake.is_some_and(|wake| wake.until.is_some()));
    assert!(due > 59 * MINUTE && due <= HOUR, "{due:?}");
    assert_eq!(report.responded, 1);
    assert_responded(&store, "waiter", order.id).await;
    Ok(())
}

#[tokio::test]
async fn a_suspended_run_whose_answer_is_in_the_store_is_not_idle() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let waiter = waiter(|_| Wake::on(Selector::schema("answer.v1")));
    let worker = Runtime::on(&store).executor(waiter).build()?;
    let order = store.create(order(1)).await?;
    store.create(NewBreadcrumb::new("answer.v1")).await?;

    store.run_until_idle(&worker).await?;
    assert_suspended(&store, "waiter", order.id).await;
    store.create(NewBreadcrumb::new("answer.v1")).await?;
    store.run_until_idle(&worker).await?;

    assert_responded(&store, "waiter", order.id).await;
    Ok(())
}

#[tokio::test]
async fn a_run_behind_a_suspended_one_is_idle() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let waiter = waiter(|cx| Wake::at(cx.now() + HOUR));
    let worker = Runtime::on(&store).executor(waiter).build()?;
    store.create(order(1).tag("session:1")).await?;
    store.create(order(2).tag("session:1")).await?;

    let report = store.run_until_idle(&worker).await?;
    assert_eq!(report.suspended, 1);
    for _ in 0..2 {
        store.advance(HOUR).await?;
        store.run_until_idle(&worker).await?;
    }

    assert_eq!(receipts(&store).await?, 2);
    Ok(())
}

#[tokio::test]
async fn a_run_of_a_paused_executor_is_idle() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let worker = Runtime::on(&store).executor(clerk(&Arc::default()));
    let worker = worker.build()?;
    worker.pause("clerk").await?;
    store.create(order(1)).await?;

    store.run_until_idle(&worker).await?;
    assert_eq!(receipts(&store).await?, 0);
    worker.resume("clerk").await?;
    store.run_until_idle(&worker).await?;

    assert_eq!(receipts(&store).await?, 1);
    Ok(())
}

#[tokio::test]
async fn a_run_that_does_not_end_is_an_error_with_its_name() -> Result<(), BoxError> {
    let store = TestStore::new()?.time_limit(MINUTE);
    let stuck = executor("stuck")
        .on(Subscription::trigger("order.v1"))
        .timeout(HOUR)
        .execute(|_| std::future::pending());
    let worker = Runtime::on(&store).executor(stuck).build()?;
    store.create(order(1)).await?;

    let error = store.run_until_idle(&worker).await.unwrap_err();

    let message = error.to_string();
    assert!(message.contains("run of \"stuck\""), "{message}");
    assert!(message.contains("is running, 1 attempts"), "{message}");
    let TestError::NotIdle { clock, runs, .. } = error else {
        panic!("{error:?}")
    };
    assert!(clock >= MINUTE && clock < 2 * MINUTE, "{clock:?}");
    assert_eq!((runs.len(), runs[0].state), (1, RunState::Running));
    Ok(())
}

#[tokio::test]
async fn a_run_that_never_waits_ends_at_the_limit_of_real_time() -> Result<(), BoxError> {
    let store = TestStore::new()?.real_time_limit(Duration::from_millis(50));
    let spinner = executor("spinner")
        .on(Subscription::trigger("order.v1"))
        .execute(|_| async {
            for _ in 0..u64::MAX {
                tokio::task::yield_now().await;
            }
            Ok(Response::none())
        });
    let worker = Runtime::on(&store).executor(spinner).build()?;
    store.create(order(1)).await?;

    let error = store.run_until_idle(&worker).await.unwrap_err();

    let is_expected = matches!(&error, TestError::NotIdle { clock, .. } if *clock < MINUTE);
    assert!(is_expected, "{error:?}");
    Ok(())
}

#[tokio::test]
async fn a_failure_of_the_runtime_is_reported_with_its_source() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let worker = Runtime::on(&store).executor(clerk(&Arc::default()));
    let worker = worker.build()?;
    store.create(order(1)).await?;
    store.advance(2 * HOUR).await?;

    let error = store.run_until_idle(&worker).await.unwrap_err();

    assert!(matches!(error, TestError::Runtime { .. }), "{error:?}");
    let source = std::error::Error::source(&error).ok_or("no source")?;
    let source = source.to_string();
    assert!(source.contains("older than an hour"), "{source}");
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_the_test_has_paused_can_be_advanced() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let began = store.now();

    store.advance(HOUR).await?;
    store.advance(Duration::MAX).await?;

    assert!(store.now().since(began) > 1_000 * HOUR);
    Ok(())
}

#[tokio::test]
async fn a_test_in_real_time_waits_for_other_threads() -> Result<(), BoxError> {
    let store = TestStore::in_real_time();
    let threaded = executor("threaded")
        .on(Subscription::trigger("order.v1"))
        .execute(|cx| async move {
            tokio::task::spawn_blocking(|| ()).await?;
            Ok(receipt(&cx))
        });
    let worker = Runtime::on(&store).executor(threaded).build()?;
    let order = store.create(order(1)).await?;

    store.run_until_idle(&worker).await?;
    let error = store.advance(SECOND).await.unwrap_err();

    assert_responded(&store, "threaded", order.id).await;
    let is_expected = matches!(&error, TestError::NotPaused { by } if *by == SECOND);
    assert!(is_expected, "{error:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tokio_runtime_with_several_threads_is_refused() {
    let error = TestStore::new().unwrap_err();

    assert!(error.to_string().contains("has several"), "{error}");
    assert!(error.to_string().contains("#[tokio::test]"), "{error}");
}

#[test]
fn a_test_without_tokio_is_refused() {
    let error = TestStore::new().unwrap_err();

    assert!(error.to_string().contains("no tokio runtime"), "{error}");
}

#[tokio::test]
async fn an_assertion_that_fails_shows_state_cause_and_explanation() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let strict = executor("strict")
        .on(Subscription::trigger("order.v1"))
        .execute(|_| async { Err(permanent("there is no such order")) });
    let worker = Runtime::on(&store).executor(strict).build()?;
    let order = store.create(order(1)).await?;
    store.run_until_idle(&worker).await?;

    let run = assert_failed(&store, "strict", order.id, "error").await;
    let line = line!() + 1;
    let failed = AssertUnwindSafe(assert_responded(&store, "strict", order.id));
    let panic = failed.catch_unwind().await.unwrap_err();

    assert_eq!((run.state, run.attempts), (RunState::Failed, 1));
    let message = panic.downcast_ref::<String>().ok_or("no message")?;
    let location = format!("testing.rs:{line}");
    for part in [
        "expected a run that has responded",
        "is failed, 1 attempts",
        "there is no such order",
        "executor \"strict\"",
        location.as_str(),
    ] {
        assert!(message.contains(part), "{part}: {message}");
    }
    Ok(())
}

#[tokio::test]
async fn an_assertion_fails_in_another_state_and_without_a_run() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let worker = Runtime::on(&store).executor(clerk(&Arc::default()));
    let worker = worker.build()?;
    let order = store.create(order(1)).await?;
    store.run_until_idle(&worker).await?;

    let suspended = assert_suspended(&store, "clerk", order.id);
    let failed = assert_failed(&store, "clerk", order.id, "error");
    let missing = assert_responded(&store, "nobody", order.id);

    for (assertion, part) in [
        (suspended.map(drop).boxed(), "is suspended"),
        (failed.map(drop).boxed(), "has failed with code \"error\""),
        (missing.map(drop).boxed(), "executor \"nobody\" has no run"),
    ] {
        let panic = AssertUnwindSafe(assertion).catch_unwind().await;
        let panic = panic.unwrap_err();
        let message = panic.downcast_ref::<String>().ok_or("no message")?;
        assert!(message.contains(part), "{part}: {message}");
    }
    Ok(())
}

#[tokio::test]
async fn an_agent_with_an_approval_is_tested_with_its_contexts() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let model = ScriptedModel::calling("refund", json!({"order": 7}), "Done.");
    let helper = Agent::new("helper", model)
        .on(Subscription::trigger("wish.v1"))
        .reads(Subscription::context("order.v1").key("order"))
        .tool(refund())
        .needs_approval(["refund"]);
    let helper = Recorded::new(helper.bind(&store)?);
    let contexts = helper.contexts();
    let worker = Runtime::on(&store).executor(helper).build()?;
    store.create(order(7)).await?;
    let wish = NewBreadcrumb::new("wish.v1").context(json!({"message": "Refund it."}));
    let wish = store.create(wish).await?;

    store.run_until_idle(&worker).await?;
    assert_suspended(&store, "helper", wish.id).await;
    let questions = Client::new(&store).questions();
    let question = questions.open().await?.pop().ok_or("no question")?;
    let ann = Principal::new("ann");
    questions.approve(&question.id, &ann).await?;
    store.run_until_idle(&worker).await?;

    let responses = assert_responded(&store, "helper", wish.id).await;
    let response = responses.last().ok_or("no response")?;
    assert_eq!(response.context["message"], "Done.");
    let seen = contexts.all();
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].trigger().id, wish.id);
    assert_eq!(seen[0].require("order")?["id"], 7);
    assert!(seen[0].resumed().is_none() && seen[1].resumed().is_some());
    Ok(())
}

#[tokio::test]
async fn a_question_is_open_until_its_last_moment() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let model = ScriptedModel::calling("refund", json!({"order": 7}), "Done.");
    let helper = Agent::new("helper", model)
        .on(Subscription::trigger("wish.v1"))
        .tool(refund())
        .approval_rule("refund", Approval::always().expires_in(HOUR));
    let worker = Runtime::on(&store).agent(helper).build()?;
    let wish = NewBreadcrumb::new("wish.v1").context(json!({"message": "Refund it."}));
    store.create(wish).await?;
    store.run_until_idle(&worker).await?;
    let questions = Client::new(&store).questions();
    let question = questions.open().await?.pop().ok_or("no question")?;
    let at = question.expires_at.ok_or("no expiry")?;

    store.advance(at.since(store.now())).await?;

    assert_eq!(questions.state(&question.id).await?, QuestionState::Open);
    assert_eq!(questions.open().await?.len(), 1);
    store.advance(Duration::from_millis(1)).await?;
    let state = questions.state(&question.id).await?;
    assert_eq!(state, QuestionState::Expired { at });
    assert_eq!(questions.open().await?.len(), 0);
    Ok(())
}

#[tokio::test]
async fn the_number_of_recorded_contexts_is_limited() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let clerk = Recorded::new(clerk(&Arc::default()).bind(&store)?);
    let contexts = clerk.contexts();

    for id in 0..=1_000 {
        let context = ExecutionContext::for_trigger(order(id));
        clerk.execute(context.trigger(), &context).await?;
    }

    let seen = contexts.all();
    assert_eq!((seen.len(), Contexts::MOST), (1_000, 1_000));
    assert_eq!(seen[0].trigger().context["id"], 1);
    let last = contexts.last().ok_or("no context")?;
    assert_eq!(last.trigger().context["id"], 1_000);
    Ok(())
}

#[tokio::test]
async fn injected_faults_fail_the_workers_commits_and_not_the_tests_commits() -> Result<(), BoxError>
{
    let (store, faults, attempts) = (TestStore::new()?, Faults::new(), Arc::default());
    let faulty = store.with_faults(&faults);
    let worker = Runtime::on(&faulty).executor(clerk(&attempts)).build()?;
    faults.fail_next(Operation::Commit, 2);
    let order = store.create(order(1)).await?;

    for _ in 0..2 {
        let report = store.run_until_idle(&worker).await?;
        assert_eq!((report.postponed, receipts(&store).await?), (1, 0));
        store.advance(MINUTE).await?;
    }
    store.run_until_idle(&worker).await?;

    assert_eq!(faults.injected(), 2);
    assert_eq!(attempts.load(Ordering::SeqCst), 3);
    assert_eq!(assert_responded(&store, "clerk", order.id).await.len(), 1);
    Ok(())
}

#[tokio::test]
async fn a_commit_whose_answer_is_lost_is_not_repeated() -> Result<(), BoxError> {
    let (store, faults, attempts) = (TestStore::new()?, Faults::new(), Arc::default());
    let faulty = store.with_faults(&faults);
    let worker = Runtime::on(&faulty).executor(clerk(&attempts)).build()?;
    let order = store.create(order(1)).await?;
    faults.lose_next(Operation::Commit, 1);

    store.run_until_idle(&worker).await?;
    store.advance(HOUR).await?;
    store.run_until_idle(&worker).await?;

    assert_eq!(faults.injected(), 1);
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
    assert_eq!(assert_responded(&store, "clerk", order.id).await.len(), 1);
    assert_eq!(receipts(&store).await?, 1);
    Ok(())
}

#[tokio::test]
async fn failed_claims_are_repeated_while_the_clock_moves() -> Result<(), BoxError> {
    let (store, faults, attempts) = (TestStore::new()?, Faults::new(), Arc::default());
    let faulty = store.with_faults(&faults);
    let worker = Runtime::on(&faulty).executor(clerk(&attempts)).build()?;
    let order = store.create(order(1)).await?;
    faults.fail_next(Operation::ClaimNext, 3);

    store.run_until_idle(&worker).await?;

    assert_eq!(faults.injected(), 3);
    assert_eq!(attempts.load(Ordering::SeqCst), 1);
    assert_responded(&store, "clerk", order.id).await;
    Ok(())
}

#[tokio::test]
async fn switches_that_are_cleared_inject_nothing() -> Result<(), BoxError> {
    let (store, faults) = (TestStore::new()?, Faults::new());
    let faulty = store.with_faults(&faults);
    let worker = Runtime::on(&faulty).executor(clerk(&Arc::default()));
    let worker = worker.build()?;
    store.create(order(1)).await?;
    faults.fail_next(Operation::Commit, 1);
    faults.crash_at(Operation::Commit, Moment::Before);
    faults.clear();

    let report = store.run_until_idle(&worker).await?;

    assert_eq!((report.responded, faults.injected()), (1, 0));
    Ok(())
}

#[tokio::test]
async fn the_next_worker_completes_the_run_of_a_crashed_one() -> Result<(), BoxError> {
    for (moment, expected) in [(Moment::Before, 2), (Moment::After, 1)] {
        let (store, faults, attempts) = (TestStore::new()?, Faults::new(), Arc::default());
        let faulty = store.with_faults(&faults);
        let worker = Runtime::on(&faulty).executor(clerk(&attempts)).build()?;
        let order = store.create(order(1)).await?;
        faults.crash_at(Operation::Commit, moment);

        store.run_until_crash(&worker, &faults).await?;
        let crashed_at = store.now();
        let written = receipts(&store).await?;
        let next = Runtime::on(&store).executor(clerk(&attempts)).build()?;
        store.run_until_idle(&next).await?;

        assert_eq!(written, usize::from(moment == Moment::After));
        assert_eq!(attempts.load(Ordering::SeqCst), expected, "{moment:?}");
        assert_eq!(assert_responded(&store, "clerk", order.id).await.len(), 1);
        assert_eq!(receipts(&store).await?, 1);
        // The lease of the crashed worker must expire first.
        let took = store.now().since(crashed_at);
        assert_eq!(took > 20 * SECOND, moment == Moment::Before, "{took:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_worker_that_does_not_crash_is_an_error() -> Result<(), BoxError> {
    let (store, faults) = (TestStore::new()?, Faults::new());
    let faulty = store.with_faults(&faults);
    let worker = Runtime::on(&faulty).executor(clerk(&Arc::default()));
    let worker = worker.build()?;
    store.create(order(1)).await?;

    let error = store.run_until_crash(&worker, &faults).await;
    let error = error.unwrap_err();
    assert!(error.to_string().contains("Faults::crash_at"), "{error}");

    faults.crash_at(Operation::Redo, Moment::Before);
    let error = store.run_until_crash(&worker, &faults).await;
    let error = error.unwrap_err();
    assert!(error.to_string().contains("did not call redo"), "{error}");
    Ok(())
}

#[tokio::test]
async fn all_handles_of_a_store_share_its_data() -> Result<(), BoxError> {
    let store = TestStore::new()?;
    let faulty = store.with_faults(&Faults::new());

    let written = store.clone().create(order(1)).await?;

    assert_eq!(faulty.get(written.id).await?, written);
    assert_eq!(store.identity(), store.clone().identity());
    assert_ne!(store.identity(), faulty.identity());
    Ok(())
}

#[tokio::test]
async fn a_runtime_of_another_store_is_an_error_that_names_both_stores() -> Result<(), BoxError> {
    let (store, other) = (TestStore::new()?, TestStore::new()?);
    let worker = Runtime::on(&other).executor(clerk(&Arc::default()));
    let worker = worker.build()?;
    let order = other.create(order(1)).await?;

    let error = store.run_until_idle(&worker).await.unwrap_err();

    let TestError::OtherStore {
        store: expected,
        found,
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!((expected, found), (&store.identity(), &other.identity()));
    let message = error.to_string();
    for id in [store.identity(), other.identity()] {
        assert!(message.contains(&id.to_string()), "{message}");
    }
    assert_eq!(receipts(&other).await?, 0);
    other.run_until_idle(&worker).await?;
    assert_responded(&other, "clerk", order.id).await;
    Ok(())
}

#[tokio::test]
async fn definitions_and_handles_with_faults_count_as_their_store() -> Result<(), BoxError> {
    let (store, other) = (TestStore::new()?, TestStore::new()?);
    let faulty = other.with_faults(&Faults::new());
    let stored = |of: &TestStore| StoredDefinitions::new(of, &Services::new()).agents();
    let of_definitions = Runtime::on(&other).definitions(stored(&other)).build()?;
    let with_faults = Runtime::on(&faulty).executor(clerk(&Arc::default()));
    let with_faults = with_faults.build()?;

    for worker in [&of_definitions, &with_faults] {
        let error = store.run_until_idle(worker).await.unwrap_err();
        assert!(matches!(error, TestError::OtherStore { .. }), "{error:?}");
        other.run_until_idle(worker).await?;
    }
    Ok(())
}
