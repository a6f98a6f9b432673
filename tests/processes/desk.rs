//! The support desk of `examples/sqlite.rs`, killed at many moments and started again.
//!
//! The desk runs in separate processes: this test executable starts itself again with the one test that is the desk. Cargo gives a test
//! no path of an example, and builds no example for `--test processes`. The example's file is therefore a module of this test, so
//! the killed code is the example's code.
#[path = "../../examples/sqlite.rs"]
#[expect(dead_code, reason = "the desk has a main function of its own")]
mod program;

use crate::child::run_alone;
use futures::FutureExt as _;
use program::{all_answered, question};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use universal_executor::model::{Json, Timestamp};
use universal_executor::source::StartAt;
use universal_executor::store::{
    Cancelled, Capabilities, Claim, ClaimId, Claimed, Commit, Committed, Durability,
    ExecutorLimits, KeyPosition, Lease, Lost, NewRequest, NewRun, PausedExecutor, Query, Requested,
    Run, RunFilter, RunPage, RunQuery, RunRef, RunState, Scored, StoreError, StoreId, VectorQuery,
    Worker, WorkerRecord, WrittenBy,
};
use universal_executor::{
    Breadcrumb, BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, RunLedger, Runtime, Selector,
    SqliteStore, async_trait,
};

/// The test path of the worker process.
const WORKER: &str = concat!(module_path!(), "::desk_that_works_until_it_is_killed");

/// The parameters of a life: the folder, the number of earlier lives, the total number of questions to answer, and the kill.
#[derive(Clone, Copy)]
struct Life<'a> {
    folder: &'a Path,
    number: usize,
    questions: usize,
    death: Option<Death>,
}

/// The store call and its moment at which a life is killed. Calls count from 1.
#[derive(Clone, Copy, Debug, Default)]
struct Death {
    call: usize,
    moment: usize,
    /// If `true`, only commits count. They are rare, and their loss has the greatest effect.
    at_commit: bool,
}

/// Number of moments of a call: before it, after its start, and after its answer.
const MOMENTS: usize = 3;
const QUESTIONS_A_ROUND: usize = 2;
/// Commits per round. Each question has four: the question, two tools and the agent's answer.
const COMMITS: usize = 4 * QUESTIONS_A_ROUND;
const ROUNDS: usize = COMMITS * MOMENTS;
/// The line that the process prints when it must be killed.
const KILL_ME: &str = "kill me now";
const ENVIRONMENT: &str = "UNIVERSAL_EXECUTOR_DESK";

/// Each round has new questions and two killed lives. No run therefore dies three times in a row, which would be a crash loop, and all
/// runs end as done.
#[test]
fn a_desk_that_is_killed_at_any_moment_answers_every_question_once() {
    let folder = env::temp_dir().join(format!("universal-executor-desk-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut killed = 0;
    for round in 0..ROUNDS {
        let questions = (round + 1) * QUESTIONS_A_ROUND;
        // The first kill is before, during or after a commit, and the second one at any call.
        let early = Death {
            call: 1 + round % COMMITS,
            moment: round / COMMITS,
            at_commit: true,
        };
        let late = Death {
            call: 1 + round * 11 % 26,
            moment: round % MOMENTS,
            at_commit: false,
        };
        for (part, death) in [Some(early), Some(late), None].into_iter().enumerate() {
            let number = 3 * round + part;
            killed += usize::from(live(Life {
                folder: &folder,
                number,
                questions,
                death,
            }));
        }
    }

    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(check(&folder, ROUNDS * QUESTIONS_A_ROUND));
    assert!(killed >= ROUNDS, "only {killed} lives were killed");
    fs::remove_dir_all(folder).unwrap();
}

/// Checks that the desk answered each question once and opened one ticket for it.
async fn check(folder: &Path, questions: usize) {
    let store = SqliteStore::open(folder.join("desk.db")).await.unwrap();
    let of = async |schema: &str| store.recent(schema, 1_000).await.unwrap();

    let mut answers: BTreeMap<String, usize> =
        (1..=questions).map(|n| (format!("q-{n}"), 0)).collect();
    for answer in of("agent.response.v1").await {
        *answers.get_mut(answer.tag("request:").unwrap()).unwrap() += 1;
        assert_eq!(answer.context.text("status"), Some("success"), "{answer:?}");
    }
    assert!(answers.values().all(|n| *n == 1), "{answers:?}");
    let tools = of("tool.response.v1").await;
    assert_eq!(tools.len(), 2 * questions);
    assert!(
        tools
            .iter()
            .all(|told| told.context.text("status") == Some("success")),
        "{tools:?}"
    );
    assert_eq!(of("executor.failed.v1").await, []);

    let rows = store.runs(&RunFilter::all()).await.unwrap();
    assert_eq!(
        rows.iter()
            .filter(|row| row.state == RunState::Done)
            .count(),
        3 * questions
    );
    assert!(rows.iter().all(|row| row.state.is_over()), "{rows:?}");

    let mut tickets: Vec<String> = fs::read_dir(folder.join("tickets"))
        .unwrap()
        .map(|ticket| fs::read_to_string(ticket.unwrap().path()).unwrap())
        .map(|text| text.split('"').nth(1).unwrap().to_owned())
        .collect();
    tickets.sort();
    assert_eq!(
        tickets,
        answers.into_keys().collect::<Vec<_>>(),
        "each question must have one ticket"
    );
}

/// Starts the desk and kills it on its request. Returns `true` if it was killed.
fn live(life: Life<'_>) -> bool {
    let Life {
        folder,
        number,
        questions,
        death,
    } = life;
    let Death {
        call,
        moment,
        at_commit,
    } = death.unwrap_or_default();
    let mut child = run_alone(WORKER)
        .env(
            ENVIRONMENT,
            format!(
                "{number} {questions} {call} {moment} {} {}",
                usize::from(at_commit),
                folder.display()
            ),
        )
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let is_killed = lines.any(|line| line.unwrap().contains(KILL_ME));
    if is_killed {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    assert!(
        is_killed || status.success(),
        "life {number} ended with {status}"
    );
    is_killed
}

/// The desk process that [`a_desk_that_is_killed_at_any_moment_answers_every_question_once`] starts and kills. It does nothing by itself.
#[tokio::test]
async fn desk_that_works_until_it_is_killed() {
    let Ok(told) = env::var(ENVIRONMENT) else {
        return;
    };
    let mut told = told.splitn(6, ' ');
    let [number, questions, call, moment, at_commit] =
        std::array::from_fn(|_| told.next().unwrap().parse::<usize>().unwrap());
    let folder = PathBuf::from(told.next().unwrap());
    let file = SqliteStore::builder(folder.join("desk.db")).durability(Durability::Normal);
    let store = file.open().await.unwrap();
    // Each life starts after the leases of all earlier lives, so that no run waits for these leases.
    store.advance_clock(Duration::from_secs(60) * u32::try_from(number).unwrap());
    let doomed = Arc::new(Doomed {
        store: store.clone(),
        calls: AtomicUsize::new(0),
        death: Death {
            call,
            moment,
            at_commit: at_commit == 1,
        },
    });
    for n in 1..=questions {
        let asked =
            Query::new(Selector::schema("user.message.v1").all_tags([format!("request:q-{n}")]));
        if store.search(&asked).await.unwrap().is_empty() {
            doomed.create(question(n)).await.unwrap();
        }
    }
    let runtime = Runtime::builder(store.events_of("desk"))
        .start_at(StartAt::Beginning)
        .executors(program::desk(&doomed, &folder, Duration::ZERO).unwrap())
        .build()
        .unwrap();

    let answered = async { all_answered(&store, questions).await.unwrap() };
    let answered = tokio::time::timeout(Duration::from_secs(60), runtime.run_until(answered));

    answered.await.unwrap().unwrap();
}

/// A store wrapper that stops its process at a planned call, where the parent process kills it.
#[derive(Debug)]
struct Doomed {
    store: SqliteStore,
    calls: AtomicUsize,
    death: Death,
}

impl Doomed {
    async fn call<T>(&self, call: impl Future<Output = T> + Send) -> T {
        if self.death.at_commit {
            return call.await;
        }
        self.counted(call).await
    }

    /// Executes a call during which the process may be killed.
    async fn counted<T>(&self, call: impl Future<Output = T> + Send) -> T {
        if self.calls.fetch_add(1, Ordering::Relaxed) + 1 != self.death.call {
            return call.await;
        }
        let mut call = Box::pin(call);
        match self.death.moment {
            0 => {}
            // The writer thread receives the work, and may be at any point of it during the kill.
            1 => drop(call.as_mut().now_or_never()),
            _ => drop(call.await),
        }
        let mut out = std::io::stdout();
        writeln!(out, "{KILL_ME}").unwrap();
        std::future::pending().await
    }
}

#[async_trait]
impl BreadcrumbStore for Doomed {
    fn tenant(&self) -> &str {
        self.store.tenant()
    }

    fn identity(&self) -> StoreId {
        self.store.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.call(self.store.get(id)).await
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        self.call(self.store.search(query)).await
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        self.call(self.store.vector_search(query)).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.counted(self.store.commit(commit)).await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        Some(self)
    }
}

#[async_trait]
impl RunLedger for Doomed {
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError> {
        self.call(self.store.enqueue(runs)).await
    }

    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError> {
        self.call(self.store.claim(run, instead_of)).await
    }

    async fn claim_next(
        &self,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Vec<Claimed>, StoreError> {
        self.call(self.store.claim_next(n, of, id)).await
    }

    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError> {
        self.call(self.store.heartbeat(leases)).await
    }

    async fn retry(
        &self,
        lease: Lease,
        at: Timestamp,
        counts: bool,
        cause: Option<&str>,
    ) -> Result<(), StoreError> {
        self.call(self.store.retry(lease, at, counts, cause)).await
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.call(self.store.release(lease)).await
    }

    async fn transfer(
        &self,
        lease: Lease,
        version: &str,
        until: Timestamp,
        position: KeyPosition,
    ) -> Result<(), StoreError> {
        self.call(self.store.transfer(lease, version, until, position))
            .await
    }

    async fn accept_transfers(
        &self,
        versions: &[(Arc<str>, Arc<str>)],
    ) -> Result<usize, StoreError> {
        self.store.accept_transfers(versions).await
    }

    async fn record_worker(&self, worker: &WorkerRecord) -> Result<(), StoreError> {
        self.store.record_worker(worker).await
    }

    async fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        self.store.workers().await
    }

    async fn save_positions(&self, positions: &[(Arc<str>, Vec<u8>)]) -> Result<(), StoreError> {
        self.store.save_positions(positions).await
    }

    async fn positions(&self, executors: &[Arc<str>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.store.positions(executors).await
    }

    async fn save(&self, lease: &Lease, state: Json) -> Result<(), StoreError> {
        self.call(self.store.save(lease, state)).await
    }

    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError> {
        self.call(self.store.resume(run, with)).await
    }

    async fn redo(&self, run: &RunRef) -> Result<(), StoreError> {
        self.call(self.store.redo(run)).await
    }

    async fn cancel(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        self.call(self.store.cancel(run)).await
    }

    async fn enqueue_cancelled(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        self.call(self.store.enqueue_cancelled(run)).await
    }

    async fn skip(&self, run: &RunRef) -> Result<(), StoreError> {
        self.call(self.store.skip(run)).await
    }

    async fn pause_executor(&self, executor: &str) -> Result<bool, StoreError> {
        self.call(self.store.pause_executor(executor)).await
    }

    async fn resume_executor(&self, executor: &str) -> Result<bool, StoreError> {
        self.call(self.store.resume_executor(executor)).await
    }

    async fn paused_executors(&self) -> Result<Vec<PausedExecutor>, StoreError> {
        self.store.paused_executors().await
    }

    async fn request(&self, request: NewRequest) -> Result<Requested, StoreError> {
        self.call(self.store.request(request)).await
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        self.call(self.store.runs(filter)).await
    }

    async fn runs_page(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
        self.store.runs_page(query).await
    }

    async fn written_by(
        &self,
        versions: &[(BreadcrumbId, u64)],
    ) -> Result<Vec<WrittenBy>, StoreError> {
        self.store.written_by(versions).await
    }
}
