//! Conformance tests for transfers of runs between several versions of one executor, and for the records that workers store in
//! the ledger.

use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, fails, granted, lease_lost, same, some, wrong_state};
use super::fixtures::{
    AFTER_SHORT, HOUR, SHORT, claim_count, create, end, enqueue_ordered, ledger_of, new_run,
    next_due, other_tenant, row,
};
use super::ordered::{blocked_until, only_next, two};
use crate::model::{Subscription, Subscriptions, Timestamp};
use crate::store::{
    KeyPosition, Lease, RunEnd, RunLedger, RunRef, RunState, StoreError, Worker, WorkerRecord,
};
use std::sync::Arc;

/// Accepts the runs that were transferred to one executor version, so that the runs become due. Returns the number of accepted
/// runs.
async fn accept_transfers(
    ledger: &dyn RunLedger,
    executor: &str,
    version: &str,
) -> Result<usize, Broken> {
    Ok(ledger
        .accept_transfers(&[(executor.into(), version.into())])
        .await?)
}

/// A transferred run becomes due only when a worker accepts the transfer for the target executor version. The run has used no attempt.
///
/// The methods are [`transfer`](crate::store::RunLedger::transfer) and
/// [`accept_transfers`](crate::store::RunLedger::accept_transfers).
///
/// Not checked for a store without a ledger.
pub async fn a_transferred_run_waits_for_its_version(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;

    let until = lease.granted_at + HOUR;
    ledger
        .transfer(lease.clone(), "new", until, KeyPosition::Held)
        .await?;

    lease_lost(end(&store, &lease, RunEnd::Done, vec![create("a")]).await)?;
    let stored = some(row(ledger, &run).await?, "the row")?;
    same(
        (stored.state, stored.attempts, stored.due, stored.reason),
        (RunState::Ready, 0, Some(until), None),
        "the row",
    )?;
    same(
        stored.transferred_to.as_deref(),
        Some("new"),
        "the version of the transfer",
    )?;
    same(
        claim_count(ledger, "agent", 1).await?,
        0,
        "the number of runs due",
    )?;
    let others = accept_transfers(ledger, "agent", "old").await?;
    same(others, 0, "the number of runs accepted for another version")?;
    same(
        accept_transfers(ledger, "tool", "new").await?,
        0,
        "the number of runs accepted for another executor",
    )?;
    let none = ledger.accept_transfers(&[]).await?;
    same(none, 0, "the number of runs accepted for no version")?;
    let versions: [(Arc<str>, Arc<str>); 2] = [
        ("tool".into(), "new".into()),
        ("agent".into(), "new".into()),
    ];
    same(
        ledger.accept_transfers(&versions).await?,
        1,
        "the number of runs accepted for this version",
    )?;
    same(
        accept_transfers(ledger, "agent", "new").await?,
        0,
        "the number of runs accepted by a second call",
    )?;
    let claim = next_due(ledger, &run).await?;
    same(claim.attempt, 1, "the attempt")?;
    let stored = some(row(ledger, &run).await?, "the row")?;
    let version = stored.transferred_to;
    same(version, None, "the version of a run that was claimed")
}

/// A transferred run that no worker accepts becomes due at the time limit of the transfer.
///
/// The time limit is the argument `until` of [`transfer`](crate::store::RunLedger::transfer).
///
/// Not checked for a store without a ledger.
pub async fn a_transferred_run_is_due_at_its_time_limit(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;
    let until = lease.granted_at + SHORT;
    ledger
        .transfer(lease, "new", until, KeyPosition::Held)
        .await?;

    subject.advance_clock(AFTER_SHORT).await;

    next_due(ledger, &run).await?;
    same(
        accept_transfers(ledger, "agent", "new").await?,
        0,
        "the number of accepted runs",
    )
}

/// A transferred run that holds its position in the order of its ordering key blocks the later runs with this key.
///
/// The position is [`KeyPosition::Held`](crate::store::KeyPosition::Held).
///
/// Not checked for a store without a ledger.
pub async fn a_transferred_run_blocks_later_runs_of_its_key(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let runs = enqueue_ordered(&store, ledger, "agent", "a", 2).await?;
    let first = some(runs.first(), "the first run")?;
    let lease = granted(ledger.claim(first, None).await)?.lease;
    let until = lease.granted_at + HOUR;
    ledger
        .transfer(lease, "new", until, KeyPosition::Held)
        .await?;

    same(
        claim_count(ledger, "agent", 2).await?,
        0,
        "the number of runs due",
    )?;
    same(
        accept_transfers(ledger, "agent", "new").await?,
        1,
        "the number of accepted runs",
    )?;
    next_due(ledger, first).await.map(drop)
}

/// Claims the executor's only due run, `run`, and transfers it so that later runs with the same ordering key do not wait for it.
/// After the time `until`, any version of the executor can accept the run.
async fn transfer_out_of_position(
    ledger: &dyn RunLedger,
    run: &RunRef,
    until: impl FnOnce(&Lease) -> Timestamp,
) -> Result<(), Broken> {
    let lease = only_next(ledger, run).await?;
    let until = until(&lease);
    ledger
        .transfer(lease, "new", until, KeyPosition::Left)
        .await?;
    Ok(())
}

/// A transferred run that left its position in the order of its ordering key blocks no other run. When it is accepted, it goes to
/// the end of the order.
///
/// The position is [`KeyPosition::Left`](crate::store::KeyPosition::Left).
///
/// Not checked for a store without a ledger.
pub async fn a_run_that_left_its_position_goes_to_the_end_of_its_order(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let [first, second, third] = three(enqueue_ordered(&store, ledger, "agent", "a", 3).await?)?;
    transfer_out_of_position(ledger, &first, |lease| lease.granted_at + HOUR).await?;
    let stored = some(row(ledger, &first).await?, "the row")?;
    same(
        (
            stored.state,
            stored.attempts,
            stored.transferred_to.as_deref(),
        ),
        (RunState::Ready, 0, Some("new")),
        "the row",
    )?;

    let lease = only_next(ledger, &second).await?;
    same(
        accept_transfers(ledger, "agent", "old").await?,
        0,
        "the number of runs accepted for another version before their time",
    )?;
    same(
        accept_transfers(ledger, "agent", "new").await?,
        1,
        "the number of runs accepted for their version",
    )?;
    blocked_until(ledger, &first).await?;
    end(&store, &lease, RunEnd::Done, Vec::new()).await?;
    let lease = only_next(ledger, &third).await?;
    blocked_until(ledger, &first).await?;
    end(&store, &lease, RunEnd::Done, Vec::new()).await?;

    let lease = only_next(ledger, &first).await?;
    same(lease.run, first, "the last run")
}

/// An earlier run that waits for a worker with another version of its executor, and has left the order of its ordering key, does not block a
/// later run with the same key. The waiting runs retain their order among themselves.
///
/// [`accept_transfers`](crate::store::RunLedger::accept_transfers) adds them behind all others, in
/// their previous order.
///
/// Not checked for a store without a ledger.
pub async fn runs_that_left_their_positions_retain_their_order(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let [first, second, third] = three(enqueue_ordered(&store, ledger, "agent", "a", 3).await?)?;
    for run in [&first, &second, &third] {
        transfer_out_of_position(ledger, run, |lease| lease.granted_at + HOUR).await?;
    }
    let later = three(enqueue_ordered(&store, ledger, "agent", "a", 3).await?)?;
    let lease = only_next(ledger, &later[0]).await?;
    same(
        accept_transfers(ledger, "agent", "new").await?,
        3,
        "the number of accepted runs",
    )?;
    end(&store, &lease, RunEnd::Done, Vec::new()).await?;

    for run in [&later[1], &later[2], &first, &second, &third] {
        let lease = only_next(ledger, run).await?;
        end(&store, &lease, RunEnd::Done, Vec::new()).await?;
    }
    Ok(())
}

/// Any version of an executor accepts a transferred run that left the processing order of its ordering key, once the transfer's
/// time limit has passed. Other executors do not accept the run.
///
/// [`accept_transfers`](crate::store::RunLedger::accept_transfers) accepts it for any version of
/// its executor.
///
/// Not checked for a store without a ledger.
pub async fn a_run_that_left_its_position_is_accepted_at_its_time_limit(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let (first, second) = two(&enqueue_ordered(&store, ledger, "agent", "a", 2).await?)?;
    transfer_out_of_position(ledger, &first, |lease| lease.granted_at + SHORT).await?;
    let lease = only_next(ledger, &second).await?;
    subject.advance_clock(AFTER_SHORT).await;

    same(
        claim_count(ledger, "agent", 9).await?,
        0,
        "the number of runs due",
    )?;
    same(
        accept_transfers(ledger, "tool", "old").await?,
        0,
        "the number of runs accepted for another executor",
    )?;
    same(
        accept_transfers(ledger, "agent", "old").await?,
        1,
        "the number of runs accepted for another version",
    )?;
    same(
        accept_transfers(ledger, "agent", "new").await?,
        0,
        "the number of runs accepted for their version afterwards",
    )?;
    let stored = some(row(ledger, &first).await?, "the row")?;
    same(stored.transferred_to, None, "the version of the transfer")?;
    blocked_until(ledger, &first).await?;
    end(&store, &lease, RunEnd::Done, Vec::new())
        .await
        .map(drop)?;
    Ok(())
}

/// A claim of a transferred run that left the processing order of its ordering key puts the run at the end of that order.
///
/// [`claim`](crate::store::RunLedger::claim) accepts the run first, and then checks the order.
///
/// Not checked for a store without a ledger.
pub async fn a_claim_of_a_run_that_left_its_position_goes_to_the_end(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let alone = new_run(&store, "agent").await?.ordered_by(Some("b"));
    ledger.enqueue(vec![alone.clone().into()]).await?;
    transfer_out_of_position(ledger, &alone, |lease| lease.granted_at + HOUR).await?;
    let lease = granted(ledger.claim(&alone, None).await)?.lease;
    end(&store, &lease, RunEnd::Done, Vec::new()).await?;

    let [first, second, third] = three(enqueue_ordered(&store, ledger, "agent", "a", 3).await?)?;
    transfer_out_of_position(ledger, &first, |lease| lease.granted_at + HOUR).await?;
    blocked_until(ledger, &first).await?;
    for run in [&second, &third, &first] {
        let lease = only_next(ledger, run).await?;
        end(&store, &lease, RunEnd::Done, Vec::new()).await?;
    }
    Ok(())
}

/// A client can skip a run that waits for a worker with another version of its executor, also if the run has left the order of its ordering
/// key. No later run starts early because of the skip.
///
/// The method is [`skip`](crate::store::RunLedger::skip).
///
/// Not checked for a store without a ledger.
pub async fn a_transferred_run_can_be_skipped(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let [first, second, third] = three(enqueue_ordered(&store, ledger, "agent", "a", 3).await?)?;
    wrong_state(ledger.skip(&first).await)?;
    transfer_out_of_position(ledger, &first, |lease| lease.granted_at + HOUR).await?;
    let lease = only_next(ledger, &second).await?;
    wrong_state(ledger.skip(&second).await)?;

    ledger.skip(&first).await?;

    wrong_state(ledger.skip(&first).await)?;
    let stored = some(row(ledger, &first).await?, "the row")?;
    same(
        (
            stored.state,
            stored.reason.as_deref(),
            stored.transferred_to,
        ),
        (RunState::Skipped, Some(RunEnd::UNMATCHED), None),
        "the row",
    )?;
    blocked_until(ledger, &third).await?;
    ledger
        .transfer(
            lease.clone(),
            "new",
            lease.granted_at + HOUR,
            KeyPosition::Held,
        )
        .await?;
    same(
        claim_count(ledger, "agent", 9).await?,
        0,
        "the number of runs due",
    )?;
    ledger.skip(&second).await?;
    let lease = only_next(ledger, &third).await?;
    ledger.redo(&first).await?;
    blocked_until(ledger, &first).await?;
    end(&store, &lease, RunEnd::Done, Vec::new()).await?;
    only_next(ledger, &first).await?;

    let unknown = new_run(&store, "agent").await?;
    let is_unknown = |error: &StoreError| matches!(error, StoreError::UnknownRun { .. });
    fails(ledger.skip(&unknown).await, "UnknownRun", is_unknown)
}

fn three(runs: Vec<RunRef>) -> Result<[RunRef; 3], Broken> {
    some(runs.try_into().ok(), "three runs")
}

/// A transfer of a run to another executor version fails and changes nothing if the caller has lost the run's lease.
///
/// The error of [`transfer`](crate::store::RunLedger::transfer) is
/// [`StoreError::LeaseLost`](crate::store::StoreError::LeaseLost).
///
/// Not checked for a store without a ledger.
pub async fn a_transfer_with_a_lost_lease_fails(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;
    ledger.release(lease.clone()).await?;
    let until = lease.granted_at + HOUR;

    lease_lost(
        ledger
            .transfer(lease, "new", until, KeyPosition::Held)
            .await,
    )?;

    same(
        claim_count(ledger, "agent", 1).await?,
        1,
        "the number of runs due",
    )
}

/// A run that was skipped because its executor did not match the trigger can be redone. No other skipped run can.
///
/// The reason is [`RunEnd::UNMATCHED`](crate::store::RunEnd::UNMATCHED), and the method is
/// [`redo`](crate::store::RunLedger::redo).
///
/// Not checked for a store without a ledger.
pub async fn an_unmatched_run_can_be_redone(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let (unmatched, otherwise_skipped) = (
        new_run(&store, "agent").await?,
        new_run(&store, "agent").await?,
    );
    for (run, reason) in [
        (&unmatched, RunEnd::UNMATCHED),
        (&otherwise_skipped, "gone"),
    ] {
        let lease = granted(ledger.claim(run, None).await)?.lease;
        end(&store, &lease, RunEnd::Skipped(reason), Vec::new()).await?;
    }

    wrong_state(ledger.redo(&otherwise_skipped).await)?;
    ledger.redo(&unmatched).await?;

    let claim = granted(ledger.claim(&unmatched, None).await)?;
    same((claim.attempt, claim.lease.epoch), (1, 1), "the new epoch")
}

/// A worker is listed with the record that it stored last, and with the times at which it first and last stored a record.
///
/// The methods are [`record_worker`](crate::store::RunLedger::record_worker) and
/// [`workers`](crate::store::RunLedger::workers).
///
/// Not checked for a store without a ledger.
pub async fn workers_are_recorded(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    same(ledger.workers().await?.len(), 0, "the number of workers")?;
    let subscriptions = Subscriptions::new(vec![Subscription::trigger("a.v1")]);
    let Ok(subscriptions) = subscriptions else {
        return expect(false, "a trigger is a subscription");
    };
    let mut first = WorkerRecord::new("1", "blue").executor("agent", &subscriptions);
    let second = WorkerRecord::new("2", "green");
    for record in [&first, &second] {
        ledger.record_worker(record).await?;
        subject.advance_clock(AFTER_SHORT).await;
    }
    first.stopped = true;
    ledger.record_worker(&first).await?;

    let [one, two]: [Worker; 2] = match ledger.workers().await?.try_into() {
        Ok(workers) => workers,
        Err(others) => return same(others.len(), 2, "the number of workers"),
    };

    same(
        (&one.record, one.is_live),
        (&first, false),
        "the stopped worker",
    )?;
    same(
        (&two.record, two.is_live),
        (&second, true),
        "the running worker",
    )?;
    expect(
        one.seen_at.since(one.started_at) >= AFTER_SHORT,
        "the stopped worker stored its record again",
    )?;
    same(
        two.seen_at,
        two.started_at,
        "the time of the last record of the running worker",
    )?;
    let read = Subscriptions::from_json(&one.record.executors.first().map_or_else(
        || serde_json::Value::Null,
        |executor| executor.subscriptions.clone().into_value(),
    ));
    let read = read.ok().map(|read| read.hash());
    same(
        read,
        Some(subscriptions.hash()),
        "the subscriptions that are read back",
    )
}

/// A tenant cannot see the workers of another tenant, and cannot accept the other tenant's transferred runs.
///
/// The key of a record is the tenant and the worker ID.
///
/// Not checked for a store without a ledger or several tenants.
///
/// Checked only in part without
/// [`Capabilities::named_tenants`](crate::store::Capabilities::named_tenants).
pub async fn workers_of_tenants_are_isolated(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let other = other_tenant(&store).await?;
    let (ledger, there) = (ledger_of(&store)?, ledger_of(&other)?);
    ledger
        .record_worker(&WorkerRecord::new("1", "blue"))
        .await?;
    let run = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;
    let until = lease.granted_at + HOUR;
    ledger
        .transfer(lease, "new", until, KeyPosition::Held)
        .await?;

    same(
        there.workers().await?.len(),
        0,
        "the number of workers there",
    )?;
    same(
        accept_transfers(there, "agent", "new").await?,
        0,
        "the number of runs accepted by the other tenant",
    )?;
    same(
        accept_transfers(ledger, "agent", "new").await?,
        1,
        "the number of runs accepted by the tenant of the run",
    )
}
