//! Tools that another service serves.

use crate::support::{Probe, all, event_of, eventually, put};
use crate::tools::{SECOND, by_hand, count, counting, echo, error_of, only, registry};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::time::{Instant, sleep};
use universal_executor::executor::RetryPolicy;
use universal_executor::machine::{Answer, MachineCall, ToolOutcome};
use universal_executor::tool::{
    RemoteTool, RetrySafety, ToolDispatcher, ToolError, ToolExecutor, ToolRegistry, remote_tool,
};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, ExecutionContext, MemoryStore,
    NewBreadcrumb, Outcome, Profile, Response, Runtime, UniversalExecutor, retry_after,
};

fn remote() -> RemoteTool {
    remote_tool("probe", "For tests.", json!({})).timeout(10 * SECOND)
}

/// Creates an executor whose runs call the remote tool once and answer with the result.
fn caller(store: &MemoryStore, schemas: [&str; 2]) -> Probe {
    let tools = ToolRegistry::default().with(remote()).unwrap();
    let shared: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    Probe::on("question.v1", "caller", store)
        .profile(Profile::new("agent").responds_with(schemas))
        .executing(move |run| asks(tools.clone(), run, Arc::clone(&shared)))
}

async fn asks(
    tools: ToolRegistry,
    run: ExecutionContext,
    store: Arc<dyn BreadcrumbStore>,
) -> Result<Value, BoxError> {
    let call = MachineCall::new("c-1", "probe", json!({"n": 1}));
    match tools.call(call, Some("caller"), &run, &store).await {
        ToolOutcome::Answered(Answer::Success(output)) => Ok(json!({"told": {"output": output}})),
        ToolOutcome::Answered(Answer::Error { code, message }) => {
            Ok(json!({"told": {"code": code, "message": message}}))
        }
        other @ ToolOutcome::Deferred(_) => panic!("{other:?}"),
    }
}

const MAY_ASK: [&str; 2] = ["answer.v1", "tool.request.v1"];

/// Asks a question while executors run, calls `meanwhile` with the tool request, and returns the result in the answer.
async fn answered(
    store: &MemoryStore,
    executors: Vec<Arc<dyn UniversalExecutor>>,
    meanwhile: impl AsyncFn(Arc<Breadcrumb>),
) -> Value {
    let runtime = Runtime::builder(store.events())
        .executors(executors)
        .build()
        .unwrap();
    let work = async {
        put(store, "question.v1", json!({})).await;
        eventually(async || !all(store, "tool.request.v1").await.is_empty()).await;
        meanwhile(only(store, "tool.request.v1").await).await;
        eventually(async || !all(store, "answer.v1").await.is_empty()).await;
    };
    runtime.run_until(work).await.unwrap();
    only(store, "answer.v1").await.context["told"].clone()
}

async fn respond(store: &MemoryStore, request: &Breadcrumb, mut fields: Value) {
    fields["request_id"] = request.context["requestId"].clone();
    let response = NewBreadcrumb::new("tool.response.v1").context(fields);
    let tag = format!("request:{}", request.context.text("requestId").unwrap());
    store.create(response.tag(tag)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_is_a_request_and_its_response_the_result() {
    let store = MemoryStore::default();
    let served = ToolExecutor::new(echo("probe"), Arc::new(store.clone())).unwrap();

    let output = answered(
        &store,
        vec![caller(&store, MAY_ASK).shared(), Arc::new(served)],
        async |_| {},
    )
    .await;

    assert_eq!(output, json!({"output": {"n": 1}}));
    let request = only(&store, "tool.request.v1").await;
    let id = request.context.text("requestId").unwrap();
    assert_eq!(request.context["tool"], "probe");
    assert_eq!(request.context["requestedBy"], "caller");
    assert_eq!(request.context["creator"]["id"], "caller");
    for tag in ["tool:request", "workspace:tools", &format!("request:{id}")] {
        assert!(request.tags.contains(&tag.to_owned()), "{:?}", request.tags);
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_of_an_executor_to_something_else_is_not_the_result() {
    let store = MemoryStore::default();
    let eve = Probe::on("go.v1", "eve", &store).responding(|trigger, _| {
        let id = trigger.context.text("id").unwrap();
        let context =
            json!({"request_id": id, "tool": "probe", "status": "success", "output": "forged"});
        let response = NewBreadcrumb::new("tool.response.v1").context(context);
        Ok(Response::create(response.tag(format!("request:{id}"))))
    });
    let executors: Vec<Arc<dyn UniversalExecutor>> =
        vec![caller(&store, MAY_ASK).shared(), eve.shared()];

    let output = answered(&store, executors, async |request| {
        put(&store, "go.v1", json!({"id": request.context["requestId"]})).await;
        eventually(async || !all(&store, "tool.response.v1").await.is_empty()).await;
        let real = json!({"tool": "probe", "status": "success", "output": "real"});
        respond(&store, &request, real).await;
    })
    .await;

    assert_eq!(output, json!({"output": "real"}));
}

#[tokio::test(start_paused = true)]
async fn only_the_answer_to_the_request_ends_the_wait() {
    let store = MemoryStore::default();
    let responses = [
        json!({"tool": "other", "status": "success", "output": "of another tool"}),
        json!({"tool": "probe", "output": "without a status"}),
        json!({"tool": "probe", "status": "error", "error": {"message": "no such city"}}),
        json!({"tool": "probe", "status": "success", "output": "too late"}),
    ];

    let executors: Vec<Arc<dyn UniversalExecutor>> = vec![caller(&store, MAY_ASK).shared()];
    let output = answered(&store, executors, async |request| {
        for response in &responses {
            respond(&store, &request, response.clone()).await;
            sleep(SECOND / 10).await;
        }
    })
    .await;

    assert_eq!(output, json!({"code": "failed", "message": "no such city"}));
}

#[tokio::test(start_paused = true)]
async fn a_response_that_does_not_come_is_an_error_after_the_time_of_the_tool() {
    let store = MemoryStore::default();
    let started = Instant::now();

    let output = answered(&store, vec![caller(&store, MAY_ASK).shared()], async |_| {}).await;

    assert_eq!(output["code"], "timeout");
    assert!(started.elapsed() >= 10 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_tried_again_asks_once() {
    for early in [false, true] {
        let store = MemoryStore::default();
        let tools = ToolRegistry::default().with(remote()).unwrap();
        let shared: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&attempts);
        let losses = Arc::new(AtomicUsize::new(0));
        let noted = Arc::clone(&losses);
        // The first attempt is lost while it waits. The response arrives before or after the second attempt starts.
        let agent = Probe::on("question.v1", "caller", &store)
            .profile(Profile::new("agent").retry(RetryPolicy::default()))
            .executing(move |run| {
                let asking = asks(tools.clone(), run, Arc::clone(&shared));
                let attempt = counted.fetch_add(1, Ordering::SeqCst);
                let noted = Arc::clone(&noted);
                async move {
                    match attempt {
                        0 => {
                            let lost = tokio::time::timeout(SECOND, asking).await;
                            assert!(lost.is_err());
                            noted.fetch_add(1, Ordering::SeqCst);
                            Err(retry_after(SECOND, "lost"))
                        }
                        _ => asking.await,
                    }
                }
            });

        let output = answered(&store, vec![agent.shared()], async |request| {
            match early {
                true => eventually(async || count(&losses) == 1).await,
                false => eventually(async || count(&attempts) == 2).await,
            }
            assert_eq!(count(&attempts), if early { 1 } else { 2 });
            respond(
                &store,
                &request,
                json!({"tool": "probe", "status": "success", "output": 7}),
            )
            .await;
        })
        .await;

        assert_eq!(output, json!({"output": 7}), "early: {early}");
        assert_eq!(count(&attempts), 2);
        assert_eq!(all(&store, "tool.request.v1").await.len(), 1);
    }
}

/// Returns the key of the call `c-1`. Any client that knows the key of the run can compute it.
fn key_of_call(run: &str) -> String {
    let mut hash = Sha256::new();
    for part in [run, "c-1"] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[tokio::test(start_paused = true)]
async fn a_request_that_a_client_planted_does_not_keep_a_run_from_asking() {
    let store = MemoryStore::default();
    let planting = store.clone();
    let tools = ToolRegistry::default().with(remote()).unwrap();
    let shared: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    // The client knows the key of the call, because it follows from the ID of the trigger.
    let agent = Probe::on("question.v1", "caller", &store).executing(move |run| {
        let (store, tools, shared) = (planting.clone(), tools.clone(), Arc::clone(&shared));
        async move {
            let id = key_of_call(run.idempotency_key());
            let creator = json!({"id": "caller", "trigger_id": run.trigger().id});
            let planted = NewBreadcrumb::new("tool.request.v1").created_by("caller");
            let planted = planted.tag(format!("request:{id}"));
            let fields = json!({"tool": "other", "requestId": id, "creator": creator});
            store.create(planted.context(fields)).await?;
            asks(tools, run, shared).await
        }
    });
    let runtime = Runtime::builder(store.events())
        .executor(agent)
        .build()
        .unwrap();
    let requests = async || all(&store, "tool.request.v1").await;
    let mut asked = false;
    let work = async {
        put(&store, "question.v1", json!({})).await;
        let both = eventually(async || requests().await.len() == 2);
        asked = tokio::time::timeout(5 * SECOND, both).await.is_ok();
    };

    runtime.run_until(work).await.unwrap();

    let requests = requests().await;
    assert!(asked, "no request was written: {requests:?}");
    let id = |request: &Breadcrumb| request.context["requestId"].clone();
    assert_eq!(
        id(&requests[0]),
        id(&requests[1]),
        "the test must compute the same key as the run"
    );
}

#[tokio::test]
async fn a_remote_call_outside_a_runtime_fails_without_a_request() {
    let store = MemoryStore::default();
    let shared: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    let tools = ToolRegistry::default().with(remote()).unwrap();
    let call = MachineCall::new("c-1", "probe", json!({}));

    let (code, message) = error_of(tools.call(call, None, &by_hand(), &shared).await);

    assert_eq!(code, "failed");
    assert!(
        message.contains("no runtime processes this run"),
        "{message}"
    );
    assert!(all(&store, "tool.request.v1").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_caller_without_permission_to_write_requests_receives_an_error() {
    let store = MemoryStore::default();
    let runtime = Runtime::builder(store.events())
        .executor(caller(&store, ["answer.v1", "other.v1"]))
        .build()
        .unwrap();
    let work = async {
        put(&store, "question.v1", json!({})).await;
        eventually(async || !all(&store, "answer.v1").await.is_empty()).await;
    };

    runtime.run_until(work).await.unwrap();

    let answer = only(&store, "answer.v1").await;
    let message = answer.context["told"]["message"].as_str().unwrap();
    assert!(message.contains("tool.request.v1"), "{message}");
    assert!(all(&store, "tool.request.v1").await.is_empty());
}

#[tokio::test]
async fn a_dispatcher_does_not_serve_a_remote_tool() {
    let store = MemoryStore::default();
    let shared: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    let (local, calls) = counting("local", |_| async { Ok(json!(1)) });
    let tools = registry([local]).with(remote()).unwrap();
    let tools = ToolDispatcher::new("tools", tools, Arc::clone(&shared)).unwrap();
    let tools = tools.answering_unknown().unwrap();

    let mut outcomes = Vec::new();
    for name in ["probe", "local", "unknown"] {
        let request = json!({"tool": name, "input": {}});
        let request = put(&store, "tool.request.v1", request).await;
        outcomes.push(tools.process_event(&event_of(&request)).await.unwrap());
    }
    let refused = ToolExecutor::new(remote(), shared).unwrap_err();

    assert_eq!(outcomes[0], Outcome::Unmatched);
    assert!(matches!(outcomes[1], Outcome::Responded { .. }));
    assert!(matches!(outcomes[2], Outcome::Responded { .. }));
    assert_eq!(tools.registry().names(), ["local"]);
    assert_eq!(count(&calls), 1);
    assert!(
        matches!(refused, ToolError::Elsewhere { .. }),
        "{refused:?}"
    );
}

#[test]
fn a_remote_tool_exposes_its_settings_and_spec_to_the_registry() {
    let tools = ToolRegistry::default().with(remote()).unwrap();

    let settings = tools.get("probe").unwrap().settings();

    assert!(settings.over_breadcrumbs);
    assert_eq!(settings.retry, RetrySafety::Idempotent);
    assert_eq!(tools.specs()[0].name, "probe");
}

#[tokio::test(start_paused = true)]
async fn the_result_of_a_call_is_without_the_fields_that_hints_of_the_response_exclude() {
    let cases = [
        (
            json!({"exclude": ["output.secret"]}),
            json!({"output": {"text": "public"}}),
        ),
        (
            json!({"exclude": 7}),
            json!({
                "code": "withheld",
                "message": "the answer is withheld, because its llm_hints exclude all of it or cannot be used",
            }),
        ),
    ];
    for (hints, expected) in cases {
        let store = MemoryStore::default();
        let executors: Vec<Arc<dyn UniversalExecutor>> = vec![caller(&store, MAY_ASK).shared()];

        let output = answered(&store, executors, async |request| {
            let id = request.context.text("requestId").unwrap();
            let output = json!({"text": "public", "secret": "canary-4711"});
            let context = json!({"request_id": id, "status": "success", "output": output});
            let response = NewBreadcrumb::new("tool.response.v1")
                .tag(format!("request:{id}"))
                .context(context)
                .llm_hints(hints.clone());
            store.create(response).await.unwrap();
        })
        .await;

        assert_eq!(output, expected);
    }
}
