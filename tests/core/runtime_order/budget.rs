//! What keeps an executor that fails from making things worse: a budget for retries, and a circuit breaker.

use crate::runtime_order::stage::{Notebook, SECOND, beginning, count, in_state, until_over};
use crate::support::{Probe, put, runs};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use universal_executor::store::RunState;
use universal_executor::{MemoryStore, Profile, Response};

/// Fails every first attempt.
fn stumbling(store: &MemoryStore, notebook: &Notebook) -> Probe {
    let notebook = notebook.clone();
    Probe::on("question.v1", "stumbling", store)
        .executing(move |context| {
            let note = notebook.start(&context);
            notebook.end(note);
            async move {
                match context.attempt() {
                    1 => Err("reset".into()),
                    _ => Ok(json!({})),
                }
            }
        })
        .writing(Response::none())
}

#[tokio::test(start_paused = true)]
async fn retries_stay_a_fifth_of_the_traffic_beside_a_few_at_hand_and_a_trickle() {
    let (store, notebook) = (MemoryStore::default(), Notebook::default());
    let runtime = beginning(&store)
        .executor(stumbling(&store, &notebook))
        .build()
        .unwrap();
    let began = Instant::now();
    let stream = async {
        for n in 0..1_000 {
            put(&store, "question.v1", json!({"n": n})).await;
            sleep(SECOND / 10).await;
        }
    };

    let report = runtime.run_until(stream).await.unwrap();

    let (mut firsts, mut retries) = (0.0, 0.0);
    for turn in notebook.turns() {
        if turn.attempt == 1 {
            firsts += 1.0;
        } else {
            retries += 1.0;
        }
        let allowed = firsts / 5.0 + 10.0 + (turn.start - began).as_secs_f64();
        assert!(
            retries <= allowed + 1e-6,
            "{retries} of {allowed}: {turn:?}"
        );
    }
    assert!(firsts >= 500.0, "{report:?}");
    assert!(retries >= firsts / 5.0, "{retries} of {firsts}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_put_off_has_not_used_an_attempt() {
    let (store, notebook) = (MemoryStore::default(), Notebook::default());
    let twice = stumbling(&store, &notebook).profile(Profile::default().attempts(2));
    for n in 0..100 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let runtime = beginning(&store).executor(twice).build().unwrap();

    let report = runtime.run_until(until_over(&store, 100)).await.unwrap();

    assert_eq!((report.responded, report.failed), (100, 0));
    assert_eq!(notebook.len(), 200);
    assert!(notebook.turns().iter().all(|turn| turn.attempt <= 2));
    assert!(runs(&store).await.iter().all(|run| run.attempts == 2));
}

/// What an executor does while what it depends on is down, until it is up again.
async fn broken(down_for: Duration, until: Duration) -> (Notebook, Instant) {
    let (store, notebook) = (MemoryStore::default(), Notebook::default());
    for n in 0..60 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let (is_up, noted) = (Arc::new(AtomicBool::new(false)), notebook.clone());
    let up = Arc::clone(&is_up);
    let depends = Probe::on("question.v1", "depends", &store)
        .profile(Profile::default().max_inflight(5))
        .executing(move |context| {
            let (noted, up) = (noted.clone(), Arc::clone(&up));
            async move {
                let note = noted.start(&context);
                sleep(SECOND / 10).await;
                noted.end(note);
                match up.load(Ordering::SeqCst) {
                    true => Ok(json!({})),
                    false => Err("reset".into()),
                }
            }
        });
    let runtime = beginning(&store).executor(depends).build().unwrap();
    let began = Instant::now();
    let time = async {
        sleep(down_for.min(until)).await;
        is_up.store(true, Ordering::SeqCst);
        sleep(until.saturating_sub(down_for)).await;
    };
    runtime.run_until(time).await.unwrap();
    (notebook, began)
}

#[tokio::test(start_paused = true)]
async fn after_ten_failures_in_a_row_nothing_starts_for_five_seconds_and_then_one_probe() {
    let (notebook, began) = broken(60 * SECOND, 14 * SECOND).await;

    let starts: Vec<u128> = notebook
        .starts()
        .iter()
        .map(|start| (*start - began).as_millis())
        .collect();
    // Five at a time, twice; then a probe after five seconds, which fails, and none for ten.
    assert_eq!(starts.len(), 11, "{starts:?}");
    assert!(starts[9] <= 150, "{starts:?}");
    assert!((5_200..5_300).contains(&starts[10]), "{starts:?}");
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_succeeds_lets_everything_start_again() {
    let (notebook, began) = broken(3 * SECOND, 10 * SECOND).await;

    let turns = notebook.turns();
    let (probe, next) = (&turns[10], &turns[11]);
    assert!((probe.start - began).as_millis() >= 5_200, "{probe:?}");
    assert_eq!(probe.end, Some(next.start), "nothing runs beside the probe");
    assert!(turns.len() >= 60, "{}", turns.len());
    assert!((turns[59].start - began) < 7 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn failures_that_are_the_executors_own_open_no_breaker() {
    let store = MemoryStore::default();
    for n in 0..100 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let refuses = Probe::on("question.v1", "refuses", &store)
        .failing(|| universal_executor::permanent("no such city"));
    let runtime = beginning(&store).executor(refuses).build().unwrap();
    let began = Instant::now();

    let report = runtime.run_until(until_over(&store, 100)).await.unwrap();

    assert!(began.elapsed() < 2 * SECOND, "{:?}", began.elapsed());
    assert_eq!(report.failed, 100);
    assert_eq!(in_state(&store, RunState::Failed).await.len(), 100);
    assert_eq!(count(&store, "executor.failed.v1").await, 100);
}
