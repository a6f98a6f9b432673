//! Fixtures and helpers for the conformance tests of stores.

use super::AnyStore;
use super::Broken;
use super::expectations::{expect, same, some};
use crate::model::{Breadcrumb, BreadcrumbId, NewBreadcrumb, Selector};
use crate::store::{
    BreadcrumbStoreExt, ClaimId, Claimed, Commit, Committed, ExecutorLimits, Lease, NewRun, Query,
    Run, RunEnd, RunFilter, RunLedger, RunRef, StoreError, Write,
};
use serde_json::json;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// Duration of leases, suspensions and delays that must end during a conformance test.
pub(super) const SHORT: Duration = Duration::from_millis(500);
/// Time after which a lease, a suspension or a delay of the duration [`SHORT`] has ended in a conformance test.
pub(super) const AFTER_SHORT: Duration = Duration::from_secs(1);
pub(super) const HOUR: Duration = Duration::from_secs(3_600);

pub(super) fn note(text: &str) -> NewBreadcrumb {
    NewBreadcrumb::new("note.v1")
        .title(text)
        .tag("kept")
        .created_by("ann")
        .context(json!({"text": text}))
}

pub(super) fn create(text: &str) -> Write {
    Write::Create(note(text))
}

/// Creates a breadcrumb outside of runs, as the trigger of a run.
pub(super) async fn trigger(store: &AnyStore<'_>) -> Result<Arc<Breadcrumb>, StoreError> {
    store.create(note("trigger")).await
}

pub(super) fn run_of(executor: &str, trigger: &Breadcrumb) -> RunRef {
    RunRef::new(executor, trigger.id, trigger.version)
}

/// Creates `n` breadcrumbs of the schema `note.v1`, one after another.
pub(super) async fn create_notes(
    store: &AnyStore<'_>,
    n: usize,
) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
    let mut created = Vec::new();
    for n in 0..n {
        created.push(store.create(note(&n.to_string())).await?);
    }
    Ok(created)
}

/// Creates a trigger and returns a reference to an executor's run for it, without adding the run to the ledger.
pub(super) async fn new_run(store: &AnyStore<'_>, executor: &str) -> Result<RunRef, StoreError> {
    Ok(run_of(executor, &*trigger(store).await?))
}

/// Creates `n` triggers and adds an executor's runs for them to the ledger, one after another.
pub(super) async fn enqueued(
    store: &AnyStore<'_>,
    ledger: &dyn RunLedger,
    executor: &str,
    n: usize,
) -> Result<Vec<RunRef>, StoreError> {
    let mut runs = Vec::new();
    for _ in 0..n {
        let run = new_run(store, executor).await?;
        ledger.enqueue(vec![NewRun::from(run.clone())]).await?;
        runs.push(run);
    }
    Ok(runs)
}

/// Creates `n` triggers and adds an executor's runs for them with an ordering key, in one step.
pub(super) async fn enqueue_ordered(
    store: &AnyStore<'_>,
    ledger: &dyn RunLedger,
    executor: &str,
    key: &str,
    n: usize,
) -> Result<Vec<RunRef>, StoreError> {
    let mut runs = Vec::new();
    for _ in 0..n {
        runs.push(new_run(store, executor).await?.ordered_by(Some(key)));
    }
    let new = runs.iter().cloned().map(NewRun::from);
    ledger.enqueue(new.collect()).await?;
    Ok(runs)
}

/// Returns the ledger of a store, or an error if the store has none. The suite does not check the promises of a ledger on a store without
/// one.
#[track_caller]
pub(super) fn ledger_of<'h>(store: &'h AnyStore<'_>) -> Result<&'h dyn RunLedger, Broken> {
    some(store.ledger(), "a ledger")
}

/// Returns the store's ledger, or an error if the ledger does not record which run wrote each breadcrumb version.
#[track_caller]
pub(super) fn lineage_of<'h>(store: &'h AnyStore<'_>) -> Result<&'h dyn RunLedger, Broken> {
    expect(store.capabilities().lineage, "the store has a lineage")?;
    ledger_of(store)
}

/// Returns the breadcrumb IDs that a ledger must report as the writes of a run: `written`, or none if the ledger does not record
/// writers. The run must not have failed.
pub(super) fn expected_writes(
    store: &AnyStore<'_>,
    written: Vec<BreadcrumbId>,
) -> Vec<BreadcrumbId> {
    match store.capabilities().lineage {
        true => written,
        false => Vec::new(),
    }
}

/// Returns the name of a second tenant for the conformance tests. The name is a UUID if the store accepts no other names.
pub(super) fn other_tenant_name(store: &AnyStore<'_>) -> &'static str {
    match store.capabilities().named_tenants {
        true => "theirs",
        false => "7d0b7f0e-5d0c-4c66-9b51-0a53b8d1b8f4",
    }
}

/// Returns a handle on the same store, bound to a second tenant.
pub(super) async fn other_tenant<'s>(store: &AnyStore<'s>) -> Result<AnyStore<'s>, Broken> {
    let other = store.in_tenant(other_tenant_name(store)).await;
    some(other, "a second tenant")
}

/// Commits writes together with the end of a run.
pub(super) async fn end(
    store: &AnyStore<'_>,
    lease: &Lease,
    end: RunEnd,
    writes: Vec<Write>,
) -> Result<Committed, StoreError> {
    store
        .commit(Commit {
            writes,
            end: Some((lease.clone(), end)),
        })
        .await
}

/// Returns the ledger row of a run, or `None` if the ledger does not have the run.
pub(super) async fn row(ledger: &dyn RunLedger, run: &RunRef) -> Result<Option<Run>, StoreError> {
    let rows = ledger
        .runs(&RunFilter::all().trigger(run.trigger_id))
        .await?;
    Ok(rows.into_iter().find(|row| row.run == *run))
}

/// Claims up to `n` due runs of one executor, and returns the claimed runs.
pub(super) async fn claim_due(
    ledger: &dyn RunLedger,
    executor: &str,
    n: usize,
) -> Result<Vec<Claimed>, StoreError> {
    let limits = [ExecutorLimits::new(executor, n)];
    ledger.claim_next(n, &limits, ClaimId::unique()).await
}

/// Claims up to `n` due runs of one executor and returns their number.
pub(super) async fn claim_count(
    ledger: &dyn RunLedger,
    executor: &str,
    n: usize,
) -> Result<usize, StoreError> {
    Ok(claim_due(ledger, executor, n).await?.len())
}

/// Claims all due runs of the run's executor, and expects only the given run. Returns the claim of this run.
#[track_caller]
pub(super) fn next_due<'r>(
    ledger: &'r dyn RunLedger,
    run: &'r RunRef,
) -> impl Future<Output = Result<Claimed, Broken>> + 'r {
    let caller = Location::caller();
    async move {
        let claimed = claim_due(ledger, &run.executor, 9).await?;
        let runs: Vec<&RunRef> = claimed.iter().map(|claimed| &claimed.lease.run).collect();
        same(runs, [run], &format!("the due runs at {caller}"))?;
        some(claimed.into_iter().next(), "a claimed run")
    }
}

/// Returns the IDs of up to a thousand breadcrumbs of a schema, newest first.
pub(super) async fn ids_of(
    store: &AnyStore<'_>,
    schema: &str,
) -> Result<Vec<BreadcrumbId>, StoreError> {
    ids(store, &Query::new(Selector::schema(schema)).limit(1_000)).await
}

pub(super) async fn ids(
    store: &AnyStore<'_>,
    query: &Query,
) -> Result<Vec<BreadcrumbId>, StoreError> {
    Ok(store
        .search(query)
        .await?
        .iter()
        .map(|found| found.id)
        .collect())
}
