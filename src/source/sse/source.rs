use super::feed::{Feed, FeedItem};
use super::follow::follow;
use super::health::SseHealth;
use super::settings::Settings;
use crate::source::{Deliveries, Delivery, EventSource, SourceError, StartAt};
use async_trait::async_trait;
use futures::stream;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::broadcast::error::RecvError;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

/// An event source over server-sent events: an RCRT (Right Context Right Time) server at `/events/stream`, or any other
/// server that sends [`Event`](crate::Event)s as data (feature `rcrt`).
///
/// All clones and subscriptions share one connection. The first subscription opens the connection, which is closed when
/// the last clone and subscription are dropped. The source reopens a connection that ends, fails or is silent, with an
/// exponential backoff. A reconnect sends `Last-Event-ID` if the server sends IDs. Subscribers receive an error item
/// and continue.
///
/// ```no_run
/// use universal_executor::source::{BearerToken, SseSource};
/// use universal_executor::{BoxError, Runtime, Secret, UniversalExecutor};
///
/// async fn serve(agent: impl UniversalExecutor + 'static) -> Result<(), BoxError> {
///     let token = BearerToken::fixed(Secret::new("eyJ.."));
///     let events = SseSource::builder("http://localhost:8080/events/stream").token(token).build()?;
///     Runtime::builder(events).executor(agent).build()?.run_until(std::future::pending()).await?;
///     Ok(())
/// }
/// ```
///
/// # Guarantees
/// The source delivers the events of the time with a connection. Each version is delivered once, as long as it is among
/// the last 65,536 versions. With a [backfill](super::SseSourceBuilder::backfill), as in
/// [`RcrtStore::events`](crate::store::RcrtStore::events), the source also delivers the events that the stream omitted
/// and the events of the time without a connection, after newer ones. An event is lost if a later version, a deletion
/// or the end of the time to live came before the backfill query.
///
/// # Limitations
/// The source saves no state and has no positions. [`StartAt::Beginning`], [`StartAt::After`] and [`StartAt::Since`]
/// start like [`StartAt::Now`]. A delivery cannot be nacked, and the source is not
/// [complete](EventSource::is_complete). Only some servers announce deletions.
///
/// # Clocks
/// A backfill query uses the times of the server, and never a time after the server's current time. A breadcrumb with a
/// time in the future therefore hides no later change. The clocks of a server may differ by at most the
/// [overlap](super::SseSourceBuilder::overlap). After the server sets its clock back, a backfill query covers only the
/// overlap before the new time. Only a sweep of the store finds older changes.
///
/// # Limits
/// - A frame of more than 4 MiB ends the connection.
/// - A context of more than 16 KiB is omitted.
/// - An event whose tags and schema name are larger than those of any breadcrumb that a store of this crate accepts
///   (256 tags of 256 bytes) is skipped. It counts as [unreadable](SseHealth::unreadable), and only a sweep of the
///   store finds its breadcrumb.
/// - An event therefore takes at most 97 KiB of memory, and the events that wait for a slow subscriber at most that
///   times the [buffer](super::SseSourceBuilder::buffer).
/// - Events wait while the backfill query of a new connection runs. From 2,048 events or 8 MiB on, the source stops
///   reading the stream until the query ends, and does not count this time as silence.
#[derive(Clone)]
pub struct SseSource(Arc<Inner>);

struct Inner {
    settings: Arc<Settings>,
    running: Mutex<Option<Arc<Running>>>,
}

/// A background task that reads the event stream, until this value is dropped.
struct Running {
    feed: Arc<Feed>,
    task: JoinHandle<()>,
    _stop: DropGuard,
}

impl SseSource {
    /// Returns whether the event stream is connected, and the counters of its connections and events. Returns default values
    /// before the first subscription.
    #[must_use]
    pub fn health(&self) -> SseHealth {
        let running = self.lock().clone();
        running.map_or_else(SseHealth::default, |running| *running.feed.health())
    }

    pub(super) fn of(settings: Settings) -> Self {
        Self(Arc::new(Inner {
            settings: Arc::new(settings),
            running: Mutex::default(),
        }))
    }

    /// Returns the background task that reads the event stream. Starts the task at the first subscription, and again
    /// after the tokio runtime of the earlier task has ended.
    fn running(&self) -> Arc<Running> {
        let mut running = self.lock();
        if let Some(running) = running
            .as_ref()
            .filter(|running| !running.task.is_finished())
        {
            return Arc::clone(running);
        }
        let feed = Arc::new(Feed::new(self.0.settings.buffer));
        let stop = CancellationToken::new();
        let follow = follow(
            Arc::clone(&self.0.settings),
            Arc::clone(&feed),
            stop.clone(),
        );
        let new = Arc::new(Running {
            feed,
            task: tokio::spawn(follow),
            _stop: stop.drop_guard(),
        });
        *running = Some(Arc::clone(&new));
        new
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Running>>> {
        self.0
            .running
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl EventSource for SseSource {
    fn description(&self) -> String {
        "RCRT event stream".to_owned()
    }

    async fn subscribe(&self, _from: StartAt) -> Result<Deliveries, SourceError> {
        let running = self.running();
        wait_until_connected(&running.feed).await?;
        let items = running.feed.items.subscribe();
        let next = |(mut items, running): (
            tokio::sync::broadcast::Receiver<FeedItem>,
            Arc<Running>,
        )| async {
            let next = match items.recv().await {
                Ok(FeedItem::Event(event)) => Ok(Delivery::new(event)),
                Ok(FeedItem::Disconnected(reason)) => Err(unavailable(&reason)),
                Err(RecvError::Lagged(missed)) => Err(SourceError::Lagged {
                    missed,
                    after: None,
                }),
                Err(RecvError::Closed) => return None,
            };
            Some((next, (items, running)))
        };
        Ok(Deliveries::new(stream::unfold((items, running), next)))
    }

    /// Returns `Ok(None)`, because the server of the event stream does not count unacknowledged events.
    ///
    /// # Errors
    /// Returns [`SourceError::Unavailable`] while subscribers exist and the connection is down.
    async fn behind(&self) -> Result<Option<u64>, SourceError> {
        let running = self.lock().clone();
        match running {
            Some(running) if !running.feed.health().is_connected => {
                let last_error = running.feed.progress.borrow().last_error.clone();
                Err(unavailable(
                    last_error
                        .as_deref()
                        .unwrap_or("event stream is not connected yet"),
                ))
            }
            Some(_) | None => Ok(None),
        }
    }
}

/// Waits until the source is connected to the event stream. Fails if an attempt to connect fails before.
async fn wait_until_connected(feed: &Feed) -> Result<(), SourceError> {
    let mut progress = feed.progress.subscribe();
    let failures = progress.borrow().failures;
    let reached = progress.wait_for(|now| now.is_ready || now.failures > failures);
    match reached.await {
        Ok(now) if now.is_ready => Ok(()),
        Ok(now) => Err(unavailable(now.last_error.as_deref().unwrap_or_default())),
        Err(_) => Err(unavailable("event source is closed")),
    }
}

fn unavailable(reason: &str) -> SourceError {
    SourceError::Unavailable {
        retry_after: Duration::from_secs(1),
        source: reason.into(),
    }
}

impl fmt::Debug for SseSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SseSource")
            .field("settings", &self.0.settings)
            .finish_non_exhaustive()
    }
}
