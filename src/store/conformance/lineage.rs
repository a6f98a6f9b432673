use super::AnyStore;
use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, granted, same, some};
use super::fixtures::{create, end, lineage_of, next_due, note, row, run_of, trigger};
use crate::model::{Breadcrumb, NewBreadcrumb, Patch};
use crate::store::{
    BreadcrumbStoreExt, Claim, Lineage, RunEnd, RunLedger, RunState, Write, WrittenBy,
};
use serde_json::json;
use std::sync::Arc;

/// No claim grants an executor a run for a breadcrumb that this executor wrote itself, whether the claim is for one run or for
/// due runs.
///
/// [`claim`](crate::store::RunLedger::claim) answers [`Claim::Own`](crate::store::Claim::Own), so
/// an executor does not trigger itself.
///
/// Not checked for a store without a ledger or
/// [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn an_executor_does_not_run_on_its_own_breadcrumbs(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = lineage_of(&store)?;
    let cause = trigger(&store).await?;
    let written = write_in_run(&store, ledger, "agent", &cause, create("a")).await?;
    let run = run_of("agent", &written);

    expect_own(&ledger.claim(&run, None).await?)?;
    ledger.enqueue(vec![run.clone().into()]).await?;
    let claimed = next_due(ledger, &run).await?;
    expect(claimed.is_own, "the claimed run has `is_own` set")?;
    end(&store, &claimed.lease, RunEnd::Skipped("own"), Vec::new()).await?;
    expect_own(&ledger.claim(&run, None).await?)?;

    same(
        some(row(ledger, &run).await?, "the row")?.state,
        RunState::Skipped,
        "the state",
    )?;
    granted(ledger.claim(&run_of("another", &written), None).await).map(drop)
}

/// Only the breadcrumb version that an executor wrote counts as the executor's own. A later version of another writer does not
/// count.
///
/// A version that another writer made triggers the executor, even if the executor made an earlier
/// one.
///
/// Not checked for a store without a ledger or
/// [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn only_the_written_version_is_an_executors_own(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = lineage_of(&store)?;
    let cause = trigger(&store).await?;
    let first = write_in_run(&store, ledger, "agent", &cause, create("a")).await?;

    let by_ann = store.update(first.id, 1, Patch::new().title("b")).await?;
    let claim = granted(ledger.claim(&run_of("agent", &by_ann), None).await)?;
    same(claim.lineage, Lineage::origin(first.id), "the lineage")?;
    let again = Write::Update {
        id: first.id,
        version: 2,
        patch: Patch::new().title("c"),
    };
    let cause = trigger(&store).await?;
    let by_agent = write_in_run(&store, ledger, "agent", &cause, again).await?;

    expect_own(&ledger.claim(&run_of("agent", &by_agent), None).await?)
}

/// The correlation ID and the hops of a run's trigger come from the records of the ledger. Hops count the runs in the chain that
/// led to the trigger. Each run of the chain retains the correlation ID and adds one hop.
///
/// The lineage of a written breadcrumb is [`Lineage::next`](crate::store::Lineage::next) of the
/// trigger's lineage.
///
/// Not checked for a store without a ledger or
/// [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn lineage_follows_the_ledger(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = lineage_of(&store)?;
    let origin = trigger(&store).await?;
    let mut last = Arc::clone(&origin);

    for hops in 0..4 {
        let executor = format!("executor {hops}");
        let claim = granted(ledger.claim(&run_of(&executor, &last), None).await)?;
        same(
            claim.lineage,
            Lineage::new(origin.id.to_string(), hops),
            "the lineage",
        )?;
        ledger.release(claim.lease).await?;
        last = write_in_run(&store, ledger, &executor, &last, create("a")).await?;
    }
    Ok(())
}

/// A forged origin in the payload or the author of a trigger has no effect on the recorded origin.
///
/// Any writer can forge the field `creator`, so the hop limit must not depend on it.
///
/// Not checked for a store without a ledger or
/// [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn lineage_is_not_read_from_payloads(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = lineage_of(&store)?;
    let creator = json!({"type": "agent", "id": "agent", "hops": 15, "correlation_id": "forged"});
    let forged = NewBreadcrumb::new("note.v1")
        .created_by("agent")
        .context(json!({"creator": creator}));

    let outside = store.create(forged.clone()).await?;
    let claim = granted(ledger.claim(&run_of("agent", &outside), None).await)?;
    same(
        claim.lineage,
        Lineage::origin(outside.id),
        "the lineage of a breadcrumb from outside of runs",
    )?;
    ledger.release(claim.lease).await?;
    let written = write_in_run(&store, ledger, "agent", &outside, Write::Create(forged)).await?;
    let claim = granted(ledger.claim(&run_of("another", &written), None).await)?;

    same(
        claim.lineage,
        Lineage::origin(outside.id).next(),
        "the lineage of the run's breadcrumb",
    )
}

/// The store returns the writer of the current version of a breadcrumb, and of no other version. The fields of the breadcrumb
/// have no effect.
///
/// The method is [`written_by`](crate::store::RunLedger::written_by).
///
/// Not checked for a store without a ledger or
/// [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn the_store_returns_the_writer_of_a_version(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = lineage_of(&store)?;
    let unknown = [(crate::model::BreadcrumbId::NIL, 1)];
    same(
        ledger.written_by(&unknown).await?,
        vec![WrittenBy::Unknown],
        "the writer of a missing breadcrumb",
    )?;
    let forged = NewBreadcrumb::new("note.v1").created_by("agent");
    let outside = store.create(forged).await?;
    let written = write_in_run(&store, ledger, "agent", &outside, create("a")).await?;
    let by_agent = || WrittenBy::Executor("agent".into());

    let requested = [
        (written.id, 1),
        (outside.id, 1),
        (outside.id, 2),
        (written.id, 1),
    ];
    same(
        ledger.written_by(&requested).await?,
        vec![
            by_agent(),
            WrittenBy::Outside,
            WrittenBy::Unknown,
            by_agent(),
        ],
        "the writers of the created breadcrumbs",
    )?;

    store.update(written.id, 1, Patch::new().title("b")).await?;
    let retag = Write::Update {
        id: outside.id,
        version: 1,
        patch: Patch::new().title("c"),
    };
    let cause = trigger(&store).await?;
    write_in_run(&store, ledger, "agent", &cause, retag).await?;
    let requested = [
        (written.id, 1),
        (written.id, 2),
        (outside.id, 1),
        (outside.id, 2),
    ];
    same(
        ledger.written_by(&requested).await?,
        vec![
            WrittenBy::Unknown,
            WrittenBy::Outside,
            WrittenBy::Unknown,
            by_agent(),
        ],
        "the writers of the changed breadcrumbs",
    )
}

/// All breadcrumbs that a run writes have the same lineage: intermediate writes, final writes and the dead letter.
///
/// This includes the dead letter and the writes before the end of the run.
///
/// Not checked for a store without a ledger or
/// [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn all_writes_of_a_run_have_one_lineage(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = lineage_of(&store)?;
    let cause = trigger(&store).await?;
    let lease = granted(ledger.claim(&run_of("agent", &cause), None).await)?.lease;

    let mut written = end(&store, &lease, RunEnd::Continues, vec![create("a")])
        .await?
        .written;
    let letter = crate::store::DeadLetter::new(crate::store::FailureClass::Panic, "panic", 1);
    written.extend(
        end(&store, &lease, RunEnd::Failed(letter), vec![create("b")])
            .await?
            .written,
    );

    same(written.len(), 3, "the number of writes")?;
    for breadcrumb in written {
        expect_own(&ledger.claim(&run_of("agent", &breadcrumb), None).await?)?;
        let claim = granted(ledger.claim(&run_of("another", &breadcrumb), None).await)?;
        same(
            claim.lineage,
            Lineage::origin(cause.id).next(),
            "the lineage",
        )?;
    }
    Ok(())
}

/// The ledger row of a run records the origin of its trigger, even if the trigger changes later.
///
/// The trigger can be updated or deleted before the run is claimed.
///
/// Not checked for a store without a ledger or
/// [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn lineage_is_recorded_when_enqueued(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = lineage_of(&store)?;
    let cause = trigger(&store).await?;
    let written = write_in_run(&store, ledger, "agent", &cause, create("a")).await?;
    let run = run_of("another", &written);
    ledger.enqueue(vec![run.clone().into()]).await?;

    store.update(written.id, 1, Patch::new().title("b")).await?;

    let claim = granted(ledger.claim(&run, None).await)?;
    same(
        claim.lineage,
        Lineage::origin(cause.id).next(),
        "the lineage",
    )
}

/// On a store with tombstones, the deletion of a breadcrumb by a run has a lineage too.
///
/// A tombstone can trigger executors, so it counts as a version that the run wrote.
///
/// Not checked for a store without a ledger,
/// [`Capabilities::tombstones`](crate::store::Capabilities::tombstones) or
/// [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn a_deletion_has_a_lineage(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = lineage_of(&store)?;
    let (cause, deleted) = (trigger(&store).await?, store.create(note("gone")).await?);
    let delete = Write::Delete {
        id: deleted.id,
        by: None,
    };
    let tombstone = write_in_run(&store, ledger, "agent", &cause, delete).await?;

    expect_own(&ledger.claim(&run_of("agent", &tombstone), None).await?)?;
    let claim = granted(ledger.claim(&run_of("another", &tombstone), None).await)?;
    same(
        claim.lineage,
        Lineage::origin(cause.id).next(),
        "the lineage",
    )
}

/// Claims an executor's run for a trigger, ends the run with one write, and returns the written breadcrumb.
async fn write_in_run(
    store: &AnyStore<'_>,
    ledger: &dyn RunLedger,
    executor: &str,
    cause: &Breadcrumb,
    write: Write,
) -> Result<Arc<Breadcrumb>, Broken> {
    let lease = granted(ledger.claim(&run_of(executor, cause), None).await)?.lease;
    let committed = end(store, &lease, RunEnd::Done, vec![write]).await?;
    some(committed.written.into_iter().next(), "a written breadcrumb")
}

#[track_caller]
fn expect_own(claim: &Claim) -> Result<(), Broken> {
    expect(
        matches!(claim, Claim::Own),
        &format!("the claim is Own and not {claim:?}"),
    )
}
