use super::SourceUnderTest;
use super::broken::{Broken, expect, some};
use super::reader::{
    ANSWER_TIMEOUT, Reader, acknowledge, commits, nack_delivery, same_event, version,
};
use crate::source::{EventSource, StartAt};
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// **Resumes.** A reader that disconnects repeatedly and resumes receives every event that it did not acknowledge. It
/// resumes after a position if the source has history, and otherwise by its consumer name.
///
/// Does nothing for a source with neither the ability [`history`](super::Abilities::history) nor
/// [`saves_consumers`](super::Abilities::saves_consumers).
pub async fn no_event_is_lost_across_reconnects<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    const EVENTS: usize = 60;
    let abilities = subject.abilities();
    if !abilities.history && !abilities.saves_consumers {
        return Ok(());
    }
    let backend = subject.fresh().await;
    let mut from = StartAt::Now;
    let mut reader = Some(Reader::open(subject, &backend, "one", from).await?);
    let mut expected: HashSet<_> = HashSet::new();
    let mut delivered_versions = HashSet::new();
    for connection_number in 0..4 * EVENTS {
        if expected.len() < EVENTS {
            expected.extend(
                commits(subject, &backend, 1 + connection_number % 5)
                    .await?
                    .iter()
                    .map(version),
            );
        }
        let mut current = match reader.take() {
            Some(reader) => reader,
            None => Reader::open(subject, &backend, "one", from).await?,
        };
        for _ in 0..=connection_number % 4 {
            if delivered_versions.is_superset(&expected) {
                break;
            }
            let delivery = current.next_delivery().await?;
            acknowledge(&delivery).await?;
            delivered_versions.insert(version(&delivery.event));
            let position = delivery.position.map(StartAt::After);
            from = position.filter(|_| abilities.history).unwrap_or(from);
        }
        if !delivered_versions.is_superset(&expected) {
            // The reader receives this event, and is dropped before it acknowledges the event.
            drop(current.next_delivery().await?);
        } else if expected.len() >= EVENTS {
            return Ok(());
        }
    }
    Err(Broken::new("every event is delivered in the end"))
}

/// **Resumes.** A position is valid after a restart: the subscription delivers the events committed before and after
/// the restart.
///
/// Does nothing without the ability [`history`](super::Abilities::history), or if
/// [`restart`](super::SourceUnderTest::restart) returns `None`.
pub async fn a_position_is_valid_after_a_restart<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    if !subject.abilities().history {
        return Ok(());
    }
    let backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    let mut announced = commits(subject, &backend, 5).await?;
    reader.next_new().await?;
    let position = some(reader.next_new().await?.position, "a position")?;
    drop(reader);

    let Some(backend) = subject.restart(backend).await else {
        return Ok(());
    };
    announced.append(&mut commits(subject, &backend, 3).await?);

    let mut reader = Reader::open(subject, &backend, "two", StartAt::After(position)).await?;
    reader.expect(announced.get(2..).unwrap_or_default()).await
}

/// **Saved consumers.** A consumer's next subscription delivers the unacknowledged events again, and all later events.
/// This includes an unacknowledged event that is older than an acknowledged event.
///
/// Does nothing for a source without the ability [`saves_consumers`](super::Abilities::saves_consumers).
pub async fn an_unacknowledged_event_is_redelivered<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    if !subject.abilities().saves_consumers {
        return Ok(());
    }
    let backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    let mut announced = commits(subject, &backend, 6).await?;
    for n in 0..6 {
        let delivery = reader.next_new().await?;
        if [0, 1, 3, 5].contains(&n) {
            acknowledge(&delivery).await?;
        }
    }
    drop(reader);
    announced.append(&mut commits(subject, &backend, 1).await?);

    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    let open = [2, 4, 6].into_iter().filter_map(|n| announced.get(n));
    let mut open: HashSet<_> = open.map(version).collect();
    while !open.is_empty() {
        open.remove(&version(&reader.next_delivery().await?.event));
    }
    Ok(())
}

/// **Saved consumers.** A consumer resumes after its acknowledged events, even after a restart. The `StartAt` of the
/// subscription has no effect.
///
/// Does nothing without the ability [`saves_consumers`](super::Abilities::saves_consumers). If
/// [`restart`](super::SourceUnderTest::restart) returns `None`, only a new subscription is tested.
pub async fn a_consumer_continues_after_its_acknowledged_events<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    if !subject.abilities().saves_consumers {
        return Ok(());
    }
    let mut backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    reader.expect(&commits(subject, &backend, 5).await?).await?;
    drop(reader);

    for restart in [false, true] {
        let unacknowledged = commits(subject, &backend, 3).await?;
        if restart {
            backend = match subject.restart(backend).await {
                Some(backend) => backend,
                None => return Ok(()),
            };
        }
        let mut reader = Reader::open(subject, &backend, "one", StartAt::Beginning).await?;
        for expected in &unacknowledged {
            let delivery = reader.next_delivery().await?;
            same_event(&delivery.event, expected)?;
            acknowledge(&delivery).await?;
        }
    }
    Ok(())
}

/// **Saved consumers.** A nacked event is not acknowledged: the next subscription of the consumer delivers it without
/// waiting for the delay.
///
/// Does nothing without the abilities [`saves_consumers`](super::Abilities::saves_consumers) and
/// [`redelivers`](super::Abilities::redelivers). The nack has a delay of one day.
pub async fn a_nacked_event_survives_a_restart<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    const DAY: Duration = Duration::from_secs(86_400);
    let abilities = subject.abilities();
    if !abilities.saves_consumers || !abilities.redelivers {
        return Ok(());
    }
    let backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    let announced = commits(subject, &backend, 3).await?;
    let first = reader.next_new().await?;
    reader
        .expect(announced.get(1..).unwrap_or_default())
        .await?;
    nack_delivery(&first, DAY).await??;
    drop((first, reader));

    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    let delivery = reader.next_delivery().await?;
    let expected = some(announced.first(), "an event")?;
    same_event(&delivery.event, expected)
}

/// **Saved consumers.** An acknowledgement of one consumer does not affect another consumer. A new consumer starts at
/// its `StartAt`.
///
/// Does nothing for a source without the ability [`saves_consumers`](super::Abilities::saves_consumers).
pub async fn consumers_are_saved_separately<S: SourceUnderTest>(subject: &S) -> Result<(), Broken> {
    if !subject.abilities().saves_consumers {
        return Ok(());
    }
    let backend = subject.fresh().await;
    let mut one = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    let two = Reader::open(subject, &backend, "two", StartAt::Now).await?;
    let announced = commits(subject, &backend, 4).await?;
    one.expect(&announced).await?;
    drop((one, two));

    let mut two = Reader::open(subject, &backend, "two", StartAt::Now).await?;
    let mut three = Reader::open(subject, &backend, "three", StartAt::Now).await?;
    two.expect(&announced).await?;
    let next = commits(subject, &backend, 1).await?;
    three.expect(&next).await?;
    expect(!announced.is_empty(), "the backend announces its commits")
}

/// **Saved consumers.** [`EventSource::behind`] returns the number of unacknowledged events of a consumer. The number
/// is 0 for a new consumer.
///
/// The number must be correct within 10 s. Does nothing for a source without the ability
/// [`saves_consumers`](super::Abilities::saves_consumers).
pub async fn the_backlog_of_a_consumer_is_reported<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    if !subject.abilities().saves_consumers {
        return Ok(());
    }
    let backend = subject.fresh().await;
    commits(subject, &backend, 2).await?;
    let source = subject.source(&backend, "one");
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    expect_behind(&*source, 0).await?;
    commits(subject, &backend, 5).await?;
    expect_behind(&*source, 5).await?;

    for expected in [4, 3] {
        let delivery = reader.next_delivery().await?;
        acknowledge(&delivery).await?;
        expect_behind(&*source, expected).await?;
    }
    let waits = reader.next_delivery().await?;
    expect_behind(&*source, 3).await?;
    drop(waits);
    Ok(())
}

/// Checks that [`EventSource::behind`] returns `expected` within [`ANSWER_TIMEOUT`], because a source may count an
/// acknowledgement late.
async fn expect_behind(source: &dyn EventSource, expected: u64) -> Result<(), Broken> {
    let started = Instant::now();
    loop {
        let behind = source.behind().await?;
        if behind == Some(expected) {
            return Ok(());
        }
        let is_late = behind.is_none() || started.elapsed() > ANSWER_TIMEOUT;
        expect(
            !is_late,
            &format!("the source is {expected} events behind, but it reported {behind:?}"),
        )?;
        sleep(Duration::from_millis(5)).await;
    }
}
