//! A server with questions, and the workers that answer them.

use super::oracle::Oracle;
use crate::rcrt::OWNER;
use crate::rcrt::server::{Dice, Server, Weather};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep};
use universal_executor::executor::RetryPolicy;
use universal_executor::store::DeadLetter;
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, ExecutionContext, NewBreadcrumb, Profile, RcrtStore,
    Response, Runtime, Subscription, Subscriptions, UniversalExecutor, async_trait,
};

/// Time limit for a campaign's end.
const MAX_WAIT: Duration = Duration::from_secs(240);

/// Maximum number of questions that a worker executes at the same time.
pub(super) const INFLIGHT: usize = 8;

/// A server, a folder that is deleted with it, and the questions so far.
pub(super) struct Harness {
    pub(super) server: Server,
    pub(super) oracle: Oracle,
    pub(super) dice: Dice,
    folder: PathBuf,
    seed: u64,
    questions: Vec<String>,
}

impl Harness {
    pub(super) async fn new(name: &str, seed: u64, weather: Weather) -> Self {
        let name = format!(
            "universal-executor-rcrt-{name}-{seed}-{}",
            std::process::id()
        );
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let server = Server::start().await;
        {
            let mut state = server.lock();
            (state.weather, state.dice) = (weather, Dice::new(seed));
        }
        Self {
            server,
            oracle: Oracle::at(&folder.join("oracle")),
            dice: Dice::new(!seed),
            folder,
            seed,
            questions: Vec::new(),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub(super) fn questions(&self) -> usize {
        self.questions.len()
    }

    /// Asks this number of questions with short pauses.
    pub(super) async fn ask(&mut self, questions: usize) {
        for _ in 0..questions {
            let new = json!({"schema_name": "question.v1", "context": {"n": self.questions.len()}});
            self.questions.push(self.server.put(OWNER, &new));
            self.pause(4).await;
        }
    }

    /// Waits for a random time of at most `millis` milliseconds.
    pub(super) async fn pause(&mut self, millis: u64) {
        sleep(Duration::from_millis(self.dice.below(millis + 1))).await;
    }

    /// Waits until each question has an outcome. Fails if questions are still open after [`MAX_WAIT`].
    pub(super) async fn wait_until_idle(&self) {
        let end = Instant::now() + MAX_WAIT;
        loop {
            let open = self.open();
            if open.is_empty() {
                return;
            }
            let (seed, questions, first) = (self.seed, self.questions.len(), open.first());
            let many = open.len();
            assert!(
                Instant::now() < end,
                "seed {seed}: {many} of {questions} without an outcome: {first:?} and later"
            );
            sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns the questions without a complete answer and without a dead letter.
    fn open(&self) -> Vec<&String> {
        let (answers, parts, letters) = (
            self.count("answer.v1", "to"),
            self.count("part.v1", "to"),
            self.count(DeadLetter::SCHEMA, "trigger_id"),
        );
        let is_open = |(n, id): &(usize, &String)| {
            let whole = answers.contains_key(*id) && (!has_parts(*n) || parts.contains_key(*id));
            !whole && !letters.contains_key(*id)
        };
        let open = self.questions.iter().enumerate().filter(is_open);
        open.map(|(_, id)| id).collect()
    }

    /// Fails unless each question has either one complete answer or one dead letter. Returns the classes of the dead letters.
    pub(super) fn judge(&self) -> Vec<String> {
        let seed = self.seed;
        let (answers, parts, letters) = (
            self.count("answer.v1", "to"),
            self.count("part.v1", "to"),
            self.count(DeadLetter::SCHEMA, "trigger_id"),
        );
        for (n, id) in self.questions.iter().enumerate() {
            let of = |found: &BTreeMap<String, usize>| found.get(id).copied().unwrap_or(0);
            let whole = (1, usize::from(has_parts(n)), 0);
            let found = (of(&answers), of(&parts), of(&letters));
            assert!(
                found == whole || found == (0, 0, 1),
                "seed {seed}: question {n} has {found:?}"
            );
        }
        for id in answers.keys().chain(parts.keys()).chain(letters.keys()) {
            assert!(
                self.questions.contains(id),
                "seed {seed}: {id} is not a question of this campaign"
            );
        }
        self.classes()
    }

    /// Returns the class of each dead letter.
    fn classes(&self) -> Vec<String> {
        let state = self.server.lock();
        let found = state.crumbs.newest_first();
        let letters = found.filter(|found| found["schema_name"] == DeadLetter::SCHEMA);
        letters
            .map(|letter| letter["context"]["class"].as_str().unwrap().to_owned())
            .collect()
    }

    /// Returns the number of breadcrumbs of a schema per question.
    fn count(&self, schema: &str, field: &str) -> BTreeMap<String, usize> {
        let state = self.server.lock();
        let mut count = BTreeMap::new();
        for found in state.crumbs.newest_first() {
            if found["schema_name"] == schema {
                let id = found["context"][field].as_str().unwrap().to_owned();
                *count.entry(id).or_default() += 1;
            }
        }
        count
    }
}

impl Drop for Harness {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            std::fs::remove_dir_all(&self.folder).unwrap();
        }
    }
}

/// Returns `true` for every fourth question, whose answer is two breadcrumbs.
fn has_parts(n: usize) -> bool {
    n.is_multiple_of(4)
}

/// Creates a store on the server with the owner's token, short timeouts and frequent searches for missing events.
pub(super) fn store(url: &str) -> RcrtStore {
    RcrtStore::builder(url, OWNER)
        .token(universal_executor::Secret::new(
            crate::rcrt::server::token_of(OWNER),
        ))
        .lookup_timeout(Duration::from_millis(100))
        .retry_pause(Duration::from_millis(1), Duration::from_millis(5))
        .reconnect(Duration::from_millis(5), Duration::from_millis(50))
        .check_every(Duration::from_millis(50))
        .watchdog(Duration::from_secs(30))
        .build()
        .unwrap()
}

/// Creates a runtime that answers questions and sweeps the store five times per second.
pub(super) fn runtime<S: BreadcrumbStore>(
    server: &RcrtStore,
    store: S,
    oracle: &Path,
    lease: Duration,
) -> universal_executor::runtime::RuntimeBuilder {
    Runtime::builder(server.events())
        .executor(Echo::on(store, Oracle::at(oracle), lease))
        .max_inflight(INFLIGHT)
        .sweep_every(Duration::from_millis(100))
        .reconcile_every(Duration::from_millis(200))
}

/// An executor that answers every question and records its executions.
pub(super) struct Echo<S> {
    subscriptions: Subscriptions,
    profile: Profile,
    store: S,
    oracle: Arc<Oracle>,
}

impl<S: BreadcrumbStore> Echo<S> {
    fn on(store: S, oracle: Oracle, lease: Duration) -> Self {
        let mut retry = RetryPolicy::default();
        (retry.attempts, retry.base) = (10, Duration::from_millis(50));
        Self {
            subscriptions: Subscriptions::new([Subscription::trigger("question.v1")]).unwrap(),
            profile: Profile::new("tool").lease(lease).retry(retry),
            store,
            oracle: Arc::new(oracle),
        }
    }
}

#[async_trait]
impl<S: BreadcrumbStore> UniversalExecutor for Echo<S> {
    fn id(&self) -> &str {
        "echo"
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &self.store
    }

    async fn execute(&self, trigger: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        self.oracle.begins(trigger.id);
        let n = trigger.context["n"].as_u64().unwrap();
        sleep(Duration::from_millis(20 + n % 40)).await;
        self.oracle.ends(trigger.id);
        Ok(json!({"to": trigger.id, "n": n}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        let n = usize::try_from(output["n"].as_u64().unwrap())?;
        let answer = Response::create(NewBreadcrumb::new("answer.v1").context(output.clone()));
        Ok(match has_parts(n) {
            true => answer.and_create(NewBreadcrumb::new("part.v1").context(output)),
            false => answer,
        })
    }
}
