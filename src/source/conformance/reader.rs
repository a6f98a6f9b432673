//! Helpers of the conformance tests of event sources: commits of test breadcrumbs, and a reader of a subscription.

use super::broken::{Broken, same, some};
use super::{Change, SourceUnderTest};
use crate::model::{BreadcrumbId, Event, EventKind, NewBreadcrumb, Patch, Timestamp};
use crate::source::{Deliveries, Delivery, SourceError, StartAt};
use futures::StreamExt as _;
use serde_json::json;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum time that a conformance test waits for one answer of the tested event source, or for one item of its stream.
pub(super) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of consecutive [`SourceError::Unavailable`] errors that a test accepts from one operation of a
/// source.
const MAX_FAILURES: usize = 20;

/// Breadcrumb ID and version that an event announces.
pub(super) type Version = (BreadcrumbId, u64);

pub(super) fn version(event: &Event) -> Version {
    (event.breadcrumb_id, event.version)
}

pub(super) fn create(n: usize) -> Change {
    let note = NewBreadcrumb::new("note.v1").tag("kept");
    Change::Create(note.context(json!({"n": n})))
}

pub(super) fn update(of: &Event, n: usize) -> Change {
    Change::Update {
        id: of.breadcrumb_id,
        version: of.version,
        patch: Patch::new().context(json!({"n": n})),
    }
}

/// Creates the given number of test breadcrumbs in one commit, and returns the announced events.
pub(super) async fn commit<S: SourceUnderTest>(
    subject: &S,
    backend: &S::Backend,
    notes: usize,
) -> Result<Vec<Event>, Broken> {
    change(subject, backend, (0..notes).map(create).collect()).await
}

/// Creates `n` test breadcrumbs, each in its own commit, and returns the announced events.
pub(super) async fn commits<S: SourceUnderTest>(
    subject: &S,
    backend: &S::Backend,
    n: usize,
) -> Result<Vec<Event>, Broken> {
    let mut announced = Vec::new();
    for _ in 0..n {
        announced.append(&mut commit(subject, backend, 1).await?);
    }
    Ok(announced)
}

/// Commits changes to the tested backend, and checks that the backend returns one event per change.
pub(super) async fn change<S: SourceUnderTest>(
    subject: &S,
    backend: &S::Backend,
    changes: Vec<Change>,
) -> Result<Vec<Event>, Broken> {
    let n = changes.len();
    let announced = subject.commit(backend, changes).await;
    let announced = announced.map_err(Broken::failed)?;
    same(announced.len(), n, "the number of events of the commit")?;
    Ok(announced)
}

/// A subscription under test, and the breadcrumb versions that it delivered so far.
pub(super) struct Reader {
    deliveries: Deliveries,
    delivered_versions: HashSet<Version>,
}

/// One item of a tested subscription: a delivered event, or a report of missed events.
pub(super) enum StreamItem {
    Delivered(Delivery),
    Lagged(u64, Option<Timestamp>),
}

impl Reader {
    /// Subscribes to the tested source as the given consumer, from the given start position. Retries while the source
    /// is unavailable.
    pub(super) async fn open<S: SourceUnderTest>(
        subject: &S,
        backend: &S::Backend,
        consumer: &str,
        from: StartAt,
    ) -> Result<Self, Broken> {
        let source = subject.source(backend, consumer);
        let mut failures = 0;
        loop {
            match in_time(source.subscribe(from)).await? {
                Ok(deliveries) => {
                    let delivered_versions = HashSet::new();
                    return Ok(Self {
                        deliveries,
                        delivered_versions,
                    });
                }
                Err(SourceError::Unavailable { .. }) if failures < MAX_FAILURES => failures += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the source position after which the tested subscription starts.
    pub(super) fn start(&self) -> Option<u64> {
        self.deliveries.start()
    }

    /// Returns the next item of the tested subscription. Skips pings and [`SourceError::Unavailable`].
    pub(super) async fn next_item(&mut self) -> Result<StreamItem, Broken> {
        let mut failures = 0;
        loop {
            let next = timeout(ANSWER_TIMEOUT, self.deliveries.next()).await;
            let next = some(next.ok(), "an item in the stream within 10 s")?;
            match some(next, "another item in the stream")? {
                Ok(delivery) if delivery.event.kind == EventKind::Ping => {}
                Ok(delivery) => {
                    self.delivered_versions.insert(version(&delivery.event));
                    return Ok(StreamItem::Delivered(delivery));
                }
                Err(SourceError::Lagged { missed, after }) => {
                    return Ok(StreamItem::Lagged(missed, after));
                }
                Err(SourceError::Unavailable { .. }) if failures < MAX_FAILURES => failures += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the next delivery of the tested subscription, including repeated deliveries of an event.
    pub(super) async fn next_delivery(&mut self) -> Result<Delivery, Broken> {
        match self.next_item().await? {
            StreamItem::Delivered(delivery) => Ok(delivery),
            StreamItem::Lagged(missed, _) => Err(Broken::new(&format!(
                "the source drops no events, but it reported {missed} dropped events"
            ))),
        }
    }

    /// Returns the next delivery of an event that was not delivered before. Skips repeated deliveries.
    pub(super) async fn next_new(&mut self) -> Result<Delivery, Broken> {
        loop {
            let before = self.delivered_versions.len();
            let delivery = self.next_delivery().await?;
            if self.delivered_versions.len() > before {
                return Ok(delivery);
            }
        }
    }

    /// Checks that the tested subscription delivers the expected events next, in this order, and acknowledges them.
    pub(super) async fn expect(&mut self, expected: &[Event]) -> Result<(), Broken> {
        for expected in expected {
            let delivery = self.next_new().await?;
            same_event(&delivery.event, expected)?;
            acknowledge(&delivery).await?;
        }
        Ok(())
    }

    pub(super) fn stream(&mut self) -> &mut Deliveries {
        &mut self.deliveries
    }
}

/// Acknowledges an event that the tested source delivered. Retries while the source is unavailable.
pub(super) async fn acknowledge(delivery: &Delivery) -> Result<(), Broken> {
    let mut failures = 0;
    loop {
        match in_time(delivery.ack()).await? {
            Err(SourceError::Unavailable { .. }) if failures < MAX_FAILURES => failures += 1,
            answer => return Ok(answer?),
        }
    }
}

/// Nacks an event that the tested source delivered. Retries while the source is unavailable, and returns any other
/// result.
pub(super) async fn nack_delivery(
    delivery: &Delivery,
    delay: Duration,
) -> Result<Result<(), SourceError>, Broken> {
    let mut failures = 0;
    loop {
        match in_time(delivery.nack(delay)).await? {
            Err(SourceError::Unavailable { .. }) if failures < MAX_FAILURES => failures += 1,
            answer => return Ok(answer),
        }
    }
}

/// Waits for an answer of the tested source, for at most [`ANSWER_TIMEOUT`].
#[track_caller]
pub(super) fn in_time<T>(
    answer: impl Future<Output = T>,
) -> impl Future<Output = Result<T, Broken>> {
    let late = Broken::new("the source answers within 10 s");
    async move { timeout(ANSWER_TIMEOUT, answer).await.map_err(|_| late) }
}

/// Checks that the delivered event `found` is the committed event `expected`. `found` may omit the context, but must not
/// have another one.
#[track_caller]
pub(super) fn same_event(found: &Event, expected: &Event) -> Result<(), Broken> {
    let kind = found.effective_kind();
    let envelope = Event {
        kind,
        ..found.envelope()
    };
    same(envelope, expected.envelope(), "the event")?;
    match &found.context {
        Some(context) => same(
            Some(context),
            expected.context.as_ref(),
            "the context of the event",
        ),
        None => Ok(()),
    }
}
