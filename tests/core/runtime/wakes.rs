//! Suspended runs: the breadcrumbs and times that wake them once, and those that do not.

use crate::runtime::events::{Dice, Told};
use crate::runtime::{
    DAY, MINUTE, SECOND, asks_back, in_state, number, only, put_tagged, runtime, until,
    until_suspended,
};
use crate::support::{Call, Do, Probe, Shim, all, event_of, eventually, put, runs, unavailable};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::time::Instant;
use universal_executor::model::Timestamp;
use universal_executor::store::{
    Claim, Claimed, Commit, MemoryLimits, RunEnd, RunRef, RunState, Write,
};
use universal_executor::{
    Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Response,
    RunLedger, Runtime, Selector, Wake, suspend,
};

fn reply(tag: &str) -> Selector {
    Selector::schema("reply.v1").all_tags([tag])
}

/// Returns a wake condition: a reply, or five minutes after the question.
fn reply_or_later(question: &Breadcrumb) -> Wake {
    Wake::on(reply("to:me")).until(question.updated_at + 5 * MINUTE)
}

/// Returns the breadcrumb that woke the run of the only question, once the run has answered.
async fn woken_with(store: &MemoryStore) -> Value {
    until(store, "answer.v1", 1).await;
    let answer = only(store, "answer.v1").await;
    answer.context.get("with").unwrap().clone()
}

/// Returns a store and the number of searches for replies to me. After such a search, the runtime watches the suspended run.
fn watched(store: &MemoryStore) -> (Shim, Arc<AtomicUsize>) {
    let looks = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&looks);
    let watched = Shim::new(store, move |call| {
        if let Call::Search(query) = call
            && query.selector == reply("to:me")
        {
            noted.fetch_add(1, Ordering::SeqCst);
        }
        Do::Pass
    });
    (watched, looks)
}

/// Returns a function that fails `times` times.
fn failing(times: usize) -> impl Fn() -> Do + Send + Sync {
    let left = AtomicUsize::new(times);
    move || {
        let fails = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        match fails {
            Ok(_) => Do::Fail(unavailable()),
            Err(_) => Do::Pass,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_resumes_once_with_its_state_and_the_reply() {
    let store = MemoryStore::default();
    let asks = asks_back("asks", &store, |_| Wake::on(reply("to:me"))).shared();
    let rings = Probe::on("bell.v1", "rings", &store)
        .writing(Response::none())
        .shared();
    let runtime = runtime(store.events(), [&asks, &rings]);
    let asked = async {
        put(&store, "question.v1", json!({"n": 7})).await;
        until_suspended(&store, 1).await;
        let reply = put_tagged(&store, "reply.v1", "to:me").await;
        assert_eq!(woken_with(&store).await, reply.id.to_string());
        put_tagged(&store, "reply.v1", "to:me").await;
        put(&store, "bell.v1", json!({})).await;
        eventually(async || rings.executed() > 0).await;
    };

    let report = runtime.run_until(asked).await.unwrap();

    assert_eq!(only(&store, "answer.v1").await.context["state"]["n"], 7);
    assert_eq!(asks.executed(), 2);
    assert_eq!((report.suspended, report.responded), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_breadcrumb_committed_before_the_suspension_does_not_resume_the_run() {
    let store = MemoryStore::default();
    let asks = Probe::on("question.v1", "asks", &store)
        .executing({
            let store = store.clone();
            move |context| {
                let store = store.clone();
                async move {
                    if let Some(resumed) = context.resumed() {
                        return Ok(json!({"with": resumed.with.as_ref().map(|with| with.id)}));
                    }
                    put_tagged(&store, "reply.v1", "to:me").await;
                    let wake = reply_or_later(context.trigger());
                    Err(suspend(wake, json!({})).writing(Response::none()))
                }
            }
        })
        .shared();
    let runtime = runtime(store.events(), [&asks]);
    let asked = async {
        put_tagged(&store, "reply.v1", "to:me").await;
        put(&store, "question.v1", json!({})).await;
        assert_eq!(woken_with(&store).await, Value::Null);
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(asks.executed(), 2);
}

/// A run that waits for two answers receives the second one while it processes the first one.
#[tokio::test(start_paused = true)]
async fn a_reply_committed_after_the_since_time_of_a_wake_resumes_the_run() {
    let store = MemoryStore::default();
    let asks = Probe::on("question.v1", "asks", &store)
        .executing({
            let store = store.clone();
            move |context| {
                let store = store.clone();
                async move {
                    let since = context.trigger().updated_at;
                    let wait = |tag, step| {
                        let wake = Wake::on(reply(tag)).until(since + 5 * MINUTE).since(since);
                        Err(suspend(wake, json!({"step": step})).writing(Response::none()))
                    };
                    let Some(resumed) = context.resumed() else {
                        return wait("to:me", 1);
                    };
                    if resumed.state["step"] == 2 {
                        return Ok(json!({"with": resumed.with.as_ref().map(|with| &with.tags)}));
                    }
                    put_tagged(&store, "reply.v1", "to:me too").await;
                    wait("to:me too", 2)
                }
            }
        })
        .shared();
    let runtime = runtime(store.events(), [&asks]);
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        until_suspended(&store, 1).await;
        put_tagged(&store, "reply.v1", "to:me").await;
        assert_eq!(woken_with(&store).await, json!(["to:me too"]));
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(asks.executed(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_breadcrumb_committed_with_the_suspension_does_not_resume_the_run() {
    let store = MemoryStore::default();
    let asks = Probe::on("question.v1", "asks", &store)
        .executing(|context| async move {
            if let Some(resumed) = context.resumed() {
                return Ok(json!({"with": resumed.with.as_ref().map(|with| with.id)}));
            }
            let own = Response::create(NewBreadcrumb::new("reply.v1").tag("to:me"));
            let wake = reply_or_later(context.trigger());
            Err(suspend(wake, json!({})).writing(own))
        })
        .shared();
    let runtime = runtime(store.events(), [&asks]);
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        assert_eq!(woken_with(&store).await, Value::Null);
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(
        (asks.executed(), all(&store, "reply.v1").await.len()),
        (2, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_reply_before_the_runtime_knows_the_suspension_resumes_the_run() {
    let store = MemoryStore::default();
    let slow = Shim::new(&store, |call| match call {
        Call::Runs(filter) if filter.states == [RunState::Suspended] => Do::Wait(3 * SECOND),
        _ => Do::Pass,
    });
    let asks = asks_back("asks", &slow, |_| Wake::on(reply("to:me"))).shared();
    let runtime = runtime(store.events(), [&asks]);
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        until_suspended(&store, 1).await;
        let reply = put_tagged(&store, "reply.v1", "to:me").await;
        assert_eq!(woken_with(&store).await, reply.id.to_string());
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(asks.executed(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_first_of_several_early_replies_resumes_the_run() {
    let store = MemoryStore::default();
    let slow = Shim::new(&store, |call| match call {
        Call::Runs(filter) if filter.states == [RunState::Suspended] => Do::Wait(3 * SECOND),
        _ => Do::Pass,
    });
    let asks = asks_back("asks", &slow, |_| Wake::on(reply("to:me"))).shared();
    let runtime = runtime(store.events(), [&asks]);
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        until_suspended(&store, 1).await;
        let first = put_tagged(&store, "reply.v1", "to:me").await;
        put_tagged(&store, "reply.v1", "to:me").await;
        assert_eq!(woken_with(&store).await, first.id.to_string());
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(asks.executed(), 2);
}

#[tokio::test(start_paused = true)]
async fn two_runtimes_that_see_an_answer_wake_once() {
    let store = MemoryStore::default();
    let wake = |question: &Breadcrumb| {
        let n = number(question, "n");
        Wake::on(reply(&format!("to:{n}")))
    };
    let (here, there) = (
        asks_back("asks", &store, wake).shared(),
        asks_back("asks", &store.clone(), wake).shared(),
    );
    let worker = |asks| {
        Runtime::builder(store.events())
            .executor(Arc::clone(asks))
            .reconcile_every(SECOND)
            .build()
            .unwrap()
    };
    let (one, two) = (worker(&here), worker(&there));
    let asked = async {
        for n in 0..20 {
            put(&store, "question.v1", json!({ "n": n })).await;
        }
        until_suspended(&store, 20).await;
        for n in 0..20 {
            put_tagged(&store, "reply.v1", &format!("to:{n}")).await;
        }
        until(&store, "answer.v1", 20).await;
    };

    let answered = until(&store, "answer.v1", 20);
    let (first, second) = tokio::join!(one.run_until(asked), two.run_until(answered));

    assert_eq!(here.executed() + there.executed(), 40);
    assert_eq!(first.unwrap().responded + second.unwrap().responded, 20);
    assert_eq!(all(&store, "answer.v1").await.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_woken_by_a_runtime_that_did_not_suspend_it() {
    let store = MemoryStore::default();
    let is_first_gone = Arc::new(AtomicBool::new(false));
    let may_claim = Arc::clone(&is_first_gone);
    let second_store = Shim::new(&store, move |call| match call {
        Call::Claim if !may_claim.load(Ordering::SeqCst) => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let first = asks_back("asks", &store, |_| Wake::on(reply("to:me"))).shared();
    let second = asks_back("asks", &second_store, |_| Wake::on(reply("to:me"))).shared();
    let suspends = runtime(store.events(), [&first]);
    let wakes = Runtime::builder(store.events())
        .executor(Arc::clone(&second))
        .reconcile_every(MINUTE)
        .build()
        .unwrap();
    let asked = async {
        let suspended = async {
            put(&store, "question.v1", json!({})).await;
            until_suspended(&store, 1).await;
        };
        suspends.run_until(suspended).await.unwrap();
        is_first_gone.store(true, Ordering::SeqCst);
        let reply = put_tagged(&store, "reply.v1", "to:me").await;
        assert_eq!(woken_with(&store).await, reply.id.to_string());
    };

    wakes.run_until(asked).await.unwrap();

    assert_eq!((first.executed(), second.executed()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_starting_runtime_resumes_runs_answered_during_a_downtime() {
    let store = MemoryStore::default();
    let asks = asks_back("asks", &store, |_| Wake::on(reply("to:me"))).shared();
    let suspended = async {
        put(&store, "question.v1", json!({})).await;
        until_suspended(&store, 1).await;
    };
    runtime(store.events(), [&asks])
        .run_until(suspended)
        .await
        .unwrap();
    let reply = put_tagged(&store, "reply.v1", "to:me").await;

    let next = runtime(store.events(), [&asks]);
    let answered = async { assert_eq!(woken_with(&store).await, reply.id.to_string()) };
    next.run_until(answered).await.unwrap();

    assert_eq!(asks.executed(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_without_a_reply_resumes_at_its_deadline() {
    let store = MemoryStore::default();
    let asks = asks_back("asks", &store, reply_or_later).shared();
    let runtime = runtime(store.events(), [&asks]);
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        until_suspended(&store, 1).await;
        put_tagged(&store, "reply.v1", "to:them").await;
        assert_eq!(woken_with(&store).await, Value::Null);
    };

    let report = runtime.run_until(asked).await.unwrap();

    assert_eq!((report.suspended, report.responded), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_forged_event_does_not_wake() {
    let store = MemoryStore::default();
    let told = Told::complete();
    let (watched, looks) = watched(&store);
    let asks = asks_back("asks", &watched, reply_or_later).shared();
    let runtime = runtime(told.clone(), [&asks]);
    let asked = async {
        let before = put_tagged(&store, "reply.v1", "to:me").await;
        let question = put(&store, "question.v1", json!({})).await;
        told.say(event_of(&question));
        eventually(async || looks.load(Ordering::SeqCst) > 0).await;
        let other = put_tagged(&store, "reply.v1", "to:them").await;
        let forged = Event {
            tags: vec!["to:me".to_owned()],
            updated_at: other.updated_at + MINUTE,
            ..event_of(&other)
        };
        for breadcrumb_id in [before.id, other.id, universal_executor::BreadcrumbId::NIL] {
            told.say(Event {
                breadcrumb_id,
                ..forged.clone()
            });
        }
        assert_eq!(woken_with(&store).await, Value::Null);
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(asks.executed(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_event_with_the_wrong_time_wakes() {
    let store = MemoryStore::default();
    let told = Told::complete();
    let (watched, looks) = watched(&store);
    let asks = asks_back("asks", &watched, reply_or_later).shared();
    let runtime = runtime(told.clone(), [&asks]);
    let asked = async {
        let question = put(&store, "question.v1", json!({})).await;
        told.say(event_of(&question));
        eventually(async || looks.load(Ordering::SeqCst) > 0).await;
        let reply = put_tagged(&store, "reply.v1", "to:me").await;
        told.say(Event {
            updated_at: Timestamp::UNIX_EPOCH,
            ..event_of(&reply)
        });
        assert_eq!(woken_with(&store).await, reply.id.to_string());
    };

    runtime.run_until(asked).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn any_of_several_selectors_wakes() {
    for schema in ["yes.v1", "no.v1", "later.v1"] {
        let store = MemoryStore::default();
        let any = |_: &Breadcrumb| {
            Wake::on(Selector::schema("yes.v1"))
                .or_on(Selector::schema("no.v1"))
                .or_on(Selector::schema("later.v1"))
        };
        let asks = asks_back("asks", &store, any).shared();
        let runtime = runtime(store.events(), [&asks]);
        let asked = async {
            put(&store, "question.v1", json!({})).await;
            until_suspended(&store, 1).await;
            let reply = put(&store, schema, json!({})).await;
            assert_eq!(woken_with(&store).await, reply.id.to_string());
        };

        runtime.run_until(asked).await.unwrap();

        assert_eq!(asks.executed(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn each_of_a_thousand_suspended_runs_is_woken_by_its_own_answer() {
    let store = MemoryStore::default();
    let asks = asks_back("asks", &store, |question| {
        let n = number(question, "n");
        Wake::on(reply(&format!("to:{n}")))
    })
    .shared();
    let runtime = runtime(store.events(), [&asks]);
    let mut order: Vec<usize> = (0..1_000).collect();
    Dice::seeded(7).shuffle(&mut order);
    let mut replies = vec![Value::Null; 1_000];
    let asked = async {
        for n in 0..1_000 {
            put(&store, "question.v1", json!({ "n": n })).await;
        }
        until_suspended(&store, 1_000).await;
        for n in order {
            let reply = put_tagged(&store, "reply.v1", &format!("to:{n}")).await;
            replies[n] = json!(reply.id);
        }
        until(&store, "answer.v1", 1_000).await;
    };

    let report = runtime.run_until(asked).await.unwrap();

    for answer in all(&store, "answer.v1").await {
        let n = usize::try_from(number(&answer, "n")).unwrap();
        assert_eq!(answer.context["with"], replies[n]);
    }
    assert_eq!(asks.executed(), 2_000);
    assert_eq!((report.suspended, report.responded), (1_000, 1_000));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_could_not_be_woken_is_woken_later() {
    let store = MemoryStore::default();
    let fails = failing(2);
    let flaky = Shim::new(&store, move |call| match call {
        Call::Resume => fails(),
        _ => Do::Pass,
    });
    let asks = asks_back("asks", &flaky, |_| Wake::on(reply("to:me"))).shared();
    let runtime = Runtime::builder(store.events())
        .executor(Arc::clone(&asks))
        .reconcile_every(MINUTE)
        .build()
        .unwrap();
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        until_suspended(&store, 1).await;
        let reply = put_tagged(&store, "reply.v1", "to:me").await;
        assert_eq!(woken_with(&store).await, reply.id.to_string());
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(asks.executed(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_search_for_a_reply_is_retried_later() {
    let store = MemoryStore::default();
    let fails = failing(2);
    let flaky = Shim::new(&store, move |call| match call {
        Call::Runs(filter) if filter.states == [RunState::Suspended] => Do::Wait(3 * SECOND),
        Call::Search(query) if query.selector == reply("to:me") => fails(),
        _ => Do::Pass,
    });
    let asks = asks_back("asks", &flaky, |_| Wake::on(reply("to:me"))).shared();
    let runtime = Runtime::builder(store.events())
        .executor(Arc::clone(&asks))
        .reconcile_every(MINUTE)
        .build()
        .unwrap();
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        until_suspended(&store, 1).await;
        let reply = put_tagged(&store, "reply.v1", "to:me").await;
        assert_eq!(woken_with(&store).await, reply.id.to_string());
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(asks.executed(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_while_an_answer_is_read_delays_the_wake() {
    let store = MemoryStore::default();
    let is_suspended = Arc::new(AtomicBool::new(false));
    let fails = failing(5);
    let down = Arc::clone(&is_suspended);
    let flaky = Shim::new(&store, move |call| match call {
        Call::Get(_) if down.load(Ordering::SeqCst) => fails(),
        _ => Do::Pass,
    });
    let asks = asks_back("asks", &flaky, |_| Wake::on(reply("to:me"))).shared();
    let runtime = runtime(store.events(), [&asks]);
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        until_suspended(&store, 1).await;
        is_suspended.store(true, Ordering::SeqCst);
        let reply = put_tagged(&store, "reply.v1", "to:me").await;
        assert_eq!(woken_with(&store).await, reply.id.to_string());
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(asks.executed(), 2);
}

/// Creates an executor that suspends a question until `a.v1`, then until `b.v1`, and then answers.
fn asks_twice(
    store: &(impl universal_executor::BreadcrumbStore + Clone),
    first: impl Fn(&Breadcrumb) -> Wake + Send + Sync + 'static,
) -> Probe {
    Probe::on("question.v1", "asks", store).executing(move |context| {
        let first = first(context.trigger());
        async move {
            let Some(resumed) = context.resumed() else {
                return Err(suspend(first, json!({"asked": "a"})).writing(Response::none()));
            };
            if resumed.state.text("asked") == Some("a") {
                let second = Wake::on(Selector::schema("b.v1"));
                return Err(suspend(second, json!({"asked": "b"})).writing(Response::none()));
            }
            Ok(json!({"with": resumed.with.as_ref().map(|with| with.id)}))
        }
    })
}

#[tokio::test(start_paused = true)]
async fn the_previous_wake_condition_does_not_resume_a_manually_resumed_run() {
    let store = MemoryStore::default();
    let asks = asks_twice(&store, |_| Wake::on(Selector::schema("a.v1"))).shared();
    let runtime = runtime(store.events(), [&asks]);
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        until_suspended(&store, 1).await;
        let hand = put(&store, "hand.v1", json!({})).await;
        let run = runs(&store).await.remove(0).run;
        store.resume(&run, hand.id).await.unwrap();
        eventually(async || {
            asks.executed() == 2 && in_state(&store, RunState::Suspended).await == 1
        })
        .await;
        put(&store, "a.v1", json!({})).await;
        let wanted = put(&store, "b.v1", json!({})).await;
        assert_eq!(woken_with(&store).await, wanted.id.to_string());
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(asks.executed(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_stale_wake_condition_of_another_worker_does_not_resume_a_run() {
    let store = MemoryStore::default();
    let until_soon = |question: &Breadcrumb| {
        Wake::on(Selector::schema("a.v1")).until(question.updated_at + 10 * SECOND)
    };
    let works = asks_twice(&store, until_soon).shared();
    let never_works = Shim::new(&store, |call| match call {
        Call::Claim => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let watches = asks_twice(&never_works, until_soon).shared();
    // The first worker receives no events of replies, and the second worker receives events of only one suspension.
    let told = Told::complete();
    let (here, there) = (
        runtime(told.clone(), [&works]),
        runtime(store.events(), [&watches]),
    );
    let suspended = async {
        let question = put(&store, "question.v1", json!({})).await;
        told.say(event_of(&question));
        until_suspended(&store, 1).await;
    };
    here.run_until(suspended).await.unwrap();
    let asked = async {
        eventually(async || {
            works.executed() == 2 && in_state(&store, RunState::Suspended).await == 1
        })
        .await;
        put(&store, "a.v1", json!({})).await;
        let wanted = put(&store, "b.v1", json!({})).await;
        assert_eq!(woken_with(&store).await, wanted.id.to_string());
    };
    let woken = until(&store, "answer.v1", 1);

    let (first, second) = tokio::join!(here.run_until(asked), there.run_until(woken));

    first.unwrap();
    second.unwrap();
    assert_eq!((works.executed(), watches.executed()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_listing_of_suspended_runs_misses_no_run_suspended_meanwhile() {
    let store = MemoryStore::default();
    let slow = Shim::new(&store, |call| match call {
        // The listing of all suspended runs starts before the question is asked.
        Call::RunsPage(_) => Do::Wait(3 * SECOND),
        _ => Do::Pass,
    });
    let asks = asks_back("asks", &slow, |_| Wake::on(reply("to:me"))).shared();
    let runtime = runtime(store.events(), [&asks]);
    let began = Instant::now();
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        until_suspended(&store, 1).await;
        eventually(async || began.elapsed() > 4 * SECOND).await;
        let reply = put_tagged(&store, "reply.v1", "to:me").await;
        assert_eq!(woken_with(&store).await, reply.id.to_string());
    };

    runtime.run_until(asked).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_is_woken_though_the_event_went_to_another_worker() {
    let store = MemoryStore::default();
    let source = Told::shared();
    let asks = asks_back("asks", &store, |_| Wake::on(reply("to:me"))).shared();
    let runtime = runtime(source.clone(), [&asks]);
    let mut took = SECOND;
    let scenario = async {
        let question = put(&store, "question.v1", json!({})).await;
        source.say(event_of(&question));
        until_suspended(&store, 1).await;
        tokio::time::sleep(MINUTE).await;
        let began = Instant::now();
        put_tagged(&store, "reply.v1", "to:me").await;
        until(&store, "answer.v1", 1).await;
        took = began.elapsed();
    };

    runtime.run_until(scenario).await.unwrap();

    assert!(took < 10 * SECOND, "{took:?}");
}

/// Answers free a full ledger. The events of these answers come after triggers that have no room in the ledger.
#[tokio::test(start_paused = true)]
async fn suspended_runs_that_fill_the_ledger_get_their_answers() {
    const ROOM: usize = 4;
    const QUESTIONS: u64 = 40;
    let mut limits = MemoryLimits::default();
    limits.open_runs = ROOM;
    let store = MemoryStore::with_limits(limits);
    let wake = |question: &Breadcrumb| {
        let selector = reply(&format!("to:{}", number(question, "n")));
        Wake::on(selector).since(question.updated_at)
    };
    let asks = asks_back("asks", &store, wake).shared();
    let runtime = Runtime::builder(store.events())
        .executor(Arc::clone(&asks))
        .max_deliveries(8)
        .reconcile_every(DAY)
        .build()
        .unwrap();
    let asked = async {
        for n in 0..QUESTIONS {
            put(&store, "question.v1", json!({ "n": n })).await;
        }
        until_suspended(&store, ROOM).await;
        for n in (0..QUESTIONS).rev() {
            put_tagged(&store, "reply.v1", &format!("to:{n}")).await;
        }
        until(&store, "answer.v1", 40).await;
    };

    let report = runtime.run_until(asked).await.unwrap();

    assert_eq!((report.suspended, report.responded), (QUESTIONS, QUESTIONS));
}

/// The number of runs exceeds the number that a worker stores with selectors, and the number of single searches for answers.
#[tokio::test(start_paused = true)]
async fn each_of_very_many_suspended_runs_gets_its_answer() {
    const QUESTIONS: u64 = 1_300;
    let store = MemoryStore::default();
    let wake = |question: &Breadcrumb| {
        let n = number(question, "n");
        Wake::on(match n % 2 {
            0 => reply(&format!("to:{n}")),
            _ => Selector::schema("reply.v1").matching("$.order.id", "eq", n.to_string()),
        })
    };
    let asks = asks_back("asks", &store, wake).shared();
    let suspended = async {
        for n in 0..QUESTIONS {
            put(&store, "question.v1", json!({ "n": n })).await;
        }
        until_suspended(&store, 1_300).await;
    };
    let first = runtime(store.events(), [&asks]);
    first.run_until(suspended).await.unwrap();
    let answer = async |n: u64| {
        let new = NewBreadcrumb::new("reply.v1").tag(format!("to:{n}"));
        let new = new.context(json!({"order": {"id": n.to_string()}}));
        store.create(new).await.unwrap();
    };
    for n in (0..QUESTIONS).filter(|n| n % 3 == 0) {
        answer(n).await;
    }

    let next = runtime(store.events(), [&asks]);
    let answered = async {
        for n in (0..QUESTIONS).rev().filter(|n| n % 3 > 0) {
            answer(n).await;
        }
        until(&store, "answer.v1", 1_300).await;
    };
    let report = next.run_until(answered).await.unwrap();

    assert_eq!(report.responded, QUESTIONS);
}

/// Suspends the run of a question until its reply, like another worker.
async fn suspend_elsewhere(store: &MemoryStore, question: &Breadcrumb) {
    let run = RunRef::new("asks", question.id, 1);
    let Claim::Granted(Claimed { lease, .. }) = store.claim(&run, None).await.unwrap() else {
        panic!("the claim must be granted")
    };
    let wake = Wake::on(reply(&format!("to:{}", number(question, "n"))));
    let (writes, state) = (Vec::new(), json!({}).into());
    let end = Some((lease, RunEnd::Suspended { wake, state }));
    store.commit(Commit { writes, end }).await.unwrap();
}

/// The number of runs exceeds the number that a worker can store with all their selectors.
#[tokio::test(start_paused = true)]
async fn answers_wake_any_of_101_000_suspended_runs() {
    let store = MemoryStore::default();
    for first in (0..101_000).step_by(1_000) {
        let questions = (first..first + 1_000).map(|n| {
            let question = NewBreadcrumb::new("question.v1");
            Write::Create(question.context(json!({ "n": n })))
        });
        let questions: Vec<Write> = questions.collect();
        for question in store.commit(questions.into()).await.unwrap().written {
            suspend_elsewhere(&store, &question).await;
        }
    }
    let asks = asks_back("asks", &store, |_| Wake::on(reply("none"))).shared();
    let worker = runtime(store.events(), [&asks]);
    let answered = async {
        for n in (0..101_000).step_by(50) {
            put_tagged(&store, "reply.v1", &format!("to:{n}")).await;
        }
        until(&store, "answer.v1", 2_020).await;
    };

    let report = worker.run_until(answered).await.unwrap();

    assert_eq!(report.responded, 2_020);
}
