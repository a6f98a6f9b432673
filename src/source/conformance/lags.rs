use super::SourceUnderTest;
use super::broken::{Broken, expect, same, some};
use super::reader::{Reader, Said, commit, commits, same_event, version};
use crate::model::{Event, Timestamp};
use crate::source::StartAt;

/// Maximum number of events that the tested backend retains in the tests of event loss.
const KEPT: usize = 8;

/// Counts of a tested subscription up to a given event: the delivered events, and the events reported as missed.
struct Told {
    delivered: usize,
    missed: u64,
    /// The latest reported lower bound of the commit times of missed events.
    after: Option<Timestamp>,
}

/// Reads the tested subscription up to the event `last`, and counts delivered and missed events.
async fn until(reader: &mut Reader, last: &Event) -> Result<Told, Broken> {
    // No test commits this many events, so the limit stops a source that reports losses without end.
    const MOST: u64 = 100_000;
    let mut told = Told {
        delivered: 0,
        missed: 0,
        after: None,
    };
    loop {
        expect(
            told.missed < MOST,
            "the source reports no more dropped events than were committed",
        )?;
        match reader.said().await? {
            Said::Lagged(more, after) => {
                told.missed = told.missed.saturating_add(more.max(1));
                told.after = told.after.max(after);
            }
            Said::Delivered(delivery) => {
                told.delivered += 1;
                if version(&delivery.event) == version(last) {
                    return Ok(told);
                }
            }
        }
    }
}

/// **No silent loss.** A slow subscriber receives the number of dropped events, and the stream continues. A source that
/// is not [complete](crate::source::EventSource::is_complete) may omit the report.
///
/// 2,000 events are committed while the subscription is not read. Does nothing if
/// [`keeping`](super::SourceUnderTest::keeping) returns `None`.
pub async fn what_is_dropped_is_told<S: SourceUnderTest>(subject: &S) -> Result<(), Broken> {
    const COMMITS: usize = 50;
    const NOTES: usize = 40;
    let Some(place) = subject.keeping(KEPT).await else {
        return Ok(());
    };
    let tells = subject.source(&place, "one").is_complete();
    let mut reader = Reader::open(subject, &place, "one", StartAt::Now).await?;
    let mut last = None;
    for _ in 0..COMMITS {
        last = commit(subject, &place, NOTES).await?.pop();
    }

    let told = until(&mut reader, &some(last, "an event")?).await?;
    let (delivered, missed) = (told.delivered, told.missed);
    if tells {
        expect(missed > 0, "the source reports dropped events")?;
        let all = u64::try_from(delivered).unwrap_or(u64::MAX) + missed;
        same(
            all,
            (COMMITS * NOTES) as u64,
            "the number of delivered and dropped events",
        )?;
    }
    let next = commits(subject, &place, 3).await?;
    reader.expect(&next).await
}

/// **No silent loss.** If the events after a position were deleted, a subscription from this position receives the
/// number of missed events.
///
/// Does nothing if [`keeping`](super::SourceUnderTest::keeping) returns `None`, without the ability
/// [`history`](super::Abilities::history), and for a source that is not complete.
pub async fn what_is_gone_behind_a_position_is_told<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let Some(place) = subject.keeping(KEPT).await else {
        return Ok(());
    };
    let tells = subject.source(&place, "one").is_complete();
    if !subject.abilities().history || !tells {
        return Ok(());
    }
    let mut reader = Reader::open(subject, &place, "one", StartAt::Now).await?;
    let first = commits(subject, &place, 1).await?;
    let delivery = reader.next().await?;
    for first in &first {
        same_event(&delivery.event, first)?;
    }
    let position = some(delivery.position, "a position")?;
    drop((reader, delivery));
    let announced = commit(subject, &place, 10 * KEPT).await?;
    let last = some(announced.last(), "an event")?;

    let mut reader = Reader::open(subject, &place, "two", StartAt::After(position)).await?;
    let told = until(&mut reader, last).await?;
    let (delivered, missed) = (told.delivered, told.missed);

    expect(missed > 0, "the source reports dropped events")?;
    let all = u64::try_from(delivered).unwrap_or(u64::MAX) + missed;
    same(
        all,
        10 * KEPT as u64,
        "the number of delivered and dropped events",
    )?;
    let first = some(announced.first(), "an event")?;
    expect(
        told.after.is_none_or(|after| after < first.updated_at),
        "every missed event is newer than the reported time",
    )
}

/// **Start position.** [`StartAt::Beginning`] starts with the oldest retained event. Events that were deleted before
/// are not reported as missed.
pub async fn what_is_gone_before_the_beginning_is_not_missed<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let Some(place) = subject.keeping(KEPT).await else {
        return Ok(());
    };
    if !subject.abilities().history {
        return Ok(());
    }
    let announced = commit(subject, &place, 10 * KEPT).await?;
    let last = some(announced.last(), "an event")?;

    let mut reader = Reader::open(subject, &place, "one", StartAt::Beginning).await?;
    let told = until(&mut reader, last).await?;
    let (delivered, missed) = (told.delivered, told.missed);

    same(missed, 0, "the number of missed events")?;
    expect(delivered >= 1, "the newest events are delivered")
}
