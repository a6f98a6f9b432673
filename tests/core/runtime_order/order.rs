//! Runs with the same ordering key execute one at a time, in the order of their arrival.

use crate::runtime_order::harness::{
    Dice, ExecutionLog, Played, SECOND, count, from_beginning, in_state, tagged, until, until_ended,
};
use crate::support::{Probe, event_of, eventually, put, runs};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use universal_executor::executor::OrderingKey;
use universal_executor::store::RunState;
use universal_executor::{
    BreadcrumbStoreExt, Event, MemoryStore, NewBreadcrumb, Outcome, Patch, Profile, Response,
    Runtime, Wake, retry_after, suspend,
};

fn by_tag() -> Profile {
    Profile::default()
        .ordering(OrderingKey::tag("key:"))
        .max_inflight(64)
}

/// Creates an executor with a different duration per attempt, which fails in some attempts.
fn moody(store: &MemoryStore, seed: u64, notebook: &ExecutionLog) -> Probe {
    let notebook = notebook.clone();
    Probe::on("question.v1", "moody", store)
        .executing(move |context| {
            let notebook = notebook.clone();
            async move {
                let mut dice = Dice::of(seed, &context);
                let note = notebook.start(&context);
                sleep(Duration::from_millis(dice.below(200))).await;
                notebook.end(note);
                if context.attempt() < 4 && dice.percent(10) {
                    return Err("reset".into());
                }
                Ok(json!({}))
            }
        })
        .writing(Response::none())
}

/// Creates an executor that takes one second per run.
fn slow(store: &MemoryStore, notebook: &ExecutionLog) -> Probe {
    let notebook = notebook.clone();
    Probe::on("question.v1", "slow", store)
        .profile(by_tag())
        .executing(move |context| {
            let notebook = notebook.clone();
            async move {
                let note = notebook.start(&context);
                sleep(SECOND).await;
                notebook.end(note);
                Ok(json!({}))
            }
        })
}

async fn ask(store: &MemoryStore, key: &str, n: u64) {
    let context = json!({"key": key, "n": n});
    tagged(store, "question.v1", &format!("key:{key}"), context).await;
}

#[tokio::test(start_paused = true)]
async fn runs_of_one_key_are_sequential_and_runs_of_other_keys_are_concurrent() {
    for seed in 1..=3 {
        let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
        let mut dice = Dice::new(seed);
        let mut next = [0_u64; 50];
        while let Some(keys) = open_keys(&next, 20) {
            let key = keys[dice.below(keys.len() as u64) as usize];
            ask(&store, &format!("{key}"), next[key]).await;
            next[key] += 1;
        }
        let moody = moody(&store, seed, &notebook).profile(by_tag());
        let runtime = from_beginning(&store).executor(moody).build().unwrap();

        let report = runtime.run_until(until_ended(&store, 1_000)).await.unwrap();

        notebook.assert_in_order();
        assert_eq!((report.responded, report.failed), (1_000, 0));
        assert!(report.postponed >= 20, "{report:?}");
        assert!(
            notebook.max_concurrent() > 30,
            "{}",
            notebook.max_concurrent()
        );
    }
}

/// Returns the keys that have not received all their events.
fn open_keys(next: &[u64], most: u64) -> Option<Vec<usize>> {
    let open = next.iter().enumerate().filter(|(_, n)| **n < most);
    let open: Vec<usize> = open.map(|(key, _)| key).collect();
    (!open.is_empty()).then_some(open)
}

#[tokio::test(start_paused = true)]
async fn an_ordering_path_applies_to_contexts_too_large_for_the_event() {
    let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
    let large = "x".repeat(Event::MAX_CONTEXT_BYTES + 1);
    for n in 0..9 {
        for key in ["a", "b"] {
            let rest = if n % 3 == 1 { &*large } else { "" };
            put(
                &store,
                "question.v1",
                json!({"key": key, "n": n, "rest": rest}),
            )
            .await;
        }
    }
    let by_path = Profile::default().ordering(OrderingKey::path("$.key").unwrap());
    let moody = moody(&store, 7, &notebook).profile(by_path);
    let runtime = from_beginning(&store).executor(moody).build().unwrap();

    let report = runtime.run_until(until_ended(&store, 18)).await.unwrap();

    notebook.assert_in_order();
    assert_eq!(report.responded, 18);
    assert_eq!(notebook.max_concurrent(), 2);
}

#[tokio::test(start_paused = true)]
async fn runs_without_a_key_go_side_by_side() {
    let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
    for n in 0..10 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let runtime = from_beginning(&store)
        .executor(slow(&store, &notebook))
        .build()
        .unwrap();

    runtime
        .run_until(until(&store, "answer.v1", 10))
        .await
        .unwrap();

    assert_eq!(notebook.max_concurrent(), 10);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_waits_for_a_retry_blocks_only_its_own_key() {
    let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
    let noted = notebook.clone();
    let stumbles = Probe::on("question.v1", "stumbles", &store)
        .profile(by_tag())
        .executing(move |context| {
            let note = noted.start(&context);
            noted.end(note);
            let first = noted.of("a", 0).start;
            async move {
                let trigger = &context.trigger().context;
                if trigger["key"] == "a" && trigger["n"] == 0 && first.elapsed() < 60 * SECOND {
                    return Err(retry_after(60 * SECOND, "slow down"));
                }
                Ok(json!({}))
            }
        });
    for (key, n) in [("a", 0), ("a", 1), ("b", 0), ("b", 1)] {
        ask(&store, key, n).await;
    }
    let runtime = from_beginning(&store).executor(stumbles).build().unwrap();
    let began = Instant::now();

    runtime
        .run_until(until(&store, "answer.v1", 4))
        .await
        .unwrap();

    notebook.assert_in_order();
    assert!(notebook.of("b", 1).start - began < SECOND);
    assert!(notebook.of("a", 1).start - began >= 60 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn a_suspended_run_holds_its_key_until_it_is_over() {
    let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
    let (noted, clock) = (notebook.clone(), put(&store, "clock.v1", json!({})).await);
    let later = clock.updated_at + 100 * SECOND;
    let waits = Probe::on("question.v1", "waits", &store)
        .profile(by_tag())
        .executing(move |context| {
            let note = noted.start(&context);
            noted.end(note);
            async move {
                let trigger = &context.trigger().context;
                if trigger["n"] == 0 && trigger["key"] == "a" && context.resumed().is_none() {
                    return Err(suspend(Wake::at(later), json!({})).writing(Response::none()));
                }
                Ok(json!({}))
            }
        });
    for (key, n) in [("a", 0), ("a", 1), ("b", 0)] {
        ask(&store, key, n).await;
    }
    let runtime = from_beginning(&store).executor(waits).build().unwrap();
    let began = Instant::now();

    runtime
        .run_until(until(&store, "answer.v1", 3))
        .await
        .unwrap();

    notebook.assert_in_order();
    assert!(notebook.of("b", 0).start - began < SECOND);
    assert!(notebook.of("a", 1).start - began >= 99 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn the_order_holds_over_two_runtimes_on_one_store() {
    let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
    for n in 0..20 {
        for key in 0..10 {
            ask(&store, &format!("{key}"), n).await;
        }
    }
    let [one, two] = [1, 2].map(|seed| {
        let moody = moody(&store, seed, &notebook)
            .profile(by_tag().max_inflight(5))
            .shared();
        let runtime = from_beginning(&store).executor(Arc::clone(&moody)).build();
        (runtime.unwrap(), moody)
    });

    let (here, there) = tokio::join!(
        one.0.run_until(until_ended(&store, 200)),
        two.0.run_until(until_ended(&store, 200))
    );

    notebook.assert_in_order();
    assert_eq!(here.unwrap().responded + there.unwrap().responded, 200);
    assert!(one.1.executed() > 20 && two.1.executed() > 20);
}

/// Writes a trigger whose first version waits behind a run of key `a`, and whose second version has key `b`.
async fn moved(store: &MemoryStore) -> [Event; 4] {
    let tags = |key: &str| [format!("key:{key}")];
    let ask = |key: &str, n: u64| {
        NewBreadcrumb::new("question.v1")
            .tags(tags(key))
            .context(json!({"key": key, "n": n}))
    };
    let ahead = store.create(ask("a", 0)).await.unwrap();
    let first = store.create(ask("a", 1)).await.unwrap();
    let other = store.create(ask("b", 0)).await.unwrap();
    let patch = Patch::new()
        .tags(tags("b"))
        .context(json!({"key": "b", "n": 1}));
    let second = store.update(first.id, 1, patch).await.unwrap();
    [&ahead, &first, &other, &second].map(|breadcrumb| event_of(breadcrumb))
}

#[tokio::test(start_paused = true)]
async fn a_newer_version_waits_in_the_queue_of_its_key_even_if_unannounced() {
    for announced in [false, true] {
        let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
        let mut events = moved(&store).await.to_vec();
        events.truncate(if announced { 4 } else { 3 });
        let noted = notebook.clone();
        let slow = slow(&store, &notebook).executing(move |context| {
            let noted = noted.clone();
            async move {
                let note = noted.start(&context);
                let is_b = context.trigger().context["key"] == "b";
                sleep(if is_b { 10 * SECOND } else { SECOND }).await;
                noted.end(note);
                Ok(json!({}))
            }
        });
        let runtime = Runtime::builder(Played::new(events))
            .executor(slow)
            .build()
            .unwrap();

        runtime
            .run_until(until(&store, "answer.v1", 3))
            .await
            .unwrap();

        notebook.assert_in_order();
        assert_eq!(notebook.len(), 3, "announced: {announced}");
        assert_eq!(notebook.of("b", 1).start, notebook.of("b", 0).end.unwrap());
        assert_eq!(in_state(&store, RunState::Superseded).await.len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_blocked_run_that_is_processed_by_hand_is_in_progress_and_executes_nothing() {
    let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
    ask(&store, "a", 0).await;
    let blocked = tagged(&store, "question.v1", "key:a", json!({"key": "a", "n": 1})).await;
    let runtime = from_beginning(&store)
        .executor(slow(&store, &notebook))
        .build()
        .unwrap();
    let by_hand = slow(&store, &notebook).shared();
    let hand = Arc::clone(&by_hand);
    let asked = async {
        eventually(async || notebook.len() == 1).await;
        let outcome = hand.sees(&blocked).await.unwrap();
        assert!(matches!(outcome, Outcome::InProgress { .. }), "{outcome:?}");
        until(&store, "answer.v1", 2).await;
    };

    runtime.run_until(asked).await.unwrap();

    notebook.assert_in_order();
    assert_eq!((by_hand.executed(), notebook.len()), (0, 2));
    assert_eq!(count(&store, "answer.v1").await, 2);
    assert!(runs(&store).await.iter().all(|run| run.attempts == 1));
}
