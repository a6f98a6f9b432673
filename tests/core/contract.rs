//! Code against the trait `UniversalExecutor` and the types around it, as users write it. The code must compile with each version of
//! the crate.

use crate::support::eventually;
use futures::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use universal_executor::error::Retry;
use universal_executor::executor::{
    Execution, ExecutorError, Fetched, MissingSource, ModelContext, Resumed, RetryPolicy, Source,
};
use universal_executor::model::{DefinitionError, Method, Order, Timestamp};
use universal_executor::runtime::RunReport;
use universal_executor::source::{Deliveries, SourceError, StartAt};
use universal_executor::store::{
    Capabilities, Claim, ClaimId, Claimed, Commit, Committed, DeadLetter, ExecutorLimits,
    FailureClass, Lease, Lost, NewRun, Query, Run, RunEnd, RunFilter, RunRef, RunState, Scored,
    StoreError, StoreId, VectorQuery, Write,
};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, Delivery, Event,
    EventKind, EventSource, ExecutionContext, Explanation, Failure, Fetch, Json, MemoryStore,
    NewBreadcrumb, Outcome, Patch, Profile, Response, Role, Route, RunLedger, Runtime, Selector,
    Subscription, SubscriptionIndex, Subscriptions, UniversalExecutor, Wake, WithLedger,
    async_trait, permanent, retry_after, suspend,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A user's store, which wraps another store.
#[derive(Clone, Debug)]
struct Shelf(MemoryStore);

#[async_trait]
impl BreadcrumbStore for Shelf {
    fn tenant(&self) -> &str {
        self.0.tenant()
    }

    fn identity(&self) -> StoreId {
        self.0.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.0.get(id).await
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        self.0.search(query).await
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        self.0.vector_search(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.0.commit(commit).await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        self.0.ledger()
    }
}

/// A user's source.
struct Listed(Vec<Event>);

#[async_trait]
impl EventSource for Listed {
    async fn subscribe(&self, _: StartAt) -> Result<Deliveries, SourceError> {
        let deliveries = self.0.clone().into_iter();
        let deliveries = deliveries.map(|event| Ok(Delivery::new(event)));
        Ok(Deliveries::new(stream::iter(deliveries)))
    }
}

#[derive(Deserialize)]
struct Page {
    url: String,
}

/// A user's executor. The number in the trigger decides the outcome of a run.
struct Clerk {
    store: Shelf,
    subscriptions: Subscriptions,
    profile: Profile,
}

#[async_trait]
impl UniversalExecutor for Clerk {
    fn id(&self) -> &str {
        "clerk"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError> {
        match trigger.context["n"].as_u64() {
            Some(0) => Err(permanent("there is no order 0")),
            Some(2) => asks(trigger, context),
            Some(3) => Err(retry_after(Duration::from_secs(1), "busy")),
            Some(4) => Ok(json!({"url": context.require("page")?.text("url")})),
            Some(_) | None => works(context).await,
        }
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        let receipt = Response::create(NewBreadcrumb::new("receipt.v1").context(output));
        let id = |field: &str| -> Result<Option<BreadcrumbId>, BoxError> {
            let id = trigger.context.text(field);
            Ok(id.map(str::parse::<BreadcrumbId>).transpose()?)
        };
        let (Some(old), Some(gone)) = (id("old")?, id("gone")?) else {
            return Ok(receipt);
        };
        Ok(receipt
            .and_update(old, 1, Patch::new().title("changed"))
            .and_delete(gone)
            .and_create(NewBreadcrumb::new("copy.v1")))
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn respond_failure(
        &self,
        _: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        let context = json!({"message": failure.message, "attempts": failure.attempts});
        let refusal = NewBreadcrumb::new("refusal.v1").context(context);
        Ok(Response::none().and_create(refusal))
    }

    fn search_query(&self, trigger: &Breadcrumb) -> String {
        trigger.title.clone()
    }
}

/// Suspends the run until an answer exists.
fn asks(trigger: &Breadcrumb, context: &ExecutionContext) -> Result<Value, BoxError> {
    let resumed: Option<&Resumed> = context.resumed();
    if let Some(resumed) = resumed {
        let answer = resumed.with.as_ref().ok_or("there is no answer")?;
        return Ok(json!({"says": answer.context["says"], "asked": resumed.state["asked"]}));
    }
    let wake = Wake::on(Selector::schema("answer.v1")).until(trigger.updated_at + DAY);
    let question = Response::create(NewBreadcrumb::new("question.v1"));
    Err(suspend(wake, json!({"asked": 1})).writing(question))
}

/// Reads everything that a context contains.
async fn works(context: &ExecutionContext) -> Result<Value, BoxError> {
    let page: Option<&Json> = context.get("page");
    let url = page.and_then(|page| page.text("url")).ok_or("no URL")?;
    let typed: Page = context.parse("page")?;
    let notes: &[Arc<Breadcrumb>] = context.many("notes");
    let source: Option<&Source> = context.source("page");
    let missing: &[MissingSource] = context.missing();
    let _deadline: Option<Timestamp> = context.deadline();
    let moment = Duration::from_millis(1);
    let waited = context.wait_for(Selector::schema("answer.v1"), moment);
    let waited = waited.await;
    drop(context.cancelled());
    context.save(json!({"step": 1})).await?;
    let shown: ModelContext = context.for_model().await?;
    Ok(json!({
        "url": url,
        "is_same_url": typed.url == url,
        "notes": notes.len(),
        "pages": source.map(|source| source.items.len()),
        "missing": missing.len(),
        "attempt": context.attempt(),
        "has_key": !context.idempotency_key().is_empty(),
        "has_waited": waited.is_ok(),
        "trigger": context.to_value()["trigger"]["id"],
        "is_shown": json!(shown).is_object(),
    }))
}

/// An executor that overrides each method of the trait.
struct Forwarding(Arc<dyn UniversalExecutor>);

#[async_trait]
impl UniversalExecutor for Forwarding {
    fn id(&self) -> &str {
        self.0.id()
    }

    fn subscriptions(&self) -> &Subscriptions {
        self.0.subscriptions()
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        self.0.store()
    }

    async fn execute(
        &self,
        trigger: &Breadcrumb,
        context: &ExecutionContext,
    ) -> Result<Value, BoxError> {
        self.0.execute(trigger, context).await
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        self.0.respond(trigger, output).await
    }

    fn profile(&self) -> &Profile {
        self.0.profile()
    }

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        self.0.respond_failure(trigger, failure).await
    }

    async fn process_event(&self, event: &Event) -> Result<Outcome, ExecutorError> {
        self.0.process_event(event).await
    }

    async fn assemble_context(
        &self,
        trigger: &Arc<Breadcrumb>,
    ) -> Result<ExecutionContext, ExecutorError> {
        self.0.assemble_context(trigger).await
    }

    async fn fetch_source(
        &self,
        subscription: &Subscription,
        trigger: &Breadcrumb,
    ) -> Result<Fetched, StoreError> {
        self.0.fetch_source(subscription, trigger).await
    }

    fn search_query(&self, trigger: &Breadcrumb) -> String {
        self.0.search_query(trigger)
    }
}

fn subscriptions() -> Result<Subscriptions, DefinitionError> {
    Subscriptions::new(vec![
        Subscription::trigger("order.v1").matching("$.n", "gte", 0),
        Subscription::context("page.v1").key("page").latest(),
        Subscription::context("note.v1")
            .key("notes")
            .recent(3)
            .oldest_first()
            .scope(["session:"]),
    ])
}

fn clerk(store: &MemoryStore) -> Result<Forwarding, DefinitionError> {
    Ok(Forwarding(Arc::new(Clerk {
        store: Shelf(store.clone()),
        subscriptions: subscriptions()?,
        profile: Profile::new("clerk"),
    })))
}

/// Creates a store with the context of an order.
async fn stocked() -> Result<MemoryStore, BoxError> {
    let store = MemoryStore::default();
    let page = NewBreadcrumb::new("page.v1").context(json!({"url": "a.org"}));
    store.create(page).await?;
    let note = NewBreadcrumb::new("note.v1").tag("session:1");
    store.create(note).await?;
    Ok(store)
}

/// Writes an order, and returns its event.
async fn order(store: &MemoryStore, context: Value) -> Result<Event, BoxError> {
    let order = NewBreadcrumb::new("order.v1")
        .title("An order")
        .tag("session:1")
        .created_by("ann");
    let order: Arc<Breadcrumb> = store.create(order.context(context)).await?;
    Ok(Event::created(&order))
}

/// Returns the name of an outcome. Matches all fields that the outcome has had since the first version.
fn name_of(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Unmatched => "unmatched",
        Outcome::ContextNoted => "context noted",
        Outcome::OwnBreadcrumb => "own",
        Outcome::Gone => "gone",
        Outcome::Superseded => "superseded",
        Outcome::AlreadyDone {
            state: RunState::Done,
            written: _,
        } => "already done",
        Outcome::AlreadyDone { .. } => "already over",
        Outcome::InProgress { until: _ } => "in progress",
        Outcome::Suspended { .. } => "suspended",
        Outcome::Failed {
            class: _,
            written: _,
            ..
        } => "failed",
        Outcome::Responded { written: _, .. } => "responded",
        _ => "another",
    }
}

#[tokio::test]
async fn an_executor_of_a_user_takes_each_kind_of_event() -> Result<(), BoxError> {
    let store = stocked().await?;
    let executor = clerk(&store)?;
    let old = store.create(NewBreadcrumb::new("old.v1")).await?;
    let gone = store.create(NewBreadcrumb::new("gone.v1")).await?;
    let full = json!({"n": 1, "old": old.id, "gone": gone.id});
    let full = order(&store, full).await?;
    let bad = order(&store, json!({"n": 0})).await?;
    let note = store.create(NewBreadcrumb::new("note.v1")).await?;
    let noted = Event::created(&note);
    let mut missing = full.clone();
    missing.breadcrumb_id = BreadcrumbId::unique();
    let other = Event::created(&old);

    let mut outcomes = Vec::new();
    for event in [&full, &full, &bad, &noted, &missing, &other] {
        outcomes.push(executor.process_event(event).await?);
    }

    let names: Vec<_> = outcomes.iter().map(name_of).collect();
    let expected = [
        "responded",
        "already done",
        "failed",
        "context noted",
        "gone",
        "unmatched",
    ];
    assert_eq!(names, expected);
    let receipt = store.latest("receipt.v1").await?.ok_or("no receipt")?;
    let expected = json!({
        "url": "a.org", "is_same_url": true, "notes": 1, "pages": 1, "missing": 0, "attempt": 1,
        "has_key": true, "has_waited": false, "trigger": full.breadcrumb_id, "is_shown": true,
    });
    for (field, value) in expected.as_object().ok_or("no fields")? {
        assert_eq!(&receipt.context[field.as_str()], value, "{field}");
    }
    assert_eq!(store.get(old.id).await?.title, "changed");
    assert!(matches!(
        store.get(gone.id).await,
        Err(StoreError::NotFound { .. })
    ));
    assert!(store.latest("copy.v1").await?.is_some());
    let refusal = store.latest("refusal.v1").await?.ok_or("no refusal")?;
    assert_eq!(refusal.context["attempts"], 1);
    assert!(store.latest(DeadLetter::SCHEMA).await?.is_some());
    Ok(())
}

#[tokio::test]
async fn an_executor_of_a_user_waits_and_retries() -> Result<(), BoxError> {
    let store = stocked().await?;
    let executor = clerk(&store)?;
    let asking = order(&store, json!({"n": 2})).await?;
    let busy = order(&store, json!({"n": 3})).await?;

    let suspended = executor.process_event(&asking).await?;
    let answer = NewBreadcrumb::new("answer.v1").context(json!({"says": "yes"}));
    let answer = store.create(answer).await?;
    let ledger: &dyn RunLedger = store.ledger().ok_or("no ledger")?;
    let run = RunRef::of(executor.id(), &asking);
    ledger.resume(&run, answer.id).await?;
    let resumed = executor.process_event(&asking).await?;
    let error = executor.process_event(&busy).await.unwrap_err();

    assert_eq!(name_of(&suspended), "suspended");
    assert_eq!(name_of(&resumed), "responded");
    assert!(store.latest("question.v1").await?.is_some());
    let receipt = store.latest("receipt.v1").await?.ok_or("no receipt")?;
    assert_eq!(receipt.context["says"], "yes");
    assert_eq!(receipt.context["asked"], 1);
    assert!(matches!(error.retry(), Retry::After(_)), "{error:?}");
    Ok(())
}

#[tokio::test]
async fn the_steps_of_an_executor_can_be_called_alone() -> Result<(), BoxError> {
    let store = stocked().await?;
    let executor = clerk(&store)?;
    let trigger = order(&store, json!({"n": 1})).await?;
    let trigger = store.get(trigger.breadcrumb_id).await?;
    let notes = &executor.subscriptions().as_slice()[2];
    let example = NewBreadcrumb::new("order.v1").context(json!({"n": 4}));
    let example = ExecutionContext::for_trigger(example).with("page", json!({"url": "b.org"}));

    let assembled: ExecutionContext = executor.assemble_context(&trigger).await?;
    let fetched: Fetched = executor.fetch_source(notes, &trigger).await?;
    let output = executor.execute(example.trigger(), &example).await?;

    assert_eq!(assembled.many("notes"), fetched.items);
    assert!(fetched.scores.is_empty() && fetched.cut.is_none());
    let same = Fetched::from(fetched.items.clone());
    assert_eq!(same.items, fetched.items);
    assert_eq!(output, json!({"url": "b.org"}));
    assert_eq!(executor.search_query(&trigger), "An order");
    let profile: &Profile = executor.profile();
    let _retry: &RetryPolicy = &profile.retry;
    assert_eq!(
        (&*profile.kind, profile.hop_limit, profile.execution),
        ("clerk", 16, Execution::AtLeastOnce)
    );
    assert!(profile.responds_with.is_none() && profile.definition.is_none());
    assert!(profile.lease < profile.timeout);
    Ok(())
}

#[test]
fn events_are_routed_by_subscriptions_as_data() -> Result<(), BoxError> {
    let definition = json!([
        {"schema_name": "order.v1", "role": "trigger", "odd": 1,
            "context_match": [{"path": "$.n", "op": "gte", "value": 0}]},
        {"schema_name": "note.v1", "role": "context", "key": "notes", "fetch": "latest"},
    ]);
    let subscriptions = Subscriptions::from_json(&definition)?;
    let event = |schema: &str, context: Option<Json>| Event {
        kind: EventKind::Created,
        breadcrumb_id: BreadcrumbId::unique(),
        version: 1,
        schema_name: Some(schema.to_owned()),
        tags: Vec::new(),
        context,
        updated_at: Timestamp::UNIX_EPOCH,
    };
    let order = event("order.v1", Some(json!({"n": 1}).into()));
    let mut index = SubscriptionIndex::new();
    index.insert("clerk", &subscriptions);

    let found: Vec<(Arc<str>, Route)> = index.matching(&order);
    let explained: Explanation = subscriptions.explain(&event("order.v1", None));

    for (event, expected) in [
        (&order, Route::Trigger { subscription: 0 }),
        (&event("order.v1", None), Route::NeedsContext),
        (&event("note.v1", None), Route::Context),
        (&event("other.v1", None), Route::Unmatched),
    ] {
        assert_eq!(subscriptions.route(event), expected);
    }
    let expected = (
        Arc::<str>::from("clerk"),
        Route::Trigger { subscription: 0 },
    );
    assert_eq!(found, [expected]);
    assert_eq!(explained.route, Route::NeedsContext);
    assert!(index.remove("clerk"));
    assert!(index.matching(&order).is_empty());
    assert_eq!(subscriptions.warnings().len(), 1);
    let text = definition.to_string();
    assert_eq!(Subscriptions::parse(&text)?.as_slice().len(), 2);
    let twice = r#"[{"schema_name": "a.v1", "schema_name": "b.v1", "role": "trigger"}]"#;
    assert!(Subscriptions::parse(twice).is_err());
    Ok(())
}

#[test]
fn data_is_read_and_written_as_json() -> Result<(), BoxError> {
    let Subscription {
        selector,
        role,
        key,
        fetch,
        ..
    } = Subscription::context("page.v1").key("page").vector(2);
    let expected: Fetch = Fetch::new(Method::Vector);
    assert_eq!((role, fetch.method), (Role::Context, expected.method));
    assert_eq!(selector, Selector::schema("page.v1"));
    assert_eq!(key.as_deref(), Some("page"));

    let id = BreadcrumbId::unique();
    let copy = id;
    assert_eq!(copy.to_string().parse::<BreadcrumbId>()?, id);

    let json = Json::from(json!({"url": "a.org", "n": 1}));
    let page: Page = json.parse()?;
    assert_eq!(json.text("url"), Some(&*page.url));
    assert_eq!(json["n"], 1);
    assert_eq!(serde_json::to_value(&json)?, *json);
    Ok(())
}

/// Claims a run.
async fn claimed(ledger: &dyn RunLedger, run: &RunRef) -> Result<Claimed, BoxError> {
    let claim: Claim = ledger.claim(run, None).await?;
    match claim {
        Claim::Granted(claimed) => Ok(claimed),
        Claim::Own => Err("own".into()),
        Claim::Done { state, written } => Err(format!("{state} {written:?}").into()),
        Claim::Running { until } => Err(format!("running until {until}").into()),
        Claim::Suspended { .. } => Err("suspended".into()),
        Claim::Superseded => Err("superseded".into()),
        Claim::Paused { since } => Err(format!("paused since {since}").into()),
    }
}

#[tokio::test]
async fn a_run_goes_through_its_states_by_hand() -> Result<(), BoxError> {
    let store = MemoryStore::default().in_tenant("t");
    let store: &dyn BreadcrumbStore = &store;
    let trigger = store.create(NewBreadcrumb::new("order.v1")).await?;
    let ledger: &dyn RunLedger = store.ledger().ok_or("no ledger")?;
    let run = RunRef::new("clerk", trigger.id, trigger.version);
    let ends = |lease: Lease, end: RunEnd| Commit {
        writes: Vec::new(),
        end: Some((lease, end)),
    };

    ledger.enqueue(vec![NewRun::from(run.clone())]).await?;
    let first = claimed(ledger, &run).await?;
    let lost: Vec<Lost> = ledger.heartbeat(std::slice::from_ref(&first.lease)).await?;
    ledger.save(&first.lease, json!({"step": 1}).into()).await?;
    let at = Timestamp::UNIX_EPOCH;
    ledger.retry(first.lease, at, true, None).await?;
    ledger.release(claimed(ledger, &run).await?.lease).await?;
    let limits = [ExecutorLimits::new("clerk", 1)];
    let mut next = ledger.claim_next(1, &limits, ClaimId::unique()).await?;
    let next = next.pop().ok_or("no run is due")?;
    let wake = Wake::on(Selector::schema("answer.v1"));
    let state = Json::from(json!({"step": 2}));
    let suspended = ends(next.lease, RunEnd::Suspended { wake, state });
    store.commit(suspended).await?;
    let answer = store.create(NewBreadcrumb::new("answer.v1")).await?;
    ledger.resume(&run, answer.id).await?;
    let resumed = claimed(ledger, &run).await?;
    let dead = DeadLetter::new(FailureClass::Permanent, "bad", 1);
    store
        .commit(ends(resumed.lease, RunEnd::Failed(dead)))
        .await?;
    ledger.redo(&run).await?;
    let again = claimed(ledger, &run).await?;
    let skipped = RunEnd::Skipped("gone");
    store.commit(ends(again.lease, skipped)).await?;
    let runs: Vec<Run> = ledger.runs(&RunFilter::all()).await?;

    assert!(lost.is_empty());
    let state = next.state.ok_or("no state")?;
    assert_eq!(state.state, json!({"step": 1}));
    let state = resumed.state.ok_or("no state")?;
    assert_eq!(state.state, json!({"step": 2}));
    assert_eq!((next.lineage.hops, state.with), (0, Some(answer.id)));
    assert_eq!((runs.len(), runs[0].state), (1, RunState::Skipped));
    assert_eq!(store.tenant(), "t");
    Ok(())
}

#[tokio::test]
async fn a_store_of_a_user_answers_queries() -> Result<(), BoxError> {
    let store = Shelf(MemoryStore::default());
    let one = store.create(NewBreadcrumb::new("note.v1")).await?;
    let two = NewBreadcrumb::new("note.v1").tag("session:1");
    let commit = Commit::from(vec![Write::Create(two)]);
    let committed: Committed = store.commit(commit).await?;
    let mut query = Query::new(Selector::schema("note.v1"));
    query.limit = 5;
    query.order = Order::OldestFirst;
    let all = store.search(&query).await?;
    query.exclude = Some(one.id);
    let others = store.search(&query).await?;
    query.exclude = None;
    query.scope_tags = vec!["session:1".to_owned()];
    let scoped = store.search(&query).await?;
    query.scope_tags.clear();
    query.before = Some((one.updated_at, one.version, one.id));
    let older = store.search(&query).await?;
    let near = VectorQuery::new(query, "crabs");
    let near = store.vector_search(&near).await;

    assert_eq!(all[0].id, one.id);
    assert_eq!((all.len(), others.len(), scoped.len()), (2, 1, 1));
    assert_eq!(committed.ids(), [scoped[0].id]);
    assert!(older.is_empty());
    assert!(matches!(near, Err(StoreError::Unsupported { .. })));
    Ok(())
}

/// The source of a store does not borrow the handle.
fn source(store: &MemoryStore) -> impl EventSource + use<> {
    store.events()
}

#[tokio::test(start_paused = true)]
async fn a_runtime_reads_a_source_of_a_user() -> Result<(), BoxError> {
    let store = stocked().await?;
    let events = vec![order(&store, json!({"n": 1})).await?];
    let delivery = Delivery::new(events[0].clone());
    let runtime = Runtime::builder(Listed(events))
        .executor(clerk(&store)?)
        .build()?;

    let answered = eventually(async || store.latest("receipt.v1").await.unwrap().is_some());
    let report: RunReport = runtime.run_until(answered).await?;

    assert_eq!(report.responded, 1);
    delivery.ack().await?;
    assert!(delivery.nack(DAY).await.is_err());
    let other = Runtime::builder(source(&store)).executor(clerk(&store)?);
    drop(other.build()?);
    let paired = WithLedger::new(store, MemoryStore::default());
    assert!(paired.ledger().is_some());
    Ok(())
}
