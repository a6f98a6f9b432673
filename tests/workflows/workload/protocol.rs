//! The workload protocol: agents, flows, closures and executors run in the same loop, stream their events, and are closed.

use crate::workload::supervisor::endless;
use crate::workload::{
    Setup, agent, alone, asked, events, flow, grammar, output, parrot, says, setup,
};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::agent::{
    ApiProvider, ChatResponse, Provider, ProviderEvent, ProviderSession, ProviderTask,
    ScriptedModel, ToolCall,
};
use universal_executor::machine::{Answer, ResultDelivery, ToolResult};
use universal_executor::tool::{ToolExecutor, ToolRegistry, json_tool};
use universal_executor::workflow::FlowEventKind;
use universal_executor::workload::{
    Definition, ExecutorDefinition, NativeDefinition, RunCx, WorkloadEventKind, WorkloadMessage,
    with_workload,
};
use universal_executor::{
    BoxError, Json, MemoryStore, Services, UniversalExecutor, async_trait, permanent, retry_after,
};

fn shout() -> NativeDefinition {
    NativeDefinition::new("shout", |cx: RunCx, message| async move {
        cx.say("Well: ").await;
        Ok(json!(message.unwrap_or_default().text().to_uppercase()))
    })
}

/// Creates an executor that serves the tool `double` on a store.
fn doubling(store: &MemoryStore) -> Arc<dyn UniversalExecutor> {
    let double = json_tool(
        "double",
        "Twice as much.",
        json!({}),
        |input, _| async move { Ok(json!(input["n"].as_i64().unwrap_or(0) * 2)) },
    );
    Arc::new(ToolExecutor::new(double, Arc::new(store.clone())).unwrap())
}

#[tokio::test]
async fn four_kinds_of_workloads_driven_by_one_loop_keep_to_one_grammar() {
    let store = MemoryStore::default();
    let setup = setup(&parrot(), &store);
    let loud = flow(
        json!({"agents": {"a": {"instruction": "Help."}}, "flows": {"main": {"steps": [
            {"parallel": [{"agent": "a"}, {"agent": "a"}]}, {"return": "done"},
        ]}}}),
    );
    let tool = ExecutorDefinition::new(doubling(&store)).schema("tool.request.v1");
    let table: [(&dyn Definition, Json, Json); 4] = [
        (&agent(), json!("hi").into(), json!("said: hi").into()),
        (&loud, json!("hi").into(), json!("done").into()),
        (&shout(), json!("hi").into(), json!("HI").into()),
        (
            &tool,
            json!({"tool": "double", "input": {"n": 4}}).into(),
            json!(8).into(),
        ),
    ];
    for (definition, message, expected) in table {
        let mut workload = definition
            .instantiate(&setup.services, &setup.store)
            .unwrap();
        let run = workload.run(alone("run-1"), Some(WorkloadMessage::new(message)));
        let events: Vec<_> = run.collect().await;
        workload.close().await.unwrap();

        grammar::check(&events);
        assert_eq!(output(&events), *expected, "{events:?}");
    }
}

#[tokio::test]
async fn two_workloads_of_one_definition_share_no_variables() {
    let setup = setup(&parrot(), &MemoryStore::default());
    let sets = flow(
        json!({"agents": {"a": {"instruction": "Help."}}, "flows": {"main": {"steps": [
            {"set": {"mine": "${input}"}}, {"agent": "a"}, {"return": "${mine}"},
        ]}}}),
    );

    let (one, two) = futures::join!(events(&sets, &setup, "one"), events(&sets, &setup, "two"));

    assert_eq!((output(&one), output(&two)), (json!("one"), json!("two")));
}

#[tokio::test]
async fn events_of_a_nested_agent_are_reported_before_it_finishes() {
    let calls = Arc::new(ScriptedModel::answering(|number, _| {
        Ok(match number {
            1 => ChatResponse::calling(vec![ToolCall::new("1", "double", json!({"n": 2}))]),
            _ => ChatResponse::new("Four."),
        })
    }));
    let setup = setup(&calls, &MemoryStore::default());
    let nested = flow(json!({
        "tools": {"double": {}},
        "agents": {"a": {"instruction": "Help.", "tools": ["double"]}},
        "flows": {"main": {"steps": [{"flow": "inner"}]}, "inner": {"steps": [{"agent": "a"}]}},
    }));
    let mut workload = nested.instantiate(&setup.services, &setup.store).unwrap();
    let mut events = workload.run(alone("run-1"), Some("2".into()));

    while let Some(event) = events.next().await {
        if matches!(event.kind, WorkloadEventKind::ToolAnswered { .. }) {
            assert_eq!(event.path.as_str(), "main/0/inner/0");
            assert_eq!(&*event.run, "run-1");
            break;
        }
    }

    // The agent makes its next model request only when a subscriber polls for further events.
    assert_eq!(calls.requests().len(), 1);
    let rest: Vec<_> = events.map(|event| event.kind).collect().await;
    assert!(
        rest.contains(&WorkloadEventKind::Text("Four.".into())),
        "{rest:?}"
    );
}

#[tokio::test]
async fn an_agent_is_offered_the_same_tools_as_root_and_within_a_flow() {
    let model = parrot();
    let setup = setup(&model, &MemoryStore::default());
    let parts = json!({
        "tools": {"double": {}},
        "agents": {
            "main": {"instruction": "Help.", "tools": ["double"], "use": ["other"]},
            "other": {"instruction": "Help."},
        },
        "flows": {"f": {"steps": [{"parallel": [{"agent": "main"}, {"agent": "main"}]}]}},
    });
    let workflow = || universal_executor::workflow::Workflow::from_json(&parts).unwrap();
    let root = universal_executor::workload::FlowDefinition::new("it", workflow()).unwrap();
    let policy = universal_executor::workload::EntryPolicy::default();
    let within = universal_executor::workload::FlowDefinition::with_entry(
        "it",
        workflow(),
        Some("f"),
        policy,
    );

    events(&root, &setup, "hi").await;
    events(&within.unwrap(), &setup, "hi").await;

    let requests = model.requests();
    assert_eq!(requests.len(), 3);
    assert_eq!(requests[0].tools.len(), 2);
    assert!(
        requests
            .iter()
            .all(|request| request.tools == requests[0].tools)
    );
    assert!(requests.iter().all(|request| asked(request) == "hi"));
}

/// A provider that counts its sessions by their end: cancelled or dropped. All sessions except the first never answer.
struct Counting {
    inner: ApiProvider,
    begun: Arc<AtomicUsize>,
    closed: Arc<Closed>,
}

#[derive(Default)]
struct Closed {
    cancelled: AtomicUsize,
    dropped: AtomicUsize,
}

struct Counted {
    inner: Box<dyn ProviderSession>,
    number: usize,
    is_open: bool,
    closed: Arc<Closed>,
}

impl Counted {
    /// Counts the end of this session, only once.
    fn close(&mut self, how: impl Fn(&Closed) -> &AtomicUsize) {
        if std::mem::take(&mut self.is_open) {
            how(&self.closed).fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.close(|closed| &closed.dropped);
    }
}

#[async_trait]
impl Provider for Counting {
    fn delivery(&self) -> ResultDelivery {
        self.inner.delivery()
    }

    async fn start(&self, task: ProviderTask) -> Result<Box<dyn ProviderSession>, BoxError> {
        let number = self.begun.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(Counted {
            inner: self.inner.start(task).await?,
            number,
            is_open: true,
            closed: Arc::clone(&self.closed),
        }))
    }

    async fn resume(
        &self,
        task: ProviderTask,
        _: Json,
    ) -> Result<Box<dyn ProviderSession>, BoxError> {
        self.start(task).await
    }
}

#[async_trait]
impl ProviderSession for Counted {
    async fn next(&mut self) -> Result<ProviderEvent, BoxError> {
        // Yield, so that all branches have started when the first one ends.
        tokio::task::yield_now().await;
        if self.number > 0 {
            std::future::pending::<()>().await;
        }
        self.inner.next().await
    }

    async fn deliver(&mut self, results: Vec<ToolResult>) -> Result<(), BoxError> {
        self.inner.deliver(results).await
    }

    async fn tell(&mut self, message: String) -> Result<(), BoxError> {
        self.inner.tell(message).await
    }

    async fn answer(&mut self, answer: Answer) -> Result<(), BoxError> {
        self.inner.answer(answer).await
    }

    async fn cancel(&mut self) {
        self.inner.cancel().await;
        self.close(|closed| &closed.cancelled);
    }

    fn save(&self) -> Result<Json, BoxError> {
        self.inner.save()
    }
}

#[tokio::test]
async fn every_agent_of_parallel_branches_is_closed_also_if_it_was_cancelled() {
    let (begun, closed) = (Arc::default(), Arc::<Closed>::default());
    let model = Arc::new(ScriptedModel::new(["one"]));
    let counting = Counting {
        inner: ApiProvider::new(model),
        begun: Arc::clone(&begun),
        closed: Arc::clone(&closed),
    };
    let services = Services::new().provider("counting", counting);
    let setup = Setup::new(services, Arc::new(MemoryStore::default()));
    let three = flow(json!({
        "models": {"m": {"provider": "counting"}},
        "agents": {"a": {"instruction": "Help.", "model": "m"}},
        "flows": {"main": {"steps": [
            {"parallel": [{"agent": "a"}, {"agent": "a"}, {"agent": "a"}], "join": "first"},
        ]}},
    }));

    let told = events(&three, &setup, "hi").await;

    assert!(
        told.iter()
            .any(|event| event.kind == WorkloadEventKind::Step(FlowEventKind::Cancelled))
    );
    assert_eq!(begun.load(Ordering::Relaxed), 3);
    // The branch that answered is cancelled, and the other ones are dropped while they run.
    let closed = [&closed.cancelled, &closed.dropped].map(|count| count.load(Ordering::Relaxed));
    assert_eq!(closed, [1, 2]);
}

#[tokio::test]
async fn an_error_of_a_closure_is_reported_with_its_retry_and_without_its_message() {
    let setup = setup(&says([]), &MemoryStore::default());
    let never = NativeDefinition::new("never", |_, _| async {
        Err::<Json, _>(permanent("secret"))
    });
    let later = NativeDefinition::new("later", |_, _| async {
        Err::<Json, _>(retry_after(Duration::from_secs(9), "secret"))
    });

    let never = events(&never, &setup, "hi").await;
    let later = events(&later, &setup, "hi").await;

    assert!(!format!("{never:?}{later:?}").contains("secret"));
    assert!(format!("{never:?}").contains("retry: Never"), "{never:?}");
    assert!(
        format!("{later:?}").contains("retry: After(9s)"),
        "{later:?}"
    );
}

#[tokio::test]
async fn a_scoped_workload_is_closed_after_its_work_succeeds_or_fails() {
    let setup = setup(&says([]), &MemoryStore::default());
    // Closing this workload returns an error.
    let (endless, _, closed) = endless();

    let Setup { services, store } = &setup;
    let shout = shout();
    let done = with_workload(&shout, services, store, |workload| {
        async move { Ok(workload.run(alone("run-1"), None).count().await) }.boxed()
    });
    let done = done.await.unwrap();
    let not_closed = with_workload(&endless, services, store, |_| async { Ok(()) }.boxed()).await;
    let failed = with_workload(&endless, services, store, |_| {
        async { Err::<(), _>("the work failed".into()) }.boxed()
    });
    let failed = failed.await.unwrap_err().to_string();

    assert_eq!(done, 3);
    assert!(not_closed.unwrap_err().to_string().contains("endless"));
    assert_eq!(failed, "the work failed");
    assert_eq!(closed.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_definition_with_an_unregistered_model_is_refused() {
    let setup = Setup::new(
        Services::new().tools(ToolRegistry::default()),
        Arc::new(MemoryStore::default()),
    );

    let made = agent().instantiate(&setup.services, &setup.store);
    let error = made.err().unwrap();

    assert!(error.to_string().contains("names no model"), "{error}");
}

#[test]
fn workload_services_are_send_and_sync() {
    use universal_executor::workload::{
        Conversation, Ident, SessionStore, Subscriber, SupervisedTurn, Supervisor,
        WorkloadExecutor, WorkloadLoadError, WorkloadManager,
    };
    fn shared<T: Send + Sync + 'static>() {}

    shared::<(
        Supervisor,
        SupervisedTurn,
        Subscriber,
        WorkloadManager,
        WorkloadExecutor,
    )>();
    shared::<(
        SessionStore,
        Conversation,
        RunCx,
        Services,
        WorkloadMessage,
        Ident,
        WorkloadLoadError,
    )>();
    shared::<(
        NativeDefinition,
        ExecutorDefinition,
        universal_executor::workload::FlowDefinition,
    )>();
}
