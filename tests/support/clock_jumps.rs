//! Stores whose wall clock is set back or jumps ahead.

use std::collections::BTreeSet;
use std::time::Duration;
use universal_executor::store::{
    Claim, ClaimId, Claimed, Commit, ExecutorLimits, NewRun, RunEnd, RunFilter, RunLedger, RunRef,
    RunState, Wake, WorkerRecord, Write,
};
use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt, NewBreadcrumb, Selector};

const HOUR: Duration = Duration::from_secs(60 * 60);

/// One hour back, in microseconds.
const BACK: i64 = -60 * 60 * 1_000_000;

async fn run(store: &impl BreadcrumbStore) -> RunRef {
    let trigger = store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    RunRef::new("agent", trigger.id, 1)
}

async fn claim(ledger: &dyn RunLedger, n: usize) -> Vec<Claimed> {
    let limits = [ExecutorLimits::new("agent", n)];
    let claimed = ledger.claim_next(n, &limits, ClaimId::unique()).await;
    claimed.unwrap()
}

/// Runs that were ready before the clock was set back can be claimed afterwards: a new run, a released run, a run with an immediate
/// retry, a woken run, and a redone run. `jump` moves the store's wall clock.
pub(crate) async fn ready_runs_stay_ready(store: &impl BreadcrumbStore, jump: impl Fn(i64)) {
    let ledger = store.ledger().unwrap();
    let mut runs = Vec::new();
    for _ in 0..5 {
        let run = run(store).await;
        ledger
            .enqueue(vec![NewRun::from(run.clone())])
            .await
            .unwrap();
        runs.push(run);
    }
    let answer = store.create(NewBreadcrumb::new("answer.v1")).await.unwrap();
    let mut leases = claim(ledger, 4).await.into_iter().map(|one| one.lease);
    let mut lease = || leases.next().unwrap();
    ledger.release(lease()).await.unwrap();
    let retried = lease();
    let at = answer.updated_at;
    ledger.retry(retried, at, true, None).await.unwrap();
    let suspended = lease();
    let woken = suspended.run.clone();
    let wake = Wake::on(Selector::schema("answer.v1"));
    let state = serde_json::json!({}).into();
    let end = Some((suspended, RunEnd::Suspended { wake, state }));
    let writes = Vec::new();
    store.commit(Commit { writes, end }).await.unwrap();
    ledger.resume(&woken, answer.id).await.unwrap();
    let skipped = lease();
    let redone = skipped.run.clone();
    let end = Some((skipped, RunEnd::Skipped(RunEnd::UNMATCHED)));
    let writes = Vec::new();
    store.commit(Commit { writes, end }).await.unwrap();
    ledger.redo(&redone).await.unwrap();

    jump(BACK);

    let ready = RunFilter::all().state(RunState::Ready);
    let listed = ledger.runs(&ready).await.unwrap();
    assert!(listed.iter().all(|run| run.due_for.is_some()), "{listed:?}");
    let claimed = claim(ledger, 9).await;
    assert_eq!(claimed.len(), 5, "{claimed:?}");
    jump(BACK);
    let later = run(store).await;
    ledger
        .enqueue(vec![NewRun::from(later.clone())])
        .await
        .unwrap();
    jump(BACK);
    assert_eq!(claim(ledger, 9).await.len(), 1);
}

/// A lease that was granted before the clock was set back stays valid, and expires at most one jump late.
pub(crate) async fn leases_are_held_and_expire(
    store: &impl BreadcrumbStore,
    jump: impl Fn(i64),
    pass: impl AsyncFn(Duration),
) {
    let ledger = store.ledger().unwrap();
    let first = run(store).await;
    let Claim::Granted(Claimed { lease, .. }) = ledger.claim(&first, None).await.unwrap() else {
        panic!("granted")
    };

    jump(BACK);

    let lost = ledger.heartbeat(std::slice::from_ref(&lease)).await;
    assert!(lost.unwrap().is_empty());
    let other = ledger.claim(&first, None).await.unwrap();
    assert!(matches!(other, Claim::Running { .. }), "{other:?}");
    assert_eq!(claim(ledger, 9).await.len(), 0);
    pass(HOUR + lease.run.lease).await;
    assert_eq!(claim(ledger, 9).await.len(), 1);
    let end = Some((lease, RunEnd::Done));
    let writes = vec![Write::Create(NewBreadcrumb::new("answer.v1"))];
    let late = store.commit(Commit { writes, end }).await.unwrap_err();
    assert_eq!(late.code(), "lease_lost");
}

/// Breadcrumbs that are committed after the clock was set back sort after all earlier ones.
pub(crate) async fn commits_stay_in_order(store: &impl BreadcrumbStore, jump: impl Fn(i64)) {
    let before = store.create(NewBreadcrumb::new("note.v1")).await.unwrap();

    jump(BACK);

    let after = store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    assert!(after.updated_at > before.updated_at);
    let newest = store.latest("note.v1").await.unwrap().unwrap();
    assert_eq!(newest.id, after.id);
}

/// A clock that was years ahead for a moment does not delay runs for years. After a clock that was ten days ahead, the store's clock runs
/// at double speed until it reaches its earlier time. `jump` moves the store's wall clock, and `pass` lets time pass.
pub(crate) async fn large_set_backs_are_followed(
    store: &impl BreadcrumbStore,
    jump: impl Fn(i64),
    pass: impl AsyncFn(Duration),
) {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    const SECOND: Duration = Duration::from_secs(1);
    let ledger = store.ledger().unwrap();
    let start = store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
    let enqueue = async |after: Duration| {
        let mut new = NewRun::from(run(store).await);
        new.at = Some(start.updated_at + after);
        ledger.enqueue(vec![new]).await.unwrap();
    };
    let ahead = i64::try_from(DAY.as_micros()).unwrap();

    let commit_ahead_by = async |time: i64| {
        jump(time);
        store.create(NewBreadcrumb::new("note.v1")).await.unwrap();
        jump(-time);
    };
    let end_due = async || {
        let claimed = claim(ledger, 9).await;
        let count = claimed.len();
        for Claimed { lease, .. } in claimed {
            let (writes, end) = (Vec::new(), Some((lease, RunEnd::Done)));
            store.commit(Commit { writes, end }).await.unwrap();
        }
        count
    };

    enqueue(4 * DAY + 110 * SECOND).await;
    enqueue(4 * DAY).await;
    commit_ahead_by(10 * ahead).await;
    let at_once = end_due().await;
    pass(60 * SECOND).await;
    let soon = end_due().await;

    assert_eq!((at_once, soon), (1, 1));
    enqueue(5 * DAY).await;
    commit_ahead_by(3_650 * ahead).await;
    let at_once = end_due().await;
    pass(5 * DAY).await;
    let later = end_due().await;
    assert_eq!((at_once, later), (0, 1));
}

/// After the clock jumps ahead by two days, the records of the other workers stay until these workers had time to store them again.
/// `jump` moves the store's wall clock, and `pass` lets time pass.
pub(crate) async fn records_of_workers_stay(
    store: &impl BreadcrumbStore,
    jump: impl Fn(i64),
    pass: impl AsyncFn(Duration),
) {
    let ledger = store.ledger().unwrap();
    let record = async |id: &str| {
        let record = WorkerRecord::new(id, id);
        ledger.record_worker(&record).await.unwrap();
    };
    let ids = async || {
        let workers = ledger.workers().await.unwrap();
        let ids = workers
            .into_iter()
            .map(|worker| worker.record.id.to_string());
        ids.collect::<BTreeSet<_>>()
    };
    record("first").await;
    pass(HOUR).await;
    for id in ["first", "second", "dead"] {
        record(id).await;
    }

    jump(2 * 24 * -BACK);
    for id in ["first", "first", "new"] {
        record(id).await;
    }
    let after_the_jump = ids().await;
    pass(Duration::from_secs(15)).await;
    record("second").await;
    pass(Duration::from_secs(15)).await;
    record("first").await;

    assert_eq!(after_the_jump.len(), 4, "{after_the_jump:?}");
    let expected = ["first", "new", "second"].map(str::to_owned);
    assert_eq!(ids().await, BTreeSet::from(expected));
}
