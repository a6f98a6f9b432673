//! Several versions of one executor on one store: every trigger that one of them matches is answered once.

use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;
use universal_executor::executor::OrderingKey;
use universal_executor::source::StartAt;
use universal_executor::store::conformance::Subject;
use universal_executor::store::{NewRun, Run, RunFilter, RunRef, RunState, WorkerRecord};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbStore, BreadcrumbStoreExt, Event, ExecutionContext,
    NewBreadcrumb, Profile, Response, Runtime, Subscription, Subscriptions, UniversalExecutor,
    async_trait,
};

/// ID of the executor.
const ID: &str = "agent";

/// Answers notes. Runs of one session go one at a time.
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

/// Only notes with the tag "urgent".
fn narrow() -> Subscriptions {
    Subscriptions::new(vec![Subscription::trigger("note.v1").any_tags(["urgent"])]).unwrap()
}

/// All notes.
fn wide() -> Subscriptions {
    Subscriptions::new(vec![Subscription::trigger("note.v1")]).unwrap()
}

fn runtime<S: Subject>(
    subject: &S,
    store: &S::Store,
    name: &'static str,
    subscriptions: Subscriptions,
) -> Runtime {
    let version = Version {
        name,
        subscriptions,
        profile: Profile::new("executor").ordering(OrderingKey::tag("session:")),
        store: store.clone(),
    };
    Runtime::builder(subject.events(store).unwrap())
        .start_at(StartAt::Beginning)
        .sweep_every(Duration::from_secs(1))
        .worker_name(name)
        .executor(version)
        .build()
        .unwrap()
}

/// Posts a note; one in three is urgent. Ten sessions take turns.
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

/// Returns the answers, oldest first: number of the note, and name of the version.
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

/// Enqueues runs for new notes, as a version that matches them does.
async fn enqueue(store: &impl BreadcrumbStore, notes: usize) {
    for n in 0..notes {
        let note = post(store, n).await;
        let mut run = RunRef::new(ID, note.id, note.version);
        run.event = Some(Arc::new(Event::created(&note)));
        let ledger = store.ledger().unwrap();
        ledger.enqueue(vec![NewRun::from(run)]).await.unwrap();
    }
}

/// While an older version with narrower subscriptions runs beside a newer one, every trigger is answered once, in its order.
pub(crate) async fn old_and_new_together<S: Subject>(subject: &S) {
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
        _ = old.run_until(pending()) => unreachable!("it goes on"),
        _ = new.run_until(pending()) => unreachable!("it goes on"),
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

/// Runs that only an absent version matches wait for it, also while the other version runs.
pub(crate) async fn a_version_that_is_away_is_waited_for<S: Subject>(subject: &S) {
    const NOTES: usize = 30;
    let store = subject.fresh().await;
    let mut away = WorkerRecord::new("away", "away").executor(ID, &wide());
    away.stopped = true;
    store.ledger().unwrap().record_worker(&away).await.unwrap();
    enqueue(&store, NOTES).await;

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

/// A third version executes runs that were transferred to a version that does not come back.
pub(crate) async fn a_third_version_accepts_transferred_runs<S: Subject>(subject: &S) {
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

/// A run that no known version matches is skipped, and can be redone when a version runs that matches.
pub(crate) async fn a_skip_can_be_redone<S: Subject>(subject: &S) {
    let store = subject.fresh().await;
    enqueue(&store, 2).await;
    let old = runtime(subject, &store.clone(), "old", narrow());
    let over = until(async || runs(&store).await.iter().all(|run| run.state.is_over()));
    old.run_until(over).await.unwrap();
    let skipped = runs(&store).await.into_iter();
    let skipped: Vec<Run> = skipped
        .filter(|run| run.state == RunState::Skipped)
        .collect();
    assert_eq!(skipped.len(), 1);
    assert_eq!(skipped[0].reason.as_deref(), Some("unmatched"));

    let new = runtime(subject, &store.clone(), "new", wide());
    new.redo(&skipped[0].run).await.unwrap();
    new.run_until(until(async || answers(&store).await.len() == 2))
        .await
        .unwrap();

    let runs = runs(&store).await;
    assert!(runs.iter().all(|run| run.state == RunState::Done));
}

/// A worker is listed with its executors while it runs, and after it stopped.
pub(crate) async fn workers_are_listed<S: Subject>(subject: &S) {
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
        _ = blue.run_until(pending()) => unreachable!("it goes on"),
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

/// Makes a test for each of these scenarios, in a module of a name, with a [`Subject`] made anew for each.
macro_rules! versions {
    ($name:ident, $subject:expr) => {
        mod $name {
            use super::*;

            $crate::versions::versions! { @each $subject,
                old_and_new_together
                a_version_that_is_away_is_waited_for
                a_third_version_accepts_transferred_runs
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
