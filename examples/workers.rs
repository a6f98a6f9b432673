//! Four worker processes that share PostgreSQL and NATS. Kill any of them: no answer is lost or duplicated.
//!
//! ```text
//! eval "export $(scripts/services start | tr '\n' ' ')"      # or use compose.yaml, which has the same services
//! cargo run --example workers --features postgres,nats        # kill the printed process IDs with kill -9
//! cargo run --example workers --features postgres,nats -- --kill
//! ```
//!
//! This process writes 400 questions (`--questions 1000`) and starts four workers (`--workers 8`), which are processes of the same
//! program. Each worker claims due runs, independently of the others. If a worker is killed, another worker continues its runs after their
//! leases expire, here after 2 s. A run that loses three workers in a row fails. With `--kill` the program kills half of the workers, and
//! with `--restart` it replaces ended workers. `SERVICE_SECONDS` sets the timeout in seconds, at least 30, and reduces the number of
//! questions to 100.

#![expect(clippy::print_stdout, reason = "the output is the point of an example")]

use futures::FutureExt as _;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::Read as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use universal_executor::source::{FallbackSource, NatsRelay, NatsSource, StartAt};
use universal_executor::store::{DeadLetter, Query, RunState, Write};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbId, BreadcrumbStore, EventSource as _, ExecutionContext,
    NewBreadcrumb, PostgresStore, Profile, Response, Runtime, Selector, Subscription,
    Subscriptions, UniversalExecutor, async_trait,
};

const LEASE: Duration = Duration::from_secs(2);
/// Duration of the work on one question.
const WORK: Duration = Duration::from_millis(100);
/// Name of the database schema, and of the tenant on the NATS server. The data stays there for the next start.
const PLACE: &str = "ux_example_workers";

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let (Ok(postgres), Ok(nats)) = (env::var("POSTGRES_URL"), env::var("NATS_URL")) else {
        println!(
            "Set POSTGRES_URL and NATS_URL: `scripts/services start` starts both and prints them,"
        );
        println!(
            "and `docker compose up --wait` starts both from compose.yaml, which has their URLs."
        );
        return Ok(());
    };
    let store = PostgresStore::builder(postgres)
        .schema(PLACE)
        .connections(8);
    let store = store.connect().await?;
    match option("--worker") {
        Some(name) => work(store, &nats, name).await,
        None => watch(&store, &nats).await,
    }
}

/// Runs a worker: an executor, the events of the store, and a relay that publishes these events on NATS.
async fn work(store: PostgresStore, nats: &str, name: String) -> Result<(), BoxError> {
    let relay = NatsRelay::connect(nats, PLACE).await?;
    let quick = NatsSource::builder(nats, PLACE)
        .group("workers")
        .connect()
        .await?;
    let source = FallbackSource::new(quick, store.events_of("workers")).ask_every(5 * LEASE);
    let answers = Answers {
        subscriptions: Subscriptions::new([Subscription::trigger("question.v1")])?,
        profile: Profile::new("answers").lease(LEASE),
        store: store.clone(),
        name,
    };
    let runtime = Runtime::builder(source)
        .start_at(StartAt::Beginning) // for the first start; later, PostgreSQL and NATS have the position of the group
        .executor(answers)
        .max_inflight(4)
        .sweep_every(LEASE / 2)
        .build()?;
    tokio::select! {
        ended = relay.run(store.events_of("nats")) => ended?,
        ended = runtime.run_until(parent_is_gone()) => drop(ended?),
    }
    Ok(())
}

/// Resolves when the parent process ends or closes the pipe.
fn parent_is_gone() -> impl Future<Output = ()> {
    let (sender, gone) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        // The parent writes nothing, so the read returns when the pipe is closed.
        drop(std::io::stdin().read(&mut [0]));
        drop(sender);
    });
    gone.map(drop)
}

struct Answers {
    subscriptions: Subscriptions,
    profile: Profile,
    store: PostgresStore,
    name: String,
}

#[async_trait]
impl UniversalExecutor for Answers {
    fn id(&self) -> &str {
        "answers"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn execute(&self, asked: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        sleep(WORK).await;
        Ok(json!({"number": asked.context.get("number"), "by": self.name}))
    }

    async fn respond(&self, asked: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        let answer = NewBreadcrumb::new("answer.v1").tags(asked.tags.iter().cloned());
        Ok(Response::create(answer.context(output)))
    }
}

/// Writes the questions, starts the workers and prints the progress.
async fn watch(store: &PostgresStore, nats: &str) -> Result<(), BoxError> {
    let limit = env::var("SERVICE_SECONDS").ok();
    let questions = number("--questions", if limit.is_some() { 100 } else { 400 })?;
    let patience = match limit {
        Some(seconds) => Duration::from_secs(seconds.parse::<u64>()?.max(30)),
        None => Duration::from_secs(600),
    };
    let batch = format!("batch:{}-{}", std::process::id(), store_time(store).await?);
    let asked = ask(store, &batch, questions).await?;
    let mut crew = Crew::start(number("--workers", 4)?)?;
    let group = NatsSource::builder(nats, PLACE).group("workers");
    let (group, relayed) = (group.connect().await?, store.events_of("nats"));
    let started = Instant::now();
    loop {
        let answers = answers(store, &batch).await?;
        let given_up = given_up(store, &asked).await?;
        let waiting = store.stats().await?.runs.get(&RunState::Ready).copied();
        let behind = [relayed.behind().await, group.behind().await];
        let [to_relay, to_take] = behind.map(|behind| behind.ok().flatten().unwrap_or_default());
        println!(
            "{:>3} s | {} | answered {} of {questions}, failed {given_up}; waiting: {} runs, {to_relay} events to relay, {to_take} to receive",
            started.elapsed().as_secs(),
            crew.line(&answers)?,
            answers.len(),
            waiting.unwrap_or_default(),
        );
        if answers.len() + given_up >= questions {
            return check(&answers, given_up, questions);
        }
        if started.elapsed() > patience {
            return Err("timed out; set SERVICE_SECONDS to a higher value".into());
        }
        if crew.alive()?.is_empty() {
            return Err(
                "all workers have ended; start the program again, with --restart to replace ended workers".into(),
            );
        }
        if flag("--kill") {
            crew.kill_one(answers.len())?;
        }
        if flag("--restart") {
            crew.restart()?;
        }
        sleep(Duration::from_secs(1)).await;
    }
}

/// Returns the number of questions whose run failed. Each failed run leaves a dead letter.
async fn given_up(
    store: &PostgresStore,
    asked: &BTreeSet<BreadcrumbId>,
) -> Result<usize, BoxError> {
    let query = Query::new(Selector::schema(DeadLetter::SCHEMA)).limit(100_000);
    let letters = store.search(&query).await?;
    let runs = letters
        .iter()
        .filter_map(|letter| DeadLetter::run_of(letter));
    Ok(runs.filter(|run| asked.contains(&run.trigger_id)).count())
}

/// Returns the time of the newest breadcrumb, which distinguishes batches of processes with the same ID.
async fn store_time(store: &PostgresStore) -> Result<i64, BoxError> {
    let newest = store.search(&Query::new(Selector::any()).limit(1)).await?;
    Ok(newest
        .first()
        .map_or(0, |newest| newest.updated_at.as_micros()))
}

async fn ask(
    store: &PostgresStore,
    batch: &str,
    questions: usize,
) -> Result<BTreeSet<BreadcrumbId>, BoxError> {
    let mut ids = BTreeSet::new();
    let numbers: Vec<usize> = (1..=questions).collect();
    for some in numbers.chunks(100) {
        let asked = some.iter().map(|number| {
            let question = NewBreadcrumb::new("question.v1").tag(batch);
            Write::Create(question.context(json!({"number": number})))
        });
        let committed = store.commit(asked.collect::<Vec<_>>().into()).await?;
        ids.extend(committed.ids());
    }
    Ok(ids)
}

/// Returns the workers that answered each question, by question number.
async fn answers(
    store: &PostgresStore,
    batch: &str,
) -> Result<BTreeMap<u64, Vec<String>>, BoxError> {
    let query = Query::new(Selector::schema("answer.v1").any_tags([batch])).limit(100_000);
    let mut answers: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for answer in store.search(&query).await? {
        let number = answer.context.get("number").and_then(Value::as_u64);
        let by = answer.context.text("by").unwrap_or_default().to_owned();
        answers
            .entry(number.ok_or("an answer has no question number")?)
            .or_default()
            .push(by);
    }
    Ok(answers)
}

fn check(
    answers: &BTreeMap<u64, Vec<String>>,
    given_up: usize,
    questions: usize,
) -> Result<(), BoxError> {
    let twice: Vec<&u64> = answers
        .iter()
        .filter_map(|(number, by)| (by.len() > 1).then_some(number))
        .collect();
    let answered = answers.len();
    if answered + given_up != questions || !twice.is_empty() {
        return Err(format!(
            "{answered} of {questions} questions were answered, and these twice: {twice:?}"
        )
        .into());
    }
    println!("{questions} questions, {answered} answers without duplicates, {given_up} failed");
    Ok(())
}

/// The worker processes, including ended ones.
struct Crew {
    workers: Vec<(String, Child)>,
    size: usize,
    /// Number of workers that this process killed.
    killed: usize,
    /// Number of answers at the last kill.
    answers: usize,
}

impl Crew {
    fn start(size: usize) -> Result<Self, BoxError> {
        let mut crew = Self {
            workers: Vec::new(),
            size,
            killed: 0,
            answers: 0,
        };
        for _ in 0..size {
            crew.add()?;
        }
        Ok(crew)
    }

    fn add(&mut self) -> Result<(), BoxError> {
        let name = format!("w{}", self.workers.len() + 1);
        let child = Command::new(env::current_exe()?)
            .args(["--worker", &name])
            .stdin(Stdio::piped())
            .spawn()?;
        self.workers.push((name, child));
        Ok(())
    }

    /// Returns the state and the number of answers of each worker.
    fn line(&mut self, answers: &BTreeMap<u64, Vec<String>>) -> Result<String, BoxError> {
        let mut parts = Vec::new();
        for (name, child) in &mut self.workers {
            let done = answers.values().flatten().filter(|by| *by == name).count();
            let state = match child.try_wait()? {
                None => format!("pid {}", child.id()),
                Some(_) => "ended".to_owned(),
            };
            parts.push(format!("{name} ({state}): {done}"));
        }
        Ok(parts.join("  "))
    }

    fn alive(&mut self) -> Result<Vec<&mut Child>, BoxError> {
        let mut alive = Vec::new();
        for (_, child) in &mut self.workers {
            if child.try_wait()?.is_none() {
                alive.push(child);
            }
        }
        Ok(alive)
    }

    /// Kills the oldest worker, if there were answers since the last kill.
    fn kill_one(&mut self, answers: usize) -> Result<(), BoxError> {
        if answers > self.answers && self.killed < self.size / 2 {
            (self.killed, self.answers) = (self.killed + 1, answers);
            if let Some(oldest) = self.alive()?.first_mut() {
                oldest.kill()?;
                oldest.wait()?;
            }
        }
        Ok(())
    }

    /// Starts a worker if one has ended.
    fn restart(&mut self) -> Result<(), BoxError> {
        match self.alive()?.len() < self.size {
            true => self.add(),
            false => Ok(()),
        }
    }
}

impl Drop for Crew {
    /// Closes the pipes, so the workers finish their running work and end, and waits for them.
    fn drop(&mut self) {
        for (_, child) in &mut self.workers {
            drop(child.stdin.take());
        }
        for (_, child) in &mut self.workers {
            drop(child.wait());
        }
    }
}

fn flag(name: &str) -> bool {
    env::args().any(|argument| argument == name)
}

fn option(name: &str) -> Option<String> {
    env::args().skip_while(|argument| argument != name).nth(1)
}

fn number(name: &str, otherwise: usize) -> Result<usize, BoxError> {
    Ok(option(name).map_or(Ok(otherwise), |number| number.parse())?)
}
