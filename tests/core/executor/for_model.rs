//! The context for a model: shaped by hints of breadcrumbs or their schemas, without anything that cannot be shaped.

use crate::support::{Call, Do, Probe, Shim, all, put, runs, unavailable};
use futures::FutureExt as _;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::error::Retry;
use universal_executor::executor::{
    ContextError, ExecutorError, Format, HintsOf, MissingReason, ModelContext, WithheldBy,
};
use universal_executor::store::{FailureClass, RunState, StoreError};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, ExecutionContext, Json,
    MemoryStore, NewBreadcrumb, Outcome, Patch, Profile, Response, Selector, Subscription,
    Subscriptions, UniversalExecutor, async_trait,
};

/// Returns hints that hide the field `secret`.
fn hide() -> Value {
    json!({"exclude": ["secret"]})
}

/// Returns hints that fail for the contexts in these tests, because `merge` needs an object.
fn failing() -> Value {
    json!({"mode": "merge", "transform": {"note": {"type": "literal", "literal": 1}}})
}

/// Returns hints that cannot be parsed.
fn broken() -> Value {
    json!({"exlude": ["secret"]})
}

fn secret() -> Value {
    json!({"open": 1, "secret": 2})
}

fn definition(of: &str) -> NewBreadcrumb {
    NewBreadcrumb::new("schema.def.v1").tag(format!("defines:{of}"))
}

/// Writes a schema definition with these hints.
async fn define(store: &MemoryStore, schema: &str, hints: Value) -> Arc<Breadcrumb> {
    let new = definition(schema).llm_hints(hints);
    store.create(new).await.unwrap()
}

/// Writes a note with hints.
async fn hinted(store: &MemoryStore, context: Value, hints: Value) -> Arc<Breadcrumb> {
    let new = NewBreadcrumb::new("note.v1")
        .context(context)
        .llm_hints(hints);
    store.create(new).await.unwrap()
}

/// Creates an executor with questions as triggers and more sources, which answers with its context for a model.
fn looking<S: BreadcrumbStore + Clone>(store: &S, sources: &[Subscription]) -> Probe {
    let trigger = Subscription::trigger("question.v1");
    let subscriptions = [trigger].into_iter().chain(sources.iter().cloned());
    let probe = Probe::new("looking", store, subscriptions);
    probe.executing(|context| async move {
        let shown = context.for_model().await?;
        Ok(shown_of(&shown))
    })
}

fn notes() -> Subscription {
    Subscription::context("note.v1").key("notes").recent(10)
}

/// Returns a context for a model as JSON for an answer.
fn shown_of(shown: &ModelContext) -> Value {
    let contexts = |items: &[universal_executor::executor::ModelItem]| -> Vec<Json> {
        items.iter().map(|item| item.context.clone()).collect()
    };
    let sources = shown.sources().iter();
    let sources = sources.map(|source| (source.key.clone(), json!(contexts(&source.items))));
    let missing = shown.missing().iter().map(ToString::to_string);
    json!({
        "trigger": shown.trigger().context,
        "sources": sources.collect::<serde_json::Map<_, _>>(),
        "missing": missing.collect::<Vec<_>>(),
    })
}

/// Asks a question and returns the context for a model.
async fn shown<S: BreadcrumbStore + Clone>(
    store: &MemoryStore,
    handle: &S,
    sources: &[Subscription],
    question: Value,
) -> Value {
    let question = put(store, "question.v1", question).await;
    let outcome = looking(handle, sources).sees(&question).await.unwrap();
    assert!(matches!(outcome, Outcome::Responded { .. }), "{outcome:?}");
    let answers = all(store, "answer.v1").await;
    answers
        .into_iter()
        .next()
        .unwrap()
        .context
        .clone()
        .into_value()
}

async fn trigger_shown(store: &MemoryStore) -> Value {
    let shown = shown(store, store, &[], secret()).await;
    shown.get("trigger").unwrap().clone()
}

/// Creates a store that counts searches for schema definitions.
fn counting(store: &MemoryStore) -> (Shim, Arc<AtomicUsize>) {
    let searches = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&searches);
    let shim = Shim::new(store, move |call| {
        counter.fetch_add(usize::from(asks_for_definitions(&call)), Ordering::SeqCst);
        Do::Pass
    });
    (shim, searches)
}

fn asks_for_definitions(call: &Call<'_>) -> bool {
    matches!(call, Call::Search(query) if query.selector.schema_name() == Some("schema.def.v1"))
}

#[tokio::test]
async fn hints_of_a_breadcrumb_replace_the_hints_of_its_schema() {
    let store = MemoryStore::default();
    define(&store, "note.v1", hide()).await;
    hinted(&store, secret(), json!({"exclude": ["open"]})).await;
    put(&store, "note.v1", secret()).await;

    let shown = shown(&store, &store, &[notes()], json!({})).await;

    let expected = json!({"notes": [{"open": 1}, {"secret": 2}]});
    assert_eq!(shown["sources"], expected);
    assert_eq!(shown["missing"], json!([]));
}

#[tokio::test]
async fn hints_of_a_schema_stand_at_the_top_of_its_definition_or_in_its_context() {
    let in_context = |hints: Value| definition("question.v1").context(json!({"llm_hints": hints}));
    for (definition, expected) in [
        (in_context(hide()), json!({"open": 1})),
        (
            in_context(json!({"exclude": ["open"]})).llm_hints(hide()),
            json!({"open": 1}),
        ),
        (in_context(Value::Null), secret()),
        (definition("question.v1"), secret()),
        (definition("other.v1").llm_hints(hide()), secret()),
        (
            NewBreadcrumb::new("note.v1")
                .tag("defines:question.v1")
                .llm_hints(hide()),
            secret(),
        ),
        (
            definition("other.v1")
                .tag("defines:question.v1")
                .llm_hints(hide()),
            json!({"open": 1}),
        ),
    ] {
        let store = MemoryStore::default();
        let told = format!("{definition:?}");
        store.create(definition).await.unwrap();

        assert_eq!(trigger_shown(&store).await, expected, "{told}");
    }
}

#[tokio::test]
async fn the_newest_definition_counts_even_if_it_has_no_hints() {
    let store = MemoryStore::default();
    let first = define(&store, "question.v1", hide()).await;

    define(&store, "question.v1", json!({"exclude": ["open"]})).await;
    assert_eq!(trigger_shown(&store).await, json!({"secret": 2}));

    let patch = Patch::default().context(json!({"changed": true}));
    store.update(first.id, 1, patch).await.unwrap();
    assert_eq!(trigger_shown(&store).await, json!({"open": 1}));

    store.create(definition("question.v1")).await.unwrap();
    assert_eq!(trigger_shown(&store).await, secret());
}

#[tokio::test]
async fn a_definition_that_was_deleted_shapes_nothing() {
    let store = MemoryStore::default();
    let definition = define(&store, "question.v1", hide()).await;
    assert_eq!(trigger_shown(&store).await, json!({"open": 1}));

    store.delete(definition.id).await.unwrap();

    assert_eq!(trigger_shown(&store).await, secret());
}

#[tokio::test]
async fn definitions_of_another_tenant_do_not_count() {
    let store = MemoryStore::default();
    define(&store.in_tenant("other"), "question.v1", hide()).await;

    assert_eq!(trigger_shown(&store).await, secret());
}

#[tokio::test]
async fn without_hints_the_json_is_that_of_the_store() {
    let store = MemoryStore::default();
    put(&store, "note.v1", secret()).await;
    let question = put(&store, "question.v1", secret()).await;
    let probe = looking(&store, &[notes()]).executing(|context| async move {
        let shown = context.for_model().await?;
        let same = |one: &Json, other: &Json| std::ptr::eq::<Value>(&**one, &**other);
        let source = shown.sources().first().unwrap();
        let item = source.items.first().unwrap();
        let raw = context.many("notes").first().unwrap();
        let shared = same(&item.context, &raw.context)
            && same(&shown.trigger().context, &context.trigger().context);
        Ok(json!({"shared": shared}))
    });

    probe.sees(&question).await.unwrap();

    let answer = all(&store, "answer.v1").await;
    assert_eq!(answer.first().unwrap().context["shared"], true);
}

#[tokio::test]
async fn an_executor_that_shows_nothing_to_a_model_reads_no_definitions() {
    let store = MemoryStore::default();
    let (shim, searches) = counting(&store);
    let question = put(&store, "question.v1", secret()).await;

    Probe::on("question.v1", "quiet", &shim)
        .sees(&question)
        .await
        .unwrap();

    assert_eq!(searches.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn the_hints_of_all_schemas_are_read_in_one_search() {
    let store = MemoryStore::default();
    let any = Subscription::new(
        Selector::any().any_tags(["x"]),
        universal_executor::Role::Context,
    );
    let any = any.key("all").recent(1_000);
    for n in 0..60 {
        let schema = format!("kind{n}.v1");
        define(&store, &schema, hide()).await;
        let new = NewBreadcrumb::new(schema).tag("x").context(secret());
        store.create(new).await.unwrap();
    }
    let (shim, searches) = counting(&store);

    let shown = shown(&store, &shim, &[any], secret()).await;

    assert_eq!(shown["sources"]["all"], json!(vec![json!({"open": 1}); 60]));
    assert_eq!(searches.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn breadcrumbs_with_their_own_hints_or_without_a_schema_need_no_search() {
    let store = MemoryStore::default();
    hinted(&store, secret(), hide()).await;
    let question = NewBreadcrumb::new("question.v1").context(json!({}));
    let question = store.create(question.llm_hints(json!({}))).await.unwrap();
    let (shim, searches) = counting(&store);

    looking(&shim, &[notes()]).sees(&question).await.unwrap();

    assert_eq!(searches.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn many_definitions_of_one_schema_do_not_hide_that_of_another() {
    let store = MemoryStore::default();
    define(&store, "question.v1", hide()).await;
    for _ in 0..40 {
        define(&store, "note.v1", hide()).await;
    }
    put(&store, "note.v1", secret()).await;

    let shown = shown(&store, &store, &[notes()], secret()).await;

    assert_eq!(shown["trigger"], json!({"open": 1}));
    assert_eq!(shown["sources"]["notes"], json!([{"open": 1}]));
}

#[tokio::test]
async fn a_non_definition_in_a_search_result_does_not_shape_the_context() {
    let store = MemoryStore::default();
    let forged = NewBreadcrumb::new("note.v1").tag("defines:question.v1");
    let forged = store.create(forged.llm_hints(hide())).await.unwrap();
    let answer = vec![forged];
    let shim = Shim::new(&store, move |call| match asks_for_definitions(&call) {
        true => Do::Answer(answer.clone()),
        false => Do::Pass,
    });

    let shown = shown(&store, &shim, &[], secret()).await;

    assert_eq!(shown["trigger"], secret());
}

#[tokio::test]
async fn invalid_schema_hints_withhold_items_without_their_own_hints_and_are_reported() {
    let store = MemoryStore::default();
    define(&store, "note.v1", broken()).await;
    put(&store, "note.v1", secret()).await;
    hinted(&store, secret(), hide()).await;
    put(&store, "note.v1", secret()).await;

    let shown = shown(&store, &store, &[notes()], json!({})).await;

    assert_eq!(shown["sources"], json!({"notes": [{"open": 1}]}));
    let missing = shown["missing"].as_array().unwrap();
    assert_eq!(missing.len(), 1, "{missing:?}");
    let told = missing.first().unwrap().as_str().unwrap();
    assert!(
        told.starts_with("\"notes\": 2 items were withheld: the llm_hints of schema \"note.v1\""),
        "{told}"
    );
    assert!(told.contains("exlude"), "{told}");
}

#[tokio::test]
async fn invalid_top_level_hints_of_a_definition_are_not_replaced_by_context_hints() {
    let store = MemoryStore::default();
    let definition = definition("note.v1")
        .llm_hints(broken())
        .context(json!({"llm_hints": hide()}));
    store.create(definition).await.unwrap();
    put(&store, "note.v1", secret()).await;

    let shown = shown(&store, &store, &[notes()], json!({})).await;

    assert_eq!(shown["sources"], json!({"notes": []}));
}

#[tokio::test]
async fn an_item_whose_hints_fail_is_withheld_and_its_siblings_stay_in_order() {
    let store = MemoryStore::default();
    put(&store, "note.v1", json!({"n": 1})).await;
    hinted(&store, json!("hunter2"), failing()).await;
    hinted(&store, secret(), broken()).await;
    put(&store, "note.v1", json!({"n": 4})).await;

    let shown = shown(&store, &store, &[notes()], json!({})).await;

    assert_eq!(shown["sources"]["notes"], json!([{"n": 4}, {"n": 1}]));
    assert_eq!(shown["missing"].as_array().unwrap().len(), 2);
    assert!(!shown.to_string().contains("hunter2"), "{shown}");
}

#[tokio::test]
async fn an_optional_source_of_one_item_is_missing_if_that_is_withheld() {
    let store = MemoryStore::default();
    hinted(&store, json!("hunter2"), failing()).await;
    let note = Subscription::context("note.v1").key("note").latest();

    let shown = shown(&store, &store, &[note], json!({})).await;

    assert_eq!(shown["sources"], json!({"note": []}));
    let told = shown["missing"].to_string();
    assert!(
        told.contains("1 items were withheld") && told.contains("the llm_hints of the breadcrumb"),
        "{told}"
    );
}

#[tokio::test]
async fn missing_causes_beyond_a_few_are_reported_as_one_entry() {
    let store = MemoryStore::default();
    for n in 0..9 {
        hinted(&store, json!({}), json!({ format!("unknown{n}"): 1 })).await;
    }
    let question = NewBreadcrumb::new("question.v1").context(json!({}));
    let items = all(&store, "note.v1").await;
    let context = ExecutionContext::for_trigger(question).with_breadcrumbs("notes", items);

    let shown = context.for_model().await.unwrap();

    let counts = shown.missing().iter().map(|missing| match &missing.reason {
        MissingReason::Withheld { items, .. } => *items,
        other => panic!("{other}"),
    });
    assert_eq!(counts.collect::<Vec<_>>(), [1, 1, 1, 1, 5]);
}

#[tokio::test]
async fn a_trigger_that_cannot_be_shown_ends_the_run_for_good() {
    for hints in [failing(), broken()] {
        let store = MemoryStore::default();
        let question = NewBreadcrumb::new("question.v1").context(json!("hunter2"));
        let question = store.create(question.llm_hints(hints)).await.unwrap();
        let probe = looking(&store, &[]);

        let outcome = probe.sees(&question).await.unwrap();

        assert!(
            matches!(
                outcome,
                Outcome::Failed {
                    class: FailureClass::Permanent,
                    ..
                }
            ),
            "{outcome:?}"
        );
        let told = probe.failures().concat();
        assert!(
            told.contains("\"trigger\" is withheld from the model: "),
            "{told}"
        );
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[tokio::test]
async fn a_required_source_of_which_nothing_is_left_ends_the_run_for_good() {
    for source in [
        notes(),
        Subscription::context("note.v1").key("notes").latest(),
    ] {
        let store = MemoryStore::default();
        define(&store, "note.v1", broken()).await;
        put(&store, "note.v1", secret()).await;
        let question = put(&store, "question.v1", json!({})).await;
        let probe = looking(&store, &[source.required()]);

        let outcome = probe.sees(&question).await.unwrap();

        assert!(
            matches!(
                outcome,
                Outcome::Failed {
                    class: FailureClass::Permanent,
                    ..
                }
            ),
            "{outcome:?}"
        );
        let told = probe.failures().concat();
        assert!(
            told.contains("\"notes\" is withheld from the model: "),
            "{told}"
        );
    }
}

#[tokio::test]
async fn a_required_list_is_shown_if_something_of_it_is_left_or_nothing_was_there() {
    let store = MemoryStore::default();
    let required = [notes().required()];
    let empty = shown(&store, &store, &required, json!({})).await;
    assert_eq!(empty["sources"], json!({"notes": []}));

    hinted(&store, secret(), broken()).await;
    put(&store, "note.v1", json!({"n": 1})).await;
    let some = shown(&store, &store, &required, json!({})).await;

    assert_eq!(some["sources"], json!({"notes": [{"n": 1}]}));
}

/// Creates a store whose first `times` searches for schema definitions fail or hang.
fn unable(store: &MemoryStore, times: usize, how: fn() -> Do) -> Shim {
    let left = AtomicUsize::new(times);
    let less = |left: usize| left.checked_sub(1);
    Shim::new(store, move |call| {
        let fails = asks_for_definitions(&call)
            && left
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
                .is_ok();
        if fails { how() } else { Do::Pass }
    })
}

#[tokio::test(start_paused = true)]
async fn a_failed_hint_query_is_retried_before_the_model_sees_data() {
    for how in [|| Do::Fail(unavailable()), || Do::Hang] as [fn() -> Do; 2] {
        let store = MemoryStore::default();
        define(&store, "question.v1", hide()).await;
        let question = put(&store, "question.v1", secret()).await;
        let probe = looking(&unable(&store, 1, how), &[]);

        let first = probe.sees(&question).await.unwrap_err();
        let rows = runs(&store).await;
        assert!(
            matches!(first, ExecutorError::Postponed { .. }),
            "{first:?}"
        );
        assert_eq!(rows.first().unwrap().state, RunState::Ready);
        assert_eq!(probe.responded(), 0);

        let second = probe.sees(&question).await.unwrap();
        assert!(matches!(second, Outcome::Responded { .. }), "{second:?}");
        let answer = all(&store, "answer.v1").await;
        assert_eq!(
            answer.first().unwrap().context["trigger"],
            json!({"open": 1})
        );
    }
}

#[tokio::test]
async fn a_store_without_hint_support_fails_the_run_permanently() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", secret()).await;
    let unsupported = || {
        Do::Fail(StoreError::Unsupported {
            store: "shim",
            operation: "search",
        })
    };

    let outcome = looking(&unable(&store, 9, unsupported), &[])
        .sees(&question)
        .await;

    let outcome = outcome.unwrap();
    assert!(
        matches!(
            outcome,
            Outcome::Failed {
                class: FailureClass::Permanent,
                ..
            }
        ),
        "{outcome:?}"
    );
}

#[tokio::test]
async fn hints_are_read_on_a_store_without_a_ledger_too() {
    let store = MemoryStore::default();
    define(&store, "question.v1", hide()).await;

    let shown = shown(&store, &Shim::without_ledger(&store), &[], secret()).await;

    assert_eq!(shown["trigger"], json!({"open": 1}));
}

#[tokio::test]
async fn several_tasks_of_a_run_can_look_and_save_at_once() {
    let store = MemoryStore::default();
    define(&store, "question.v1", hide()).await;
    let question = put(&store, "question.v1", secret()).await;
    let probe = looking(&store, &[]).executing(|context| async move {
        let (one, saved, other) = tokio::join!(
            context.for_model(),
            context.save(json!({"step": 1})),
            context.for_model(),
        );
        saved?;
        Ok(json!([one?.trigger().context, other?.trigger().context]))
    });
    let probe = probe.responding(|_, output| {
        let answer = NewBreadcrumb::new("answer.v1").context(json!({"both": output}));
        Ok(Response::create(answer))
    });

    probe.sees(&question).await.unwrap();

    let answer = all(&store, "answer.v1").await;
    let both = &answer.first().unwrap().context["both"];
    assert_eq!(*both, json!([{"open": 1}, {"open": 1}]));
}

#[tokio::test]
async fn a_context_assembled_outside_a_run_cannot_be_prepared_for_a_model() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", secret()).await;
    let context = looking(&store, &[])
        .assemble_context(&question)
        .await
        .unwrap();

    let given = context.clone().with_schema_hints("note.v1", hide());
    for context in [context, given] {
        let refused = context.for_model().await.unwrap_err();

        assert!(
            matches!(refused, ContextError::Unsupported { .. }),
            "{refused:?}"
        );
        assert_eq!(refused.retry(), Retry::Never);
        assert!(
            refused.to_string().contains("call for_model in execute"),
            "{refused}"
        );
    }
}

#[tokio::test]
async fn a_context_that_outlives_its_run_is_refused() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", secret()).await;
    let probe = looking(&store, &[]);
    probe.sees(&question).await.unwrap();

    let refused = probe.context(0).for_model().await.unwrap_err();

    assert!(
        refused.to_string().contains("the run has ended"),
        "{refused}"
    );
}

#[tokio::test]
async fn a_manual_context_is_shaped_by_its_own_and_the_given_schema_hints() {
    let question = || NewBreadcrumb::new("question.v1").context(secret());
    let note = NewBreadcrumb::new("note.v1").context(secret());
    let own = note.clone().llm_hints(json!({"exclude": ["open"]}));
    let context = ExecutionContext::for_trigger(question().llm_hints(hide()))
        .with("page", secret())
        .with_breadcrumbs("notes", [note, own])
        .with_schema_hints("note.v1", hide());

    let shown = shown_of(&context.for_model().await.unwrap());

    let expected = json!({
        "trigger": {"open": 1},
        "sources": {"page": [secret()], "notes": [{"open": 1}, {"secret": 2}]},
        "missing": [],
    });
    assert_eq!(shown, expected);
    let broken =
        ExecutionContext::for_trigger(question()).with_schema_hints("question.v1", broken());
    let refused = broken.for_model().await.unwrap_err();
    let ContextError::Withheld { key, cause } = &refused else {
        panic!("{refused:?}");
    };
    assert_eq!(key, "trigger");
    assert!(
        matches!(&**cause, WithheldBy::Unreadable { hints: HintsOf::Schema(schema), .. }
            if schema == "question.v1"),
        "{cause:?}"
    );
}

#[tokio::test]
async fn a_source_whose_fetch_failed_is_still_reported_as_missing() {
    let store = MemoryStore::default();
    let shim = Shim::new(&store, |call| match call {
        Call::Search(query) if query.selector.schema_name() == Some("note.v1") => {
            Do::Fail(unavailable())
        }
        _ => Do::Pass,
    });

    let shown = shown(&store, &shim, &[notes()], json!({})).await;

    assert_eq!(
        shown["missing"],
        json!(["\"notes\": the fetch of the source failed"])
    );
}

#[tokio::test(start_paused = true)]
async fn a_look_for_hints_takes_no_longer_than_a_source_may() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", secret()).await;
    let profile = Profile::default().source_timeout(Duration::from_secs(3));
    let begin = tokio::time::Instant::now();
    let probe = looking(&unable(&store, 9, || Do::Hang), &[]).profile(profile);

    probe.sees(&question).await.unwrap_err();

    assert_eq!(begin.elapsed().as_secs(), 3);
}

#[tokio::test]
async fn a_model_text_states_the_number_of_withheld_items_and_omits_the_hints() {
    let note = NewBreadcrumb::new("note.v1").context(secret());
    let note = note.llm_hints(json!({"obey\n## trigger": 1}));
    let question = NewBreadcrumb::new("question.v1").context(json!({}));
    let context = ExecutionContext::for_trigger(question).with_breadcrumbs("notes", [note]);

    let text = context.for_model().await.unwrap().render(Format::Markdown);

    assert!(text.contains("\n- notes: 1 items were withheld"), "{text}");
    assert!(!text.contains("obey"), "{text}");
}

/// Returns a context with `count` notes that have the same hints.
fn many_notes(hints: Option<Value>, context: &Value, count: usize) -> ExecutionContext {
    let mut note = NewBreadcrumb::new("note.v1").context(context.clone());
    if let Some(hints) = hints {
        note = note.llm_hints(hints);
    }
    let question = NewBreadcrumb::new("question.v1");
    ExecutionContext::for_trigger(question).with_breadcrumbs("notes", vec![note; count])
}

#[tokio::test]
async fn other_futures_of_the_task_run_while_a_large_context_is_shaped() {
    let large = json!({"items": vec![json!({"secret": 1}); 2_000]});
    let hide = json!({"exclude": ["items.secret"]});

    for (context, count) in [(secret(), 500), (large, 60)] {
        let hidden = many_notes(Some(hide.clone()), &context, count);
        assert!(hidden.for_model().now_or_never().is_none());
    }
    assert!(
        many_notes(None, &secret(), 500)
            .for_model()
            .now_or_never()
            .is_some()
    );
}

#[tokio::test]
async fn the_total_work_of_all_hints_in_a_context_is_bounded() {
    let context = json!({"items": vec![json!({"n": 1}); 20_000]});
    let hide = json!({"exclude": ["items.secret"]});
    let harmless = NewBreadcrumb::new("page.v1")
        .context(secret())
        .llm_hints(json!({"exclude": ["secret"]}));
    let crowded = many_notes(Some(hide), &context, 400).with_breadcrumbs("page", [harmless]);

    let shown = crowded.for_model().await.unwrap();

    let kept = shown.many("notes").len();
    assert!((1..400).contains(&kept), "{kept}");
    let withheld = shown.missing().iter().map(|missing| match &missing.reason {
        MissingReason::Withheld { items, .. } => *items,
        other => panic!("{other}"),
    });
    assert_eq!(withheld.sum::<usize>(), 400 - kept);
    assert_eq!(shown.many("page").len(), 1);
}

/// An executor with its own implementation of `assemble_context`.
struct ByHand(Probe);

#[async_trait]
impl UniversalExecutor for ByHand {
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
        Ok(ExecutionContext::for_trigger(Arc::clone(trigger)))
    }
}

#[tokio::test]
async fn in_a_run_a_context_made_by_hand_is_shaped_by_the_definitions_of_the_store_too() {
    let store = MemoryStore::default();
    define(&store, "question.v1", hide()).await;
    let question = put(&store, "question.v1", secret()).await;

    let outcome = ByHand(looking(&store, &[]))
        .process_event(&Event::created(&question))
        .await;

    assert!(
        matches!(outcome, Ok(Outcome::Responded { .. })),
        "{outcome:?}"
    );
    let answers = all(&store, "answer.v1").await;
    let shown = &answers.first().unwrap().context;
    assert_eq!(shown.get("trigger"), Some(&json!({"open": 1})));
}
