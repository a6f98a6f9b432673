//! The agent of `examples/approvals.rs`, whose worker is killed at many moments and started again.
#[path = "../../examples/approvals.rs"]
#[expect(dead_code, reason = "the example has a main function of its own")]
mod program;

use crate::child::run_alone;
use crate::random::Random;
use futures::StreamExt as _;
use serde_json::json;
use std::collections::BTreeSet;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;
use tokio::time::timeout;
use universal_executor::client::{Client, Principal, RequestHandle};
use universal_executor::source::{Deliveries, StartAt};
use universal_executor::store::Durability;
use universal_executor::{
    BoxError, BreadcrumbStoreExt as _, EventSource as _, NewBreadcrumb, SqliteStore,
};

/// The test path of the worker process.
const WORKER: &str = concat!(module_path!(), "::worker_that_runs_until_it_is_killed");
const ENVIRONMENT: &str = "UNIVERSAL_EXECUTOR_APPROVALS";

/// Number of killed workers per round. A run that dies three times in a row would be a crash loop.
const KILLED: usize = 2;

/// Returns the number of rounds: a third of `APPROVAL_KILLS`.
fn rounds() -> usize {
    let kills = env::var("APPROVAL_KILLS").ok();
    kills
        .and_then(|kills| kills.parse::<usize>().ok())
        .unwrap_or(12)
        / KILLED
}

async fn open(folder: &Path) -> SqliteStore {
    let file = SqliteStore::builder(folder.join("approvals.db"));
    file.durability(Durability::Normal).open().await.unwrap()
}

/// The parent process, which sends requests and answers questions while workers start and are killed.
struct Office {
    folder: PathBuf,
    client: Client,
    events: Deliveries,
    requests: Vec<RequestHandle>,
    /// The idempotency keys of all payments.
    payments: BTreeSet<String>,
    lives: usize,
    random: Random,
}

impl Office {
    async fn send(&mut self) -> Result<(), BoxError> {
        let number = self.requests.len();
        let wish = NewBreadcrumb::new("user.message.v1")
            .context(json!({"message": "Pay Ann.", "n": number}));
        let request = self
            .client
            .request("accountant", wish)
            .key(format!("wish-{number}"));
        self.requests.push(request.send().await?);
        Ok(())
    }

    fn start(&mut self) -> Child {
        self.lives += 1;
        let told = format!("{} {}", self.lives, self.folder.display());
        let mut worker = run_alone(WORKER);
        worker
            .env(ENVIRONMENT, told)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Kills a worker, and reads its payments from its output.
    fn kill(&mut self, mut worker: Child) {
        worker.kill().unwrap();
        let output = worker.wait_with_output().unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        let keys = output
            .lines()
            .filter_map(|line| line.split_once(" with key "));
        self.payments.extend(keys.map(|(_, key)| key.to_owned()));
    }

    /// Runs a worker until it has written a number of breadcrumbs, has written none for some time, or all requests have their
    /// replies.
    async fn work(&mut self, breadcrumbs: usize, approves: bool) -> Result<(), BoxError> {
        const TICK: Duration = Duration::from_millis(20);
        const TICKS: usize = 50;
        let (mut written, mut ticks) = (0, 0);
        let is_last = breadcrumbs == usize::MAX;
        while written < breadcrumbs && (is_last || ticks < TICKS) && !self.has_all_replies().await?
        {
            ticks += 1;
            if approves {
                self.approve().await?;
            }
            if let Ok(delivery) = timeout(TICK, self.events.next()).await {
                let event = delivery.ok_or("the events ended")??.event;
                let schema = event.schema_name.as_deref();
                let is_own = matches!(schema, Some("human.request.v1" | "agent.response.v1"));
                written += usize::from(is_own);
            }
        }
        Ok(())
    }

    async fn approve(&self) -> Result<(), BoxError> {
        let (questions, ann) = (
            self.client.questions(),
            Principal::new("ann").with_role("finance"),
        );
        for question in questions.open_for(&ann).await? {
            questions.approve(&question.id, &ann).await?;
        }
        Ok(())
    }

    async fn has_all_replies(&self) -> Result<bool, BoxError> {
        for request in &self.requests {
            let run = self.client.run(request.run()).await?;
            if run.is_none_or(|run| !run.state.is_over()) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[tokio::test]
async fn an_agent_that_is_killed_asks_once_pays_once_and_replies_once() -> Result<(), BoxError> {
    let folder = env::temp_dir().join(format!(
        "universal-executor-approvals-{}",
        std::process::id()
    ));
    std::fs::create_dir_all(&folder)?;
    let store = open(&folder).await;
    let mut office = Office {
        folder: folder.clone(),
        client: Client::new(&store),
        events: store.events().subscribe(StartAt::Now).await?,
        requests: Vec::new(),
        payments: BTreeSet::new(),
        lives: 0,
        random: Random::new(1),
    };
    for _ in 0..rounds() {
        for _ in 0..2 {
            office.send().await?;
        }
        for _ in 0..KILLED {
            let worker = office.start();
            let (breadcrumbs, approves) = (office.random.below(4), office.random.below(3) > 0);
            // Without an approval, each request has one question and no reply.
            let breadcrumbs = breadcrumbs.min(if approves { 3 } else { 1 });
            let worked = office.work(breadcrumbs, approves).await;
            for _ in 0..office.random.below(20_000) {
                tokio::task::yield_now().await;
            }
            office.kill(worker);
            worked?;
        }
        let worker = office.start();
        let worked = office.work(usize::MAX, true).await;
        office.kill(worker);
        worked?;
    }

    let requests = office.requests.len();
    for request in &office.requests {
        let reply = request.wait(Duration::from_secs(10)).await?;
        let response = reply.response().ok_or("no response")?;
        assert_eq!(response.context.text("message"), Some("Settled."));
    }
    for schema in ["human.request.v1", "human.response.v1", "agent.response.v1"] {
        assert_eq!(
            store.recent(schema, 1_000).await?.len(),
            requests,
            "{schema}"
        );
    }
    assert_eq!(store.recent("executor.failed.v1", 10).await?, []);
    assert_eq!(
        office.payments.len(),
        requests,
        "all repetitions of a payment must have the same key"
    );
    drop(office);
    store.close().await;
    Ok(std::fs::remove_dir_all(folder)?)
}

/// The worker process that [`an_agent_that_is_killed_asks_once_pays_once_and_replies_once`] starts and kills. It does nothing by itself.
#[tokio::test]
async fn worker_that_runs_until_it_is_killed() -> Result<(), BoxError> {
    let Ok(told) = env::var(ENVIRONMENT) else {
        return Ok(());
    };
    let (life, folder) = told.split_once(' ').ok_or("no folder")?;
    let store = open(Path::new(folder)).await;
    // Each life starts after the leases of all earlier lives, so that no run waits for these leases.
    store.advance_clock(Duration::from_secs(31) * life.parse()?);
    program::worker(&store).run_until_signal().await?;
    Ok(())
}
