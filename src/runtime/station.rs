//! The runs of the executors on one store: put into the ledger, claimed from it, processed side by side, given back at
//! the end.

use super::desk::{Desk, Ended, Free};
use super::home::Home;
use super::limits::Ticket;
use super::metrics;
use super::process::{self, Processed};
use super::roster::Member;
use super::shared::{Owed, PAUSE, Shared, in_time};
use crate::clock::later;
use crate::executor::{Execution, ExecutorError, Offer, OrderingKey, Outcome, under};
use crate::store::{ExecutorLimits, Lease, Run, RunFilter, RunRef, StoreError};
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::{self, AbortHandle, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout_at};

/// How many deliveries may wait for a ledger that does not answer before the source is held up.
pub(super) const INBOX: usize = 1_024;

/// How many deliveries are put into the ledger in one step, and how many runs are claimed in one.
const BATCH: usize = 64;

/// How many executors are asked for in one claim.
const MOST_ASKED: usize = 256;

/// A delivery, and the executors of this store that it sets off.
pub(super) struct Arrival {
    pub(super) owed: Arc<Owed>,
    pub(super) executors: Vec<Arc<str>>,
}

pub(super) struct Station {
    shared: Arc<Shared>,
    home: Arc<Home>,
    inbox: mpsc::Receiver<Arrival>,
    /// Deliveries whose runs are not in the ledger yet, and when to try again.
    owed: Vec<Arrival>,
    owed_at: Instant,
    desks: HashMap<Arc<str>, Desk>,
    /// Executors that may have runs to claim, in the order in which their turn comes.
    hot: VecDeque<Arc<str>>,
    /// When executors may have runs to claim; the sweep finds what is left out here.
    due: BTreeMap<Instant, BTreeSet<Arc<str>>>,
    sweep: Instant,
    running: JoinSet<Work>,
    started: HashMap<task::Id, Started>,
    /// The runs of what was started.
    runs: HashMap<RunRef, Running>,
    /// Whether leases may be parked that were never listed.
    parked: bool,
}

/// What was started.
struct Started {
    executor: Arc<str>,
    run: RunRef,
    offer: Arc<Offer>,
    /// None if it was put off.
    ticket: Option<Ticket>,
    ordered: bool,
    at_most_once: bool,
    at: Instant,
}

/// The task that has a run, and the token of the lease with which it began.
struct Running {
    task: AbortHandle,
    token: u64,
}

/// What a task of a station came to.
enum Work {
    Processed(Processed),
    /// The run was put off.
    Held,
}

impl Station {
    pub(super) fn new(
        shared: Arc<Shared>,
        home: Arc<Home>,
        inbox: mpsc::Receiver<Arrival>,
    ) -> Self {
        let now = Instant::now();
        Self {
            sweep: later(now, shared.settings.sweep),
            shared,
            home,
            inbox,
            owed: Vec::new(),
            owed_at: now,
            desks: HashMap::new(),
            hot: VecDeque::new(),
            due: BTreeMap::new(),
            running: JoinSet::new(),
            started: HashMap::new(),
            runs: HashMap::new(),
            parked: false,
        }
    }

    /// Claims and processes runs until it is told to stop, then lets them finish.
    pub(super) async fn run(mut self) {
        let stop = self.shared.stop.clone();
        let (home, mut changes) = (Arc::clone(&self.home), self.shared.roster.changes());
        // Runs may be left over from before.
        self.look_at_all();
        loop {
            let wake = self.next_look();
            let owes = !self.owed.is_empty();
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = home.empty.cancelled() => break,
                Some(finished) = self.running.join_next_with_id() => self.finish(finished).await,
                place = Arc::clone(&self.shared.places).acquire_owned(), if !self.hot.is_empty() => {
                    if let Ok(place) = place {
                        self.claim(place).await;
                    }
                }
                () = sleep_until(self.owed_at), if owes => self.keep_owed().await,
                arrived = self.inbox.recv_many(&mut self.owed, BATCH), if !owes => match arrived {
                    // Nothing more can arrive.
                    0 => stop.cancelled().await,
                    _ => self.keep_owed().await,
                },
                () = home.nudged.notified() => {
                    for executor in home.nudges() {
                        self.heat(&executor);
                    }
                }
                Ok(()) = changes.changed() => self.look_at_all(),
                () = sleep_until(wake) => self.look_at_due(Instant::now()),
            }
        }
        // What has arrived is kept, so that it need not come again.
        while let Ok(arrival) = self.inbox.try_recv() {
            self.owed.push(arrival);
        }
        if !self.owed.is_empty() {
            self.keep_owed().await;
        }
        self.drain().await;
    }

    fn next_look(&self) -> Instant {
        let first = self.due.first_key_value().map(|(due, _)| *due);
        first.map_or(self.sweep, |due| self.sweep.min(due))
    }

    /// Every executor that lives here may have runs to claim.
    fn look_at_all(&mut self) {
        let living = self.shared.roster.at_home(&self.home);
        self.desks
            .retain(|id, desk| !desk.is_idle() || living.contains(id));
        for executor in &living {
            self.heat(executor);
        }
    }

    fn look_at_due(&mut self, now: Instant) {
        while let Some(first) = self.due.first_entry().filter(|first| *first.key() <= now) {
            for executor in first.remove() {
                self.heat(&executor);
            }
        }
        if now >= self.sweep {
            self.sweep = later(now, self.shared.settings.sweep);
            self.look_at_all();
        }
    }

    /// Notes that an executor may have runs to claim.
    fn heat(&mut self, executor: &Arc<str>) {
        let now = Instant::now();
        let desk = match self.desks.get_mut(executor) {
            Some(desk) => desk,
            None => self
                .desks
                .entry(Arc::clone(executor))
                .or_insert_with(|| Desk::new(now)),
        };
        if !desk.hot {
            desk.hot = true;
            self.hot.push_back(Arc::clone(executor));
        }
    }

    fn look_again_at(&mut self, moment: Instant, executor: Arc<str>) {
        const MOST: usize = 10_000;
        if self.due.len() < MOST {
            self.due.entry(moment).or_default().insert(executor);
        }
    }

    /// Puts a run into the ledger for every executor that every delivery owed sets off: all at once, or as many as it
    /// has room for.
    async fn keep_owed(&mut self) {
        let mut at_once = BATCH;
        while !self.owed.is_empty() {
            let some = self.owed.get(..at_once.min(self.owed.len()));
            let some = some.unwrap_or_default();
            let kept = in_time(process::keep(&self.home, &self.shared.roster, some)).await;
            match kept {
                Ok(()) => {
                    self.home.answered(true);
                    for arrival in self
                        .owed
                        .drain(..at_once.min(self.owed.len()))
                        .collect::<Vec<_>>()
                    {
                        for executor in &arrival.executors {
                            self.heat(executor);
                        }
                        arrival.owed.settle(&self.shared).await;
                    }
                }
                Err(StoreError::Full { .. }) if at_once > 1 => at_once = 1,
                Err(error) => {
                    self.home.answered(false);
                    tracing::warn!(error = error.code(), "runs could not be enqueued");
                    self.owed_at = later(Instant::now(), PAUSE);
                    break;
                }
            }
        }
        let waiting = self.owed.len() + self.inbox.len();
        metrics::level(metrics::QUEUE, self.home.number, waiting);
    }

    /// Claims due runs of the executors whose turn it is, as many as there are places at hand.
    async fn claim(&mut self, place: OwnedSemaphorePermit) {
        let asked = self.whose_turn();
        let wanted: usize = asked.iter().map(|limits| limits.free).sum();
        if wanted == 0 {
            return;
        }
        let mut places = vec![place];
        while places.len() < wanted.min(BATCH) {
            match Arc::clone(&self.shared.places).try_acquire_owned() {
                Ok(place) => places.push(place),
                Err(_) => break,
            }
        }
        let home = Arc::clone(&self.home);
        match in_time(claim_due(&home, places.len(), &asked, self.parked)).await {
            Ok(claimed) => {
                home.answered(true);
                self.parked = false;
                let new = self.not_running(claimed);
                if self.shared.stop.is_cancelled() {
                    for (lease, _) in new {
                        process::give_back(&home, lease, process::Because::Dropped).await;
                    }
                } else {
                    self.start_all(new, places, &asked).await;
                }
            }
            Err(error) => {
                home.answered(false);
                tracing::warn!(error = error.code(), "no runs could be claimed");
                self.parked = true;
                let again = later(Instant::now(), PAUSE);
                for limits in asked {
                    self.look_again_at(again, limits.executor);
                }
            }
        }
    }

    /// The executors whose turn it is and how much each may start; they are hot no more.
    fn whose_turn(&mut self) -> Vec<ExecutorLimits> {
        let now = Instant::now();
        let mut asked = Vec::new();
        while asked.len() < MOST_ASKED {
            let Some(executor) = self.hot.pop_front() else {
                break;
            };
            let Some(desk) = self.desks.get_mut(&executor) else {
                continue;
            };
            desk.hot = false;
            let Some(member) = self.shared.roster.get(&executor) else {
                continue;
            };
            let most = self.shared.settings.max_inflight;
            match desk.free(member.executor.profile(), most, now) {
                Free::Runs(free) => asked.push(ExecutorLimits::new(executor, free)),
                Free::NotBefore(moment) => self.look_again_at(moment, executor),
                Free::Busy => desk.more = true,
            }
        }
        asked
    }

    /// Without the leases that a task has which did not get round to taking them. A task that has an older lease of the
    /// same run can write nothing more, so it ends.
    fn not_running(&mut self, mut claimed: Vec<(Lease, u32)>) -> Vec<(Lease, u32)> {
        claimed.retain(|(lease, _)| match self.runs.get(&lease.run) {
            Some(running) if running.token == lease.token => false,
            Some(running) => {
                running.task.abort();
                true
            }
            None => true,
        });
        claimed
    }

    /// Starts what was claimed; who may have more keeps its turn. What a claim took whose reply was lost may be more
    /// than there is room for, and is given back.
    async fn start_all(
        &mut self,
        new: Vec<(Lease, u32)>,
        places: Vec<OwnedSemaphorePermit>,
        asked: &[ExecutorLimits],
    ) {
        let all_places_taken = new.len() >= places.len();
        let mut places = places.into_iter();
        let mut started: HashMap<Arc<str>, usize> = HashMap::new();
        for (lease, attempts) in new {
            let executor = Arc::clone(&lease.run.executor);
            let free = asked.iter().find(|limits| limits.executor == executor);
            let free = free.map_or(0, |limits| limits.free);
            let got = started.entry(Arc::clone(&executor)).or_default();
            if *got < free
                && let Some(place) = places.next()
            {
                *got += 1;
                self.start(lease, attempts, place).await;
            } else {
                process::give_back(&self.home, lease, process::Because::Dropped).await;
                self.heat(&executor);
            }
        }
        started.retain(|_, got| *got > 0);
        let got = |limits: &&ExecutorLimits| started.get(&limits.executor).copied();
        // Who got nothing comes before who got something.
        let (served, unserved): (Vec<_>, Vec<_>) =
            asked.iter().partition(|limits| got(limits).is_some());
        if all_places_taken {
            for limits in unserved {
                self.heat(&limits.executor);
            }
        }
        for limits in served {
            if all_places_taken || got(&limits) >= Some(limits.free) {
                self.heat(&limits.executor);
            }
        }
    }

    async fn start(&mut self, lease: Lease, attempts: u32, place: OwnedSemaphorePermit) {
        let id = Arc::clone(&lease.run.executor);
        let here = |member: &Member| member.home.number == self.home.number;
        let Some(member) = self.shared.roster.get(&id).filter(here) else {
            // It was removed or moved since; whoever has it next finds the run as it was.
            process::give_back(&self.home, lease, process::Because::Dropped).await;
            return;
        };
        let now = Instant::now();
        let desk = self
            .desks
            .entry(Arc::clone(&id))
            .or_insert_with(|| Desk::new(now));
        let again = attempts > 1 && lease.abandoned == 0;
        let ticket = desk.start(again, now);
        if let Err(moment) = ticket {
            self.look_again_at(moment, Arc::clone(&id));
        }
        self.home.wakes.remove(&lease.run);
        let profile = member.executor.profile();
        let ordered = profile.ordering != OrderingKey::None;
        let at_most_once = profile.execution == Execution::AtMostOnce;
        let lag = lag(&lease);
        let offer = Offer::new(Arc::clone(&self.home.waits), Some(lease.clone()));
        let (run, token, home) = (lease.run.clone(), lease.token, Arc::clone(&self.home));
        let put_off = ticket
            .err()
            .map(|moment| moment.saturating_duration_since(now));
        let shared = Arc::clone(&self.shared);
        let work = async move {
            let work = match put_off {
                None => work_on(&shared, &home, member, lease, attempts).await,
                Some(delay) => {
                    process::give_back(&home, lease, process::Because::NotNow { delay }).await;
                    Work::Held
                }
            };
            drop(place);
            work
        };
        let work = under(Arc::clone(&offer), work);
        let work = Arc::clone(&self.shared).unless_gone(work);
        let task = self.running.spawn(work);
        metrics::started(&id, lag);
        let running = Running {
            task: task.clone(),
            token,
        };
        self.runs.insert(run.clone(), running);
        let started = Started {
            executor: id,
            run,
            offer,
            ticket: ticket.ok(),
            ordered,
            at_most_once,
            at: now,
        };
        self.started.insert(task.id(), started);
    }

    async fn finish(&mut self, finished: Result<(task::Id, Work), JoinError>) {
        let id = finished.as_ref().map_or_else(JoinError::id, |(id, _)| *id);
        let Some(started) = self.started.remove(&id) else {
            return;
        };
        if self
            .runs
            .get(&started.run)
            .is_some_and(|running| running.task.id() == id)
        {
            self.runs.remove(&started.run);
        }
        let now = Instant::now();
        let took = now.saturating_duration_since(started.at);
        metrics::ended(&started.executor, outcome_of(&finished), took);
        let how = match &finished {
            Ok((_, Work::Processed(processed))) => Ended::of(processed),
            Ok((_, Work::Held)) => Ended::Neither,
            Err(error) if error.is_panic() => Ended::Badly,
            Err(_) => Ended::Neither,
        };
        if let Some(desk) = self.desks.get_mut(&started.executor) {
            desk.end(started.ticket, how, now);
            if std::mem::take(&mut desk.more) || started.ordered {
                self.heat(&started.executor);
            }
        }
        match finished {
            Ok((_, Work::Held)) => {}
            Ok((_, Work::Processed(processed))) => self.note(&started, &processed, now),
            Err(error) => self.take_back(&started, error.is_panic(), now).await,
        }
    }

    /// Counts what a run came to, and sees to it that it is looked at when it goes on.
    fn note(&mut self, started: &Started, processed: &Processed, now: Instant) {
        self.shared.count(|report| report.count(processed));
        match processed {
            Ok(Outcome::Suspended { .. }) => {
                let run = started
                    .offer
                    .lease()
                    .map_or_else(|| started.run.clone(), |lease| lease.run);
                self.home.suspended(run);
            }
            Ok(_) => {}
            Err(ExecutorError::Postponed { delay, .. }) => {
                self.look_again_at(later(now, *delay), Arc::clone(&started.executor));
            }
            Err(error) => tracing::debug!(
                executor = &*started.executor,
                error = error.code(),
                "a run did not end"
            ),
        }
    }

    /// Gives back a run whose task is gone: at once if it was dropped, when its lease would be over if it panicked.
    async fn take_back(&mut self, started: &Started, panicked: bool, now: Instant) {
        let stopped = self.shared.stop.is_cancelled();
        self.shared.count(|report| match (panicked, stopped) {
            (true, _) => report.panics += 1,
            (false, true) => report.dropped += 1,
            // Its lease had run out before it ended.
            (false, false) => report.errors += 1,
        });
        let Some(lease) = started.offer.lease() else {
            return;
        };
        if panicked {
            self.look_again_at(later(now, lease.run.lease), Arc::clone(&started.executor));
            process::give_back(&self.home, lease, process::Because::Panicked).await;
        } else if !started.at_most_once {
            process::give_back(&self.home, lease, process::Because::Dropped).await;
        }
        // How far one came that may run once is unknown; once its lease is over that is what its dead letter says.
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

/// Processes a run, or gives it back if nobody here may.
async fn work_on(
    shared: &Shared,
    home: &Home,
    member: Member,
    lease: Lease,
    attempts: u32,
) -> Work {
    let because = match process::whose(shared, member, &lease).await {
        Ok(Some(member)) => {
            let processed = process::process(&*member.executor, &lease, attempts).await;
            return Work::Processed(processed);
        }
        Ok(None) => process::Because::Dropped,
        Err(error) => {
            tracing::warn!(run = %lease.run, error = error.code(), "a run is processed later");
            process::Because::NotNow { delay: PAUSE }
        }
    };
    process::give_back(home, lease, because).await;
    Work::Held
}

/// How long a run waited since its event was committed.
fn lag(lease: &Lease) -> Duration {
    let committed = lease.run.event.as_ref().map(|event| event.updated_at);
    committed.map_or(Duration::ZERO, |committed| {
        lease.granted_at.since(committed)
    })
}

/// How an attempt ended, as a label.
fn outcome_of(finished: &Result<(task::Id, Work), JoinError>) -> &'static str {
    match finished {
        Ok((_, Work::Held)) => "held",
        Ok((_, Work::Processed(processed))) => process::label(processed),
        Err(error) if error.is_panic() => "panic",
        Err(_) => "dropped",
    }
}

/// Claims up to `n` due runs, and lists what is parked in this handle with the attempts it has had.
async fn claim_due(
    home: &Home,
    n: usize,
    asked: &[ExecutorLimits],
    list_anyway: bool,
) -> Result<Vec<(Lease, u32)>, StoreError> {
    let Some(ledger) = home.ledger() else {
        return Ok(Vec::new());
    };
    if ledger.claim_next(n, asked).await? == 0 && !list_anyway {
        return Ok(Vec::new());
    }
    let parked = ledger.runs(&RunFilter::parked()).await?;
    let lease = |run: Run| Some((run.lease?, run.attempts));
    Ok(parked.into_iter().filter_map(lease).collect())
}
