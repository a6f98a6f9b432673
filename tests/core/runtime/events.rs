//! Sources that lose, repeat, reorder and forge events.

use futures::StreamExt as _;
use futures::stream::{self};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::mpsc;
use universal_executor::source::{Deliveries, SourceError, StartAt};
use universal_executor::{Delivery, Event, EventSource, MemoryStore, async_trait};

type Delivered = Result<Delivery, SourceError>;
type Warp = dyn Fn(Delivery) -> Vec<Delivery> + Send + Sync;

/// The events of a store after something was done to each of them; not complete.
pub(crate) struct Warped {
    inner: Box<dyn EventSource>,
    warp: Arc<Warp>,
}

impl Warped {
    pub(crate) fn new(
        store: &MemoryStore,
        warp: impl Fn(Delivery) -> Vec<Delivery> + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner: Box::new(store.events()),
            warp: Arc::new(warp),
        }
    }

    /// Tells nothing.
    pub(crate) fn silent(store: &MemoryStore) -> Self {
        Self::new(store, |_| Vec::new())
    }

    /// Tells everything, and does not say so.
    pub(crate) fn faithful(store: &MemoryStore) -> Self {
        Self::new(store, |delivery| vec![delivery])
    }
}

#[async_trait]
impl EventSource for Warped {
    async fn subscribe(&self, from: StartAt) -> Result<Deliveries, SourceError> {
        let warp = Arc::clone(&self.warp);
        let deliveries = self.inner.subscribe(from).await?;
        let warped = move |delivered| match delivered {
            Ok(delivery) => stream::iter(warp(delivery).into_iter().map(Ok).collect::<Vec<_>>()),
            Err(error) => stream::iter(vec![Err(error)]),
        };
        Ok(deliveries.wrap(|deliveries| deliveries.flat_map(warped)))
    }
}

/// A source that says what a test tells it to say, to its newest subscriber. Its events have no positions.
#[derive(Clone, Default)]
pub(crate) struct Told(Arc<Line>);

#[derive(Default)]
struct Line {
    is_complete: bool,
    is_shared: bool,
    open: Mutex<Option<mpsc::UnboundedSender<Delivered>>>,
    subscriptions: AtomicUsize,
}

impl Told {
    /// It claims to leave nothing out.
    pub(crate) fn complete() -> Self {
        Self(Arc::new(Line {
            is_complete: true,
            ..Line::default()
        }))
    }

    /// It claims to leave nothing out, and to share its events among workers.
    pub(crate) fn shared() -> Self {
        Self(Arc::new(Line {
            is_complete: true,
            is_shared: true,
            ..Line::default()
        }))
    }

    /// Says something, if anybody listens.
    pub(crate) fn say(&self, event: Event) {
        if let Some(line) = &*self.0.open.lock().unwrap() {
            line.send(Ok(Delivery::new(event))).unwrap();
        }
    }

    /// Ends the stream.
    pub(crate) fn hang_up(&self) {
        self.0.open.lock().unwrap().take();
    }

    /// How often it was subscribed to.
    pub(crate) fn subscriptions(&self) -> usize {
        self.0.subscriptions.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl EventSource for Told {
    async fn subscribe(&self, _: StartAt) -> Result<Deliveries, SourceError> {
        let (line, mut told) = mpsc::unbounded_channel();
        *self.0.open.lock().unwrap() = Some(line);
        self.0.subscriptions.fetch_add(1, Ordering::SeqCst);
        Ok(Deliveries::new(stream::poll_fn(move |context| {
            told.poll_recv(context)
        })))
    }

    fn is_complete(&self) -> bool {
        self.0.is_complete
    }

    fn is_shared(&self) -> bool {
        self.0.is_shared
    }
}

/// Numbers that look random and are the same in every run of a test.
pub(crate) struct Dice(Mutex<u64>);

impl Dice {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    /// A number below another.
    pub(crate) fn roll(&self, sides: usize) -> usize {
        let mut state = self.0.lock().unwrap();
        *state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(*state >> 33).unwrap() % sides
    }

    pub(crate) fn shuffle<T>(&self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.roll(last + 1));
        }
    }
}
