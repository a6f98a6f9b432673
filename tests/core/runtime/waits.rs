//! `wait_for`: the first matching breadcrumb since the call.

use crate::runtime::events::Told;
use crate::runtime::{MINUTE, SECOND, bystander, count, only, put_tagged, runtime, until};
use crate::support::{Call, Do, Probe, Shim, event_of, eventually, put, unavailable};
use futures::future::join_all;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;
use universal_executor::executor::ContextError;
use universal_executor::runtime::WaitError;
use universal_executor::tool::{ToolExecutor, json_tool};
use universal_executor::{
    BreadcrumbStoreExt, Event, ExecutionContext, MemoryStore, NewBreadcrumb, Profile, Response,
    Runtime, Selector,
};

/// Maximum number of open waits.
const MOST: usize = 10_000;

fn answer_to(n: usize) -> Selector {
    Selector::schema(ToolExecutor::RESPONSE).all_tags([format!("request:{n}")])
}

fn request(n: usize) -> NewBreadcrumb {
    NewBreadcrumb::new(ToolExecutor::REQUEST)
        .context(json!({"tool": "echo", "requestId": n.to_string(), "input": {"n": n}}))
}

/// Creates a tool that returns its input.
fn echo(store: &MemoryStore) -> ToolExecutor {
    let echo = json_tool("echo", "Says it again.", json!({}), |input, _| async move {
        Ok(input)
    });
    ToolExecutor::new(echo, Arc::new(store.clone())).unwrap()
}

fn with_echo(store: &MemoryStore) -> Runtime {
    Runtime::builder(store.events())
        .executor(echo(store))
        .build()
        .unwrap()
}

/// Fails unless the maximum number of waits can be opened, and no further wait.
fn assert_all_waits_can_be_opened(runtime: &Runtime) {
    let selector = Selector::schema("never.v1");
    let opened: Vec<_> = (0..MOST)
        .map(|_| runtime.wait_for(selector.clone(), MINUTE))
        .collect();

    let one_more = runtime.wait_for(selector, MINUTE);

    let one_more = futures::FutureExt::now_or_never(one_more);
    assert!(matches!(
        one_more,
        Some(Err(WaitError::TooMany { limit: MOST }))
    ));
    for wait in opened {
        // The wait is pending, so it was not refused.
        assert!(futures::FutureExt::now_or_never(wait).is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn a_breadcrumb_announced_between_call_and_first_poll_answers_the_wait() {
    let store = MemoryStore::default();
    let reads = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&reads);
    let watched = Shim::new(&store, move |call| {
        if let Call::Get(_) = call {
            noted.fetch_add(1, Ordering::SeqCst);
        }
        Do::Pass
    });
    let runtime = runtime(store.events(), [&bystander(&watched)]);
    let asks = async {
        let wait = runtime.wait_for(Selector::schema("reply.v1"), MINUTE);
        let reply = put(&store, "reply.v1", json!({})).await;
        // An announced breadcrumb is read only if a wait exists.
        eventually(async || reads.load(Ordering::SeqCst) > 0).await;

        assert_eq!(wait.await.unwrap().id, reply.id);
    };

    runtime.run_until(asks).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn of_a_thousand_waits_each_gets_its_own_answer() {
    let store = MemoryStore::default();
    let runtime = with_echo(&store);
    let asks = async {
        let waits: Vec<_> = (0..1_000)
            .map(|n| runtime.wait_for(answer_to(n), MINUTE))
            .collect();
        for n in (0..1_000).rev() {
            store.create(request(n)).await.unwrap();
        }

        let answers = join_all(waits).await;

        for (n, answer) in answers.into_iter().enumerate() {
            let answer = answer.unwrap();
            assert!(answer.tags.contains(&format!("request:{n}")), "{answer:?}");
            assert_eq!(answer.context["output"], json!({"n": n}));
        }
    };

    runtime.run_until(asks).await.unwrap();

    assert_eq!(count(&store, ToolExecutor::RESPONSE).await, 1_000);
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_times_out_reports_it_and_frees_its_resources() {
    let store = MemoryStore::default();
    let runtime = with_echo(&store);
    let asks = async {
        let waits = (0..MOST).map(|n| runtime.wait_for(answer_to(n), SECOND));

        for ended in join_all(waits).await {
            let Err(WaitError::TimedOut { selector, after }) = ended else {
                panic!("{ended:?}");
            };
            assert!(selector.contains("request:"), "{selector}");
            assert_eq!(after, SECOND);
        }
        assert_all_waits_can_be_opened(&runtime);
    };

    runtime.run_until(asks).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_time_of_a_wait_counts_from_the_call() {
    let store = MemoryStore::default();
    let runtime = with_echo(&store);
    let asks = async {
        let first = runtime.wait_for(answer_to(1), MINUTE);
        let second = runtime.wait_for(answer_to(2), MINUTE);
        first.await.unwrap_err();

        let second = futures::FutureExt::now_or_never(second);

        assert!(matches!(second, Some(Err(WaitError::TimedOut { .. }))));
    };

    runtime.run_until(asks).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_wait_that_was_answered_or_dropped_leaves_nothing_behind() {
    let store = MemoryStore::default();
    let runtime = with_echo(&store);
    let asks = async {
        let unpolled = runtime.wait_for(answer_to(0), MINUTE);
        let polled = tokio::time::timeout(SECOND, runtime.wait_for(answer_to(0), MINUTE));
        let answered = runtime.wait_for(answer_to(1), MINUTE);
        let unread = runtime.wait_for(answer_to(1), MINUTE);
        store.create(request(1)).await.unwrap();

        polled.await.unwrap_err();
        answered.await.unwrap();
        drop((unpolled, unread));

        assert_all_waits_can_be_opened(&runtime);
    };

    runtime.run_until(asks).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_selector_that_cannot_be_evaluated_is_refused_at_once() {
    let store = MemoryStore::default();
    let runtime = with_echo(&store);
    let invalid = Selector::schema("reply.v1").matching("$.n", "resembles", 1);

    let refused = runtime.wait_for(invalid, MINUTE).await;

    assert!(matches!(refused, Err(WaitError::Invalid(_))), "{refused:?}");
    assert_all_waits_can_be_opened(&runtime);
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_a_runtime_without_executors_is_refused() {
    let runtime = runtime(MemoryStore::default().events(), []);

    let refused = runtime.wait_for(Selector::any(), MINUTE).await;

    assert!(matches!(refused, Err(WaitError::NoStore)), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_forged_event_answers_no_wait() {
    let store = MemoryStore::default();
    let told = Told::complete();
    let runtime = runtime(told.clone(), [&bystander(&store)]);
    let wanted = Selector::schema("reply.v1").all_tags(["to:me"]);
    let asks = async {
        let forged = runtime.wait_for(wanted.clone(), MINUTE);
        let other = put_tagged(&store, "reply.v1", "to:them").await;
        let tags = vec!["to:me".to_owned()];
        told.say(Event {
            tags: tags.clone(),
            ..event_of(&other)
        });
        told.say(Event {
            breadcrumb_id: universal_executor::BreadcrumbId::NIL,
            tags,
            ..event_of(&other)
        });

        assert!(matches!(forged.await, Err(WaitError::TimedOut { .. })));

        let wait = runtime.wait_for(wanted.clone(), MINUTE);
        let reply = put_tagged(&store, "reply.v1", "to:me").await;
        told.say(event_of(&reply));
        assert_eq!(wait.await.unwrap().id, reply.id);
    };

    runtime.run_until(asks).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_event_with_a_nonexistent_version_announces_the_stored_version() {
    let store = MemoryStore::default();
    let told = Told::complete();
    let runtime = runtime(told.clone(), [&bystander(&store)]);
    let asks = async {
        let wait = runtime.wait_for(Selector::schema("reply.v1"), SECOND);
        let reply = put(&store, "reply.v1", json!({})).await;
        told.say(Event {
            version: 1_000,
            ..event_of(&reply)
        });

        assert_eq!(wait.await.unwrap().version, 1);
    };

    runtime.run_until(asks).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn conditions_are_tested_on_the_breadcrumb_if_the_event_has_no_context() {
    let store = MemoryStore::default();
    let runtime = with_echo(&store);
    let asks = async {
        let wanted = Selector::schema("reply.v1").matching("$.n", "eq", 2);
        let wait = runtime.wait_for(wanted, MINUTE);
        let long = "x".repeat(Event::MAX_CONTEXT_BYTES + 1);
        put(&store, "reply.v1", json!({"n": 1, "long": long})).await;
        let reply = put(&store, "reply.v1", json!({"n": 2, "long": long})).await;

        assert_eq!(wait.await.unwrap().id, reply.id);
    };

    runtime.run_until(asks).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_for_a_while_delays_an_answer_and_does_not_lose_it() {
    let store = MemoryStore::default();
    let left = Arc::new(AtomicUsize::new(5));
    let failures = Arc::clone(&left);
    let flaky = Shim::new(&store, move |call| match call {
        Call::Get(_)
            if failures
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1))
                .is_ok() =>
        {
            Do::Fail(unavailable())
        }
        _ => Do::Pass,
    });
    let runtime = runtime(store.events(), [&bystander(&flaky)]);
    let asks = async {
        let wait = runtime.wait_for(Selector::schema("reply.v1"), MINUTE);
        let reply = put(&store, "reply.v1", json!({})).await;

        assert_eq!(wait.await.unwrap().id, reply.id);
    };

    runtime.run_until(asks).await.unwrap();

    assert_eq!(left.load(Ordering::SeqCst), 0);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_another_executor_renews_its_lease() {
    const LEASE: std::time::Duration = SECOND;
    let store = MemoryStore::default();
    let asks = Probe::on("question.v1", "asks", &store)
        .profile(Profile::new("prober").lease(LEASE))
        .executing({
            let store = store.clone();
            move |context| {
                let store = store.clone();
                async move {
                    let wait = context.wait_for(Selector::schema("reply.v1"), MINUTE);
                    put(&store, "request.v1", json!({"n": 1})).await;
                    Ok(json!({"reply": wait.await?.context["n"]}))
                }
            }
        })
        .shared();
    let replies = Probe::on("request.v1", "replies", &store)
        .executing(|context| async move {
            tokio::time::sleep(20 * LEASE).await;
            let n = context.trigger().context["n"].as_i64().unwrap();
            Ok(json!({"n": n + 1}))
        })
        .responding(|_, output| {
            Ok(Response::create(
                NewBreadcrumb::new("reply.v1").context(output),
            ))
        })
        .shared();
    // A second worker that claims each run whose lease expires.
    let other = Probe::on("question.v1", "asks", &store.clone()).shared();
    let (here, there) = (
        runtime(store.events(), [&asks, &replies]),
        runtime(store.events(), [&other]),
    );
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        until(&store, "answer.v1", 1).await;
    };

    let takes_over = async {
        eventually(async || asks.executed() > 0).await;
        there.run_until(until(&store, "answer.v1", 1)).await
    };
    let (report, _) = tokio::join!(here.run_until(asked), takes_over);

    assert_eq!(only(&store, "answer.v1").await.context["reply"], 2);
    assert_eq!(report.unwrap().responded, 2);
    assert_eq!((asks.executed(), other.executed()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_wait_in_a_run_reports_why_it_ended() {
    let store = MemoryStore::default();
    let asks = Probe::on("question.v1", "asks", &store)
        .executing(|context| async move {
            let never = Selector::schema("never.v1");
            let invalid = never.clone().matching("$.n", "resembles", 1);
            let invalid = context.wait_for(invalid, MINUTE).await.unwrap_err();
            let late = context.wait_for(never, SECOND).await.unwrap_err();
            let is_invalid = matches!(invalid, ContextError::Wait(WaitError::Invalid(_)));
            let is_late = matches!(late, ContextError::Wait(WaitError::TimedOut { .. }));
            Ok(json!({"invalid": is_invalid, "late": is_late}))
        })
        .shared();
    let runtime = runtime(store.events(), [&asks]);
    let asked = async {
        put(&store, "question.v1", json!({})).await;
        until(&store, "answer.v1", 1).await;
    };

    runtime.run_until(asked).await.unwrap();

    let answer = only(&store, "answer.v1").await;
    assert_eq!(
        (&answer.context["invalid"], &answer.context["late"]),
        (&json!(true), &json!(true))
    );
}

#[tokio::test(start_paused = true)]
async fn outside_a_runtime_a_run_cannot_wait() {
    let store = MemoryStore::default();
    let asks = Probe::on("question.v1", "asks", &store)
        .executing(|context| async move {
            let refused = context.wait_for(Selector::any(), MINUTE).await;
            let unsupported = matches!(refused, Err(ContextError::Unsupported { .. }));
            Ok(json!({"unsupported": unsupported}))
        })
        .shared();
    let question = put(&store, "question.v1", json!({})).await;

    asks.sees(&question).await.unwrap();
    let by_hand = ExecutionContext::for_trigger(question)
        .wait_for(Selector::any(), MINUTE)
        .await;

    let answer = only(&store, "answer.v1").await;
    assert_eq!(answer.context["unsupported"], true);
    assert!(
        matches!(by_hand, Err(ContextError::Unsupported { .. })),
        "{by_hand:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn waits_are_answered_though_the_events_went_to_another_worker() {
    let store = MemoryStore::default();
    let runtime = runtime(Told::shared(), [&bystander(&store)]);
    let mut latest = Duration::ZERO;
    let asks = async {
        for n in 0..12 {
            tokio::time::sleep(7 * SECOND).await;
            let wait = runtime.wait_for(Selector::schema("reply.v1"), MINUTE);
            let began = Instant::now();
            let reply = put(&store, "reply.v1", json!({ "n": n })).await;
            assert_eq!(wait.await.unwrap().id, reply.id);
            latest = latest.max(began.elapsed());
        }
    };

    runtime.run_until(asks).await.unwrap();

    assert!(latest <= 5 * SECOND, "{latest:?}");
}

#[tokio::test(start_paused = true)]
async fn a_breadcrumb_announced_before_a_wait_does_not_answer_it_through_a_search() {
    let store = MemoryStore::default();
    let source = Told::shared();
    let runtime = runtime(source.clone(), [&bystander(&store)]);
    let asks = async {
        tokio::time::sleep(6 * SECOND).await;
        let before = put(&store, "reply.v1", json!({})).await;
        source.say(event_of(&before));
        tokio::time::sleep(SECOND).await;
        let wait = runtime.wait_for(Selector::schema("reply.v1"), MINUTE);
        tokio::time::sleep(20 * SECOND).await;
        let reply = put(&store, "reply.v1", json!({})).await;
        assert_eq!(wait.await.unwrap().id, reply.id);
    };

    runtime.run_until(asks).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn nothing_is_searched_for_if_each_worker_receives_every_event() {
    let store = MemoryStore::default();
    let searches = Arc::new(AtomicUsize::new(0));
    let noted = Arc::clone(&searches);
    let watched = Shim::new(&store, move |call| {
        if let Call::Search(_) = call {
            noted.fetch_add(1, Ordering::SeqCst);
        }
        Do::Pass
    });
    let runtime = runtime(Told::complete(), [&bystander(&watched)]);
    let mut before = 0;
    let waits = async {
        tokio::time::sleep(SECOND).await;
        before = searches.load(Ordering::SeqCst);
        let wait = runtime.wait_for(Selector::schema("reply.v1"), MINUTE);
        assert!(wait.await.is_err());
    };

    runtime.run_until(waits).await.unwrap();

    assert_eq!(searches.load(Ordering::SeqCst), before);
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_answered_though_the_store_could_not_be_read_for_long_after_the_announcement() {
    let store = MemoryStore::default();
    let out = Arc::new(AtomicBool::new(false));
    let is_out = Arc::clone(&out);
    let failing = Shim::new(&store, move |call| match call {
        Call::Get(_) if is_out.load(Ordering::SeqCst) => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let runtime = runtime(store.events(), [&bystander(&failing)]);
    let asks = async {
        let wait = runtime.wait_for(Selector::schema("reply.v1"), 60 * MINUTE);
        out.store(true, Ordering::SeqCst);
        let reply = put(&store, "reply.v1", json!({})).await;
        tokio::time::sleep(30 * MINUTE).await;
        out.store(false, Ordering::SeqCst);
        let began = Instant::now();
        assert_eq!(wait.await.unwrap().id, reply.id);
        assert!(began.elapsed() < 5 * SECOND, "{:?}", began.elapsed());
    };

    runtime.run_until(asks).await.unwrap();
}
