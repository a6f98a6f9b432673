use super::AnyStoreUnderTest;
use super::Broken;
use super::expectations::{expect, fails, granted, same, some};
use super::fixtures::{create, end, ids_of, new_run, note, row, trigger};
use crate::model::{BreadcrumbId, EventKind, Patch};
use crate::source::StartAt;
use crate::store::{BreadcrumbStoreExt, Commit, RunEnd, RunState, StoreError, Write};
use futures::future::join;
use futures::{FutureExt, StreamExt};
use std::time::Duration;

/// Maximum time in which an event source delivers the event of a commit.
pub(super) const EVENT_TIMEOUT: Duration = Duration::from_secs(5);

/// **Atomic.** During commits of five writes each, another handle on the store sees a multiple of five breadcrumbs.
///
/// A reader between two writes of a commit would see a part of a response.
///
/// Not checked for a store without [`Capabilities::atomic`](crate::store::Capabilities::atomic).
pub async fn atomic(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let reader = store.clone();
    let write = async {
        for _ in 0..20 {
            store.commit(vec![create("a"); 5].into()).await?;
            yield_once().await;
        }
        Ok::<(), Broken>(())
    };
    let read = async {
        for _ in 0..20 {
            let count = ids_of(&reader, "note.v1").await?.len();
            expect(
                count.is_multiple_of(5),
                "a commit is visible in full or not at all",
            )?;
            yield_once().await;
        }
        Ok::<(), Broken>(())
    };

    let (written, read) = join(write, read).await;

    written?;
    read?;
    same(
        ids_of(&store, "note.v1").await?.len(),
        100,
        "the number of breadcrumbs",
    )
}

/// A commit in which one write fails changes nothing: it creates no breadcrumb and no version, and does not end the run.
///
/// Validate all writes first, or roll the transaction back.
///
/// Checked only in part without a ledger.
pub async fn a_commit_with_a_failing_write_changes_nothing(
    subject: &dyn AnyStoreUnderTest,
) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let before = trigger(&store).await?;
    let update = |version| Write::Update {
        id: before.id,
        version,
        patch: Patch::new().title("b"),
    };
    let absent = Write::Delete {
        id: BreadcrumbId::unique(),
        by: None,
    };

    for last in [update(3), absent] {
        let failed = store
            .commit(vec![create("a"), update(1), last].into())
            .await;
        expect(failed.is_err(), "the commit fails")?;
        same(
            ids_of(&store, "note.v1").await?,
            [before.id],
            "the stored breadcrumbs",
        )?;
        same(&*store.get(before.id).await?, &*before, "the breadcrumb")?;
    }

    let Some(ledger) = store.ledger() else {
        return Ok(());
    };
    let run = new_run(&store, "agent").await?;
    let lease = granted(ledger.claim(&run, None).await)?.lease;
    let failed = end(&store, &lease, RunEnd::Done, vec![create("a"), update(7)]).await;
    fails(failed, "Conflict", |error| {
        matches!(error, StoreError::Conflict { .. })
    })?;
    let after = some(row(ledger, &run).await?, "the run")?;
    same(
        (after.state, after.written),
        (RunState::Running, Vec::new()),
        "the run",
    )?;
    end(&store, &lease, RunEnd::Done, vec![create("a")])
        .await
        .map(drop)?;
    same(
        ids_of(&store, "note.v1").await?.len(),
        3,
        "the number of breadcrumbs",
    )
}

/// A commit publishes one event for each of its writes, in order. A failed commit publishes none.
///
/// A runtime finds a commit without an event only by a later search of the store.
///
/// Not checked for a store without an event source.
pub async fn a_commit_publishes_its_events(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    let source = some(store.events(), "an event source")?;
    let mut events = source.subscribe(StartAt::Now).await.map_err(unsubscribed)?;
    let stale = Write::Update {
        id: BreadcrumbId::unique(),
        version: 1,
        patch: Patch::new(),
    };

    let failed = store.commit(vec![create("never"), stale].into()).await;
    let created = store.create(note("a")).await?;
    let update = Write::Update {
        id: created.id,
        version: 1,
        patch: Patch::new().title("b"),
    };
    let delete = Write::Delete {
        id: created.id,
        by: None,
    };
    store.commit(vec![update, delete].into()).await?;

    expect(failed.is_err(), "the commit fails")?;
    for (kind, version) in [
        (EventKind::Created, 1),
        (EventKind::Updated, 2),
        (EventKind::Deleted, 3),
    ] {
        let next = tokio::time::timeout(EVENT_TIMEOUT, events.next())
            .await
            .ok()
            .flatten();
        let delivery = some(next, "an event")?.map_err(unsubscribed)?;
        let event = &delivery.event;
        same(
            (event.kind, event.breadcrumb_id, event.version),
            (kind, created.id, version),
            "the event",
        )?;
        same(
            &event.schema_name,
            &created.schema_name,
            "the schema name of the event",
        )?;
        same(&event.tags, &created.tags, "the tags of the event")?;
        delivery.ack().await.map_err(unsubscribed)?;
    }
    Ok(())
}

/// **Cancel safe.** A commit whose future is dropped leaves the store in its state before or after the commit.
///
/// A service drops futures at timeouts and at shutdown, at any point of a commit.
///
/// Not checked for a store without [`Capabilities::atomic`](crate::store::Capabilities::atomic).
///
/// Checked only in part without a ledger or
/// [`Capabilities::atomic_ends`](crate::store::Capabilities::atomic_ends).
pub async fn cancel_safe(subject: &dyn AnyStoreUnderTest) -> Result<(), Broken> {
    let store = subject.fresh().await;
    for polls in 0..8 {
        let before = ids_of(&store, "note.v1").await?.len();
        poll_times(store.commit(vec![create("a"); 5].into()), polls).await;
        let after = ids_of(&store, "note.v1").await?.len();
        expect(
            after == before || after == before + 5,
            "the store has all writes of the commit or none",
        )?;
    }

    let Some(ledger) = store.ledger() else {
        return Ok(());
    };
    if !store.capabilities().atomic_ends {
        return Ok(());
    }
    for polls in 0..8 {
        let run = new_run(&store, "agent").await?;
        let lease = granted(ledger.claim(&run, None).await)?.lease;
        let before = ids_of(&store, "note.v1").await?.len();
        let commit = Commit {
            writes: vec![create("a"); 5],
            end: Some((lease, RunEnd::Done)),
        };
        poll_times(store.commit(commit), polls).await;
        let wrote = ids_of(&store, "note.v1").await?.len() - before;
        let after = some(row(ledger, &run).await?, "the run")?;
        let expected_result = if wrote == 0 {
            RunState::Running
        } else {
            RunState::Done
        };
        same(
            (after.state, after.written.len()),
            (expected_result, wrote),
            "the state of the run and the number of its writes",
        )?;
    }
    Ok(())
}

/// Polls a future at most `polls` times and then drops it, to test that an operation is cancel safe.
async fn poll_times<F: Future>(future: F, polls: usize) {
    let mut future = std::pin::pin!(future);
    for _ in 0..polls {
        if future.as_mut().now_or_never().is_some() {
            return;
        }
        yield_once().await;
    }
}

async fn yield_once() {
    tokio::task::yield_now().await;
}

#[track_caller]
pub(super) fn unsubscribed(error: crate::source::SourceError) -> Broken {
    Broken::from(StoreError::Unavailable {
        store: "the event source",
        retry_after: Duration::ZERO,
        source: error.into(),
    })
}
