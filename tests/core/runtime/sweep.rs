//! Sweeps of the store: each breadcrumb whose event was lost is found once and in order.

use crate::runtime::events::{Dice, Told, Warped};
use crate::runtime::{
    DAY, MINUTE, SECOND, asks_back, bystander, count, number, only, put_tagged, runtime, until,
    until_suspended,
};
use crate::support::{Call, Do, Probe, Shim, all, event_of, eventually, put, runs, unavailable};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use universal_executor::executor::OrderingKey;
use universal_executor::source::{Deliveries, SourceError, StartAt};
use universal_executor::store::{MemoryLimits, Query, StoreError};
use universal_executor::{
    BreadcrumbStore, Delivery, Event, EventSource, MemoryStore, NewBreadcrumb, Profile, Response,
    Runtime, Selector, Wake, async_trait,
};

/// Number of breadcrumbs that a sweep reads per page.
const PAGE: usize = 200;

/// Creates a runtime that sweeps the store every ten seconds.
fn sweeping(source: impl EventSource, executor: &Arc<Probe>) -> Runtime {
    Runtime::builder(source)
        .executor(Arc::clone(executor))
        .reconcile_every(10 * SECOND)
        .build()
        .unwrap()
}

fn answers(store: &(impl BreadcrumbStore + Clone)) -> Arc<Probe> {
    Probe::on("question.v1", "answers", store).shared()
}

/// Creates a store that retains so few events that a slow reader misses some.
fn forgetful(events: usize) -> MemoryStore {
    let mut limits = MemoryLimits::default();
    limits.events = events;
    MemoryStore::with_limits(limits)
}

async fn ask(store: &MemoryStore, questions: std::ops::Range<usize>) {
    for n in questions {
        put(store, "question.v1", json!({ "n": n })).await;
    }
}

/// Returns `true` if a query belongs to a sweep.
fn is_look(query: &Query) -> bool {
    query.selector == Selector::any() && query.limit == PAGE
}

/// Returns a store and the number of its queries for new breadcrumbs.
fn watched(store: &MemoryStore) -> (Shim, Arc<AtomicUsize>) {
    let looks = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&looks);
    let watched = Shim::new(store, move |call| {
        if let Call::Search(query) = call
            && query.selector == Selector::any()
        {
            noted.fetch_add(1, Ordering::SeqCst);
        }
        Do::Pass
    });
    (watched, looks)
}

/// Waits until the store has been swept `times` more times.
async fn until_looked_at(looks: &AtomicUsize, times: usize) {
    let wanted = looks.load(Ordering::SeqCst) + times;
    eventually(async || looks.load(Ordering::SeqCst) >= wanted).await;
}

/// Returns the number of executions of each question, by its number.
fn executions(probe: &Probe) -> BTreeMap<u64, usize> {
    let mut times = BTreeMap::new();
    for call in 0..probe.executed() {
        let n = number(probe.context(call).trigger(), "n");
        *times.entry(n).or_default() += 1;
    }
    times
}

#[tokio::test(start_paused = true)]
async fn every_trigger_is_executed_even_without_events() {
    let store = MemoryStore::default();
    let answers = answers(&store);
    let runtime = sweeping(Warped::silent(&store), &answers);
    let asked = async {
        ask(&store, 0..50).await;
        until(&store, "answer.v1", 50).await;
        ask(&store, 50..100).await;
        until(&store, "answer.v1", 100).await;
    };

    let report = runtime.run_until(asked).await.unwrap();

    assert_eq!((report.events, report.found_by_sweep), (0, 100));
    assert_eq!((answers.executed(), executions(&answers).len()), (100, 100));
}

#[tokio::test(start_paused = true)]
async fn a_chain_of_executors_ends_though_half_of_the_events_are_lost() {
    let store = MemoryStore::default();
    let dice = Dice::seeded(1);
    let lossy = Warped::new(&store, move |delivery| match dice.roll(2) {
        0 => Vec::new(),
        _ => vec![delivery],
    });
    let answers = answers(&store);
    let thanks = Probe::on("answer.v1", "thanks", &store)
        .writing(Response::create(NewBreadcrumb::new("thanks.v1")))
        .shared();
    let runtime = Runtime::builder(lossy)
        .executors([Arc::clone(&answers) as _, Arc::clone(&thanks) as _])
        .reconcile_every(10 * SECOND)
        .build()
        .unwrap();
    let asked = async {
        ask(&store, 0..100).await;
        until(&store, "thanks.v1", 100).await;
    };

    let report = runtime.run_until(asked).await.unwrap();

    assert_eq!((answers.executed(), thanks.executed()), (100, 100));
    assert!(report.events > 50, "{report:?}");
    assert!(report.found_by_sweep > 50, "{report:?}");
}

#[tokio::test(start_paused = true)]
async fn events_out_of_order_and_five_times_each_are_answered_once() {
    let store = MemoryStore::default();
    let dice = Dice::seeded(2);
    let held = Mutex::new(Vec::new());
    let mixed = Warped::new(&store, move |delivery| {
        let mut held = held.lock().unwrap();
        held.extend(std::iter::repeat_n(delivery, 5));
        if held.len() < 50 {
            return Vec::new();
        }
        dice.shuffle(&mut held);
        std::mem::take(&mut held)
    });
    let answers = answers(&store);
    let runtime = sweeping(mixed, &answers);
    let asked = async {
        ask(&store, 0..95).await;
        until(&store, "answer.v1", 95).await;
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!((answers.executed(), executions(&answers).len()), (95, 95));
    assert_eq!(count(&store, "answer.v1").await, 95);
}

#[tokio::test(start_paused = true)]
async fn triggers_reported_as_dropped_by_a_complete_source_are_found() {
    let store = forgetful(10);
    let answers = answers(&store);
    let runtime = runtime(store.events(), [&answers]);
    let asked = async {
        ask(&store, 0..1).await;
        until(&store, "answer.v1", 1).await;
        ask(&store, 1..500).await;
        until(&store, "answer.v1", 500).await;
    };

    let report = runtime.run_until(asked).await.unwrap();

    assert!(report.missed > 400, "{report:?}");
    assert!(report.found_by_sweep >= 480, "{report:?}");
    assert_eq!((answers.executed(), executions(&answers).len()), (500, 500));
}

#[tokio::test(start_paused = true)]
async fn triggers_dropped_before_the_first_event_are_found() {
    for start in [StartAt::Now, StartAt::Beginning] {
        let store = forgetful(10);
        let answers = answers(&store);
        let runtime = Runtime::builder(store.events())
            .executor(Arc::clone(&answers))
            .start_at(start)
            .build()
            .unwrap();
        let asked = async {
            ask(&store, 0..500).await;
            until(&store, "answer.v1", 500).await;
        };

        runtime.run_until(asked).await.unwrap();

        assert_eq!((answers.executed(), executions(&answers).len()), (500, 500));
    }
}

#[tokio::test(start_paused = true)]
async fn older_triggers_are_not_found_if_the_first_events_were_dropped() {
    let store = forgetful(10);
    let answers = answers(&store);
    ask(&store, 0..100).await;
    let runtime = runtime(store.events(), [&answers]);
    let asked = async {
        ask(&store, 100..200).await;
        until(&store, "answer.v1", 100).await;
    };

    runtime.run_until(asked).await.unwrap();

    let executed: Vec<u64> = executions(&answers).into_keys().collect();
    assert_eq!(executed, (100..200).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn commits_during_a_sweep_hide_no_trigger() {
    let store = forgetful(10);
    let (page, more) = (AtomicUsize::new(0), store.clone());
    let busy = Shim::new(&store, move |call| {
        if let Call::Search(query) = call
            && is_look(query)
            && page.fetch_add(1, Ordering::SeqCst) == 2
        {
            // The sweep is on its way back from the oldest page.
            ask(&more, 250..400).now_or_never().unwrap();
        }
        Do::Pass
    });
    let answers = answers(&busy);
    let runtime = runtime(store.events(), [&answers]);
    let asked = async {
        ask(&store, 0..1).await;
        until(&store, "answer.v1", 1).await;
        ask(&store, 1..250).await;
        until(&store, "answer.v1", 400).await;
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!((answers.executed(), executions(&answers).len()), (400, 400));
}

#[tokio::test(start_paused = true)]
async fn triggers_from_a_source_outage_are_found_after_it_reconnects() {
    for told in [Told::default(), Told::complete()] {
        let store = MemoryStore::default();
        let answers = answers(&store);
        let runtime = runtime(told.clone(), [&answers]);
        let asked = async {
            let question = put(&store, "question.v1", json!({"n": 0})).await;
            told.say(event_of(&question));
            until(&store, "answer.v1", 1).await;
            told.hang_up();
            ask(&store, 1..10).await;
            until(&store, "answer.v1", 10).await;
            assert_eq!(told.subscriptions(), 2);
            let question = put(&store, "question.v1", json!({"n": 10})).await;
            told.say(event_of(&question));
            until(&store, "answer.v1", 11).await;
        };

        let report = runtime.run_until(asked).await.unwrap();

        assert_eq!((answers.executed(), executions(&answers).len()), (11, 11));
        assert_eq!((report.events, report.found_by_sweep), (2, 9));
    }
}

#[tokio::test(start_paused = true)]
async fn triggers_from_before_the_start_are_not_found() {
    let store = MemoryStore::default();
    let (watched, looks) = watched(&store);
    let answers = answers(&watched);
    ask(&store, 0..10).await;
    let runtime = sweeping(Warped::silent(&store), &answers);
    let asked = async {
        until_looked_at(&looks, 3).await;
        ask(&store, 10..11).await;
        until_looked_at(&looks, 3).await;
        until(&store, "answer.v1", 1).await;
    };

    let report = runtime.run_until(asked).await.unwrap();

    assert_eq!(executions(&answers), BTreeMap::from([(10, 1)]));
    assert_eq!((report.found_by_sweep, runs(&store).await.len()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_trigger_of_a_downtime_that_the_ledger_refuses_for_a_while_starts_no_newer_executor() {
    let inner = MemoryStore::default();
    let refusals = Arc::new(AtomicUsize::new(0));
    let left = Arc::clone(&refusals);
    let store = Shim::new(&inner, move |call| {
        let less = |left: usize| left.checked_sub(1);
        match call {
            Call::Enqueue
                if left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, less)
                    .is_ok() =>
            {
                Do::Fail(StoreError::Refused {
                    store: "a ledger",
                    source: "not now".into(),
                })
            }
            _ => Do::Pass,
        }
    });
    let older = answers(&store);
    let first = async {
        put(&inner, "question.v1", json!({"n": 0})).await;
        until(&inner, "answer.v1", 1).await;
        tokio::time::sleep(MINUTE).await;
    };
    let runtime = sweeping(Warped::silent(&inner), &older);
    runtime.run_until(first).await.unwrap();
    tokio::time::advance(MINUTE * 10).await;
    put(&inner, "question.v1", json!({"n": 1})).await;
    tokio::time::advance(MINUTE * 10).await;
    put(&inner, "other.v1", json!({})).await;
    let newer = Probe::on("question.v1", "newer", &store).shared();
    let runtime = Runtime::builder(Warped::silent(&inner))
        .executor(Arc::clone(&older))
        .executor(Arc::clone(&newer))
        .reconcile_every(10 * SECOND)
        .build()
        .unwrap();
    // The first refusal is for all runs of the delivery together, and the second one for single runs.
    refusals.store(2, Ordering::SeqCst);
    let second = async {
        until(&inner, "answer.v1", 2).await;
        tokio::time::sleep(MINUTE * 5).await;
    };

    runtime.run_until(second).await.unwrap();

    assert_eq!(refusals.load(Ordering::SeqCst), 0);
    assert_eq!((older.executed(), newer.executed()), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_start_at_the_beginning_finds_triggers_of_the_last_hour() {
    let store = MemoryStore::default();
    let answers = answers(&store);
    ask(&store, 0..1).await;
    tokio::time::advance(30 * MINUTE).await;
    ask(&store, 1..6).await;
    tokio::time::advance(40 * MINUTE).await;
    ask(&store, 6..11).await;
    let runtime = Runtime::builder(Warped::silent(&store))
        .executor(Arc::clone(&answers))
        .start_at(StartAt::Beginning)
        .reconcile_every(10 * SECOND)
        .build()
        .unwrap();

    let asked = until(&store, "answer.v1", 10);
    let report = runtime.run_until(asked).await.unwrap();

    assert_eq!(executions(&answers), (1..11).map(|n| (n, 1)).collect());
    assert_eq!((report.events, report.found_by_sweep), (0, 10));
}

#[tokio::test(start_paused = true)]
async fn a_longer_look_back_finds_correspondingly_older_triggers() {
    let store = MemoryStore::default();
    let answers = answers(&store);
    ask(&store, 0..1).await;
    tokio::time::advance(60 * MINUTE).await;
    ask(&store, 1..6).await;
    tokio::time::advance(20 * MINUTE).await;
    ask(&store, 6..11).await;
    let runtime = Runtime::builder(Warped::silent(&store))
        .executor(Arc::clone(&answers))
        .start_at(StartAt::Beginning)
        .look_back(30 * MINUTE)
        .reconcile_every(10 * SECOND)
        .build()
        .unwrap();

    let asked = until(&store, "answer.v1", 10);
    runtime.run_until(asked).await.unwrap();

    assert_eq!(executions(&answers), (1..11).map(|n| (n, 1)).collect());
}

#[tokio::test(start_paused = true)]
async fn hanging_searches_do_not_delay_the_start_of_an_executor_with_a_cursor() {
    let store = MemoryStore::default();
    let hangs = Arc::new(AtomicBool::new(false));
    let hanging = Arc::clone(&hangs);
    let shim = Shim::new(&store, move |call| match call {
        Call::Search(_) if hanging.load(Ordering::SeqCst) => Do::Hang,
        _ => Do::Pass,
    });
    let answers = answers(&shim);
    let worker = || sweeping(Warped::faithful(&store), &answers);
    let first = async {
        ask(&store, 0..1).await;
        until(&store, "answer.v1", 1).await;
    };
    worker().run_until(first).await.unwrap();
    hangs.store(true, Ordering::SeqCst);
    let second = async {
        tokio::time::sleep(SECOND).await;
        ask(&store, 1..2).await;
        until(&store, "answer.v1", 2).await;
    };

    let worker = worker();
    let run = tokio::time::timeout(10 * SECOND, worker.run_until(second)).await;

    run.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_scan_so_many_breadcrumbs_is_queried_for_fewer() {
    let store = MemoryStore::default();
    let near = Shim::new(&store, |call| match call {
        Call::Search(query) if is_look(query) => Do::Fail(StoreError::TooFar {
            store: "near",
            looked_at: 100,
        }),
        _ => Do::Pass,
    });
    let answers = answers(&near);
    let runtime = sweeping(Warped::silent(&store), &answers);
    let asked = async {
        ask(&store, 0..50).await;
        until(&store, "answer.v1", 50).await;
    };

    let report = runtime.run_until(asked).await.unwrap();

    assert_eq!((report.found_by_sweep, answers.executed()), (50, 50));
}

#[tokio::test(start_paused = true)]
async fn announced_triggers_are_not_found_again_by_a_sweep() {
    let store = MemoryStore::default();
    let (watched, looks) = watched(&store);
    let answers = answers(&watched);
    let runtime = sweeping(Warped::faithful(&store), &answers);
    let asked = async {
        ask(&store, 0..50).await;
        until(&store, "answer.v1", 50).await;
        until_looked_at(&looks, 5).await;
    };

    let report = runtime.run_until(asked).await.unwrap();

    assert_eq!((report.events, report.found_by_sweep), (100, 0));
    assert_eq!((answers.executed(), report.responded), (50, 50));
    assert_eq!(report.skipped, 0);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_runs_again_answers_nothing_twice() {
    let store = MemoryStore::default();
    let (watched, looks) = watched(&store);
    let answers = answers(&watched);
    let runtime = sweeping(Warped::silent(&store), &answers);
    let asked = async {
        ask(&store, 0..50).await;
        until(&store, "answer.v1", 50).await;
    };
    runtime.run_until(asked).await.unwrap();
    ask(&store, 50..60).await;

    let answered = async {
        until_looked_at(&looks, 3).await;
        until(&store, "answer.v1", 60).await;
    };
    runtime.run_until(answered).await.unwrap();

    assert_eq!((answers.executed(), executions(&answers).len()), (60, 60));
}

#[tokio::test(start_paused = true)]
async fn more_than_a_page_arrives_oldest_first() {
    let store = MemoryStore::default();
    let answers = Probe::on("question.v1", "answers", &store)
        .profile(Profile::new("prober").ordering(OrderingKey::path("$.key").unwrap()))
        .shared();
    let runtime = sweeping(Warped::silent(&store), &answers);
    let asked = async {
        for n in 0..2 * PAGE + 50 {
            put(&store, "question.v1", json!({"n": n, "key": n % 3})).await;
        }
        until(&store, "answer.v1", 2 * PAGE + 50).await;
    };

    runtime.run_until(asked).await.unwrap();

    let mut by_key: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for call in 0..answers.executed() {
        let question = answers.context(call);
        let field = |name| number(question.trigger(), name);
        by_key.entry(field("key")).or_default().push(field("n"));
    }
    assert_eq!(answers.executed(), 2 * PAGE + 50);
    assert_eq!(by_key.len(), 3);
    for questions in by_key.into_values() {
        assert!(questions.is_sorted(), "{questions:?}");
    }
}

/// Creates a store that fails at every second page of the first sweeps.
fn flaky(store: &MemoryStore) -> Shim {
    let pages = AtomicUsize::new(0);
    Shim::new(store, move |call| match call {
        Call::Search(query) if is_look(query) => match pages.fetch_add(1, Ordering::SeqCst) {
            1 | 3 | 5 | 7 | 9 => Do::Fail(unavailable()),
            _ => Do::Pass,
        },
        _ => Do::Pass,
    })
}

#[tokio::test(start_paused = true)]
async fn a_sweep_that_fails_on_a_silent_source_is_retried() {
    let store = MemoryStore::default();
    let answers = answers(&flaky(&store));
    let runtime = runtime(Warped::silent(&store), [&answers]);
    let asked = async {
        ask(&store, 0..500).await;
        until(&store, "answer.v1", 500).await;
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!((answers.executed(), executions(&answers).len()), (500, 500));
}

#[tokio::test(start_paused = true)]
async fn a_sweep_that_fails_after_dropped_events_is_retried() {
    let store = forgetful(10);
    let answers = answers(&flaky(&store));
    let runtime = runtime(store.events(), [&answers]);
    let asked = async {
        ask(&store, 0..500).await;
        until(&store, "answer.v1", 500).await;
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!((answers.executed(), executions(&answers).len()), (500, 500));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_unavailable_at_the_start_is_swept_once_it_is_available() {
    let store = MemoryStore::default();
    let is_down = Arc::new(AtomicUsize::new(1));
    let down = Arc::clone(&is_down);
    let asked_how_far = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&asked_how_far);
    let flaky = Shim::new(&store, move |call| match call {
        Call::Search(query) if query.selector == Selector::any() => {
            let fails = down.load(Ordering::SeqCst) == 1;
            noted.fetch_add(usize::from(!fails), Ordering::SeqCst);
            match fails {
                true => Do::Fail(unavailable()),
                false => Do::Pass,
            }
        }
        _ => Do::Pass,
    });
    let answers = answers(&flaky);
    let runtime = sweeping(Warped::silent(&store), &answers);
    let asked = async {
        is_down.store(0, Ordering::SeqCst);
        until_looked_at(&asked_how_far, 1).await;
        ask(&store, 0..10).await;
        until(&store, "answer.v1", 10).await;
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(answers.executed(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_reply_without_an_event_answers_a_wait() {
    for oldest_first in [true, false] {
        let store = MemoryStore::default();
        let listed = Shim::new(&store, |_| Do::Pass);
        let listed = listed.able_to(store.capabilities().oldest_first(oldest_first));
        let runtime = sweeping(Warped::silent(&store), &bystander(&listed));
        let asked = async {
            let wait = runtime.wait_for(Selector::schema("reply.v1"), MINUTE);
            let reply = put(&store, "reply.v1", json!({})).await;

            assert_eq!(wait.await.unwrap().id, reply.id);
        };

        let report = runtime.run_until(asked).await.unwrap();

        assert_eq!(report.found_by_sweep, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reply_dropped_by_a_complete_source_answers_a_wait() {
    let store = forgetful(10);
    let runtime = runtime(store.events(), [&bystander(&store)]);
    let asked = async {
        let wait = runtime.wait_for(Selector::schema("reply.v1"), MINUTE);
        let reply = put(&store, "reply.v1", json!({})).await;
        ask(&store, 0..100).await;

        assert_eq!(wait.await.unwrap().id, reply.id);
    };

    runtime.run_until(asked).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_sweep_resumes_a_suspended_run_whose_reply_has_no_event() {
    let store = MemoryStore::default();
    let wanted = || Selector::schema("reply.v1").all_tags(["to:me"]);
    let looked_for = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&looked_for);
    let watched = Shim::new(&store, move |call| {
        if let Call::Search(query) = call
            && query.selector == wanted()
        {
            noted.fetch_add(1, Ordering::SeqCst);
        }
        Do::Pass
    });
    let asks = asks_back("asks", &watched, move |_| Wake::on(wanted())).shared();
    let runtime = sweeping(Warped::silent(&store), &asks);
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        until_suspended(&store, 1).await;
        // The search for earlier replies finds nothing, so only a sweep finds this reply.
        eventually(async || looked_for.load(Ordering::SeqCst) > 0).await;
        let reply = put_tagged(&store, "reply.v1", "to:me").await;
        until(&store, "answer.v1", 1).await;
        let answer = only(&store, "answer.v1").await;
        assert_eq!(answer.context["with"], reply.id.to_string());
    };

    let report = runtime.run_until(asked).await.unwrap();

    assert_eq!((asks.executed(), report.found_by_sweep), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn an_event_with_wrong_fields_hides_no_trigger() {
    let wrong: [fn(&Event) -> Event; 3] = [
        |event| Event {
            tags: Vec::new(),
            ..event.clone()
        },
        |event| Event {
            schema_name: Some("other.v1".to_owned()),
            ..event.clone()
        },
        |event| Event {
            version: 1_000,
            schema_name: None,
            ..event.clone()
        },
    ];
    for tell in wrong {
        let store = MemoryStore::default();
        let trigger = universal_executor::Subscription::trigger("question.v1")
            .all_tags(["to:me"])
            .matching("$.n", "eq", 7);
        let answers = Probe::new("answers", &store, [trigger]).shared();
        let told = Told::default();
        let runtime = sweeping(told.clone(), &answers);
        let asked = async {
            let question = NewBreadcrumb::new("question.v1")
                .tag("to:me")
                .context(json!({"n": 7}));
            let question = universal_executor::BreadcrumbStoreExt::create(&store, question);
            told.say(tell(&event_of(&question.await.unwrap())));
            until(&store, "answer.v1", 1).await;
        };

        runtime.run_until(asked).await.unwrap();

        assert_eq!(answers.executed(), 1);
        assert_eq!(all(&store, "answer.v1").await.len(), 1);
    }
}

/// Kills a worker after it has executed this number of further triggers.
async fn killed_after(runtime: &Runtime, probe: &Probe, executions: usize) {
    let wanted = probe.executed() + executions;
    tokio::select! {
        ended = runtime.run_until(std::future::pending()) => panic!("{ended:?}"),
        () = eventually(async || probe.executed() >= wanted) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_worker_killed_while_it_sweeps_dropped_events_loses_nothing() {
    let store = forgetful(10);
    let slow = |context: universal_executor::ExecutionContext| async move {
        tokio::time::sleep(SECOND).await;
        let n = context.trigger().context.get("n").cloned();
        Ok(json!({ "n": n }))
    };
    let answers = Probe::on("question.v1", "answers", &store)
        .executing(slow)
        .shared();
    let worker = || runtime(store.events(), [&answers]);
    let first = async {
        ask(&store, 0..1).await;
        until(&store, "answer.v1", 1).await;
    };
    worker().run_until(first).await.unwrap();
    ask(&store, 1..1_000).await;
    for _ in 0..5 {
        killed_after(&worker(), &answers, 5).await;
    }
    assert!(count(&store, "answer.v1").await < 500);

    let rest = until(&store, "answer.v1", 1_000);
    worker().run_until(rest).await.unwrap();

    assert_eq!(executions(&answers).len(), 1_000);
    assert_eq!(count(&store, "answer.v1").await, 1_000);
}

#[tokio::test(start_paused = true)]
async fn triggers_from_a_downtime_are_executed_in_order() {
    for complete in [true, false] {
        let store = MemoryStore::default();
        let answers = answers(&store);
        let source = || -> Box<dyn EventSource> {
            match complete {
                true => Box::new(store.events()),
                false => Box::new(Warped::silent(&store)),
            }
        };
        let worker = || {
            Runtime::builder(source())
                .executor(Arc::clone(&answers))
                .max_inflight(1)
                .build()
                .unwrap()
        };
        let first = async {
            ask(&store, 0..1).await;
            until(&store, "answer.v1", 1).await;
        };
        worker().run_until(first).await.unwrap();
        for n in 1..301 {
            ask(&store, n..n + 1).await;
            tokio::time::advance(DAY / 40).await;
        }

        let rest = until(&store, "answer.v1", 301);
        worker().run_until(rest).await.unwrap();

        let order =
            (0..answers.executed()).map(|call| number(answers.context(call).trigger(), "n"));
        assert_eq!(
            order.collect::<Vec<_>>(),
            (0..301).collect::<Vec<_>>(),
            "{complete}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_position_is_not_saved_before_the_runs_are_in_the_ledger() {
    let store = MemoryStore::default();
    let is_broken = Arc::new(AtomicBool::new(false));
    let broken = Arc::clone(&is_broken);
    let shim = Shim::new(&store, move |call| match call {
        Call::Enqueue if broken.load(Ordering::SeqCst) => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let answers = answers(&shim);
    let first = async {
        ask(&store, 0..1).await;
        until(&store, "answer.v1", 1).await;
    };
    sweeping(Warped::silent(&store), &answers)
        .run_until(first)
        .await
        .unwrap();
    is_broken.store(true, Ordering::SeqCst);
    ask(&store, 1..50).await;
    // This worker finds all triggers but cannot enqueue them before it is killed. In the meantime, it reads newer breadcrumbs.
    let killed = sweeping(Warped::silent(&store), &answers);
    let life = async {
        for _ in 0..10 {
            tokio::time::sleep(MINUTE).await;
            put(&store, "note.v1", json!({})).await;
        }
    };
    tokio::select! {
        ended = killed.run_until(std::future::pending()) => panic!("{ended:?}"),
        () = life => {}
    }
    tokio::time::advance(DAY).await;
    is_broken.store(false, Ordering::SeqCst);

    let rest = until(&store, "answer.v1", 50);
    sweeping(Warped::silent(&store), &answers)
        .run_until(rest)
        .await
        .unwrap();

    assert_eq!((answers.executed(), executions(&answers).len()), (50, 50));
}

/// A source without positions that delivers no event twice.
struct Forgetful(MemoryStore);

#[async_trait]
impl EventSource for Forgetful {
    async fn subscribe(&self, _: StartAt) -> Result<Deliveries, SourceError> {
        let events = self.0.events().subscribe(StartAt::Now).await?;
        let bare = events.map(|delivery| delivery.map(|delivery| Delivery::new(delivery.event)));
        Ok(Deliveries::new(bare))
    }
}

#[tokio::test(start_paused = true)]
async fn an_event_that_was_not_enqueued_before_a_runtime_stopped_is_found_by_its_next_run() {
    let store = MemoryStore::default();
    let is_broken = Arc::new(AtomicBool::new(false));
    let broken = Arc::clone(&is_broken);
    let shim = Shim::new(&store, move |call| match call {
        Call::Enqueue if broken.load(Ordering::SeqCst) => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let answers = answers(&shim);
    let runtime = sweeping(Forgetful(store.clone()), &answers);
    let first = async {
        ask(&store, 0..1).await;
        until(&store, "answer.v1", 1).await;
        is_broken.store(true, Ordering::SeqCst);
        ask(&store, 1..4).await;
        tokio::time::sleep(SECOND).await;
    };
    runtime.run_until(first).await.unwrap();
    is_broken.store(false, Ordering::SeqCst);

    let rest = until(&store, "answer.v1", 4);
    runtime.run_until(rest).await.unwrap();

    assert_eq!(executions(&answers).len(), 4);
}
