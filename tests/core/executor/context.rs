//! The context of `execute`: names, fetching, order, limits and reports of its sources.

use crate::support::{Call, Do, Probe, Shim, all, event_of, put, runs, unavailable};
use futures::FutureExt as _;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use universal_executor::error::Retry;
use universal_executor::executor::{Bound, ContextError, ExecutorError, Fetched, MissingReason};
use universal_executor::store::{FailureClass, RunState, Scored, StoreError};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, Event,
    ExecutionContext, MemoryStore, NewBreadcrumb, Outcome, Patch, Profile, Response, Selector,
    Subscription, Subscriptions, UniversalExecutor, async_trait,
};

async fn said(store: &MemoryStore, text: &str) -> Arc<Breadcrumb> {
    put(store, "user.message.v1", json!({"message": text})).await
}

fn trigger() -> Subscription {
    Subscription::trigger("user.message.v1")
}

/// Returns the context of an executor with these sources for a trigger.
async fn assembled<S: BreadcrumbStore + Clone>(
    store: &S,
    trigger_breadcrumb: &Arc<Breadcrumb>,
    sources: impl IntoIterator<Item = Subscription>,
) -> ExecutionContext {
    let subscriptions = [trigger()].into_iter().chain(sources);
    let probe = Probe::new("probe", store, subscriptions);
    probe.assemble_context(trigger_breadcrumb).await.unwrap()
}

fn texts(context: &ExecutionContext, key: &str) -> Vec<String> {
    let items = context.many(key).iter();
    items
        .map(|item| item.context.text("message").unwrap_or("none").to_owned())
        .collect()
}

/// Creates a store that ignores selectors: it returns the newest breadcrumbs of all schemas, up to the query's limit.
fn blunt(store: &MemoryStore) -> Shim {
    let everything = store.clone();
    Shim::new(store, move |call| match call {
        Call::Search(query) => {
            let mut wide = query.clone();
            wide.selector = Selector::any();
            (wide.scope_tags, wide.exclude) = (Vec::new(), None);
            let found = everything.search(&wide).now_or_never().unwrap().unwrap();
            Do::Answer(found)
        }
        _ => Do::Pass,
    })
}

#[tokio::test]
async fn a_source_is_named_by_its_key_else_by_its_schema() {
    let store = MemoryStore::default();
    put(&store, "tool.catalog.v1", json!({"tools": ["adder"]})).await;
    put(&store, "page.v1", json!({"url": "a"})).await;
    let message = said(&store, "hi").await;

    let context = assembled(
        &store,
        &message,
        [
            Subscription::context("tool.catalog.v1").key("tools"),
            Subscription::context("page.v1"),
        ],
    )
    .await;

    assert_eq!(context.require("tools").unwrap()["tools"][0], "adder");
    assert_eq!(context.require("page.v1").unwrap()["url"], "a");
    assert!(context.get("tool.catalog.v1").is_none());
}

#[tokio::test]
async fn latest_and_a_limit_of_one_are_one_item_and_anything_else_is_a_list() {
    let store = MemoryStore::default();
    put(&store, "note.v1", json!({"n": 1})).await;
    put(&store, "note.v1", json!({"n": 2})).await;
    let message = said(&store, "hi").await;
    let note = || Subscription::context("note.v1").key("found");
    let nothing = || Subscription::context("nothing.v1").key("found");

    for (source, expected) in [
        (note(), Some(json!({"n": 2}))),
        (note().latest(), Some(json!({"n": 2}))),
        (note().recent(1), Some(json!({"n": 2}))),
        (note().recent(5), Some(json!([{"n": 2}, {"n": 1}]))),
        (nothing(), None),
        (nothing().recent(1), None),
        (nothing().recent(5), Some(json!([]))),
    ] {
        let fetch = source.fetch;
        let context = assembled(&store, &message, [source]).await;

        let written = context.to_value().get("found").cloned();
        assert_eq!(written, expected, "{fetch:?}");
        let one = expected.as_ref().filter(|found| found.is_object());
        assert_eq!(context.get("found").map(|json| &**json), one, "{fetch:?}");
        assert!(context.missing().is_empty(), "{fetch:?}");
    }
}

#[tokio::test]
async fn many_gives_any_source_as_a_slice() {
    let store = MemoryStore::default();
    put(&store, "note.v1", json!({"message": "one"})).await;
    put(&store, "note.v1", json!({"message": "two"})).await;
    let message = said(&store, "hi").await;

    let context = assembled(
        &store,
        &message,
        [
            Subscription::context("note.v1").key("last"),
            Subscription::context("note.v1").key("all").recent(9),
            Subscription::context("nothing.v1").key("none"),
        ],
    )
    .await;

    assert_eq!(texts(&context, "last"), ["two"]);
    assert_eq!(texts(&context, "all"), ["two", "one"]);
    assert!(context.many("none").is_empty());
    assert!(context.many("unheard of").is_empty());
}

#[tokio::test]
async fn the_alias_of_the_trigger_gives_its_context_and_is_not_written_twice() {
    let store = MemoryStore::default();
    let message = said(&store, "hi").await;
    let probe = Probe::new("probe", &store, [trigger().key("question")]);

    probe.sees(&message).await.unwrap();

    let context = probe.context(0);
    assert_eq!(context.require("question").unwrap()["message"], "hi");
    assert_eq!(texts(&context, "question"), ["hi"]);
    let written = context.to_value();
    let fields: Vec<&String> = written.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["trigger"]);
}

#[tokio::test]
async fn the_alias_is_that_of_the_trigger_subscription_that_matched() {
    let store = MemoryStore::default();
    let request = put(&store, "request.v1", json!({"message": "do"})).await;
    let probe = Probe::new(
        "probe",
        &store,
        [
            trigger().key("question"),
            Subscription::trigger("request.v1").key("request"),
        ],
    );

    probe.sees(&request).await.unwrap();

    assert!(probe.context(0).get("request").is_some());
    assert!(probe.context(0).get("question").is_none());
}

#[tokio::test]
async fn the_matching_trigger_of_highest_priority_names_the_run_once_its_context_is_known() {
    let urgent = |priority| {
        trigger()
            .matching("urgent", "eq", true)
            .key("urgent")
            .priority(priority)
    };
    for (priority, is_urgent, expected) in
        [(1, true, "urgent"), (1, false, "any"), (0, true, "any")]
    {
        let store = MemoryStore::default();
        let message = put(&store, "user.message.v1", json!({"urgent": is_urgent})).await;
        let probe = Probe::new("probe", &store, [trigger().key("any"), urgent(priority)]);

        // Without the message's context, only a trigger without conditions matches for certain.
        let event = event_of(&message).envelope();
        probe.process_event(&event).await.unwrap();

        let named: Vec<bool> = ["any", "urgent"]
            .iter()
            .map(|key| probe.context(0).get(key).is_some())
            .collect();
        assert_eq!(named, ["any", "urgent"].map(|key| key == expected));
        assert_eq!(probe.executed(), 1);
    }
}

#[tokio::test]
async fn the_whole_selector_filters_the_results_of_a_coarse_store_query() {
    let store = MemoryStore::default();
    let note = |tags: [&str; 2], n: i64| {
        NewBreadcrumb::new("note.v1")
            .tags(tags)
            .context(json!({"n": n}))
    };
    for (tags, n) in [
        (["session:1", "kept"], 9),
        (["session:1", "other"], 9),
        (["session:2", "kept"], 9),
        (["session:1", "kept"], 1),
    ] {
        store.create(note(tags, n)).await.unwrap();
    }
    put(&store, "page.v1", json!({"n": 9})).await;
    let message = NewBreadcrumb::new("user.message.v1").tag("session:1");
    let message = store.create(message).await.unwrap();
    let source = Subscription::context("note.v1")
        .key("notes")
        .all_tags(["kept"])
        .matching("n", "gt", 5)
        .scope(["session:"])
        .recent(10);

    let context = assembled(&blunt(&store), &message, [source]).await;

    let [found] = context.many("notes") else {
        panic!("{:?}", context.many("notes"))
    };
    assert_eq!(found.tags, ["session:1", "kept"]);
    assert_eq!(found.context["n"], 9);
}

#[tokio::test]
async fn a_blunt_store_is_paged_until_the_limit_is_met() {
    let store = MemoryStore::default();
    for text in ["one", "two", "three"] {
        put(&store, "note.v1", json!({"message": text})).await;
    }
    for n in 0..7 {
        put(&store, "noise.v1", json!({"n": n})).await;
    }
    let message = said(&store, "hi").await;
    let source = Subscription::context("note.v1").key("notes").recent(2);

    let context = assembled(&blunt(&store), &message, [source]).await;

    assert_eq!(texts(&context, "notes"), ["three", "two"]);
    assert!(context.missing().is_empty());
}

#[tokio::test]
async fn paging_ends_at_a_bound_that_is_visible() {
    let store = MemoryStore::default();
    put(&store, "note.v1", json!({"message": "too far back"})).await;
    for n in 0..100 {
        put(&store, "noise.v1", json!({"n": n})).await;
    }
    let message = said(&store, "hi").await;
    let source = || Subscription::context("note.v1").key("notes").recent(2);

    let context = assembled(&blunt(&store), &message, [source()]).await;

    assert!(context.many("notes").is_empty());
    let [missing] = context.missing() else {
        panic!("{:?}", context.missing())
    };
    assert_eq!(missing.key, "notes");
    assert!(
        matches!(
            &missing.reason,
            MissingReason::Cut(Bound::Pages { pages: 8 })
        ),
        "{missing}"
    );
}

#[tokio::test]
async fn a_store_that_ignores_paging_causes_no_duplicate_items() {
    let store = MemoryStore::default();
    let note = put(&store, "note.v1", json!({"message": "one"})).await;
    let noise = put(&store, "noise.v1", json!({})).await;
    let message = said(&store, "hi").await;
    let same = Shim::new(&store, move |call| match call {
        Call::Search(_) => Do::Answer(vec![Arc::clone(&noise), Arc::clone(&note)]),
        _ => Do::Pass,
    });
    let source = Subscription::context("note.v1").key("notes").recent(2);

    let context = assembled(&same, &message, [source]).await;

    assert_eq!(texts(&context, "notes"), ["one"]);
}

#[tokio::test]
async fn history_contains_older_breadcrumbs_and_excludes_the_trigger() {
    let store = MemoryStore::default();
    said(&store, "one").await;
    said(&store, "two").await;
    let third = said(&store, "three").await;
    said(&store, "four").await;
    let history = Subscription::context("user.message.v1")
        .key("history")
        .recent(2);

    let context = assembled(&store, &third, [history]).await;

    assert_eq!(texts(&context, "history"), ["two", "one"]);
}

fn largest_id() -> BreadcrumbId {
    "ffffffff-ffff-ffff-ffff-ffffffffffff".parse().unwrap()
}

/// Returns breadcrumbs with the time of a trigger and around it. The message of each names its difference.
fn around(trigger: &Arc<Breadcrumb>) -> Vec<Arc<Breadcrumb>> {
    let other = |name: &str, change: fn(&mut Breadcrumb)| {
        let mut made = Breadcrumb::clone(trigger);
        made.context = json!({"message": name}).into();
        change(&mut made);
        Arc::new(made)
    };
    vec![
        other("later", |made| {
            made.id = BreadcrumbId::NIL;
            made.updated_at = made.updated_at + Duration::from_secs(1);
        }),
        other("later version", |made| {
            made.id = BreadcrumbId::NIL;
            made.version += 1;
        }),
        Arc::clone(trigger),
        other("smaller id", |made| made.id = BreadcrumbId::NIL),
        other("larger id", |made| made.id = largest_id()),
        other("earlier version", |made| {
            made.id = largest_id();
            made.version -= 1;
        }),
    ]
}

#[tokio::test]
async fn history_at_an_equal_time_is_ordered_by_version_and_id() {
    let store = MemoryStore::default();
    let first = said(&store, "hi").await;
    let message = store.update(first.id, 1, Patch::new()).await.unwrap();
    let found = around(&message);
    let everything = Shim::new(&store, move |call| match call {
        Call::Search(_) => Do::Answer(found.clone()),
        _ => Do::Pass,
    });
    let history = Subscription::context("user.message.v1")
        .key("history")
        .recent(9);

    let context = assembled(&everything, &message, [history]).await;

    assert_eq!(
        texts(&context, "history"),
        ["smaller id", "earlier version"]
    );
}

#[tokio::test]
async fn a_vector_search_in_the_schema_of_the_trigger_returns_only_older_items() {
    let store = MemoryStore::default();
    let before = said(&store, "before").await;
    let message = said(&store, "hi").await;
    let after = said(&store, "after").await;
    let found = [&message, &after, &before].map(|breadcrumb| Scored {
        breadcrumb: Arc::clone(breadcrumb),
        score: Some(0.9),
    });
    let store = Shim::new(&store, |_| Do::Pass).nearest(found.into());
    let near = Subscription::context("user.message.v1")
        .key("near")
        .vector(5);

    let context = assembled(&store, &message, [near]).await;

    assert_eq!(texts(&context, "near"), ["before"]);
}

#[tokio::test]
async fn a_breadcrumb_changed_after_the_trigger_is_not_part_of_history() {
    let store = MemoryStore::default();
    let first = said(&store, "one").await;
    said(&store, "two").await;
    let third = said(&store, "three").await;
    let edit = Patch::new().context(json!({"message": "one, edited"}));
    store.update(first.id, 1, edit).await.unwrap();
    let history = Subscription::context("user.message.v1")
        .key("history")
        .recent(9);

    let context = assembled(&store, &third, [history]).await;

    assert_eq!(texts(&context, "history"), ["two"]);
}

#[tokio::test]
async fn sources_that_would_not_select_the_trigger_are_read_as_of_now() {
    let store = MemoryStore::default();
    let message = said(&store, "hi").await;
    put(&store, "note.v1", json!({"message": "written later"})).await;
    let source = Subscription::context("note.v1").key("note");

    let context = assembled(&store, &message, [source]).await;

    assert_eq!(texts(&context, "note"), ["written later"]);
}

#[tokio::test]
async fn oldest_first_reverses_the_same_items() {
    let store = MemoryStore::default();
    for text in ["one", "two", "three"] {
        put(&store, "note.v1", json!({"message": text})).await;
    }
    let message = said(&store, "hi").await;
    let notes = |key: &str| Subscription::context("note.v1").key(key).recent(2);

    let context = assembled(
        &store,
        &message,
        [notes("newest"), notes("oldest").oldest_first()],
    )
    .await;

    assert_eq!(texts(&context, "newest"), ["three", "two"]);
    assert_eq!(texts(&context, "oldest"), ["two", "three"]);
}

#[tokio::test]
async fn oldest_first_reverses_the_nearest_items_with_their_scores() {
    let store = MemoryStore::default();
    let mut found = Vec::new();
    for (text, score) in [("nearest", 0.9), ("near", 0.5), ("far", 0.1)] {
        found.push(Scored {
            breadcrumb: put(&store, "note.v1", json!({"message": text})).await,
            score: Some(score),
        });
    }
    let message = said(&store, "hi").await;
    let store = Shim::new(&store, |_| Do::Pass).nearest(found);
    let notes = Subscription::context("note.v1").key("notes").vector(2);

    let context = assembled(&store, &message, [notes.oldest_first()]).await;

    assert_eq!(texts(&context, "notes"), ["near", "nearest"]);
    let scores = &context.source("notes").unwrap().scores;
    assert_eq!(*scores, [Some(0.5), Some(0.9)]);
}

#[tokio::test]
async fn an_update_makes_an_old_breadcrumb_the_newest() {
    let store = MemoryStore::default();
    let first = put(&store, "note.v1", json!({"message": "one"})).await;
    put(&store, "note.v1", json!({"message": "two"})).await;
    let edit = Patch::new().title("touched");
    store.update(first.id, 1, edit).await.unwrap();
    let message = said(&store, "hi").await;
    let notes = Subscription::context("note.v1").key("notes").recent(2);

    let context = assembled(&store, &message, [notes]).await;

    assert_eq!(texts(&context, "notes"), ["one", "two"]);
}

#[tokio::test]
async fn a_scope_selects_breadcrumbs_that_share_the_tag_of_the_trigger() {
    let store = MemoryStore::default();
    for (tag, text) in [("session:1", "mine"), ("session:2", "theirs")] {
        let note = NewBreadcrumb::new("note.v1").tag(tag);
        let note = note.context(json!({"message": text}));
        store.create(note).await.unwrap();
    }
    put(&store, "note.v1", json!({"message": "nobody's"})).await;
    let message = NewBreadcrumb::new("user.message.v1").tags(["session:1", "x"]);
    let message = store.create(message).await.unwrap();
    let notes = Subscription::context("note.v1")
        .key("notes")
        .recent(9)
        .scope(["session:"]);

    let context = assembled(&store, &message, [notes]).await;

    assert_eq!(texts(&context, "notes"), ["mine"]);
    assert!(context.missing().is_empty());
}

#[tokio::test]
async fn a_scope_of_two_prefixes_selects_breadcrumbs_that_share_both_tags() {
    let store = MemoryStore::default();
    for (tags, text) in [
        (["session:1", "user:1"], "both"),
        (["session:1", "user:2"], "the session"),
        (["session:2", "user:1"], "the user"),
    ] {
        let note = NewBreadcrumb::new("note.v1").tags(tags);
        let note = note.context(json!({"message": text}));
        store.create(note).await.unwrap();
    }
    let message = NewBreadcrumb::new("user.message.v1").tags(["user:1", "session:1"]);
    let message = store.create(message).await.unwrap();
    let notes = Subscription::context("note.v1")
        .key("notes")
        .recent(9)
        .scope(["session:", "user:"]);

    let context = assembled(&store, &message, [notes]).await;

    assert_eq!(texts(&context, "notes"), ["both"]);
}

#[tokio::test]
async fn a_scope_without_a_matching_trigger_tag_is_empty_and_reported() {
    let store = MemoryStore::default();
    let note = NewBreadcrumb::new("note.v1").tag("session:2");
    store.create(note).await.unwrap();
    let message = said(&store, "no session").await;
    let notes = |key: &str| {
        Subscription::context("note.v1")
            .key(key)
            .scope(["session:"])
    };

    let context = assembled(&store, &message, [notes("one"), notes("many").recent(9)]).await;

    assert_eq!(context.to_value().get("one"), None);
    assert_eq!(context.to_value()["many"], json!([]));
    for (missing, key) in context.missing().iter().zip(["one", "many"]) {
        assert_eq!(missing.key, key);
        assert!(
            missing
                .to_string()
                .contains("no tag with the prefix \"session:\""),
            "{missing}"
        );
    }
    assert_eq!(context.missing().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn all_sources_are_fetched_at_once() {
    const EACH: Duration = Duration::from_millis(20);
    let store = MemoryStore::default();
    let message = said(&store, "hi").await;
    let searches = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&searches);
    let slow = Shim::new(&store, move |call| match call {
        Call::Search(_) => {
            counted.fetch_add(1, Ordering::SeqCst);
            Do::Wait(EACH)
        }
        _ => Do::Pass,
    });
    let sources = (0..10).map(|n| {
        Subscription::context("note.v1")
            .key(format!("s{n}"))
            .recent(5)
    });
    let began = Instant::now();

    let context = assembled(&slow, &message, sources).await;

    assert_eq!(began.elapsed(), EACH);
    assert_eq!(searches.load(Ordering::SeqCst), 10);
    assert_eq!(context.sources().len(), 10);
}

#[tokio::test]
async fn sources_keep_the_order_of_the_subscriptions() {
    let store = MemoryStore::default();
    let message = said(&store, "hi").await;
    let source = |key: &str| Subscription::context("note.v1").key(key).recent(5);

    let context = assembled(&store, &message, ["z", "a", "m"].map(source)).await;

    let keys: Vec<&str> = context
        .sources()
        .iter()
        .map(|source| &*source.key)
        .collect();
    assert_eq!(keys, ["z", "a", "m"]);
}

/// A probe with its own implementation of `assemble_context`.
struct Assembles(Probe);

#[async_trait]
impl UniversalExecutor for Assembles {
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

    async fn assemble_context(
        &self,
        trigger: &Arc<Breadcrumb>,
    ) -> Result<ExecutionContext, ExecutorError> {
        let context = ExecutionContext::for_trigger(Arc::clone(trigger));
        Ok(context.with("page", json!({"url": "made by hand"})))
    }
}

/// A probe whose sources do not come from its store.
struct FetchesElsewhere(Probe);

#[async_trait]
impl UniversalExecutor for FetchesElsewhere {
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

    async fn fetch_source(
        &self,
        subscription: &Subscription,
        trigger: &Breadcrumb,
    ) -> Result<Fetched, StoreError> {
        let mut made = trigger.clone();
        made.context = json!({"url": subscription.key}).into();
        Ok(vec![Arc::new(made)].into())
    }

    fn search_query(&self, _: &Breadcrumb) -> String {
        "my own words".to_owned()
    }
}

fn with_page(store: &MemoryStore) -> Probe {
    Probe::new(
        "custom",
        store,
        [trigger(), Subscription::context("page.v1").key("page")],
    )
}

#[tokio::test]
async fn context_assembly_calls_an_overridden_fetch_source() {
    let store = MemoryStore::default();
    let message = said(&store, "hi").await;
    let executor = Arc::new(FetchesElsewhere(with_page(&store)));
    let shared: Arc<dyn UniversalExecutor> = executor.clone();

    shared.process_event(&event_of(&message)).await.unwrap();

    let context = executor.0.context(0);
    assert_eq!(context.require("page").unwrap()["url"], "page");
}

#[tokio::test]
async fn process_event_calls_an_overridden_assemble_context() {
    let store = MemoryStore::default();
    let message = said(&store, "hi").await;
    let executor = Arc::new(Assembles(with_page(&store)));
    let shared: Arc<dyn UniversalExecutor> = executor.clone();

    shared.process_event(&event_of(&message)).await.unwrap();

    let context = executor.0.context(0);
    assert_eq!(context.require("page").unwrap()["url"], "made by hand");
    assert!(
        context.deadline().is_some(),
        "the context must still belong to the run"
    );
}

/// Creates a store that fails each search for a schema.
fn without_schema(store: &MemoryStore, schema: &'static str) -> Shim {
    Shim::new(store, move |call| match call {
        Call::Search(query) if query.selector.schema_name() == Some(schema) => {
            Do::Fail(unavailable())
        }
        _ => Do::Pass,
    })
}

#[tokio::test]
async fn a_failed_source_is_omitted_and_reports_the_reason() {
    let store = MemoryStore::default();
    put(&store, "page.v1", json!({"url": "a"})).await;
    let message = said(&store, "hi").await;
    let broken = without_schema(&store, "catalog.v1");

    let context = assembled(
        &broken,
        &message,
        [
            Subscription::context("catalog.v1").key("tools"),
            Subscription::context("catalog.v1").key("all").recent(5),
            Subscription::context("page.v1").key("page"),
        ],
    )
    .await;

    let written = context.to_value();
    assert_eq!(written["page"]["url"], "a");
    assert_eq!((written.get("tools"), written.get("all")), (None, None));
    let missing: Vec<&str> = context
        .missing()
        .iter()
        .map(|missing| &*missing.key)
        .collect();
    assert_eq!(missing, ["tools", "all"]);
    let error = context.require("tools").unwrap_err();
    let ContextError::Missing {
        source: MissingReason::Failed(reason),
        ..
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(reason.code(), "unavailable");
    assert_eq!(error.retry(), Retry::After(Duration::ZERO));
}

#[tokio::test]
async fn a_required_source_that_fails_postpones_the_run_and_executes_nothing() {
    let store = MemoryStore::default();
    let message = said(&store, "hi").await;
    let broken = without_schema(&store, "catalog.v1");
    let tools = Subscription::context("catalog.v1").key("tools").required();
    let probe = Probe::new("probe", &broken, [trigger(), tools]);

    let error = probe.sees(&message).await.unwrap_err();

    assert!(matches!(error.retry(), Retry::After(_)), "{error:?}");
    let ExecutorError::Postponed { source, .. } = error else {
        panic!("{error:?}")
    };
    assert!(
        matches!(&*source, ExecutorError::RequiredSource { key, .. } if key == "tools"),
        "{source:?}"
    );
    assert_eq!((probe.executed(), probe.responded()), (0, 0));
    assert_eq!(runs(&store).await[0].state, RunState::Ready);
}

#[tokio::test]
async fn a_required_item_that_does_not_exist_yet_postpones_and_an_empty_required_list_does_not() {
    let store = MemoryStore::default();
    let message = said(&store, "hi").await;
    let page = Subscription::context("page.v1").key("page").required();
    let one = Probe::new("one", &store, [trigger(), page.clone()]);
    let list = Probe::new("list", &store, [trigger(), page.recent(5)]);

    let error = one.sees(&message).await.unwrap_err();
    let outcome = list.sees(&message).await.unwrap();
    put(&store, "page.v1", json!({"url": "a"})).await;
    let later = one.sees(&message).await.unwrap();

    assert!(error.to_string().contains("will be retried"), "{error}");
    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
    assert!(matches!(later, Outcome::Responded { .. }), "{later:?}");
    assert_eq!(one.executed(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_source_that_never_answers_is_given_up_after_its_time() {
    let store = MemoryStore::default();
    put(&store, "page.v1", json!({"url": "a"})).await;
    let message = said(&store, "hi").await;
    let deaf = Shim::new(&store, |call| match call {
        Call::Search(query) if query.selector.schema_name() == Some("catalog.v1") => Do::Hang,
        _ => Do::Pass,
    });
    let began = Instant::now();

    let context = assembled(
        &deaf,
        &message,
        [
            Subscription::context("catalog.v1").key("tools"),
            Subscription::context("page.v1").key("page"),
        ],
    )
    .await;

    assert_eq!(began.elapsed(), Profile::default().source_timeout);
    assert!(context.get("page").is_some());
    assert!(
        matches!(&context.missing()[0].reason, MissingReason::Failed(error) if error.code() == "unavailable")
    );
}

#[tokio::test]
async fn two_sources_of_one_schema_arrive_under_their_own_keys() {
    let store = MemoryStore::default();
    for (tag, text) in [("a", "one"), ("b", "two"), ("a", "three")] {
        let note = NewBreadcrumb::new("note.v1").tag(tag);
        let note = note.context(json!({"message": text}));
        store.create(note).await.unwrap();
    }
    let message = said(&store, "hi").await;

    let context = assembled(
        &store,
        &message,
        [
            Subscription::context("note.v1").key("last"),
            Subscription::context("note.v1")
                .key("a")
                .any_tags(["a"])
                .recent(9),
        ],
    )
    .await;

    assert_eq!(texts(&context, "last"), ["three"]);
    assert_eq!(texts(&context, "a"), ["three", "one"]);
}

async fn large(store: &MemoryStore, schema: &str, text: &str, bytes: usize) {
    let context = json!({"message": text, "padding": "x".repeat(bytes)});
    put(store, schema, context).await;
}

#[tokio::test]
async fn a_context_over_a_mebibyte_loses_its_oldest_items_visibly() {
    const SIZE: usize = 300_000;
    let store = MemoryStore::default();
    large(&store, "note.v1", "first note", SIZE).await;
    large(&store, "page.v1", "first page", SIZE).await;
    large(&store, "note.v1", "second note", SIZE).await;
    large(&store, "page.v1", "second page", SIZE).await;
    large(&store, "note.v1", "third note", SIZE).await;
    let message = said(&store, "hi").await;

    let context = assembled(
        &store,
        &message,
        [
            Subscription::context("note.v1")
                .key("notes")
                .recent(9)
                .oldest_first(),
            Subscription::context("page.v1").key("pages").recent(9),
        ],
    )
    .await;

    assert_eq!(texts(&context, "notes"), ["second note", "third note"]);
    assert_eq!(texts(&context, "pages"), ["second page"]);
    assert!(serde_json::to_string(&context).unwrap().len() < 1 << 20);
    assert_eq!(context.missing().len(), 2);
    for missing in context.missing() {
        assert!(
            matches!(missing.reason, MissingReason::TooLarge { items: 1, bytes } if bytes > SIZE),
            "{missing}"
        );
    }
}

#[tokio::test]
async fn a_flood_of_one_source_displaces_no_item_of_a_higher_priority() {
    let store = MemoryStore::default();
    large(&store, "policy.v1", "policy", 1_000).await;
    for number in 0..20 {
        large(&store, "note.v1", &number.to_string(), 100_000).await;
    }
    let message = said(&store, "hi").await;

    let context = assembled(
        &store,
        &message,
        [
            Subscription::context("note.v1").key("notes").recent(50),
            Subscription::context("policy.v1")
                .key("policy")
                .recent(1)
                .priority(1),
        ],
    )
    .await;

    assert_eq!(context.get("policy").unwrap()["message"], "policy");
    assert_eq!(context.missing().len(), 1);
}

#[tokio::test]
async fn an_item_that_does_not_fit_displaces_no_smaller_one() {
    let store = MemoryStore::default();
    large(&store, "note.v1", "small", 1_000).await;
    large(&store, "note.v1", "large", 900_000).await;
    large(&store, "note.v1", "newest", 300_000).await;
    let message = said(&store, "hi").await;

    let notes = Subscription::context("note.v1").key("notes").recent(9);
    let context = assembled(&store, &message, [notes]).await;

    assert_eq!(texts(&context, "notes"), ["newest", "small"]);
}

#[tokio::test]
async fn of_thousands_of_items_the_newest_that_fit_stay_in_every_source() {
    let store = MemoryStore::default();
    for number in 0..1_000 {
        large(&store, "note.v1", &number.to_string(), 4_000).await;
    }
    let message = said(&store, "hi").await;
    let notes = |number: usize| {
        Subscription::context("note.v1")
            .key(format!("notes {number}"))
            .recent(1_000)
    };

    let context = assembled(&store, &message, (0..20).map(notes)).await;

    assert_eq!(context.missing().len(), 20);
    for number in 0..20 {
        let kept = texts(&context, &format!("notes {number}"));
        let newest: Vec<String> = (0..1_000).rev().map(|n| n.to_string()).collect();
        assert_eq!(kept, newest[..kept.len()]);
        assert!((12..=13).contains(&kept.len()), "{}", kept.len());
    }
}

#[tokio::test]
async fn a_single_item_that_does_not_fit_is_reported_and_a_required_one_stays() {
    let store = MemoryStore::default();
    large(&store, "page.v1", "required and oldest", 600_000).await;
    large(&store, "note.v1", "optional", 600_000).await;
    let message = said(&store, "hi").await;

    let context = assembled(
        &store,
        &message,
        [
            Subscription::context("page.v1").key("page").required(),
            Subscription::context("note.v1").key("note"),
        ],
    )
    .await;

    assert!(context.get("page").is_some());
    assert_eq!(context.to_value().get("note"), None);
    let error = context.require("note").unwrap_err();
    assert!(matches!(error, ContextError::Missing { .. }), "{error:?}");
    assert_eq!(error.retry(), Retry::Never);
}

#[tokio::test]
async fn an_oversized_trigger_or_required_source_is_a_permanent_failure() {
    let store = MemoryStore::default();
    large(&store, "page.v1", "required", 2_000).await;
    let long = said(&store, &"x".repeat(2_000)).await;
    let short = said(&store, "hi").await;
    let page = Subscription::context("page.v1").key("page").required();
    let small = Profile::default().context_bytes(1_000);
    let trigger_alone = Probe::new("trigger", &store, [trigger()]).profile(small.clone());
    let required = Probe::new("required", &store, [trigger(), page]).profile(small);

    for (probe, message) in [(&trigger_alone, &long), (&required, &short)] {
        let outcome = probe.sees(message).await.unwrap();

        let class = FailureClass::Permanent;
        assert!(
            matches!(&outcome, Outcome::Failed { class: found, .. } if *found == class),
            "{outcome:?}"
        );
        assert_eq!(probe.executed(), 0);
    }
    let letters = all(&store, "executor.failed.v1").await;
    assert_eq!(letters.len(), 2);
    for letter in letters {
        assert_eq!(letter.context["code"], "context_too_large");
    }
}

#[tokio::test]
async fn to_value_equals_the_serialised_context() {
    let store = MemoryStore::default();
    put(&store, "page.v1", json!({"url": "a", "n": 1.5})).await;
    said(&store, "before").await;
    let message = said(&store, "hi").await;

    let context = assembled(
        &store,
        &message,
        [
            Subscription::context("page.v1").key("page"),
            Subscription::context("user.message.v1")
                .key("history")
                .recent(5),
            Subscription::context("nothing.v1").key("nothing"),
        ],
    )
    .await;

    let text = serde_json::to_string(&context).unwrap();
    assert_eq!(context.to_value(), serde_json::to_value(&context).unwrap());
    assert_eq!(
        context.to_value(),
        serde_json::from_str::<Value>(&text).unwrap()
    );
    assert_eq!(
        context.to_value(),
        json!({
            "trigger": serde_json::to_value(&*message).unwrap(),
            "page": {"url": "a", "n": 1.5},
            "history": [{"message": "before"}],
        })
    );
}

#[tokio::test]
async fn execute_receives_the_stored_breadcrumbs_without_a_copy() {
    let store = MemoryStore::default();
    let page = put(&store, "page.v1", json!({"url": "a"})).await;
    let message = said(&store, "hi").await;
    let source = Subscription::context("page.v1").key("page");
    let probe = Probe::new("probe", &store, [trigger(), source]);

    probe.sees(&message).await.unwrap();

    let context = probe.context(0);
    let stored = store.get(page.id).await.unwrap();
    assert!(Arc::ptr_eq(&context.many("page")[0], &stored));
    assert!(Arc::ptr_eq(&stored, &page));
    let stored = store.get(message.id).await.unwrap();
    assert!(std::ptr::eq(context.trigger(), &*stored));
}

#[tokio::test]
async fn nearest_items_come_with_scores_and_pass_the_whole_selector() {
    let store = MemoryStore::default();
    let scored = |breadcrumb: &Arc<Breadcrumb>, score| Scored {
        breadcrumb: Arc::clone(breadcrumb),
        score: Some(score),
    };
    let near = put(&store, "note.v1", json!({"message": "near"})).await;
    let other = put(&store, "page.v1", json!({"message": "of another schema"})).await;
    let far = put(&store, "note.v1", json!({"message": "far"})).await;
    let message = said(&store, "hi").await;
    let found = vec![scored(&other, 0.9), scored(&near, 0.8), scored(&far, 0.1)];
    let store = Shim::new(&store, |_| Do::Pass).nearest(found);
    let notes = |key: &str| Subscription::context("note.v1").key(key);

    let context = assembled(
        &store,
        &message,
        [
            notes("near").vector(5).min_score(0.5),
            notes("all").vector(5),
            notes("one").vector(1),
        ],
    )
    .await;

    assert_eq!(texts(&context, "near"), ["near"]);
    assert_eq!(context.source("near").unwrap().scores, [Some(0.8)]);
    assert_eq!(texts(&context, "all"), ["near", "far"]);
    assert_eq!(context.require("one").unwrap()["message"], "near");
    assert_eq!(context.source("one").unwrap().scores.len(), 1);
}

#[tokio::test]
async fn a_vector_source_on_a_store_without_vectors_is_missing() {
    let store = MemoryStore::default();
    let message = said(&store, "hi").await;
    let notes = Subscription::context("note.v1").key("notes").vector(5);

    let context = assembled(&store, &message, [notes]).await;

    let error = context.require("notes").unwrap_err();
    assert_eq!(error.retry(), Retry::Never);
    let ContextError::Missing { source, .. } = error else {
        panic!("{error:?}")
    };
    let MissingReason::Failed(reason) = source else {
        panic!("{source:?}")
    };
    assert_eq!(reason.code(), "unsupported");
}

#[tokio::test]
async fn the_text_to_look_near_to_is_the_triggers_own_unless_overridden() {
    let store = MemoryStore::default();
    let probe = with_page(&store);

    for (context, expected) in [
        (json!({"message": "m", "content": "c"}), "m"),
        (json!({"content": "c"}), "c"),
        (json!({"n": 1}), r#"{"n":1}"#),
    ] {
        let trigger = put(&store, "user.message.v1", context).await;
        assert_eq!(probe.search_query(&trigger), expected);
    }
    let trigger = said(&store, "hi").await;
    let custom: Box<dyn UniversalExecutor> = Box::new(FetchesElsewhere(with_page(&store)));
    assert_eq!(custom.search_query(&trigger), "my own words");
}

#[test]
fn a_context_for_a_unit_test_is_made_by_hand() {
    let message = NewBreadcrumb::new("user.message.v1").context(json!({"message": "hi"}));

    let context = ExecutionContext::for_trigger(message)
        .with_alias("question")
        .with("page", json!({"url": "a"}))
        .with_many(
            "history",
            [json!({"message": "one"}), json!({"message": "two"})],
        )
        .with_resumed(json!({"step": 2}), None);

    assert_eq!(context.trigger().context["message"], "hi");
    assert_eq!(context.require("question").unwrap()["message"], "hi");
    assert_eq!(context.require("page").unwrap().text("url"), Some("a"));
    assert_eq!(texts(&context, "history"), ["one", "two"]);
    assert_eq!(context.resumed().unwrap().state, json!({"step": 2}));
    assert_eq!((context.attempt(), context.deadline()), (1, None));
    assert!(!context.idempotency_key().is_empty());
    let written = context.to_value();
    assert_eq!(
        written["history"],
        json!([{"message": "one"}, {"message": "two"}])
    );
    assert_eq!(written.get("question"), None);
}

#[tokio::test]
async fn a_context_made_by_hand_has_no_run_to_save_or_wait_in() {
    let message = NewBreadcrumb::new("user.message.v1");
    let context = ExecutionContext::for_trigger(message);

    let saved = context.save(json!({})).await.unwrap_err();
    let waited = context
        .wait_for(Selector::any(), Duration::from_secs(1))
        .await
        .unwrap_err();

    for error in [saved, waited] {
        assert!(
            matches!(error, ContextError::Unsupported { .. }),
            "{error:?}"
        );
        assert_eq!(error.retry(), Retry::Never);
    }
}

#[test]
fn a_context_error_names_the_known_keys_the_shape_and_the_reason() {
    #[derive(Debug, Deserialize)]
    struct Page {
        #[expect(dead_code, reason = "only its absence counts")]
        title: String,
    }
    let message = NewBreadcrumb::new("user.message.v1");
    let context = ExecutionContext::for_trigger(message)
        .with_alias("question")
        .with("page", json!({"url": "a"}))
        .with_many("history", [json!(1), json!(2)]);

    let unknown = context.require("pages").unwrap_err().to_string();
    assert_eq!(
        unknown,
        r#"no context source has the key "pages"; known keys: trigger, question, page, history"#
    );
    let list = context.require("history").unwrap_err().to_string();
    assert_eq!(
        list,
        r#"context source "history" is a list of 2 items; use many("history")"#
    );
    let shape = context.parse::<Page>("page").unwrap_err();
    let ContextError::Shape { key, source } = &shape else {
        panic!("{shape:?}")
    };
    assert_eq!(key, "page");
    assert!(source.to_string().contains("title"), "{source}");
    assert_eq!(shape.retry(), Retry::Never);
}

#[tokio::test]
async fn an_unknown_key_lists_every_known_key_once() {
    let store = MemoryStore::default();
    large(&store, "note.v1", "old", 700_000).await;
    large(&store, "note.v1", "new", 700_000).await;
    let message = said(&store, "hi").await;

    let context = assembled(
        &store,
        &message,
        [
            Subscription::context("note.v1").key("notes").recent(9),
            Subscription::context("page.v1").key("page"),
        ],
    )
    .await;

    let ContextError::UnknownKey { known, .. } = context.require("x").unwrap_err() else {
        panic!("x is not known")
    };
    assert_eq!(known, "trigger, notes, page");
    let error = context.require("page").unwrap_err();
    assert!(matches!(error, ContextError::NotFound { .. }), "{error:?}");
}

#[tokio::test]
async fn a_schema_can_be_both_trigger_and_history() {
    let store = MemoryStore::default();
    said(&store, "one").await;
    let second = said(&store, "two").await;
    let history = Subscription::context("user.message.v1")
        .key("history")
        .recent(10);
    let probe = Probe::new("probe", &store, [history, trigger()]);

    let outcome = probe.process_event(&Event::created(&second)).await.unwrap();

    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
    assert_eq!(texts(&probe.context(0), "history"), ["one"]);
}

#[tokio::test]
async fn an_incomplete_vector_search_is_reported_as_missing() {
    let store = MemoryStore::default();
    let mut found = Vec::new();
    for n in 0..2 {
        let breadcrumb = put(&store, "page.v1", json!({"n": n})).await;
        let score = Some(0.9);
        found.push(Scored { breadcrumb, score });
    }
    put(
        &store,
        "note.v1",
        json!({"message": "a little further away"}),
    )
    .await;
    let message = said(&store, "hi").await;
    // This vector search cannot filter: its two nearest results have another schema, and more results would follow.
    let store = Shim::new(&store, |_| Do::Pass).nearest(found);

    let notes = Subscription::context("note.v1").key("notes").vector(2);
    let context = assembled(&store, &message, [notes]).await;

    assert!(context.many("notes").is_empty());
    let missing = &context.missing()[0].reason;
    assert!(
        matches!(
            missing,
            MissingReason::Cut(Bound::Unselected { dropped: 2 })
        ),
        "{missing:?}"
    );
}
