use super::SourceUnderTest;
use super::broken::{Broken, expect, some};
use super::reader::{PATIENCE, Reader, acknowledge, commits, give_back, same_event, version};
use crate::source::{EventSource, StartAt};
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// **Resumes.** A reader that disconnects repeatedly and resumes receives every event that it did not acknowledge. It
/// resumes after a position if the source has history, and otherwise by its consumer name.
///
/// Does nothing for a source with neither the ability [`history`](super::Abilities::history) nor
/// [`remembers`](super::Abilities::remembers).
pub async fn nothing_is_lost_across_reconnects<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    const EVENTS: usize = 60;
    let abilities = subject.abilities();
    if !abilities.history && !abilities.remembers {
        return Ok(());
    }
    let place = subject.fresh().await;
    let mut from = StartAt::Now;
    let mut reader = Some(Reader::open(subject, &place, "one", from).await?);
    let mut wanted: HashSet<_> = HashSet::new();
    let mut seen = HashSet::new();
    for life in 0..4 * EVENTS {
        if wanted.len() < EVENTS {
            wanted.extend(
                commits(subject, &place, 1 + life % 5)
                    .await?
                    .iter()
                    .map(version),
            );
        }
        let mut current = match reader.take() {
            Some(reader) => reader,
            None => Reader::open(subject, &place, "one", from).await?,
        };
        for _ in 0..=life % 4 {
            if seen.is_superset(&wanted) {
                break;
            }
            let delivery = current.any().await?;
            acknowledge(&delivery).await?;
            seen.insert(version(&delivery.event));
            let position = delivery.position.map(StartAt::After);
            from = position.filter(|_| abilities.history).unwrap_or(from);
        }
        if !seen.is_superset(&wanted) {
            // The reader receives this event, and is dropped before it acknowledges the event.
            drop(current.any().await?);
        } else if wanted.len() >= EVENTS {
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
pub async fn a_position_outlives_a_restart<S: SourceUnderTest>(subject: &S) -> Result<(), Broken> {
    if !subject.abilities().history {
        return Ok(());
    }
    let place = subject.fresh().await;
    let mut reader = Reader::open(subject, &place, "one", StartAt::Now).await?;
    let mut announced = commits(subject, &place, 5).await?;
    reader.next().await?;
    let position = some(reader.next().await?.position, "a position")?;
    drop(reader);

    let Some(place) = subject.restart(place).await else {
        return Ok(());
    };
    announced.append(&mut commits(subject, &place, 3).await?);

    let mut reader = Reader::open(subject, &place, "two", StartAt::After(position)).await?;
    reader.expect(announced.get(2..).unwrap_or_default()).await
}

/// **Saved consumers.** A consumer's next subscription delivers the unacknowledged events again, and all later events.
/// This includes an unacknowledged event that is older than an acknowledged event.
///
/// Does nothing for a source without the ability [`remembers`](super::Abilities::remembers).
pub async fn an_unacknowledged_event_comes_again<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    if !subject.abilities().remembers {
        return Ok(());
    }
    let place = subject.fresh().await;
    let mut reader = Reader::open(subject, &place, "one", StartAt::Now).await?;
    let mut announced = commits(subject, &place, 6).await?;
    for n in 0..6 {
        let delivery = reader.next().await?;
        if [0, 1, 3, 5].contains(&n) {
            acknowledge(&delivery).await?;
        }
    }
    drop(reader);
    announced.append(&mut commits(subject, &place, 1).await?);

    let mut reader = Reader::open(subject, &place, "one", StartAt::Now).await?;
    let open = [2, 4, 6].into_iter().filter_map(|n| announced.get(n));
    let mut open: HashSet<_> = open.map(version).collect();
    while !open.is_empty() {
        open.remove(&version(&reader.any().await?.event));
    }
    Ok(())
}

/// **Saved consumers.** A consumer resumes after its acknowledged events, even after a restart. The `StartAt` of the
/// subscription has no effect.
///
/// Does nothing without the ability [`remembers`](super::Abilities::remembers). If
/// [`restart`](super::SourceUnderTest::restart) returns `None`, only a new subscription is tested.
pub async fn a_consumer_goes_on_after_what_it_acknowledged<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    if !subject.abilities().remembers {
        return Ok(());
    }
    let mut place = subject.fresh().await;
    let mut reader = Reader::open(subject, &place, "one", StartAt::Now).await?;
    reader.expect(&commits(subject, &place, 5).await?).await?;
    drop(reader);

    for restart in [false, true] {
        let unseen = commits(subject, &place, 3).await?;
        if restart {
            place = match subject.restart(place).await {
                Some(place) => place,
                None => return Ok(()),
            };
        }
        let mut reader = Reader::open(subject, &place, "one", StartAt::Beginning).await?;
        for wanted in &unseen {
            let delivery = reader.any().await?;
            same_event(&delivery.event, wanted)?;
            acknowledge(&delivery).await?;
        }
    }
    Ok(())
}

/// **Saved consumers.** A nacked event is not acknowledged: the next subscription of the consumer delivers it without
/// waiting for the delay.
///
/// Does nothing without the abilities [`remembers`](super::Abilities::remembers) and
/// [`takes_back`](super::Abilities::takes_back). The nack has a delay of one day.
pub async fn what_is_given_back_is_not_lost<S: SourceUnderTest>(subject: &S) -> Result<(), Broken> {
    const DAY: Duration = Duration::from_secs(86_400);
    let abilities = subject.abilities();
    if !abilities.remembers || !abilities.takes_back {
        return Ok(());
    }
    let place = subject.fresh().await;
    let mut reader = Reader::open(subject, &place, "one", StartAt::Now).await?;
    let announced = commits(subject, &place, 3).await?;
    let first = reader.next().await?;
    reader
        .expect(announced.get(1..).unwrap_or_default())
        .await?;
    give_back(&first, DAY).await??;
    drop((first, reader));

    let mut reader = Reader::open(subject, &place, "one", StartAt::Now).await?;
    let delivery = reader.any().await?;
    let wanted = some(announced.first(), "an event")?;
    same_event(&delivery.event, wanted)
}

/// **Saved consumers.** An acknowledgement of one consumer does not affect another consumer. A new consumer starts at
/// its `StartAt`.
///
/// Does nothing for a source without the ability [`remembers`](super::Abilities::remembers).
pub async fn consumers_are_remembered_apart<S: SourceUnderTest>(subject: &S) -> Result<(), Broken> {
    if !subject.abilities().remembers {
        return Ok(());
    }
    let place = subject.fresh().await;
    let mut one = Reader::open(subject, &place, "one", StartAt::Now).await?;
    let two = Reader::open(subject, &place, "two", StartAt::Now).await?;
    let announced = commits(subject, &place, 4).await?;
    one.expect(&announced).await?;
    drop((one, two));

    let mut two = Reader::open(subject, &place, "two", StartAt::Now).await?;
    let mut three = Reader::open(subject, &place, "three", StartAt::Now).await?;
    two.expect(&announced).await?;
    let next = commits(subject, &place, 1).await?;
    three.expect(&next).await?;
    expect(!announced.is_empty(), "the backend announces its commits")
}

/// **Saved consumers.** [`EventSource::behind`] returns the number of unacknowledged events of a consumer. The number
/// is 0 for a new consumer.
///
/// The number must be correct within 10 s. Does nothing for a source without the ability
/// [`remembers`](super::Abilities::remembers).
pub async fn what_is_left_for_a_consumer_is_told<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    if !subject.abilities().remembers {
        return Ok(());
    }
    let place = subject.fresh().await;
    commits(subject, &place, 2).await?;
    let source = subject.source(&place, "one");
    let mut reader = Reader::open(subject, &place, "one", StartAt::Now).await?;
    left(&*source, 0).await?;
    commits(subject, &place, 5).await?;
    left(&*source, 5).await?;

    for wanted in [4, 3] {
        let delivery = reader.any().await?;
        acknowledge(&delivery).await?;
        left(&*source, wanted).await?;
    }
    let waits = reader.any().await?;
    left(&*source, 3).await?;
    drop(waits);
    Ok(())
}

/// Checks that [`EventSource::behind`] returns `wanted` within [`PATIENCE`], because a source may count an
/// acknowledgement late.
async fn left(source: &dyn EventSource, wanted: u64) -> Result<(), Broken> {
    let begun = Instant::now();
    loop {
        let behind = source.behind().await?;
        if behind == Some(wanted) {
            return Ok(());
        }
        let is_late = behind.is_none() || begun.elapsed() > PATIENCE;
        expect(
            !is_late,
            &format!("the source is {wanted} events behind, but it reported {behind:?}"),
        )?;
        sleep(Duration::from_millis(5)).await;
    }
}
