use super::SourceUnderTest;
use super::broken::{Broken, expect, same, some};
use super::reader::{Reader, Said, commit, commits, same_event, version};
use crate::model::{Event, Timestamp};
use crate::source::StartAt;

/// How many events a place is told to keep.
const KEPT: usize = 8;

/// The items that a subscriber received before the first event.
struct Told {
    delivered: usize,
    missed: u64,
    /// The latest time after which events were missed.
    after: Option<Timestamp>,
}

/// Reads up to an event.
async fn until(reader: &mut Reader, last: &Event) -> Result<Told, Broken> {
    // More than any promise commits: who says that for ever says nothing.
    const MOST: u64 = 100_000;
    let mut told = Told {
        delivered: 0,
        missed: 0,
        after: None,
    };
    loop {
        expect(told.missed < MOST, "no more is missed than there was")?;
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

/// **No silent loss.** A subscriber that is too slow is told how many events it missed, and the stream goes on. What does
/// not claim to be complete need not tell, and goes on too.
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
        expect(missed > 0, "something is said to be dropped")?;
        let all = u64::try_from(delivered).unwrap_or(u64::MAX) + missed;
        same(all, (COMMITS * NOTES) as u64, "what came and what did not")?;
    }
    let next = commits(subject, &place, 3).await?;
    reader.expect(&next).await
}

/// **No silent loss.** Whoever goes on after a position whose next event is gone is told how many it missed.
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

    expect(missed > 0, "something is said to be dropped")?;
    let all = u64::try_from(delivered).unwrap_or(u64::MAX) + missed;
    same(all, 10 * KEPT as u64, "what came and what did not")?;
    let first = some(announced.first(), "an event")?;
    expect(
        told.after.is_none_or(|after| after < first.updated_at),
        "each missed event follows the time after which events were missed",
    )
}

/// **Where it begins.** The beginning is what is still kept: what was forgotten before is not missed.
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

    same(missed, 0, "the number of events that were missed")?;
    expect(delivered >= 1, "the newest events are there")
}
