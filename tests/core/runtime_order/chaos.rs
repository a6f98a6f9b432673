//! Many faults at the same time: every trigger still has one outcome and at most one answer.

use crate::runtime_order::harness::{Dice, SECOND, count, in_state, until_ended};
use crate::support::{Probe, all, put, runs};
use futures::StreamExt as _;
use futures::stream::{self};
use serde_json::json;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{sleep, timeout};
use universal_executor::source::{Deliveries, SourceError, StartAt};
use universal_executor::store::RunState;
use universal_executor::{Delivery, EventSource, MemoryStore, Runtime, async_trait};

/// A source that delivers the events of another source out of order within a window, and one in ten twice.
struct Shuffled<S> {
    source: S,
    seed: u64,
}

/// A window of deliveries from which random ones are taken.
struct Window {
    deliveries: Deliveries,
    waiting: Vec<Result<Delivery, SourceError>>,
    dice: Dice,
}

impl Window {
    const SIZE: usize = 20;

    async fn next(&mut self) -> Option<Result<Delivery, SourceError>> {
        while self.waiting.len() < Self::SIZE {
            let pause = match self.waiting.is_empty() {
                true => Duration::MAX,
                false => SECOND / 100,
            };
            match timeout(pause, self.deliveries.next()).await {
                Ok(delivered) => {
                    // The position is removed, because a subscriber cannot continue after it.
                    let delivery = delivered?.map(|delivery| Delivery::new(delivery.event));
                    if let (Ok(delivery), true) = (&delivery, self.dice.percent(10)) {
                        self.waiting.push(Ok(delivery.clone()));
                    }
                    self.waiting.push(delivery);
                }
                Err(_) => break,
            }
        }
        let which = self.dice.below(self.waiting.len() as u64);
        Some(self.waiting.swap_remove(usize::try_from(which).unwrap()))
    }
}

#[async_trait]
impl<S: EventSource> EventSource for Shuffled<S> {
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        let deliveries = self.source.subscribe(from).await?;
        Ok(deliveries.wrap(|deliveries| {
            let window = Window {
                deliveries,
                waiting: Vec::new(),
                dice: Dice::new(self.seed),
            };
            stream::unfold(window, |mut window| async move {
                let delivered = window.next().await?;
                Some((delivered, window))
            })
        }))
    }

    fn is_complete(&self) -> bool {
        true
    }
}

/// Creates an executor that takes a random time, fails in 5% of its calls and panics in 1%.
fn unlucky(store: &MemoryStore, seed: u64, longest: Duration) -> Probe {
    Probe::on("question.v1", "unlucky", store).executing(move |context| {
        let mut dice = Dice::of(seed, &context);
        async move {
            let takes = dice.below(u64::try_from(longest.as_millis())?);
            sleep(Duration::from_millis(takes)).await;
            if dice.percent(5) {
                return Err("reset".into());
            }
            if dice.percent(1) {
                // `resume_unwind` panics without printing a message.
                std::panic::resume_unwind(Box::new("boom"));
            }
            Ok(json!({"ok": true}))
        }
    })
}

fn shuffled(store: &MemoryStore, seed: u64) -> universal_executor::runtime::RuntimeBuilder {
    let source = store.events();
    Runtime::builder(Shuffled { source, seed }).start_at(StartAt::Beginning)
}

async fn ask(store: &MemoryStore, times: u64) {
    for n in 0..times {
        put(store, "question.v1", json!({"n": n})).await;
    }
}

/// Fails unless each trigger has one ended run, with an answer or a dead letter according to its end.
async fn assert_one_outcome_each(store: &MemoryStore, triggers: usize) {
    let rows = runs(store).await;
    assert_eq!(rows.len(), triggers);
    assert!(rows.iter().all(|run| run.state.is_over()));
    for (schema, state) in [
        ("answer.v1", RunState::Done),
        ("executor.failed.v1", RunState::Failed),
    ] {
        let mut by_trigger: HashMap<String, usize> = HashMap::new();
        for written in all(store, schema).await {
            let because_of = written.context.pointer("/creator/trigger_id").unwrap();
            *by_trigger.entry(because_of.to_string()).or_default() += 1;
        }
        assert!(by_trigger.values().all(|answers| *answers == 1), "{schema}");
        assert_eq!(
            by_trigger.len(),
            in_state(store, state).await.len(),
            "{schema}"
        );
    }
    assert_eq!(in_state(store, RunState::Superseded).await.len(), 0);
    assert_eq!(in_state(store, RunState::Skipped).await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_events_twice_and_out_of_order_have_one_outcome_each_and_the_counts_add_up() {
    let (store, seed) = (MemoryStore::default(), 11);
    ask(&store, 10_000).await;
    let unlucky = unlucky(&store, seed, SECOND / 20).shared();
    let runtime = shuffled(&store, seed)
        .executor(Arc::clone(&unlucky))
        .build()
        .unwrap();

    let report = runtime
        .run_until(until_ended(&store, 10_000))
        .await
        .unwrap();

    assert_one_outcome_each(&store, 10_000).await;
    assert_eq!(report.responded as usize, count(&store, "answer.v1").await);
    assert_eq!(
        report.failed as usize,
        count(&store, "executor.failed.v1").await
    );
    assert_eq!(report.responded + report.failed, 10_000);
    let attempts = report.responded + report.failed + report.postponed;
    assert_eq!(attempts as usize, unlucky.executed());
    assert!((400..800).contains(&report.postponed), "{report:?}");
    assert_eq!((report.errors, report.panics, report.skipped), (0, 0, 0));
    assert!(report.events > 10_500, "{report:?}");
}

/// Runs one runtime after another, each for a random time. Returns the number of runtimes.
async fn mortal(store: &MemoryStore, seed: u64) -> usize {
    let mut dice = Dice::new(seed);
    for lives in 0.. {
        let unlucky = unlucky(store, seed, 3 * SECOND);
        let runtime = shuffled(store, seed).executor(unlucky).build().unwrap();
        let life = Duration::from_millis(500 + dice.below(8_000));
        let died = timeout(life, runtime.run_until(until_ended(store, 1_200))).await;
        if died.is_ok() {
            return lives;
        }
    }
    0
}

#[tokio::test(start_paused = true)]
async fn three_runtimes_that_die_again_and_again_give_every_trigger_one_outcome() {
    let store = MemoryStore::default();
    ask(&store, 1_200).await;

    let (one, two, three) = tokio::join!(mortal(&store, 1), mortal(&store, 2), mortal(&store, 3));

    assert_one_outcome_each(&store, 1_200).await;
    assert!(one + two + three >= 15, "{one} {two} {three}");
    let abandoned = runs(&store)
        .await
        .iter()
        .filter(|run| run.attempts > 1)
        .count();
    assert!(abandoned > 60, "{abandoned}");
}
