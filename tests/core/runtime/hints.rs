//! Schema hints in a runtime: they are cached for some time, and read again after an event that may announce a change.

use crate::runtime::events::Told;
use crate::runtime::{SECOND, runtime, until};
use crate::support::{Call, Do, Probe, Shim, all, event_of, put};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, ExecutionContext, MemoryStore,
    NewBreadcrumb, Patch,
};

fn hiding(field: &str) -> Value {
    json!({"exclude": [field]})
}

async fn define(store: &MemoryStore, hints: Value) -> Arc<Breadcrumb> {
    let new = NewBreadcrumb::new("schema.def.v1").tag("defines:question.v1");
    store.create(new.llm_hints(hints)).await.unwrap()
}

/// Creates an executor that answers each question with its context for a model.
fn looking(id: &str, store: &(impl BreadcrumbStore + Clone)) -> Arc<Probe> {
    let probe = Probe::on("question.v1", id, store).executing(|context| async move {
        let shown = context.for_model().await?;
        Ok(shown.trigger().context.clone().into_value())
    });
    probe.shared()
}

/// Asks a question, and returns the fields that a model may see.
async fn asked(store: &MemoryStore) -> Vec<String> {
    let before = all(store, "answer.v1").await.len();
    put(store, "question.v1", json!({"a": 1, "b": 2})).await;
    newest_answer(store, before).await
}

/// Waits for an answer in addition to `before` others, and returns its fields.
async fn newest_answer(store: &MemoryStore, before: usize) -> Vec<String> {
    until(store, "answer.v1", before + 1).await;
    let answers = all(store, "answer.v1").await;
    let shown = answers.first().unwrap().context.clone().into_value();
    let fields = shown.as_object().unwrap().keys().cloned();
    fields.filter(|field| field != "creator").collect()
}

/// Runs some work next to a runtime with one executor that reads the store as rarely as possible. Returns the number of
/// searches for schema definitions.
async fn beside(store: &MemoryStore, work: impl AsyncFnOnce()) -> usize {
    let searches = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&searches);
    let shim = Shim::new(store, move |call| {
        counter.fetch_add(usize::from(is_for_definitions(&call)), Ordering::SeqCst);
        Do::Pass
    });
    let runtime = runtime(store.events(), [&looking("looking", &shim)]);
    runtime.run_until(work()).await.unwrap();
    searches.load(Ordering::SeqCst)
}

fn is_for_definitions(call: &Call<'_>) -> bool {
    matches!(call, Call::Search(query) if query.selector.schema_name() == Some("schema.def.v1"))
}

#[tokio::test(start_paused = true)]
async fn hints_are_read_once_for_many_runs() {
    let store = MemoryStore::default();
    define(&store, hiding("a")).await;

    let searches = beside(&store, async || {
        for _ in 0..5 {
            assert_eq!(asked(&store).await, ["b"]);
        }
    });

    assert_eq!(searches.await, 1);
}

#[tokio::test(start_paused = true)]
async fn the_absence_of_hints_is_cached() {
    let store = MemoryStore::default();

    let searches = beside(&store, async || {
        for _ in 0..5 {
            assert_eq!(asked(&store).await, ["a", "b"]);
        }
    });

    assert_eq!(searches.await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_change_of_a_definition_counts_as_soon_as_its_event_came() {
    let store = MemoryStore::default();

    let searches = beside(&store, async || {
        assert_eq!(asked(&store).await, ["a", "b"]);

        let definition = define(&store, hiding("a")).await;
        assert_eq!(asked(&store).await, ["b"]);

        let patch = Patch::default().llm_hints(hiding("b"));
        store.update(definition.id, 1, patch).await.unwrap();
        assert_eq!(asked(&store).await, ["a"]);

        store.delete(definition.id).await.unwrap();
        assert_eq!(asked(&store).await, ["a", "b"]);
    });

    assert_eq!(searches.await, 4);
}

#[tokio::test(start_paused = true)]
async fn an_event_without_a_schema_invalidates_the_cached_hints() {
    let store = MemoryStore::default();
    let told = Told::complete();
    let runtime = runtime(told.clone(), [&looking("looking", &store)]);

    let work = async {
        sleep(SECOND).await;
        assert_eq!(told_and_asked(&told, &store).await, ["a", "b"]);
        let definition = define(&store, hiding("a")).await;

        let event = Event {
            schema_name: None,
            ..Event::created(&definition)
        };
        told.say(event);

        assert_eq!(told_and_asked(&told, &store).await, ["b"]);
    };
    runtime.run_until(work).await.unwrap();
}

/// Asks a question and delivers its event. Returns the fields that a model may see.
async fn told_and_asked(told: &Told, store: &MemoryStore) -> Vec<String> {
    let before = all(store, "answer.v1").await.len();
    let question = put(store, "question.v1", json!({"a": 1, "b": 2})).await;
    told.say(event_of(&question));
    newest_answer(store, before).await
}

#[tokio::test(start_paused = true)]
async fn a_change_without_an_event_applies_after_the_maximum_hint_age() {
    let store = MemoryStore::default();
    let told = Told::complete();
    let runtime = runtime(told.clone(), [&looking("looking", &store)]);

    let work = async {
        sleep(SECOND).await;
        let begin = Instant::now();
        assert_eq!(told_and_asked(&told, &store).await, ["a", "b"]);
        define(&store, hiding("a")).await;

        assert_eq!(told_and_asked(&told, &store).await, ["a", "b"]);
        assert!(begin.elapsed() < ExecutionContext::HINTS_AGE);
        sleep(ExecutionContext::HINTS_AGE).await;
        assert_eq!(told_and_asked(&told, &store).await, ["b"]);
    };
    runtime.run_until(work).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn hints_read_before_a_change_event_are_not_cached_after_it() {
    let store = MemoryStore::default();
    let definition = define(&store, hiding("a")).await;
    let first = AtomicUsize::new(0);
    // The first search reads the definitions before the change and returns them after it.
    let shim = Shim::new(&store, move |call| {
        let late = is_for_definitions(&call) && first.fetch_add(1, Ordering::SeqCst) == 0;
        if late {
            Do::Late(Duration::from_secs(3))
        } else {
            Do::Pass
        }
    });
    let runtime = runtime(store.events(), [&looking("looking", &shim)]);

    let work = async {
        put(&store, "question.v1", json!({"a": 1, "b": 2})).await;
        sleep(SECOND).await;
        let patch = Patch::default().llm_hints(hiding("b"));
        store.update(definition.id, 1, patch).await.unwrap();
        until(&store, "answer.v1", 1).await;

        assert_eq!(asked(&store).await, ["a"]);
    };
    runtime.run_until(work).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn cached_hints_of_one_tenant_do_not_apply_to_another() {
    let one = MemoryStore::default();
    let other = one.in_tenant("other");
    define(&one, hiding("a")).await;
    let told = Told::complete();
    let executors = [&looking("one", &one), &looking("two", &other)];
    let runtime = runtime(told.clone(), executors);

    let work = async {
        sleep(SECOND).await;
        assert_eq!(told_and_asked(&told, &one).await, ["b"]);

        assert_eq!(told_and_asked(&told, &other).await, ["a", "b"]);
    };
    runtime.run_until(work).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn stores_that_share_a_ledger_do_not_share_definitions() {
    use universal_executor::WithLedger;
    let (one, other) = (MemoryStore::default(), MemoryStore::default());
    let ledger = Arc::new(MemoryStore::default());
    define(&one, hiding("a")).await;
    let with = |store: &MemoryStore| WithLedger::new(store.clone(), Arc::clone(&ledger));
    let told = Told::complete();
    let executors = [&looking("one", &with(&one)), &looking("two", &with(&other))];
    let runtime = runtime(told.clone(), executors);

    let work = async {
        sleep(SECOND).await;
        assert_eq!(told_and_asked(&told, &one).await, ["b"]);

        assert_eq!(told_and_asked(&told, &other).await, ["a", "b"]);
    };
    runtime.run_until(work).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn executors_without_a_ledger_know_hints_too() {
    let store = MemoryStore::default();
    define(&store, hiding("a")).await;
    let shim = Shim::without_ledger(&store);
    let runtime = runtime(store.events(), [&looking("looking", &shim)]);

    let work = async {
        assert_eq!(asked(&store).await, ["b"]);
    };
    runtime.run_until(work).await.unwrap();
}
