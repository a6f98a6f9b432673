use super::SourceUnderTest;
use super::broken::{Broken, expect, some};
use super::reader::{ANSWER_TIMEOUT, Reader, acknowledge, commit, commits, same_event, version};
use crate::model::{Event, EventKind};
use crate::source::{Delivery, StartAt};
use futures::future::{join, try_join_all};
use futures::{FutureExt as _, StreamExt as _};
use tokio::time::{Instant, timeout};

/// **Independent subscriptions.** Two subscriptions each deliver all events. After one of them is dropped, the other
/// one still delivers all events.
///
/// Applies to every source: the two subscriptions have different consumer names.
pub async fn two_subscribers_both_receive_all_events<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let backend = subject.fresh().await;
    let mut one = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    let mut two = Reader::open(subject, &backend, "two", StartAt::Now).await?;
    let announced = commits(subject, &backend, 10).await?;

    one.expect(&announced).await?;
    two.expect(&announced).await?;
    drop(one);
    two.expect(&commits(subject, &backend, 3).await?).await
}

/// **Independent subscriptions.** A source accepts many subscriptions, in sequence and at the same time.
///
/// 40 subscriptions are opened and dropped, and then 40 are open at the same time. Each has its own
/// consumer name.
pub async fn many_subscribers_receive_all_events<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let backend = subject.fresh().await;
    for n in 0..40 {
        let consumer = format!("short-{n}");
        drop(Reader::open(subject, &backend, &consumer, StartAt::Now).await?);
    }
    let mut readers = Vec::new();
    for n in 0..40 {
        let consumer = format!("long-{n}");
        readers.push(Reader::open(subject, &backend, &consumer, StartAt::Now).await?);
    }
    let announced = commits(subject, &backend, 5).await?;

    let read = readers.iter_mut().map(|reader| reader.expect(&announced));
    try_join_all(read).await.map(drop)
}

/// **Independent subscriptions.** A subscription that is not read, or was dropped, delays neither a writer nor another
/// reader.
///
/// 400 events must be committed within 10 s while ten subscriptions are not read to the end.
pub async fn an_unread_stream_delays_no_other<S: SourceUnderTest>(
    subject: &S,
) -> Result<(), Broken> {
    let backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "reads", StartAt::Now).await?;
    let mut unread = Vec::new();
    for n in 0..10 {
        let consumer = format!("unread-{n}");
        unread.push(Reader::open(subject, &backend, &consumer, StartAt::Now).await?);
    }
    commits(subject, &backend, 2).await?;
    for reader in unread.iter_mut().take(5) {
        reader.next_delivery().await?;
    }
    unread.truncate(8);

    let written = timeout(ANSWER_TIMEOUT, async {
        let mut written = Vec::new();
        for _ in 0..20 {
            written.append(&mut commit(subject, &backend, 20).await?);
        }
        Ok::<_, Broken>(written)
    });
    let written = some(written.await.ok(), "an end of the commits within 10 s")??;

    for _ in 0..2 {
        reader.next_new().await?;
    }
    reader.expect(&written).await?;
    drop(unread);
    reader.expect(&commits(subject, &backend, 1).await?).await
}

/// **Prompt.** A commit wakes a subscriber that waits for an event.
///
/// The event must arrive within 10 s.
pub async fn a_waiting_subscriber_is_woken<S: SourceUnderTest>(subject: &S) -> Result<(), Broken> {
    let backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    for _ in 0..5 {
        let began = Instant::now();
        let (delivery, announced) = join(reader.next_new(), commits(subject, &backend, 1)).await;
        let delivery = delivery?;
        // A reader whose wait times out polls the stream again, and may find an event without being woken.
        expect(
            began.elapsed() < ANSWER_TIMEOUT,
            "the commit wakes the subscriber within 10 s",
        )?;
        for announced in &announced? {
            same_event(&delivery.event, announced)?;
        }
        acknowledge(&delivery).await?;
    }
    Ok(())
}

/// **Cancel safe.** No event is lost if the future for the next event is dropped at any moment.
///
/// The future is polled once and dropped, before and after each of 80 commits.
pub async fn cancel_safe<S: SourceUnderTest>(subject: &S) -> Result<(), Broken> {
    const EVENTS: usize = 80;
    let backend = subject.fresh().await;
    let mut reader = Reader::open(subject, &backend, "one", StartAt::Now).await?;
    let mut expected = Vec::new();
    let mut delivered = Vec::new();
    for n in 0..EVENTS {
        // Each future is polled once and dropped: before an event exists, right after the commit, and some turns later.
        poll_once(&mut reader, &mut delivered).await?;
        expected.append(&mut commits(subject, &backend, 1).await?);
        poll_once(&mut reader, &mut delivered).await?;
        for _ in 0..n % 7 {
            tokio::task::yield_now().await;
        }
    }
    while delivered.len() < expected.len() {
        let delivery = reader.next_delivery().await?;
        record(delivery, &mut delivered).await?;
    }

    for (event, expected) in delivered.iter().zip(&expected) {
        same_event(event, expected)?;
    }
    Ok(())
}

/// Polls the tested subscription once, and records the delivered event if there is one.
async fn poll_once(reader: &mut Reader, delivered: &mut Vec<Event>) -> Result<(), Broken> {
    match reader.stream().next().now_or_never() {
        Some(Some(Ok(delivery))) => record(delivery, delivered).await,
        _ => Ok(()),
    }
}

async fn record(delivery: Delivery, delivered: &mut Vec<Event>) -> Result<(), Broken> {
    acknowledge(&delivery).await?;
    let event = delivery.event;
    let is_new = delivered
        .iter()
        .all(|known| version(known) != version(&event));
    if is_new && event.kind != EventKind::Ping {
        delivered.push(event);
    }
    Ok(())
}
