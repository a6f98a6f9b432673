//! A client that posts requests and learns of responses through the events of its store handle.

use super::store::Handle;
use super::{NUMBER, REQUEST, RESPONSE};
use futures::future::join_all;
use futures::{Stream, StreamExt as _};
use serde_json::json;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use universal_executor::source::{Delivery, SourceError, StartAt};
use universal_executor::{BreadcrumbStore, BreadcrumbStoreExt as _, NewBreadcrumb};

/// The time after which an unanswered request fails the bench.
const TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Client {
    store: Arc<dyn BreadcrumbStore>,
    next: AtomicU64,
    waiting: Arc<Waiting>,
    listener: JoinHandle<()>,
}

/// The unanswered requests by number. Each receives the time at which the client saw its response.
type Waiting = Mutex<HashMap<u64, oneshot::Sender<Instant>>>;

/// The times of one request.
#[derive(Clone, Copy)]
struct Answered {
    posted: Instant,
    seen: Instant,
}

/// Results of one configuration in one round.
pub(crate) struct Measured {
    /// Milliseconds from each request to its response.
    pub(crate) latencies: Vec<f64>,
    pub(crate) answers_per_second: f64,
}

impl Client {
    pub(crate) async fn new(handle: &Handle) -> Self {
        let events = handle.events().subscribe(StartAt::Now).await.unwrap();
        let waiting = Arc::<Waiting>::default();
        Self {
            store: handle.store(),
            next: AtomicU64::default(),
            listener: tokio::spawn(listen(events, Arc::clone(&waiting))),
            waiting,
        }
    }

    /// Posts requests for a warm-up time and then for `window`, always with `in_flight` requests unanswered. Measures the
    /// requests that were posted in the window, and the rate of the responses that were seen in it.
    pub(crate) async fn measure(
        &self,
        in_flight: usize,
        warm_up: Duration,
        window: Duration,
    ) -> Measured {
        // The response to this request shows that the worker has started.
        self.ask().await;
        let begin = Instant::now() + warm_up;
        let end = begin + window;
        let askers = (0..in_flight).map(async |_| {
            let mut answered = Vec::new();
            while answered.is_empty() || Instant::now() < end {
                answered.push(self.ask().await);
            }
            answered
        });
        let answered = join_all(askers).await.concat();
        let counted = |moment: Instant| begin <= moment && moment < end;
        let seen = answered.iter().filter(|one| counted(one.seen)).count();
        let posted = answered.iter().filter(|one| counted(one.posted));
        let latency = |one: &Answered| one.seen.duration_since(one.posted).as_secs_f64() * 1e3;
        Measured {
            latencies: posted.map(latency).collect(),
            answers_per_second: seen as f64 / window.as_secs_f64(),
        }
    }

    /// Posts one request and waits for its response.
    async fn ask(&self) -> Answered {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, response) = oneshot::channel();
        self.waiting.lock().unwrap().insert(number, sender);
        let request = NewBreadcrumb::new(REQUEST).context(json!({NUMBER: number}));
        let posted = Instant::now();
        self.store.create(request).await.unwrap();
        let seen = tokio::time::timeout(TIMEOUT, response).await.unwrap();
        Answered {
            posted,
            seen: seen.unwrap(),
        }
    }

    /// Ends the subscription and releases the store handle.
    pub(crate) async fn stop(self) {
        self.listener.abort();
        let end = self.listener.await.unwrap_err();
        assert!(end.is_cancelled(), "the listener failed: {end}");
    }
}

async fn listen(
    mut events: impl Stream<Item = Result<Delivery, SourceError>> + Unpin,
    waiting: Arc<Waiting>,
) {
    while let Some(delivery) = events.next().await {
        let delivery = delivery.unwrap();
        let event = &delivery.event;
        if event.schema_name.as_deref() == Some(RESPONSE) {
            let seen = Instant::now();
            let number = event
                .context
                .as_ref()
                .and_then(|context| context.get(NUMBER)?.as_u64());
            let request = waiting.lock().unwrap().remove(&number.unwrap());
            // An event may arrive twice; the second one finds no request.
            if let Some(request) = request {
                request.send(seen).unwrap();
            }
        }
        delivery.ack().await.unwrap();
    }
}
