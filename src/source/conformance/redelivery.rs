use super::SourceUnderTest;
use super::broken::{Broken, expect};
use super::reader::{Reader, acknowledge, commits, in_time, nack_delivery, same_event};
use crate::model::Event;
use crate::source::{SourceError, StartAt};
use std::time::Duration;

/// Nack delay in the redelivery tests. The delay expires during the test.
const NACK_DELAY: Duration = Duration::from_millis(50);
/// Time by which the redelivery tests advance the clock, so that a nack delay of [`NACK_DELAY`] has expired.
const CLOCK_STEP: Duration = Duration::from_millis(100);
const HOUR: Duration = Duration::from_secs(3_600);

/// **Redelivered.** A nacked event is delivered again after its delay, and other events are delivered meanwhile. A
/// source that cannot redeliver events returns [`SourceError::NoRedelivery`].
///
/// The nack has a delay of 50 ms, and [`advance_clock`](super::SourceUnderTest::advance_clock) is
/// called with 100 ms. [`redelivers`](super::Abilities::redelivers) decides which behavior is
/// required.
pub async fn a_nacked_event_is_redelivered<S: SourceUnderTest>(subject: &S) -> Result<(), Broken> {
    let backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    let announced = commits(subject, &backend, 3).await?;
    let delivery = reader.next_delivery().await?;

    let answer = nack_delivery(&delivery, NACK_DELAY).await?;
    if !subject.abilities().redelivers {
        let refused = matches!(answer, Err(SourceError::NoRedelivery { .. }));
        return expect(refused, "the source refuses the nack with NoRedelivery");
    }
    answer?;
    subject.advance_clock(CLOCK_STEP).await;

    let mut again = false;
    let mut others = 0;
    while !again || others < 2 {
        let next = reader.next_delivery().await?;
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

/// **Redelivered.** A nacked event is not delivered before its delay has expired.
///
/// The nack has a delay of one hour. Does nothing for a source without the ability
/// [`redelivers`](super::Abilities::redelivers).
pub async fn a_nacked_event_is_redelivered_after_its_delay<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    if !subject.abilities().redelivers {
        return Ok(());
    }
    let backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    commits(subject, &backend, 1).await?;

    nack_delivery(&reader.next_delivery().await?, HOUR).await??;
    subject.advance_clock(CLOCK_STEP).await;

    only(&mut reader, &commits(subject, &backend, 3).await?).await
}

/// **Acknowledged.** A subscription does not deliver an event again after its acknowledgement on this subscription.
///
/// The clock advances by 100 ms between commits, so a source with a timer for redeliveries is
/// tested, too.
pub async fn an_acknowledged_event_is_not_redelivered<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;

    for _ in 0..3 {
        let announced = commits(subject, &backend, 2).await?;
        only(&mut reader, &announced).await?;
        subject.advance_clock(CLOCK_STEP).await;
    }
    Ok(())
}

/// Reads exactly the expected events from the tested subscription, with no other event between them, and acknowledges
/// each.
async fn only(reader: &mut Reader, expected: &[Event]) -> Result<(), Broken> {
    for expected in expected {
        let delivery = reader.next_delivery().await?;
        same_event(&delivery.event, expected)?;
        acknowledge(&delivery).await?;
    }
    Ok(())
}

/// **Acknowledged.** A second acknowledgement, or one after the end of the subscription, is harmless.
///
/// Late calls may succeed or fail. They must return, and later subscriptions must deliver their
/// events.
pub async fn repeated_and_late_acknowledgements_have_no_effect<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    commits(subject, &backend, 2).await?;
    let (first, second) = (reader.next_delivery().await?, reader.next_delivery().await?);

    acknowledge(&first).await?;
    acknowledge(&first).await?;
    drop(reader);
    // Late calls may succeed or fail. They must return, and must not disturb later subscriptions.
    drop(in_time(first.ack()).await?);
    drop(in_time(second.nack(Duration::ZERO)).await?);

    let mut reader = Reader::open(subject, &backend, "two", StartAt::Now).await?;
    reader.expect(&commits(subject, &backend, 2).await?).await
}
