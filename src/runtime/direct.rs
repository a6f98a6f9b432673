//! The events of one executor whose store has no ledger: processed as they come, acknowledged after.

use super::desk::{Desk, Ended, Free};
use super::limits::{Ticket, Trigger};
use super::metrics;
use super::process::{self, Processed};
use super::roster::Member;
use super::share::Share;
use super::shared::{PAUSE, Shared};
use crate::backoff::full_jitter;
use crate::clock::later;
use crate::error::Retry;
use crate::executor::{Offer, under};
use crate::model::{BreadcrumbId, Event};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::{self, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};

/// The longest time an event waits that fails again and again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

pub(super) struct Direct {
    shared: Arc<Shared>,
    executor: Arc<str>,
    inbox: mpsc::Receiver<Share>,
    desk: Desk,
    /// How often what failed was tried, and since when.
    tries: HashMap<(BreadcrumbId, u64), (u32, Instant)>,
    running: JoinSet<Processed>,
    deliveries: HashMap<task::Id, Started>,
}

struct Started {
    share: Share,
    offer: Arc<Offer>,
    ticket: Option<Ticket>,
    at: Instant,
    trigger: Trigger,
    /// The number of the executor's home.
    home: u64,
}

impl Direct {
    pub(super) fn new(
        shared: Arc<Shared>,
        executor: Arc<str>,
        inbox: mpsc::Receiver<Share>,
    ) -> Self {
        Self {
            shared,
            executor,
            inbox,
            desk: Desk::new(Instant::now()),
            tries: HashMap::new(),
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
                Some(finished) = self.running.join_next_with_id() => self.finish(finished),
                () = sleep_until(not_before), if matches!(free, Free::NotBefore(_)) => {}
                event = self.inbox.recv(), if matches!(free, Free::Runs(_)) => {
                    let Some(share) = event else { break };
                    tokio::select! {
                        biased;
                        () = stop.cancelled() => break,
                        place = Arc::clone(&self.shared.places).acquire_owned() => match place {
                            Ok(place) => self.start(share, place),
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
        while let Some(share) = self.inbox.recv().await {
            share.settle();
        }
    }

    fn start(&mut self, share: Share, place: OwnedSemaphorePermit) {
        let Some(member) = self.shared.roster.get(&self.executor) else {
            share.settle();
            return;
        };
        let (event, now) = (share.event().clone(), Instant::now());
        let tried = self.tries.get(&(event.breadcrumb_id, event.version));
        let (before, first) = tried.copied().unwrap_or((0, now));
        let trigger = (event.breadcrumb_id, event.version);
        let ticket = self.desk.start(before > 0, trigger, now);
        let ticket = match ticket {
            Ok(ticket) => ticket,
            Err(moment) => {
                self.desk.end(None, trigger, Ended::Neither, now);
                share.again(moment.saturating_duration_since(now).max(PAUSE));
                return;
            }
        };
        let Member { executor, home, .. } = member;
        let places = Arc::clone(&self.shared.places);
        let offer = home.offer(None, places, place);
        let offer = Arc::new(offer.attempt(before.saturating_add(1), first));
        let kept = Arc::clone(&offer);
        let work = async move {
            let processed = executor.process_event(&event).await;
            kept.leave();
            processed
        };
        let work = under(Arc::clone(&offer), work);
        let work = Arc::clone(&self.shared).watched(Arc::clone(&self.executor), work);
        let task = self.running.spawn(work);
        metrics::started(&self.executor, Duration::ZERO);
        let started = Started {
            share,
            offer,
            ticket: Some(ticket),
            at: now,
            trigger,
            home: home.number,
        };
        self.deliveries.insert(task.id(), started);
    }

    /// Acknowledges what was processed, and asks for the event again where that may help.
    fn finish(&mut self, finished: Result<(task::Id, Processed), JoinError>) {
        let id = finished.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some(started) = self.deliveries.remove(&id) else {
            return;
        };
        let Started {
            share,
            offer,
            ticket,
            at,
            trigger,
            home,
        } = started;
        offer.leave();
        let (how, outcome) = match &finished {
            Ok((_, processed)) => (Ended::of(processed), process::label(processed)),
            Err(error) if error.is_panic() => (Ended::Badly, "panic"),
            Err(_) => (Ended::Neither, "dropped"),
        };
        let now = Instant::now();
        metrics::ended(&self.executor, outcome, now.saturating_duration_since(at));
        let change = self.desk.end(ticket, trigger, how, now);
        let last_error = match &finished {
            Ok((_, Err(error))) => error.code(),
            Ok((_, Ok(_))) | Err(_) => outcome,
        };
        let open = self.desk.open_breaker();
        let breakers = &self.shared.breakers;
        breakers.note((home, &self.executor), change, open, last_error);
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
        match again {
            Some(least) => {
                let delay = self.delay_of(share.event()).max(least);
                share.again(delay);
            }
            None => {
                let event = share.event();
                self.tries.remove(&(event.breadcrumb_id, event.version));
                share.settle();
            }
        }
    }

    /// How long an event waits that failed once more: longer each time.
    fn delay_of(&mut self, event: &Event) -> Duration {
        /// What is beyond begins to count anew.
        const MOST: usize = 10_000;
        let known = (event.breadcrumb_id, event.version);
        if self.tries.len() >= MOST && !self.tries.contains_key(&known) {
            return PAUSE;
        }
        let tries = self.tries.entry(known).or_insert((0, Instant::now()));
        tries.0 = tries.0.saturating_add(1);
        full_jitter(tries.0, PAUSE, LONGEST_PAUSE, 1.0)
    }

    /// Lets running work finish, then drops what is left.
    async fn drain(&mut self) {
        let end = later(Instant::now(), self.shared.settings.drain);
        while let Ok(Some(finished)) = timeout_at(end, self.running.join_next_with_id()).await {
            self.finish(finished);
        }
        self.running.abort_all();
        while let Some(finished) = self.running.join_next_with_id().await {
            self.finish(finished);
        }
    }
}
