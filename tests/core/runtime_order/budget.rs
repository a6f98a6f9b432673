//! Protection against a failing executor: a retry budget and a circuit breaker.

use crate::runtime_order::harness::{
    ExecutionLog, SECOND, count, from_beginning, in_state, until_ended,
};
use crate::support::log::Log;
use crate::support::{Probe, eventually, put, runs};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::store::RunState;
use universal_executor::{MemoryStore, Profile, Response};

/// Creates an executor that fails each first attempt.
fn stumbling(store: &MemoryStore, notebook: &ExecutionLog) -> Probe {
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
    let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
    let runtime = from_beginning(&store)
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
    let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
    let twice = stumbling(&store, &notebook).profile(Profile::default().attempts(2));
    for n in 0..100 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let runtime = from_beginning(&store).executor(twice).build().unwrap();

    let report = runtime.run_until(until_ended(&store, 100)).await.unwrap();

    assert_eq!((report.responded, report.failed), (100, 0));
    assert_eq!(notebook.len(), 200);
    assert!(notebook.turns().iter().all(|turn| turn.attempt <= 2));
    assert!(runs(&store).await.iter().all(|run| run.attempts == 2));
}

/// Runs an executor whose dependency is down for some time. Returns its calls, and the time of the start.
async fn broken(down_for: Duration, until: Duration) -> (ExecutionLog, Instant) {
    let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
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
    let runtime = from_beginning(&store).executor(depends).build().unwrap();
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
async fn while_all_inputs_fail_each_is_tried_once_and_then_one_at_a_time() {
    let (notebook, began) = broken(60 * SECOND, 30 * SECOND).await;

    let turns = notebook.turns();
    let (firsts, retries): (Vec<_>, Vec<_>) = turns.iter().partition(|turn| turn.attempt == 1);
    assert_eq!(firsts.len(), 60);
    let probes: Vec<u128> = retries
        .iter()
        .map(|turn| (turn.start - began).as_millis())
        .filter(|start| *start > 1_500)
        .collect();
    assert_eq!(probes.len(), 2, "after 5 s and 10 s more: {probes:?}");
    assert!((5_200..6_500).contains(&probes[0]), "{probes:?}");
    assert!((15_200..17_500).contains(&probes[1]), "{probes:?}");
}

#[tokio::test(start_paused = true)]
async fn probes_try_different_triggers() {
    let (notebook, _) = broken(400 * SECOND, 300 * SECOND).await;

    let turns = notebook.turns();
    let probes: Vec<u64> = turns.iter().skip(60).map(|turn| turn.n).collect();
    let different: BTreeSet<u64> = probes.iter().copied().collect();
    assert!(probes.len() >= 5, "{probes:?}");
    assert_eq!(different.len(), probes.len(), "{probes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_probe_that_succeeds_lets_everything_start_again() {
    let (notebook, began) = broken(3 * SECOND, 30 * SECOND).await;

    let turns = notebook.turns();
    let probe = &turns[60];
    assert!((probe.start - began).as_millis() >= 5_200, "{probe:?}");
    assert!(turns.len() >= 120, "{}", turns.len());
}

/// An input of the executor in [`delays`].
#[derive(Clone, Copy, Debug)]
struct Input {
    good: bool,
    /// Time after the previous input, in milliseconds.
    after: u64,
    /// Duration of an attempt, in milliseconds.
    takes: u64,
}

/// Returns the time that each good input waited for its first attempt.
fn delays(inputs: &[Input]) -> Vec<Duration> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
        let (noted, all) = (notebook.clone(), inputs.to_vec());
        let picky = Probe::on("question.v1", "picky", &store)
            .executing(move |context| {
                let n = context.trigger().context["n"].as_u64().unwrap();
                let input = all[usize::try_from(n).unwrap()];
                noted.start(&context);
                async move {
                    sleep(Duration::from_millis(input.takes)).await;
                    match input.good {
                        true => Ok(json!({})),
                        false => Err("cannot read the input".into()),
                    }
                }
            })
            .writing(Response::none());
        let runtime = from_beginning(&store).executor(picky).build().unwrap();
        let mut puts = Vec::new();
        let scenario = async {
            for (n, input) in inputs.iter().enumerate() {
                sleep(Duration::from_millis(input.after)).await;
                puts.push(Instant::now());
                put(&store, "question.v1", json!({ "n": n })).await;
            }
            sleep(30 * SECOND).await;
        };
        runtime.run_until(scenario).await.unwrap();

        let mut delays = Vec::new();
        for (n, (input, put)) in inputs.iter().zip(puts).enumerate() {
            if input.good {
                delays.push(notebook.of("", n as u64).start - put);
            }
        }
        delays
    })
}

fn burst(good: bool, n: usize) -> impl Iterator<Item = Input> {
    let (after, takes) = (0, 10);
    std::iter::repeat_n(Input { good, after, takes }, n)
}

#[test]
fn a_burst_of_bad_inputs_does_not_delay_good_ones() {
    for bad in [30, 200, 1_000] {
        let inputs: Vec<Input> = burst(false, bad).chain(burst(true, 20)).collect();

        let delays = delays(&inputs);

        assert_eq!(delays.len(), 20);
        let longest = delays.iter().max().unwrap();
        assert!(*longest <= 5 * SECOND, "{bad} bad inputs: {longest:?}");
    }
}

#[test]
fn good_inputs_that_arrive_during_retries_of_bad_ones_are_not_delayed() {
    let pause = Input {
        good: true,
        after: 20_000,
        takes: 10,
    };
    let inputs: Vec<Input> = burst(false, 200)
        .chain([pause; 10])
        .chain(burst(false, 200))
        .chain([pause; 10])
        .collect();

    let delays = delays(&inputs);

    let longest = delays.iter().max().unwrap();
    assert!(*longest <= 5 * SECOND, "{longest:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn no_mix_of_bad_inputs_delays_a_good_one_by_more_than_five_seconds(
        parts in prop::collection::vec(
            (any::<bool>(), 1_usize..80, 0_u64..3_000, 0_u64..50), 1..12,
        ),
    ) {
        let inputs: Vec<Input> = parts
            .into_iter()
            .flat_map(|(good, n, pause, takes)| {
                let first = Input { good, after: pause, takes };
                let rest = Input { after: 0, ..first };
                std::iter::once(first).chain(std::iter::repeat_n(rest, n))
            })
            .collect();

        for delay in delays(&inputs) {
            prop_assert!(delay <= 5 * SECOND, "{delay:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_breaker_is_visible_in_health_and_in_the_log_until_it_closes() {
    let (log, _guard) = Log::capture(tracing::Level::INFO, FmtSpan::NONE);
    let store = MemoryStore::default();
    let picky = Probe::on("question.v1", "picky", &store)
        .executing(|context| async move {
            match context.trigger().context["n"].as_u64() {
                Some(1_000) => Ok(json!({})),
                _ => Err("cannot read the input".into()),
            }
        })
        .writing(Response::none());
    let runtime = from_beginning(&store).executor(picky).build().unwrap();
    let (mut open, mut closed) = (None, None);
    let scenario = async {
        for n in 0..12 {
            put(&store, "question.v1", json!({"n": n})).await;
        }
        eventually(async || {
            let health = runtime.health();
            health
                .open_breakers
                .iter()
                .any(|open| open.failing_triggers == 12)
        })
        .await;
        open = Some(runtime.health());
        put(&store, "question.v1", json!({"n": 1_000})).await;
        eventually(async || runtime.health().open_breakers.is_empty()).await;
        closed = Some(runtime.health());
    };

    runtime.run_until(scenario).await.unwrap();

    let open = open.unwrap();
    assert!(open.ready, "{open:?}");
    assert_eq!(open.open_breakers.len(), 1, "{open:?}");
    let breaker = &open.open_breakers[0];
    assert_eq!(&*breaker.executor, "picky");
    assert!(breaker.next_probe_in <= 5 * SECOND, "{breaker:?}");
    assert!(closed.unwrap().open_breakers.is_empty());
    let log = log.text();
    let opened = log
        .lines()
        .find(|line| line.contains("circuit breaker opened"));
    let opened = opened.unwrap_or_else(|| panic!("the expected log line is missing in {log}"));
    for part in [
        "WARN",
        "executor=\"picky\"",
        "failing_triggers=10",
        "last_error=\"",
        "next_probe_in_ms=5000",
    ] {
        assert!(opened.contains(part), "{part} in {opened}");
    }
    let closed = log
        .lines()
        .find(|line| line.contains("circuit breaker closed"));
    assert!(closed.is_some_and(|line| line.contains("INFO")), "{log}");
}

#[tokio::test(start_paused = true)]
async fn failures_that_are_the_executors_own_open_no_breaker() {
    let store = MemoryStore::default();
    for n in 0..100 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let refuses = Probe::on("question.v1", "refuses", &store)
        .failing(|| universal_executor::permanent("no such city"));
    let runtime = from_beginning(&store).executor(refuses).build().unwrap();
    let began = Instant::now();

    let report = runtime.run_until(until_ended(&store, 100)).await.unwrap();

    assert!(began.elapsed() < 2 * SECOND, "{:?}", began.elapsed());
    assert_eq!(report.failed, 100);
    assert_eq!(in_state(&store, RunState::Failed).await.len(), 100);
    assert_eq!(count(&store, "executor.failed.v1").await, 100);
}
