//! Deliveries in: each to every executor it triggers.

use super::shared::{Owed, PAUSE, Shared};
use super::{Deliveries, Runtime};
use crate::clock::later;
use crate::error::Retry;
use crate::model::Route;
use crate::source::{Delivery, SourceError};
use futures::StreamExt as _;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// The longest pause after errors of a source.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Where the deliveries for an executor wait.
pub(super) type Inboxes = BTreeMap<Arc<str>, mpsc::Sender<Arc<Owed>>>;

pub(super) struct Intake<'r> {
    runtime: &'r Runtime,
    shared: Arc<Shared>,
    inboxes: Inboxes,
    /// When to pull again after an error, and how many there were in a row.
    pause: Option<Instant>,
    errors: u32,
}

impl<'r> Intake<'r> {
    pub(super) fn new(runtime: &'r Runtime, shared: Arc<Shared>, inboxes: Inboxes) -> Self {
        Self {
            runtime,
            shared,
            inboxes,
            pause: None,
            errors: 0,
        }
    }

    /// Takes deliveries in until it is dropped.
    pub(super) async fn run(mut self, deliveries: Deliveries) {
        let mut deliveries = Some(deliveries);
        loop {
            // A source that always has something must not keep other tasks from running.
            tokio::task::coop::consume_budget().await;
            if let Some(end) = self.pause.take() {
                sleep_until(end).await;
                if deliveries.is_none() {
                    deliveries = self.subscribe_again().await;
                    continue;
                }
            }
            let Some(open) = &mut deliveries else {
                self.pause = Some(later(Instant::now(), PAUSE));
                continue;
            };
            match open.next().await {
                Some(Ok(delivery)) => {
                    self.errors = 0;
                    self.deliver(delivery).await;
                }
                Some(Err(error)) => self.pause_after(&error),
                None => {
                    tracing::warn!("the source of events ended; subscribing again");
                    deliveries = None;
                    self.pause = Some(later(Instant::now(), PAUSE));
                }
            }
        }
    }

    async fn subscribe_again(&mut self) -> Option<Deliveries> {
        match self
            .runtime
            .source
            .subscribe(self.shared.progress.from(self.runtime.settings.start_at))
            .await
        {
            Ok(deliveries) => Some(deliveries),
            Err(error) => {
                self.pause_after(&error);
                None
            }
        }
    }

    /// Notes an error, and waits before the source is asked again: longer with each in a row.
    fn pause_after(&mut self, error: &SourceError) {
        const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
        self.shared.note(error);
        if let SourceError::Lagged { .. } = error {
            return;
        }
        let growing = SHORTEST_PAUSE * (1 << self.errors.min(10));
        let asked_for = match error.retry() {
            Retry::After(delay) => delay,
            Retry::Never => LONGEST_PAUSE,
        };
        self.errors = self.errors.saturating_add(1);
        let pause = growing.max(asked_for).min(LONGEST_PAUSE);
        self.pause = Some(later(Instant::now(), pause));
    }

    /// Hands a delivery to every executor it triggers. A full inbox holds up the source, so that nothing is lost.
    async fn deliver(&mut self, delivery: Delivery) {
        self.shared.count(|report| report.events += 1);
        self.shared.progress.begin(delivery.position);
        let owed = Owed::new(delivery);
        for (id, route) in self.runtime.index.matching(&owed.delivery.event) {
            match route {
                Route::Unmatched | Route::Context => continue,
                Route::Trigger { .. } | Route::NeedsContext => {}
            }
            let Some(inbox) = self.inboxes.get(&id) else {
                continue;
            };
            if inbox.send(Arc::clone(&owed)).await.is_err() {
                // The worker is gone, which only a shutdown does.
                owed.want_again(PAUSE);
            }
        }
        owed.settle(&self.shared).await;
    }
}
