use super::feed::{Feed, Said};
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

/// Events from a server that sends them: an RCRT server at `/events/stream`, or any other whose data are
/// [`Event`](crate::Event)s (feature `rcrt`).
///
/// All clones and all subscriptions share one connection. It is opened by the first subscription and closed when the last
/// of them is gone. A connection that ends, breaks or is silent is opened again, with longer and longer pauses and
/// `Last-Event-ID` where the server tells ids; subscribers are told with an error, and go on.
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
/// # What it promises
/// Events of the time with a connection are delivered. Each version is delivered once, as long as it is among the last 65,536. With a
/// [backfill](super::SseSourceBuilder::backfill), as in [`RcrtStore::events`](crate::store::RcrtStore::events), events that the stream omitted and
/// events of the time without a connection are delivered too, after newer ones. An event is missing if a later version, a deletion or the
/// end of the time to live came before the list was read.
///
/// # What it does not
/// Nothing is remembered: it has no positions, [`StartAt::Beginning`] and [`StartAt::After`] begin now, nothing is taken
/// back, and it is not [complete](EventSource::is_complete). Deletions come only from servers that tell of them.
///
/// # Clocks
/// How far back it asks goes by the times that the server gives, and never by one that is later than the clock of the server
/// says: something stamped a day ahead hides nothing that comes after it. Where a server has several clocks they may differ
/// by the [overlap](super::SseSourceBuilder::overlap). After the server sets its clock back, a backfill query covers
/// only the overlap before the new time. Only a sweep of the store finds older changes.
///
/// # Bounds
/// A frame of more than 4 MiB breaks the connection. A context of more than 16 KiB does not travel. An event whose tags and
/// schema are larger than those of any breadcrumb that a store here keeps (256 tags of 256 bytes) is not told of at all; it
/// counts as [unreadable](SseHealth::unreadable), and only a look into the store finds its breadcrumb. So an event takes
/// 97 KiB of memory at the most, and those that wait for a slow subscriber that much times the
/// [buffer](super::SseSourceBuilder::buffer). While the backfill query of a new connection runs, events wait. From
/// 2,048 events or 8 MiB on, the source stops reading the stream until the query ends, and does not count this time as
/// silence.
#[derive(Clone)]
pub struct SseSource(Arc<Inner>);

struct Inner {
    settings: Arc<Settings>,
    running: Mutex<Option<Arc<Running>>>,
}

/// A connection that is kept as long as somebody holds this.
struct Running {
    feed: Arc<Feed>,
    task: JoinHandle<()>,
    _stop: DropGuard,
}

impl SseSource {
    /// How the stream fares; nothing yet if nobody has subscribed.
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

    /// The connection there is, or a new one. One whose runtime has ended is none.
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
        ready(&running.feed).await?;
        let said = running.feed.said.subscribe();
        let next = |(mut said, running): (tokio::sync::broadcast::Receiver<Said>, Arc<Running>)| async {
            let next = match said.recv().await {
                Ok(Said::Event(event)) => Ok(Delivery::new(event)),
                Ok(Said::Broke(why)) => Err(unavailable(&why)),
                Err(RecvError::Lagged(missed)) => Err(SourceError::Lagged {
                    missed,
                    after: None,
                }),
                Err(RecvError::Closed) => return None,
            };
            Some((next, (said, running)))
        };
        Ok(Deliveries::new(stream::unfold((said, running), next)))
    }

    /// Returns `None`: the server does not count events.
    ///
    /// # Errors
    /// Fails while subscribers exist and the connection is down.
    async fn behind(&self) -> Result<Option<u64>, SourceError> {
        let running = self.lock().clone();
        match running {
            Some(running) if !running.feed.health().is_connected => {
                let why = running.feed.progress.borrow().why.clone();
                Err(unavailable(why.as_deref().unwrap_or("not connected yet")))
            }
            Some(_) | None => Ok(None),
        }
    }
}

/// Waits for the first connection, or for the next that fails before there was one.
async fn ready(feed: &Feed) -> Result<(), SourceError> {
    let mut progress = feed.progress.subscribe();
    let failures = progress.borrow().failures;
    let reached = progress.wait_for(|now| now.is_ready || now.failures > failures);
    match reached.await {
        Ok(now) if now.is_ready => Ok(()),
        Ok(now) => Err(unavailable(now.why.as_deref().unwrap_or_default())),
        Err(_) => Err(unavailable("the source is closed")),
    }
}

fn unavailable(why: &str) -> SourceError {
    SourceError::Unavailable {
        retry_after: Duration::from_secs(1),
        source: why.into(),
    }
}

impl fmt::Debug for SseSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SseSource")
            .field("settings", &self.0.settings)
            .finish_non_exhaustive()
    }
}
