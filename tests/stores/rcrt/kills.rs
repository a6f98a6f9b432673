//! Kills of the server, the stream and two workers at random moments, while questions are asked. Time is paused, also on the
//! server.

use super::OWNER;
use super::server::{Dice, Fault, Match, token_of};
use super::torture::seeds;
use super::world::{PATIENCE, SECOND, World};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{advance, sleep, timeout};
use universal_executor::runtime::RuntimeError;
use universal_executor::source::StartAt;
use universal_executor::store::{self, DeadLetter, Faulty};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbId, BreadcrumbStore, ExecutionContext, MemoryStore,
    NewBreadcrumb, RcrtStore, Response, Runtime, Secret, Subscription, Subscriptions,
    UniversalExecutor, WithLedger, async_trait,
};

/// The planned number of kills of each kind.
const EACH: usize = 36;

/// The duration of one execution.
const EXECUTION: Duration = Duration::from_secs(3);

/// The states of a worker. A worker that is killed without its ledger cannot release its runs, like a process after `kill -9`.
const RUNNING: u8 = 0;
const KILLED: u8 = 1;
const KILLED_WITHOUT_LEDGER: u8 = 2;

#[derive(Clone, Copy)]
enum Kill {
    Server,
    Stream,
    Worker,
}

/// The number of kills of each kind.
#[derive(Debug, Default)]
struct Kills {
    server: usize,
    /// Kills of the server between a commit and its response.
    after_commit: usize,
    stream: usize,
    worker: usize,
}

/// The executions of one question.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
struct Executions {
    completed: usize,
    /// Number of executions that ended with their worker.
    killed: usize,
    /// Number of executions that were dropped by a worker that continued.
    dropped: usize,
}

type AllExecutions = Arc<Mutex<BTreeMap<BreadcrumbId, Executions>>>;

/// Records the end of an execution.
struct Execution<'e> {
    echo: &'e SlowEcho,
    question: BreadcrumbId,
    is_completed: bool,
}

impl Drop for Execution<'_> {
    fn drop(&mut self) {
        let mut all = self.echo.executions.lock().unwrap();
        let of_question = all.entry(self.question).or_default();
        let is_running = self.echo.state.load(Ordering::SeqCst) == RUNNING;
        match (self.is_completed, is_running) {
            (true, _) => of_question.completed += 1,
            (false, false) => of_question.killed += 1,
            (false, true) => of_question.dropped += 1,
        }
    }
}

/// An executor that answers each question after [`EXECUTION`].
struct SlowEcho {
    subscriptions: Subscriptions,
    store: WithLedger<RcrtStore, Faulty<MemoryStore>>,
    executions: AllExecutions,
    state: Arc<AtomicU8>,
}

#[async_trait]
impl UniversalExecutor for SlowEcho {
    fn id(&self) -> &str {
        "echo"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, trigger: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        let mut execution = Execution {
            echo: self,
            question: trigger.id,
            is_completed: false,
        };
        sleep(EXECUTION).await;
        execution.is_completed = true;
        Ok(json!({"to": trigger.id}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        let answer = NewBreadcrumb::new("answer.v1").context(output);
        Ok(Response::create(answer))
    }
}

/// A running worker.
struct Worker {
    task: JoinHandle<()>,
    state: Arc<AtomicU8>,
}

impl Worker {
    fn start(world: &World, executions: &AllExecutions) -> Self {
        let state = Arc::new(AtomicU8::new(RUNNING));
        let server = RcrtStore::builder(world.server.base_url(), OWNER)
            .token(Secret::new(token_of(OWNER)))
            .build()
            .unwrap();
        let of_plan = Arc::clone(&state);
        let ledger = Faulty::new(world.ledger.clone(), move |_, _| {
            match of_plan.load(Ordering::SeqCst) {
                KILLED_WITHOUT_LEDGER => store::Fault::Fail,
                _ => store::Fault::None,
            }
        });
        let echo = SlowEcho {
            subscriptions: Subscriptions::new([Subscription::trigger("question.v1")]).unwrap(),
            store: WithLedger::new(server.clone(), ledger),
            executions: Arc::clone(executions),
            state: Arc::clone(&state),
        };
        let builder = Runtime::builder(server.events()).start_at(StartAt::Beginning);
        let runtime = builder.executor(echo).build().unwrap();
        let task = tokio::spawn(async move {
            // A stream that closes during the worker's start makes the start fail. The loop starts the worker again, as an operator would.
            while let Err(RuntimeError::Source(_)) = runtime.run_until(pending()).await {
                sleep(SECOND).await;
            }
        });
        Self { task, state }
    }

    /// Drops the runtime's future.
    async fn kill(&mut self, state: u8) {
        self.state.store(state, Ordering::SeqCst);
        self.task.abort();
        let ended = (&mut self.task).await;
        assert!(ended.unwrap_err().is_cancelled());
    }
}

/// A world with two workers.
struct Stage {
    world: World,
    dice: Dice,
    executions: AllExecutions,
    workers: [Worker; 2],
    kills: Kills,
}

impl Stage {
    async fn new(seed: u64) -> Self {
        let world = World::new().await;
        world.server.lock().latency = SECOND / 50;
        let executions = AllExecutions::default();
        let workers = [0; 2].map(|_| Worker::start(&world, &executions));
        Self {
            world,
            dice: Dice::new(seed),
            executions,
            workers,
            kills: Kills::default(),
        }
    }

    fn below(&mut self, n: usize) -> usize {
        let n = u64::try_from(n).unwrap();
        usize::try_from(self.dice.below(n)).unwrap()
    }

    /// Waits for a random time of less than `millis` milliseconds.
    async fn pause(&mut self, millis: u64) {
        sleep(Duration::from_millis(self.dice.below(millis))).await;
    }

    /// Asks up to five questions.
    async fn ask(&mut self) {
        for _ in 0..self.below(6) {
            self.world.ask("echo");
            self.pause(300).await;
        }
    }

    /// Returns the same number of kills of each kind, in random order.
    fn plan(&mut self) -> Vec<Kill> {
        let mut plan = [Kill::Server, Kill::Stream, Kill::Worker].repeat(EACH);
        for at in (1..plan.len()).rev() {
            let other = self.below(at + 1);
            plan.swap(at, other);
        }
        plan
    }

    async fn kill(&mut self, kill: Kill) {
        match kill {
            Kill::Server => self.kill_server().await,
            Kill::Stream => {
                self.world.server.cut();
                self.kills.stream += 1;
            }
            Kill::Worker => self.kill_worker().await,
        }
    }

    /// Kills the server for up to a minute. Some of these kills follow a commit whose response is lost.
    async fn kill_server(&mut self) {
        let has_faults = |world: &World| !world.server.lock().faults.is_empty();
        if self.below(3) == 0 && !has_faults(&self.world) {
            let commit = Match("POST", "/breadcrumbs");
            self.world.server.fail(commit, Fault::DoAndClose);
            self.world.ask("echo");
            let lost = async {
                while has_faults(&self.world) {
                    sleep(SECOND / 100).await;
                }
            };
            let is_lost = timeout(10 * SECOND, lost).await.is_ok();
            self.kills.after_commit += usize::from(is_lost);
        }
        self.world.server.lock().is_down = true;
        self.world.server.cut();
        self.kills.server += 1;
        self.ask().await;
        self.pause(60_000).await;
        self.world.server.lock().is_down = false;
    }

    /// Kills a worker for some time, or both workers for up to three hours.
    async fn kill_worker(&mut self) {
        let at = self.below(2);
        self.end_worker(at).await;
        if self.below(4) == 0 {
            self.end_worker(1 - at).await;
            for _ in 0..self.below(5) {
                advance(Duration::from_millis(self.dice.below(3_600_000))).await;
                self.world.ask("echo");
            }
            self.start_worker(1 - at);
        } else {
            self.ask().await;
            self.pause(60_000).await;
        }
        self.start_worker(at);
    }

    async fn end_worker(&mut self, at: usize) {
        let state = [KILLED, KILLED_WITHOUT_LEDGER][self.below(2)];
        self.workers[at].kill(state).await;
        self.kills.worker += 1;
    }

    fn start_worker(&mut self, at: usize) {
        self.workers[at] = Worker::start(&self.world, &self.executions);
    }

    /// Waits until each question has an answer, and then some time for duplicates.
    async fn settle(&self) {
        let answered = async {
            while self.world.answered() < self.world.asked.len() {
                sleep(SECOND).await;
            }
        };
        let waited = timeout(PATIENCE, answered).await;
        let (answered, asked) = (self.world.answered(), self.world.asked.len());
        assert!(
            waited.is_ok(),
            "only {answered} of {asked} questions are answered"
        );
        sleep(600 * SECOND).await;
    }

    /// Returns the number of executions that ended with their worker.
    fn interrupted(&self) -> usize {
        let executions = self.executions.lock().unwrap();
        executions.values().map(|one| one.killed).sum()
    }

    /// Fails unless each question has one answer and one completed execution, and each other execution ended with its worker.
    fn judge(&self) {
        let answers = self.world.answers();
        let executions = self.executions.lock().unwrap();
        for asked in &self.world.asked {
            let of_question = executions[&asked.parse().unwrap()];
            let expected = Executions {
                completed: 1,
                killed: of_question.killed,
                dropped: 0,
            };
            assert_eq!(answers.get(asked), Some(&1), "{asked}");
            assert_eq!(of_question, expected, "{asked}");
        }
        let asked = self.world.asked.len();
        assert_eq!((answers.len(), executions.len()), (asked, asked));
        let state = self.world.server.lock();
        let letters = state
            .crumbs
            .newest_of(Some(&DeadLetter::SCHEMA.to_owned()), 0);
        assert_eq!(letters.count(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn more_than_a_hundred_kills_of_server_stream_and_two_workers_lose_and_duplicate_nothing() {
    for seed in seeds() {
        let mut stage = Stage::new(seed).await;
        for kill in stage.plan() {
            stage.ask().await;
            // About half of the kills interrupt the executions of these questions.
            let pause = [2_000, 30_000][stage.below(2)];
            stage.pause(pause).await;
            stage.kill(kill).await;
        }

        stage.settle().await;

        stage.judge();
        let kills = &stage.kills;
        let of_each_kind = [kills.server, kills.stream, kills.worker];
        let is_enough = of_each_kind.iter().all(|kills| *kills >= EACH);
        assert!(is_enough && kills.after_commit >= 4, "{seed}: {kills:?}");
        let interrupted = stage.interrupted();
        assert!(interrupted >= 10, "{seed}: {interrupted} executions");
    }
}
