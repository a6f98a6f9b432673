//! Several versions of one executor on one store: each trigger that at least one version matches is answered exactly once.

use crate::log::Log;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tracing::Level;
use tracing_subscriber::fmt::format::FmtSpan;
use universal_executor::executor::OrderingKey;
use universal_executor::source::StartAt;
use universal_executor::store::conformance::StoreUnderTest;
use universal_executor::store::{
    Claim, Claimed, Fault, Faulty, KeyPosition, Moment, NewRun, Operation, Run, RunFilter, RunRef,
    RunState, Worker, WorkerRecord,
};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, EventSource,
    ExecutionContext, NewBreadcrumb, Profile, Response, Runtime, Subscription, Subscriptions,
    UniversalExecutor, async_trait,
};

/// The ID of the executor in all its versions.
const ID: &str = "agent";

/// One version of an executor that answers notes. Runs of one session execute one at a time.
struct Version<S> {
    name: &'static str,
    subscriptions: Subscriptions,
    profile: Profile,
    store: S,
}

#[async_trait]
impl<S: BreadcrumbStore> UniversalExecutor for Version<S> {
    fn id(&self) -> &str {
        ID
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

    async fn execute(&self, trigger: &Breadcrumb, _: &ExecutionContext) -> Result<Value, BoxError> {
        Ok(json!({"n": trigger.context["n"], "by": self.name}))
    }

    async fn respond(&self, _: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        Ok(Response::create(
            NewBreadcrumb::new("answer.v1").context(output),
        ))
    }
}

/// Returns subscriptions to notes with the tag "urgent".
fn narrow() -> Subscriptions {
    Subscriptions::new(vec![Subscription::trigger("note.v1").any_tags(["urgent"])]).unwrap()
}

/// Returns subscriptions to all notes.
fn wide() -> Subscriptions {
    Subscriptions::new(vec![Subscription::trigger("note.v1")]).unwrap()
}

fn runtime<S: StoreUnderTest>(
    subject: &S,
    store: &S::Store,
    name: &'static str,
    subscriptions: Subscriptions,
) -> Runtime {
    let events = subject.events(store).unwrap();
    runtime_on(events, store.clone(), name, subscriptions)
}

/// Builds the runtime of one version. Its store handle can differ from the handle with the events.
fn runtime_on(
    events: Box<dyn EventSource>,
    store: impl BreadcrumbStore + 'static,
    name: &'static str,
    subscriptions: Subscriptions,
) -> Runtime {
    let version = Version {
        name,
        subscriptions,
        profile: Profile::new("executor").ordering(OrderingKey::tag("session:")),
        store,
    };
    Runtime::builder(events)
        .start_at(StartAt::Beginning)
        .sweep_every(Duration::from_secs(1))
        .worker_name(name)
        .executor(version)
        .build()
        .unwrap()
}

/// Posts a note. Every third note is urgent, and the notes are spread over ten sessions.
async fn post(store: &impl BreadcrumbStore, n: usize) -> Arc<Breadcrumb> {
    let mut note = NewBreadcrumb::new("note.v1").context(json!({"n": n}));
    note = note.tag(format!("session:{}", n % 10));
    if n.is_multiple_of(3) {
        note = note.tag("urgent");
    }
    store.create(note).await.unwrap()
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    let waits = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), waits)
        .await
        .unwrap();
}

/// Returns the answers, oldest first: the number of the note, and the name of the version.
async fn answers(store: &impl BreadcrumbStore) -> Vec<(u64, String)> {
    let mut found = store.recent("answer.v1", 1_000).await.unwrap();
    found.reverse();
    let answer = |found: &Arc<Breadcrumb>| {
        let by = found.context["by"].as_str().unwrap().to_owned();
        (found.context["n"].as_u64().unwrap(), by)
    };
    found.iter().map(answer).collect()
}

async fn runs(store: &impl BreadcrumbStore) -> Vec<Run> {
    let ledger = store.ledger().unwrap();
    ledger.runs(&RunFilter::all()).await.unwrap()
}

/// Enqueues runs for new notes, as a version that matches the notes does.
async fn enqueue(store: &impl BreadcrumbStore, notes: usize) {
    for n in 0..notes {
        let note = post(store, n).await;
        let mut run = RunRef::new(ID, note.id, note.version);
        run.event = Some(Arc::new(Event::created(&note)));
        let ledger = store.ledger().unwrap();
        ledger.enqueue(vec![NewRun::from(run)]).await.unwrap();
    }
}

/// While an older version with narrower subscriptions runs next to a newer version, each trigger is answered once, in its order.
pub(crate) async fn old_and_new_together<S: StoreUnderTest>(subject: &S) {
    const NOTES: usize = 90;
    let store = subject.fresh().await;
    let (old, new) = (
        runtime(subject, &store.clone(), "old", narrow()),
        runtime(subject, &store.clone(), "new", wide()),
    );
    let work = async {
        until(async || old.health().ready && new.health().ready).await;
        for n in 0..NOTES {
            post(&store, n).await;
        }
        until(async || answers(&store).await.len() >= NOTES).await;
        until(async || runs(&store).await.iter().all(|run| run.state.is_over())).await;
    };

    tokio::select! {
        _ = old.run_until(pending()) => unreachable!("the runtime has no stop signal"),
        _ = new.run_until(pending()) => unreachable!("the runtime has no stop signal"),
        () = work => {}
    }

    let answers = answers(&store).await;
    let mut last: BTreeMap<u64, u64> = BTreeMap::new();
    for (n, _) in &answers {
        let before = last.insert(n % 10, *n);
        assert!(before.is_none_or(|before| before < *n), "{answers:?}");
    }
    assert_eq!(answers.len(), NOTES, "{answers:?}");
    let done = |run: &Run| run.state == RunState::Done;
    assert!(runs(&store).await.iter().all(done));
}

/// Runs that only an absent version matches wait for that version, also while another version runs.
pub(crate) async fn a_version_that_is_away_is_waited_for<S: StoreUnderTest>(subject: &S) {
    const NOTES: usize = 30;
    let store = subject.fresh().await;
    let mut away = WorkerRecord::new("away", "away").executor(ID, &wide());
    away.stopped = true;
    store.ledger().unwrap().record_worker(&away).await.unwrap();
    enqueue(&store, NOTES).await;
    let (log, _guard) = Log::capture(Level::WARN, FmtSpan::NONE);

    let old = runtime(subject, &store.clone(), "old", narrow());
    let left = async {
        let open = async || {
            let runs = runs(&store).await;
            runs.iter().filter(|run| !run.state.is_over()).count()
        };
        until(async || open().await == NOTES / 3 * 2).await;
        until(async || {
            runs(&store)
                .await
                .iter()
                .all(|run| run.state.is_over() || run.transferred_to.is_some())
        })
        .await;
    };
    old.run_until(left).await.unwrap();

    let left = runs(&store).await.into_iter();
    let left: Vec<Run> = left.filter(|run| run.transferred_to.is_some()).collect();
    assert_eq!(left.len(), NOTES / 3 * 2);
    let warnings = log.text().matches("a run waits at most 24 h").count();
    assert_eq!(warnings, left.len(), "{}", log.text());
    let transferred_to = wide().hash();
    for run in &left {
        assert_eq!(run.transferred_to.as_deref(), Some(&*transferred_to));
        assert_eq!((run.state, run.attempts), (RunState::Ready, 0));
    }

    let new = runtime(subject, &store.clone(), "new", wide());
    new.run_until(until(async || answers(&store).await.len() >= NOTES))
        .await
        .unwrap();

    let answers = answers(&store).await;
    let by_new = answers.iter().filter(|(_, by)| by == "new").count();
    assert_eq!((answers.len(), by_new), (NOTES, NOTES / 3 * 2));
}

/// A third version executes runs that were transferred to a version that never returns.
pub(crate) async fn a_third_version_accepts_transferred_runs<S: StoreUnderTest>(subject: &S) {
    let store = subject.fresh().await;
    let mut away = WorkerRecord::new("away", "away").executor(ID, &wide());
    away.stopped = true;
    store.ledger().unwrap().record_worker(&away).await.unwrap();
    enqueue(&store, 3).await;
    let old = runtime(subject, &store.clone(), "old", narrow());
    let left = until(async || {
        let runs = runs(&store).await;
        runs.iter()
            .filter(|run| run.transferred_to.is_some())
            .count()
            == 2
    });
    old.run_until(left).await.unwrap();

    let subscriptions = vec![
        Subscription::trigger("note.v1"),
        Subscription::trigger("other.v1"),
    ];
    let third = Subscriptions::new(subscriptions).unwrap();
    let third = runtime(subject, &store.clone(), "third", third);
    third
        .run_until(until(async || answers(&store).await.len() == 3))
        .await
        .unwrap();

    let over = |run: &Run| run.state == RunState::Done;
    assert!(runs(&store).await.iter().all(over));
}

/// Returns the version to which a note's run was transferred, or `None` if no such run exists.
async fn transferred(store: &impl BreadcrumbStore, note: &Breadcrumb) -> Option<String> {
    let runs = runs(store).await.into_iter();
    let mut of_note = runs.filter(|run| run.run.trigger_id == note.id);
    of_note.next().and_then(|run| run.transferred_to)
}

/// A note waits for a matching version that was live at the commit, even if another version receives the event after the first version
/// stopped. A later note does not wait.
pub(crate) async fn a_note_waits_for_a_version_that_stopped_after_the_commit<S: StoreUnderTest>(
    subject: &S,
) {
    let store = subject.fresh().await;
    let mut wide_worker = WorkerRecord::new("wide", "wide").executor(ID, &wide());
    let ledger = store.ledger().unwrap();
    ledger.record_worker(&wide_worker).await.unwrap();
    let while_live = post(&store, 1).await;
    wide_worker.stopped = true;
    ledger.record_worker(&wide_worker).await.unwrap();
    subject.advance_clock(Worker::LIVE * 2).await;
    let (later, urgent) = (post(&store, 2).await, post(&store, 3).await);

    let narrow = runtime(subject, &store, "narrow", narrow());
    let both = until(async || {
        let waits = transferred(&store, &while_live).await.is_some();
        waits && answers(&store).await.len() == 1
    });
    narrow.run_until(both).await.unwrap();

    let transferred_to = transferred(&store, &while_live).await;
    assert_eq!(transferred_to.as_deref(), Some(&*wide().hash()));
    let runs = runs(&store).await;
    assert!(runs.iter().all(|run| run.run.trigger_id != later.id));
    assert!(runs.iter().any(|run| run.run.trigger_id == urgent.id));
}

/// A note waits for a version whose last worker was killed up to 30 s after the worker stored its record.
pub(crate) async fn a_note_waits_for_a_version_that_was_killed_after_the_commit<
    S: StoreUnderTest,
>(
    subject: &S,
) {
    let store = subject.fresh().await;
    let killed = WorkerRecord::new("wide", "wide").executor(ID, &wide());
    let ledger = store.ledger().unwrap();
    ledger.record_worker(&killed).await.unwrap();
    subject.advance_clock(Worker::LIVE / 2).await;
    let while_live = post(&store, 1).await;
    subject.advance_clock(Worker::LIVE * 2).await;

    let narrow = runtime(subject, &store, "narrow", narrow());
    let waits = until(async || transferred(&store, &while_live).await.is_some());
    narrow.run_until(waits).await.unwrap();

    let again = runtime(subject, &store, "wide", wide());
    let answered = until(async || answers(&store).await.len() == 1);
    again.run_until(answered).await.unwrap();
    assert_eq!(answers(&store).await, [(1, "wide".to_owned())]);
}

/// A worker accepts all runs that were transferred to a version without a live worker, also if they need more than one call and if
/// the first call fails.
pub(crate) async fn all_runs_of_a_version_that_is_gone_are_accepted<S: StoreUnderTest>(
    subject: &S,
) {
    const NOTES: usize = 1_050;
    let store = subject.fresh().await;
    let mut away = WorkerRecord::new("away", "away").executor(ID, &wide());
    away.stopped = true;
    let ledger = store.ledger().unwrap();
    ledger.record_worker(&away).await.unwrap();
    enqueue(&store, NOTES).await;
    for run in runs(&store).await {
        let Claim::Granted(Claimed { lease, .. }) = ledger.claim(&run.run, None).await.unwrap()
        else {
            unreachable!("no other worker claims the run");
        };
        let until = lease.granted_at + Worker::KEPT;
        let version = wide().hash();
        let transferred = ledger.transfer(lease, &version, until, KeyPosition::Left);
        transferred.await.unwrap();
    }
    let has_failed = AtomicBool::new(false);
    let faulty = Faulty::new(store.clone(), move |operation, moment| {
        let fails = (operation, moment) == (Operation::AcceptTransfers, Moment::Before);
        match fails && !has_failed.swap(true, Ordering::SeqCst) {
            true => Fault::Fail,
            false => Fault::None,
        }
    });
    let third = vec![
        Subscription::trigger("note.v1"),
        Subscription::trigger("other.v1"),
    ];
    let third = Subscriptions::new(third).unwrap();
    let events = subject.events(&store).unwrap();
    let third = runtime_on(events, faulty, "third", third);

    let accepted = until(async || {
        let waits = |run: &Run| run.transferred_to.is_some();
        !runs(&store).await.iter().any(waits)
    });
    third.run_until(accepted).await.unwrap();
}

/// A run that waits for an absent version delays no later run of its session. When the version returns, it answers after those later
/// runs. An operator can skip such a run.
pub(crate) async fn a_run_that_waits_for_a_version_that_is_gone_delays_no_later_one<
    S: StoreUnderTest,
>(
    subject: &S,
) {
    let store = subject.fresh().await;
    let mut away = WorkerRecord::new("away", "away").executor(ID, &wide());
    away.stopped = true;
    store.ledger().unwrap().record_worker(&away).await.unwrap();
    let (first, skipped) = (post(&store, 2).await, post(&store, 22).await);
    let urgent = |n: usize| {
        let note = NewBreadcrumb::new("note.v1").context(json!({"n": n}));
        note.tag("session:2").tag("urgent")
    };
    store.create(urgent(12)).await.unwrap();
    let old = runtime(subject, &store, "old", narrow());

    let work = async {
        until(async || answers(&store).await.len() == 1).await;
        until(async || transferred(&store, &skipped).await.is_some()).await;
        assert!(transferred(&store, &first).await.is_some());
        for run in runs(&store).await {
            if run.run.trigger_id == skipped.id {
                old.skip(&run.run).await.unwrap();
                old.skip(&run.run).await.unwrap_err();
            }
        }
        store.create(urgent(32)).await.unwrap();
        until(async || answers(&store).await.len() == 2).await;
    };
    old.run_until(work).await.unwrap();
    let mut all = runs(&store).await.into_iter();
    let run = all.find(|run| run.run.trigger_id == skipped.id).unwrap();
    assert_eq!(run.reason.as_deref(), Some("unmatched"));
    old.redo(&run.run).await.unwrap();

    let new = runtime(subject, &store, "new", wide());
    let all_answered = until(async || answers(&store).await.len() == 4);
    new.run_until(all_answered).await.unwrap();
    let numbers = answers(&store).await.into_iter().map(|(n, _)| n);
    let (early, late): (Vec<u64>, Vec<u64>) = numbers.partition(|n| n % 20 == 12);
    assert_eq!(early, [12, 32]);
    assert_eq!(late.len(), 2, "{late:?}");
}

/// A run that was transferred to a live version whose worker then dies delays the later runs of its session only while that
/// worker counts as live.
pub(crate) async fn a_run_of_a_version_that_dies_delays_later_ones_for_a_short_time<
    S: StoreUnderTest,
>(
    subject: &S,
) {
    let store = subject.fresh().await;
    let dies = WorkerRecord::new("dies", "dies").executor(ID, &wide());
    store.ledger().unwrap().record_worker(&dies).await.unwrap();
    let first = post(&store, 2).await;
    let later = NewBreadcrumb::new("note.v1").context(json!({"n": 12}));
    let later = later.tag("session:2").tag("urgent");
    store.create(later).await.unwrap();
    let old = runtime(subject, &store, "old", narrow());

    let work = async {
        until(async || transferred(&store, &first).await.is_some()).await;
        assert!(answers(&store).await.is_empty());
        subject.advance_clock(Worker::LIVE * 2).await;
        until(async || answers(&store).await.len() == 1).await;
    };
    old.run_until(work).await.unwrap();

    assert!(transferred(&store, &first).await.is_some());
}

/// A run that no known version matches is skipped, and can be redone once a matching version runs.
pub(crate) async fn a_skip_can_be_redone<S: StoreUnderTest>(subject: &S) {
    let store = subject.fresh().await;
    enqueue(&store, 2).await;
    let (log, _guard) = Log::capture(Level::WARN, FmtSpan::NONE);
    let old = runtime(subject, &store.clone(), "old", narrow());
    let over = until(async || runs(&store).await.iter().all(|run| run.state.is_over()));
    old.run_until(over).await.unwrap();
    let skipped = runs(&store).await.into_iter();
    let skipped: Vec<Run> = skipped
        .filter(|run| run.state == RunState::Skipped)
        .collect();
    assert_eq!(skipped.len(), 1);
    assert_eq!(skipped[0].reason.as_deref(), Some("unmatched"));
    let warnings = log.text().matches("a run was skipped").count();
    assert_eq!(warnings, 1, "{}", log.text());

    let new = runtime(subject, &store.clone(), "new", wide());
    new.redo(&skipped[0].run).await.unwrap();
    new.run_until(until(async || answers(&store).await.len() == 2))
        .await
        .unwrap();

    let runs = runs(&store).await;
    assert!(runs.iter().all(|run| run.state == RunState::Done));
}

/// A worker is listed with its executors while it runs and after it has stopped.
pub(crate) async fn workers_are_listed<S: StoreUnderTest>(subject: &S) {
    let store = subject.fresh().await;
    let (blue, green) = (
        runtime(subject, &store.clone(), "blue", narrow()),
        runtime(subject, &store.clone(), "green", wide()),
    );
    let is_live = async |name: &str| {
        let workers = green.workers().await.unwrap();
        let worker = workers.iter().find(|worker| worker.record.name == name);
        worker.map(|worker| worker.is_live)
    };
    let both =
        until(async || is_live("blue").await == Some(true) && is_live("green").await == Some(true));
    tokio::select! {
        _ = blue.run_until(pending()) => unreachable!("the runtime has no stop signal"),
        stopped = green.run_until(both) => drop(stopped.unwrap()),
    }

    assert_eq!(is_live("green").await, Some(false));
    let workers = green.workers().await.unwrap();
    for (name, subscriptions) in [("blue", narrow()), ("green", wide())] {
        let worker = workers.iter().find(|worker| worker.record.name == name);
        let record = &worker.unwrap().record;
        assert_eq!(record.crate_version, env!("CARGO_PKG_VERSION"));
        assert_eq!(record.executors.len(), 1);
        let executor = &record.executors[0];
        assert_eq!(
            (&*executor.id, &executor.version),
            (ID, &subscriptions.hash())
        );
    }
}

/// Defines a module with one test per scenario. Each test runs its scenario on a fresh [`StoreUnderTest`].
macro_rules! versions {
    ($name:ident, $subject:expr) => {
        mod $name {
            use super::*;

            $crate::versions::versions! { @each $subject,
                old_and_new_together
                a_version_that_is_away_is_waited_for
                a_third_version_accepts_transferred_runs
                all_runs_of_a_version_that_is_gone_are_accepted
                a_note_waits_for_a_version_that_stopped_after_the_commit
                a_note_waits_for_a_version_that_was_killed_after_the_commit
                a_run_that_waits_for_a_version_that_is_gone_delays_no_later_one
                a_run_of_a_version_that_dies_delays_later_ones_for_a_short_time
                a_skip_can_be_redone
                workers_are_listed
            }
        }
    };
    (@each $subject:expr, $($scenario:ident)+) => {
        $(
            #[tokio::test]
            async fn $scenario() {
                $crate::versions::$scenario(&$subject).await;
            }
        )+
    };
}
pub(crate) use versions;
