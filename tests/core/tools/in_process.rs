//! Tool calls within an executor's run: every outcome is data.

use crate::support::{Probe, all, nested, put};
use crate::tools::{SECOND, by_hand, call, count, counting, echo, error_of, only, registry};
use futures::future::join_all;
use serde_json::{Value, json};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use universal_executor::machine::{Answer, Deferral, MachineCall, ToolArguments, ToolOutcome};
use universal_executor::tool::{
    Question, ToolContext, ToolRegistry, ToolSpec, ask_human, deferred, handoff, json_tool,
};
use universal_executor::{
    BoxError, BreadcrumbStore, ExecutionContext, MemoryStore, Profile, Response, Selector, Wake,
    permanent, retry_after, suspend,
};

/// Returns a registry with the tool `probe`, which fails with the error of a function.
fn failing(error: fn() -> BoxError) -> ToolRegistry {
    registry([json_tool("probe", "", json!({}), move |_, _| {
        std::future::ready(Err(error()))
    })])
}

async fn probe(registry: &ToolRegistry) -> ToolOutcome {
    call(registry, "probe", json!({})).await
}

fn is_success(outcome: &ToolOutcome) -> bool {
    matches!(outcome, ToolOutcome::Answered(Answer::Success(_)))
}

#[tokio::test(start_paused = true)]
async fn every_end_of_a_call_is_data() {
    let wake = || Wake::on(Selector::schema("answer.v1"));
    assert_eq!(wake().until, None);
    let cases: [(ToolRegistry, &str, &str); 6] = [
        (failing(|| "no such city".into()), "failed", "no such city"),
        (failing(|| permanent("bad key")), "failed", "bad key"),
        (
            failing(|| retry_after(Duration::from_secs(20), "slow down")),
            "rate_limited",
            "slow down; call it again in 20s at the earliest",
        ),
        (
            failing(|| {
                suspend(Wake::on(Selector::schema("a.v1")), json!({})).writing(Response::none())
            }),
            "cannot_suspend",
            "the tool suspends its run, but a tool of an agent or a flow has no run of its own; serve the tool with ToolExecutor",
        ),
        (
            registry([json_tool(
                "probe",
                "",
                json!({}),
                |input: Value, _| async move {
                    assert!(input.is_null(), "a secret");
                    Ok(input)
                },
            )]),
            "panic",
            "the tool panicked",
        ),
        (
            registry([counting("probe", |_| std::future::pending())
                .0
                .timeout(SECOND)]),
            "timeout",
            "the tool had no result within 1s; it may have done its work",
        ),
    ];

    for (registry, code, message) in cases {
        let error = error_of(probe(&registry).await);
        assert_eq!(error, (code.to_owned(), message.to_owned()));
    }
}

#[tokio::test]
async fn a_tool_can_defer_its_result_to_an_agent_or_a_person() {
    let other = |kind: &str, payload: Value| Deferral::Other {
        kind: kind.to_owned(),
        payload: payload.into(),
    };
    let cases: [(fn() -> BoxError, Deferral); 4] = [
        (
            || handoff("translator", "To English, please."),
            Deferral::Handoff {
                agent: "translator".to_owned(),
                prompt: "To English, please.".to_owned(),
            },
        ),
        (
            || ask_human(Question::new("Refund?").options(["yes", "no"])),
            other(
                "question",
                json!({"question": "Refund?", "options": ["yes", "no"]}),
            ),
        ),
        (
            || ask_human("Who are you?"),
            other(
                "question",
                json!({"question": "Who are you?", "options": []}),
            ),
        ),
        (
            || deferred("signature", json!({"paper": 7})),
            other("signature", json!({"paper": 7})),
        ),
    ];

    for (leave, to) in cases {
        assert_eq!(probe(&failing(leave)).await, to.into());
    }
}

#[tokio::test]
async fn output_that_is_too_large_or_too_deep_is_an_error() {
    type Make = fn() -> Value;
    let cases: [(Make, bool); 6] = [
        (|| nested(50), true),
        (|| nested(60), false),
        (|| nested(100_000), false),
        (|| json!("x".repeat(900)), true),
        (|| json!("x".repeat(1_000)), false),
        (|| json!("\u{1}".repeat(300)), false),
    ];
    for (make, fits) in cases {
        let tool = json_tool(
            "probe",
            "",
            json!({}),
            move |_, _| async move { Ok(make()) },
        );
        let outcome = probe(&registry([tool.max_output_bytes(1_000)])).await;
        match fits {
            true => assert!(is_success(&outcome)),
            false => assert_eq!(error_of(outcome).0, "output_too_large"),
        }
    }

    let leaves: [fn() -> BoxError; 3] = [
        || deferred("plan", nested(100_000)),
        || handoff("agent", "x".repeat(200 << 10)),
        || ask_human("x".repeat(200 << 10)),
    ];
    for leave in leaves {
        assert_eq!(error_of(probe(&failing(leave)).await).0, "output_too_large");
    }
}

#[tokio::test]
async fn input_that_nests_too_deep_never_reaches_a_tool() {
    let (tool, calls) = counting("probe", |_| async { Ok(json!(1)) });

    let outcome = call(&registry([tool]), "probe", nested(100_000)).await;

    assert_eq!(error_of(outcome).0, "invalid_input");
    assert_eq!(count(&calls), 0);
}

#[tokio::test]
async fn arguments_that_cannot_be_read_never_reach_a_tool() {
    let (tool, calls) = counting("probe", |_| async { Ok(json!(1)) });
    let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
    let cut = ToolArguments::parse("{\"a\": ");

    let called = MachineCall::new("c-1", "probe", cut);
    let outcome = registry([tool])
        .call(called, None, &by_hand(), &store)
        .await;

    let (code, message) = error_of(outcome);
    assert_eq!(code, "invalid_arguments");
    assert!(message.ends_with("call again with valid JSON"), "{message}");
    assert_eq!(count(&calls), 0);
}

#[tokio::test]
async fn tool_specs_share_the_schemas_of_the_tool() {
    let shape = json!({"type": "object", "description": "long"});
    let tools = registry([echo("probe").output_schema(shape)]);

    let (one, other) = (tools.specs(), tools.clone().specs());

    let output =
        |specs: &[ToolSpec]| std::ptr::from_ref(&**specs[0].output_schema.as_ref().unwrap());
    assert_eq!(output(&one), output(&other));
    assert_eq!(
        std::ptr::from_ref(&*one[0].input_schema),
        std::ptr::from_ref(&*other[0].input_schema)
    );
}

#[tokio::test(start_paused = true)]
async fn the_concurrency_limit_of_a_tool_applies_to_all_registry_clones() {
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (running, peak) = (Arc::clone(&now), Arc::clone(&most));
    let tool = json_tool("probe", "", json!({}), move |input, _| {
        let running = Arc::clone(&running);
        peak.fetch_max(running.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        async move {
            sleep(SECOND).await;
            running.fetch_sub(1, Ordering::SeqCst);
            Ok(input)
        }
    });
    let tools = registry([tool.max_concurrent(NonZeroUsize::new(2).unwrap())]);
    let copy = tools.clone();
    let started = Instant::now();

    let calls = (0..6).map(|number| probe(if number % 2 == 0 { &tools } else { &copy }));
    let outcomes = join_all(calls).await;

    assert!(outcomes.iter().all(is_success));
    assert_eq!(most.load(Ordering::SeqCst), 2);
    assert_eq!(started.elapsed(), 3 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_get_its_turn_was_not_made() {
    let (tool, calls) = counting("probe", |_| std::future::pending());
    let one = NonZeroUsize::MIN;
    let tools = registry([tool.max_concurrent(one).timeout(10 * SECOND)]);

    let (first, second) = tokio::join!(probe(&tools), probe(&tools));

    assert_eq!(error_of(first).0, "timeout");
    assert_eq!(error_of(second).0, "busy");
    assert_eq!(count(&calls), 1);
}

#[tokio::test]
async fn each_call_of_a_run_has_its_own_stable_idempotency_key() {
    let keys = json_tool(
        "probe",
        "",
        json!({}),
        |_, context: ToolContext| async move {
            Ok(json!([
                context.idempotency_key(),
                context.request_id(),
                context.requested_by()
            ]))
        },
    );
    let tools = registry([keys]);
    let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());
    let run = by_hand();
    let asked = async |id: &str| {
        let call = MachineCall::new(id, "probe", json!({}));
        match tools.call(call, Some("greeter"), &run, &store).await {
            ToolOutcome::Answered(Answer::Success(output)) => output,
            other => panic!("{other:?}"),
        }
    };

    let (one, again, other) = (asked("a").await, asked("a").await, asked("b").await);

    assert_eq!(one, again);
    assert_ne!(one[0], other[0]);
    assert_ne!(one[0], run.idempotency_key());
    assert_eq!((&one[1], &one[2]), (&json!("a"), &json!("greeter")));
}

/// Creates an executor whose runs call a tool and answer with its outcome.
fn agent(store: &MemoryStore, tools: ToolRegistry) -> Probe {
    let shared: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    let schemas = ["answer.v1", "tool.progress.v1"];
    Probe::on("question.v1", "agent", store)
        .profile(Profile::new("agent").responds_with(schemas))
        .executing(move |run: ExecutionContext| {
            let (tools, store) = (tools.clone(), Arc::clone(&shared));
            async move {
                let call = MachineCall::new("c-1", "probe", json!({}));
                match tools.call(call, Some("agent"), &run, &store).await {
                    ToolOutcome::Answered(Answer::Success(output)) => Ok(json!({"output": output})),
                    other => Ok(json!({"error": format!("{other:?}")})),
                }
            }
        })
}

#[tokio::test]
async fn progress_is_written_as_part_of_the_run_up_to_a_bound() {
    let store = MemoryStore::default();
    let tool = json_tool(
        "probe",
        "",
        json!({}),
        |_, context: ToolContext| async move {
            for number in 0..150 {
                context.progress(format!("step {number}")).await?;
            }
            let large = context.progress(json!("x".repeat(20_000))).await;
            Ok(json!(large.is_err()))
        },
    );
    let question = put(&store, "question.v1", json!({})).await;

    agent(&store, registry([tool]))
        .sees(&question)
        .await
        .unwrap();

    let said = all(&store, "tool.progress.v1").await;
    assert_eq!(said.len(), 100);
    let last = said.iter().find(|said| said.context["number"] == 100);
    let last = last.unwrap();
    assert_eq!(last.context["progress"], "step 99");
    assert_eq!(last.context["request_id"], "c-1");
    assert_eq!(last.context["requestedBy"], "agent");
    assert_eq!(last.context["creator"]["id"], "agent");
    assert!(last.tags.contains(&"request:c-1".to_owned()));
    assert!(last.ttl.is_some());
    let answer = only(&store, "answer.v1").await;
    assert_eq!(answer.context["output"], true, "{answer:?}");
}

#[tokio::test]
async fn a_tool_cannot_write_schemas_that_its_caller_may_not_write() {
    let store = MemoryStore::default();
    let tool = json_tool(
        "probe",
        "",
        json!({}),
        |_, context: ToolContext| async move {
            let forged = universal_executor::NewBreadcrumb::new("tool.request.v1");
            let write = universal_executor::store::Write::Create(forged.context(json!({})));
            context.store().commit(vec![write].into()).await?;
            Ok(json!("written"))
        },
    );
    let question = put(&store, "question.v1", json!({})).await;

    agent(&store, registry([tool]))
        .sees(&question)
        .await
        .unwrap();

    assert!(all(&store, "tool.request.v1").await.is_empty());
    let answer = only(&store, "answer.v1").await;
    assert!(answer.context["error"].is_string(), "{answer:?}");
}

#[tokio::test]
async fn a_shared_tool_retains_its_settings() {
    let shared = Arc::new(echo("probe").permission_tags(["disk"]));

    let tools = registry([]).with(shared).unwrap();

    let tags = &tools.get("probe").unwrap().settings().permission_tags;
    assert_eq!(tags, &["disk"]);
}
