//! Workloads as executors, and executors as workloads: runs are durable and answered once.

use crate::workload::{Setup, agent, alone, asked, flow, history, output, parrot, setup, setup_on};
use futures::StreamExt as _;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::agent::{AgentDefinition, AgentExecutor, ChatResponse, ScriptedModel};
use universal_executor::executor::InvalidExecutor;
use universal_executor::store::mock::store_with;
use universal_executor::tool::{ToolRegistry, json_tool};
use universal_executor::workflow::StepPath;
use universal_executor::workload::{
    Definition, ExecutorDefinition, FlowDefinition, NativeDefinition, RunCx, SessionStore,
    WorkloadError, WorkloadEventKind, WorkloadExecutor,
};
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, Json, MemoryStore, NewBreadcrumb,
    Outcome, Profile, Services, Subscription, Subscriptions, UniversalExecutor,
};

fn executor(definition: impl Definition + 'static, setup: &Setup) -> WorkloadExecutor {
    let messages = Subscriptions::new([Subscription::trigger("user.message.v1")]).unwrap();
    setup
        .executor("desk", Arc::new(definition), messages)
        .unwrap()
}

async fn say(store: &MemoryStore, text: &str) -> Arc<Breadcrumb> {
    let message = NewBreadcrumb::new("user.message.v1")
        .tag("session:one")
        .created_by("ann");
    store
        .create(message.context(json!({"message": text})))
        .await
        .unwrap()
}

#[tokio::test]
async fn a_trigger_starts_one_turn_in_its_session_and_is_answered_once() {
    let store = MemoryStore::default();
    let model = parrot();
    let desk = executor(agent(), &setup(&model, &store));
    let first = say(&store, "I am Ann.").await;

    desk.process_event(&Event::created(&first)).await.unwrap();
    let again = desk.process_event(&Event::created(&first)).await.unwrap();
    let second = say(&store, "Who am I?").await;
    desk.process_event(&Event::created(&second)).await.unwrap();

    assert!(matches!(again, Outcome::AlreadyDone { .. }), "{again:?}");
    let result = store
        .latest(WorkloadExecutor::RESULT)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(result.context["output"], "said: Who am I?");
    assert_eq!(
        result
            .tags
            .iter()
            .filter(|tag| *tag == "session:one")
            .count(),
        1
    );
    assert_eq!(
        history(&model.requests()[1]),
        ["I am Ann.", "said: I am Ann."]
    );
}

#[test]
fn an_invalid_workload_executor_is_refused_when_it_is_built() {
    let store = MemoryStore::default();
    let made = |id: &str, definition: FlowDefinition, setup: &Setup| {
        let messages = Subscriptions::new([Subscription::trigger("user.message.v1")]).unwrap();
        setup.executor(id, Arc::new(definition), messages)
    };
    let nothing = Setup::new(Services::new(), Arc::new(store.clone()));

    let no_name = made("", agent(), &setup(&parrot(), &store)).err().unwrap();
    let no_model = made("desk", agent(), &nothing).err().unwrap();
    let sound = made("desk", agent(), &setup(&parrot(), &store));

    assert!(matches!(no_name, WorkloadError::Invalid(_)), "{no_name}");
    assert_eq!(
        no_model.to_string(),
        "cannot create workload \"it\" from its definition; see the cause"
    );
    let source = std::error::Error::source(&no_model).unwrap().to_string();
    assert!(source.contains("names no model"), "{source}");
    assert!(sound.is_ok());
}

#[test]
fn a_flow_that_waits_is_refused_on_a_store_that_cannot_keep_that() {
    let no_ledger: Arc<dyn BreadcrumbStore> = Arc::new(store_with::<Breadcrumb>([]));
    let setup = setup_on(&parrot(), no_ledger);
    let made = |steps: serde_json::Value| {
        let messages = Subscriptions::new([Subscription::trigger("user.message.v1")]).unwrap();
        let definition = flow(json!({"flows": {"main": {"steps": steps}}}));
        setup.executor("desk", Arc::new(definition), messages)
    };

    let waits = made(json!([{"ask": "Go on?"}]));
    let goes_on = made(json!([{"return": "done"}]));

    assert!(
        matches!(
            waits,
            Err(WorkloadError::Invalid(InvalidExecutor::NoLedger { .. }))
        ),
        "{waits:?}"
    );
    assert!(goes_on.is_ok());
}

#[tokio::test]
async fn a_workload_cannot_write_a_schema_that_its_profile_omits() {
    let store = MemoryStore::default();
    let shared: Arc<dyn universal_executor::BreadcrumbStore> = Arc::new(store.clone());
    let writes = NativeDefinition::new("writes", move |cx: RunCx, _| {
        let store = cx.context().bound_store(Arc::clone(&shared));
        async move {
            store.create(NewBreadcrumb::new("other.v1")).await?;
            Ok(json!("written"))
        }
    });
    let only = Profile::new("workload").responds_with([WorkloadExecutor::RESULT]);
    let desk = executor(writes, &setup(&parrot(), &store)).with_profile(only);
    let trigger = say(&store, "write").await;

    desk.process_event(&Event::created(&trigger)).await.unwrap();

    let result = store.latest(WorkloadExecutor::RESULT).await.unwrap();
    assert_eq!(result.unwrap().context["status"], "error");
    assert!(store.latest("other.v1").await.unwrap().is_none());
}

/// Returns a flow that emits a note and then calls a tool that writes another breadcrumb.
fn writing() -> serde_json::Value {
    json!({"tools": {"writes": {}}, "flows": {"main": {"steps": [
        {"emit": {"schema_name": "note.v1"}}, {"tool": "writes", "input": {}},
    ]}}})
}

fn writing_services() -> Services {
    let writes = json_tool("writes", "Writes.", json!({}), |_, context| async move {
        context
            .store()
            .create(NewBreadcrumb::new("other.v1"))
            .await?;
        Ok(json!("written"))
    });
    Services::new().tools(ToolRegistry::default().with(writes).unwrap())
}

#[tokio::test]
async fn a_flow_writes_only_declared_schemas_for_requests_and_messages() {
    for (is_request, also, expected) in [
        (true, false, "error"),
        (false, false, "error"),
        (true, true, "success"),
        (false, true, "success"),
    ] {
        let store = MemoryStore::default();
        let setup = Setup::new(writing_services(), Arc::new(store.clone()));
        let also = also.then_some("other.v1");
        let (desk, trigger, schema) = if is_request {
            let definition = Arc::new(flow(writing()));
            let desk = WorkloadExecutor::on_requests("desk", definition, &setup.services, &store);
            let request = json!({"workflow": "desk"});
            let request = NewBreadcrumb::new(WorkloadExecutor::REQUEST).context(request);
            let request = store.create(request).await.unwrap();
            (desk.unwrap(), request, WorkloadExecutor::REQUEST_RESULT)
        } else {
            let desk = executor(flow(writing()), &setup);
            let message = say(&store, "write").await;
            (desk, message, WorkloadExecutor::RESULT)
        };
        let desk = desk.also_writes(also);

        desk.process_event(&Event::created(&trigger)).await.unwrap();

        let result = store.latest(schema).await.unwrap().unwrap();
        assert_eq!(result.context["status"], expected, "{result:?}");
        assert!(store.latest("note.v1").await.unwrap().is_some());
        let other = store.latest("other.v1").await.unwrap();
        assert_eq!(other.is_some(), also.is_some());
    }
}

#[tokio::test]
async fn a_flow_emits_only_schemas_that_its_profile_lists() {
    let store = MemoryStore::default();
    let emits = flow(json!({"flows": {"main": {"steps": [
        {"emit": {"schema_name": "note.v1"}}, {"return": "noted"},
    ]}}}));
    let only = Profile::new("workload").responds_with([WorkloadExecutor::RESULT]);
    let desk = executor(emits, &setup(&parrot(), &store)).with_profile(only);
    let trigger = say(&store, "write").await;

    desk.process_event(&Event::created(&trigger)).await.unwrap();

    let result = store.latest(WorkloadExecutor::RESULT).await.unwrap();
    assert_eq!(result.unwrap().context["status"], "error");
    assert!(store.latest("note.v1").await.unwrap().is_none());
}

#[test]
fn an_executor_that_can_never_work_makes_no_workload() {
    let store = MemoryStore::default();
    let setup = setup(&parrot(), &store);
    let never = executor(agent(), &setup).with_profile(Profile::new("x").max_inflight(0));

    let error = ExecutorDefinition::new(Arc::new(never)).check(&setup.services, &setup.store);

    assert!(error.unwrap_err().to_string().contains("max_inflight"));
}

/// Writes Ann's answer to a question.
async fn answer(store: &MemoryStore, ticket: &str, answer: &str) -> Arc<Breadcrumb> {
    let response = NewBreadcrumb::new("human.response.v1")
        .tag(format!("request:{ticket}"))
        .created_by("ann");
    let response = response.context(json!({"request_id": ticket, "answer": answer}));
    store.create(response).await.unwrap()
}

#[tokio::test]
async fn a_waiting_run_is_suspended_and_continues_with_the_answer() {
    let store = MemoryStore::default();
    let asks = flow(json!({"flows": {"main": {"steps": [
        {"id": "answer", "ask": "Go on?"}, {"return": "${answer}"},
    ]}}}));
    let desk = executor(asks, &setup(&parrot(), &store));
    let trigger = say(&store, "publish").await;
    let event = Event::created(&trigger);

    let waits = desk.process_event(&event).await.unwrap();
    let question = store.latest("human.request.v1").await.unwrap().unwrap();
    let id = question.context.text("requestId").unwrap();
    let answer = answer(&store, id, "yes").await;
    let ledger = universal_executor::BreadcrumbStore::ledger(&store).unwrap();
    let run = universal_executor::store::RunRef::of("desk", &event);
    ledger.resume(&run, answer.id).await.unwrap();
    desk.process_event(&event).await.unwrap();

    assert!(matches!(waits, Outcome::Suspended { .. }), "{waits:?}");
    let result = store
        .latest(WorkloadExecutor::RESULT)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(result.context["output"], "yes");
}

#[tokio::test]
async fn a_run_that_waited_is_not_added_to_a_session_that_was_deleted_meanwhile() {
    let store = MemoryStore::default();
    let asks = flow(json!({"flows": {"main": {"steps": [{"ask": "Go on?"}, {"return": "done"}]}}}));
    let desk = executor(asks, &setup(&parrot(), &store));
    let trigger = say(&store, "publish").await;
    let event = Event::created(&trigger);
    desk.process_event(&event).await.unwrap();
    let sessions = SessionStore::new(Arc::new(store.clone()));

    let deleted = sessions.delete("one").await.unwrap();
    let answer = store.create(NewBreadcrumb::new("answer.v1")).await.unwrap();
    let ledger = universal_executor::BreadcrumbStore::ledger(&store).unwrap();
    let run = universal_executor::store::RunRef::of("desk", &event);
    ledger.resume(&run, answer.id).await.unwrap();
    desk.process_event(&event).await.unwrap();

    assert_eq!(deleted, 1);
    let result = store.latest(WorkloadExecutor::RESULT).await.unwrap();
    assert_eq!(result.unwrap().context["error"]["code"], "session");
    assert!(store.latest("session.log.v1").await.unwrap().is_none());
}

/// The worker dies after the second of three steps, and another worker continues.
#[tokio::test(start_paused = true)]
async fn an_agent_continues_its_conversation_after_a_crash_without_duplicates() {
    const LEASE: Duration = Duration::from_secs(10);
    let store = MemoryStore::default();
    let model = Arc::new(ScriptedModel::answering(|_, request| {
        Ok(ChatResponse::new(format!("said: {}", asked(request))))
    }));
    let called = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&called);
    let stuck = json_tool("stuck", "Hangs once.", json!({}), move |_, _| {
        let number = counted.fetch_add(1, Ordering::SeqCst);
        async move {
            if number == 0 {
                std::future::pending::<()>().await;
            }
            Ok(json!("loose"))
        }
    });
    let tools = ToolRegistry::default().with(stuck.idempotent()).unwrap();
    let services = Services::new()
        .tools(tools)
        .default_model(Arc::clone(&model));
    let setup = Setup::new(services, Arc::new(store.clone()));
    let three = || {
        flow(json!({
            "tools": {"stuck": {}},
            "agents": {"a": {"instruction": "Help."}},
            "flows": {"main": {"steps": [
                {"agent": "a"}, {"agent": "a", "input": "two"}, {"tool": "stuck", "input": {}},
                {"agent": "a", "input": "three"},
            ]}},
        }))
    };
    let profile = || Profile::new("workload").lease(LEASE);
    let first = executor(three(), &setup).with_profile(profile());
    let trigger = say(&store, "one").await;
    let event = Event::created(&trigger);
    let lost = tokio::time::timeout(Duration::from_secs(2), first.process_event(&event)).await;
    tokio::time::advance(LEASE * 2).await;

    let second = executor(three(), &setup).with_profile(profile());
    let came_further = second.process_event(&event).await.unwrap();
    second.process_event(&event).await.unwrap();
    let trigger = say(&store, "again").await;
    second
        .process_event(&Event::created(&trigger))
        .await
        .unwrap();

    assert!(lost.is_err());
    assert!(matches!(came_further, Outcome::Suspended { .. }));
    let texts: Vec<_> = model.requests().iter().map(asked).collect();
    assert_eq!(texts, ["one", "two", "three", "again", "two", "three"]);
    let shown = history(&model.requests()[4]).join("|");
    assert_eq!(shown, "one|said: three|two|said: two");
    let session = SessionStore::new(Arc::new(store)).session("one");
    let child = session
        .child(&StepPath::new("main/0"))
        .load()
        .await
        .unwrap();
    assert_eq!(child.entries().len(), 2);
    assert_eq!(session.load().await.unwrap().entries().len(), 2);
}

#[tokio::test]
async fn an_executor_is_a_workload_whose_runs_are_claimed_like_any_other() {
    let store = MemoryStore::default();
    let definition = AgentDefinition::from_json(&json!({
        "agent_id": "helper", "system_prompt": "Help.",
        "subscriptions": [{"schema_name": "user.message.v1", "role": "trigger"}],
    }));
    let model = Arc::new(ScriptedModel::new(["Hello!"]));
    let helper = AgentExecutor::new(definition.unwrap(), model, Arc::new(store.clone())).unwrap();
    let helper = ExecutorDefinition::new(Arc::new(helper));
    let setup = setup(&parrot(), &store);

    let mut workload = helper.instantiate(&setup.services, &setup.store).unwrap();
    let first: Vec<_> = workload
        .run(alone("run-1"), Some("Hi".into()))
        .collect()
        .await;
    // A repetition of the same run returns the response that it has already written.
    let again: Vec<_> = workload
        .run(alone("run-1"), Some("Hi".into()))
        .collect()
        .await;

    assert_eq!(
        (output(&first), output(&again)),
        (json!("Hello!"), json!("Hello!"))
    );
    assert_eq!(store.recent("user.message.v1", 9).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_executor_that_is_not_triggered_reports_an_unmatched_error() {
    let store = MemoryStore::default();
    let setup = setup(&parrot(), &store);
    let never = executor(agent(), &setup);
    let never = ExecutorDefinition::new(Arc::new(never)).schema("other.v1");

    let mut workload = never.instantiate(&setup.services, &setup.store).unwrap();
    let events: Vec<_> = workload
        .run(alone("run-1"), Some("Hi".into()))
        .collect()
        .await;

    let WorkloadEventKind::Error { failure, .. } = &events[1].kind else {
        panic!("{events:?}")
    };
    assert_eq!(failure.code, "unmatched");
}

#[tokio::test]
async fn the_error_of_a_closure_is_in_the_dead_letter_and_not_in_the_response() {
    let store = MemoryStore::default();
    let definition = NativeDefinition::new("fails", |_, _| async {
        Err::<Json, _>("the table is locked".into())
    });
    let messages = Subscriptions::new([Subscription::trigger("user.message.v1")]).unwrap();
    let services = Services::new();
    let executor = WorkloadExecutor::new("it", Arc::new(definition), &services, &store, messages);
    let executor = executor
        .unwrap()
        .with_profile(Profile::new("it").attempts(1));
    let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "hi"}));
    let message = store.create(message).await.unwrap();

    let outcome = executor.process_event(&Event::created(&message)).await;

    assert!(matches!(outcome, Ok(Outcome::Failed { .. })), "{outcome:?}");
    let response = store
        .latest(WorkloadExecutor::RESULT)
        .await
        .unwrap()
        .unwrap();
    let response = response.context.to_string();
    assert!(
        response.contains(r#"the Rust function of workload \"fails\" failed"#)
            && response.contains("the dead letter of the run"),
        "{response}"
    );
    assert!(!response.contains("locked"), "{response}");
    let letter = store.latest("executor.failed.v1").await.unwrap().unwrap();
    let letter = letter.context.to_string();
    assert!(letter.contains("the table is locked"), "{letter}");
}
