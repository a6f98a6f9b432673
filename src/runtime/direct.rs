//! The events of one executor whose store has no ledger: processed as they come, acknowledged after.

use super::desk::{Desk, Ended, Free};
use super::limits::Ticket;
use super::metrics;
use super::process::{self, Processed};
use super::roster::Member;
use super::shared::{Owed, PAUSE, Shared};
use crate::clock::later;
use crate::error::Retry;
use crate::executor::{Offer, under};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};

pub(super) struct Direct {
    shared: Arc<Shared>,
    executor: Arc<str>,
    inbox: mpsc::Receiver<Arc<Owed>>,
    desk: Desk,
    running: JoinSet<Processed>,
    deliveries: HashMap<task::Id, Started>,
}

struct Started {
    owed: Arc<Owed>,
    ticket: Option<Ticket>,
    at: Instant,
}

impl Direct {
    pub(super) fn new(
        shared: Arc<Shared>,
        executor: Arc<str>,
        inbox: mpsc::Receiver<Arc<Owed>>,
    ) -> Self {
        Self {
            shared,
            executor,
            inbox,
            desk: Desk::new(Instant::now()),
            running: JoinSet::new(),
            deliveries: HashMap::new(),
        }
    }

    /// Processes events until it is told to stop, then lets what runs finish.
    pub(super) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        loop {
            // One that was removed finishes what runs.
            let Some(member) = self.shared.roster.get(&self.executor) else {
                self.let_go().await;
                break;
            };
            let most = self.shared.settings.max_inflight;
            let free = self
                .desk
                .free(member.executor.profile(), most, Instant::now());
            let not_before = match free {
                Free::NotBefore(moment) => moment,
                Free::Runs(_) | Free::Busy => Instant::now(),
            };
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                Some(finished) = self.running.join_next_with_id() => self.finish(finished).await,
                () = sleep_until(not_before), if matches!(free, Free::NotBefore(_)) => {}
                event = self.inbox.recv(), if matches!(free, Free::Runs(_)) => {
                    let Some(owed) = event else { break };
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => break,
                        place = Arc::clone(&self.shared.places).acquire_owned() => match place {
                            Ok(place) => self.start(owed, place).await,
                            Err(_) => break,
                        },
                    }
                }
            }
        }
        self.drain().await;
    }

    /// What waits for an executor that was removed waits for nobody.
    async fn let_go(&mut self) {
        self.inbox.close();
        while let Some(owed) = self.inbox.recv().await {
            owed.settle(&self.shared).await;
        }
    }

    async fn start(&mut self, owed: Arc<Owed>, place: OwnedSemaphorePermit) {
        let Some(member) = self.shared.roster.get(&self.executor) else {
            owed.settle(&self.shared).await;
            return;
        };
        // Without a ledger nobody counts attempts, so none is a retry.
        let ticket = self.desk.start(false, Instant::now()).ok();
        let event = owed.delivery.event.clone();
        let Member { executor, home, .. } = member;
        let offer = Offer::new(Arc::clone(&home.waits), None);
        let work = async move {
            let processed = executor.process_event(&event).await;
            drop(place);
            processed
        };
        let work = Arc::clone(&self.shared).unless_gone(under(offer, work));
        let task = self.running.spawn(work);
        metrics::started(&self.executor, Duration::ZERO);
        let at = Instant::now();
        self.deliveries
            .insert(task.id(), Started { owed, ticket, at });
    }

    /// Acknowledges what was processed, and asks for the event again where that may help.
    async fn finish(&mut self, finished: Result<(task::Id, Processed), JoinError>) {
        let id = finished.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some(Started { owed, ticket, at }) = self.deliveries.remove(&id) else {
            return;
        };
        let (how, outcome) = match &finished {
            Ok((_, processed)) => (Ended::of(processed), process::label(processed)),
            Err(error) if error.is_panic() => (Ended::Badly, "panic"),
            Err(_) => (Ended::Neither, "dropped"),
        };
        let now = Instant::now();
        metrics::ended(&self.executor, outcome, now.saturating_duration_since(at));
        self.desk.end(ticket, how, now);
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
        if let Some(delay) = again {
            owed.want_again(delay);
        }
        owed.settle(&self.shared).await;
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
