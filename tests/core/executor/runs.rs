//! One event at one executor: triggers, exactly-once effects, retries and outcomes.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a helper that cannot do its work fails the test that uses it"
)]

use crate::support::{Call, Do, Probe, Shim, all, event_of, nested, put, runs, unavailable};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, advance, sleep, timeout};
use universal_executor::error::Retry;
use universal_executor::executor::{ExecutorError, Fetched, InvalidExecutor, RetryPolicy, check};
use universal_executor::source::StartAt;
use universal_executor::store::{
    Capabilities, FailureClass, MemoryLimits, RunFilter, RunRef, RunState, StoreError,
};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, Event, EventKind,
    EventSource as _, ExecutionContext, Failure, Json, MemoryStore, NewBreadcrumb, Outcome, Patch,
    Profile, Response, RunLedger, Selector, Subscription, Subscriptions, UniversalExecutor, Wake,
    async_trait, permanent, retry_after, suspend,
};

const LEASE: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

fn answer() -> Response {
    Response::create(NewBreadcrumb::new("answer.v1"))
}

async fn asked(store: &MemoryStore) -> Arc<Breadcrumb> {
    put(store, "question.v1", json!({"n": 1})).await
}

fn prober(store: &(impl BreadcrumbStore + Clone)) -> Probe {
    Probe::on("question.v1", "prober", store)
}

fn written(outcome: &Outcome) -> Vec<BreadcrumbId> {
    match outcome {
        Outcome::Responded { written } | Outcome::Failed { written, .. } => written.clone(),
        other => panic!("expected a written response, got {other:?}"),
    }
}

/// Fails unless a run failed with a failure class and has exactly one dead letter with this class.
async fn assert_failed(store: &MemoryStore, outcome: &Outcome, expected: FailureClass) {
    let Outcome::Failed { class, written } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(*class, expected);
    let letters = all(store, "executor.failed.v1").await;
    let [letter] = letters.as_slice() else {
        panic!("{letters:?}")
    };
    assert_eq!(letter.context["class"], expected.as_str());
    assert_eq!(written.last(), Some(&letter.id));
}

fn is_responded(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Responded { .. })
}

#[tokio::test]
async fn a_selector_that_is_context_first_and_trigger_second_fires() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let context = Subscription::context("question.v1").key("before");
    let trigger = Subscription::trigger("question.v1");

    for (id, subscriptions) in [
        ("context-first", [context.clone(), trigger.clone()]),
        ("trigger-first", [trigger, context]),
    ] {
        let probe = Probe::new(id, &store, subscriptions);
        let outcome = probe.sees(&question).await.unwrap();
        assert!(is_responded(&outcome), "{id}: {outcome:?}");
    }
}

#[tokio::test]
async fn a_context_breadcrumb_is_noted_without_reading_the_store() {
    let store = MemoryStore::default();
    let page = put(&store, "page.v1", json!({})).await;
    let other = put(&store, "other.v1", json!({})).await;
    let unread = Shim::new(&store, |_| Do::Fail(unavailable()));
    let probe = Probe::new(
        "prober",
        &unread,
        [
            Subscription::trigger("question.v1"),
            Subscription::context("page.v1"),
        ],
    );

    assert_eq!(probe.sees(&page).await.unwrap(), Outcome::ContextNoted);
    assert_eq!(probe.sees(&other).await.unwrap(), Outcome::Unmatched);
    assert!(runs(&store).await.is_empty());
}

#[tokio::test]
async fn an_event_without_context_is_decided_after_the_fetch() {
    let store = MemoryStore::default();
    let urgent = put(&store, "question.v1", json!({"urgent": true})).await;
    let calm = put(&store, "question.v1", json!({"urgent": false})).await;
    let trigger = Subscription::trigger("question.v1").matching("$.urgent", "eq", true);
    let probe = Probe::new("prober", &store, [trigger]);

    let fires = probe
        .process_event(&Event::created(&urgent).envelope())
        .await;
    let rests = probe.process_event(&Event::created(&calm).envelope()).await;

    assert!(is_responded(&fires.unwrap()));
    assert_eq!(rests.unwrap(), Outcome::Unmatched);
    assert_eq!(probe.executed(), 1);
    let states: Vec<RunState> = runs(&store).await.iter().map(|run| run.state).collect();
    assert!(states.contains(&RunState::Skipped), "{states:?}");
}

#[tokio::test]
async fn an_executor_with_two_triggers_runs_for_both_and_once_per_event() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let order = put(&store, "order.v1", json!({})).await;
    let probe = Probe::new(
        "prober",
        &store,
        [
            Subscription::trigger("question.v1"),
            Subscription::trigger("order.v1"),
            Subscription::trigger("*"),
        ],
    );

    probe.sees(&question).await.unwrap();
    probe.sees(&order).await.unwrap();

    assert_eq!(probe.executed(), 2);
    assert_eq!(all(&store, "answer.v1").await.len(), 2);
}

#[tokio::test]
async fn a_forged_event_starts_no_run_the_stored_breadcrumb_does_not_ask_for() {
    let store = MemoryStore::default();
    let secret = NewBreadcrumb::new("secret.v1").context(json!({"for": "nobody"}));
    let secret = store.create(secret).await.unwrap();
    let real = Event::created(&secret);
    let theirs = put(&store.in_tenant("b"), "question.v1", json!({"for": "me"})).await;
    let other = Some("question.v1".to_owned());
    let tenant = Event {
        schema_name: other.clone(),
        tags: vec!["go".to_owned()],
        ..Event::created(&theirs)
    };
    let trigger = Subscription::trigger("question.v1")
        .all_tags(["go"])
        .matching("for", "eq", "me");
    let probe = Probe::new("prober", &store, [trigger]);

    for (forged, expected) in [
        (
            Event {
                schema_name: other,
                tags: vec!["go".to_owned()],
                context: Some(json!({"for": "me"}).into()),
                ..real
            },
            Outcome::Unmatched,
        ),
        (tenant, Outcome::Gone),
    ] {
        assert_eq!(probe.process_event(&forged).await.unwrap(), expected);
    }
    assert_eq!(probe.executed(), 0);
}

#[tokio::test]
async fn the_newer_version_runs_and_the_older_event_is_superseded() {
    let store = MemoryStore::default();
    let first = asked(&store).await;
    let edit = Patch::new().context(json!({"n": 2}));
    let second = store.update(first.id, 1, edit).await.unwrap();
    let probe = prober(&store);

    let older = probe.sees(&first).await.unwrap();
    let newer = probe.sees(&second).await.unwrap();
    let again = probe.sees(&first).await.unwrap();

    assert!(is_responded(&older), "{older:?}");
    assert_eq!(probe.context(0).trigger().context["n"], 2);
    assert!(matches!(newer, Outcome::AlreadyDone { .. }), "{newer:?}");
    assert_eq!(again, Outcome::Superseded);
    assert_eq!(probe.executed(), 1);
}

#[tokio::test(start_paused = true)]
async fn an_older_event_while_the_newer_version_runs_is_superseded() {
    let store = MemoryStore::default();
    let first = asked(&store).await;
    let second = store.update(first.id, 1, Patch::new()).await.unwrap();
    let slow = prober(&store).executing(|_| async {
        sleep(2 * SECOND).await;
        Ok(json!({}))
    });
    let meanwhile = async {
        sleep(SECOND).await;
        slow.sees(&first).await
    };

    let (newer, older) = tokio::join!(slow.sees(&second), meanwhile);

    assert!(is_responded(&newer.unwrap()));
    assert_eq!(older.unwrap(), Outcome::Superseded);
    assert_eq!(slow.executed(), 1);
}

#[tokio::test]
async fn a_newer_version_that_no_longer_matches_runs_nothing() {
    let store = MemoryStore::default();
    let open = put(&store, "ticket.v1", json!({"open": true})).await;
    let close = Patch::new().context(json!({"open": false}));
    store.update(open.id, 1, close).await.unwrap();
    let trigger = Subscription::trigger("ticket.v1").matching("open", "eq", true);
    let probe = Probe::new("prober", &store, [trigger]);

    let outcome = probe.sees(&open).await.unwrap();

    assert_eq!(outcome, Outcome::Unmatched);
    assert_eq!(probe.executed(), 0);
    assert_eq!(runs(&store).await[0].state, RunState::Skipped);
}

#[tokio::test]
async fn an_older_event_after_the_newer_one_answers_nothing() {
    let store = MemoryStore::default();
    let first = asked(&store).await;
    let second = store.update(first.id, 1, Patch::new()).await.unwrap();
    let probe = prober(&store);

    let newer = probe.sees(&second).await.unwrap();
    let older = probe.sees(&first).await.unwrap();

    assert!(is_responded(&newer), "{newer:?}");
    assert_eq!(older, Outcome::Superseded);
    assert_eq!(all(&store, "answer.v1").await.len(), 1);
}

#[tokio::test]
async fn every_version_that_is_seen_in_time_has_its_own_run() {
    let store = MemoryStore::default();
    let first = asked(&store).await;
    let probe = prober(&store);

    probe.sees(&first).await.unwrap();
    let second = store.update(first.id, 1, Patch::new()).await.unwrap();
    probe.sees(&second).await.unwrap();

    assert_eq!(probe.executed(), 2);
}

#[tokio::test]
async fn a_stale_read_is_tried_again() {
    let store = MemoryStore::default();
    let first = asked(&store).await;
    let second = store.update(first.id, 1, Patch::new()).await.unwrap();
    let stale = Arc::new(AtomicBool::new(true));
    let lagging = Shim::new(&store, {
        let (stale, first) = (Arc::clone(&stale), Arc::clone(&first));
        move |call| match call {
            Call::Get(_) if stale.load(Ordering::SeqCst) => Do::Answer(vec![Arc::clone(&first)]),
            _ => Do::Pass,
        }
    });
    let probe = prober(&lagging);

    let error = probe.sees(&second).await.unwrap_err();
    stale.store(false, Ordering::SeqCst);
    let later = probe.sees(&second).await.unwrap();

    assert!(matches!(error.retry(), Retry::After(_)), "{error:?}");
    assert_eq!(error.code(), "stale_read");
    assert!(is_responded(&later), "{later:?}");
    assert_eq!(probe.executed(), 1);
}

#[tokio::test]
async fn a_breadcrumb_that_is_gone_ends_its_run_without_a_dead_letter() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    store.delete(question.id).await.unwrap();
    let probe = prober(&store);

    let outcome = probe.sees(&question).await.unwrap();

    assert_eq!(outcome, Outcome::Gone);
    assert_eq!(runs(&store).await[0].state, RunState::Skipped);
    assert!(all(&store, "executor.failed.v1").await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_does_not_read_its_own_writes_gets_time_to_find_the_trigger() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let began = Instant::now();
    let late = Shim::new(&store, move |call| match call {
        Call::Get(id) if began.elapsed() < 2 * SECOND => Do::Fail(StoreError::NotFound {
            id,
            tombstone: None,
        }),
        _ => Do::Pass,
    })
    .able_to(Capabilities::default());

    let outcome = prober(&late).sees(&question).await.unwrap();

    assert!(is_responded(&outcome), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_missing_breadcrumb_is_gone_at_once_or_within_the_lease_if_reads_may_lag() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    store.delete(question.id).await.unwrap();
    let lagging = Shim::new(&store, |_| Do::Pass).able_to(Capabilities::default());
    let (exact, patient) = (
        Probe::on("question.v1", "exact", &store),
        Probe::on("question.v1", "patient", &lagging),
    );

    let began = Instant::now();
    let at_once = exact.sees(&question).await.unwrap();
    let took_none = began.elapsed();
    let later = patient.sees(&question).await.unwrap();
    let took_some = began.elapsed();

    assert_eq!((at_once, later), (Outcome::Gone, Outcome::Gone));
    assert_eq!(took_none, Duration::ZERO);
    assert!(took_some > SECOND && took_some < LEASE, "{took_some:?}");
}

#[tokio::test]
async fn a_trigger_on_deletions_runs_on_the_tombstone() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    store.delete(question.id).await.unwrap();
    let mut events = store.events().subscribe(StartAt::Beginning).await.unwrap();
    events.next().await.unwrap().unwrap();
    let deleted = events.next().await.unwrap().unwrap().event;
    let trigger = Subscription::trigger("question.v1");
    let asks = Probe::new("asks", &store, [trigger.clone().on([EventKind::Deleted])]);
    let rests = Probe::new("rests", &store, [trigger]);

    let fires = asks.process_event(&deleted).await.unwrap();

    assert_eq!((deleted.kind, deleted.version), (EventKind::Deleted, 2));
    assert!(is_responded(&fires), "{fires:?}");
    assert_eq!(asks.context(0).trigger().context["n"], 1);
    assert_eq!(asks.context(0).trigger().version, 2);
    let rested = rests.process_event(&deleted).await.unwrap();
    assert_eq!(rested, Outcome::Unmatched);
}

#[tokio::test]
async fn a_deletion_runs_on_the_stored_tombstone_and_ignores_the_event_content() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    store.delete(question.id).await.unwrap();
    let forged = Event {
        kind: EventKind::Deleted,
        version: 2,
        tags: vec!["session:9".to_owned()],
        context: Some(json!({"n": 99}).into()),
        ..Event::created(&question)
    };
    let deleted = || Subscription::trigger("question.v1").on([EventKind::Deleted]);
    let any = Probe::new("any", &store, [deleted()]);
    let picky = Probe::new("picky", &store, [deleted().matching("n", "eq", 99)]);

    let outcome = any.process_event(&forged).await.unwrap();
    let refused = picky.process_event(&forged).await.unwrap();

    assert!(is_responded(&outcome), "{outcome:?}");
    assert_eq!(any.context(0).trigger().context, json!({"n": 1}));
    assert!(all(&store, "answer.v1").await[0].tags.is_empty());
    assert_eq!(refused, Outcome::Unmatched);
    assert_eq!(picky.executed(), 0);
}

#[tokio::test]
async fn a_deletion_without_a_stored_tombstone_is_gone() {
    let mut limits = MemoryLimits::default();
    limits.tombstones = 1;
    let store = MemoryStore::with_limits(limits);
    let (first, second) = (asked(&store).await, asked(&store).await);
    store.delete(first.id).await.unwrap();
    store.delete(second.id).await.unwrap();
    let forgotten = Event {
        version: 2,
        ..Event::deleted(&first)
    };
    let trigger = Subscription::trigger("question.v1").on([EventKind::Deleted]);
    let probe = Probe::new("prober", &store, [trigger]);

    let outcome = probe.process_event(&forgotten).await.unwrap();

    assert_eq!((outcome, probe.executed()), (Outcome::Gone, 0));
}

#[tokio::test]
async fn a_breadcrumb_too_large_for_its_event_is_matched_after_the_fetch() {
    let store = MemoryStore::default();
    let mut events = store.events().subscribe(StartAt::Beginning).await.unwrap();
    let trigger = Subscription::trigger("page.v1").matching("wanted", "eq", true);
    let probe = Probe::new("prober", &store, [trigger]);

    for (kibibytes, wanted, travels) in [(250, true, true), (260, true, false), (260, false, false)]
    {
        let text = "x".repeat(kibibytes << 10);
        put(&store, "page.v1", json!({"wanted": wanted, "text": text})).await;
        let event = loop {
            let event = events.next().await.unwrap().unwrap().event;
            if event.schema_name.as_deref() == Some("page.v1") {
                break event;
            }
        };

        let outcome = probe.process_event(&event).await.unwrap();

        assert_eq!(event.context.is_some(), travels, "{kibibytes} KiB");
        assert_eq!(
            is_responded(&outcome),
            wanted,
            "{kibibytes} KiB: {outcome:?}"
        );
    }
    assert_eq!(probe.executed(), 2);
}

#[tokio::test]
async fn a_forged_deletion_of_an_existing_breadcrumb_is_unmatched() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let trigger = Subscription::trigger("question.v1").on([EventKind::Deleted]);
    let probe = Probe::new("prober", &store, [trigger]);

    let outcome = probe
        .process_event(&Event::deleted(&question))
        .await
        .unwrap();

    assert_eq!(outcome, Outcome::Unmatched);
    assert_eq!(probe.executed(), 0);
}

#[tokio::test]
async fn an_executor_that_asks_for_deletions_is_refused_on_a_store_without_tombstones() {
    let store = MemoryStore::default();
    let plain = Shim::new(&store, |_| Do::Pass).able_to(Capabilities::default());
    let trigger = Subscription::trigger("question.v1").on([EventKind::Created, EventKind::Deleted]);
    let subscriptions = [Subscription::context("page.v1"), trigger];

    let refused = check(&Probe::new("prober", &plain, subscriptions.clone())).unwrap_err();

    let expected = InvalidExecutor::NoTombstones {
        executor: "prober".to_owned(),
        subscription: 1,
    };
    assert_eq!(refused, expected);
    assert!(check(&Probe::new("prober", &store, subscriptions)).is_ok());
    let nameless = check(&Probe::on("question.v1", "", &store)).unwrap_err();
    assert_eq!(nameless, InvalidExecutor::NoId);
}

#[test]
fn an_executor_id_that_a_store_would_change_or_cannot_index_is_refused() {
    let store = MemoryStore::default();
    let checked = |id: &str| check(&Probe::on("question.v1", id, &store));
    let longest = "x".repeat(256);

    assert!(checked(&longest).is_ok());
    assert!(checked("Übersetzer 1").is_ok());
    let long = checked(&format!("{longest}x")).unwrap_err().to_string();
    assert!(
        long.contains("has 257 bytes where at most 256") && long.len() < 200,
        "{long}"
    );
    let control = checked("helper\0").unwrap_err().to_string();
    assert!(control.contains("U+0000 at byte 6"), "{control}");
}

#[tokio::test]
async fn a_required_vector_source_is_refused_on_a_store_without_vector_search() {
    let plain = MemoryStore::default();
    let searches = Capabilities::default().vector_search(true);
    let able = Shim::new(&plain, |_| Do::Pass).able_to(searches);
    let near = Subscription::context("page.v1").vector(3);
    let without = [Subscription::trigger("question.v1"), near.clone()];
    let requires = [Subscription::trigger("question.v1"), near.required()];

    let refused = check(&Probe::new("prober", &plain, requires.clone())).unwrap_err();

    let expected = InvalidExecutor::NoVectors {
        executor: "prober".to_owned(),
        subscription: 1,
    };
    assert_eq!(refused, expected);
    assert!(check(&Probe::new("prober", &able, requires)).is_ok());
    assert!(check(&Probe::new("prober", &plain, without)).is_ok());
}

#[tokio::test]
async fn a_ping_matches_nothing() {
    let store = MemoryStore::default();
    let ping = r#"{"type": "ping", "ts": "2026-11-21T20:33:37Z"}"#;
    let ping: Event = serde_json::from_str(ping).unwrap();

    let outcome = Probe::on("*", "prober", &store).process_event(&ping).await;

    assert_eq!(outcome.unwrap(), Outcome::Unmatched);
}

#[tokio::test]
async fn own_breadcrumbs_never_trigger() {
    let store = MemoryStore::default();
    let echo = Probe::on("*", "echo", &store);
    let target = put(&store, "target.v1", json!({})).await;
    let update = Response::update(target.id, 1, Patch::new());
    let editor = Probe::new(
        "editor",
        &store,
        [
            Subscription::trigger("question.v1"),
            Subscription::trigger("target.v1"),
        ],
    )
    .writing(update);
    let question = asked(&store).await;

    let answered = echo.sees(&question).await.unwrap();
    let answer = store.get(written(&answered)[0]).await.unwrap();
    editor.sees(&question).await.unwrap();
    let edited = store.get(target.id).await.unwrap();

    assert_eq!(echo.sees(&answer).await.unwrap(), Outcome::OwnBreadcrumb);
    assert_eq!(edited.version, 2);
    assert_eq!(editor.sees(&edited).await.unwrap(), Outcome::OwnBreadcrumb);
    assert!(is_responded(&echo.sees(&edited).await.unwrap()));
}

#[tokio::test]
async fn a_breadcrumb_is_own_even_after_the_run_that_wrote_it_is_forgotten() {
    let mut limits = MemoryLimits::default();
    limits.finished_runs = 1;
    let store = MemoryStore::with_limits(limits);
    let echo = Probe::on("*", "echo", &store);
    let question = asked(&store).await;
    let outcome = echo.sees(&question).await.unwrap();
    let answer = store.get(written(&outcome)[0]).await.unwrap();
    for _ in 0..3 {
        let other = Probe::on("question.v1", "other", &store).writing(Response::none());
        let question = asked(&store).await;
        other.sees(&question).await.unwrap();
    }

    let own = echo.sees(&answer).await.unwrap();
    let next = Probe::on("answer.v1", "next", &store);
    let outcome = next.sees(&answer).await.unwrap();

    assert!(
        runs(&store)
            .await
            .iter()
            .all(|run| run.run.trigger_id != question.id)
    );
    assert_eq!(own, Outcome::OwnBreadcrumb);
    let follow_up = store.get(written(&outcome)[0]).await.unwrap();
    assert_eq!(follow_up.context["creator"]["hops"], 2);
    let origin = question.id.to_string();
    assert_eq!(follow_up.context["creator"]["correlation_id"], origin);
}

#[tokio::test]
async fn a_redelivery_older_than_the_retained_finished_runs_runs_again() {
    let mut limits = MemoryLimits::default();
    limits.finished_runs = 2;
    let store = MemoryStore::with_limits(limits);
    let probe = prober(&store);
    let (first, second, third) = (
        asked(&store).await,
        asked(&store).await,
        asked(&store).await,
    );
    for question in [&first, &second, &third] {
        probe.sees(question).await.unwrap();
    }

    let remembered = probe.sees(&second).await.unwrap();
    let forgotten = probe.sees(&first).await.unwrap();

    assert!(
        matches!(remembered, Outcome::AlreadyDone { .. }),
        "{remembered:?}"
    );
    assert!(is_responded(&forgotten), "{forgotten:?}");
    assert_eq!(probe.executed(), 4);
}

#[tokio::test]
async fn a_forged_payload_cannot_silence_an_executor_that_has_a_ledger() {
    let store = MemoryStore::default();
    let forged = json!({"creator": {
        "id": "prober", "agent_id": "prober", "tool": "prober", "hops": 99, "correlation_id": "x",
    }});
    let forged = NewBreadcrumb::new("question.v1")
        .created_by("prober")
        .context(forged);
    let forged = store.create(forged).await.unwrap();
    let probe = prober(&store);

    let outcome = probe.sees(&forged).await.unwrap();

    let answer = store.get(written(&outcome)[0]).await.unwrap();
    assert_eq!(answer.context["creator"]["hops"], 1);
    let origin = forged.id.to_string();
    assert_eq!(answer.context["creator"]["correlation_id"], origin);
}

#[tokio::test]
async fn author_and_payload_identify_own_breadcrumbs_without_a_ledger() {
    let store = MemoryStore::default();
    let probe = prober(&Shim::without_ledger(&store));
    let by_author = NewBreadcrumb::new("question.v1").created_by("prober");
    let of_other = NewBreadcrumb::new("question.v1").created_by("somebody");
    let names = ["id", "agent_id", "tool", "workflow"].map(|name| {
        NewBreadcrumb::new("question.v1").context(json!({"creator": {name: "prober"}}))
    });

    for own in names.into_iter().chain([by_author]) {
        let own = store.create(own).await.unwrap();
        assert_eq!(probe.sees(&own).await.unwrap(), Outcome::OwnBreadcrumb);
    }
    let other = store.create(of_other).await.unwrap();
    assert!(is_responded(&probe.sees(&other).await.unwrap()));
    let edit = Patch::new().updated_by("prober");
    let edited = store.update(other.id, 1, edit).await.unwrap();
    assert_eq!(probe.sees(&edited).await.unwrap(), Outcome::OwnBreadcrumb);
}

#[tokio::test]
async fn a_redelivered_event_answers_with_the_ids_of_the_first_time() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let probe = prober(&store).writing(answer().and_create(NewBreadcrumb::new("log.v1")));

    let first = probe.sees(&question).await.unwrap();
    let again = probe.sees(&question).await.unwrap();

    let expected = Outcome::AlreadyDone {
        state: RunState::Done,
        written: written(&first),
    };
    assert_eq!(again, expected);
    assert_eq!(written(&first).len(), 2);
    assert_eq!(probe.executed(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_at_once_execute_once_and_answer_once() {
    for same_handle in [false, true] {
        let store = MemoryStore::default();
        let question = asked(&store).await;
        let slow = |store: &MemoryStore| {
            let probe = prober(store).executing(|_| async {
                for _ in 0..10 {
                    tokio::task::yield_now().await;
                }
                Ok(json!({}))
            });
            Arc::new(probe)
        };
        let one = slow(&store);
        let probes: Vec<Arc<Probe>> = (0..100)
            .map(|_| {
                if same_handle {
                    Arc::clone(&one)
                } else {
                    slow(&store.clone())
                }
            })
            .collect();
        let start = Arc::new(tokio::sync::Barrier::new(100));

        let tasks = probes.iter().map(|probe| {
            let (probe, start) = (Arc::clone(probe), Arc::clone(&start));
            let event = Event::created(&question);
            tokio::spawn(async move {
                start.wait().await;
                probe.process_event(&event).await.unwrap()
            })
        });
        let outcomes = futures::future::join_all(tasks.collect::<Vec<_>>()).await;

        let outcomes: Vec<Outcome> = outcomes.into_iter().map(Result::unwrap).collect();
        let responded = outcomes
            .iter()
            .filter(|outcome| is_responded(outcome))
            .count();
        let harmless = outcomes.iter().filter(|outcome| {
            matches!(
                outcome,
                Outcome::AlreadyDone { .. } | Outcome::InProgress { .. }
            )
        });
        assert_eq!((responded, harmless.count()), (1, 99), "{outcomes:?}");
        let mut executed: usize = probes.iter().map(|probe| probe.executed()).sum();
        if same_handle {
            executed = one.executed();
        }
        assert_eq!(executed, 1);
        assert_eq!(all(&store, "answer.v1").await.len(), 1);
    }
}

#[tokio::test]
async fn executors_and_tenants_have_separate_runs() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let other_tenant = store.in_tenant("b");
    let theirs = asked(&other_tenant).await;

    for (probe, question) in [
        (Probe::on("question.v1", "one", &store), &question),
        (Probe::on("question.v1", "two", &store), &question),
        (Probe::on("question.v1", "one", &other_tenant), &theirs),
    ] {
        let outcome = probe.sees(question).await.unwrap();
        assert!(is_responded(&outcome), "{outcome:?}");
    }
    assert_eq!(all(&store, "answer.v1").await.len(), 2);
    assert_eq!(all(&other_tenant, "answer.v1").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn after_an_expired_lease_another_worker_answers_and_the_late_commit_writes_nothing() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let slow = Shim::new(&store, |call| match call {
        Call::Commit(_) => Do::Wait(2 * LEASE),
        _ => Do::Pass,
    });
    let late = prober(&slow).shared();
    let first = tokio::spawn({
        let (late, event) = (Arc::clone(&late), Event::created(&question));
        async move { late.process_event(&event).await }
    });
    sleep(SECOND).await;
    let second = prober(&store);

    let during = second.sees(&question).await.unwrap();
    sleep(LEASE).await;
    let after = second.sees(&question).await.unwrap();
    let lost = first.await.unwrap().unwrap_err();

    assert!(matches!(during, Outcome::InProgress { .. }), "{during:?}");
    assert!(is_responded(&after), "{after:?}");
    assert_eq!(second.context(0).attempt(), 2);
    assert!(matches!(lost, ExecutorError::LeaseLost { .. }), "{lost:?}");
    assert_eq!(late.responded(), 1);
    assert_eq!(all(&store, "answer.v1").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_late_commit_is_refused_while_the_next_worker_still_runs() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let slow = Shim::new(&store, |call| match call {
        Call::Commit(_) => Do::Wait(2 * LEASE),
        _ => Do::Pass,
    });
    let late = prober(&slow).writing(Response::create(NewBreadcrumb::new("late.v1")));
    let second = prober(&store).executing(|_| async {
        sleep(3 * LEASE).await;
        Ok(json!({}))
    });
    let next = async {
        sleep(LEASE + SECOND).await;
        second.sees(&question).await
    };

    let (lost, answered) = tokio::join!(late.sees(&question), next);

    let lost = lost.unwrap_err();
    assert!(matches!(lost, ExecutorError::LeaseLost { .. }), "{lost:?}");
    assert!(is_responded(&answered.unwrap()));
    assert!(all(&store, "late.v1").await.is_empty());
    assert_eq!(all(&store, "answer.v1").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn heartbeats_keep_a_long_run_beyond_its_lease() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let long = prober(&store).executing(|_| async {
        sleep(3 * LEASE).await;
        Ok(json!({}))
    });
    let second = prober(&store);
    let watch = async {
        sleep(2 * LEASE).await;
        second.sees(&question).await.unwrap()
    };

    let (first, during) = tokio::join!(long.sees(&question), watch);

    assert!(is_responded(&first.unwrap()));
    assert!(matches!(during, Outcome::InProgress { .. }), "{during:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_cannot_be_renewed_cancels_the_run_before_it_expires() {
    for hangs in [false, true] {
        let store = MemoryStore::default();
        let question = asked(&store).await;
        let broken = Shim::new(&store, move |call| match call {
            Call::Heartbeat if hangs => Do::Hang,
            Call::Heartbeat => Do::Fail(unavailable()),
            _ => Do::Pass,
        });
        let probe = prober(&broken).hanging();
        let began = Instant::now();

        let error = probe.sees(&question).await.unwrap_err();

        assert!(
            matches!(error, ExecutorError::LeaseLost { .. }),
            "{error:?}"
        );
        assert_eq!(began.elapsed(), LEASE * 5 / 6, "hangs: {hangs}");
        probe.context(0).cancelled().now_or_never().unwrap();
        assert!(all(&store, "answer.v1").await.is_empty());
        assert!(all(&store, "executor.failed.v1").await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn the_time_it_takes_to_read_the_trigger_is_time_of_the_lease() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let slow = Shim::new(&store, |call| match call {
        Call::Get(_) => Do::Wait(20 * SECOND),
        Call::Heartbeat => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let probe = prober(&slow).hanging();
    let began = Instant::now();

    let error = probe.sees(&question).await.unwrap_err();

    assert_eq!(error.code(), "lease_lost");
    assert_eq!(began.elapsed(), LEASE * 5 / 6);
}

#[tokio::test(start_paused = true)]
async fn one_failed_heartbeat_is_made_up_for_by_the_next() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let failed = AtomicBool::new(false);
    let broken = Shim::new(&store, move |call| match call {
        Call::Heartbeat if !failed.swap(true, Ordering::SeqCst) => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let probe = prober(&broken).executing(|_| async {
        sleep(3 * LEASE).await;
        Ok(json!({}))
    });

    let outcome = probe.sees(&question).await.unwrap();

    assert!(is_responded(&outcome), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_dropped_process_event_writes_nothing_and_its_run_goes_to_the_next() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let dropped = prober(&store).hanging();

    let stopped = timeout(SECOND, dropped.sees(&question)).await;
    let next = prober(&store);
    let at_once = next.sees(&question).await.unwrap();
    advance(LEASE).await;
    let later = next.sees(&question).await.unwrap();

    assert!(stopped.is_err());
    dropped.context(0).cancelled().now_or_never().unwrap();
    assert!(matches!(at_once, Outcome::InProgress { .. }), "{at_once:?}");
    assert!(is_responded(&later), "{later:?}");
    assert_eq!(next.context(0).attempt(), 2);
    assert_eq!(all(&store, "answer.v1").await.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_transient_error_is_postponed_until_the_attempts_are_used_up() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let probe = prober(&store)
        .failing(|| "connection reset".into())
        .answering_failures(|_, failure| {
            let told = json!({"message": failure.message, "attempts": failure.attempts});
            Ok(Response::create(
                NewBreadcrumb::new("apology.v1").context(told),
            ))
        });

    for attempt in 1..5_u32 {
        let error = probe.sees(&question).await.unwrap_err();
        let ExecutorError::Postponed { delay, at, .. } = &error else {
            panic!("{error:?}")
        };
        let most = SECOND * (1 << (attempt - 1));
        assert!(*delay <= most, "attempt {attempt}: {delay:?}");
        assert_eq!(error.retry(), Retry::After(*delay));
        let row = runs(&store).await.remove(0);
        assert_eq!((row.state, row.attempts), (RunState::Ready, attempt));
        assert_eq!(row.due, Some(*at));
        assert!(probe.failures().is_empty());
    }
    let outcome = probe.sees(&question).await.unwrap();

    assert_failed(&store, &outcome, FailureClass::AttemptsUsedUp).await;
    assert_eq!(probe.executed(), 5);
    assert_eq!(probe.failures(), ["attempts_used_up: connection reset"]);
    let apology = all(&store, "apology.v1").await.remove(0);
    assert_eq!(apology.context["attempts"], 5);
    assert_eq!(apology.context["creator"]["id"], "prober");
    assert_eq!(written(&outcome)[0], apology.id);
    let again = probe.sees(&question).await.unwrap();
    let expected = Outcome::AlreadyDone {
        state: RunState::Failed,
        written: written(&outcome),
    };
    assert_eq!(again, expected);
    assert_eq!(probe.executed(), 5);
}

#[tokio::test]
async fn the_type_of_an_error_decides_that_it_is_permanent() {
    let missing_key = |context: &ExecutionContext| context.require("nothing").unwrap_err();
    type Make = fn() -> BoxError;
    let makes: [(&str, Make); 5] = [
        ("marked", || permanent("unknown city")),
        ("json", || {
            serde_json::from_str::<u8>("x").unwrap_err().into()
        }),
        ("unsupported", || {
            let (store, operation) = ("s", "o");
            StoreError::Unsupported { store, operation }.into()
        }),
        ("executor", || {
            let reason = "no".to_owned();
            ExecutorError::BadResponse { reason }.into()
        }),
        ("definition", || {
            Subscriptions::parse("[").unwrap_err().into()
        }),
    ];

    for (name, make) in makes {
        let store = MemoryStore::default();
        let question = asked(&store).await;
        let probe = prober(&store).failing(make);
        let outcome = probe.sees(&question).await.unwrap();
        assert_failed(&store, &outcome, FailureClass::Permanent).await;
        assert_eq!((probe.executed(), probe.failures().len()), (1, 1), "{name}");
    }
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let probe =
        prober(&store).executing(move |context| async move { Err(missing_key(&context).into()) });
    let outcome = probe.sees(&question).await.unwrap();
    assert_failed(&store, &outcome, FailureClass::Permanent).await;
}

#[tokio::test]
async fn an_error_in_respond_counts_as_one_in_execute() {
    let store = MemoryStore::default();
    let (question, other) = (asked(&store).await, asked(&store).await);
    let transient = prober(&store).responding(|_, _| Err("not now".into()));
    let fatal = prober(&store).responding(|_, _| Err(permanent("never")));

    let error = transient.sees(&question).await.unwrap_err();
    let outcome = fatal.sees(&other).await.unwrap();

    assert!(
        matches!(error, ExecutorError::Postponed { .. }),
        "{error:?}"
    );
    assert_failed(&store, &outcome, FailureClass::Permanent).await;
}

#[tokio::test]
async fn the_delay_a_store_asks_for_is_the_least_there_is() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let probe = prober(&store).failing(|| {
        let busy = StoreError::Unavailable {
            store: "crm",
            retry_after: 7 * SECOND,
            source: "busy".into(),
        };
        busy.into()
    });

    let error = probe.sees(&question).await.unwrap_err();

    assert_eq!(error.retry(), Retry::After(7 * SECOND));
    assert_eq!(runs(&store).await[0].attempts, 1);
}

#[tokio::test(start_paused = true)]
async fn a_rate_limit_uses_no_attempt_and_its_delay_is_respected() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let probe = prober(&store)
        .profile(Profile::default().attempts(1))
        .failing(|| retry_after(20 * SECOND, "slow down"));

    for _ in 0..10 {
        let error = probe.sees(&question).await.unwrap_err();

        assert_eq!(error.retry(), Retry::After(20 * SECOND));
        assert_eq!(error.code(), "rate_limited");
        let row = runs(&store).await.remove(0);
        assert_eq!((row.attempts, row.state), (0, RunState::Ready));
    }
    advance(Duration::from_secs(24 * 3_600)).await;
    let outcome = probe.sees(&question).await.unwrap();

    assert_failed(&store, &outcome, FailureClass::AttemptsUsedUp).await;
}

#[tokio::test]
async fn a_panic_fails_only_its_run_and_has_its_own_failure_class() {
    let store = MemoryStore::default();
    let (question, other) = (
        asked(&store).await,
        put(&store, "question.v1", json!({"n": 2})).await,
    );
    let probe = prober(&store)
        .profile(Profile::default().attempts(2))
        .executing(|context| async move {
            assert!(context.trigger().context["n"] == 2, "n is 1");
            Ok(json!({}))
        });

    let first = probe.sees(&question).await.unwrap_err();
    let second = probe.sees(&question).await.unwrap();
    let healthy = probe.sees(&other).await.unwrap();

    assert_eq!(first.code(), "panic");
    assert!(
        matches!(first, ExecutorError::Postponed { .. }),
        "{first:?}"
    );
    assert_failed(&store, &second, FailureClass::Panic).await;
    // A panic message may contain a secret, so the requester does not receive it.
    assert_eq!(probe.failures(), ["panic: the executor panicked"]);
    assert!(is_responded(&healthy), "{healthy:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_out_of_time_is_retried_and_then_fails_as_that() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let profile = Profile::default().timeout(90 * SECOND).attempts(2);
    let probe = prober(&store).profile(profile).hanging();
    let began = Instant::now();

    let first = probe.sees(&question).await.unwrap_err();
    let took = began.elapsed();
    let second = probe.sees(&question).await.unwrap();

    assert_eq!((first.code(), took), ("timeout", 90 * SECOND));
    assert_failed(&store, &second, FailureClass::Timeout).await;
}

#[tokio::test(start_paused = true)]
async fn three_abandoned_leases_in_a_row_are_a_crash_loop() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let dies = prober(&store).hanging();

    for _ in 0..3 {
        let died = timeout(SECOND, dies.sees(&question)).await;
        assert!(died.is_err());
        advance(LEASE).await;
    }
    let outcome = dies.sees(&question).await.unwrap();

    assert_failed(&store, &outcome, FailureClass::CrashLoop).await;
    assert_eq!((dies.executed(), dies.failures().len()), (3, 1));
}

#[tokio::test(start_paused = true)]
async fn an_at_most_once_run_is_never_executed_again() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let once = Profile::default().at_most_once();
    let dies = prober(&store).profile(once.clone()).hanging();

    let died = timeout(SECOND, dies.sees(&question)).await;
    advance(LEASE).await;
    let outcome = dies.sees(&question).await.unwrap();

    assert!(died.is_err());
    assert_failed(&store, &outcome, FailureClass::OutcomeUnknown).await;
    assert_eq!((dies.executed(), dies.failures().len()), (1, 1));
    let other = MemoryStore::default();
    let question = asked(&other).await;
    let fails = prober(&other).profile(once).failing(|| "reset".into());
    let outcome = fails.sees(&question).await.unwrap();
    assert_failed(&other, &outcome, FailureClass::OutcomeUnknown).await;
}

#[tokio::test]
async fn an_at_most_once_run_that_never_started_is_retried() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let page = Subscription::context("page.v1").key("page").required();
    let once = Probe::new("once", &store, [Subscription::trigger("question.v1"), page])
        .profile(Profile::default().at_most_once());

    let early = once.sees(&question).await.unwrap_err();
    put(&store, "page.v1", json!({})).await;
    let later = once.sees(&question).await.unwrap();

    assert!(
        matches!(early, ExecutorError::Postponed { .. }),
        "{early:?}"
    );
    assert!(is_responded(&later), "{later:?}");
}

#[tokio::test]
async fn a_version_conflict_runs_again_from_the_fetch() {
    let store = MemoryStore::default();
    let cart = put(&store, "cart.v1", json!({"items": 0})).await;
    let question = asked(&store).await;
    let (edits, id) = (store.clone(), cart.id);
    let probe = Probe::new(
        "prober",
        &store,
        [
            Subscription::trigger("question.v1"),
            Subscription::context("cart.v1").key("cart"),
        ],
    )
    .executing(move |context| {
        let edits = edits.clone();
        async move {
            if context.attempt() == 1 {
                let edit = Patch::new().context(json!({"items": 5}));
                edits.update(id, 1, edit).await?;
            }
            let cart = &context.many("cart")[0];
            let items = cart.context["items"].as_i64().unwrap() + 1;
            Ok(json!({"version": cart.version, "items": items}))
        }
    })
    .responding(move |_, output| {
        let patch = Patch::new().context(json!({"items": output["items"]}));
        Ok(Response::update(
            id,
            output["version"].as_u64().unwrap(),
            patch,
        ))
    });

    let first = probe.sees(&question).await.unwrap_err();
    let second = probe.sees(&question).await.unwrap();

    assert_eq!(first.code(), "conflict");
    assert!(is_responded(&second), "{second:?}");
    let cart = store.get(cart.id).await.unwrap();
    assert_eq!((cart.version, &cart.context["items"]), (3, &json!(6)));
}

#[tokio::test]
async fn a_response_is_written_in_full_or_not_at_all() {
    let store = MemoryStore::default();
    let target = put(&store, "target.v1", json!({})).await;
    let question = asked(&store).await;
    let stale = answer().and_update(target.id, 7, Patch::new());

    let error = prober(&store)
        .writing(stale)
        .sees(&question)
        .await
        .unwrap_err();

    assert_eq!(error.code(), "conflict");
    assert!(all(&store, "answer.v1").await.is_empty());
}

#[tokio::test]
async fn a_failure_answer_that_fails_leaves_the_dead_letter_alone() {
    type Fail = fn(&Breadcrumb, &Failure) -> Result<Response, BoxError>;
    let fails: [Fail; 4] = [
        |_, _| Err("cannot even say so".into()),
        |_, _| panic!("planned panic"),
        |_, _| Ok(Response::create(NewBreadcrumb::new("forbidden.v1"))),
        |_, _| Ok(Response::update(BreadcrumbId::NIL, 1, Patch::new())),
    ];

    for fail in fails {
        let store = MemoryStore::default();
        let question = asked(&store).await;
        let probe = prober(&store)
            .profile(Profile::default().responds_with(["answer.v1"]))
            .failing(|| permanent("no"))
            .answering_failures(fail);
        let outcome = probe.sees(&question).await.unwrap();
        assert_failed(&store, &outcome, FailureClass::Permanent).await;
        assert_eq!(written(&outcome).len(), 1);
    }
}

#[tokio::test]
async fn a_dead_letter_names_the_run_and_its_cause_and_holds_no_payload() {
    let store = MemoryStore::default();
    let question = NewBreadcrumb::new("question.v1").tags(["session:7", "private"]);
    let question = question.context(json!({"password": "hunter2"}));
    let question = store.create(question).await.unwrap();
    let probe = prober(&store).failing(|| permanent("the password is wrong"));

    probe.sees(&question).await.unwrap();

    let letter = all(&store, "executor.failed.v1").await.remove(0);
    let context = &letter.context;
    assert_eq!(context["executor"], "prober");
    assert_eq!(context["trigger_id"], question.id.to_string());
    assert_eq!(
        (&context["trigger_version"], &context["attempts"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(
        (&context["class"], &context["code"]),
        (&json!("permanent"), &json!("error"))
    );
    assert_eq!(
        context["cause"],
        "the method execute of the executor failed: the password is wrong"
    );
    assert_eq!(context["run_key"], probe.context(0).idempotency_key());
    assert!(
        letter.tags.contains(&"session:7".to_owned()),
        "{:?}",
        letter.tags
    );
    assert!(
        !letter.tags.contains(&"private".to_owned()),
        "{:?}",
        letter.tags
    );
    assert!(!serde_json::to_string(&*letter).unwrap().contains("hunter2"));
}

#[tokio::test]
async fn a_written_breadcrumb_names_its_author_and_its_trigger() {
    for (kind, own_name) in [
        ("executor", None),
        ("agent", Some("agent_id")),
        ("tool", Some("tool")),
        ("workflow", Some("workflow")),
        ("reporter", None),
    ] {
        let store = MemoryStore::default();
        let question = NewBreadcrumb::new("question.v1").tags(["session:7", "other:1"]);
        let question = store.create(question).await.unwrap();
        let forged = NewBreadcrumb::new("answer.v1")
            .tag("mine")
            .created_by("somebody else")
            .context(json!({"text": "hi", "creator": {"id": "somebody else", "hops": 0}}));
        let profile = Profile::new(kind).definition("{}");
        let probe = prober(&store)
            .profile(profile)
            .writing(Response::create(forged));

        let outcome = probe.sees(&question).await.unwrap();

        let answer = store.get(written(&outcome)[0]).await.unwrap();
        let mut expected = json!({
            "type": kind, "id": "prober", "trigger_id": question.id, "trigger_version": 1,
            "correlation_id": question.id, "hops": 1,
            "definition": "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a",
        });
        if let Some(name) = own_name {
            expected[name] = json!("prober");
        }
        assert_eq!(answer.context["creator"], expected);
        assert_eq!(answer.context["text"], "hi");
        assert_eq!(answer.tags, ["mine", "session:7"]);
        assert_eq!(answer.created_by.as_deref(), Some("prober"));
        assert_eq!(answer.updated_by.as_deref(), Some("prober"));
    }
}

#[tokio::test]
async fn an_update_with_a_context_is_stamped_and_every_update_is_signed() {
    let store = MemoryStore::default();
    let target = put(&store, "target.v1", json!({"kept": true})).await;
    let question = NewBreadcrumb::new("question.v1").tag("session:7");
    let question = store.create(question).await.unwrap();
    let update =
        |version, patch: Patch| Response::update(target.id, version, patch.updated_by("x"));
    let titled =
        Probe::on("question.v1", "titled", &store).writing(update(1, Patch::new().title("t")));
    let rewritten = Probe::on("question.v1", "rewritten", &store).writing(update(
        2,
        Patch::new().tags(["a"]).context(json!({"kept": false})),
    ));

    titled.sees(&question).await.unwrap();
    let second = store.get(target.id).await.unwrap();
    rewritten.sees(&question).await.unwrap();
    let third = store.get(target.id).await.unwrap();

    assert_eq!(second.context, json!({"kept": true}));
    assert_eq!(
        (second.updated_by.as_deref(), second.tags.len()),
        (Some("titled"), 0)
    );
    assert_eq!(third.context["creator"]["id"], "rewritten");
    assert_eq!(third.updated_by.as_deref(), Some("rewritten"));
    assert_eq!(third.tags, ["a", "session:7"]);
}

#[tokio::test]
async fn a_deletion_is_signed_too() {
    let store = MemoryStore::default();
    let target = put(&store, "target.v1", json!({})).await;
    let question = asked(&store).await;

    prober(&store)
        .writing(Response::none().and_delete(target.id))
        .sees(&question)
        .await
        .unwrap();

    let Err(StoreError::NotFound { tombstone, .. }) = store.get(target.id).await else {
        panic!("the breadcrumb must be deleted")
    };
    assert_eq!(tombstone.unwrap().updated_by.as_deref(), Some("prober"));
}

#[tokio::test]
async fn a_context_that_cannot_carry_its_creator_is_an_error() {
    for context in [json!(null), json!([1]), json!("text"), json!(1)] {
        let store = MemoryStore::default();
        let question = asked(&store).await;
        let response = NewBreadcrumb::new("answer.v1").context(context.clone());

        let outcome = prober(&store)
            .writing(Response::create(response))
            .sees(&question)
            .await;

        assert_failed(&store, &outcome.unwrap(), FailureClass::Permanent).await;
        let letter = all(&store, "executor.failed.v1").await.remove(0);
        assert_eq!(letter.context["code"], "bad_response", "{context}");
    }
}

#[tokio::test]
async fn a_run_cannot_make_a_request_or_an_answer_of_another_breadcrumb() {
    for schema in [
        "human.response.v1",
        "human.response.v7",
        "tool.response.v1",
        "tool.request",
    ] {
        let store = MemoryStore::default();
        let question = asked(&store).await;
        let said = put(&store, "user.message.v1", json!({"approved": true})).await;
        let mut patch = Patch::new().tags(["request:7"]);
        patch.schema_name = Some(schema.to_owned());

        let outcome = prober(&store)
            .writing(Response::update(said.id, 1, patch))
            .sees(&question)
            .await;

        assert_failed(&store, &outcome.unwrap(), FailureClass::Permanent).await;
        let letter = all(&store, "executor.failed.v1").await.remove(0);
        assert_eq!(letter.context["code"], "bad_response", "{schema}");
        assert_eq!(*store.get(said.id).await.unwrap(), *said);
    }
}

#[tokio::test]
async fn a_run_cannot_create_the_tags_by_which_a_store_recognises_the_writes_of_a_run() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let forged = NewBreadcrumb::new("answer.v1").tags(["ux:run:other", "ux:slot:0/1"]);

    let outcome = prober(&store)
        .writing(Response::create(forged))
        .sees(&question)
        .await;

    assert_failed(&store, &outcome.unwrap(), FailureClass::Permanent).await;
    let letter = all(&store, "executor.failed.v1").await.remove(0);
    assert_eq!(letter.context["code"], "bad_response");
    assert!(all(&store, "answer.v1").await.is_empty());
}

#[tokio::test]
async fn an_update_preserves_library_tags_and_cannot_add_one() {
    for (tags, is_refused) in [
        (vec!["a", "ux:run:own"], false),
        (vec!["a"], false),
        (vec!["ux:run:own", "ux:run:other"], true),
        (vec!["ux:slot:0/1", "a"], true),
    ] {
        let store = MemoryStore::default();
        let question = asked(&store).await;
        let new = NewBreadcrumb::new("note.v1").tags(["ux:run:own", "b"]);
        let note = store.create(new).await.unwrap();

        let outcome = prober(&store)
            .writing(Response::update(
                note.id,
                1,
                Patch::new().tags(tags.clone()),
            ))
            .sees(&question)
            .await
            .unwrap();

        let found = store.get(note.id).await.unwrap();
        if is_refused {
            assert_failed(&store, &outcome, FailureClass::Permanent).await;
            assert_eq!(*found, *note, "{tags:?}");
        } else {
            assert_eq!(found.tags, ["a", "ux:run:own"], "{tags:?}");
        }
    }
}

#[tokio::test]
async fn a_chain_preserves_its_correlation_id_and_counts_its_hops() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let first = Probe::on("question.v1", "first", &store);
    let second = Probe::on("answer.v1", "second", &store)
        .writing(Response::create(NewBreadcrumb::new("summary.v1")));

    let outcome = first.sees(&question).await.unwrap();
    let answer = store.get(written(&outcome)[0]).await.unwrap();
    let outcome = second.sees(&answer).await.unwrap();

    let summary = store.get(written(&outcome)[0]).await.unwrap();
    let creator = &summary.context["creator"];
    assert_eq!(
        (&creator["hops"], &creator["id"]),
        (&json!(2), &json!("second"))
    );
    assert_eq!(creator["correlation_id"], question.id.to_string());
    assert_eq!(creator["trigger_id"], answer.id.to_string());
}

/// Passes every event of a store to every executor until no new event exists. Returns the number of responses and failures.
async fn pump(store: &MemoryStore, probes: &[&Probe]) -> usize {
    let mut events = store.events().subscribe(StartAt::Beginning).await.unwrap();
    let mut acted = 0;
    while let Some(Some(delivery)) = events.next().now_or_never() {
        let event = delivery.unwrap().event;
        for probe in probes {
            match probe.process_event(&event).await.unwrap() {
                Outcome::Responded { .. } | Outcome::Failed { .. } => acted += 1,
                _ => {}
            }
        }
        assert!(
            acted < 1_000,
            "the executors trigger each other without end"
        );
    }
    acted
}

#[tokio::test]
async fn a_cycle_of_executors_stops_at_the_hop_limit_despite_forged_payloads() {
    let store = MemoryStore::default();
    put(&store, "a.v1", json!({})).await;
    let step = |from: &str, to: &str| {
        let forged = json!({"creator": {"hops": 0, "correlation_id": "other"}});
        let next = NewBreadcrumb::new(to).context(forged);
        Probe::on(from, &format!("{from}-to-{to}"), &store).writing(Response::create(next))
    };
    let cycle = [
        step("a.v1", "b.v1"),
        step("b.v1", "c.v1"),
        step("c.v1", "a.v1"),
    ];

    pump(&store, &cycle.each_ref()).await;

    let executed: usize = cycle.iter().map(Probe::executed).sum();
    assert_eq!(executed, 16);
    let letters = all(&store, "executor.failed.v1").await;
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].context["class"], "hop_limit");
    assert!(cycle.iter().all(|probe| probe.failures().is_empty()));
}

#[tokio::test]
async fn an_executor_may_allow_shorter_chains_than_others() {
    let store = MemoryStore::default();
    put(&store, "a.v1", json!({})).await;
    let step = |from: &str, to: &str| {
        Probe::on(from, &format!("{from}-to-{to}"), &store)
            .profile(Profile::default().hop_limit(3))
            .writing(Response::create(NewBreadcrumb::new(to)))
    };
    let cycle = [step("a.v1", "b.v1"), step("b.v1", "a.v1")];

    pump(&store, &cycle.each_ref()).await;

    let executed: usize = cycle.iter().map(Probe::executed).sum();
    assert_eq!(executed, 3);
    assert_eq!(all(&store, "executor.failed.v1").await.len(), 1);
}

#[tokio::test]
async fn without_a_ledger_a_cycle_stops_by_the_hops_in_the_stamp() {
    let store = MemoryStore::default();
    put(&store, "a.v1", json!({})).await;
    let plain = Shim::without_ledger(&store);
    let step = |from: &str, to: &str| {
        Probe::on(from, &format!("{from}-to-{to}"), &plain)
            .writing(Response::create(NewBreadcrumb::new(to)))
    };
    let cycle = [step("a.v1", "b.v1"), step("b.v1", "a.v1")];

    pump(&store, &cycle.each_ref()).await;

    let executed: usize = cycle.iter().map(Probe::executed).sum();
    assert_eq!(executed, 16);
    assert_eq!(all(&store, "executor.failed.v1").await.len(), 1);
}

#[tokio::test]
async fn a_dead_letter_does_not_trigger_the_executor_that_failed() {
    let store = MemoryStore::default();
    asked(&store).await;
    let probe = Probe::new(
        "prober",
        &store,
        [
            Subscription::trigger("question.v1"),
            Subscription::trigger("executor.failed.v1"),
        ],
    )
    .failing(|| permanent("no"));

    let acted = pump(&store, &[&probe]).await;

    assert_eq!((acted, probe.executed()), (1, 1));
}

#[tokio::test]
async fn executors_that_fail_at_each_others_dead_letters_come_to_an_end() {
    let store = MemoryStore::default();
    asked(&store).await;
    let watcher = |id: &str| {
        let triggers = ["question.v1", "executor.failed.v1"].map(Subscription::trigger);
        Probe::new(id, &store, triggers).failing(|| permanent("no"))
    };
    let (one, two) = (watcher("one"), watcher("two"));

    pump(&store, &[&one, &two]).await;

    let letters = all(&store, "executor.failed.v1").await.len();
    assert!(letters <= 2 * 16, "{letters} dead letters");
}

#[tokio::test]
async fn an_executor_writes_only_the_schemas_of_its_profile() {
    let allowed = Profile::default().responds_with(["answer.v1"]);
    let store = MemoryStore::default();
    let mine = put(&store, "answer.v1", json!({})).await;
    let theirs = put(&store, "agent.def.v1", json!({})).await;
    let renamed: Patch = serde_json::from_value(json!({"schema_name": "agent.def.v1"})).unwrap();

    for (name, response, fine) in [
        ("create", answer(), true),
        ("update", Response::update(mine.id, 1, Patch::new()), true),
        ("delete", Response::none().and_delete(mine.id), true),
        (
            "create another",
            Response::create(NewBreadcrumb::new("agent.def.v1")),
            false,
        ),
        (
            "create none",
            Response::create(NewBreadcrumb::default().context(json!({}))),
            false,
        ),
        (
            "update another",
            Response::update(theirs.id, 1, Patch::new()),
            false,
        ),
        (
            "delete another",
            Response::none().and_delete(theirs.id),
            false,
        ),
        (
            "make it another",
            Response::update(mine.id, 2, renamed),
            false,
        ),
        (
            "second write",
            answer().and_create(NewBreadcrumb::new("x.v1")),
            false,
        ),
    ] {
        let question = asked(&store).await;
        let probe = prober(&store).profile(allowed.clone()).writing(response);
        let answers = all(&store, "answer.v1").await.len();

        let outcome = probe.sees(&question).await.unwrap();

        assert_eq!(is_responded(&outcome), fine, "{name}: {outcome:?}");
        if !fine {
            assert_eq!(
                written(&outcome).len(),
                1,
                "{name}: only the dead letter is written"
            );
            assert_eq!(all(&store, "answer.v1").await.len(), answers, "{name}");
        }
    }
    assert_eq!(store.get(theirs.id).await.unwrap().version, 1);
}

#[tokio::test]
async fn output_that_nests_too_deep_is_a_permanent_failure_and_never_a_crash() {
    for levels in [100, 20_000] {
        let store = MemoryStore::default();
        let question = asked(&store).await;
        let probe = prober(&store).executing(move |_| async move { Ok(nested(levels)) });

        let outcome = probe.sees(&question).await.unwrap();

        assert_failed(&store, &outcome, FailureClass::Permanent).await;
        assert_eq!(probe.responded(), 0);
    }
    for levels in [100, 20_000] {
        let store = MemoryStore::default();
        let question = asked(&store).await;
        let probe = prober(&store).responding(move |_, _| {
            let mut context = serde_json::Map::new();
            context.insert("deep".to_owned(), nested(levels));
            Ok(Response::create(
                NewBreadcrumb::new("answer.v1").context(Value::Object(context)),
            ))
        });

        let outcome = probe.sees(&question).await.unwrap();

        assert_failed(&store, &outcome, FailureClass::Permanent).await;
    }
}

#[tokio::test]
async fn a_context_of_endless_arrays_in_a_response_is_a_permanent_failure_and_never_a_crash() {
    for share in [false, true] {
        let store = MemoryStore::default();
        let question = asked(&store).await;
        let deep = Json::from(nested(100_000));
        let kept = share.then(|| deep.clone());
        let response = Response::create(NewBreadcrumb::new("answer.v1").context(deep));
        let probe = if share {
            prober(&store).writing(response)
        } else {
            let once = Mutex::new(Some(response));
            prober(&store).responding(move |_, _| Ok(once.lock().unwrap().take().unwrap()))
        };

        let outcome = probe.sees(&question).await.unwrap();

        assert_failed(&store, &outcome, FailureClass::Permanent).await;
        assert!(
            probe.failures()[0].contains("nests too deeply; reduce it to at most 64 levels"),
            "{:?}",
            probe.failures()
        );
        drop(kept);
    }
}

#[tokio::test]
async fn a_trigger_full_of_session_tags_is_answered_with_as_many_as_there_is_room_for() {
    let store = MemoryStore::default();
    let tags = (0..Breadcrumb::MAX_TAGS).map(|number| format!("session:{number}"));
    let question = store
        .create(NewBreadcrumb::new("question.v1").tags(tags))
        .await
        .unwrap();
    let answer = NewBreadcrumb::new("answer.v1").tags(["mine", "session:7"]);

    let outcome = prober(&store)
        .writing(Response::create(answer))
        .sees(&question)
        .await
        .unwrap();

    assert!(is_responded(&outcome), "{outcome:?}");
    let answer = all(&store, "answer.v1").await.remove(0);
    assert_eq!(answer.tags.len(), Breadcrumb::MAX_TAGS);
    assert_eq!(&answer.tags[..3], ["mine", "session:7", "session:0"]);
    assert_eq!(
        answer.tags.iter().filter(|tag| *tag == "session:7").count(),
        1
    );
}

#[tokio::test]
async fn a_trigger_with_no_end_of_session_tags_from_a_store_without_bounds_costs_no_time() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let mut flooded = Breadcrumb::clone(&question);
    flooded.tags = (0..200_000).map(|n| format!("session:{n}")).collect();
    let flooded = Arc::new(flooded);
    let served = Arc::clone(&flooded);
    let boundless = Shim::new(&store, move |call| match call {
        Call::Get(_) => Do::Answer(vec![Arc::clone(&served)]),
        _ => Do::Pass,
    });
    let response = NewBreadcrumb::new("answer.v1").tags((0..255).map(|n| format!("own:{n}")));
    let probe = prober(&boundless).writing(Response::create(response));

    let outcome = probe.sees(&flooded).await.unwrap();

    assert!(is_responded(&outcome), "{outcome:?}");
    let answer = all(&store, "answer.v1").await.remove(0);
    assert_eq!(answer.tags.len(), Breadcrumb::MAX_TAGS);
}

#[tokio::test]
async fn without_a_ledger_a_correlation_too_long_to_carry_on_is_replaced_and_the_hops_still_count()
{
    for (correlation, carried) in [("c".repeat(128), true), ("c".repeat(129), false)] {
        let store = MemoryStore::default();
        let creator = json!({"correlation_id": correlation, "hops": 3});
        let question = put(&store, "question.v1", json!({"creator": creator})).await;

        let probe = prober(&Shim::without_ledger(&store));
        probe.sees(&question).await.unwrap();

        let answer = all(&store, "answer.v1").await.remove(0);
        let creator = &answer.context["creator"];
        let own = question.id.to_string();
        let expected = if carried { &correlation } else { &own };
        assert_eq!(creator["correlation_id"], json!(expected));
        assert_eq!(creator["hops"], 4);
    }
}

#[tokio::test]
async fn a_response_too_large_to_store_is_a_permanent_failure() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let huge = json!({"text": "x".repeat(2 << 20)});
    let probe = prober(&store).writing(Response::create(
        NewBreadcrumb::new("answer.v1").context(huge),
    ));

    let outcome = probe.sees(&question).await.unwrap();

    assert_failed(&store, &outcome, FailureClass::Permanent).await;
    let letter = all(&store, "executor.failed.v1").await.remove(0);
    assert_eq!(letter.context["code"], "rejected");
}

#[tokio::test]
async fn a_nul_character_in_a_response_becomes_a_replacement_character() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let response = NewBreadcrumb::new("answer.v1").context(json!({"text": "a\0b"}));

    let outcome = prober(&store)
        .writing(Response::create(response))
        .sees(&question)
        .await
        .unwrap();

    let answer = store.get(written(&outcome)[0]).await.unwrap();
    assert_eq!(answer.context["text"], "a\u{FFFD}b");
}

#[tokio::test]
async fn a_response_of_nothing_ends_the_run_all_the_same() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let probe = prober(&store).writing(Response::none());

    let outcome = probe.sees(&question).await.unwrap();
    let again = probe.sees(&question).await.unwrap();

    assert_eq!(
        outcome,
        Outcome::Responded {
            written: Vec::new()
        }
    );
    assert!(matches!(again, Outcome::AlreadyDone { .. }), "{again:?}");
}

#[tokio::test]
async fn the_next_attempt_resumes_with_the_saved_progress() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let probe = prober(&store).executing(|context| async move {
        match context.resumed() {
            None => {
                context.save(json!({"step": 1})).await?;
                context.save(json!({"step": 2})).await?;
                Err("interrupted".into())
            }
            Some(resumed) => Ok(json!({"after": resumed.state["step"]})),
        }
    });

    let first = probe.sees(&question).await.unwrap_err();
    let second = probe.sees(&question).await.unwrap();

    assert!(
        matches!(first, ExecutorError::Postponed { .. }),
        "{first:?}"
    );
    let answer = store.get(written(&second)[0]).await.unwrap();
    assert_eq!(answer.context["after"], 2);
    assert_eq!(probe.context(1).resumed().unwrap().with, None);
}

#[tokio::test]
async fn a_save_that_fails_is_reported_to_the_executor() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let broken = Shim::new(&store, |call| match call {
        Call::Save => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let saving = |context: ExecutionContext| async move {
        context.save(json!({})).await?;
        Ok(json!({}))
    };
    let retried = prober(&broken).executing(saving);
    let refused =
        Probe::on("question.v1", "plain", &Shim::without_ledger(&store)).executing(saving);

    let error = retried.sees(&question).await.unwrap_err();
    let outcome = refused.sees(&question).await.unwrap();

    assert!(
        matches!(error, ExecutorError::Postponed { .. }),
        "{error:?}"
    );
    assert_failed(&store, &outcome, FailureClass::Permanent).await;
}

#[tokio::test(start_paused = true)]
async fn a_save_that_is_late_or_pending_at_the_end_of_the_run_is_refused() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let (tell, told) = futures::channel::oneshot::channel();
    let tell = Mutex::new(Some(tell));
    let slow = Shim::new(&store, |call| match call {
        Call::Save => Do::Hang,
        _ => Do::Pass,
    });
    let probe = prober(&slow).executing(move |context| {
        let tell = tell.lock().unwrap().take().unwrap();
        async move {
            let first = context.clone();
            tokio::spawn(async move { first.save(json!(1)).await });
            tokio::spawn(async move {
                sleep(SECOND / 2).await;
                drop(tell.send(context.save(json!(2)).await));
            });
            sleep(SECOND).await;
            Ok(json!({}))
        }
    });

    let outcome = probe.sees(&question).await.unwrap();

    assert!(is_responded(&outcome), "{outcome:?}");
    let context = probe.context(0);
    let late = timeout(SECOND, context.save(json!(3))).await;
    let late = late.expect("a late save must return immediately");
    let waiting = timeout(SECOND, told)
        .await
        .expect("a waiting save must return")
        .unwrap();
    for refused in [late, waiting] {
        let refused = refused.unwrap_err().to_string();
        assert!(refused.contains("the run has ended"), "{refused}");
    }
}

#[tokio::test]
async fn a_wait_that_nothing_could_end_fails_the_run_instead_of_suspending_it() {
    let broken = Selector::schema("answer.v1").matching("$.x", "equals", 1);
    for (wake, code) in [
        (Wake::on(broken), "invalid_query"),
        (Wake::default(), "empty_wake"),
    ] {
        let store = MemoryStore::default();
        let question = asked(&store).await;

        let outcome = asker(&store, wake).sees(&question).await.unwrap();

        assert_failed(&store, &outcome, FailureClass::Permanent).await;
        assert_eq!(all(&store, "human.request.v1").await.len(), 0);
        let letter = all(&store, "executor.failed.v1").await.remove(0);
        assert_eq!(letter.context["code"], code);
    }
}

#[tokio::test]
async fn a_dead_letter_of_an_executor_with_a_very_long_name_can_be_stored() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let probe = Probe::on("question.v1", &"long".repeat(100), &store).failing(|| permanent("no"));

    let outcome = probe.sees(&question).await.unwrap();

    assert_failed(&store, &outcome, FailureClass::Permanent).await;
}

/// Creates an executor that asks a person, waits for the answer and responds with it.
fn asker(store: &(impl BreadcrumbStore + Clone), wake: Wake) -> Probe {
    prober(store).executing(move |context| {
        let wake = wake.clone();
        async move {
            match context.resumed() {
                None => {
                    let question = NewBreadcrumb::new("human.request.v1").tag("request:7");
                    Err(suspend(wake, json!({"asked": 7})).writing(Response::create(question)))
                }
                Some(resumed) => {
                    let told = resumed
                        .with
                        .as_ref()
                        .map(|with| with.context["told"].clone());
                    Ok(json!({"asked": resumed.state["asked"], "told": told}))
                }
            }
        }
    })
}

#[tokio::test]
async fn a_suspended_run_writes_a_request_and_resumes_with_the_response() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let selector = Selector::schema("human.response.v1").all_tags(["request:7"]);
    let wake = Wake::on(selector);
    let probe = asker(&store, wake.clone());

    let suspended = probe.sees(&question).await.unwrap();
    let row = runs(&store).await.remove(0);
    let waiting = probe.sees(&question).await.unwrap();
    let told = put(&store, "human.response.v1", json!({"told": "yes"})).await;
    let run = RunRef::new("prober", question.id, 1);
    store.resume(&run, told.id).await.unwrap();
    let done = probe.sees(&question).await.unwrap();

    let Outcome::Suspended {
        until: None,
        written: asked,
    } = suspended
    else {
        panic!("{suspended:?}")
    };
    let request = store.get(asked[0]).await.unwrap();
    assert_eq!(request.context["creator"]["id"], "prober");
    assert_eq!((row.state, row.wake), (RunState::Suspended, Some(wake)));
    assert!(matches!(waiting, Outcome::Suspended { .. }), "{waiting:?}");
    let answer = written(&done).pop().unwrap();
    let answer = store.get(answer).await.unwrap();
    assert_eq!(
        (&answer.context["asked"], &answer.context["told"]),
        (&json!(7), &json!("yes"))
    );
    assert_eq!(probe.executed(), 2);
    assert_eq!(all(&store, "human.request.v1").await.len(), 1);
    let again = store.resume(&run, told.id).await.unwrap_err();
    assert_eq!(again.code(), "wrong_state");
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_resumes_at_its_deadline() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let until = question.updated_at + 60 * SECOND;
    let probe = asker(&store, Wake::at(until));

    let suspended = probe.sees(&question).await.unwrap();
    advance(59 * SECOND).await;
    let early = probe.sees(&question).await.unwrap();
    advance(2 * SECOND).await;
    let late = probe.sees(&question).await.unwrap();

    for outcome in [suspended, early] {
        assert!(
            matches!(&outcome, Outcome::Suspended { until: Some(found), .. } if *found == until),
            "{outcome:?}"
        );
    }
    assert!(is_responded(&late), "{late:?}");
    assert_eq!(probe.context(1).resumed().unwrap().with, None);
}

#[tokio::test]
async fn a_suspension_that_cannot_be_written_does_not_suspend() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let probe = asker(&store, Wake::on(Selector::schema("x.v1")))
        .profile(Profile::default().responds_with(["answer.v1"]));

    let outcome = probe.sees(&question).await.unwrap();

    assert_failed(&store, &outcome, FailureClass::Permanent).await;
    assert_eq!(runs(&store).await[0].state, RunState::Failed);
}

#[tokio::test]
async fn suspending_without_a_ledger_fails_and_the_error_names_the_ledger() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let probe = asker(
        &Shim::without_ledger(&store),
        Wake::on(Selector::schema("x.v1")),
    );

    let outcome = probe.sees(&question).await.unwrap();

    assert_failed(&store, &outcome, FailureClass::Permanent).await;
    assert!(
        probe.failures()[0].contains("run ledger"),
        "{:?}",
        probe.failures()
    );
    assert!(all(&store, "human.request.v1").await.is_empty());
}

#[tokio::test]
async fn the_idempotency_key_is_that_of_the_run_and_its_epoch() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let fails = || Profile::default().attempts(2);
    let probe = prober(&store).profile(fails()).failing(|| "reset".into());
    let key = |probe: &Probe, call| probe.context(call).idempotency_key().to_owned();

    probe.sees(&question).await.unwrap_err();
    probe.sees(&question).await.unwrap();
    store
        .redo(&RunRef::new("prober", question.id, 1))
        .await
        .unwrap();
    probe.sees(&question).await.unwrap_err();
    let second = store.update(question.id, 1, Patch::new()).await.unwrap();
    probe.sees(&second).await.unwrap_err();
    let other = asked(&store).await;
    probe.sees(&other).await.unwrap_err();
    let namesake = Probe::on("question.v1", "other", &store);
    namesake.sees(&other).await.unwrap();

    assert_eq!(key(&probe, 0), key(&probe, 1));
    assert_eq!(key(&probe, 0).len(), 64);
    let mut keys: Vec<String> = (1..5).map(|call| key(&probe, call)).collect();
    keys.push(key(&namesake, 0));
    keys.push(RunRef::new("prober", question.id, 1).key("another tenant", 0));
    assert_eq!(
        key(&probe, 0),
        RunRef::new("prober", question.id, 1).key("default", 0)
    );
    keys.sort();
    keys.dedup();
    assert_eq!(keys.len(), 6);
    let attempts: Vec<u32> = (0..3).map(|call| probe.context(call).attempt()).collect();
    assert_eq!(attempts, [1, 2, 1]);
}

#[tokio::test]
async fn a_redone_run_answers_once_more() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    prober(&store)
        .failing(|| permanent("no"))
        .sees(&question)
        .await
        .unwrap();

    store
        .redo(&RunRef::new("prober", question.id, 1))
        .await
        .unwrap();
    let healthy = prober(&store);
    let outcome = healthy.sees(&question).await.unwrap();
    let again = healthy.sees(&question).await.unwrap();

    assert!(is_responded(&outcome), "{outcome:?}");
    let expected = Outcome::AlreadyDone {
        state: RunState::Done,
        written: written(&outcome),
    };
    assert_eq!(again, expected);
}

#[tokio::test]
async fn an_outage_at_the_commit_postpones_the_run() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let down = Arc::new(AtomicBool::new(true));
    let flaky = Shim::new(&store, {
        let down = Arc::clone(&down);
        move |call| match call {
            Call::Commit(_) if down.load(Ordering::SeqCst) => Do::Fail(unavailable()),
            _ => Do::Pass,
        }
    });
    let probe = prober(&flaky);

    let error = probe.sees(&question).await.unwrap_err();
    down.store(false, Ordering::SeqCst);
    let outcome = probe.sees(&question).await.unwrap();

    assert!(
        matches!(error, ExecutorError::Postponed { .. }),
        "{error:?}"
    );
    assert!(is_responded(&outcome), "{outcome:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_whose_release_fails_is_claimed_after_its_lease() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let broken = Shim::new(&store, |call| match call {
        Call::Retry => Do::Fail(unavailable()),
        _ => Do::Pass,
    });

    let error = prober(&broken)
        .failing(|| "reset".into())
        .sees(&question)
        .await
        .unwrap_err();
    advance(LEASE).await;
    let outcome = prober(&store).sees(&question).await.unwrap();

    assert!(matches!(error, ExecutorError::Execute(_)), "{error:?}");
    assert!(is_responded(&outcome), "{outcome:?}");
}

#[tokio::test]
async fn a_store_that_cannot_be_asked_is_an_error_and_nothing_runs() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let down = Shim::new(&store, |call| match call {
        Call::Claim => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let probe = prober(&down);

    let error = probe.sees(&question).await.unwrap_err();

    assert_eq!((error.code(), probe.executed()), ("unavailable", 0));
    assert_eq!(error.retry(), Retry::After(Duration::ZERO));
}

#[tokio::test]
async fn a_store_without_a_ledger_answers_once_and_leaves_retries_to_the_caller() {
    let store = MemoryStore::default();
    let questions = [
        asked(&store).await,
        asked(&store).await,
        asked(&store).await,
    ];
    let plain = Shim::without_ledger(&store);
    let answers = prober(&plain);
    let fails = prober(&plain).failing(|| "reset".into());
    let gives_up = prober(&plain)
        .failing(|| permanent("no"))
        .answering_failures(|_, _| Ok(Response::create(NewBreadcrumb::new("apology.v1"))));

    let first = answers.sees(&questions[0]).await.unwrap();
    let second = answers.sees(&questions[0]).await.unwrap();
    let errors = [
        fails.sees(&questions[1]).await.unwrap_err(),
        fails.sees(&questions[1]).await.unwrap_err(),
    ];
    let failed = gives_up.sees(&questions[2]).await.unwrap();

    assert!(is_responded(&first), "{first:?}");
    assert!(matches!(second, Outcome::AlreadyDone { .. }), "{second:?}");
    let answer = store.get(written(&first)[0]).await.unwrap();
    assert_eq!(answer.context["creator"]["hops"], 1);
    for error in errors {
        let ExecutorError::Postponed { source, .. } = error else {
            panic!("{error:?}")
        };
        assert!(matches!(*source, ExecutorError::Execute(_)), "{source:?}");
    }
    assert_eq!((answers.executed(), fails.executed()), (1, 2));
    assert_failed(&store, &failed, FailureClass::Permanent).await;
    assert_eq!(written(&failed).len(), 2);
    assert!(runs(&store).await.is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_context_contains_the_deadline_and_the_attempt() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let probe = prober(&store).profile(Profile::default().timeout(90 * SECOND));

    probe.sees(&question).await.unwrap();

    let context = probe.context(0);
    let deadline = context.deadline().unwrap();
    let left = deadline.since(question.updated_at);
    assert!(left >= 89 * SECOND && left <= 91 * SECOND, "{left:?}");
    assert_eq!(context.attempt(), 1);
}

/// An executor that overrides every method. Each result shows that the override was called.
struct Overrides {
    store: MemoryStore,
    subscriptions: Subscriptions,
    profile: Profile,
}

#[async_trait]
impl UniversalExecutor for Overrides {
    fn id(&self) -> &str {
        "overrides"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, _: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(json!("my execute"))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(Response::create(NewBreadcrumb::new(output.to_string())))
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn respond_failure(
        &self,
        _: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        Ok(Response::create(NewBreadcrumb::new(
            failure.message.clone(),
        )))
    }

    async fn process_event(&self, _: &Event) -> Result<Outcome, ExecutorError> {
        Ok(Outcome::Gone)
    }

    async fn assemble_context(
        &self,
        trigger: &Arc<Breadcrumb>,
    ) -> Result<ExecutionContext, ExecutorError> {
        Ok(ExecutionContext::for_trigger(Arc::clone(trigger)).with("mine", json!({})))
    }

    async fn fetch_source(
        &self,
        _: &Subscription,
        trigger: &Breadcrumb,
    ) -> Result<Fetched, StoreError> {
        let found = || Arc::new(trigger.clone());
        Ok(vec![found(), found(), found()].into())
    }

    fn search_query(&self, _: &Breadcrumb) -> String {
        "my query".to_owned()
    }
}

async fn assert_forwards(executor: impl UniversalExecutor, trigger: &Arc<Breadcrumb>) {
    let context = ExecutionContext::for_trigger(Arc::clone(trigger));
    let context_mine = executor.assemble_context(trigger).await.unwrap();
    let subscription = Subscription::context("x.v1");
    let fetched = executor.fetch_source(&subscription, trigger).await.unwrap();
    let said = executor.execute(trigger, &context).await.unwrap();
    let response = executor.respond(trigger, json!(1)).await.unwrap();

    assert_eq!(executor.id(), "overrides");
    assert_eq!(executor.subscriptions().as_slice().len(), 1);
    assert_eq!(executor.store().tenant(), "mine");
    assert_eq!(executor.profile().kind, "mine");
    assert_eq!(said, "my execute");
    assert_eq!(response.writes().len(), 1);
    let outcome = executor
        .process_event(&Event::created(trigger))
        .await
        .unwrap();
    assert_eq!(outcome, Outcome::Gone);
    assert!(context_mine.get("mine").is_some());
    assert_eq!(fetched.items.len(), 3);
    assert_eq!(executor.search_query(trigger), "my query");
}

#[tokio::test]
async fn pointers_forward_every_method_including_methods_with_defaults() {
    let store = MemoryStore::default().in_tenant("mine");
    let trigger = asked(&store).await;
    let make = || Overrides {
        store: store.clone(),
        subscriptions: Subscriptions::new([Subscription::trigger("question.v1")]).unwrap(),
        profile: Profile::new("mine"),
    };

    assert_forwards(Arc::new(make()), &trigger).await;
    assert_forwards(Box::new(make()), &trigger).await;
    assert_forwards(Arc::new(make()) as Arc<dyn UniversalExecutor>, &trigger).await;
    assert_forwards(Box::new(make()) as Box<dyn UniversalExecutor>, &trigger).await;
    let twice: Arc<Box<dyn UniversalExecutor>> = Arc::new(Box::new(make()));
    assert_forwards(twice, &trigger).await;
}

#[tokio::test]
async fn a_failure_answer_is_forwarded_too() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let probe = prober(&store)
        .failing(|| permanent("no"))
        .answering_failures(|_, _| Ok(Response::create(NewBreadcrumb::new("apology.v1"))));
    let boxed: Box<dyn UniversalExecutor> = Box::new(Arc::new(probe));

    boxed.process_event(&event_of(&question)).await.unwrap();

    assert_eq!(all(&store, "apology.v1").await.len(), 1);
}

/// A wrapper that forwards every method except `process_event`.
struct Wrapped<E>(E);

#[async_trait]
impl<E: UniversalExecutor> UniversalExecutor for Wrapped<E> {
    fn id(&self) -> &str {
        self.0.id()
    }

    fn subscriptions(&self) -> &Subscriptions {
        self.0.subscriptions()
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        self.0.store()
    }

    fn profile(&self) -> &Profile {
        self.0.profile()
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

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        self.0.respond_failure(trigger, failure).await
    }
}

async fn assert_apologises(make: impl Fn(Probe) -> Arc<dyn UniversalExecutor>) {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let probe = prober(&store)
        .failing(|| permanent("no"))
        .answering_failures(|_, _| Ok(Response::create(NewBreadcrumb::new("apology.v1"))));

    make(probe)
        .process_event(&event_of(&question))
        .await
        .unwrap();

    assert_eq!(all(&store, "apology.v1").await.len(), 1);
}

#[tokio::test]
async fn a_pointer_inside_another_executor_forwards_the_answer_to_a_failure() {
    assert_apologises(|probe| Arc::new(Wrapped(Arc::new(probe)))).await;
    assert_apologises(|probe| Arc::new(Wrapped(Box::new(probe)))).await;
    assert_apologises(|probe| {
        let shared: Arc<dyn UniversalExecutor> = Arc::new(probe);
        Arc::new(Wrapped(shared))
    })
    .await;
}

#[tokio::test]
async fn a_policy_that_never_retries_fails_with_the_first_error() {
    let store = MemoryStore::default();
    let question = asked(&store).await;
    let probe = prober(&store)
        .profile(Profile::default().retry(RetryPolicy::never()))
        .failing(|| "reset".into());

    let outcome = probe.sees(&question).await.unwrap();

    assert_failed(&store, &outcome, FailureClass::AttemptsUsedUp).await;
    let rows = store
        .runs(&RunFilter::all().state(RunState::Failed))
        .await
        .unwrap();
    assert_eq!(rows[0].reason.as_deref(), Some("attempts_used_up"));
}
