use super::SourceUnderTest;
use super::broken::{Broken, expect, some};
use super::reader::{Reader, StreamItem, commit, commits};
use crate::source::StartAt;

/// **Start position.** [`StartAt::Now`] delivers no event from before the subscription.
///
/// Three events are committed before the subscription, and three after it. Applies to every source.
pub async fn now_begins_with_the_next_commit<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let backend = subject.fresh().await;
    commits(subject, &backend, 3).await?;
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;

    let after = commits(subject, &backend, 3).await?;

    reader.expect(&after).await
}

/// **Start position.** [`StartAt::Beginning`] starts with the oldest retained event. A source that retains no events
/// starts with the next one, or fails.
///
/// With the ability [`history`](super::Abilities::history), the events from before the subscription
/// must be delivered, too.
pub async fn the_beginning_is_the_oldest_event<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let backend = subject.fresh().await;
    let mut expected = commits(subject, &backend, 3).await?;
    let has_history = subject.abilities().history;

    let opened = Reader::open(subject, &backend, "one", StartAt::Beginning).await;
    if !has_history {
        expected.clear();
    }
    let mut reader = match opened {
        Err(_) if !has_history => return Ok(()),
        opened => opened?,
    };
    expected.append(&mut commits(subject, &backend, 3).await?);

    reader.expect(&expected).await
}

/// **Start position.** [`StartAt::After`] delivers all events after the position. After the
/// [start](crate::source::Deliveries::start) of a subscription, these are all events of that subscription.
///
/// A source without history fails, reports a loss, or is not [complete](crate::source::EventSource::is_complete).
pub async fn a_position_is_followed_by_the_next_event<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "first", StartAt::Now).await?;
    let start = reader.start();
    let announced = commits(subject, &backend, 6).await?;
    let mut positions = vec![start];
    for _ in &announced {
        positions.push(reader.next_new().await?.position);
    }
    if !subject.abilities().history {
        return without_history(subject, &backend).await;
    }

    for (behind, position) in positions.into_iter().enumerate() {
        let position = some(position, "a position")?;
        let consumer = format!("after-{behind}");
        let mut reader =
            Reader::open(subject, &backend, &consumer, StartAt::After(position)).await?;
        let rest = announced.get(behind..).unwrap_or_default();
        reader.expect(rest).await?;
    }
    Ok(())
}

async fn without_history<S: SourceUnderTest>(
    subject: &S,
    backend: &S::Backend,
) -> Result<(), Broken> {
    let claims_all = subject.source(backend, "second").is_complete();
    let Ok(mut reader) = Reader::open(subject, backend, "second", StartAt::After(1)).await else {
        return Ok(());
    };
    commits(subject, backend, 1).await?;
    let item = reader.next_item().await?;
    expect(
        matches!(item, StreamItem::Lagged(..)) || !claims_all,
        "the source reports the events after the position as dropped",
    )
}

/// **Start position.** A subscription that starts after a position greater than all existing ones delivers all events
/// committed after its start. Such a position belongs to an earlier instance of the source.
///
/// Does nothing for a source without the ability [`history`](super::Abilities::history). The tested
/// positions are 1,000,000 and the two largest.
pub async fn a_position_from_the_future_loses_no_event<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    if !subject.abilities().history {
        return Ok(());
    }
    let backend = subject.fresh().await;
    commits(subject, &backend, 3).await?;

    for (n, position) in [1_000_000, u64::MAX - 1, u64::MAX].into_iter().enumerate() {
        let consumer = format!("future-{n}");
        let mut reader =
            Reader::open(subject, &backend, &consumer, StartAt::After(position)).await?;
        let next = commit(subject, &backend, 2).await?;
        reader.expect(&next).await?;
    }
    Ok(())
}

/// **Positions grow.** Each new event has a greater position than the previous event. The position is the same for
/// every subscriber.
///
/// With the ability [`history`](super::Abilities::history), each event must have a position. Other
/// sources may omit all positions.
pub async fn positions_increase<S: SourceUnderTest>(subject: &S) -> Result<(), Broken> {
    let backend = subject.fresh().await;
    let mut one = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    let mut two = Reader::open(subject, &backend, "two", StartAt::Now).await?;
    for _ in 0..5 {
        commit(subject, &backend, 4).await?;
    }

    let mut before = None;
    for _ in 0..20 {
        let (position, other) = (
            one.next_new().await?.position,
            two.next_new().await?.position,
        );
        expect(
            position == other,
            "both subscribers receive the same position",
        )?;
        let needs_position = subject.abilities().history;
        expect(
            position.is_some() || !needs_position,
            "the event has a position",
        )?;
        expect(
            position > before || position.is_none(),
            "the position is greater than the one before",
        )?;
        before = position;
    }
    Ok(())
}
