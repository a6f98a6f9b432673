use super::AnyStore;
use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, granted, lease_lost, same, some, wrong_state};
use super::fixtures::{
    AFTER_SHORT, SHORT, claim_count, create, end, expected_writes, ids_of, ledger_of, new_run,
    next_due, row, run_of, trigger,
};
use crate::model::{Breadcrumb, BreadcrumbId, Patch};
use crate::store::{
    BreadcrumbStoreExt, Claim, DeadLetter, FailureClass, RunEnd, RunLedger, RunRef, RunState, Write,
};
use serde_json::json;

/// A claim of a finished run always returns the state of the run and the breadcrumbs that it wrote, in order.
///
/// [`Claim::Done`](crate::store::Claim::Done) has the IDs. A repeated event then finds the first
/// response.
///
/// Not checked for a store without a ledger.
///
/// Checked only in part without [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn a_claim_of_a_done_run_returns_its_breadcrumbs(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;
    let changed = trigger(&store).await?.id;
    let update = Write::Update {
        id: changed,
        version: 1,
        patch: Patch::new().title("b"),
    };

    let written = end(
        &store,
        &lease,
        RunEnd::Done,
        vec![create("a"), update, create("c")],
    )
    .await?
    .ids();

    same(written.len(), 3, "the number of writes")?;
    same(written.get(1), Some(&changed), "the second write")?;
    let written = expected_writes(&store, written);
    for _ in 0..2 {
        expect_ended(ledger, &run, RunState::Done, &written).await?;
    }
    let stored = some(row(ledger, &run).await?, "the row")?;
    same(
        (stored.state, stored.written, stored.due),
        (RunState::Done, written, None),
        "the row",
    )?;
    same(
        claim_count(ledger, "agent", 1).await?,
        0,
        "the number of runs due",
    )
}

/// A claim of a skipped run returns that the run was skipped, and the ledger row of the run contains the reason.
///
/// The field is [`Run::reason`](crate::store::Run::reason), from
/// [`RunEnd::Skipped`](crate::store::RunEnd::Skipped).
///
/// Not checked for a store without a ledger.
pub async fn a_skipped_run_retains_its_reason(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;

    end(&store, &lease, RunEnd::Skipped("unmatched"), Vec::new()).await?;

    expect_ended(ledger, &run, RunState::Skipped, &[]).await?;
    same(
        some(row(ledger, &run).await?, "the row")?.reason.as_deref(),
        Some("unmatched"),
        "the reason",
    )
}

/// A claim of a later trigger version's run can also end the older version's run as superseded, in the same step.
///
/// The argument is `instead_of` of [`claim`](crate::store::RunLedger::claim). Two steps could lose
/// the older run in a crash.
///
/// Not checked for a store without a ledger.
pub async fn a_later_version_supersedes_an_older_one(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let before = trigger(&store).await?;
    let after = store.update(before.id, 1, Patch::new().title("b")).await?;
    let (older, later) = (run_of("agent", &before), run_of("agent", &after));
    let lease = granted(ledger.claim(&older, None).await)?.lease;

    let claim = granted(ledger.claim(&later, Some(lease.clone())).await)?;

    let later_lease = claim.lease;
    same(&later_lease.run, &later, "the run claimed")?;
    superseded(ledger, &older).await?;
    lease_lost(end(&store, &lease, RunEnd::Done, vec![create("a")]).await)?;
    end(&store, &later_lease, RunEnd::Done, Vec::new()).await?;
    same(
        ids_of(&store, "note.v1").await?.len(),
        1,
        "the number of breadcrumbs",
    )
}

/// A claim of a later trigger version's run ends the older version's run as superseded, even if the claim finds the later run
/// done.
///
/// The older run ends whichever answer [`claim`](crate::store::RunLedger::claim) has.
///
/// Not checked for a store without a ledger.
///
/// Checked only in part without [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn a_done_later_version_supersedes_an_older_one(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let before = trigger(&store).await?;
    let after = store.update(before.id, 1, Patch::new().title("b")).await?;
    let (older, later) = (run_of("agent", &before), run_of("agent", &after));
    let lease = granted(ledger.claim(&later, None).await)?.lease;
    let written = end(&store, &lease, RunEnd::Done, vec![create("a")]).await?;
    let written = expected_writes(&store, written.ids());
    let lease = granted(ledger.claim(&older, None).await)?.lease;

    match ledger.claim(&later, Some(lease)).await? {
        Claim::Done {
            state: RunState::Done,
            written: returned,
        } => same(returned, written, "the writes of the later run")?,
        other => return expect(false, &format!("the later run is done and not {other:?}")),
    }

    superseded(ledger, &older).await?;
    let third = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&third, None).await)?.lease;
    end(&store, &lease, RunEnd::Superseded, Vec::new()).await?;
    superseded(ledger, &third).await
}

/// A failed run leaves one dead letter, which is committed with the end of the run. The dead letter names the run and contains no
/// payload.
///
/// [`DeadLetter::breadcrumb`](crate::store::DeadLetter::breadcrumb) creates the breadcrumb that the
/// store writes in the same step.
///
/// Not checked for a store without a ledger.
///
/// Checked only in part without [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn a_failed_run_writes_one_dead_letter(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let note = super::fixtures::note("a secret payload");
    let cause = store.create(note).await?;
    let run = run_of("agent", &cause);
    let lease = granted(ledger.claim(&run, None).await)?.lease;
    let mut letter = DeadLetter::new(FailureClass::Permanent, "error", 1);
    letter.tags = vec!["session:1".to_owned()];
    letter.creator = json!({"type": "agent", "id": "agent"}).into();

    let committed = end(
        &store,
        &lease,
        RunEnd::Failed(letter.clone()),
        vec![create("answer")],
    )
    .await?;

    let letters = store.recent(DeadLetter::SCHEMA, 10).await?;
    same(letters.len(), 1, "the number of dead letters")?;
    let last = committed.written.get(1);
    same(last, letters.first(), "the last written breadcrumb")?;
    let dead = some(letters.first(), "a dead letter")?;
    let expected_letter = letter.breadcrumb(&lease, store.tenant());
    same(&*dead.context, &*expected_letter.context, "the context")?;
    same(
        own_tags(&store, dead),
        &*expected_letter.tags,
        "the tags of the dead letter",
    )?;
    same(
        dead.context.get("run_key"),
        Some(&json!(run.key(store.tenant(), 0))),
        "the run key in the dead letter",
    )?;
    expect(
        !json!(dead).to_string().contains("secret"),
        "the dead letter contains no payload",
    )?;
    let stored = some(row(ledger, &run).await?, "the row")?;
    same(
        (stored.reason.as_deref(), stored.code.as_deref()),
        (Some("permanent"), Some("error")),
        "the reason and the code",
    )?;
    if !store.capabilities().lineage {
        let ended = ledger.claim(&run, None).await?;
        let has_failed = matches!(ended, Claim::Done { state, .. } if state == RunState::Failed);
        return expect(has_failed, "the run has failed");
    }
    expect_ended(ledger, &run, RunState::Failed, &committed.ids()).await?;
    match ledger.claim(&run_of("agent", dead), None).await? {
        Claim::Own => Ok(()),
        other => expect(
            false,
            &format!("the claim of a dead letter by its own executor is Own and not {other:?}"),
        ),
    }
}

/// The row of a run has the cause of its last failed attempt, with a limited length, until the run is redone. The dead letter has
/// the same cause.
///
/// The field is [`Run::cause`](crate::store::Run::cause), at most
/// [`DeadLetter::LONGEST_CAUSE`](crate::store::DeadLetter::LONGEST_CAUSE) bytes.
///
/// Not checked for a store without a ledger.
pub async fn a_run_has_the_cause_of_its_last_failure(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let cause = async || -> Result<Option<String>, Broken> {
        Ok(some(row(ledger, &run).await?, "the row")?.cause)
    };
    let refused_cause = "connection \u{0} refused";
    for (reported, expected) in [
        (Some(refused_cause), refused_cause),
        (None, refused_cause),
        (Some("401"), "401"),
    ] {
        let lease = granted(ledger.claim(&run, None).await)?.lease;
        let at = lease.granted_at;
        ledger.retry(lease, at, true, reported).await?;
        same(cause().await?.as_deref(), Some(expected), "the cause")?;
    }
    let lease = granted(ledger.claim(&run, None).await)?.lease;
    let (at, long) = (lease.granted_at, "ü".repeat(DeadLetter::LONGEST_CAUSE));
    ledger.retry(lease, at, true, Some(&long)).await?;
    let cut = some(cause().await?, "a cause")?;
    expect(
        cut.len() <= DeadLetter::LONGEST_CAUSE && cut.starts_with("üü"),
        "a long cause is truncated",
    )?;

    let lease = granted(ledger.claim(&run, None).await)?.lease;
    let mut letter = DeadLetter::new(FailureClass::Permanent, "error", 5);
    letter.cause = Some("the key is wrong".to_owned());
    let ended = end(&store, &lease, RunEnd::Failed(letter), Vec::new()).await?;
    same(
        cause().await?.as_deref(),
        Some("the key is wrong"),
        "the cause",
    )?;
    let dead = some(ended.written.last(), "a dead letter")?;
    same(
        dead.context.get("cause"),
        Some(&json!("the key is wrong")),
        "the cause in the dead letter",
    )?;

    ledger.redo(&run).await?;
    same(cause().await?, None, "the cause of a run that is redone")
}

/// A commit that ends a run under a lost lease fails, and writes no dead letter.
///
/// The commit fails with [`StoreError::LeaseLost`](crate::store::StoreError::LeaseLost).
///
/// Not checked for a store without a ledger.
pub async fn a_lost_lease_writes_no_dead_letter(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?.lasting(SHORT);
    let stale = granted(ledger.claim(&run, None).await)?.lease;
    subject.advance_clock(AFTER_SHORT).await;
    granted(ledger.claim(&run, None).await)?;

    let letter = DeadLetter::new(FailureClass::Timeout, "error", 1);
    lease_lost(end(&store, &stale, RunEnd::Failed(letter), Vec::new()).await)?;

    same(
        ids_of(&store, DeadLetter::SCHEMA).await?,
        [],
        "the dead letters",
    )
}

/// The redo of a failed run starts a new epoch, with fresh attempts and another run key.
///
/// [`redo`](crate::store::RunLedger::redo) of a ready, running or done run is
/// [`StoreError::WrongState`](crate::store::StoreError::WrongState).
///
/// Not checked for a store without a ledger.
///
/// Checked only in part without [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn redo_begins_a_new_epoch(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    ledger.enqueue(vec![run.clone().into()]).await?;
    wrong_state(ledger.redo(&run).await)?;
    let first = granted(ledger.claim(&run, None).await)?.lease;
    wrong_state(ledger.redo(&run).await)?;
    ledger.save(&first, json!({"step": 1}).into()).await?;
    let letter = DeadLetter::new(FailureClass::AttemptsUsedUp, "error", 1);
    end(&store, &first, RunEnd::Failed(letter), Vec::new()).await?;

    ledger.redo(&run).await?;

    wrong_state(ledger.redo(&run).await)?;
    let stored = some(row(ledger, &run).await?, "the row")?;
    same(
        (stored.state, stored.attempts, stored.reason),
        (RunState::Ready, 0, None),
        "the row",
    )?;
    let second = next_due(ledger, &run).await?;
    same(
        (second.attempt, second.lease.epoch),
        (1, 1),
        "the attempt and the epoch",
    )?;
    same(
        second.state,
        None,
        "the saved state of a run that is redone",
    )?;
    expect(
        second.lease.key("t") != first.key("t"),
        "the run key changes",
    )?;
    expect(second.lease.token > first.token, "the token grows")?;
    lease_lost(end(&store, &first, RunEnd::Done, vec![create("stale")]).await)?;
    let written = end(&store, &second.lease, RunEnd::Done, vec![create("a")]).await?;
    let written = expected_writes(&store, written.ids());
    expect_ended(ledger, &run, RunState::Done, &written).await?;
    wrong_state(ledger.redo(&run).await)
}

/// A commit with `RunEnd::Continues` leaves the run running, and is fenced by the run's lease. The ledger records the written
/// breadcrumbs as writes of the run.
///
/// Agents and workflows write this way before their run ends.
///
/// Not checked for a store without a ledger.
///
/// Checked only in part without [`Capabilities::lineage`](crate::store::Capabilities::lineage).
pub async fn writes_before_the_end_are_recorded(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let run = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;

    let mut written = end(&store, &lease, RunEnd::Continues, vec![create("a")])
        .await?
        .ids();
    let stored = some(row(ledger, &run).await?, "the row")?;
    same(
        (stored.state, stored.written),
        (RunState::Running, expected_writes(&store, written.clone())),
        "the row",
    )?;
    written.extend(
        end(&store, &lease, RunEnd::Continues, vec![create("b")])
            .await?
            .ids(),
    );
    written.extend(
        end(&store, &lease, RunEnd::Done, vec![create("c")])
            .await?
            .ids(),
    );

    same(written.len(), 3, "the number of writes")?;
    expect_ended(
        ledger,
        &run,
        RunState::Done,
        &expected_writes(&store, written),
    )
    .await
}

/// Returns the tags of a dead letter, without the tags that the store added for itself. If the ledger is in another store, the
/// store of the breadcrumbs may add tags with the prefix `ux:`, by which it finds the writes of a run.
fn own_tags(store: &AnyStore<'_>, dead: &Breadcrumb) -> Vec<String> {
    let is_own = |tag: &&String| store.capabilities().lineage || !tag.starts_with("ux:");
    dead.tags.iter().filter(is_own).cloned().collect()
}

/// Expects that the claim of a run finds the run finished.
async fn expect_ended(
    ledger: &dyn RunLedger,
    run: &RunRef,
    state: RunState,
    written: &[BreadcrumbId],
) -> Result<(), Broken> {
    match ledger.claim(run, None).await? {
        Claim::Done {
            state: returned,
            written: ids,
        } => {
            same(returned, state, "the state of the run")?;
            same(&*ids, written, "the writes of the run")
        }
        other => expect(false, &format!("the run is {state} and not {other:?}")),
    }
}

async fn superseded(ledger: &dyn RunLedger, run: &RunRef) -> Result<(), Broken> {
    same(
        some(row(ledger, run).await?, "the row")?.state,
        RunState::Superseded,
        "the state",
    )?;
    match ledger.claim(run, None).await? {
        Claim::Superseded => Ok(()),
        other => expect(false, &format!("the run is superseded and not {other:?}")),
    }
}
