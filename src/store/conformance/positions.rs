//! Conformance tests for the saved event positions of executors, from which a restarted runtime searches for triggers without a
//! run in the ledger.

use super::expectations::{expect, same};
use super::fixtures::{ledger_of, other_tenant};
use super::{AnyStoreUnderTest, Broken};
use crate::store::{RunLedger, SavedPosition, StoreError};
use std::sync::Arc;

async fn save(ledger: &dyn RunLedger, executor: &str, position: &[u8]) -> Result<(), StoreError> {
    let positions = [(Arc::from(executor), position.to_vec())];
    ledger.save_positions(&positions).await
}

async fn of(ledger: &dyn RunLedger, executor: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let mut found = ledger.positions(&[Arc::from(executor)]).await?;
    Ok(found.pop().flatten())
}

/// The saved event position of an executor is read back unchanged. The result has the order of the request, and `None` for an
/// executor without a position.
///
/// The methods are [`save_positions`](crate::store::RunLedger::save_positions) and
/// [`positions`](crate::store::RunLedger::positions). A position is any bytes, also none.
///
/// Not checked for a store without a ledger.
pub async fn a_saved_position_is_read_back_unchanged(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    same(of(ledger, "agent").await?, None, "the first position")?;
    let all = [
        ("agent", vec![0, 255, 1]),
        ("tool", vec![]),
        ("big", vec![7; SavedPosition::MAX_BYTES]),
    ];
    let all = all.map(|(executor, position)| (Arc::<str>::from(executor), position));

    ledger.save_positions(&all).await?;
    ledger.save_positions(&[]).await?;

    let requested = ["tool", "nobody", "big", "agent"].map(Arc::<str>::from);
    let [agent, tool, big] = all.map(|(_, position)| Some(position));
    same(
        ledger.positions(&requested).await?,
        vec![tool, None, big, agent],
        "the positions",
    )?;
    same(
        ledger.positions(&[]).await?.len(),
        0,
        "the positions of no executor",
    )
}

/// A saved event position replaces the earlier position of the same executor, and of no other executor.
///
/// [`save_positions`](crate::store::RunLedger::save_positions) replaces the position of each named
/// executor, and of no other.
///
/// Not checked for a store without a ledger.
pub async fn the_latest_position_counts(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    save(ledger, "agent", b"one").await?;
    save(ledger, "tool", b"other").await?;

    save(ledger, "agent", b"2").await?;

    same(
        of(ledger, "agent").await?,
        Some(b"2".to_vec()),
        "the replaced position",
    )?;
    same(
        of(ledger, "tool").await?,
        Some(b"other".to_vec()),
        "the other position",
    )
}

/// A call that saves the event positions of executors fails if one position exceeds `SavedPosition::MAX_BYTES`. The ledger then
/// saves no position of the call.
///
/// The error is [`StoreError::PositionTooLarge`](crate::store::StoreError::PositionTooLarge), and
/// no position of the call is saved.
///
/// Not checked for a store without a ledger.
pub async fn a_position_that_is_too_large_is_rejected(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = ledger_of(&store)?;
    let large = vec![1; SavedPosition::MAX_BYTES + 1];
    let both = [(Arc::from("agent"), vec![1]), (Arc::from("tool"), large)];

    let refused = ledger.save_positions(&both).await;

    let is_refused = matches!(&refused, Err(StoreError::PositionTooLarge { executor, .. }) if **executor == *"tool");
    expect(is_refused, "a position that is too large is refused")?;
    same(
        of(ledger, "agent").await?,
        None,
        "the other position of the call",
    )
}

/// No tenant sees or replaces the saved event positions of another tenant's executors.
///
/// The key of a position is the tenant and the executor ID.
///
/// Not checked for a store without a ledger or several tenants.
///
/// Checked only in part without
/// [`Capabilities::named_tenants`](crate::store::Capabilities::named_tenants).
pub async fn positions_of_tenants_are_isolated(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let other = other_tenant(&store).await?;
    let (here, there) = (ledger_of(&store)?, ledger_of(&other)?);
    save(here, "agent", b"here").await?;
    same(of(there, "agent").await?, None, "the position there")?;

    save(there, "agent", b"there").await?;

    same(
        of(here, "agent").await?,
        Some(b"here".to_vec()),
        "the position here",
    )
}
