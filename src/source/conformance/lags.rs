use super::SourceUnderTest;
use super::broken::{Broken, expect, same, some};
use super::reader::{Reader, StreamItem, commit, commits, same_event, version};
use crate::model::{Event, Timestamp};
use crate::source::StartAt;

/// Maximum number of events that the tested backend retains in the tests of event loss.
const RETAINED: usize = 8;

/// Number of events that a tested subscription delivered, and number that it reported as missed, up to a given event.
struct DeliveryCounts {
    delivered: usize,
    missed: u64,
    /// The latest reported lower bound of the commit times of missed events.
    after: Option<Timestamp>,
}

/// Reads the tested subscription up to the event `last`, and counts delivered and missed events.
async fn until(reader: &mut Reader, last: &Event) -> Result<DeliveryCounts, Broken> {
    // No test commits this many events, so the limit stops a source that reports losses without end.
    const MOST: u64 = 100_000;
    let mut counts = DeliveryCounts {
        delivered: 0,
        missed: 0,
        after: None,
    };
    loop {
        expect(
            counts.missed < MOST,
            "the source reports no more dropped events than were committed",
        )?;
        match reader.next_item().await? {
            StreamItem::Lagged(more, after) => {
                counts.missed = counts.missed.saturating_add(more.max(1));
                counts.after = counts.after.max(after);
            }
            StreamItem::Delivered(delivery) => {
                counts.delivered += 1;
                if version(&delivery.event) == version(last) {
                    return Ok(counts);
                }
            }
        }
    }
}

/// **No silent loss.** A slow subscriber receives the number of dropped events, and the stream continues. A source that
/// is not [complete](crate::source::EventSource::is_complete) may omit the report.
///
/// 2,000 events are committed while the subscription is not read. Does nothing if
/// [`fresh_with_limit`](super::SourceUnderTest::fresh_with_limit) returns `None`.
pub async fn dropped_events_are_reported<S: SourceUnderTest>(subject: &S) -> Result<(), Broken> {
    const COMMITS: usize = 50;
    const NOTES: usize = 40;
    let Some(backend) = subject.fresh_with_limit(RETAINED).await else {
        return Ok(());
    };
    let reports_loss = subject.source(&backend, "one").is_complete();
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    let mut last = None;
    for _ in 0..COMMITS {
        last = commit(subject, &backend, NOTES).await?.pop();
    }

    let counts = until(&mut reader, &some(last, "an event")?).await?;
    let (delivered, missed) = (counts.delivered, counts.missed);
    if reports_loss {
        expect(missed > 0, "the source reports dropped events")?;
        let all = u64::try_from(delivered).unwrap_or(u64::MAX) + missed;
        same(
            all,
            (COMMITS * NOTES) as u64,
            "the number of delivered and dropped events",
        )?;
    }
    let next = commits(subject, &backend, 3).await?;
    reader.expect(&next).await
}

/// **No silent loss.** If the events after a position were deleted, a subscription from this position receives the
/// number of missed events.
///
/// Does nothing if [`fresh_with_limit`](super::SourceUnderTest::fresh_with_limit) returns `None`, without the ability
/// [`history`](super::Abilities::history), and for a source that is not complete.
pub async fn deleted_events_after_a_position_are_reported<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let Some(backend) = subject.fresh_with_limit(RETAINED).await else {
        return Ok(());
    };
    let reports_loss = subject.source(&backend, "one").is_complete();
    if !subject.abilities().history || !reports_loss {
        return Ok(());
    }
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    let first = commits(subject, &backend, 1).await?;
    let delivery = reader.next_new().await?;
    for first in &first {
        same_event(&delivery.event, first)?;
    }
    let position = some(delivery.position, "a position")?;
    drop((reader, delivery));
    let announced = commit(subject, &backend, 10 * RETAINED).await?;
    let last = some(announced.last(), "an event")?;

    let mut reader = Reader::open(subject, &backend, "two", StartAt::After(position)).await?;
    let counts = until(&mut reader, last).await?;
    let (delivered, missed) = (counts.delivered, counts.missed);

    expect(missed > 0, "the source reports dropped events")?;
    let all = u64::try_from(delivered).unwrap_or(u64::MAX) + missed;
    same(
        all,
        10 * RETAINED as u64,
        "the number of delivered and dropped events",
    )?;
    let first = some(announced.first(), "an event")?;
    expect(
        counts.after.is_none_or(|after| after < first.updated_at),
        "every missed event is newer than the reported time",
    )
}

/// **Start position.** [`StartAt::Beginning`] starts with the oldest retained event. Events that were deleted before
/// are not reported as missed.
pub async fn deleted_events_before_the_beginning_are_not_reported<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let Some(backend) = subject.fresh_with_limit(RETAINED).await else {
        return Ok(());
    };
    if !subject.abilities().history {
        return Ok(());
    }
    let announced = commit(subject, &backend, 10 * RETAINED).await?;
    let last = some(announced.last(), "an event")?;

    let mut reader = Reader::open(subject, &backend, "one", StartAt::Beginning).await?;
    let counts = until(&mut reader, last).await?;
    let (delivered, missed) = (counts.delivered, counts.missed);

    same(missed, 0, "the number of missed events")?;
    expect(delivered >= 1, "the newest events are delivered")
}
