//! What a worker answers after a downtime, and on a slow server. Time is paused, and the server has it too.

use super::OWNER;
use super::server::{Dice, Server, token_of};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, advance, sleep, timeout};
use universal_executor::source::StartAt;
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbId, BreadcrumbStore, ExecutionContext, MemoryStore,
    NewBreadcrumb, RcrtStore, Response, Runtime, Secret, Subscription, Subscriptions,
    UniversalExecutor, WithLedger, async_trait,
};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A longer time than any test takes, of the server as of the worker.
const PATIENCE: Duration = Duration::from_secs(2 * 60 * 60);

type Executed = Arc<Mutex<BTreeMap<BreadcrumbId, usize>>>;

/// Answers each question for an executor, and counts how often.
struct Echo {
    id: &'static str,
    subscriptions: Subscriptions,
    store: Arc<WithLedger<RcrtStore, MemoryStore>>,
    executed: Executed,
}

#[async_trait]
impl UniversalExecutor for Echo {
    fn id(&self) -> &str {
        self.id
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, trigger: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        *self.executed.lock().unwrap().entry(trigger.id).or_default() += 1;
        Ok(json!({"to": trigger.id, "by": self.id}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        let answer = NewBreadcrumb::new("answer.v1").context(output);
        Ok(Response::create(answer))
    }
}

/// A server, the ledger of its workers, and what they executed.
struct World {
    server: Server,
    ledger: MemoryStore,
    executed: Executed,
    asked: Vec<String>,
}

impl World {
    async fn new() -> Self {
        let server = Server::start().await;
        server
            .lock()
            .crumbs
            .follow_tokio(jiff::SignedDuration::from_hours(24 * 20));
        server.ways(|ways| ways.ping_every = 5 * SECOND);
        Self {
            server,
            ledger: MemoryStore::default().in_tenant(OWNER),
            executed: Executed::default(),
            asked: Vec::new(),
        }
    }

    fn worker(&self, id: &'static str) -> Runtime {
        self.worker_of(&[id])
    }

    /// A worker with executors on one store handle.
    fn worker_of(&self, ids: &[&'static str]) -> Runtime {
        let server = RcrtStore::builder(self.server.base_url(), OWNER)
            .token(Secret::new(token_of(OWNER)))
            .build()
            .unwrap();
        let store = Arc::new(WithLedger::new(server.clone(), self.ledger.clone()));
        let mut builder = Runtime::builder(server.events()).start_at(StartAt::Beginning);
        for id in ids {
            let questions = Subscription::trigger("question.v1").matching("for", "eq", *id);
            builder = builder.executor(Echo {
                id,
                subscriptions: Subscriptions::new([questions]).unwrap(),
                store: Arc::clone(&store),
                executed: Arc::clone(&self.executed),
            });
        }
        builder.build().unwrap()
    }

    fn ask(&mut self, of: &str) -> String {
        let new = json!({"schema_name": "question.v1", "context": {"for": of}});
        let id = self.server.put(OWNER, &new);
        self.asked.push(id.clone());
        id
    }

    /// The answers by question.
    fn answers(&self) -> BTreeMap<String, usize> {
        let state = self.server.lock();
        let mut answers = BTreeMap::new();
        for found in state.crumbs.all() {
            if found["schema_name"] == "answer.v1" {
                let to = found["context"]["to"].as_str().unwrap().to_owned();
                *answers.entry(to).or_default() += 1;
            }
        }
        answers
    }

    /// Runs a worker until all questions have an answer.
    async fn run_until_answered(&self, worker: &Runtime) {
        let answered = async {
            while self.answers().len() < self.asked.len() {
                sleep(SECOND).await;
            }
        };
        let run = timeout(PATIENCE, worker.run_until(answered)).await;
        let answers = self.answers().len();
        run.unwrap_or_else(|_| panic!("{answers} of {} are answered", self.asked.len()))
            .unwrap();
    }

    /// Each question has one answer, and was executed once.
    fn judge(&self) {
        let answers = self.answers();
        for asked in &self.asked {
            assert_eq!(answers.get(asked), Some(&1), "{asked}");
        }
        assert_eq!(answers.len(), self.asked.len());
        let executed = self.executed.lock().unwrap();
        assert!(executed.values().all(|times| *times == 1), "{executed:?}");
    }
}

/// 500 questions are asked while no worker runs for some time. The next worker answers each once.
async fn answers_after(downtime: Duration) {
    let mut world = World::new().await;
    world.ask("echo");
    world.run_until_answered(&world.worker("echo")).await;
    for _ in 0..500 {
        advance(downtime / 500).await;
        world.ask("echo");
    }

    world.run_until_answered(&world.worker("echo")).await;

    world.judge();
}

#[tokio::test(start_paused = true)]
async fn all_is_answered_once_after_a_minute_without_a_worker() {
    answers_after(60 * SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn all_is_answered_once_after_an_hour_without_a_worker() {
    answers_after(HOUR).await;
}

#[tokio::test(start_paused = true)]
async fn all_is_answered_once_after_a_week_without_a_worker() {
    answers_after(7 * DAY).await;
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_is_killed_again_and_again_while_it_catches_up_misses_nothing() {
    let mut world = World::new().await;
    world.ask("echo");
    world.run_until_answered(&world.worker("echo")).await;
    world.server.lock().latency = SECOND / 5;
    for _ in 0..400 {
        advance(DAY / 100).await;
        world.ask("echo");
    }
    let mut answered = Vec::new();
    for _ in 0..6 {
        // It is killed in the middle of a page, or between two, and has one more downtime.
        let worker = world.worker("echo");
        drop(timeout(5 * SECOND, worker.run_until(std::future::pending())).await);
        answered.push(world.answers().len());
        advance(HOUR).await;
        world.ask("echo");
    }
    assert!(
        answered.iter().all(|answered| *answered < 400),
        "{answered:?}"
    );

    world.run_until_answered(&world.worker("echo")).await;

    let answers = world.answers();
    assert_eq!(answers.len(), world.asked.len());
}

#[tokio::test(start_paused = true)]
async fn workers_with_different_executors_on_one_ledger_miss_nothing_of_each_other() {
    let mut world = World::new().await;
    world.ask("one");
    world.run_until_answered(&world.worker("one")).await;
    world.ask("two");
    world.run_until_answered(&world.worker("two")).await;
    for _ in 0..20 {
        advance(DAY / 20).await;
        world.ask("one");
    }
    // The other worker reads everything meanwhile.
    let other = world.worker("two");
    let read = other.run_until(sleep(300 * SECOND));
    read.await.unwrap();

    world.run_until_answered(&world.worker("one")).await;

    world.judge();
}

#[tokio::test(start_paused = true)]
async fn a_worker_without_a_position_checks_an_hour() {
    let mut world = World::new().await;
    let old = world.ask("echo");
    advance(2 * HOUR).await;
    world.asked.clear();
    world.ask("echo");
    advance(HOUR / 2).await;
    world.ask("echo");

    world.run_until_answered(&world.worker("echo")).await;

    world.judge();
    assert!(!world.answers().contains_key(&old));
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_is_new_beside_an_older_one_does_not_answer_what_came_before_it() {
    let mut world = World::new().await;
    world.ask("one");
    world.run_until_answered(&world.worker("one")).await;
    let old = world.ask("two");
    world.asked.pop();
    world.ask("one");
    advance(DAY).await;
    world.ask("two");
    let both = world.worker_of(&["one", "two"]);

    world.run_until_answered(&both).await;

    world.judge();
    assert!(!world.answers().contains_key(&old));
}

/// A worker catches up with 10,000 questions, of which 500 are for it, while new ones come.
async fn catches_up_on_a_slow_server(latency: Duration) {
    let mut world = World::new().await;
    world.ask("echo");
    world.run_until_answered(&world.worker("echo")).await;
    advance(HOUR).await;
    for n in 0..10_000 {
        match n % 20 {
            0 => drop(world.ask("echo")),
            _ => {
                let other = json!({"schema_name": "question.v1", "context": {"for": "nobody"}});
                world.server.put(OWNER, &other);
            }
        }
    }
    world.server.lock().latency = latency;
    let worker = world.worker("echo");
    let mut slowest = Duration::ZERO;
    let mut asked = Vec::new();
    let run = async {
        // The stream is open, and the sweep is at work.
        sleep(20 * SECOND).await;
        for _ in 0..20 {
            let new = json!({"schema_name": "question.v1", "context": {"for": "echo"}});
            let id = world.server.put(OWNER, &new);
            let began = Instant::now();
            while !world.answers().contains_key(&id) {
                sleep(SECOND / 10).await;
                assert!(began.elapsed() < HOUR, "a new question is not answered");
            }
            slowest = slowest.max(began.elapsed());
            asked.push(id);
            sleep(3 * SECOND).await;
        }
        while world.answers().len() < world.asked.len() + asked.len() {
            sleep(SECOND).await;
        }
    };
    let began = Instant::now();
    let run = timeout(PATIENCE, worker.run_until(run)).await;
    run.unwrap().unwrap();
    let took = began.elapsed();

    world.asked.extend(asked);
    world.judge();
    assert!(slowest <= 10 * SECOND, "a new question took {slowest:?}");
    assert!(took < HOUR, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn all_is_answered_once_on_a_server_that_takes_200_ms_for_a_request() {
    catches_up_on_a_slow_server(SECOND / 5).await;
}

#[tokio::test(start_paused = true)]
async fn all_is_answered_once_on_a_server_that_takes_a_second_for_a_request() {
    catches_up_on_a_slow_server(SECOND).await;
}

#[tokio::test(start_paused = true)]
async fn a_hundred_kills_of_server_stream_and_worker_lose_and_duplicate_nothing() {
    let mut world = World::new().await;
    let mut dice = Dice::new(7);
    let mut kills = [0; 3];
    while kills.iter().sum::<usize>() < 100 {
        let worker = world.worker("echo");
        let mut asked = Vec::new();
        let life = async {
            loop {
                for _ in 0..dice.below(6) {
                    let new = json!({"schema_name": "question.v1", "context": {"for": "echo"}});
                    asked.push(world.server.put(OWNER, &new));
                    sleep(Duration::from_millis(dice.below(300))).await;
                }
                sleep(Duration::from_millis(dice.below(20_000))).await;
                match dice.below(3) {
                    0 => {
                        kills[0] += 1;
                        world.server.lock().is_down = true;
                        world.server.cut();
                        sleep(Duration::from_millis(dice.below(60_000))).await;
                        world.server.lock().is_down = false;
                    }
                    1 => {
                        kills[1] += 1;
                        world.server.cut();
                    }
                    _ => {
                        kills[2] += 1;
                        return;
                    }
                }
            }
        };
        // The worker is killed: its future is dropped.
        tokio::select! {
            () = life => {}
            ended = worker.run_until(std::future::pending()) => panic!("{ended:?}"),
        }
        world.asked.extend(asked);
        for _ in 0..dice.below(4) {
            advance(Duration::from_millis(dice.below(1_000_000))).await;
            world.ask("echo");
        }
    }

    world.run_until_answered(&world.worker("echo")).await;

    let answers = world.answers();
    assert!(kills.iter().all(|kills| *kills > 10), "{kills:?}");
    assert_eq!(answers.len(), world.asked.len());
    assert!(answers.values().all(|times| *times == 1), "{answers:?}");
}
