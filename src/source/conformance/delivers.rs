use super::broken::{Broken, expect, same, some};
use super::reader::{Reader, change, commit, commits, create, same_event, update, version};
use super::{Change, SourceUnderTest};
use crate::model::{Event, EventKind, NewBreadcrumb};
use crate::source::StartAt;
use futures::future::{join, try_join_all};
use serde_json::json;
use std::collections::HashSet;

/// **Every commit.** Each created, updated and deleted breadcrumb is announced with its schema, tags, version and time.
///
/// One breadcrumb is created, updated three times and deleted. Applies to every source.
pub async fn every_commit_is_delivered<S: SourceUnderTest>(subject: &S) -> Result<(), Broken> {
    let backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;

    let mut announced = versions(subject, &backend, 4).await?;
    let last = some(announced.last(), "an event")?;
    let id = last.breadcrumb_id;
    announced.append(&mut change(subject, &backend, vec![Change::Delete { id }]).await?);

    let kinds: Vec<_> = announced.iter().map(Event::effective_kind).collect();
    let expected = [
        EventKind::Created,
        EventKind::Updated,
        EventKind::Updated,
        EventKind::Updated,
        EventKind::Deleted,
    ];
    same(kinds, expected, "the list of event kinds")?;
    reader.expect(&announced).await
}

/// **In order.** New events are delivered in commit order, and in the order of the writes within a commit.
///
/// 30 commits create four breadcrumbs each, and 30 commits update them. Applies to every source.
pub async fn commits_are_delivered_in_order<S: SourceUnderTest>(subject: &S) -> Result<(), Broken> {
    let backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    let mut announced = Vec::new();
    for _ in 0..30 {
        let notes = commit(subject, &backend, 4).await?;
        let changes = notes.iter().rev().map(|note| update(note, 7)).collect();
        announced.extend(notes);
        announced.append(&mut change(subject, &backend, changes).await?);
    }

    reader.expect(&announced).await
}

/// **Every commit.** Commits of concurrent writers are all delivered while the writers run, and the commits of
/// one writer in the order in which it made them.
///
/// Twelve writers commit concurrently. Only the order of the commits of one writer is checked.
pub async fn commits_at_the_same_time_are_all_delivered<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    const WRITERS: usize = 12;
    const COMMITS: usize = 12;
    let backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    let write = try_join_all((0..WRITERS).map(|_| commits(subject, &backend, COMMITS)));
    let read = async {
        let mut read = Vec::new();
        for _ in 0..WRITERS * COMMITS {
            read.push(reader.next_new().await?.event);
        }
        Ok::<_, Broken>(read)
    };

    let (written, read) = join(write, read).await;

    let read = read?;
    for of_one in written? {
        let expected: HashSet<_> = of_one.iter().map(version).collect();
        let delivered = read
            .iter()
            .filter(|event| expected.contains(&version(event)));
        for (delivered, expected) in delivered.zip(&of_one) {
            same_event(delivered, expected)?;
        }
    }
    Ok(())
}

/// **Bounded.** An event whose context is larger than [`Event::MAX_CONTEXT_BYTES`] is delivered without its context. An
/// event with a smaller context may be delivered with it.
pub async fn a_large_context_does_not_travel<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    let large = json!({"text": "x".repeat(Event::MAX_CONTEXT_BYTES)});
    let large = Change::Create(NewBreadcrumb::new("large.v1").context(large));

    let announced = change(subject, &backend, vec![create(1), large, create(2)]).await?;

    for expected in &announced {
        let event = reader.next_new().await?.event;
        same_event(&event, expected)?;
        let is_large = event.schema_name.as_deref() == Some("large.v1");
        expect(
            !is_large || event.context.is_none(),
            "an event with a large context is delivered without the context",
        )?;
    }
    Ok(())
}

/// **Matching context.** A delivered context belongs to the event's version, even if the event is read late. Otherwise
/// the event has no context.
///
/// A breadcrumb gets ten versions before the first event is read. Applies to every source.
pub async fn a_context_is_that_of_its_version<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;

    let announced = versions(subject, &backend, 10).await?;

    reader.expect(&announced).await
}

/// Creates a test breadcrumb, updates it until it has `n` versions, and returns the announced events.
async fn versions<S: SourceUnderTest>(
    subject: &S,
    backend: &S::Backend,
    n: usize,
) -> Result<Vec<Event>, Broken> {
    let mut announced = commit(subject, backend, 1).await?;
    for n in 1..n {
        let before = some(announced.last(), "an event")?;
        let update = update(before, n);
        announced.append(&mut change(subject, backend, vec![update]).await?);
    }
    Ok(announced)
}

/// Name of the second tenant in the test of tenant isolation: a UUID, because some servers accept only UUIDs.
const OTHER_TENANT: &str = "7d0b7f0e-5d0c-4c66-9b51-0a53b8d1b8f4";

/// **Tenants apart.** A subscription delivers no event of another tenant.
///
/// Does nothing if [`in_tenant`](super::SourceUnderTest::in_tenant) returns `None`.
pub async fn events_of_tenants_are_isolated<S: SourceUnderTest>(subject: &S) -> Result<(), Broken> {
    let ours = subject.fresh().await;
    let Some(theirs) = subject.in_tenant(&ours, OTHER_TENANT).await else {
        return Ok(());
    };
    let mut our_reader = Reader::open(subject, &ours, "one", StartAt::Now).await?;
    let mut their_reader = Reader::open(subject, &theirs, "one", StartAt::Now).await?;

    let our_events = commits(subject, &ours, 3).await?;
    let their_events = commits(subject, &theirs, 3).await?;
    let our_last = commits(subject, &ours, 1).await?;

    our_reader.expect(&our_events).await?;
    our_reader.expect(&our_last).await?;
    their_reader.expect(&their_events).await
}
