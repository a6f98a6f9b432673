use super::SourceUnderTest;
use super::broken::{Broken, expect};
use super::reader::{Reader, acknowledge, commits, give_back, in_time, same_event};
use crate::model::Event;
use crate::source::{SourceError, StartAt};
use std::time::Duration;

/// A delay that is meant to pass.
const SHORT: Duration = Duration::from_millis(50);
/// After this, [`SHORT`] is over.
const OVER: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3_600);

/// **Taken back.** An event that is given back comes again after its delay, and others meanwhile. A source that takes
/// nothing back says so.
pub async fn an_event_given_back_comes_again<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let place = subject.fresh().await;
    let mut reader = Reader::open(subject, &place, "one", StartAt::Now).await?;
    let announced = commits(subject, &place, 3).await?;
    let delivery = reader.any().await?;

    let answer = give_back(&delivery, SHORT).await?;
    if !subject.abilities().takes_back {
        let refused = matches!(answer, Err(SourceError::NotTakenBack { .. }));
        return expect(refused, "the source says that it takes nothing back");
    }
    answer?;
    subject.advance_clock(OVER).await;

    let mut again = false;
    let mut others = 0;
    while !again || others < 2 {
        let next = reader.any().await?;
        acknowledge(&next).await?;
        match next.event == delivery.event || next.position == delivery.position {
            true => again = true,
            false => others += 1,
        }
    }
    same_event(
        &delivery.event,
        announced.first().unwrap_or(&delivery.event),
    )
}

/// **Taken back.** An event that is given back does not come before its delay is over.
pub async fn an_event_given_back_waits_for_its_delay<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    if !subject.abilities().takes_back {
        return Ok(());
    }
    let place = subject.fresh().await;
    let mut reader = Reader::open(subject, &place, "one", StartAt::Now).await?;
    commits(subject, &place, 1).await?;

    give_back(&reader.any().await?, HOUR).await??;
    subject.advance_clock(OVER).await;

    only(&mut reader, &commits(subject, &place, 3).await?).await
}

/// **Taken care of.** An event that is acknowledged does not come again by itself.
pub async fn an_acknowledged_event_does_not_come_again<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let place = subject.fresh().await;
    let mut reader = Reader::open(subject, &place, "one", StartAt::Now).await?;

    for _ in 0..3 {
        let announced = commits(subject, &place, 2).await?;
        only(&mut reader, &announced).await?;
        subject.advance_clock(OVER).await;
    }
    Ok(())
}

/// Expects these events and no others between them.
async fn only(reader: &mut Reader, wanted: &[Event]) -> Result<(), Broken> {
    for wanted in wanted {
        let delivery = reader.any().await?;
        same_event(&delivery.event, wanted)?;
        acknowledge(&delivery).await?;
    }
    Ok(())
}

/// **Taken care of.** A source may be told twice, and after the subscription is gone.
pub async fn telling_a_source_twice_or_late_is_harmless<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let place = subject.fresh().await;
    let mut reader = Reader::open(subject, &place, "one", StartAt::Now).await?;
    commits(subject, &place, 2).await?;
    let (first, second) = (reader.any().await?, reader.any().await?);

    acknowledge(&first).await?;
    acknowledge(&first).await?;
    drop(reader);
    // What it says does not matter, only that it ends and that others go on.
    drop(in_time(first.ack()).await?);
    drop(in_time(second.nack(Duration::ZERO)).await?);

    let mut reader = Reader::open(subject, &place, "two", StartAt::Now).await?;
    reader.expect(&commits(subject, &place, 2).await?).await
}
