//! Calls of every operation of a store and its ledger, each on valid data.

use crate::support::{Do, Shim, put};
use serde_json::json;
use universal_executor::store::{
    Claim, ClaimId, Claimed, Commit, DeadLetter, ExecutorLimits, FailureClass, KeyPosition, Lease,
    NewRequest, NewRun, Operation, Query, RunEnd, RunFilter, RunQuery, RunRef, StoreError,
    VectorQuery, WorkerRecord,
};
use universal_executor::{
    BreadcrumbStore, BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, RunLedger, Selector, Wake,
};

/// Creates a store that supports every operation.
pub(crate) fn able(inner: &MemoryStore) -> Shim {
    Shim::new(inner, |_| Do::Pass).nearest(Vec::new())
}

/// Returns the operations of a store and its ledger.
pub(crate) fn of_stores() -> impl Iterator<Item = Operation> {
    let of_sources = [
        Operation::Subscribe,
        Operation::Next,
        Operation::Ack,
        Operation::Nack,
    ];
    let all = Operation::ALL.into_iter();
    all.filter(move |operation| !of_sources.contains(operation))
}

/// Creates a run of "agent" and returns a lease on it.
pub(crate) async fn leased(store: &MemoryStore) -> Lease {
    let trigger = put(store, "question.v1", json!({})).await;
    let run = RunRef::new("agent", trigger.id, trigger.version);
    match store.claim(&run, None).await.unwrap() {
        Claim::Granted(Claimed { lease, .. }) => lease,
        other => panic!("{other:?}"),
    }
}

/// Calls an operation through a wrapper. The necessary data is prepared in the inner store.
#[expect(clippy::too_many_lines, reason = "one arm for each operation")]
pub(crate) async fn call(
    store: &impl BreadcrumbStore,
    inside: &MemoryStore,
    operation: Operation,
) -> Result<(), StoreError> {
    let ledger = store.ledger().unwrap();
    let lease = leased(inside).await;
    let (run, now) = (lease.run.clone(), lease.granted_at);
    let id = run.trigger_id;
    let everything = Query::new(Selector::schema("*"));
    match operation {
        Operation::Get => store.get(id).await.map(drop),
        Operation::Search => store.search(&everything).await.map(drop),
        Operation::VectorSearch => {
            let query = VectorQuery::new(everything, "near");
            store.vector_search(&query).await.map(drop)
        }
        Operation::Commit => store.create(NewBreadcrumb::new("note.v1")).await.map(drop),
        Operation::Enqueue => ledger.enqueue(vec![NewRun::from(run)]).await,
        Operation::Claim => ledger.claim(&run, None).await.map(drop),
        Operation::ClaimNext => {
            let limits = [ExecutorLimits::new("agent", 1)];
            ledger
                .claim_next(1, &limits, ClaimId::unique())
                .await
                .map(drop)
        }
        Operation::Heartbeat => ledger.heartbeat(&[lease]).await.map(drop),
        Operation::Retry => ledger.retry(lease, now, true, None).await,
        Operation::Release => ledger.release(lease).await,
        Operation::Transfer => {
            let position = KeyPosition::Held;
            ledger.transfer(lease, "new", now, position).await
        }
        Operation::AcceptTransfers => ledger.accept_transfers(&[]).await.map(drop),
        Operation::RecordWorker => {
            let worker = WorkerRecord::new("1", "blue");
            ledger.record_worker(&worker).await
        }
        Operation::Workers => ledger.workers().await.map(drop),
        Operation::SavePositions => ledger.save_positions(&[("agent".into(), vec![1])]).await,
        Operation::Positions => ledger.positions(&["agent".into()]).await.map(drop),
        Operation::Save => ledger.save(&lease, json!({}).into()).await,
        Operation::Resume => {
            let suspended = RunEnd::Suspended {
                wake: Wake::on(Selector::schema("answer.v1")),
                state: json!({}).into(),
            };
            end(inside, lease, suspended).await;
            ledger.resume(&run, id).await
        }
        Operation::Redo => {
            let letter = DeadLetter::new(FailureClass::Permanent, "error", 1);
            end(inside, lease, RunEnd::Failed(letter)).await;
            ledger.redo(&run).await
        }
        Operation::Cancel => ledger.cancel(&run).await.map(drop),
        Operation::Skip => {
            transfer(inside, lease).await;
            ledger.skip(&run).await
        }
        Operation::PauseExecutor => ledger.pause_executor("idle").await.map(drop),
        Operation::ResumeExecutor => ledger.resume_executor("idle").await.map(drop),
        Operation::PausedExecutors => ledger.paused_executors().await.map(drop),
        Operation::Request => {
            let request = NewRequest::new("idle", "key", NewBreadcrumb::new("note.v1"));
            ledger.request(request).await.map(drop)
        }
        Operation::Runs => ledger.runs(&RunFilter::all()).await.map(drop),
        Operation::RunsPage => ledger.runs_page(&RunQuery::all()).await.map(drop),
        Operation::WrittenBy => ledger.written_by(&[]).await.map(drop),
        other => panic!("{other} is not an operation of a store"),
    }
}

async fn transfer(store: &MemoryStore, lease: Lease) {
    let (ledger, now) = (store.ledger().unwrap(), lease.granted_at);
    let transferred = ledger.transfer(lease, "new", now, KeyPosition::Held);
    transferred.await.unwrap();
}

async fn end(store: &MemoryStore, lease: Lease, end: RunEnd) {
    let commit = Commit {
        writes: Vec::new(),
        end: Some((lease, end)),
    };
    store.commit(commit).await.unwrap();
}
