//! Conformance tests for [requests](RunLedger::request) to the ledger, which create a breadcrumb at most once per idempotency
//! key.

use super::AnyStore;
use super::atomic::{EVENT_TIMEOUT, unsubscribed};
use super::expectations::{expect, fails, granted, same, some};
use super::fixtures::{end, ids_of, ledger_of, note, other_tenant};
use super::{AnyStoreUnderTest, Broken};
use crate::model::{Breadcrumb, BreadcrumbId, EventKind, Patch};
use crate::source::{EventSource as _, StartAt};
use crate::store::{
    BreadcrumbStoreExt, NewRequest, Requested, RunEnd, RunLedger, RunRef, StoreError,
};
use futures::StreamExt as _;
use futures::future::join_all;
use std::sync::Arc;

/// A ledger request with an idempotency key creates and stores its breadcrumb as a commit does. A repeated request with the key
/// returns the same trigger, even after the trigger changed, its run ended, or the trigger was deleted.
///
/// The answer of [`request`](crate::store::RunLedger::request) is
/// [`Requested::Existing`](crate::store::Requested::Existing).
///
/// Not checked for a store without a ledger or
/// [`Capabilities::keyed_requests`](crate::store::Capabilities::keyed_requests).
pub async fn a_repeated_request_returns_the_first_trigger(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = requests_of(&store)?;
    let first = created(ledger.request(request("agent", "key")).await?)?;
    same(&*store.get(first.id).await?, &*first, "the breadcrumb")?;
    same(
        (first.version, &*first.title, first.created_by.as_deref()),
        (1, "trigger", Some("ann")),
        "the breadcrumb",
    )?;
    is_existing(ledger, first.id).await?;

    store
        .update(first.id, 1, Patch::new().title("changed"))
        .await?;
    is_existing(ledger, first.id).await?;
    let run = RunRef::new("agent", first.id, 1);
    let lease = granted(ledger.claim(&run, None).await)?.lease;
    end(&store, &lease, RunEnd::Done, Vec::new()).await?;
    is_existing(ledger, first.id).await?;
    store.delete(first.id).await?;
    is_existing(ledger, first.id).await?;

    same(
        ids_of(&store, "note.v1").await?.len(),
        0,
        "the number of breadcrumbs",
    )
}

/// A ledger request that creates a breadcrumb publishes one event, and a repeated request with the same idempotency key
/// publishes none.
///
/// A repeated [`request`](crate::store::RunLedger::request) publishes no event, so it triggers no
/// second run.
///
/// Not checked for a store without a ledger, an event source or
/// [`Capabilities::keyed_requests`](crate::store::Capabilities::keyed_requests).
pub async fn a_request_publishes_one_event(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = requests_of(&store)?;
    let source = some(store.events(), "an event source")?;
    let mut events = source.subscribe(StartAt::Now).await.map_err(unsubscribed)?;

    let first = created(ledger.request(request("agent", "key")).await?)?;
    is_existing(ledger, first.id).await?;
    let last = created(ledger.request(request("agent", "other")).await?)?;

    for id in [first.id, last.id] {
        let next = tokio::time::timeout(EVENT_TIMEOUT, events.next()).await;
        let delivery = some(next.ok().flatten(), "an event")?.map_err(unsubscribed)?;
        let event = &delivery.event;
        same(
            (event.kind, event.breadcrumb_id, event.version),
            (EventKind::Created, id, 1),
            "the event",
        )?;
        delivery.ack().await.map_err(unsubscribed)?;
    }
    Ok(())
}

/// Of many concurrent ledger requests with one idempotency key, on several handles, exactly one creates a breadcrumb. All
/// return its ID.
///
/// Record the key and the breadcrumb of [`request`](crate::store::RunLedger::request) in one step,
/// for example with a unique index.
///
/// Not checked for a store without a ledger or
/// [`Capabilities::keyed_requests`](crate::store::Capabilities::keyed_requests).
pub async fn one_of_concurrent_requests_with_a_key_creates(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    const MANY: usize = 100;
    let store = subject.fresh().await;
    let handles: Vec<AnyStore<'_>> = (0..MANY).map(|_| store.clone()).collect();
    let send = async |handle: &AnyStore<'_>| -> Result<Requested, Broken> {
        let requested = requests_of(handle)?.request(request("agent", "key")).await;
        Ok(requested?)
    };

    let answers = join_all(handles.iter().map(send)).await;

    let answers: Vec<Requested> = answers.into_iter().collect::<Result<_, _>>()?;
    let creates = |answer: &&Requested| matches!(answer, Requested::Created { .. });
    same(answers.iter().filter(creates).count(), 1, "the creations")?;
    let ids = ids_of(&store, "note.v1").await?;
    same(ids.len(), 1, "the number of breadcrumbs")?;
    let is_it =
        |answer: &Requested| answer.trigger() == (ids.first().copied().unwrap_or_default(), 1);
    expect(answers.iter().all(is_it), "all answers name the breadcrumb")
}

/// A ledger request fails if an earlier request used the same idempotency key with a different breadcrumb. The failed request
/// creates nothing.
///
/// The error is [`StoreError::KeyConflict`](crate::store::StoreError::KeyConflict). Save a digest
/// of the breadcrumb with the key.
///
/// Not checked for a store without a ledger or
/// [`Capabilities::keyed_requests`](crate::store::Capabilities::keyed_requests).
pub async fn a_request_with_another_breadcrumb_is_a_conflict(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = requests_of(&store)?;
    let first = created(ledger.request(request("agent", "key")).await?)?;

    for other in [note("other"), note("trigger").tag("more")] {
        let refused = ledger.request(NewRequest::new("agent", "key", other)).await;
        fails(refused, "KeyConflict", |error| {
            matches!(error, StoreError::KeyConflict { executor, key, id }
                if **executor == *"agent" && **key == *"key" && *id == first.id)
        })?;
    }

    let ids = ids_of(&store, "note.v1").await?;
    same(ids, [first.id], "the breadcrumbs")?;
    is_existing(ledger, first.id).await
}

/// Idempotency keys of ledger requests belong to their executor: another executor can use the same key, and one executor can
/// use several keys.
///
/// The key of the record is the tenant, the executor ID and the idempotency key.
///
/// Not checked for a store without a ledger or
/// [`Capabilities::keyed_requests`](crate::store::Capabilities::keyed_requests).
pub async fn keys_belong_to_their_executor(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = requests_of(&store)?;
    let longest = "k".repeat(NewRequest::MAX_KEY_BYTES);
    let all = [
        ("agent", "key"),
        ("other", "key"),
        ("agent", "Key"),
        ("agent", "key "),
        ("agent", "a\0b"),
        ("agent", "a\u{FFFD}b"),
        ("agent", &longest),
    ];

    for (executor, key) in all {
        created(ledger.request(request(executor, key)).await?)?;
    }

    for (executor, key) in all {
        let again = ledger.request(request(executor, key)).await?;
        let exists = matches!(again, Requested::Existing { .. });
        expect(exists, &format!("{executor} {key:?} exists"))?;
    }
    let count = ids_of(&store, "note.v1").await?.len();
    same(count, all.len(), "the number of breadcrumbs")
}

/// A tenant cannot see the idempotency keys of another tenant's ledger requests.
///
/// The key of the record includes the tenant.
///
/// Not checked for a store without a ledger, several tenants or
/// [`Capabilities::keyed_requests`](crate::store::Capabilities::keyed_requests).
///
/// Checked only in part without
/// [`Capabilities::named_tenants`](crate::store::Capabilities::named_tenants).
pub async fn keys_of_tenants_are_isolated(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let other = other_tenant(&store).await?;
    let (here, there) = (requests_of(&store)?, requests_of(&other)?);
    created(here.request(request("agent", "key")).await?)?;

    created(there.request(request("agent", "key")).await?)?;

    let count = ids_of(&store, "note.v1").await?.len();
    same(count, 1, "the number of breadcrumbs here")
}

/// A ledger request with an invalid idempotency key or breadcrumb creates no breadcrumb and records no key.
///
/// The caller can correct the breadcrumb and repeat [`request`](crate::store::RunLedger::request)
/// with the same key.
///
/// Not checked for a store without a ledger or
/// [`Capabilities::keyed_requests`](crate::store::Capabilities::keyed_requests).
pub async fn a_refused_request_records_no_key(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let ledger = requests_of(&store)?;
    for key in [String::new(), "k".repeat(NewRequest::MAX_KEY_BYTES + 1)] {
        let size = key.len();
        let refused = ledger.request(request("agent", &key)).await;
        fails(
            refused,
            "InvalidKey",
            |error| matches!(error, StoreError::InvalidKey { size: found, .. } if *found == size),
        )?;
    }
    let tags = (0..=Breadcrumb::MAX_TAGS).map(|n| n.to_string());
    let refused = NewRequest::new("agent", "key", note("trigger").tags(tags));
    fails(ledger.request(refused).await, "TooManyTags", |error| {
        matches!(error, StoreError::TooManyTags { .. })
    })?;
    let count = ids_of(&store, "note.v1").await?.len();
    same(count, 0, "the number of breadcrumbs")?;

    created(ledger.request(request("agent", "key")).await?).map(drop)
}

/// Returns the ledger of a store, or an error if the store does not declare the capability `keyed_requests`.
fn requests_of<'h>(store: &'h AnyStore<'_>) -> Result<&'h dyn RunLedger, Broken> {
    expect(
        store.capabilities().keyed_requests,
        "the store has requests with a key",
    )?;
    ledger_of(store)
}

fn request(executor: &str, key: &str) -> NewRequest {
    NewRequest::new(executor, key, note("trigger"))
}

/// Expects that a ledger request creates its breadcrumb.
fn created(requested: Requested) -> Result<Arc<Breadcrumb>, Broken> {
    match requested {
        Requested::Created { breadcrumb } => Ok(breadcrumb),
        Requested::Existing { .. } => some(None, "a breadcrumb of the request"),
    }
}

/// Expects that another ledger request for the executor `agent` with the idempotency key `key` returns the existing breadcrumb
/// `id`.
async fn is_existing(ledger: &dyn RunLedger, id: BreadcrumbId) -> Result<(), Broken> {
    let again = ledger.request(request("agent", "key")).await?;
    same(again, Requested::Existing { id, version: 1 }, "the answer")
}
