//! The events of one executor whose store has no ledger: processed as they come, acknowledged after.

use super::shared::{Owed, PAUSE, Shared};
use crate::clock::later;
use crate::error::Retry;
use crate::executor::{ExecutorError, Outcome, UniversalExecutor};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};

pub(super) struct Direct {
    shared: Arc<Shared>,
    executor: Arc<dyn UniversalExecutor>,
    inbox: mpsc::Receiver<Arc<Owed>>,
    running: JoinSet<Result<Outcome, ExecutorError>>,
    deliveries: HashMap<task::Id, Arc<Owed>>,
}

impl Direct {
    pub(super) fn new(
        shared: Arc<Shared>,
        executor: Arc<dyn UniversalExecutor>,
        inbox: mpsc::Receiver<Arc<Owed>>,
    ) -> Self {
        Self {
            shared,
            executor,
            inbox,
            running: JoinSet::new(),
            deliveries: HashMap::new(),
        }
    }

    /// Processes events until it is told to stop, then lets what runs finish.
    pub(super) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        loop {
            let free = self.running.len() < self.shared.settings.max_inflight;
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(finished) = self.running.join_next_with_id() => self.finish(finished).await,
                event = self.inbox.recv(), if free => {
                    let Some(owed) = event else { break };
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => break,
                        place = Arc::clone(&self.shared.places).acquire_owned() => match place {
                            Ok(place) => self.start(owed, place),
                            Err(_) => break,
                        },
                    }
                }
            }
        }
        self.drain().await;
    }

    fn start(&mut self, owed: Arc<Owed>, place: OwnedSemaphorePermit) {
        let (executor, event) = (Arc::clone(&self.executor), owed.delivery.event.clone());
        let task = self.running.spawn(async move {
            let processed = executor.process_event(&event).await;
            drop(place);
            processed
        });
        self.deliveries.insert(task.id(), owed);
    }

    /// Acknowledges what was processed, and asks for the event again where that may help.
    async fn finish(
        &mut self,
        finished: Result<(task::Id, Result<Outcome, ExecutorError>), JoinError>,
    ) {
        let id = finished.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let owed = self.deliveries.remove(&id);
        let again = match finished {
            Ok((_, processed)) => {
                self.shared.count(|report| report.count(&processed));
                match processed.map_err(|error| error.retry()) {
                    Err(Retry::After(delay)) => Some(delay.max(PAUSE)),
                    Ok(_) | Err(Retry::Never) => None,
                }
            }
            Err(error) => {
                self.shared.count(|report| {
                    let count = if error.is_panic() {
                        &mut report.panics
                    } else {
                        &mut report.dropped
                    };
                    *count += 1;
                });
                Some(PAUSE)
            }
        };
        if let Some(owed) = owed {
            if let Some(delay) = again {
                owed.want_again(delay);
            }
            owed.settle(&self.shared).await;
        }
    }

    /// Lets running work finish, then drops what is left.
    async fn drain(&mut self) {
        let end = later(Instant::now(), self.shared.settings.drain);
        while let Ok(Some(finished)) = timeout_at(end, self.running.join_next_with_id()).await {
            self.finish(finished).await;
        }
        self.running.abort_all();
        while let Some(finished) = self.running.join_next_with_id().await {
            self.finish(finished).await;
        }
    }
}
