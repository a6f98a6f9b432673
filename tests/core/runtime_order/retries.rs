//! Retries of runs: their time, their limits, and their effects.

use crate::runtime_order::harness::{
    ExecutionLog, LEASE, SECOND, count, from_beginning, until, until_ended,
};
use crate::support::log::Log;
use crate::support::{Call, Do, Probe, Shim, all, event_of, eventually, put, runs, unavailable};
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout};
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::error::Retry;
use universal_executor::executor::RetryPolicy;
use universal_executor::runtime::RuntimeError;
use universal_executor::store::{
    Fault, Faulty, Moment, Operation, RunFilter, RunRef, RunState, StoreError,
};
use universal_executor::{
    MemoryStore, Profile, Response, RunLedger, Runtime, permanent, retry_after,
};

#[tokio::test(start_paused = true)]
async fn a_retried_run_starts_at_the_due_time_of_the_ledger() {
    let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
    let (clock, began) = (put(&store, "clock.v1", json!({})).await, Instant::now());
    for n in 0..8 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let (noted, mut policy) = (notebook.clone(), RetryPolicy::default());
    policy.base = 40 * SECOND;
    let stumbles = Probe::on("question.v1", "stumbles", &store)
        .profile(Profile::default().retry(policy))
        .executing(move |context| {
            let note = noted.start(&context);
            noted.end(note);
            async move {
                match context.attempt() {
                    1 => Err("reset".into()),
                    _ => Ok(json!({})),
                }
            }
        });
    let runtime = from_beginning(&store).executor(stumbles).build().unwrap();
    let dues = Mutex::new(Vec::new());
    let done = async {
        eventually(async || notebook.len() == 8).await;
        let rows = runs(&store).await;
        let due = rows
            .iter()
            .map(|run| run.due.unwrap().since(clock.updated_at));
        dues.lock().unwrap().extend(due);
        until_ended(&store, 8).await;
    };

    runtime.run_until(done).await.unwrap();

    let starts = notebook.starts();
    let due = dues.into_inner().unwrap();
    assert_eq!((starts.len(), due.len()), (16, 8));
    for (start, due) in starts[8..].iter().zip(due) {
        let late = (*start - began).checked_sub(due).unwrap_or_default();
        assert!(
            *start - began + Duration::from_millis(1) >= due,
            "the retry starts too early"
        );
        assert!(late <= Duration::from_millis(5), "{late:?} late");
    }
}

#[tokio::test(start_paused = true)]
async fn a_rate_limited_run_waits_for_the_requested_delay_and_uses_no_attempt() {
    let (store, notebook) = (MemoryStore::default(), ExecutionLog::default());
    put(&store, "question.v1", json!({})).await;
    let noted = notebook.clone();
    let limited = Probe::on("question.v1", "limited", &store)
        .profile(Profile::default().attempts(1))
        .executing(move |context| {
            let note = noted.start(&context);
            noted.end(note);
            async move {
                match note {
                    0..8 => Err(retry_after(20 * SECOND, "slow down")),
                    _ => Ok(json!({})),
                }
            }
        });
    let runtime = from_beginning(&store).executor(limited).build().unwrap();

    let report = runtime
        .run_until(until(&store, "answer.v1", 1))
        .await
        .unwrap();

    let starts = notebook.starts();
    for pair in starts.windows(2) {
        let gap = pair[1] - pair[0];
        assert!(
            gap >= 20 * SECOND && gap <= 20 * SECOND + SECOND / 100,
            "{gap:?}"
        );
    }
    assert!(notebook.turns().iter().all(|turn| turn.attempt == 1));
    assert_eq!(
        (report.postponed, report.responded, report.failed),
        (8, 1, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn a_permanent_error_fails_its_run_at_the_first_attempt() {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let refuses = Probe::on("question.v1", "refuses", &store)
        .failing(|| permanent("unknown city"))
        .shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&refuses))
        .build()
        .unwrap();

    let report = runtime
        .run_until(until(&store, "executor.failed.v1", 1))
        .await
        .unwrap();

    let letter = all(&store, "executor.failed.v1").await.remove(0);
    assert_eq!(
        (refuses.executed(), report.failed, report.postponed),
        (1, 1, 0)
    );
    assert_eq!(letter.context["class"], "permanent");
    assert_eq!(letter.context["attempts"], 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_three_workers_died_with_is_a_crash_loop_and_leaves_others_alone() {
    let store = MemoryStore::default();
    let killer = put(&store, "question.v1", json!({"kills": true})).await;
    put(&store, "question.v1", json!({"kills": false})).await;
    let worker = || {
        let store = Shim::of_a_worker_that_dies(&store);
        let hangs = Probe::on("question.v1", "worker", &store).executing(|context| async move {
            if context.trigger().context["kills"] == true {
                std::future::pending::<()>().await;
            }
            Ok(json!({}))
        });
        hangs.shared()
    };
    for death in 1..=3 {
        let hangs = worker();
        let runtime = from_beginning(&store)
            .executor(Arc::clone(&hangs))
            .build()
            .unwrap();
        let started = eventually(async || hangs.executed() > usize::from(death == 1));
        let died = async {
            tokio::select! {
                () = started => {}
                _ = runtime.run_until(std::future::pending()) => {}
            }
        };
        timeout(2 * LEASE, died).await.unwrap();
    }
    let last = worker();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&last))
        .build()
        .unwrap();

    let report = runtime.run_until(until_ended(&store, 2)).await.unwrap();

    let letter = all(&store, "executor.failed.v1").await.remove(0);
    assert_eq!(letter.context["class"], "crash_loop");
    assert_eq!(letter.context["trigger_id"], killer.id.to_string());
    assert_eq!((report.failed, last.executed()), (1, 0));
    assert_eq!(count(&store, "answer.v1").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_with_a_limit_of_one_crash_has_its_dead_letter_after_one_lost_worker() {
    let store = MemoryStore::default();
    let killer = put(&store, "question.v1", json!({})).await;
    let worker = || {
        let store = Shim::of_a_worker_that_dies(&store);
        Probe::on("question.v1", "worker", &store)
            .profile(Profile::default().crashes(1))
            .hanging()
            .shared()
    };
    let dies = worker();
    {
        let runtime = from_beginning(&store)
            .executor(Arc::clone(&dies))
            .build()
            .unwrap();
        let started = eventually(async || dies.executed() == 1);
        let died = async {
            tokio::select! {
                () = started => {}
                _ = runtime.run_until(std::future::pending()) => {}
            }
        };
        timeout(2 * LEASE, died).await.unwrap();
    }
    let last = worker();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&last))
        .build()
        .unwrap();

    let report = runtime.run_until(until_ended(&store, 1)).await.unwrap();

    let letter = all(&store, "executor.failed.v1").await.remove(0);
    assert_eq!(letter.context["class"], "crash_loop");
    assert_eq!(letter.context["trigger_id"], killer.id.to_string());
    assert_eq!((report.failed, dies.executed(), last.executed()), (1, 1, 0));
    assert_eq!(
        last.failures(),
        ["crash_loop: the worker died while it executed the run"]
    );
}

#[tokio::test(start_paused = true)]
async fn runs_that_lost_workers_are_logged_once_per_claim_and_suspect_runs_one_per_line() {
    const RUNS: usize = 3;
    let (log, _guard) = Log::capture(Level::WARN, FmtSpan::NONE);
    let store = MemoryStore::default();
    for n in 0..RUNS {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let mut logs = Vec::new();
    for _ in 0..2 {
        let mortal = Shim::of_a_worker_that_dies(&store);
        let dies = Probe::on("question.v1", "worker", &mortal)
            .hanging()
            .shared();
        let runtime = from_beginning(&store)
            .executor(Arc::clone(&dies))
            .build()
            .unwrap();
        let died = async {
            tokio::select! {
                () = eventually(async || dies.executed() == RUNS) => {}
                _ = runtime.run_until(std::future::pending()) => {}
            }
        };
        timeout(2 * LEASE, died).await.unwrap();
        logs.push(log.take());
        // One claim then claims all runs.
        sleep(2 * LEASE).await;
    }
    let last = Probe::on("question.v1", "worker", &store);
    let runtime = from_beginning(&store).executor(last).build().unwrap();

    runtime.run_until(until_ended(&store, RUNS)).await.unwrap();

    logs.push(log.take());
    let lines = |log: usize, part: &str| -> Vec<String> {
        let lines = logs[log].lines().filter(|line| line.contains(part));
        lines.map(str::to_owned).collect()
    };
    let taken_over = "runs restart";
    let alone = "a run that may have crashed its workers restarts";
    assert_eq!(lines(0, taken_over), Vec::<String>::new());
    let together = lines(1, taken_over);
    let [together] = &*together else {
        panic!("{}", logs[1]);
    };
    for part in [
        "runs restart because their workers stopped renewing the leases",
        "runs=3",
        "executor=\"worker\"",
        "run=run of \"worker\" on ",
        "attempt=2",
        "abandoned=1",
    ] {
        assert!(together.contains(part), "{part} is not in {together}");
    }
    assert_eq!(lines(1, alone), Vec::<String>::new());
    for part in ["a run restarts because its worker", alone] {
        let found = lines(2, part);
        assert_eq!(found.len(), RUNS, "{part}: {}", logs[2]);
        for line in found {
            assert!(line.contains("attempt=3 abandoned=2"), "{line}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_with_a_high_limit_does_not_cost_another_run_its_last_worker() {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    for death in 1..=4 {
        let mortal = Shim::of_a_worker_that_dies(&store);
        let killer = Probe::on("question.v1", "killer", &mortal)
            .profile(Profile::default().crashes(10).attempts(10))
            .hanging()
            .shared();
        let slow = Probe::on("question.v1", "slow", &mortal)
            .executing(|_| async {
                tokio::time::sleep(SECOND).await;
                Ok(json!({}))
            })
            .shared();
        let runtime = from_beginning(&store)
            .executor(Arc::clone(&killer))
            .executor(Arc::clone(&slow))
            .build()
            .unwrap();
        // The first two workers die while both runs execute, so both runs become suspect.
        let dies = eventually(async || match death {
            1 | 2 => killer.executed() + slow.executed() == 2,
            _ => killer.executed() == 1 || count(&store, "answer.v1").await == 1,
        });
        let died = async {
            tokio::select! {
                () = dies => {}
                _ = runtime.run_until(std::future::pending()) => {}
            }
        };
        timeout(3 * LEASE, died).await.unwrap();
    }

    assert_eq!(count(&store, "answer.v1").await, 1);
    assert_eq!(count(&store, "executor.failed.v1").await, 0);
}

#[tokio::test(start_paused = true)]
async fn outages_of_the_store_are_not_counted_as_deaths_of_a_worker_that_lives() {
    const OUTAGES: usize = 4;
    const RUNS: usize = 16;
    let store = MemoryStore::default();
    for n in 0..RUNS {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let out = Arc::new(AtomicBool::new(false));
    let is_out = Arc::clone(&out);
    let away = Shim::new(&store, move |_| match is_out.load(Ordering::SeqCst) {
        true => Do::Fail(unavailable()),
        false => Do::Pass,
    });
    let probe = Probe::on("question.v1", "worker", &away)
        .executing(|context| async move {
            if context.attempt() <= u32::try_from(OUTAGES).unwrap() {
                std::future::pending::<()>().await;
            }
            Ok(json!({}))
        })
        .shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&probe))
        .build()
        .unwrap();
    let scenario = async {
        for outage in 1..=OUTAGES {
            eventually(async || probe.executed() == outage * RUNS).await;
            out.store(true, Ordering::SeqCst);
            tokio::time::sleep(3 * LEASE).await;
            out.store(false, Ordering::SeqCst);
            let recovered = Instant::now();
            eventually(async || probe.executed() == (outage + 1) * RUNS).await;
            assert!(
                recovered.elapsed() < 3 * SECOND,
                "after outage {outage} the runs took {:?} to start",
                recovered.elapsed()
            );
        }
        until_ended(&store, RUNS).await;
    };

    runtime.run_until(scenario).await.unwrap();

    let rows = runs(&store).await;
    assert!(
        rows.iter().all(|row| row.state == RunState::Done),
        "{rows:?}"
    );
    assert_eq!(count(&store, "answer.v1").await, RUNS);
}

#[tokio::test(start_paused = true)]
async fn outages_of_the_store_before_execute_use_no_attempt() {
    const OUTAGES: usize = 4;
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let [is_out, reads] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
    let (out, read) = (Arc::clone(&is_out), Arc::clone(&reads));
    let away = Shim::new(&store, move |call| {
        if let Call::Get(_) = call {
            let outages = read.fetch_add(1, Ordering::SeqCst);
            if outages < OUTAGES {
                out.store(1, Ordering::SeqCst);
                return Do::Hang;
            }
        }
        match out.load(Ordering::SeqCst) {
            0 => Do::Pass,
            _ => Do::Fail(unavailable()),
        }
    });
    let probe = Probe::on("question.v1", "worker", &away)
        .profile(Profile::default().at_most_once().attempts(1).lease(LEASE))
        .shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&probe))
        .build()
        .unwrap();
    let scenario = async {
        for outage in 1..=OUTAGES {
            eventually(async || reads.load(Ordering::SeqCst) == outage).await;
            tokio::time::sleep(3 * LEASE).await;
            is_out.store(0, Ordering::SeqCst);
        }
        until_ended(&store, 1).await;
    };

    runtime.run_until(scenario).await.unwrap();

    let rows = runs(&store).await;
    assert_eq!(rows[0].state, RunState::Done, "{rows:?}");
    assert_eq!((probe.executed(), count(&store, "answer.v1").await), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_loses_the_store_until_another_has_its_run_is_not_counted_as_dead() {
    const OUTAGES: usize = 4;
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let holder = Arc::new(AtomicUsize::new(0));
    let out = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
    let worker = |number: usize| {
        let is_out = Arc::clone(&out[number]);
        let away = Shim::new(&store, move |_| match is_out.load(Ordering::SeqCst) {
            true => Do::Fail(unavailable()),
            false => Do::Pass,
        });
        let holder = Arc::clone(&holder);
        Probe::on("question.v1", "worker", &away)
            .executing(move |context| {
                holder.store(number, Ordering::SeqCst);
                async move {
                    if context.attempt() <= u32::try_from(OUTAGES).unwrap() {
                        std::future::pending::<()>().await;
                    }
                    Ok(json!({}))
                }
            })
            .shared()
    };
    let probes = [0, 1].map(worker);
    let executed = || probes.iter().map(|probe| probe.executed()).sum::<usize>();
    let scenario = async {
        for outage in 1..=OUTAGES {
            eventually(async || executed() == outage).await;
            let number = holder.load(Ordering::SeqCst);
            out[number].store(true, Ordering::SeqCst);
            // The other worker claims the run once the run's lease has expired.
            eventually(async || executed() == outage + 1).await;
            out[number].store(false, Ordering::SeqCst);
            assert_ne!(holder.load(Ordering::SeqCst), number);
            tokio::time::sleep(LEASE / 3).await;
        }
        until_ended(&store, 1).await;
    };
    let [first, second] = probes.each_ref().map(|probe| {
        let runtime = from_beginning(&store).executor(Arc::clone(probe));
        runtime.build().unwrap()
    });

    tokio::select! {
        _ = first.run_until(std::future::pending()) => {}
        _ = second.run_until(std::future::pending()) => {}
        () = scenario => {}
    }

    assert_eq!(runs(&store).await.remove(0).state, RunState::Done);
    assert_eq!(count(&store, "answer.v1").await, 1);
}

#[tokio::test(start_paused = true)]
async fn suspect_runs_execute_one_at_a_time_after_two_worker_deaths() {
    const SUSPECTS: usize = 5;
    let store = MemoryStore::default();
    for _ in 0..SUSPECTS {
        put(&store, "question.v1", json!({"suspect": true})).await;
    }
    for _ in 0..2 {
        let dies = Shim::of_a_worker_that_dies(&store);
        let hangs = Probe::on("question.v1", "worker", &dies)
            .executing(|_| std::future::pending())
            .shared();
        let runtime = from_beginning(&store)
            .executor(Arc::clone(&hangs))
            .build()
            .unwrap();
        let died = async {
            tokio::select! {
                () = eventually(async || hangs.executed() == SUSPECTS) => {}
                _ = runtime.run_until(std::future::pending()) => {}
            }
        };
        timeout(2 * LEASE, died).await.unwrap();
    }
    for _ in 0..SUSPECTS {
        put(&store, "question.v1", json!({"suspect": false})).await;
    }
    let most = Arc::new(AtomicUsize::new(0));
    let (noted, ledger) = (Arc::clone(&most), store.clone());
    let last = Probe::on("question.v1", "worker", &store).executing(move |context| {
        let (noted, ledger) = (Arc::clone(&noted), ledger.clone());
        async move {
            if context.trigger().context["suspect"] == true {
                // If the worker died now, these runs would die with it.
                let leased = RunFilter::all().state(RunState::Running);
                let leased = ledger.runs(&leased).await?;
                let suspects = leased.iter().filter(|run| run.attempts == 3).count();
                noted.fetch_max(suspects, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            Ok(json!({}))
        }
    });
    let runtime = from_beginning(&store)
        .executor(last.shared())
        .build()
        .unwrap();

    let report = runtime
        .run_until(until_ended(&store, 2 * SUSPECTS))
        .await
        .unwrap();

    assert_eq!((report.responded, report.failed), (2 * SUSPECTS as u64, 0));
    assert_eq!(most.load(Ordering::Relaxed), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_run_that_is_redone_runs_with_fresh_attempts_and_another_key() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let probe = Probe::on("question.v1", "prober", &store)
        .profile(Profile::default().attempts(2))
        .executing({
            let store = store.clone();
            move |_| {
                let store = store.clone();
                async move {
                    match count(&store, "fixed.v1").await {
                        0 => Err("reset".into()),
                        _ => Ok(json!({})),
                    }
                }
            }
        })
        .shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&probe))
        .build()
        .unwrap();
    let run = RunRef::of("prober", &event_of(&question));
    let redone = async {
        until(&store, "executor.failed.v1", 1).await;
        put(&store, "fixed.v1", json!({})).await;
        let asked = Instant::now();
        runtime.redo(&run).await.unwrap();
        until(&store, "answer.v1", 1).await;
        assert!(asked.elapsed() < SECOND, "{:?}", asked.elapsed());
        until_ended(&store, 1).await;
    };

    let report = runtime.run_until(redone).await.unwrap();

    assert_eq!((report.failed, report.responded), (1, 1));
    let attempts: Vec<u32> = (0..3).map(|call| probe.context(call).attempt()).collect();
    assert_eq!(attempts, [1, 2, 1]);
    let key = |call| probe.context(call).idempotency_key().to_owned();
    assert_eq!(key(0), key(1));
    assert_ne!(key(1), key(2));
    let run = runs(&store).await.remove(0);
    assert_eq!((run.state, run.attempts), (RunState::Done, 1));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_cannot_be_redone_reports_the_reason() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let plain = Probe::on("other.v1", "plain", &Shim::without_ledger(&store));
    let silent = Probe::on("question.v1", "prober", &store).writing(Response::none());
    let runtime = from_beginning(&store)
        .executor(silent)
        .executor(plain)
        .build()
        .unwrap();
    runtime.run_until(until_ended(&store, 1)).await.unwrap();
    let run = |executor: &str| RunRef::of(executor, &event_of(&question));
    let redo = async |run: RunRef| runtime.redo(&run).await.unwrap_err();

    let errors = [
        redo(run("nobody")).await,
        redo(run("plain")).await,
        redo(run("prober")).await,
        redo(RunRef::new("prober", question.id, 7)).await,
    ];

    let [nobody, no_ledger, done, unknown] = &errors;
    assert!(matches!(nobody, RuntimeError::UnknownExecutor { id } if id == "nobody"));
    assert!(matches!(no_ledger, RuntimeError::NoLedger { id } if id == "plain"));
    let of_store = |error: &RuntimeError| match error {
        RuntimeError::Store { source, .. } => Some(Arc::clone(source)),
        _ => None,
    };
    let state = |error: &RuntimeError| match of_store(error).as_deref() {
        Some(StoreError::WrongState { state, .. }) => Some(*state),
        _ => None,
    };
    assert_eq!(state(done), Some(RunState::Done));
    assert!(matches!(
        of_store(unknown).as_deref(),
        Some(StoreError::UnknownRun { .. })
    ));
    assert!(errors.iter().all(|error| error.retry() == Retry::Never));
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fell_due_during_a_downtime_starts_with_the_next_runtime() {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let limited = |delay: Option<Duration>| {
        Probe::on("question.v1", "limited", &store).executing(move |_| async move {
            match delay {
                Some(delay) => Err(retry_after(delay, "slow down")),
                None => Ok(json!({})),
            }
        })
    };
    let first = from_beginning(&store)
        .executor(limited(Some(60 * SECOND)))
        .build()
        .unwrap();
    first.run_until(tokio::time::sleep(SECOND)).await.unwrap();
    tokio::time::sleep(100 * SECOND).await;
    let next = Runtime::builder(store.events())
        .executor(limited(None))
        .build()
        .unwrap();
    let began = Instant::now();

    next.run_until(until(&store, "answer.v1", 1)).await.unwrap();

    assert!(began.elapsed() < SECOND, "{:?}", began.elapsed());
    assert!(
        store.runs(&Default::default()).await.unwrap()[0]
            .state
            .is_over()
    );
}

/// Creates a store on which the next read of a breadcrumb fails once after the flag is set.
fn stumbling(store: &MemoryStore, stumbles: &Arc<AtomicBool>) -> Arc<Faulty<MemoryStore>> {
    let stumbles = Arc::clone(stumbles);
    let plan = move |operation, moment| match (operation, moment) {
        (Operation::Get, Moment::Before) if stumbles.swap(false, Ordering::SeqCst) => Fault::Fail,
        (_, _) => Fault::None,
    };
    Arc::new(Faulty::new(store.clone(), plan))
}

/// Returns a profile with this number of attempts, for executors that handle one run at a time.
fn one_at_a_time(attempts: u32) -> Profile {
    let mut profile = Profile::default().attempts(attempts);
    profile.max_inflight = Some(1);
    profile.timeout(600 * SECOND)
}

/// Answers two questions in sequence. The first one takes this number of seconds. Then one read fails before the second run.
/// Returns the number of failed runs, and the time between the runs.
async fn one_failed_read_after(seconds: u32, attempts: u32) -> (u64, Duration) {
    let (store, stumbles) = (MemoryStore::default(), Arc::new(AtomicBool::new(false)));
    let (notebook, fails) = (ExecutionLog::default(), Arc::clone(&stumbles));
    for n in 0..2 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let noted = notebook.clone();
    let worker = Probe::on("question.v1", "worker", &stumbling(&store, &stumbles))
        .profile(one_at_a_time(attempts))
        .executing(move |context| {
            let (note, noted, fails) = (noted.start(&context), noted.clone(), fails.clone());
            async move {
                if note == 0 {
                    tokio::time::sleep(seconds * SECOND).await;
                    fails.store(true, Ordering::SeqCst);
                }
                noted.end(note);
                Ok(json!({}))
            }
        });
    let runtime = from_beginning(&store).executor(worker).build().unwrap();
    let report = runtime.run_until(until_ended(&store, 2)).await.unwrap();
    let turns = notebook.turns();
    let paused = turns.get(1).zip(turns[0].end);
    let paused = paused.map_or(Duration::MAX, |(next, end)| next.start - end);
    (report.failed, paused)
}

#[tokio::test(start_paused = true)]
async fn one_failed_read_after_a_long_wait_for_its_turn_delays_a_run_by_a_second_and_uses_no_attempt()
 {
    // The delay is random, so several runs are needed to detect a longer one.
    let waits = [(70, 1)].into_iter().chain([(50, 5); 10]);
    for (seconds, attempts) in waits {
        let (failed, paused) = one_failed_read_after(seconds, attempts).await;
        assert_eq!(failed, 0, "after {seconds} s with {attempts} attempts");
        assert!(paused <= 2 * SECOND, "{paused:?} after {seconds} s");
    }
}

#[tokio::test(start_paused = true)]
async fn one_failed_read_after_a_long_attempt_that_failed_does_not_end_a_run() {
    let (store, stumbles) = (MemoryStore::default(), Arc::new(AtomicBool::new(false)));
    put(&store, "question.v1", json!({})).await;
    let fails = Arc::clone(&stumbles);
    let worker = Probe::on("question.v1", "worker", &stumbling(&store, &stumbles))
        .profile(one_at_a_time(2))
        .executing(move |context| {
            let fails = Arc::clone(&fails);
            async move {
                if context.attempt() > 1 {
                    return Ok(json!({}));
                }
                tokio::time::sleep(70 * SECOND).await;
                fails.store(true, Ordering::SeqCst);
                Err("reset".into())
            }
        });
    let runtime = from_beginning(&store).executor(worker).build().unwrap();

    let report = runtime.run_until(until_ended(&store, 1)).await.unwrap();

    assert_eq!((report.responded, report.failed), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn one_rate_limit_after_a_long_wait_for_its_turn_does_not_end_a_run() {
    let store = MemoryStore::default();
    for n in 0..3 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let mut policy = RetryPolicy::default();
    policy.max_age = 60 * SECOND;
    let limited = Arc::new(AtomicBool::new(true));
    let worker = Probe::on("question.v1", "worker", &store)
        .profile(one_at_a_time(1).retry(policy))
        .executing(move |context| {
            let limited = Arc::clone(&limited);
            async move {
                let is_last = context.trigger().context["n"] == 2;
                if is_last && limited.swap(false, Ordering::SeqCst) {
                    return Err(retry_after(SECOND, "429"));
                }
                tokio::time::sleep(70 * SECOND).await;
                Ok(json!({}))
            }
        });
    let runtime = from_beginning(&store).executor(worker).build().unwrap();

    let report = runtime.run_until(until_ended(&store, 3)).await.unwrap();

    assert_eq!((report.responded, report.failed), (3, 0));
}
