//! Limits of concurrency, limits of the start rate, and fairness between executors.

use crate::runtime_order::harness::{
    ExecutionLog, SECOND, SharedStoreProbe, from_beginning, until, until_ended,
};
use crate::support::{Call, Do, Probe, Shim, event_of, put, unavailable};
use futures::StreamExt as _;
use futures::stream::{self};
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};
use universal_executor::executor::Rate;
use universal_executor::model::Timestamp;
use universal_executor::source::{Deliveries, SourceError, StartAt};
use universal_executor::store::{
    Cancelled, Capabilities, Claim, ClaimId, Claimed, Commit, Committed, ExecutorLimits,
    KeyPosition, Lease, Lost, NewRequest, NewRun, PausedExecutor, Query, Requested, Run, RunFilter,
    RunPage, RunQuery, RunRef, Scored, StoreError, StoreId, VectorQuery, Worker, WorkerRecord,
    WrittenBy,
};
use universal_executor::{
    Breadcrumb, BreadcrumbId, BreadcrumbStore, Delivery, Event, EventSource, Json, MemoryStore,
    Profile, Response, RunLedger, Runtime, UniversalExecutor, async_trait,
};

/// Creates an executor whose runs take this time.
fn busy(store: &MemoryStore, id: &str, takes: Duration, notebook: &ExecutionLog) -> Probe {
    let notebook = notebook.clone();
    Probe::on(&format!("{id}.v1"), id, store)
        .executing(move |context| {
            let notebook = notebook.clone();
            async move {
                let note = notebook.start(&context);
                sleep(takes).await;
                notebook.end(note);
                Ok(json!({}))
            }
        })
        .writing(Response::none())
}

async fn ask(store: &MemoryStore, id: &str, times: u64) {
    for n in 0..times {
        put(store, &format!("{id}.v1"), json!({"key": id, "n": n})).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_profiles_max_inflight_applies_regardless_of_the_runtimes_limit() {
    for (allowed, most) in [(1, 3), (16, 3), (16, 40)] {
        let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
        ask(&store, "a", 60).await;
        let profile = Profile::default().max_inflight(most);
        let busy = busy(&store, "a", SECOND, &notebook).profile(profile);
        let runtime = from_beginning(&store).executor(busy).max_inflight(allowed);

        let runtime = runtime.build().unwrap();
        runtime.run_until(until_ended(&store, 60)).await.unwrap();

        assert_eq!(notebook.max_concurrent(), most);
    }
}

#[tokio::test(start_paused = true)]
async fn all_executors_together_run_no_more_at_a_time_than_the_runtime_allows() {
    for shared in [false, true] {
        let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
        let mut runtime = from_beginning(&store).concurrency(10);
        for executor in lodgers(&store, &["a", "b", "c"], shared, &notebook) {
            runtime = runtime.executor(executor);
        }
        for id in ["a", "b", "c"] {
            ask(&store, id, 40).await;
        }

        let runtime = runtime.build().unwrap();
        runtime.run_until(until_ended(&store, 120)).await.unwrap();

        assert_eq!(notebook.max_concurrent(), 10, "shared: {shared}");
    }
}

#[tokio::test(start_paused = true)]
async fn runs_start_while_others_commit_unless_there_is_one_at_a_time() {
    // Limit of the executor, limit of the runtime, and number of runs that start before the first commit ends.
    for (of_executor, of_all, at_once) in [(4, 64, 8), (4, 3, 6), (1, 64, 1), (4, 1, 1)] {
        let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
        ask(&store, "a", 20).await;
        let slow = Shim::new(&store, |call| match call {
            Call::Commit(commit) if commit.end.is_some() => Do::Wait(SECOND),
            _ => Do::Pass,
        });
        let notes = notebook.clone();
        let executor = Probe::on("a.v1", "a", &slow)
            .executing(move |context| {
                let notes = notes.clone();
                async move {
                    notes.end(notes.start(&context));
                    Ok(json!({}))
                }
            })
            .writing(Response::none())
            .profile(Profile::default().max_inflight(of_executor));
        let runtime = from_beginning(&store)
            .concurrency(of_all)
            .executor(executor);

        let runtime = runtime.build().unwrap();
        runtime.run_until(until_ended(&store, 20)).await.unwrap();

        let starts = notebook.starts();
        let first = starts.iter().filter(|start| **start == starts[0]);
        assert_eq!(first.count(), at_once, "{of_executor} and {of_all}");
        assert_eq!(starts.len(), 20);
    }
}

/// Creates executors that share one store handle or have separate handles.
fn lodgers(
    store: &MemoryStore,
    ids: &[&str],
    shared: bool,
    notebook: &ExecutionLog,
) -> Vec<Arc<dyn UniversalExecutor>> {
    let one: Arc<dyn BreadcrumbStore> = Arc::new(store.clone());
    let lodger = |id: &&str| {
        let probe = busy(store, id, SECOND, notebook);
        let store = if shared {
            Arc::clone(&one)
        } else {
            Arc::new(store.clone())
        };
        Arc::new(SharedStoreProbe { probe, store }) as _
    };
    ids.iter().map(lodger).collect()
}

#[tokio::test(start_paused = true)]
async fn executors_take_turns_for_a_single_place_that_is_never_left_empty() {
    for shared in [false, true] {
        let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
        let ids = ["a", "b", "c"];
        let mut runtime = from_beginning(&store).concurrency(1);
        for executor in lodgers(&store, &ids, shared, &notebook) {
            runtime = runtime.executor(executor);
        }
        for id in ids {
            ask(&store, id, 20).await;
        }

        let runtime = runtime.build().unwrap();
        runtime.run_until(until_ended(&store, 60)).await.unwrap();

        let turns = notebook.turns();
        for (before, after) in turns.iter().zip(&turns[1..]) {
            assert_eq!(before.end, Some(after.start), "shared: {shared}");
        }
        let mut had = [0_usize; 3];
        for turn in &turns {
            let who = ids.iter().position(|id| *id == turn.key).unwrap();
            had[who] += 1;
            if had.contains(&20) {
                break;
            }
            let apart = had.iter().max().unwrap() - had.iter().min().unwrap();
            assert!(apart <= 2, "shared {shared}: {had:?}");
        }
        assert!(had.iter().all(|turns| *turns >= 18), "{had:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_burst_for_one_executor_does_not_starve_another() {
    for shared in [false, true] {
        let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
        let mut runtime = from_beginning(&store).concurrency(8);
        for executor in lodgers(&store, &["burst", "steady"], shared, &notebook) {
            runtime = runtime.executor(executor);
        }
        ask(&store, "burst", 10_000).await;
        ask(&store, "steady", 200).await;
        let served = async {
            let steady = || {
                notebook
                    .turns()
                    .iter()
                    .filter(|turn| turn.key == "steady")
                    .count()
            };
            while steady() < 200 {
                sleep(SECOND).await;
            }
        };

        let runtime = runtime.drain_timeout(SECOND).build().unwrap();
        runtime.run_until(served).await.unwrap();

        let turns = notebook.turns();
        let first = turns.iter().position(|turn| turn.key == "steady").unwrap();
        let last = turns.iter().rposition(|turn| turn.key == "steady").unwrap();
        // While both executors have work, neither starts more than twice as many runs as the other.
        let both = &turns[first..=last];
        let steady = both.iter().filter(|turn| turn.key == "steady").count();
        assert!(
            steady * 3 >= both.len(),
            "shared {shared}: {steady} of {}",
            both.len()
        );
        assert!(
            first <= 64,
            "shared {shared}: the first run starts after {first} others"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn an_executor_whose_work_arrives_one_by_one_gets_its_turn_during_a_burst() {
    for shared in [false, true] {
        let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
        let mut runtime = from_beginning(&store).concurrency(8);
        for executor in lodgers(&store, &["burst", "trickle"], shared, &notebook) {
            runtime = runtime.executor(executor);
        }
        ask(&store, "burst", 2_000).await;
        let arriving = async {
            for n in 0..100 {
                put(&store, "trickle.v1", json!({"key": "trickle", "n": n})).await;
                sleep(SECOND).await;
            }
        };
        let began = Instant::now();

        let runtime = runtime.drain_timeout(SECOND).build().unwrap();
        runtime.run_until(arriving).await.unwrap();

        for n in 0..90 {
            let waited = notebook.of("trickle", n).start - (began + SECOND * n as u32);
            assert!(
                waited <= 3 * SECOND,
                "shared {shared}: {n} waited {waited:?}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_more_runs_start_in_any_time_than_the_rate_allows() {
    let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
    ask(&store, "a", 200).await;
    let noted = notebook.clone();
    let rate = Profile::default().rate(Rate::per(10, SECOND));
    let limited = busy(&store, "a", SECOND, &notebook)
        .profile(rate)
        .executing(move |context| {
            let note = noted.start(&context);
            noted.end(note);
            async move {
                // Every tenth run is retried, and a retry counts as a start.
                let n = context.trigger().context["n"].as_u64().unwrap();
                if n.is_multiple_of(10) && context.attempt() == 1 {
                    return Err("reset".into());
                }
                Ok(json!({}))
            }
        });
    let runtime = from_beginning(&store).executor(limited).build().unwrap();
    let began = Instant::now();

    runtime.run_until(until_ended(&store, 200)).await.unwrap();

    let starts = notebook.starts();
    assert_eq!(starts.len(), 220);
    for (i, from) in starts.iter().enumerate() {
        for (more, to) in starts[i..].iter().enumerate() {
            let earned = (*to - *from).as_secs_f64() * 10.0;
            assert!(
                (more + 1) as f64 <= 10.0 + earned + 1e-6,
                "{i} and {more} more"
            );
        }
    }
    // The executor must use the rate, not only stay below it.
    let took = *starts.last().unwrap() - began;
    assert!(took >= 20 * SECOND && took <= 30 * SECOND, "{took:?}");
}

/// A source of 5,000 events that counts the events that were read.
struct Counted {
    event: Event,
    pulled: Arc<AtomicUsize>,
}

#[async_trait]
impl EventSource for Counted {
    async fn subscribe(&self, _: StartAt) -> Result<Deliveries, SourceError> {
        let (event, pulled) = (self.event.clone(), Arc::clone(&self.pulled));
        let always = stream::repeat_with(move || {
            pulled.fetch_add(1, Ordering::SeqCst);
            Ok(Delivery::new(event.clone()))
        });
        Ok(Deliveries::new(always.take(5_000).chain(stream::pending())))
    }

    fn is_complete(&self) -> bool {
        true
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_is_not_polled_while_the_maximum_number_of_deliveries_is_pending() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let (is_down, pulled) = (
        Arc::new(AtomicBool::new(true)),
        Arc::new(AtomicUsize::new(0)),
    );
    let down = Arc::clone(&is_down);
    let away = Shim::new(&store, move |call| match call {
        Call::Enqueue if down.load(Ordering::SeqCst) => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let source = Counted {
        event: event_of(&question),
        pulled: Arc::clone(&pulled),
    };
    let runtime = Runtime::builder(source)
        .max_deliveries(1_024)
        .executor(Probe::on("question.v1", "prober", &away))
        .build()
        .unwrap();
    let watched = async {
        sleep(10 * SECOND).await;
        let full = pulled.load(Ordering::SeqCst);
        sleep(60 * SECOND).await;
        let later = pulled.load(Ordering::SeqCst);
        is_down.store(false, Ordering::SeqCst);
        until(&store, "answer.v1", 1).await;
        (full, later, pulled.load(Ordering::SeqCst))
    };
    let counts = futures::future::FutureExt::shared(Box::pin(watched));

    let seen = counts.clone();
    runtime
        .run_until(async {
            seen.await;
        })
        .await
        .unwrap();

    let (full, later, after) = counts.await;
    assert_eq!(full, 1_024);
    assert_eq!(later, full);
    assert!(after > full, "{after}");
}

/// A store that loses the result of every second claim.
#[derive(Debug)]
struct LosesClaims {
    inner: MemoryStore,
    claims: AtomicUsize,
}

#[async_trait]
impl BreadcrumbStore for LosesClaims {
    fn tenant(&self) -> &str {
        self.inner.tenant()
    }

    fn identity(&self) -> StoreId {
        self.inner.identity()
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        self.inner.get(id).await
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        self.inner.search(query).await
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        self.inner.vector_search(query).await
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.inner.commit(commit).await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        Some(self)
    }
}

#[async_trait]
impl RunLedger for LosesClaims {
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError> {
        self.inner.enqueue(runs).await
    }

    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError> {
        self.inner.claim(run, instead_of).await
    }

    async fn claim_next(
        &self,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Vec<Claimed>, StoreError> {
        let claimed = self.inner.claim_next(n, of, id).await?;
        match self.claims.fetch_add(1, Ordering::SeqCst) % 2 {
            0 => Err(unavailable()),
            _ => Ok(claimed),
        }
    }

    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError> {
        self.inner.heartbeat(leases).await
    }

    async fn retry(
        &self,
        lease: Lease,
        at: Timestamp,
        counts: bool,
        cause: Option<&str>,
    ) -> Result<(), StoreError> {
        self.inner.retry(lease, at, counts, cause).await
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.inner.release(lease).await
    }

    async fn transfer(
        &self,
        lease: Lease,
        version: &str,
        until: Timestamp,
        position: KeyPosition,
    ) -> Result<(), StoreError> {
        self.inner.transfer(lease, version, until, position).await
    }

    async fn accept_transfers(
        &self,
        versions: &[(Arc<str>, Arc<str>)],
    ) -> Result<usize, StoreError> {
        self.inner.accept_transfers(versions).await
    }

    async fn record_worker(&self, worker: &WorkerRecord) -> Result<(), StoreError> {
        self.inner.record_worker(worker).await
    }

    async fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        self.inner.workers().await
    }

    async fn save_positions(&self, positions: &[(Arc<str>, Vec<u8>)]) -> Result<(), StoreError> {
        self.inner.save_positions(positions).await
    }

    async fn positions(&self, executors: &[Arc<str>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.inner.positions(executors).await
    }

    async fn save(&self, lease: &Lease, state: Json) -> Result<(), StoreError> {
        self.inner.save(lease, state).await
    }

    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError> {
        self.inner.resume(run, with).await
    }

    async fn redo(&self, run: &RunRef) -> Result<(), StoreError> {
        self.inner.redo(run).await
    }

    async fn cancel(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        self.inner.cancel(run).await
    }

    async fn enqueue_cancelled(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        self.inner.enqueue_cancelled(run).await
    }

    async fn skip(&self, run: &RunRef) -> Result<(), StoreError> {
        self.inner.skip(run).await
    }

    async fn pause_executor(&self, executor: &str) -> Result<bool, StoreError> {
        self.inner.pause_executor(executor).await
    }

    async fn resume_executor(&self, executor: &str) -> Result<bool, StoreError> {
        self.inner.resume_executor(executor).await
    }

    async fn paused_executors(&self) -> Result<Vec<PausedExecutor>, StoreError> {
        self.inner.paused_executors().await
    }

    async fn request(&self, request: NewRequest) -> Result<Requested, StoreError> {
        self.inner.request(request).await
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        self.inner.runs(filter).await
    }

    async fn runs_page(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
        self.inner.runs_page(query).await
    }

    async fn written_by(
        &self,
        versions: &[(BreadcrumbId, u64)],
    ) -> Result<Vec<WrittenBy>, StoreError> {
        self.inner.written_by(versions).await
    }
}

#[tokio::test(start_paused = true)]
async fn claims_whose_replies_are_lost_neither_break_the_bounds_nor_use_attempts() {
    let store = MemoryStore::default();
    let shared: Arc<dyn BreadcrumbStore> = Arc::new(LosesClaims {
        inner: store.clone(),
        claims: AtomicUsize::new(0),
    });
    let ids = ["a", "b"];
    let mut runtime = from_beginning(&store);
    let mut notebooks = Vec::new();
    for id in ids {
        let notebook = ExecutionLog::default();
        let probe = busy(&store, id, 25 * SECOND, &notebook);
        let probe = probe.profile(Profile::default().max_inflight(3));
        notebooks.push(notebook);
        runtime = runtime.executor(SharedStoreProbe {
            probe,
            store: Arc::clone(&shared),
        });
        ask(&store, id, 30).await;
    }

    let runtime = runtime.build().unwrap();
    let report = runtime.run_until(until_ended(&store, 60)).await.unwrap();

    assert_eq!((report.responded, report.failed), (60, 0));
    for notebook in notebooks {
        assert_eq!((notebook.len(), notebook.max_concurrent()), (30, 3));
        assert!(notebook.turns().iter().all(|turn| turn.attempt == 1));
    }
}
