use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{granted, lease_lost, not_found, same};
use super::fixtures::{
    claim_count, create, end, enqueued, ids_of, ledger_of, note, other_tenant, other_tenant_name,
};
use crate::model::Patch;
use crate::store::{BreadcrumbStoreExt, RunEnd, RunFilter, RunQuery, StoreError, Write};

/// **Identified.** Clones of a store handle have the same identity. Handles on other data have another one.
///
/// A runtime claims runs once for all handles with equal identities, see
/// [`StoreId`](crate::store::StoreId).
pub async fn clones_have_the_same_identity(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let (ours, others) = (subject.fresh().await, subject.fresh().await);
    let identity = ours.identity();

    same(
        ours.clone().identity(),
        identity.clone(),
        "the identity of a clone",
    )?;
    same(
        identity.tenant(),
        ours.tenant(),
        "the tenant of the identity",
    )?;
    let others_differ = others.identity() != identity;
    same(
        others_differ,
        true,
        "the difference between the identities of two stores",
    )
}

/// **Isolated tenants.** A store handle of another tenant cannot read, change or delete the breadcrumbs of a tenant.
///
/// Include the tenant in each key and in each condition of the backend.
///
/// Not checked for a store without several tenants.
///
/// Checked only in part without
/// [`Capabilities::named_tenants`](crate::store::Capabilities::named_tenants).
pub async fn tenants_are_isolated(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let ours = subject.fresh().await;
    let theirs = other_tenant(&ours).await?;
    let stored = ours.create(note("a")).await?;
    let other = theirs.create(note("b")).await?;

    same(theirs.tenant(), other_tenant_name(&ours), "the tenant")?;
    let identities_differ = theirs.identity() != ours.identity();
    same(
        identities_differ,
        true,
        "the difference between the identities of two tenants",
    )?;
    same(
        ids_of(&ours, "note.v1").await?,
        [stored.id],
        "the breadcrumbs of the first tenant",
    )?;
    same(
        ids_of(&theirs, "*").await?,
        [other.id],
        "the breadcrumbs of the second tenant",
    )?;
    not_found(theirs.get(stored.id).await)?;
    not_found(theirs.update(stored.id, 1, Patch::new().title("c")).await)?;
    not_found(theirs.delete(stored.id).await)?;
    let mixed = vec![
        create("c"),
        Write::Delete {
            id: stored.id,
            by: None,
        },
    ];
    not_found(theirs.commit(mixed.into()).await)?;

    same(
        &*ours.get(stored.id).await?,
        &*stored,
        "the breadcrumbs of the first tenant",
    )?;
    ours.delete(stored.id).await?;
    let untold = |error: &StoreError| {
        matches!(
            error,
            StoreError::NotFound {
                tombstone: None,
                ..
            }
        )
    };
    super::expectations::fails(
        theirs.get(stored.id).await,
        "NotFound without the tombstone of the first tenant",
        untold,
    )?;
    same(
        ids_of(&theirs, "note.v1").await?,
        [other.id],
        "the breadcrumbs of the second tenant",
    )
}

/// **Isolated tenants.** A store handle of another tenant cannot see, claim or end the runs of a tenant.
///
/// Two tenants can have runs with the same executor, trigger and version.
///
/// Not checked for a store without a ledger or several tenants.
///
/// Checked only in part without
/// [`Capabilities::named_tenants`](crate::store::Capabilities::named_tenants).
pub async fn runs_of_tenants_are_isolated(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let ours = subject.fresh().await;
    let theirs = other_tenant(&ours).await?;
    let (our_ledger, their_ledger) = (ledger_of(&ours)?, ledger_of(&theirs)?);
    let runs = enqueued(&ours, our_ledger, "agent", 1).await?;

    same(
        claim_count(their_ledger, "agent", 5).await?,
        0,
        "the number of runs of the first tenant that the second can claim",
    )?;
    same(
        their_ledger.runs(&RunFilter::all()).await?.len(),
        0,
        "the number of runs of the first tenant in the list of the second",
    )?;
    same(
        their_ledger.runs_page(&RunQuery::all()).await?.runs.len(),
        0,
        "the number of runs of the first tenant on the page of the second",
    )?;
    for run in &runs {
        let lease = granted(our_ledger.claim(run, None).await)?.lease;
        lease_lost(end(&theirs, &lease, RunEnd::Done, vec![create("a")]).await)?;
        lease_lost(their_ledger.release(lease.clone()).await)?;
        same(
            ids_of(&theirs, "*").await?,
            [],
            "the breadcrumbs of the second tenant",
        )?;
        end(&ours, &lease, RunEnd::Done, Vec::new()).await?;
    }
    Ok(())
}
