//! Liveness and readiness of a runtime, and the reported problems.

use crate::runtime_definitions::given::{Silent, agent, agents, runtime, until_running};
use crate::support::log::Log;
use crate::support::{Call, Do, Probe, Shim, eventually, put, unavailable};
use futures::stream::{self, StreamExt as _};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::runtime::Health;
use universal_executor::runtime::definitions::StoredDefinitions;
use universal_executor::source::{Deliveries, SourceError, StartAt};
use universal_executor::store::{Fault, Faulty, Moment, Operation, RunState, StoreError};
use universal_executor::{EventSource, MemoryStore, Runtime, async_trait};

fn of_one(executor: Probe, source: impl EventSource) -> Runtime {
    Runtime::builder(source).executor(executor).build().unwrap()
}

fn problem(health: &Health) -> &str {
    assert_eq!(health.problems.len(), 1, "{health:?}");
    assert!(!health.ready, "{health:?}");
    &health.problems[0]
}

#[tokio::test(start_paused = true)]
async fn a_runtime_is_ready_while_it_runs_and_neither_before_nor_after() {
    let store = MemoryStore::default();
    let runtime = of_one(Probe::on("message.v1", "prober", &store), store.events());
    let before = runtime.health();
    let mut while_it_runs = None;
    let scenario = async {
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        while_it_runs = Some(runtime.health());
    };

    runtime.run_until(scenario).await.unwrap();

    for health in [before, runtime.health()] {
        assert_eq!(problem(&health), "the runtime is not running");
        assert!(
            health.live,
            "a restart would fix nothing, so the runtime must count as live"
        );
    }
    let health = while_it_runs.unwrap();
    assert!(
        health.live && health.ready && health.problems.is_empty(),
        "{health:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_that_blocks_its_thread_is_named() {
    let store = MemoryStore::default();
    let (go_on, blocked) = std::sync::mpsc::channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let prober = Probe::on("message.v1", "prober", &store).executing(move |_| {
        let blocked = Arc::clone(&blocked);
        async move {
            // A blocking call, instead of an async one.
            blocked.lock().unwrap().recv()?;
            Ok(json!({}))
        }
    });
    let runtime = of_one(prober, store.events());
    let mut problems = Vec::new();
    let scenario = async {
        put(&store, "message.v1", json!({})).await;
        eventually(async || {
            problems = runtime.health().problems;
            problems
                .iter()
                .any(|problem| problem.contains("has blocked a thread"))
        })
        .await;
        go_on.send(()).unwrap();
        eventually(async || runtime.health().ready).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("executor \"prober\""), "{problems:?}");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_was_dropped_does_not_run() {
    let store = MemoryStore::default();
    let runtime = of_one(Probe::on("message.v1", "prober", &store), store.events());

    let hour = Duration::from_secs(3_600);
    let dropped = tokio::time::timeout(hour, runtime.run_until(std::future::pending())).await;

    assert!(dropped.is_err());
    assert_eq!(problem(&runtime.health()), "the runtime is not running");
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_stops_is_not_ready_but_lives() {
    let store = MemoryStore::default();
    let hanging = Probe::on("message.v1", "prober", &store).hanging().shared();
    let runtime = Runtime::builder(store.events())
        .executor(Arc::clone(&hanging))
        .build()
        .unwrap();
    let told = async {
        put(&store, "message.v1", json!({})).await;
        eventually(async || hanging.executed() == 1).await;
    };
    let looked = async {
        eventually(async || hanging.executed() == 1).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        runtime.health()
    };

    let (ended, health) = tokio::join!(runtime.run_until(told), looked);

    assert_eq!(problem(&health), "the runtime is stopping");
    assert!(health.live);
    assert_eq!(ended.unwrap().dropped, 1);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_waits_for_its_definitions_is_not_ready_yet() {
    let store = MemoryStore::default();
    let away = Arc::new(AtomicBool::new(true));
    let is_away = Arc::clone(&away);
    let shim = Shim::new(&store, move |_| match is_away.load(Ordering::SeqCst) {
        true => Do::Fail(unavailable()),
        false => Do::Pass,
    });
    put(
        &store,
        StoredDefinitions::AGENT,
        agent("a", "message.v1", ""),
    )
    .await;
    let runtime = runtime(&store, agents(&shim));
    let scenario = async {
        tokio::time::sleep(Duration::from_secs(30)).await;
        let health = runtime.health();
        away.store(false, Ordering::SeqCst);
        until_running(&runtime, &["a"]).await;
        eventually(async || runtime.health().ready).await;
        health
    };
    let mut health = None;

    let done = async { health = Some(scenario.await) };
    runtime.run_until(done).await.unwrap();

    let health = health.unwrap();
    assert_eq!(problem(&health), "the runtime is starting");
    assert!(health.live);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_named_until_it_answers_again() {
    let store = MemoryStore::default();
    let away = Arc::new(AtomicBool::new(false));
    let is_away = Arc::clone(&away);
    let shim = Shim::new(&store, move |call| match call {
        Call::Claim | Call::Enqueue if is_away.load(Ordering::SeqCst) => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let runtime = of_one(Probe::on("message.v1", "prober", &shim), store.events());
    let scenario = async {
        eventually(async || runtime.health().ready).await;
        away.store(true, Ordering::SeqCst);
        eventually(async || !runtime.health().ready).await;
        let health = runtime.health();
        away.store(false, Ordering::SeqCst);
        eventually(async || runtime.health().ready).await;
        health
    };
    let mut health = None;

    let done = async { health = Some(scenario.await) };
    runtime.run_until(done).await.unwrap();

    let health = health.unwrap();
    let problem = problem(&health);
    assert!(problem.starts_with("store Shim fails to "), "{problem}");
    assert!(
        health.live,
        "a restart would not fix the store, so the runtime must count as live"
    );
}

#[tokio::test(start_paused = true)]
async fn a_runtime_is_not_ready_while_claims_fail_although_the_store_can_be_read() {
    let (log, _guard) = Log::capture(tracing::Level::WARN, FmtSpan::NONE);
    let store = MemoryStore::default();
    let away = Arc::new(AtomicBool::new(true));
    let is_away = Arc::clone(&away);
    let shim = Shim::new(&store, move |call| match call {
        Call::Claim if is_away.load(Ordering::SeqCst) => Do::Fail(StoreError::Unavailable {
            store: "shim",
            retry_after: Duration::ZERO,
            source: "database disk image is malformed".into(),
        }),
        _ => Do::Pass,
    });
    let runtime = Runtime::builder(store.events())
        .executor(Probe::on("message.v1", "prober", &shim))
        .reconcile_every(Duration::from_secs(1))
        .build()
        .unwrap();
    let (mut healths, mut after) = (Vec::new(), None);
    let scenario = async {
        eventually(async || !runtime.health().ready).await;
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_millis(130)).await;
            healths.push(runtime.health());
        }
        away.store(false, Ordering::SeqCst);
        eventually(async || runtime.health().ready).await;
        after = Some(runtime.health());
    };

    runtime.run_until(scenario).await.unwrap();

    for health in &healths {
        assert_eq!(problem(health), "store Shim fails to claim runs");
    }
    assert!(after.unwrap().problems.is_empty());
    let log = log.text();
    let line = log
        .lines()
        .find(|line| line.contains("cannot claim due runs"));
    let line = line.unwrap_or_else(|| panic!("the expected log line is missing in {log}"));
    assert!(
        line.contains(
            "shim is unavailable or overloaded; see the cause: database disk image is malformed"
        ),
        "{line}"
    );
}

/// A source whose stream a test can end, and which is unavailable while a flag is set.
#[derive(Clone, Default)]
struct Fleeting {
    away: Arc<AtomicBool>,
    hang_up: Arc<Mutex<Option<tokio::sync::oneshot::Sender<()>>>>,
}

#[async_trait]
impl EventSource for Fleeting {
    async fn subscribe(&self, _: StartAt) -> Result<Deliveries, SourceError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(SourceError::Unavailable {
                retry_after: Duration::ZERO,
                source: "connection refused".into(),
            });
        }
        let (hang_up, hung_up) = tokio::sync::oneshot::channel::<()>();
        *self.hang_up.lock().unwrap() = Some(hang_up);
        Ok(Deliveries::new(stream::pending().take_until(hung_up)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_that_cannot_be_reached_is_a_problem_until_it_can() {
    let (log, _guard) = Log::capture(Level::INFO, FmtSpan::NONE);
    let store = MemoryStore::default();
    let source = Fleeting::default();
    let runtime = of_one(Probe::on("message.v1", "prober", &store), source.clone());
    let scenario = async {
        eventually(async || runtime.health().ready).await;
        source.away.store(true, Ordering::SeqCst);
        drop(source.hang_up.lock().unwrap().take());
        eventually(async || !runtime.health().ready).await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let health = runtime.health();
        source.away.store(false, Ordering::SeqCst);
        eventually(async || runtime.health().ready).await;
        // Readiness is logged at each sweep.
        tokio::time::sleep(Duration::from_secs(60)).await;
        health
    };
    let mut health = None;

    let done = async { health = Some(scenario.await) };
    runtime.run_until(done).await.unwrap();

    assert_eq!(problem(&health.unwrap()), "the event source is unavailable");
    let log = log.text();
    for (line, times) in [
        ("the runtime is ready", 2),
        ("the runtime is not ready", 1),
        ("problems=\"the event source is unavailable\"", 1),
        (
            "subscribed to the event source again source=\"Fleeting\"",
            1,
        ),
    ] {
        assert_eq!(log.matches(line).count(), times, "{line}: {log}");
    }
}

/// Returns the log lines at a level, each from its message on.
fn messages<'l>(log: &'l str, level: &str) -> Vec<&'l str> {
    let marked = format!(" {level} ");
    let of_level = log.lines().filter(|line| line.contains(&marked));
    let message = |line: &'l str| {
        line.split_once("universal_executor::")
            .map(|(_, rest)| rest)
    };
    let with_target = of_level.filter_map(message);
    with_target
        .filter_map(|rest| rest.split_once(": ").map(|(_, rest)| rest))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_healthy_service_logs_its_start_its_readiness_its_drain_and_its_counts() {
    let (log, _guard) = Log::capture(Level::INFO, FmtSpan::NONE);
    let store = MemoryStore::default();
    let prober = Probe::on("message.v1", "prober", &store).shared();
    let runtime = Runtime::builder(store.events())
        .worker_name("worker-1")
        .executor(Arc::clone(&prober))
        .build()
        .unwrap();
    put(&store, "other.v1", json!({})).await;
    let scenario = async {
        put(&store, "message.v1", json!({})).await;
        eventually(async || prober.executed() == 1).await;
        tokio::time::sleep(Duration::from_secs(3_600)).await;
    };

    runtime.run_until(scenario).await.unwrap();

    let version = env!("CARGO_PKG_VERSION");
    let log = log.text();
    assert_eq!(
        messages(&log, "INFO"),
        [
            &*format!(
                "the runtime started version=\"{version}\" worker=\"worker-1\" executors=\"prober\" \
                 stores=\"MemoryStore {{ tenant: \\\"default\\\", .. }}\" source=\"MemoryStore\" last_event=1"
            ),
            "the runtime is ready worker=\"worker-1\"",
            "the runtime stops and waits for its running work worker=\"worker-1\" runs_in_flight=0 timeout_ms=25000",
            "the runtime stopped worker=\"worker-1\" events=2 found_by_sweep=0 missed=0 responded=1 failed=0 \
             suspended=0 skipped=0 postponed=0 errors=0 panics=0 dropped=0",
        ],
        "{log}"
    );
    assert_eq!(messages(&log, "WARN"), Vec::<&str>::new());
}

/// A source with an open stream that delivers nothing and reports an error on request.
#[derive(Clone, Default)]
struct Idle {
    away: Arc<AtomicBool>,
    failing: Arc<tokio::sync::Notify>,
}

impl Idle {
    fn check(&self) -> Result<(), SourceError> {
        match self.away.load(Ordering::SeqCst) {
            true => Err(SourceError::Unavailable {
                retry_after: Duration::ZERO,
                source: "connection refused".into(),
            }),
            false => Ok(()),
        }
    }
}

#[async_trait]
impl EventSource for Idle {
    async fn subscribe(&self, _: StartAt) -> Result<Deliveries, SourceError> {
        let idle = self.clone();
        Ok(Deliveries::new(stream::unfold(idle, async |idle| {
            idle.failing.notified().await;
            let error = idle.check().err()?;
            Some((Err(error), idle))
        })))
    }

    async fn behind(&self) -> Result<Option<u64>, SourceError> {
        self.check().map(|()| None)
    }
}

#[tokio::test(start_paused = true)]
async fn a_runtime_is_ready_again_after_an_error_of_its_source_though_no_event_comes() {
    let store = MemoryStore::default();
    let source = Idle::default();
    let runtime = of_one(Probe::on("message.v1", "prober", &store), source.clone());
    let (mut healths, mut after) = (Vec::new(), None);
    let scenario = async {
        eventually(async || runtime.health().ready).await;
        source.away.store(true, Ordering::SeqCst);
        source.failing.notify_one();
        eventually(async || !runtime.health().ready).await;
        for _ in 0..100 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            healths.push(runtime.health());
        }
        source.away.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(5)).await;
        after = Some(runtime.health());
    };

    runtime.run_until(scenario).await.unwrap();

    for health in &healths {
        assert_eq!(problem(health), "the event source is unavailable");
    }
    let after = after.unwrap();
    assert!(after.ready, "{after:?}");
}

#[tokio::test(start_paused = true)]
async fn a_source_that_fails_each_time_it_is_polled_stays_a_problem() {
    let store = MemoryStore::default();
    let source = Faulty::new(store.events(), |operation, moment| {
        match (operation, moment) {
            (Operation::Next, Moment::Before) => Fault::Fail,
            _ => Fault::None,
        }
    });
    let runtime = of_one(Probe::on("message.v1", "prober", &store), source);
    let mut healths = Vec::new();
    let scenario = async {
        eventually(async || !runtime.health().ready).await;
        for _ in 0..1_000 {
            tokio::time::sleep(Duration::from_millis(130)).await;
            healths.push(runtime.health().ready);
        }
    };

    runtime.run_until(scenario).await.unwrap();

    assert!(healths.iter().all(|ready| !ready));
}

#[tokio::test(start_paused = true)]
async fn a_runtime_whose_tasks_are_not_polled_does_not_live() {
    let store = MemoryStore::default();
    let runtime = of_one(Probe::on("message.v1", "prober", &store), Silent);
    let mut healths = Vec::new();
    let scenario = async {
        tokio::time::sleep(Duration::from_secs(60)).await;
        healths.push(runtime.health());
        // Time passes while no task of the runtime is polled, as if their threads were blocked.
        let mut hour = std::pin::pin!(tokio::time::advance(Duration::from_secs(3_600)));
        assert!(futures::poll!(&mut hour).is_pending());
        healths.push(runtime.health());
        hour.await;
        eventually(async || runtime.health().live).await;
    };

    runtime.run_until(scenario).await.unwrap();

    assert!(healths[0].live && healths[0].ready, "{healths:?}");
    assert!(!healths[1].live, "{healths:?}");
    assert!(
        problem(&healths[1]).contains("have not been polled for"),
        "{healths:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_runtime_is_not_ready_while_its_suspended_runs_cannot_be_listed() {
    let store = MemoryStore::default();
    let away = Arc::new(AtomicBool::new(true));
    let is_away = Arc::clone(&away);
    let shim = Shim::new(&store, move |call| match call {
        Call::RunsPage(query) if query.states == [RunState::Suspended] => {
            match is_away.load(Ordering::SeqCst) {
                true => Do::Fail(unavailable()),
                false => Do::Pass,
            }
        }
        _ => Do::Pass,
    });
    let runtime = of_one(Probe::on("message.v1", "prober", &shim), store.events());
    let mut health = None;
    let scenario = async {
        eventually(async || !runtime.health().ready).await;
        tokio::time::sleep(Duration::from_secs(100)).await;
        health = Some(runtime.health());
        away.store(false, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(runtime.health().ready);
    };

    runtime.run_until(scenario).await.unwrap();

    assert_eq!(
        problem(&health.unwrap()),
        "store Shim fails to list suspended runs"
    );
}
