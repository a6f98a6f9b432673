use super::SourceUnderTest;
use super::broken::{Broken, expect, some};
use super::reader::{Reader, Said, commit, commits};
use crate::source::StartAt;

/// **Where it begins.** A subscription to what happens from now on has nothing of before.
pub async fn now_begins_with_the_next_commit<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let place = subject.fresh().await;
    commits(subject, &place, 3).await?;
    let mut reader = Reader::open(subject, &place, "one", StartAt::Now).await?;

    let after = commits(subject, &place, 3).await?;

    reader.expect(&after).await
}

/// **Where it begins.** The beginning is the oldest event that is kept. A source that keeps none begins with the next.
pub async fn the_beginning_is_the_oldest_event<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let place = subject.fresh().await;
    let mut wanted = commits(subject, &place, 3).await?;
    let has_history = subject.abilities().history;

    let opened = Reader::open(subject, &place, "one", StartAt::Beginning).await;
    if !has_history {
        wanted.clear();
    }
    let mut reader = match opened {
        Err(_) if !has_history => return Ok(()),
        opened => opened?,
    };
    wanted.append(&mut commits(subject, &place, 3).await?);

    reader.expect(&wanted).await
}

/// **Where it begins.** After each position come all events behind it, and after the start of a subscription all of its
/// events. A source that keeps none refuses, says that it dropped something, or does not claim to be complete.
pub async fn after_a_position_comes_what_is_behind_it<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let place = subject.fresh().await;
    let mut reader = Reader::open(subject, &place, "first", StartAt::Now).await?;
    let start = reader.start();
    let announced = commits(subject, &place, 6).await?;
    let mut positions = vec![start];
    for _ in &announced {
        positions.push(reader.next().await?.position);
    }
    if !subject.abilities().history {
        return without_history(subject, &place).await;
    }

    for (behind, position) in positions.into_iter().enumerate() {
        let position = some(position, "a position")?;
        let consumer = format!("after-{behind}");
        let mut reader = Reader::open(subject, &place, &consumer, StartAt::After(position)).await?;
        let rest = announced.get(behind..).unwrap_or_default();
        reader.expect(rest).await?;
    }
    Ok(())
}

async fn without_history<S: SourceUnderTest>(
    subject: &S,
    place: &S::Backend,
) -> Result<(), Broken> {
    let claims_all = subject.source(place, "second").is_complete();
    let Ok(mut reader) = Reader::open(subject, place, "second", StartAt::After(1)).await else {
        return Ok(());
    };
    commits(subject, place, 1).await?;
    let said = reader.said().await?;
    expect(
        matches!(said, Said::Lagged(..)) || !claims_all,
        "what is behind the position is said to be dropped",
    )
}

/// **Where it begins.** A position that the source never reached is of another life of it: what happens from now on is
/// delivered all the same.
pub async fn a_position_from_the_future_misses_nothing<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    if !subject.abilities().history {
        return Ok(());
    }
    let place = subject.fresh().await;
    commits(subject, &place, 3).await?;

    for (n, position) in [1_000_000, u64::MAX - 1, u64::MAX].into_iter().enumerate() {
        let consumer = format!("future-{n}");
        let mut reader = Reader::open(subject, &place, &consumer, StartAt::After(position)).await?;
        let next = commit(subject, &place, 2).await?;
        reader.expect(&next).await?;
    }
    Ok(())
}

/// **Positions grow.** Each new event has a greater position than the one before, the same for every subscriber.
pub async fn positions_grow<S: SourceUnderTest>(subject: &S) -> Result<(), Broken> {
    let place = subject.fresh().await;
    let mut one = Reader::open(subject, &place, "one", StartAt::Now).await?;
    let mut two = Reader::open(subject, &place, "two", StartAt::Now).await?;
    for _ in 0..5 {
        commit(subject, &place, 4).await?;
    }

    let mut before = None;
    for _ in 0..20 {
        let (position, other) = (one.next().await?.position, two.next().await?.position);
        expect(position == other, "both subscribers see one position")?;
        let must = subject.abilities().history;
        expect(position.is_some() || !must, "an event has a position")?;
        expect(position > before || position.is_none(), "positions grow")?;
        before = position;
    }
    Ok(())
}
