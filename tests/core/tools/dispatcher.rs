//! One executor for many tools, each with its own settings.

use crate::support::{all, event_of, put, runs, unavailable};
use crate::tools::{LEASE, SECOND, count, counting, echo, only, registry, requested};
use futures::FutureExt as _;
use serde_json::{Value, json};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, advance, timeout};
use universal_executor::executor::ExecutorError;
use universal_executor::store::{Fault, Faulty, Moment, Operation, RunState};
use universal_executor::tool::{
    JsonTool, ToolContext, ToolDispatcher, ToolError, ToolExecutor, ToolRegistry, json_tool,
};
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Outcome, Patch,
    RunLedger, Runtime, Selector, UniversalExecutor, Wake, retry_after, suspend,
};

fn dispatcher(store: &MemoryStore, tools: impl IntoIterator<Item = JsonTool>) -> ToolDispatcher {
    ToolDispatcher::new("tools", registry(tools), Arc::new(store.clone())).unwrap()
}

async fn sees(
    executor: &impl UniversalExecutor,
    request: &Breadcrumb,
) -> Result<Outcome, ExecutorError> {
    executor.process_event(&event_of(request)).await
}

/// Returns the title, the tags and the context of the only answer, without fields that differ from answer to answer.
async fn answered(store: &MemoryStore) -> (String, Vec<String>, Value) {
    let answer = only(store, "tool.response.v1").await;
    let mut context = answer.context.clone().into_value();
    let fields = context.as_object_mut().unwrap();
    for name in ["creator", "timestamp", "execution_time_ms"] {
        fields.remove(name);
    }
    (answer.title.clone(), answer.tags.clone(), context)
}

type Make = fn() -> JsonTool;

#[tokio::test(start_paused = true)]
async fn it_answers_as_an_executor_of_the_tool_would() {
    let tools: [Make; 6] = [
        || echo("probe"),
        || counting("probe", |_| async { Err("no such city".into()) }).0,
        || counting("probe", |_| async { panic!("a secret") }).0,
        || {
            counting("probe", |_| std::future::pending())
                .0
                .timeout(SECOND)
        },
        || counting("probe", |_| async { Ok(json!("x".repeat(2 << 20))) }).0,
        || {
            let error = || universal_executor::tool::handoff("agent", "Do it.");
            counting("probe", move |_| async move { Err(error()) }).0
        },
    ];

    for (number, tool) in tools.into_iter().enumerate() {
        let mut answers = Vec::new();
        let mut letters = Vec::new();
        for one in [true, false] {
            let store = MemoryStore::default();
            let request = NewBreadcrumb::new("tool.request.v1")
                .tags(["workspace:lab", "session:7"])
                .context(json!({
                    "tool": "probe", "input": 1, "requestId": "r-1", "requestedBy": "greeter",
                }));
            let request = store.create(request).await.unwrap();
            let shared = Arc::new(store.clone());
            let outcome = match one {
                true => sees(&ToolExecutor::new(tool(), shared).unwrap(), &request).await,
                false => sees(&dispatcher(&store, [tool(), echo("other")]), &request).await,
            };
            outcome.unwrap();
            answers.push(answered(&store).await);
            letters.push(all(&store, "executor.failed.v1").await.len());
        }
        assert_eq!(answers[0], answers[1], "tool {number}");
        assert_eq!(letters[0], letters[1], "tool {number}");
    }
}

#[tokio::test]
async fn a_request_for_an_unknown_tool_is_skipped_unless_answering_is_enabled() {
    let store = MemoryStore::default();
    let quiet = dispatcher(&store, [echo("adder"), echo("web-search")]);
    let request = requested(&store, "web_search").await;
    let nameless = put(&store, "tool.request.v1", json!({"input": 1})).await;

    assert_eq!(sees(&quiet, &request).await.unwrap(), Outcome::Unmatched);
    assert_eq!(sees(&quiet, &nameless).await.unwrap(), Outcome::Unmatched);
    assert!(runs(&store).await.is_empty());

    let answering = quiet.answering_unknown().unwrap();
    sees(&answering, &request).await.unwrap();
    let (title, _, context) = answered(&store).await;
    assert_eq!(title, "Response: web_search");
    assert_eq!(context["code"], "unknown_tool");
    assert_eq!(
        context["error"],
        "there is no tool \"web_search\"; did you mean \"web-search\"?"
    );
    sees(&answering, &nameless).await.unwrap();
    assert_eq!(all(&store, "tool.response.v1").await.len(), 2);
    let long = put(
        &store,
        "tool.request.v1",
        json!({"tool": "x".repeat(500_000)}),
    )
    .await;
    sees(&answering, &long).await.unwrap();
    assert!(all(&store, "executor.failed.v1").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn each_tool_has_its_own_time() {
    let slow = || counting("slow", |_| std::future::pending()).0;
    let store = MemoryStore::default();
    let tools = dispatcher(&store, [slow().timeout(7 * SECOND), echo("other")]);
    let request = requested(&store, "slow").await;
    let started = Instant::now();

    sees(&tools, &request).await.unwrap();

    assert_eq!(started.elapsed(), 7 * SECOND);
    assert_eq!(tools.profile().timeout, 30 * SECOND);
}

/// Kills a worker during a tool call and processes the request again. Returns the number of calls, the store and the outcome.
async fn killed(
    tool: fn(JsonTool) -> JsonTool,
) -> (usize, MemoryStore, Result<Outcome, ExecutorError>) {
    let store = MemoryStore::default();
    let (probe, calls) = counting("probe", |call| async move {
        match call {
            0 => std::future::pending().await,
            _ => Ok(json!("done")),
        }
    });
    let (careful, _) = counting("careful", |_| async { Ok(json!(1)) });
    let tools = dispatcher(
        &store,
        [
            tool(probe),
            echo("lax").idempotent(),
            careful.at_most_once(),
        ],
    );
    let request = requested(&store, "probe").await;

    let killed = timeout(SECOND, sees(&tools, &request)).await;
    advance(LEASE).await;
    let outcome = sees(&tools, &request).await;

    assert!(killed.is_err());
    (count(&calls), store, outcome)
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_worker_was_killed_is_made_again_only_if_that_does_no_harm() {
    let (called, store, outcome) = killed(JsonTool::idempotent).await;
    assert_eq!(called, 2);
    assert!(
        matches!(outcome, Ok(Outcome::Responded { .. })),
        "{outcome:?}"
    );
    assert_eq!(answered(&store).await.2["output"], "done");

    for tool in [JsonTool::at_most_once, |tool| tool] {
        let (called, store, outcome) = killed(tool).await;
        assert_eq!(called, 1);
        assert!(matches!(outcome, Ok(Outcome::Failed { .. })), "{outcome:?}");
        let (_, _, context) = answered(&store).await;
        assert_eq!(context["code"], "outcome_unknown");
        assert_eq!(
            context["error"],
            "the call was interrupted and is not made again, so its outcome is unknown"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_at_most_once_tool_is_called_at_most_once_wherever_its_worker_is_dropped() {
    let mut called_at = Vec::new();
    for polls in 0.. {
        let store = MemoryStore::default();
        let (probe, calls) = counting("probe", |_| async {
            tokio::task::yield_now().await;
            Ok(json!("done"))
        });
        let slow = Faulty::new(store.clone(), |_, _| Fault::Delay(Duration::from_millis(1)));
        let tools = registry([probe.at_most_once(), echo("lax").idempotent()]);
        let tools = ToolDispatcher::new("tools", tools, Arc::new(slow)).unwrap();
        let request = requested(&store, "probe").await;
        let ended = {
            let event = event_of(&request);
            let mut work = pin!(tools.process_event(&event));
            let mut ended = false;
            for _ in 0..polls {
                ended = futures::poll!(work.as_mut()).is_ready();
                if ended {
                    break;
                }
                advance(Duration::from_millis(1)).await;
            }
            ended
        };
        called_at.push(count(&calls));
        for _ in 0..3 {
            advance(2 * LEASE).await;
            drop(sees(&tools, &request).await);
        }

        assert!(count(&calls) <= 1, "dropped after {polls} polls");
        let (_, _, context) = answered(&store).await;
        let known = context["status"] == "success" || context["code"] == "outcome_unknown";
        assert!(known, "dropped after {polls} polls: {context}");
        if ended {
            break;
        }
    }
    let before = called_at.iter().filter(|calls| **calls == 0).count();
    let after = called_at.iter().filter(|calls| **calls == 1).count();
    assert!(before > 2 && after > 2, "{called_at:?}");
}

#[tokio::test(start_paused = true)]
async fn a_crash_between_call_and_commit_repeats_no_careful_call() {
    let memory = MemoryStore::default();
    let (probe, calls) = counting("probe", |_| async { Ok(json!("done")) });
    let broken = Arc::new(AtomicBool::new(true));
    let is_broken = Arc::clone(&broken);
    let store = Faulty::new(memory.clone(), move |operation, moment| {
        let hangs = is_broken.load(Ordering::SeqCst);
        match (operation, moment) {
            (Operation::Commit, Moment::Before) if hangs => Fault::Hang,
            _ => Fault::None,
        }
    });
    let tools = registry([probe.at_most_once()]);
    let tools = ToolDispatcher::new("tools", tools, Arc::new(store)).unwrap();
    let request = requested(&memory, "probe").await;

    let killed = timeout(SECOND, sees(&tools, &request)).await;
    broken.store(false, Ordering::SeqCst);
    advance(LEASE).await;
    sees(&tools, &request).await.unwrap();

    assert!(killed.is_err());
    assert_eq!(count(&calls), 1);
    assert_eq!(answered(&memory).await.2["code"], "outcome_unknown");
}

#[tokio::test(start_paused = true)]
async fn an_idempotent_tool_is_tried_again_beside_a_careful_one() {
    let store = MemoryStore::default();
    let (probe, calls) = counting("probe", |call| async move {
        match call {
            0 => Err(unavailable().into()),
            1 => panic!("once"),
            _ => Ok(json!("at last")),
        }
    });
    let tools = dispatcher(&store, [probe.idempotent(), echo("careful").at_most_once()]);
    let request = requested(&store, "probe").await;

    for _ in 0..2 {
        sees(&tools, &request).await.unwrap_err();
        advance(60 * SECOND).await;
    }
    sees(&tools, &request).await.unwrap();

    assert_eq!(count(&calls), 3);
    assert_eq!(answered(&store).await.2["output"], "at last");
}

#[tokio::test(start_paused = true)]
async fn a_rate_limited_tool_is_called_again_unless_it_is_at_most_once() {
    for (careful, expected) in [(false, 2), (true, 1)] {
        let store = MemoryStore::default();
        let (probe, calls) = counting("probe", |call| async move {
            match call {
                0 => Err(retry_after(SECOND, "slow down")),
                _ => Ok(json!("done")),
            }
        });
        let probe = if careful { probe.at_most_once() } else { probe };
        let tools = dispatcher(&store, [probe]);
        let request = requested(&store, "probe").await;

        drop(sees(&tools, &request).await);
        advance(LEASE).await;
        drop(sees(&tools, &request).await);

        assert_eq!(count(&calls), expected, "careful: {careful}");
    }
}

#[tokio::test]
async fn a_tool_may_suspend_the_run_of_its_request() {
    let store = MemoryStore::default();
    let asks = json_tool(
        "asks",
        "",
        json!({}),
        |_, context: ToolContext| async move {
            match context.context().resumed() {
                None => {
                    let wake = Wake::on(Selector::schema("approval.v1"));
                    Err(suspend(wake, json!({})).writing(Default::default()))
                }
                Some(resumed) => Ok(resumed.with.as_ref().unwrap().context["said"].clone()),
            }
        },
    );
    let tools = dispatcher(&store, [asks.at_most_once()]);
    let request = requested(&store, "asks").await;

    let suspended = sees(&tools, &request).await.unwrap();
    let approval = put(&store, "approval.v1", json!({"said": "yes"})).await;
    let run = universal_executor::store::RunRef::new("tools", request.id, 1);
    store.resume(&run, approval.id).await.unwrap();
    sees(&tools, &request).await.unwrap();

    assert!(
        matches!(suspended, Outcome::Suspended { .. }),
        "{suspended:?}"
    );
    assert_eq!(answered(&store).await.2["output"], "yes");
}

#[tokio::test]
async fn an_event_with_a_forged_tool_name_changes_nothing() {
    let store = MemoryStore::default();
    let (careful, calls) = counting("careful", |_| async { Ok(json!("done")) });
    let tools = dispatcher(&store, [careful.at_most_once(), echo("lax").idempotent()]);
    let request = requested(&store, "careful").await;
    let mut forged = (*request).clone();
    forged.context = json!({"tool": "lax", "input": "forged"}).into();
    let forged = event_of(&forged);

    tools.process_event(&forged).await.unwrap();

    assert_eq!(count(&calls), 1);
    let (_, _, context) = answered(&store).await;
    assert_eq!(
        (&context["tool"], &context["output"]),
        (&json!("careful"), &json!("done"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_changes_while_it_is_read_is_never_run_with_too_little_care() {
    let memory = MemoryStore::default();
    let (careful, calls) = counting("careful", |_| std::future::pending());
    let request = requested(&memory, "lax").await;
    let reads = Arc::new(AtomicUsize::new(0));
    let (counted, changing, id) = (Arc::clone(&reads), memory.clone(), request.id);
    // Between the dispatcher's first read and the run's own read, the request changes to the careful tool.
    let store = Faulty::new(memory.clone(), move |operation, moment| {
        if let (Operation::Get, Moment::Before) = (operation, moment)
            && counted.fetch_add(1, Ordering::SeqCst) == 1
        {
            let patch = Patch::new().context(json!({"tool": "careful"}));
            let changed = changing.update(id, 1, patch).now_or_never();
            changed.unwrap().unwrap();
        }
        Fault::None
    });
    let tools = registry([careful.at_most_once(), echo("lax").idempotent()]);
    let tools = ToolDispatcher::new("tools", tools, Arc::new(store)).unwrap();

    let first = sees(&tools, &request).await;
    let request = memory.get(id).await.unwrap();
    advance(SECOND).await;
    let killed = timeout(SECOND, sees(&tools, &request)).await;
    for _ in 0..2 {
        advance(2 * LEASE).await;
        drop(sees(&tools, &request).await);
    }

    assert!(
        matches!(first, Err(ExecutorError::Postponed { .. })),
        "{first:?}"
    );
    assert!(killed.is_err());
    assert_eq!(count(&calls), 1);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_at_the_first_look_costs_no_request() {
    let memory = MemoryStore::default();
    let failed = AtomicBool::new(false);
    let store = Faulty::new(memory.clone(), move |operation, moment| {
        let first = || !failed.swap(true, Ordering::SeqCst);
        match (operation, moment) {
            (Operation::Get, Moment::Before) if first() => Fault::Fail,
            _ => Fault::None,
        }
    });
    let tools = registry([echo("lax").idempotent(), echo("careful").at_most_once()]);
    let tools = ToolDispatcher::new("tools", tools, Arc::new(store)).unwrap();
    let request = requested(&memory, "lax").await;

    sees(&tools, &request).await.unwrap();

    assert_eq!(answered(&memory).await.2["status"], "success");
}

#[test]
fn a_careful_tool_needs_a_store_that_remembers() {
    let store = crate::support::Shim::without_ledger(&MemoryStore::default());

    let refused = ToolDispatcher::new(
        "tools",
        registry([echo("careful").at_most_once()]),
        Arc::new(store),
    );

    assert!(matches!(refused, Err(ToolError::Invalid(_))), "{refused:?}");
}

#[tokio::test]
async fn a_registry_without_tools_serves_nothing() {
    let store = MemoryStore::default();
    let nothing = ToolRegistry::default();
    let tools = ToolDispatcher::new("tools", nothing, Arc::new(store.clone())).unwrap();
    let request = requested(&store, "adder").await;

    assert_eq!(sees(&tools, &request).await.unwrap(), Outcome::Unmatched);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_serves_many_tools_through_one_executor() {
    let store = MemoryStore::default();
    let (careful, calls) = counting("careful", |_| async { Ok(json!(1)) });
    let tools = dispatcher(
        &store,
        [echo("a").idempotent(), echo("b"), careful.at_most_once()],
    );
    let runtime = Runtime::builder(store.events())
        .executor(tools)
        .build()
        .unwrap();
    let answers = store.clone();
    let work = async {
        for name in ["a", "b", "careful", "gone"].iter().cycle().take(40) {
            requested(&store, name).await;
        }
        crate::support::eventually(async || all(&answers, "tool.response.v1").await.len() == 30)
            .await;
    };

    runtime.run_until(work).await.unwrap();

    assert_eq!(count(&calls), 10);
    let states = runs(&store).await;
    assert!(
        states.iter().all(|run| run.state == RunState::Done),
        "{states:?}"
    );
}
