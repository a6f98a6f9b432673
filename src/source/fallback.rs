use super::{Deliveries, Delivery, EventSource, SourceError, StartAt};
use crate::backoff::full_jitter;
use crate::clock::later;
use crate::error::Chain;
use async_trait::async_trait;
use futures::StreamExt as _;
use futures::stream;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

/// An event source that combines a quick source, which may lose events, with a sure source, which loses none. For
/// example, the quick source is NATS, and the sure source reads the events that a store retains for a named consumer.
///
/// While the quick source delivers, the combination polls the sure source for unacknowledged events at an interval,
/// 60 s by default. While the quick source is unreachable, the combination reads the sure source continuously. Most
/// events are therefore delivered twice, and the run ledger removes the duplicates. A failure of the quick source, even
/// while no worker runs, loses no event and causes only a short delay.
///
/// The sure source must persist acknowledgements. The combination is [complete](EventSource::is_complete) if the sure
/// source is. All workers with the same consumer name at the sure source need the same executors, because the sure
/// source does not deliver an acknowledged event to another worker. An event of the quick source has the quick source's
/// position, and an event of the sure source has no position.
///
/// Use it for workers on many machines: NATS delivers events at once, and the store makes sure that
/// none is lost. A failure of the quick source is logged at `WARN`, and retried after at most 5 s.
///
/// ```
/// use futures::StreamExt;
/// use universal_executor::source::{FallbackSource, StartAt};
/// use universal_executor::{BreadcrumbStoreExt, EventSource, MemoryStore, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let (store, elsewhere) = (MemoryStore::default(), MemoryStore::default());
/// let source = FallbackSource::new(elsewhere.events(), store.events());
/// let mut events = source.subscribe(StartAt::Now).await?;
/// let message = store.create(NewBreadcrumb::new("user.message.v1")).await?;
///
/// // The quick source did not receive the event.
/// let delivery = events.next().await.ok_or("the stream ended")??;
/// assert_eq!(delivery.event.breadcrumb_id, message.id);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone)]
pub struct FallbackSource {
    quick: Arc<dyn EventSource>,
    sure: Arc<dyn EventSource>,
    interval: Duration,
}

impl FallbackSource {
    /// Combines a quick event source, which may lose events, with a sure source, which loses none. Polls the sure
    /// source every 60 s while the quick source delivers.
    #[must_use]
    pub fn new(quick: impl EventSource, sure: impl EventSource) -> Self {
        Self {
            quick: Arc::new(quick),
            sure: Arc::new(sure),
            interval: Duration::from_secs(60),
        }
    }

    /// Sets the interval between two polls of the sure (lossless) event source while the quick source delivers events.
    /// Defaults to 60 s.
    ///
    /// A shorter interval finds the events that the quick source lost sooner, and costs more reads
    /// of the store.
    #[must_use]
    pub fn ask_every(mut self, interval: Duration) -> Self {
        self.interval = interval;
        self
    }
}

#[async_trait]
impl EventSource for FallbackSource {
    /// Subscribes to both event sources: the quick one, which may lose events, and the sure one, which loses none.
    /// Retries the quick source until the subscription succeeds.
    ///
    /// # Errors
    /// Fails if the subscription to the sure source fails.
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        let is_down = watch::Sender::new(true);
        let sure = Sure {
            source: Arc::clone(&self.sure),
            from: match from {
                StartAt::Now | StartAt::Beginning | StartAt::Since(_) => from,
                // The position belongs to the quick source.
                StartAt::After(_) => StartAt::Now,
            },
            interval: self.interval,
            quick_is_down: is_down.subscribe(),
            polled_at: Instant::now(),
            open: None,
        };
        let sure = sure.begin().await?;
        let delivered_after = sure.open.as_ref().and_then(Deliveries::delivered_after);
        let quick = Quick {
            source: Arc::clone(&self.quick),
            from: match from {
                StartAt::Now | StartAt::Beginning | StartAt::After(_) => from,
                // The sure source delivers the events before now.
                StartAt::Since(_) => StartAt::Now,
            },
            is_down,
            failures: 0,
            open: None,
        };
        let quick = stream::unfold(quick, |mut quick| async move {
            let next = quick.next().await;
            Some((Ok(next), quick))
        });
        let sure = stream::unfold(sure, |mut sure| async move {
            let next = sure.next().await;
            Some((next, sure))
        });
        Ok(Deliveries::new(stream::select(quick, sure)).delivering_after(delivered_after))
    }

    fn is_complete(&self) -> bool {
        self.sure.is_complete()
    }

    fn description(&self) -> String {
        let (quick, sure) = (self.quick.description(), self.sure.description());
        format!("{quick}, backed by {sure}")
    }

    /// Returns `true`: workers share the events of this source, so another worker may receive an event instead of this
    /// worker. The sure event source is only polled at intervals. A poll does not repeat an event that another worker
    /// with the same consumer name acknowledged in the meantime.
    fn is_shared(&self) -> bool {
        true
    }

    /// Returns the number of unacknowledged events of the quick (lossy) event source, or of the sure (lossless) source
    /// if the quick source is unreachable or cannot count.
    ///
    /// # Errors
    /// Fails if the sure source cannot be reached, as [`subscribe`](EventSource::subscribe) does.
    async fn behind(&self) -> Result<Option<u64>, SourceError> {
        let sure = self.sure.behind().await?;
        match self.quick.behind().await {
            Ok(Some(events)) => Ok(Some(events)),
            Ok(None) | Err(_) => Ok(sure),
        }
    }
}

struct Quick {
    source: Arc<dyn EventSource>,
    /// Start position of the next subscription to the quick (lossy) event source.
    from: StartAt,
    is_down: watch::Sender<bool>,
    /// Number of consecutive failures of the quick (lossy) event source.
    failures: u32,
    open: Option<Deliveries>,
}

impl Quick {
    async fn next(&mut self) -> Delivery {
        loop {
            let delivered = match &mut self.open {
                Some(open) => open.next().await,
                None => match self.source.subscribe(self.from).await {
                    Ok(open) => {
                        self.open = Some(open);
                        self.is_down.send_replace(false);
                        continue;
                    }
                    Err(error) => Some(Err(error)),
                },
            };
            match delivered {
                Some(Ok(delivery)) => {
                    self.failures = 0;
                    self.is_down.send_if_modified(std::mem::take);
                    if let Some(position) = delivery.position {
                        self.from = StartAt::After(position);
                    }
                    // The sure source can still have earlier events.
                    return delivery.ahead();
                }
                Some(Err(error)) => {
                    let error = Chain(&error).to_string();
                    self.failed(&error).await;
                }
                None => {
                    self.open = None;
                    self.failed("the event stream ended").await;
                }
            }
        }
    }

    /// Records that the quick (lossy) event source failed, so that the sure (lossless) source takes over, and waits
    /// before the retry. The wait takes at most 5 s, with exponential backoff.
    async fn failed(&mut self, error: &str) {
        const MAX_PAUSE: Duration = Duration::from_secs(5);
        tracing::warn!(
            error,
            "the quick event source of a FallbackSource failed, will retry; until a retry succeeds, the lossless sure source delivers \
             the events"
        );
        self.is_down.send_replace(true);
        self.failures = self.failures.saturating_add(1);
        sleep(full_jitter(self.failures, MAX_PAUSE / 50, MAX_PAUSE, 1.0)).await;
    }
}

struct Sure {
    source: Arc<dyn EventSource>,
    from: StartAt,
    interval: Duration,
    quick_is_down: watch::Receiver<bool>,
    /// Time at which the last poll of the sure (lossless) event source started.
    polled_at: Instant,
    open: Option<Deliveries>,
}

impl Sure {
    /// Time without an event after which a poll of the sure (lossless) event source ends, if the quick source delivers.
    const IDLE_LIMIT: Duration = Duration::from_secs(1);

    async fn begin(mut self) -> Result<Self, SourceError> {
        self.open = Some(self.source.subscribe(self.from).await?);
        Ok(self)
    }

    async fn next(&mut self) -> Result<Delivery, SourceError> {
        loop {
            let Some(open) = &mut self.open else {
                let due = later(self.polled_at, self.interval);
                tokio::select! {
                    biased;
                    () = wait_until_down(&mut self.quick_is_down) => {}
                    () = sleep_until(due) => {}
                }
                self.polled_at = Instant::now();
                self.open = Some(self.source.subscribe(self.from).await?);
                continue;
            };
            tokio::select! {
                biased;
                next = open.next() => match next {
                    Some(Ok(mut delivery)) => {
                        delivery.position = None;
                        return Ok(delivery);
                    }
                    Some(Err(error)) => {
                        match error {
                            // Polled again after the interval, because each error delays the events of the quick source.
                            SourceError::Refused(_) | SourceError::Unavailable { .. } => {
                                self.open = None;
                            }
                            SourceError::Lagged { .. } | SourceError::NoRedelivery { .. } => {}
                        }
                        return Err(error);
                    }
                    None => {
                        self.open = None;
                        sleep(Self::IDLE_LIMIT).await;
                    }
                },
                () = idle_while_up(&mut self.quick_is_down, Self::IDLE_LIMIT) => self.open = None,
            }
        }
    }
}

/// Waits until the quick (lossy) event source is unreachable, so that the sure (lossless) source must be polled at
/// once. Never returns if the quick half of the stream was dropped.
async fn wait_until_down(quick_is_down: &mut watch::Receiver<bool>) {
    if quick_is_down.wait_for(|is_down| *is_down).await.is_err() {
        std::future::pending().await
    }
}

/// Waits until the quick (lossy) event source has been reachable for `time`, so that the poll of the sure (lossless)
/// source can end. Never returns if the quick half of the stream was dropped.
async fn idle_while_up(quick_is_down: &mut watch::Receiver<bool>, time: Duration) {
    if quick_is_down.wait_for(|is_down| !*is_down).await.is_err() {
        std::future::pending::<()>().await;
    }
    sleep(time).await;
}

impl fmt::Debug for FallbackSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FallbackSource")
            .field("interval", &self.interval)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{BreadcrumbId, Event, NewBreadcrumb, Timestamp};
    use std::collections::VecDeque;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use tokio::sync::Notify;
    use tokio::time::timeout;

    const SECOND: Duration = Duration::from_secs(1);

    /// An event source that delivers each event of [`push`](Self::push) once, to any of its subscribers.
    #[derive(Clone, Default)]
    struct QueueSource(Arc<Inner>);

    #[derive(Default)]
    struct Inner {
        waiting: Mutex<VecDeque<Event>>,
        changed: Notify,
        subscriptions: AtomicUsize,
        is_down: AtomicBool,
    }

    impl QueueSource {
        fn push(&self, version: u64) {
            let mut event = Event::created(
                &NewBreadcrumb::new("a").first_version(BreadcrumbId::NIL, Timestamp::UNIX_EPOCH),
            );
            event.version = version;
            self.0.waiting.lock().unwrap().push_back(event);
            self.0.changed.notify_one();
        }

        fn set_down(&self, is_down: bool) {
            self.0.is_down.store(is_down, Ordering::SeqCst);
            self.0.changed.notify_one();
        }

        fn check(&self) -> Result<(), SourceError> {
            match self.0.is_down.load(Ordering::SeqCst) {
                true => Err(SourceError::Unavailable {
                    retry_after: SECOND,
                    source: "the source is unreachable".into(),
                }),
                false => Ok(()),
            }
        }

        fn subscriptions(&self) -> usize {
            self.0.subscriptions.load(Ordering::SeqCst)
        }

        async fn next(&self) -> Result<Delivery, SourceError> {
            loop {
                self.check()?;
                if let Some(event) = self.0.waiting.lock().unwrap().pop_front() {
                    return Ok(Delivery::new(event).at(7));
                }
                self.0.changed.notified().await;
            }
        }
    }

    #[async_trait]
    impl EventSource for QueueSource {
        async fn subscribe(&self, _: StartAt) -> Result<Deliveries, SourceError> {
            self.check()?;
            self.0.subscriptions.fetch_add(1, Ordering::SeqCst);
            let deliveries = stream::unfold(self.clone(), |source| async move {
                let next = source.next().await;
                Some((next, source))
            });
            Ok(Deliveries::new(deliveries))
        }

        fn is_complete(&self) -> bool {
            true
        }

        async fn behind(&self) -> Result<Option<u64>, SourceError> {
            self.check().map(|()| Some(0))
        }
    }

    async fn combined() -> (QueueSource, QueueSource, Deliveries) {
        let (quick, sure) = (QueueSource::default(), QueueSource::default());
        let source = FallbackSource::new(quick.clone(), sure.clone());
        assert!(source.is_complete());
        let events = source.subscribe(StartAt::Now).await.unwrap();
        (quick, sure, events)
    }

    /// Returns the version and position of the next event, or `None` after `time`.
    async fn within(events: &mut Deliveries, time: Duration) -> Option<(u64, Option<u64>)> {
        let delivery = timeout(time, events.next()).await.ok()?.unwrap().unwrap();
        Some((delivery.event.version, delivery.position))
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_quick_source_delivers_the_other_is_asked_from_time_to_time() {
        let (quick, sure, mut events) = combined().await;
        sure.push(1);
        assert_eq!(within(&mut events, SECOND).await, Some((1, None)));
        quick.push(2);
        assert_eq!(within(&mut events, SECOND).await, Some((2, Some(7))));
        assert_eq!(within(&mut events, 5 * SECOND).await, None);

        sure.push(3);

        assert_eq!(within(&mut events, 20 * SECOND).await, None);
        assert_eq!(within(&mut events, 60 * SECOND).await, Some((3, None)));
        assert_eq!((quick.subscriptions(), sure.subscriptions()), (1, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn while_the_quick_source_is_out_the_other_is_listened_to() {
        let (quick, sure, mut events) = combined().await;
        assert_eq!(within(&mut events, 5 * SECOND).await, None);

        quick.set_down(true);
        sure.push(1);
        assert_eq!(within(&mut events, SECOND).await, Some((1, None)));
        assert_eq!(within(&mut events, 30 * SECOND).await, None);
        sure.push(2);
        assert_eq!(within(&mut events, SECOND).await, Some((2, None)));
        quick.set_down(false);
        quick.push(3);

        assert_eq!(within(&mut events, 10 * SECOND).await, Some((3, Some(7))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_sure_source_is_reported_once_an_interval_without_delaying_events() {
        let (quick, sure, mut events) = combined().await;
        sure.set_down(true);
        assert!(events.next().await.unwrap().is_err());

        for version in 1..=20 {
            quick.push(version);
            assert_eq!(within(&mut events, SECOND).await, Some((version, Some(7))));
        }

        assert!(
            events.next().await.unwrap().is_err(),
            "the sure source is polled after the interval"
        );
    }

    #[tokio::test]
    async fn the_backlog_falls_back_to_the_sure_source_and_fails_without_it() {
        let (quick, sure) = (QueueSource::default(), QueueSource::default());
        let source = FallbackSource::new(quick.clone(), sure.clone());

        quick.set_down(true);
        assert_eq!(source.behind().await.unwrap(), Some(0));
        sure.set_down(true);
        quick.set_down(false);

        assert!(source.behind().await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn it_begins_without_the_quick_source_and_not_without_the_other() {
        let (quick, sure) = (QueueSource::default(), QueueSource::default());
        let source = FallbackSource::new(quick.clone(), sure.clone());
        quick.set_down(true);
        let mut events = source.subscribe(StartAt::Now).await.unwrap();
        sure.push(1);
        assert_eq!(within(&mut events, SECOND).await, Some((1, None)));
        sure.set_down(true);
        quick.set_down(false);

        let without = source.subscribe(StartAt::Now).await;

        assert!(without.is_err());
        sure.set_down(false);
        quick.push(2);
        assert_eq!(within(&mut events, 60 * SECOND).await, Some((2, Some(7))));
    }
}
