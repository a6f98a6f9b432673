//! Deliveries in: each to every executor it triggers, and to whoever waits for it.

use super::definitions::{Announced, Keeper, keeper};
use super::direct::Direct;
use super::home::{Home, SeenTo};
use super::lookout::{self, Look, Lookout};
use super::roster::Triggered;
use super::seen::Seen;
use super::shared::{Owed, PAUSE, Shared, in_time};
use super::station::{self, Arrival, Station};
use super::sweep::{self, Found};
use super::{Deliveries, Runtime, metrics};
use crate::clock::later;
use crate::error::Retry;
use crate::model::{Event, EventKind, Timestamp};
use crate::source::{Delivery, SourceError, StartAt};
use futures::StreamExt as _;
use futures::future::join_all;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// The longest pause after errors of a source.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

pub(super) struct Intake<'r> {
    runtime: &'r Runtime,
    shared: Arc<Shared>,
    tasks: &'r mut JoinSet<()>,
    /// By the number of the store.
    stores: HashMap<u64, StoreTasks>,
    /// Where announced definitions wait.
    definitions: Option<(Arc<Keeper>, mpsc::Sender<Announced>)>,
    /// Where deliveries wait for executors on stores without a ledger.
    direct: HashMap<Arc<str>, mpsc::Sender<Arc<Owed>>>,
    /// What sweeps found.
    found: (mpsc::Sender<Found>, mpsc::Receiver<Found>),
    seen: Seen,
    /// When to pull again after an error, and how many there were in a row.
    pause: Option<Instant>,
    errors: u32,
}

/// Where what concerns a store is sent.
struct StoreTasks {
    /// None without a ledger.
    arrivals: Option<mpsc::Sender<Arrival>>,
    looks: mpsc::Sender<Look>,
}

impl<'r> Intake<'r> {
    pub(super) fn new(
        runtime: &'r Runtime,
        shared: Arc<Shared>,
        tasks: &'r mut JoinSet<()>,
    ) -> Self {
        Self {
            runtime,
            shared,
            tasks,
            stores: HashMap::new(),
            direct: HashMap::new(),
            definitions: None,
            found: mpsc::channel(64),
            seen: Seen::default(),
            pause: None,
            errors: 0,
        }
    }

    /// Notes how far each store has come, and opens a place for each executor.
    pub(super) async fn open(&mut self) {
        let homes = self.shared.roster.homes();
        let begin = homes.iter().map(|home| async move {
            if home.seen().is_none()
                && let Ok(newest) = sweep::newest(home.store()).await
            {
                home.has_seen_to(newest);
            }
        });
        join_all(begin).await;
        self.open_places();
    }

    /// Makes executors of the definitions there are, however long the store takes to tell them: an event that comes
    /// before would be lost to them.
    pub(super) async fn load_definitions(&mut self) {
        let Some(keeper) = &self.shared.keeper else {
            return;
        };
        while let Err(error) = keeper.load(&self.shared.roster).await {
            tracing::warn!(error = error.code(), "definitions could not be loaded");
            sleep_until(later(Instant::now(), PAUSE)).await;
        }
        let (sender, inbox) = mpsc::channel(keeper::INBOX);
        let follow = Arc::clone(keeper).follow(Arc::clone(&self.shared), inbox);
        self.tasks.spawn(follow);
        self.definitions = Some((Arc::clone(keeper), sender));
        self.open_places();
    }

    /// Takes deliveries in until it is dropped.
    pub(super) async fn run(mut self, deliveries: Deliveries) {
        let mut deliveries = Some(deliveries);
        let mut changes = self.shared.roster.changes();
        loop {
            // A source that always has something must not keep other tasks from running.
            tokio::task::coop::consume_budget().await;
            if deliveries.is_none() && self.pause.is_none() {
                deliveries = self.subscribe_again().await;
                continue;
            }
            let pause = self.pause;
            tokio::select! {
                biased;
                Ok(()) = changes.changed() => self.open_places(),
                Some(found) = self.found.1.recv() => self.take_found(&found).await,
                () = until(pause), if pause.is_some() => self.pause = None,
                delivered = next(&mut deliveries), if pause.is_none() => match delivered {
                    Some(Ok(delivery)) => {
                        self.errors = 0;
                        self.deliver(delivery).await;
                    }
                    Some(Err(error)) => self.pause_after(&error),
                    None => {
                        tracing::warn!("the source of events ended; subscribing again");
                        self.shared.source_is(false);
                        deliveries = None;
                        self.pause = Some(later(Instant::now(), PAUSE));
                    }
                }
            }
        }
    }

    async fn subscribe_again(&mut self) -> Option<Deliveries> {
        let from = self.shared.progress.from(self.runtime.settings.start_at);
        match self.runtime.source.subscribe(from).await {
            Ok(deliveries) => {
                self.shared.source_is(true);
                // What was announced while nobody listened.
                if !self.shared.source_is_complete {
                    for home in self.shared.roster.homes() {
                        home.ask_for_everything();
                    }
                } else if !self.shared.progress.has_position() {
                    self.look_for_what_was_missed();
                }
                Some(deliveries)
            }
            Err(error) => {
                self.pause_after(&error);
                None
            }
        }
    }

    /// Asks for a look at what was committed after the newest event that was taken in, or after the start.
    fn look_for_what_was_missed(&self) {
        let newest = self.shared.progress.newest();
        for home in self.shared.roster.homes() {
            let since = newest.or_else(|| match self.runtime.settings.start_at {
                StartAt::Now => home.seen().map(SeenTo::first),
                StartAt::Beginning | StartAt::After(_) => Some(Timestamp::UNIX_EPOCH),
            });
            match since {
                Some(since) => home.ask_for_sweep(since),
                None => tracing::warn!("what was missed cannot be told from what was there before"),
            }
        }
    }

    /// Notes an error, and waits before the source is asked again: longer with each in a row.
    fn pause_after(&mut self, error: &SourceError) {
        const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
        self.shared.note(error);
        if let SourceError::Lagged { .. } = error {
            self.look_for_what_was_missed();
            return;
        }
        self.shared.source_is(false);
        let growing = SHORTEST_PAUSE * (1 << self.errors.min(10));
        let asked_for = match error.retry() {
            Retry::After(delay) => delay,
            Retry::Never => LONGEST_PAUSE,
        };
        self.errors = self.errors.saturating_add(1);
        let pause = growing.max(asked_for).min(LONGEST_PAUSE);
        self.pause = Some(later(Instant::now(), pause));
    }

    /// Hands a delivery to whom it concerns. A full inbox holds up the source, so that nothing is lost.
    async fn deliver(&mut self, delivery: Delivery) {
        self.shared.count(|report| report.events += 1);
        metrics::add(metrics::EVENTS, 1);
        self.shared.source_is(true);
        let event = &delivery.event;
        self.shared.progress.begin(delivery.position, event);
        if event.kind != EventKind::Ping {
            self.seen.announced(event);
        }
        self.dispatch(delivery).await;
    }

    /// Hands over what a sweep found, unless it was announced.
    async fn take_found(&mut self, found: &Found) {
        if !self.seen.found(found) {
            return;
        }
        if self.dispatch(Delivery::new(Event::updated(found))).await {
            self.shared.count(|report| report.found_by_sweep += 1);
            metrics::add(metrics::FOUND, 1);
        }
    }

    /// Says whether it concerned anybody.
    async fn dispatch(&mut self, delivery: Delivery) -> bool {
        let mut concerned = self.tell_who_waits(&delivery.event).await;
        let owed = Owed::new(delivery);
        if let Some((keeper, inbox)) = &self.definitions
            && keeper.is_concerned(&owed.delivery.event)
        {
            concerned = true;
            let id = owed.delivery.event.breadcrumb_id;
            // Applied before the next event is matched, or soon if the store does not answer.
            if keeper.look_at(&self.shared.roster, id).await.is_err() {
                let owed = Arc::clone(&owed);
                // Nobody takes it only when the runtime stops, and then it is loaded at the next start.
                drop(inbox.send(Announced { id, owed }).await);
            }
        }
        let mut by_store: Vec<(u64, Vec<Arc<str>>)> = Vec::new();
        for triggered in self.triggered(&owed.delivery.event).await {
            let Triggered {
                executor: id, home, ..
            } = triggered;
            concerned = true;
            metrics::matched(&id);
            if !self.stores.contains_key(&home.number) {
                // It moved in a moment ago.
                self.open_places();
            }
            if let Some(inbox) = self.direct.get(&id) {
                if inbox.send(Arc::clone(&owed)).await.is_err() {
                    // Its task is gone, which only a shutdown or a removal does.
                    owed.want_again(PAUSE);
                }
                continue;
            }
            match by_store
                .iter_mut()
                .find(|(number, _)| *number == home.number)
            {
                Some((_, executors)) => executors.push(id),
                None => by_store.push((home.number, vec![id])),
            }
        }
        for (number, executors) in by_store {
            let inbox = self.stores.get(&number);
            let Some(inbox) = inbox.and_then(|tasks| tasks.arrivals.as_ref()) else {
                // It moved out a moment ago.
                owed.want_again(PAUSE);
                continue;
            };
            let arrival = Arrival {
                owed: Arc::clone(&owed),
                executors,
            };
            if inbox.send(arrival).await.is_err() {
                owed.want_again(PAUSE);
            }
        }
        owed.settle(&self.shared).await;
        concerned
    }

    /// The executors an event sets off. Where several of one store cannot be told without the context, which the event
    /// does not carry, the breadcrumb is read once for all of them.
    async fn triggered(&self, event: &Event) -> Vec<Triggered> {
        let mut triggered = self.shared.roster.triggered(event);
        let undecided = |triggered: &&Triggered| !triggered.surely;
        let mut asked: Vec<u64> = Vec::new();
        while let Some(home) = triggered
            .iter()
            .filter(undecided)
            .map(|triggered| Arc::clone(&triggered.home))
            .find(|home| !asked.contains(&home.number))
        {
            asked.push(home.number);
            let here = |triggered: &Triggered| triggered.home.number == home.number;
            if triggered
                .iter()
                .filter(undecided)
                .filter(|one| here(one))
                .count()
                < 2
            {
                continue;
            }
            let Ok(found) = in_time(home.store().get(event.breadcrumb_id)).await else {
                // Each of them finds out for itself.
                continue;
            };
            let whole = Event {
                kind: event.kind,
                context: Some(found.context.clone()),
                ..Event::updated(&found)
            };
            let mut decided = self.shared.roster.triggered(&whole);
            decided.retain(here);
            triggered.retain(|one| {
                !here(one)
                    || one.surely
                    || decided.iter().any(|other| other.executor == one.executor)
            });
        }
        triggered
    }

    async fn tell_who_waits(&self, event: &Event) -> bool {
        let mut told = false;
        if matches!(event.kind, EventKind::Ping | EventKind::Deleted) {
            return told;
        }
        for home in self.shared.roster.homes() {
            let (waits, sleepers) = (home.waits.concerned(event), home.wakes.concerned(event));
            if waits.is_empty() && sleepers.is_empty() {
                continue;
            }
            if let Some(tasks) = self.stores.get(&home.number) {
                let look = Look {
                    id: event.breadcrumb_id,
                    version: event.version,
                    waits,
                    sleepers,
                };
                told |= tasks.looks.send(look).await.is_ok();
            }
        }
        told
    }

    /// Opens the places of executors that came, and closes those of executors that went.
    fn open_places(&mut self) {
        let members = self.shared.roster.all();
        for member in &members {
            if !self.stores.contains_key(&member.home.number) {
                self.open_store(&member.home);
            }
            let id: Arc<str> = member.executor.id().into();
            if member.home.ledger().is_none() && !self.direct.contains_key(&id) {
                let (sender, inbox) = mpsc::channel(station::INBOX);
                let direct = Direct::new(Arc::clone(&self.shared), Arc::clone(&id), inbox);
                self.tasks.spawn(direct.run());
                self.direct.insert(id, sender);
            }
        }
        let roster = &self.shared.roster;
        self.direct.retain(|id, _| roster.get(id).is_some());
        let homes = roster.homes();
        self.stores
            .retain(|number, _| homes.iter().any(|home| home.number == *number));
    }

    fn open_store(&mut self, home: &Arc<Home>) {
        let (looks, inbox) = mpsc::channel(lookout::INBOX);
        let (shared, found) = (Arc::clone(&self.shared), self.found.0.clone());
        let lookout = Lookout::new(Arc::clone(&shared), Arc::clone(home), inbox, found);
        self.tasks.spawn(lookout.run());
        let arrivals = home.ledger().is_some().then(|| {
            let (sender, inbox) = mpsc::channel(station::INBOX);
            let station = Station::new(shared, Arc::clone(home), inbox);
            self.tasks.spawn(station.run());
            sender
        });
        let tasks = StoreTasks { arrivals, looks };
        self.stores.insert(home.number, tasks);
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn next(deliveries: &mut Option<Deliveries>) -> Option<Result<Delivery, SourceError>> {
    match deliveries {
        Some(deliveries) => deliveries.next().await,
        None => std::future::pending().await,
    }
}
