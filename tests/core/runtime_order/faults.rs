//! Faults of events, runs, workers and the store, and their effects.

use crate::runtime_order::harness::{
    LEASE, Played, SECOND, count, from_beginning, in_state, until, until_ended,
};
use crate::support::{
    Call, Do, Probe, Shim, all, event_of, eventually, nested, put, runs, unavailable,
};
use futures::FutureExt as _;
use futures::stream;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use tokio::time::{Instant, sleep};
use universal_executor::source::{Deliveries, SourceError, StartAt};
use universal_executor::store::{RunEnd, RunState};
use universal_executor::{
    BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, Event, EventKind, EventSource, MemoryStore,
    NewBreadcrumb, Patch, Profile, Response, RunLedger, Runtime, Subscription, async_trait,
};

/// Returns the classes of all dead letters.
async fn letters(store: &MemoryStore) -> Vec<String> {
    let letters = all(store, "executor.failed.v1").await;
    let classes = letters
        .iter()
        .map(|letter| letter.context.get("class").unwrap());
    classes
        .map(|class| class.as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_version_that_is_announced_after_a_newer_one_is_superseded() {
    let store = MemoryStore::default();
    let first = put(&store, "question.v1", json!({"n": 1})).await;
    let patch = Patch::new().context(json!({"n": 2}));
    let second = store.update(first.id, 1, patch).await.unwrap();
    let events = [&second, &first, &second, &first].map(|version| event_of(version));
    let probe = Probe::on("question.v1", "prober", &store).shared();
    let runtime = Runtime::builder(Played::new(events))
        .executor(Arc::clone(&probe))
        .build()
        .unwrap();

    runtime.run_until(until_ended(&store, 2)).await.unwrap();

    assert_eq!((probe.executed(), count(&store, "answer.v1").await), (1, 1));
    assert_eq!(probe.context(0).trigger().version, 2);
    assert_eq!(versions(&store, RunState::Done).await, [2]);
    assert_eq!(versions(&store, RunState::Superseded).await, [1]);
}

/// Returns the trigger versions of all runs in a state.
async fn versions(store: &MemoryStore, state: RunState) -> Vec<u64> {
    let runs = in_state(store, state).await;
    runs.iter().map(|run| run.run.trigger_version).collect()
}

#[tokio::test(start_paused = true)]
async fn an_event_that_is_older_than_the_breadcrumb_leads_to_one_answer_to_the_newest() {
    let store = MemoryStore::default();
    let first = put(&store, "question.v1", json!({"n": 1})).await;
    for version in 1..4 {
        let patch = Patch::new().context(json!({"n": version + 1}));
        store.update(first.id, version, patch).await.unwrap();
    }
    let probe = Probe::on("question.v1", "prober", &store).shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&probe))
        .build()
        .unwrap();

    let report = runtime.run_until(until_ended(&store, 4)).await.unwrap();

    assert_eq!((probe.executed(), count(&store, "answer.v1").await), (1, 1));
    assert_eq!(probe.context(0).trigger().context["n"], 4);
    assert_eq!(versions(&store, RunState::Done).await, [4]);
    assert_eq!((report.responded, report.failed), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn an_event_that_contradicts_the_store_starts_no_run() {
    let store = MemoryStore::default();
    let secret = put(&store, "secret.v1", json!({"amount": 1})).await;
    let forged = Event {
        schema_name: Some("question.v1".to_owned()),
        tags: vec!["for:prober".to_owned()],
        context: Some(json!({"amount": 1_000_000}).into()),
        ..event_of(&secret)
    };
    let nobody = Event {
        breadcrumb_id: BreadcrumbId::default(),
        ..forged.clone()
    };
    let subscription = Subscription::trigger("question.v1");
    let probe = Probe::new("prober", &store, [subscription]).shared();
    let runtime = Runtime::builder(Played::new([forged, nobody]))
        .executor(Arc::clone(&probe))
        .build()
        .unwrap();

    let report = runtime.run_until(until_ended(&store, 2)).await.unwrap();

    assert_eq!(
        (probe.executed(), report.responded, report.skipped),
        (0, 0, 2)
    );
    let mut reasons: Vec<Option<String>> = runs(&store)
        .await
        .into_iter()
        .map(|run| run.reason)
        .collect();
    reasons.sort();
    assert_eq!(
        reasons,
        [Some("gone".to_owned()), Some("unmatched".to_owned())]
    );
    assert_eq!(letters(&store).await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_trigger_that_is_deleted_before_its_run_starts_is_gone_without_a_dead_letter() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    store.delete(question.id).await.unwrap();
    let probe = Probe::on("question.v1", "prober", &store).shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&probe))
        .build()
        .unwrap();

    let report = runtime.run_until(until_ended(&store, 1)).await.unwrap();

    assert_eq!((probe.executed(), report.skipped, report.errors), (0, 1, 0));
    assert_eq!(runs(&store).await[0].reason.as_deref(), Some("gone"));
    assert_eq!(letters(&store).await.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_deletion_event_before_the_creation_event_causes_no_loss() {
    let store = MemoryStore::default();
    let question = put(&store, "question.v1", json!({})).await;
    let deleted = Event {
        kind: EventKind::Deleted,
        ..event_of(&question)
    };
    let events = [deleted, event_of(&question)];
    let probe = Probe::on("question.v1", "prober", &store).shared();
    let runtime = Runtime::builder(Played::new(events))
        .executor(Arc::clone(&probe))
        .build()
        .unwrap();

    runtime
        .run_until(until(&store, "answer.v1", 1))
        .await
        .unwrap();

    assert_eq!(probe.executed(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hanging_run_is_dropped_after_its_timeout_and_retried() {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let hangs = Probe::on("question.v1", "hangs", &store)
        .profile(Profile::default().timeout(10 * SECOND))
        .executing(|context| async move {
            if context.attempt() == 1 {
                std::future::pending::<()>().await;
            }
            Ok(json!({}))
        });
    let runtime = from_beginning(&store).executor(hangs).build().unwrap();
    let began = Instant::now();

    let report = runtime
        .run_until(until(&store, "answer.v1", 1))
        .await
        .unwrap();

    let took = began.elapsed();
    assert!(took >= 10 * SECOND && took <= 12 * SECOND, "{took:?}");
    assert_eq!((report.postponed, report.responded), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_panics_cost_no_worker() {
    let store = MemoryStore::default();
    for n in 0..2_000 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let jumpy = Probe::on("question.v1", "jumpy", &store)
        .profile(Profile::default().attempts(1))
        .executing(|context| async move {
            let n = context.trigger().context["n"].as_u64().unwrap_or_default();
            if n.is_multiple_of(2) {
                // `resume_unwind` panics without printing a message.
                std::panic::resume_unwind(Box::new("boom"));
            }
            Ok(json!({}))
        })
        .shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&jumpy))
        .build()
        .unwrap();

    let report = runtime.run_until(until_ended(&store, 2_000)).await.unwrap();

    assert_eq!(
        (report.responded, report.failed, report.panics),
        (1_000, 1_000, 0)
    );
    assert_eq!(jumpy.executed(), 2_000);
    let classes = letters(&store).await;
    assert_eq!(classes.len(), 1_000);
    assert!(classes.iter().all(|class| class == "panic"));
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_cannot_keep_its_lease_sends_nothing_after_it() {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let (began, commits) = (Instant::now(), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&commits);
    let cut_off = Shim::new(&store, move |call| match call {
        Call::Heartbeat => Do::Hang,
        Call::Claim if began.elapsed() > SECOND => Do::Fail(unavailable()),
        Call::Commit(_) => {
            counted.fetch_add(1, Ordering::SeqCst);
            Do::Pass
        }
        _ => Do::Pass,
    });
    let zombie = Probe::on("question.v1", "worker", &cut_off)
        .profile(Profile::default().timeout(20 * LEASE))
        .executing(|_| async {
            sleep(10 * LEASE).await;
            Ok(json!({"by": "zombie"}))
        })
        .shared();
    let healthy = Probe::on("question.v1", "worker", &store)
        .executing(|_| async { Ok(json!({"by": "healthy"})) });
    let first = from_beginning(&store)
        .executor(Arc::clone(&zombie))
        .build()
        .unwrap();
    let second = Runtime::builder(store.events())
        .executor(healthy)
        .build()
        .unwrap();
    let took_over = async {
        sleep(SECOND).await;
        second
            .run_until(until(&store, "answer.v1", 1))
            .await
            .unwrap()
    };

    let (report, healthy) = tokio::join!(first.run_until(sleep(20 * LEASE)), took_over);

    let answers = all(&store, "answer.v1").await;
    assert_eq!(
        (answers.len(), &answers[0].context["by"]),
        (1, &json!("healthy"))
    );
    assert_eq!((zombie.executed(), commits.load(Ordering::SeqCst)), (1, 0));
    let report = report.unwrap();
    assert_eq!(
        (report.responded, report.errors, healthy.responded),
        (0, 1, 1)
    );
}

/// Creates a store whose first matching call takes the time of three leases.
fn stuck_once(store: &MemoryStore, is_it: fn(Call<'_>) -> bool) -> Shim {
    let calls = AtomicUsize::new(0);
    Shim::new(store, move |call| {
        if is_it(call) && calls.fetch_add(1, Ordering::SeqCst) == 0 {
            return Do::Wait(3 * LEASE);
        }
        Do::Pass
    })
}

#[tokio::test(start_paused = true)]
async fn a_commit_after_the_lease_expires_writes_nothing_and_the_retry_answers() {
    for two in [false, true] {
        let store = MemoryStore::default();
        put(&store, "question.v1", json!({})).await;
        let stuck = stuck_once(&store, |call| matches!(call, Call::Commit(_)));
        let attempt = |context: universal_executor::ExecutionContext| async move {
            Ok(json!({"attempt": context.attempt()}))
        };
        let late = Probe::on("question.v1", "worker", &stuck).executing(attempt);
        let other = Probe::on("question.v1", "worker", &store).executing(attempt);
        let first = from_beginning(&store).executor(late).build().unwrap();
        let second = Runtime::builder(store.events())
            .executor(other)
            .build()
            .unwrap();
        let began = Instant::now();
        let took_over = async {
            sleep(SECOND).await;
            if two {
                second.run_until(sleep(5 * LEASE)).await.unwrap();
            }
        };
        let answered = async {
            until(&store, "answer.v1", 1).await;
            began.elapsed()
        };

        let (report, (), took) =
            tokio::join!(first.run_until(sleep(5 * LEASE)), took_over, answered);

        let answers = all(&store, "answer.v1").await;
        assert_eq!(
            (answers.len(), &answers[0].context["attempt"]),
            (1, &json!(2))
        );
        assert!(took <= LEASE + 6 * SECOND, "{took:?}");
        assert_eq!(report.unwrap().errors, 1);
        assert_eq!(letters(&store).await.len(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_that_comes_while_another_worker_has_the_run_writes_nothing() {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let began = Instant::now();
    let cut_off = Shim::new(&store, move |call| match call {
        Call::Commit(_) => Do::Wait(3 * LEASE),
        Call::Claim if began.elapsed() > SECOND => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let late = Probe::on("question.v1", "worker", &cut_off)
        .executing(|_| async { Ok(json!({"by": "late"})) });
    let healthy = Probe::on("question.v1", "worker", &store)
        .profile(Profile::default().timeout(20 * LEASE))
        .executing(|_| async {
            sleep(5 * LEASE).await;
            Ok(json!({"by": "healthy"}))
        });
    let first = from_beginning(&store).executor(late).build().unwrap();
    let second = Runtime::builder(store.events())
        .executor(healthy)
        .build()
        .unwrap();
    let took_over = async {
        sleep(SECOND).await;
        second
            .run_until(until(&store, "answer.v1", 1))
            .await
            .unwrap()
    };

    let (report, healthy) = tokio::join!(first.run_until(sleep(8 * LEASE)), took_over);

    let answers = all(&store, "answer.v1").await;
    assert_eq!(
        (answers.len(), &answers[0].context["by"]),
        (1, &json!("healthy"))
    );
    let report = report.unwrap();
    assert_eq!(
        (report.responded, report.errors, healthy.responded),
        (0, 1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_trigger_that_takes_longer_to_read_than_the_lease_is_answered_all_the_same() {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let stuck = stuck_once(&store, |call| matches!(call, Call::Get(_)));
    let slow = Probe::on("question.v1", "worker", &stuck);
    let runtime = from_beginning(&store).executor(slow).build().unwrap();
    let began = Instant::now();

    runtime
        .run_until(until(&store, "answer.v1", 1))
        .await
        .unwrap();

    assert!(
        began.elapsed() <= LEASE + 6 * SECOND,
        "{:?}",
        began.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn a_commit_whose_reply_was_lost_is_not_answered_twice() {
    let store = MemoryStore::default();
    for n in 0..20 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let (inside, lost) = (store.clone(), AtomicUsize::new(0));
    let mute = Shim::new(&store, move |call| match call {
        Call::Commit(commit) if lost.fetch_add(1, Ordering::SeqCst).is_multiple_of(2) => {
            let committed = inside.commit(commit.clone()).now_or_never();
            committed.unwrap().unwrap();
            Do::Fail(unavailable())
        }
        _ => Do::Pass,
    });
    let probe = Probe::on("question.v1", "prober", &mute).shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&probe))
        .build()
        .unwrap();

    let done = async {
        until_ended(&store, 20).await;
        sleep(10 * LEASE).await;
    };
    let report = runtime.run_until(done).await.unwrap();

    assert_eq!(
        (probe.executed(), count(&store, "answer.v1").await),
        (20, 20)
    );
    assert_eq!((report.responded, report.errors), (10, 10));
    assert_eq!(in_state(&store, RunState::Done).await.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn a_dead_letter_whose_reply_was_lost_is_not_written_twice() {
    let store = MemoryStore::default();
    put(&store, "question.v1", json!({})).await;
    let inside = store.clone();
    let mute = Shim::new(&store, move |call| match call {
        Call::Commit(commit) if matches!(commit.end, Some((_, RunEnd::Failed(_)))) => {
            let committed = inside.commit(commit.clone()).now_or_never();
            committed.map_or(Do::Pass, |_| Do::Fail(unavailable()))
        }
        _ => Do::Pass,
    });
    let refuses = Probe::on("question.v1", "refuses", &mute)
        .failing(|| universal_executor::permanent("no"))
        .answering_failures(|_, _| Ok(Response::create(NewBreadcrumb::new("answer.v1"))));
    let runtime = from_beginning(&store).executor(refuses).build().unwrap();

    runtime.run_until(sleep(10 * LEASE)).await.unwrap();

    assert_eq!(
        (
            letters(&store).await.len(),
            count(&store, "answer.v1").await
        ),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_while_the_store_is_away_for_ten_seconds() {
    let store = MemoryStore::default();
    let is_away = Arc::new(AtomicBool::new(false));
    let (away, inside) = (Arc::clone(&is_away), store.clone());
    let outage = Shim::new(&store, move |_| match away.load(Ordering::SeqCst) {
        true => Do::Fail(unavailable()),
        false => Do::Pass,
    });
    let worker = Probe::on("question.v1", "worker", &outage)
        .executing(|_| async {
            sleep(SECOND / 2).await;
            Ok(json!({}))
        })
        .shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&worker))
        .build()
        .unwrap();
    let traffic = async {
        for n in 0..200 {
            put(&inside, "question.v1", json!({"n": n})).await;
            sleep(SECOND / 10).await;
            is_away.store((50..150).contains(&n), Ordering::SeqCst);
        }
        until_ended(&inside, 200).await;
    };

    let report = runtime.run_until(traffic).await.unwrap();

    assert_eq!(
        (
            count(&store, "answer.v1").await,
            letters(&store).await.len()
        ),
        (200, 0)
    );
    assert_eq!(report.responded, 200);
    assert!(
        report.errors > 0,
        "the outage must cause errors: {report:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn claims_resume_within_five_seconds_after_an_outage() {
    let store = MemoryStore::default();
    let began = Instant::now();
    let outage = Shim::new(&store, move |_| match began.elapsed() < 10 * SECOND {
        true => Do::Fail(unavailable()),
        false => Do::Pass,
    });
    put(&store, "question.v1", json!({})).await;
    let worker = Probe::on("question.v1", "worker", &outage);
    let runtime = from_beginning(&store).executor(worker).build().unwrap();

    runtime
        .run_until(until(&store, "answer.v1", 1))
        .await
        .unwrap();

    let took = began.elapsed();
    assert!(took >= 10 * SECOND && took <= 15 * SECOND, "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn an_update_conflict_is_retried_with_a_fresh_read_so_no_change_is_lost() {
    let store = MemoryStore::default();
    let counter = put(&store, "counter.v1", json!({"n": 0})).await;
    for n in 0..50 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let (id, reads) = (counter.id, store.clone());
    let counts = Probe::on("question.v1", "counts", &store)
        .profile(Profile::default().max_inflight(4).attempts(20))
        .executing(move |_| {
            let reads = reads.clone();
            async move {
                let counter = reads.get(id).await?;
                sleep(SECOND / 10).await;
                let n = counter.context["n"].as_u64().unwrap_or_default();
                Ok(json!({"version": counter.version, "n": n + 1}))
            }
        })
        .responding(move |_, output| {
            let version = output["version"].as_u64().unwrap_or_default();
            let patch = Patch::new().context(json!({"n": output["n"]}));
            Ok(Response::update(id, version, patch))
        });
    let runtime = from_beginning(&store).executor(counts).build().unwrap();

    let report = runtime.run_until(until_ended(&store, 50)).await.unwrap();

    assert_eq!((report.responded, report.failed), (50, 0));
    assert!(report.postponed > 0, "{report:?}");
    assert_eq!(store.get(id).await.unwrap().context["n"], 50);
}

#[tokio::test(start_paused = true)]
async fn output_that_no_store_can_hold_fails_only_its_own_run() {
    let store = MemoryStore::default();
    for n in 0..100 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    let poisons = Probe::on("question.v1", "poisons", &store)
        .executing(|context| async move {
            let n = context.trigger().context["n"].as_u64().unwrap_or_default();
            Ok(match n {
                20 => json!({"deep": nested(100)}),
                40 => json!({"large": "x".repeat(2 << 20)}),
                60 => nested(100_000),
                80 => json!([1, 2, 3]),
                _ => json!({"n": n}),
            })
        })
        .shared();
    let runtime = from_beginning(&store)
        .executor(Arc::clone(&poisons))
        .build()
        .unwrap();

    let report = runtime.run_until(until_ended(&store, 100)).await.unwrap();

    assert_eq!(
        (report.responded, report.failed, report.postponed),
        (96, 4, 0)
    );
    assert_eq!(poisons.executed(), 100);
    assert_eq!(letters(&store).await, ["permanent"; 4]);
}

#[tokio::test(start_paused = true)]
async fn a_runtime_that_starts_again_from_the_beginning_answers_nothing_twice() {
    let store = MemoryStore::default();
    for n in 0..50 {
        put(&store, "question.v1", json!({"n": n})).await;
    }
    for _ in 0..3 {
        let probe = Probe::on("question.v1", "prober", &store);
        let runtime = Runtime::builder(store.events())
            .start_at(StartAt::Beginning)
            .executor(probe)
            .build()
            .unwrap();
        runtime.run_until(until_ended(&store, 50)).await.unwrap();
    }

    assert_eq!(count(&store, "answer.v1").await, 50);
    eventually(async || store.runs(&Default::default()).await.unwrap().len() == 50).await;
}

/// A source whose first stream panics, whose second subscription panics, and which then delivers.
struct Panicky {
    store: MemoryStore,
    subscribed: AtomicUsize,
}

#[async_trait]
impl EventSource for Panicky {
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        match self.subscribed.fetch_add(1, Ordering::SeqCst) {
            0 => Ok(Deliveries::new(stream::poll_fn(|_| {
                panic!("a bug in next")
            }))),
            1 => panic!("a bug in subscribe"),
            _ => self.store.events().subscribe(from).await,
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_the_source_or_the_store_does_not_end_the_runtime() {
    let store = MemoryStore::default();
    let searches = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&searches);
    let shim = Shim::new(&store, move |call| match call {
        Call::Search(_) if counted.fetch_add(1, Ordering::SeqCst) == 0 => panic!("a bug in search"),
        _ => Do::Pass,
    });
    let source = Panicky {
        store: store.clone(),
        subscribed: AtomicUsize::new(0),
    };
    put(&store, "question.v1", json!({})).await;
    let runtime = Runtime::builder(source)
        .executor(Probe::on("question.v1", "answers", &shim))
        .start_at(StartAt::Beginning)
        .build()
        .unwrap();

    let report = runtime.run_until(until_ended(&store, 1)).await.unwrap();

    assert_eq!(report.responded, 1, "{report:?}");
    assert!(searches.load(Ordering::SeqCst) > 0);
}

#[tokio::test(start_paused = true)]
async fn an_executor_works_on_though_the_store_of_another_takes_no_runs() {
    const QUESTIONS: usize = 3_000;
    let (good, bad) = (MemoryStore::default(), MemoryStore::default());
    let refusing = Shim::new(&bad, |call| match call {
        Call::Enqueue => Do::Fail(unavailable()),
        _ => Do::Pass,
    });
    let works = Probe::on("question.v1", "works", &good).shared();
    let runtime = Runtime::builder(good.events())
        .executor(Arc::clone(&works))
        .executor(Probe::on("question.v1", "stuck", &refusing))
        .build()
        .unwrap();
    let asked = async {
        for n in 0..QUESTIONS {
            put(&good, "question.v1", json!({ "n": n })).await;
        }
        let done = eventually(async || works.executed() == QUESTIONS);
        tokio::time::timeout(600 * SECOND, done).await.ok();
    };

    runtime.run_until(asked).await.unwrap();

    assert_eq!(works.executed(), QUESTIONS);
}
