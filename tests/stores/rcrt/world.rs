//! A server and workers with one ledger. Time is paused, also on the server.

use super::OWNER;
use super::server::{Server, token_of};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::{sleep, timeout};
use universal_executor::source::StartAt;
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbId, BreadcrumbStore, ExecutionContext, MemoryStore,
    NewBreadcrumb, RcrtStore, Response, Runtime, Secret, Subscription, Subscriptions,
    UniversalExecutor, WithLedger, async_trait,
};

pub(super) const SECOND: Duration = Duration::from_secs(1);
pub(super) const HOUR: Duration = Duration::from_secs(60 * 60);
pub(super) const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A time limit that no passing test reaches, on the server's clock and the worker's clock.
pub(super) const PATIENCE: Duration = Duration::from_secs(2 * 60 * 60);

type Executed = Arc<Mutex<BTreeMap<BreadcrumbId, usize>>>;

/// An executor that answers each of its questions and counts its executions.
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

/// A server, its workers' ledger, and the workers' executions.
pub(super) struct World {
    pub(super) server: Server,
    pub(super) ledger: MemoryStore,
    executed: Executed,
    pub(super) asked: Vec<String>,
    answers: Mutex<Answers>,
}

/// The answers on the server, and the number of breadcrumbs that were already counted.
#[derive(Default)]
struct Answers {
    counted: usize,
    by_question: BTreeMap<String, usize>,
}

impl World {
    pub(super) async fn new() -> Self {
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
            answers: Mutex::default(),
        }
    }

    pub(super) fn worker(&self, id: &'static str) -> Runtime {
        self.worker_of(&[id])
    }

    /// Creates a worker whose executors share one store handle.
    pub(super) fn worker_of(&self, ids: &[&'static str]) -> Runtime {
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

    pub(super) fn ask(&mut self, of: &str) -> String {
        let new = json!({"schema_name": "question.v1", "context": {"for": of}});
        let id = self.server.put(OWNER, &new);
        self.asked.push(id.clone());
        id
    }

    /// Asks a question for which no executor exists.
    pub(super) fn ask_nobody(&self) {
        let other = json!({"schema_name": "question.v1", "context": {"for": "nobody"}});
        self.server.put(OWNER, &other);
    }

    /// Counts new answers, so that tests can poll often at low cost.
    fn count(&self) -> MutexGuard<'_, Answers> {
        let mut answers = self.answers.lock().unwrap();
        let state = self.server.lock();
        for found in state.crumbs.created_after(answers.counted) {
            answers.counted += 1;
            if found["schema_name"] == "answer.v1" {
                let to = found["context"]["to"].as_str().unwrap().to_owned();
                *answers.by_question.entry(to).or_default() += 1;
            }
        }
        drop(state);
        answers
    }

    /// Returns the number of answers per question.
    pub(super) fn answers(&self) -> BTreeMap<String, usize> {
        self.count().by_question.clone()
    }

    /// Returns the number of questions with an answer.
    pub(super) fn answered(&self) -> usize {
        self.count().by_question.len()
    }

    pub(super) fn is_answered(&self, question: &str) -> bool {
        self.count().by_question.contains_key(question)
    }

    /// Runs a worker until all questions have an answer.
    pub(super) async fn run_until_answered(&self, worker: &Runtime) {
        let answered = async {
            while self.answered() < self.asked.len() {
                sleep(SECOND).await;
            }
        };
        let run = timeout(PATIENCE, worker.run_until(answered)).await;
        let answers = self.answered();
        run.unwrap_or_else(|_| panic!("{answers} of {} questions are answered", self.asked.len()))
            .unwrap();
    }

    /// Fails unless each question has one answer and was executed once.
    pub(super) fn judge(&self) {
        let answers = self.answers();
        for asked in &self.asked {
            assert_eq!(answers.get(asked), Some(&1), "{asked}");
        }
        assert_eq!(answers.len(), self.asked.len());
        let executed = self.executed.lock().unwrap();
        assert!(executed.values().all(|times| *times == 1), "{executed:?}");
    }
}
