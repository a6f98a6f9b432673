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

/// A source that changes each event of a store. It counts as incomplete.
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

    /// Creates a source that delivers no events.
    pub(crate) fn silent(store: &MemoryStore) -> Self {
        Self::new(store, |_| Vec::new())
    }

    /// Creates a source that delivers all events, although it counts as incomplete.
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

/// A source that delivers events from a test to its newest subscriber. Its events have no positions.
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
    /// Creates a source that claims to be complete.
    pub(crate) fn complete() -> Self {
        Self(Arc::new(Line {
            is_complete: true,
            ..Line::default()
        }))
    }

    /// Creates a source that claims to be complete and to share its events among workers.
    pub(crate) fn shared() -> Self {
        Self(Arc::new(Line {
            is_complete: true,
            is_shared: true,
            ..Line::default()
        }))
    }

    /// Delivers an event if a subscriber exists.
    pub(crate) fn say(&self, event: Event) {
        if let Some(line) = &*self.0.open.lock().unwrap() {
            line.send(Ok(Delivery::new(event))).unwrap();
        }
    }

    /// Ends the stream.
    pub(crate) fn hang_up(&self) {
        self.0.open.lock().unwrap().take();
    }

    /// Returns the number of subscriptions.
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

/// A pseudorandom number generator with the same numbers in each test run.
pub(crate) struct Dice(Mutex<u64>);

impl Dice {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(Mutex::new(seed))
    }

    /// Returns a number below `sides`.
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
