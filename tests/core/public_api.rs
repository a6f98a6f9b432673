//! The public API: names at the crate root, signatures, and `Send` and `Sync` types.

mod driver_types;
mod type_names;

use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use universal_executor::agent::{
    AgentDefinition, AgentExecutor, AgentRunError, ChatEvent, ChatModel, ChatRequest, ChatResponse,
    FallbackModel, FallbackModelBuilder, ModelError, ModelPolicy, RecordedModel, ScriptedModel,
    SharedLimits,
};
use universal_executor::executor::{
    ContextBudget, ContextError, ExecutorError, FenceKey, Fetched, ModelContext, Resumed, Source,
};
use universal_executor::hints::Hints;
use universal_executor::model::Timestamp;
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::store::{
    Claim, ClaimId, Claimed, Commit, ExecutorLimits, Faulty, Instrumented, Lease, Lost, NewRun,
    Query, Run, RunEnd, RunFilter, RunRef, StoreError, VectorQuery, Write,
};
use universal_executor::tool::{
    Approval, Catalog, ToolContext, ToolDispatcher, ToolExecutor, ToolPermissions, ToolRegistry,
    ToolSpec,
};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, Delivery, Event,
    EventKind, EventSource, ExecutionContext, Explanation, Failure, Fetch, Json, MemoryStore,
    NewBreadcrumb, Outcome, Patch, Profile, Response, Role, Route, RunLedger, Runtime, Selector,
    Services, Subscription, SubscriptionIndex, Subscriptions, UniversalExecutor, Wake, WithLedger,
    async_trait, permanent, retry_after, suspend,
};

struct Echo {
    store: Arc<dyn BreadcrumbStore>,
    subscriptions: Subscriptions,
}

#[async_trait]
impl UniversalExecutor for Echo {
    fn id(&self) -> &str {
        "echo"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &*self.store
    }

    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError> {
        assert_eq!(context.trigger().id, trigger.id);
        Ok(trigger.context.parse()?)
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(Response::create(
            NewBreadcrumb::new("echo.v1").context(output),
        ))
    }
}

fn echo(store: &MemoryStore) -> Echo {
    let subscriptions = Subscriptions::new(vec![
        Subscription::trigger("user.message.v1")
            .any_tags(["a"])
            .all_tags(["a"])
            .matching("$.n", "eq", 1),
        Subscription::context("tool.catalog.v1")
            .key("tools")
            .latest(),
        Subscription::context("note.v1")
            .recent(3)
            .required()
            .oldest_first()
            .scope(["session:"]),
    ]);
    Echo {
        store: Arc::new(store.clone()),
        subscriptions: subscriptions.unwrap(),
    }
}

#[test]
fn the_types_of_tools_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}

    shared::<(
        ToolRegistry,
        ToolDispatcher,
        ToolExecutor,
        ToolContext,
        ToolSpec,
        Catalog,
        ToolPermissions,
        Approval,
    )>();
}

#[test]
fn every_public_type_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    fn unsized_shared<T: ?Sized + Send + Sync>() {}

    shared::<(
        Breadcrumb,
        BreadcrumbId,
        NewBreadcrumb,
        Patch,
        Json,
        Event,
        EventKind,
    )>();
    shared::<(
        Subscription,
        Subscriptions,
        SubscriptionIndex,
        Selector,
        Role,
        Fetch,
        Route,
        Explanation,
    )>();
    shared::<(
        Profile,
        ExecutionContext,
        Outcome,
        Response,
        Failure,
        ExecutorError,
        ContextError,
    )>();
    shared::<(
        MemoryStore,
        WithLedger<MemoryStore, Arc<dyn BreadcrumbStore>>,
        Instrumented<MemoryStore>,
        Faulty<Arc<dyn BreadcrumbStore>>,
        Delivery,
        Runtime,
        Wake,
        BoxError,
        StoreError,
        Query,
        VectorQuery,
        Commit,
    )>();
    shared::<(
        Lease,
        Claim,
        Run,
        RunRef,
        NewRun,
        RunFilter,
        ExecutorLimits,
        Lost,
        Timestamp,
    )>();
    shared::<(Services, StoredDefinitions)>();
    unsized_shared::<dyn UniversalExecutor>();
    unsized_shared::<dyn BreadcrumbStore>();
    unsized_shared::<dyn RunLedger>();
    unsized_shared::<dyn EventSource>();
}

#[cfg(feature = "workflows")]
#[test]
fn an_executor_of_a_workload_can_be_shared_between_threads() {
    fn shared<T: Send + Sync + 'static>() {}

    shared::<universal_executor::workload::WorkloadExecutor>();
}

#[test]
fn model_contexts_and_agents_are_send_and_sync() {
    fn shared<T: Send + Sync + 'static>() {}
    fn sent<T: Send>(_: &T) {}
    shared::<(ModelContext, ContextBudget, FenceKey, Hints)>();
    shared::<(AgentExecutor, AgentDefinition, AgentRunError)>();
    let context = ExecutionContext::for_trigger(NewBreadcrumb::new("note.v1"));
    sent(&context.for_model());
}

#[test]
fn models_and_their_requests_are_send_and_sync() {
    fn shared<T: Send + Sync + 'static>() {}
    fn unsized_shared<T: ?Sized + Send + Sync>() {}

    shared::<(ChatRequest, ChatResponse, ChatEvent, ModelError)>();
    shared::<(ScriptedModel, RecordedModel, FallbackModel)>();
    shared::<(FallbackModelBuilder, ModelPolicy, SharedLimits)>();
    unsized_shared::<dyn ChatModel>();
    #[cfg(feature = "openai")]
    shared::<(
        universal_executor::agent::OpenAiCompatible,
        universal_executor::agent::OpenAiCompatibleBuilder,
        universal_executor::agent::OpenAiEmbedder,
        universal_executor::agent::ProviderError,
        universal_executor::agent::Secret,
    )>();
    #[cfg(feature = "genai")]
    shared::<(
        universal_executor::agent::GenaiModel,
        universal_executor::agent::GenaiModelBuilder,
    )>();
}

#[test]
fn the_types_of_the_testing_kit_may_cross_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    use universal_executor::testing::{Contexts, Faults, Recorded, TestError, TestStore};

    shared::<(TestStore, Faults, Faulty<TestStore>, Contexts, TestError)>();
    shared::<Recorded<Arc<dyn UniversalExecutor>>>();
}

#[test]
fn embedders_may_cross_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    fn unsized_shared<T: ?Sized + Send + Sync>() {}
    use universal_executor::store::embedding;

    shared::<(embedding::EmbedError, embedding::EmbeddingConfig)>();
    unsized_shared::<dyn embedding::Embedder>();
    #[cfg(feature = "embed-local")]
    shared::<embedding::LocalEmbedder>();
}

#[cfg(feature = "sqlite")]
#[test]
fn a_store_in_a_file_may_cross_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<(
        universal_executor::SqliteStore,
        universal_executor::store::SqliteBuilder,
        universal_executor::store::SqliteError,
        universal_executor::store::SqliteStats,
    )>();
}

#[cfg(feature = "postgres")]
#[test]
fn a_store_in_postgresql_may_cross_threads() {
    fn shared<T: Send + Sync + 'static>() {}
    shared::<(
        universal_executor::PostgresStore,
        universal_executor::store::PostgresBuilder,
        universal_executor::store::PostgresError,
        universal_executor::store::PostgresStats,
    )>();
}

#[test]
fn a_clone_of_json_a_selector_or_subscriptions_is_a_pointer() {
    assert_eq!(size_of::<Json>(), size_of::<usize>());
    assert_eq!(size_of::<Selector>(), size_of::<usize>());
    assert_eq!(size_of::<Subscriptions>(), size_of::<usize>());
}

#[tokio::test]
async fn a_boxed_executor_takes_an_event_from_arrival_to_response() {
    let store = MemoryStore::default();
    store
        .create(NewBreadcrumb::new("note.v1").tag("session:1"))
        .await
        .unwrap();
    let executor: Arc<dyn UniversalExecutor> = Arc::new(echo(&store));
    let message = NewBreadcrumb::new("user.message.v1")
        .title("Hi")
        .tag("a")
        .tag("session:1")
        .created_by("ann");
    let message: Arc<Breadcrumb> = store
        .create(message.context(json!({"n": 1})))
        .await
        .unwrap();
    let event = Event::created(&message);

    let outcome: Outcome = executor.process_event(&event).await.unwrap();

    let Outcome::Responded { written, .. } = outcome else {
        panic!("{outcome:?}")
    };
    let again = executor.process_event(&event).await.unwrap();
    assert!(
        matches!(&again, Outcome::AlreadyDone { written: first, .. } if *first == written),
        "{again:?}"
    );
    let echoed = store.latest("echo.v1").await.unwrap().unwrap();
    assert_eq!((echoed.id, &echoed.context["n"]), (written[0], &json!(1)));
}

#[tokio::test]
async fn the_steps_can_be_taken_one_by_one() {
    let store = MemoryStore::default();
    store
        .create(NewBreadcrumb::new("note.v1").tag("session:1"))
        .await
        .unwrap();
    let executor = echo(&store);
    let message = NewBreadcrumb::new("user.message.v1")
        .tags(["a", "session:1"])
        .context(json!({"n": 1}));
    let message = store.create(message).await.unwrap();

    let context: ExecutionContext = executor.assemble_context(&message).await.unwrap();
    let note = &executor.subscriptions().as_slice()[2];
    let fetched: Fetched = executor.fetch_source(note, &message).await.unwrap();

    let source: Option<&Source> = context.source("note.v1");
    assert_eq!(source.unwrap().items.len(), fetched.items.len());
    assert_eq!(context.many("note.v1").len(), 1);
    assert!(context.get("tools").is_none() && context.missing().is_empty());
    assert!(context.parse::<Value>("tools").is_err());
    assert!(!context.idempotency_key().is_empty());
    assert_eq!(
        (context.attempt(), context.deadline(), context.resumed()),
        (1, None, None::<&Resumed>)
    );
    assert_eq!(context.to_value()["trigger"]["id"], json!(message.id));
    assert_eq!(executor.search_query(&message), r#"{"n":1}"#);
}

#[tokio::test]
async fn the_ledger_and_a_commit_can_be_used_by_hand() {
    let store = MemoryStore::default().in_tenant("t");
    let message = store
        .create(NewBreadcrumb::new("user.message.v1"))
        .await
        .unwrap();
    let ledger: &dyn RunLedger = store.ledger().unwrap();
    let run = RunRef::new("echo", message.id, message.version);

    ledger
        .enqueue(vec![NewRun::from(run.clone())])
        .await
        .unwrap();
    let claimed = ledger
        .claim_next(1, &[ExecutorLimits::new("echo", 1)], ClaimId::unique())
        .await
        .unwrap()
        .remove(0);
    let trigger = claimed.trigger.clone();
    let claim = ledger.begin(claimed).await.unwrap();
    let Claim::Granted(Claimed {
        lease,
        attempt,
        lineage,
        state,
        ..
    }) = claim
    else {
        panic!("{claim:?}")
    };
    let lost = ledger
        .heartbeat(std::slice::from_ref(&lease))
        .await
        .unwrap();
    ledger
        .save(&lease, json!({"step": 1}).into())
        .await
        .unwrap();
    let answer = NewBreadcrumb::new("echo.v1");
    let commit = Commit {
        writes: vec![Write::Create(answer)],
        end: Some((lease, RunEnd::Done)),
    };
    let committed = store.commit(commit).await.unwrap();

    assert_eq!(
        (trigger, attempt, lineage.hops, state, lost),
        (Some(message), 1, 0, None, vec![])
    );
    assert_eq!(
        ledger.runs(&RunFilter::all()).await.unwrap()[0].written,
        committed.ids()
    );
}

#[tokio::test]
async fn errors_are_marked_and_a_turn_can_be_suspended() {
    let wake = Wake::on(Selector::schema("human.response.v1")).until(Timestamp::UNIX_EPOCH);
    let ended: BoxError = suspend(wake.clone(), json!({"asked": true})).writing(Response::none());
    let plain: BoxError = suspend(wake, json!({})).into();

    assert_eq!(ended.to_string(), plain.to_string());
    assert_eq!(permanent("no").to_string(), "no");
    assert_eq!(
        retry_after(Duration::from_secs(1), "busy").to_string(),
        "busy"
    );
}

#[tokio::test]
async fn a_runtime_is_built_from_a_source_and_executors() {
    let store = MemoryStore::default();

    let runtime = Runtime::builder(store.events())
        .executor(echo(&store))
        .build()
        .unwrap();
    let report = runtime.run_until(async {}).await.unwrap();

    assert_eq!(report.events, 0);
}

#[tokio::test]
async fn conveniences_work_on_any_store() {
    let store: Arc<dyn BreadcrumbStore> = Arc::new(MemoryStore::default());

    let one = store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    let two = store
        .update(one.id, one.version, Patch::new().title("changed"))
        .await
        .unwrap();
    let recent = store.recent("note.v1", 10).await.unwrap();
    store.delete(two.id).await.unwrap();

    assert_eq!((recent.len(), recent[0].version), (1, 2));
    assert!(store.latest("note.v1").await.unwrap().is_none());
}
