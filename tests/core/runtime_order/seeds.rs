//! A store and a source with random faults from a seed: every trigger still has one outcome and one answer.

use crate::runtime_order::harness::{Dice, SECOND};
use crate::support::{Probe, Shim, all, put, runs};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use universal_executor::source::StartAt;
use universal_executor::store::{Fault, Faulty, Operation, Run, RunState};
use universal_executor::{
    BoxError, BreadcrumbStore, MemoryStore, NewBreadcrumb, Profile, Response, Runtime, Selector,
    Wake, suspend,
};

const SEEDS: u64 = 200;
const QUESTIONS: usize = 4;
const REQUESTS: usize = 2;

/// Adds random faults: at each moment of a call, 6% fail, 6% are slow, and 1% hang.
fn faulty<S>(inside: S, seed: u64) -> Faulty<S> {
    let dice = Mutex::new(Dice::new(seed));
    Faulty::new(inside, move |operation, _| {
        let mut dice = dice.lock().unwrap();
        match (operation, dice.below(100)) {
            // A runtime that cannot subscribe at its start returns an error and does not run.
            (Operation::Subscribe, _) => Fault::None,
            (_, 0..6) => Fault::Fail,
            // Some delays exceed the runtime's timeout for a call.
            (_, 6..12) => Fault::Delay(SECOND * u32::try_from(dice.below(12)).unwrap()),
            // A stream that hangs cannot be distinguished from a stream without events.
            (Operation::Next, _) => Fault::None,
            (_, 12..13) => Fault::Hang,
            _ => Fault::None,
        }
    })
}

/// Lets a probe retry until it succeeds.
fn stubborn(probe: Probe) -> Probe {
    probe.profile(Profile::default().attempts(50))
}

/// Creates an executor that answers questions.
fn answers(store: &(impl BreadcrumbStore + Clone)) -> Probe {
    stubborn(Probe::on("question.v1", "answers", store))
}

/// Creates an executor that sends a request, waits up to one hour for the reply, and ends.
fn asks(store: &(impl BreadcrumbStore + Clone)) -> Probe {
    let asks = Probe::on("request.v1", "asks", store).executing(|context| async move {
        if context.resumed().is_some() {
            return Ok(json!({}));
        }
        let request = context.trigger();
        let ask = NewBreadcrumb::new("ask.v1").tag(request.id.to_string());
        let reply = Selector::schema("reply.v1").all_tags([request.id.to_string()]);
        let reply = Wake::on(reply).until(request.updated_at + Duration::from_secs(3_600));
        let asked: BoxError = suspend(reply, json!({})).writing(Response::create(ask));
        Err(asked)
    });
    stubborn(asks).writing(Response::create(NewBreadcrumb::new("done.v1")))
}

/// Creates an executor that replies to these requests.
fn replies(store: &(impl BreadcrumbStore + Clone)) -> Probe {
    let replies = Probe::on("ask.v1", "replies", store).responding(|ask, _| {
        let reply = NewBreadcrumb::new("reply.v1").tags(ask.tags.clone());
        Ok(Response::create(reply))
    });
    stubborn(replies)
}

/// Returns the number of breadcrumbs of a schema per trigger.
async fn by_trigger(store: &MemoryStore, schema: &str) -> HashMap<String, usize> {
    let mut by_trigger = HashMap::new();
    for written in all(store, schema).await {
        let trigger = written.context.pointer("/creator/trigger_id").unwrap();
        *by_trigger.entry(trigger.to_string()).or_default() += 1;
    }
    by_trigger
}

/// Returns the number of breadcrumbs of a schema. Fails if a trigger has more than one.
async fn one_each(store: &MemoryStore, schema: &str, seed: u64) -> usize {
    let by_trigger = by_trigger(store, schema).await;
    let most = by_trigger.values().max().copied().unwrap_or_default();
    assert!(most <= 1, "seed {seed}: {schema} {by_trigger:?}");
    by_trigger.len()
}

/// Waits up to two hours in paused time until a condition holds.
async fn until(mut holds: impl AsyncFnMut() -> bool, seed: u64) {
    let began = Instant::now();
    while !holds().await {
        let waited = began.elapsed();
        assert!(
            waited < 7_200 * SECOND,
            "seed {seed}: the condition did not hold in time"
        );
        sleep(5 * SECOND).await;
    }
}

/// Runs the executors until all triggers have an outcome. Returns the runs.
async fn play(inside: &MemoryStore, seed: u64) -> Vec<Run> {
    let store = faulty(inside.clone(), seed);
    let runtime = Runtime::builder(store.beside(inside.events()))
        .start_at(StartAt::Beginning)
        .executor(answers(&store))
        .executor(asks(&store))
        .executor(replies(&store))
        .build()
        .unwrap();
    for n in 0..QUESTIONS {
        put(inside, "question.v1", json!({"n": n})).await;
    }
    let scenario = async {
        for n in 0..REQUESTS {
            put(inside, "request.v1", json!({"n": n})).await;
        }
        let all_over = async || {
            let asked = all(inside, "ask.v1").await.len();
            let runs = runs(inside).await;
            runs.len() == QUESTIONS + REQUESTS + asked && runs.iter().all(|run| run.state.is_over())
        };
        until(all_over, seed).await;
    };
    runtime.run_until(scenario).await.unwrap();
    runs(inside).await
}

#[tokio::test(start_paused = true)]
async fn every_trigger_has_one_outcome_and_one_answer_despite_faults() {
    let mut failed = 0;
    for seed in 0..SEEDS {
        let inside = MemoryStore::default();

        let ended = play(&inside, seed).await;

        let count = |executor: &str, state| {
            let of = |run: &&Run| &*run.run.executor == executor && run.state == state;
            ended.iter().filter(of).count()
        };
        for (executor, schema) in [
            ("answers", "answer.v1"),
            ("asks", "done.v1"),
            ("replies", "reply.v1"),
        ] {
            let written = one_each(&inside, schema, seed).await;
            let done = count(executor, RunState::Done);
            assert_eq!(written, done, "seed {seed}: {schema} {ended:?}");
        }
        one_each(&inside, "ask.v1", seed).await;
        let letters = one_each(&inside, "executor.failed.v1", seed).await;
        let over = ended.iter().filter(|run| run.state != RunState::Done);
        assert_eq!(over.count(), letters, "seed {seed}: {ended:?}");
        failed += letters;
    }
    // A run fails after three workers in a row that died or seemed to die.
    assert!(failed < 10, "{failed} runs failed");
}

#[tokio::test(start_paused = true)]
async fn without_a_ledger_every_trigger_is_answered_at_least_once() {
    for seed in 0..SEEDS / 4 {
        let inside = MemoryStore::default();
        let store = faulty(Shim::without_ledger(&inside), seed);
        let runtime = Runtime::builder(store.beside(inside.events()))
            .start_at(StartAt::Beginning)
            .executor(answers(&store))
            .build()
            .unwrap();
        for n in 0..QUESTIONS {
            put(&inside, "question.v1", json!({"n": n})).await;
        }

        let answered = async || by_trigger(&inside, "answer.v1").await.len() == QUESTIONS;
        runtime.run_until(until(answered, seed)).await.unwrap();
    }
}
