//! Answers the waits on one store, wakes suspended runs, and schedules the sweeps.

use super::answers::{self, To};
use super::checkpoint::{self, earlier};
use super::metrics;
use super::shared::{PAUSE, Shared, in_time};
use super::store_context::{Operation, StoreContext};
use super::suspended::{look_after, reconcile, search_from_oldest, wake};
use super::sweep::{self, Found, Swept};
use crate::clock::later;
use crate::error::Chain;
use crate::model::{Event, Timestamp};
use crate::store::StoreError;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// Maximum number of announcements that wait to be read from the store.
pub(super) const INBOX: usize = 16_384;

/// Maximum number of announcements that could not be read and are read again later.
const MOST_DEFERRED: usize = 16_384;

/// Maximum number of reads of an announced version that the store does not show. After that the announcement counts as wrong.
const MOST_ROUNDS: u32 = 128;

/// Number of running jobs at which the waker accepts no more announcements.
const AT_ONCE: usize = 64;

/// An announced version that may answer waits or wake suspended runs.
pub(super) struct Look {
    /// The event, without its context.
    pub(super) event: Event,
    pub(super) waits: Vec<u64>,
    /// If `true`, it may wake suspended runs.
    pub(super) may_wake: bool,
    /// Number of answers of the store that did not show the version.
    pub(super) rounds: u32,
}

impl Look {
    /// Drops the waits that ended. Returns `true` if any is left, or a suspended run may be woken.
    fn is_of_concern(&mut self, store_context: &StoreContext) -> bool {
        self.waits.retain(|wait| store_context.waits.is_open(*wait));
        self.may_wake = self.may_wake && store_context.wakes.concerns(&self.event);
        !self.waits.is_empty() || self.may_wake
    }

    /// Forgets the suspended runs, so that the next check of all suspended runs adds them again.
    pub(super) fn give_up(&self, store_context: &StoreContext) {
        if self.may_wake {
            store_context.wakes.forget_concerned(&self.event);
        }
    }
}

pub(super) struct Waker {
    shared: Arc<Shared>,
    store_context: Arc<StoreContext>,
    inbox: mpsc::Receiver<Look>,
    found: mpsc::Sender<Found>,
    opened: Instant,
    jobs: JoinSet<Done>,
    reconcile: Instant,
    check: Check,
    sweeps: Sweeps,
    catch_up: CatchUp,
    /// If `true`, the saved position is being loaded.
    loading: bool,
    /// Announcements whose breadcrumb could not be read.
    deferred: VecDeque<Look>,
    /// Time at which the deferred announcements are read again.
    again: Instant,
    search: Search,
}

/// State of the checks of all suspended runs.
#[derive(Default)]
struct Check {
    began: Option<Instant>,
    /// Earliest time of the next check: a check of many runs must not take most of the time.
    not_before: Option<Instant>,
    /// If `true`, the store is searched for answers of the runs that the last check has not searched.
    is_searching: bool,
}

/// State of the searches for answers that this runtime gets no event for: the source delivered the event to another worker, or the
/// runtime takes no events.
#[derive(Default)]
struct Search {
    /// Time up to which the store was searched.
    to: Option<Timestamp>,
    is_running: bool,
    /// Time of the next search. `None` during a search, and if this runtime gets every event.
    next: Option<Instant>,
}

/// State of the sweeps.
#[derive(Default)]
struct Sweeps {
    is_running: bool,
    /// If `true`, the next sweep also reads the last part before the position again.
    overlaps: bool,
    /// If `true`, the store could not read some breadcrumbs of the last sweep.
    has_unread: bool,
}

/// Progress of the catch-up: the sweeps from the start until one has read everything.
#[derive(Default)]
struct CatchUp {
    began: Option<Instant>,
    /// Number of breadcrumbs that all sweeps have read, including sweeps after the catch-up.
    breadcrumbs: usize,
    is_over: bool,
}

/// Result of a job.
enum Done {
    Looked,
    /// The store did not answer, or did not show the announced version.
    Deferred(Look),
    /// The check of all suspended runs ended. `listed` is `false` if the runs could not be listed.
    Reconciled {
        listed: bool,
    },
    /// The search for the answers of the runs that a check has not searched ended.
    SearchedFromOldest {
        read: bool,
    },
    /// The store was searched for answers up to this time. `None` if the search failed or must be repeated.
    Searched(Option<Timestamp>),
    /// A sweep ended. Without a result, the store could not be read, and a sweep is due again.
    Swept {
        swept: Option<Swept>,
        overlaps: bool,
        count: usize,
    },
    /// The load of the saved position ended. `loaded` is `false` if it failed.
    Loaded {
        loaded: bool,
    },
}

impl Waker {
    pub(super) fn new(
        shared: Arc<Shared>,
        store_context: Arc<StoreContext>,
        inbox: mpsc::Receiver<Look>,
        found: mpsc::Sender<Found>,
    ) -> Self {
        let search = Search {
            next: shared.source_is_shared.then(Instant::now),
            ..Search::default()
        };
        Self {
            shared,
            store_context,
            inbox,
            found,
            opened: Instant::now(),
            jobs: JoinSet::new(),
            reconcile: Instant::now(),
            check: Check::default(),
            sweeps: Sweeps {
                overlaps: true,
                ..Sweeps::default()
            },
            catch_up: CatchUp::default(),
            loading: false,
            deferred: VecDeque::new(),
            again: Instant::now(),
            search,
        }
    }

    /// Runs until the runtime stops or the store has no executors left.
    pub(super) async fn run(mut self) {
        let (stop, store_context) = (self.shared.stop.clone(), Arc::clone(&self.store_context));
        // A sweep of an earlier call of the runtime can have been dropped.
        store_context.checkpoint.end_sweep(false);
        loop {
            let room = self.jobs.len() < AT_ONCE;
            metrics::level(
                metrics::WAITS,
                store_context.number,
                store_context.waits.len(),
            );
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = store_context.empty.cancelled() => break,
                Some(done) = self.jobs.join_next() => match done {
                    Ok(done) => self.note(done),
                    // A job that panicked may have been any job, so all of them count as failed.
                    Err(_) => {
                        self.note(Done::Reconciled { listed: false });
                        self.note(Done::Swept {
                            swept: None,
                            overlaps: true,
                            count: 0,
                        });
                        if self.loading {
                            self.note(Done::Loaded { loaded: false });
                        }
                        self.check.is_searching = false;
                        if self.search.is_running {
                            self.note(Done::Searched(None));
                        }
                    }
                },
                look = self.inbox.recv(), if room => match look {
                    Some(look) => {
                        self.job(look_at(Arc::clone(&store_context), look));
                    }
                    None => stop.cancelled().await,
                },
                () = store_context.asked.notified(), if room => self.look_as_asked(),
                () = sleep_until(self.reconcile) => self.look_at_everything(),
                () = sleep_until(self.again), if room && !self.deferred.is_empty() => {
                    self.look_again();
                }
                () = until(self.search.next), if self.search.next.is_some() => self.search_for_answers(),
            }
        }
        // The next start has less to read.
        if self.shared.source_is_complete
            && let Some(newest) = self.shared.progress.newest()
        {
            store_context.checkpoint.delivered_before(newest);
        }
        save(&self.shared, &store_context).await;
    }

    fn job(&mut self, job: impl Future<Output = Done> + Send + 'static) {
        self.jobs.spawn(Arc::clone(&self.shared).unless_gone(job));
    }

    fn note(&mut self, done: Done) {
        match done {
            Done::Looked => {}
            Done::Deferred(look) => self.defer(look),
            Done::Reconciled { listed } => {
                self.end_check(listed);
                self.store_context.answered(Operation::List, listed);
                self.search_from_oldest();
                if !listed {
                    self.reconcile = self.reconcile.min(later(Instant::now(), PAUSE));
                }
            }
            Done::SearchedFromOldest { read } => {
                self.check.is_searching = false;
                self.store_context.answered(Operation::Read, read);
            }
            Done::Searched(newest) => self.note_searched(newest),
            Done::Swept {
                swept,
                overlaps,
                count,
            } => self.note_swept(swept, overlaps, count),
            Done::Loaded { loaded } => {
                self.loading = false;
                self.store_context.answered(Operation::Read, loaded);
                match loaded {
                    true => self.sweep(),
                    false => self.reconcile = self.reconcile.min(later(Instant::now(), PAUSE)),
                }
            }
        }
    }

    fn note_swept(&mut self, swept: Option<Swept>, overlaps: bool, count: usize) {
        self.sweeps.is_running = false;
        self.store_context
            .answered(Operation::Read, swept.is_some());
        self.catch_up.breadcrumbs += count;
        let Some(swept) = swept else {
            self.sweeps.overlaps |= overlaps;
            self.store_context.checkpoint.end_sweep(false);
            self.reconcile = self.reconcile.min(later(Instant::now(), PAUSE));
            return;
        };
        match swept {
            Swept::All => {
                self.sweeps.has_unread = false;
                self.note_caught_up();
            }
            Swept::Unread => self.sweeps.has_unread = true,
            Swept::Part => {}
        }
        self.store_context
            .checkpoint
            .end_sweep(swept != Swept::Part);
        // Another sweep may have been requested in the meantime.
        self.look_as_asked();
    }

    /// Logs the end of the catch-up after the start.
    fn note_caught_up(&mut self) {
        let began = self.catch_up.began;
        let elapsed = began.map_or(Duration::ZERO, |began| began.elapsed());
        if !std::mem::replace(&mut self.catch_up.is_over, true) {
            tracing::info!(
                store = self.store_context.number,
                breadcrumbs = self.catch_up.breadcrumbs,
                elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
                "caught up with the breadcrumbs committed since the saved position"
            );
        }
    }

    /// Defers an announcement, which is read again after [`PAUSE`] if a wait or a suspended run still needs it.
    fn defer(&mut self, look: Look) {
        if look.rounds >= MOST_ROUNDS || self.deferred.len() >= MOST_DEFERRED {
            let (id, version) = (look.event.breadcrumb_id, look.event.version);
            tracing::warn!(%id, version, "gave up reading an announced breadcrumb");
            look.give_up(&self.store_context);
            return;
        }
        if self.deferred.is_empty() {
            self.again = later(Instant::now(), PAUSE);
        }
        self.deferred.push_back(look);
    }

    fn look_again(&mut self) {
        self.again = later(Instant::now(), PAUSE);
        for _ in 0..self.deferred.len() {
            if self.jobs.len() >= AT_ONCE {
                return;
            }
            let Some(mut look) = self.deferred.pop_front() else {
                return;
            };
            if look.is_of_concern(&self.store_context) {
                self.job(look_at(Arc::clone(&self.store_context), look));
            }
        }
    }

    /// Searches the store for answers without an event. While nothing waits, the search only notes the time of the newest breadcrumb,
    /// after which the next search begins.
    fn search_for_answers(&mut self) {
        self.search.next = None;
        self.search.is_running = true;
        let (is_shared, is_waiting) = (
            self.shared.source_is_shared,
            self.store_context.has_waiting(),
        );
        // Until the runtime was blocked, the events told of all answers.
        let to = match is_shared {
            true => self.search.to,
            false => self.search.to.max(
                self.store_context
                    .blocked()
                    .and_then(|blocked| blocked.after),
            ),
        };
        let after = to.filter(|_| is_waiting);
        if after.is_none() && to.is_some() && !is_shared {
            return self.note_searched(None);
        }
        let (is_first, opened) = (to.is_none(), self.opened);
        let (shared, store_context) = (Arc::clone(&self.shared), Arc::clone(&self.store_context));
        self.job(async move {
            let searched = match after {
                Some(after) => {
                    answers::search(&shared, &store_context, after, To::WaitsAndSuspended).await
                }
                None => sweep::newest(store_context.store()).await,
            };
            if let Err(error) = &searched {
                tracing::warn!(code = error.code(), error = %Chain(error), "cannot search the store for answers, will retry");
            }
            store_context.answered(Operation::Read, searched.is_ok());
            Done::Searched(match (after, searched) {
                (_, Err(_)) => None,
                (Some(after), Ok(newest)) => Some(newest.max(after)),
                (None, Ok(newest)) if is_first => Some(earlier(newest, opened.elapsed())),
                // The answer to a wait that was opened in the meantime may be in the store already, so the next search must start earlier.
                (None, Ok(_)) if store_context.has_waiting() => None,
                (None, Ok(newest)) => Some(newest),
            })
        });
    }

    fn note_searched(&mut self, newest: Option<Timestamp>) {
        self.search.is_running = false;
        self.search.to = newest.or(self.search.to);
        let is_blocked = self.store_context.blocked().is_some();
        if !self.shared.source_is_shared && !is_blocked {
            return;
        }
        let interval = self.shared.settings.sweep;
        let is_urgent =
            is_blocked || self.store_context.waits.len() > 0 || self.search.to.is_none();
        let pause = match is_urgent {
            true => interval.min(PAUSE),
            false => interval,
        };
        self.search.next = Some(later(Instant::now(), pause));
    }

    /// Begins to search for answers if the runtime takes no events.
    fn search_if_blocked(&mut self) {
        let is_idle = self.search.next.is_none() && !self.search.is_running;
        if is_idle && self.store_context.blocked().is_some() {
            self.search_for_answers();
        }
    }

    fn look_as_asked(&mut self) {
        self.search_if_blocked();
        let suspended = self.store_context.take_suspended();
        if !suspended.is_empty() {
            let store_context = Arc::clone(&self.store_context);
            self.job(async move {
                for run in suspended {
                    look_after(&store_context, &run).await;
                }
                Done::Looked
            });
        }
        if self.store_context.take_everything() {
            self.look_at_everything();
        } else {
            self.sweep();
        }
    }

    /// Checks all suspended runs, also those of other workers, and searches the store for breadcrumbs without an event.
    fn look_at_everything(&mut self) {
        self.reconcile = later(Instant::now(), self.shared.settings.reconcile);
        self.check();
        if self.shared.source_is_complete && !self.sweeps.has_unread {
            self.save_delivered();
        } else {
            self.sweeps.overlaps = true;
            self.store_context.checkpoint.want();
        }
        self.sweep();
    }

    /// Begins a check of all suspended runs, unless one is running or ended a moment ago.
    fn check(&mut self) {
        let now = Instant::now();
        if self.check.began.is_some() {
            return;
        }
        if let Some(time) = self.check.not_before.filter(|time| now < *time) {
            self.reconcile = self.reconcile.min(time);
            return;
        }
        self.check.began = Some(now);
        let (shared, store_context) = (Arc::clone(&self.shared), Arc::clone(&self.store_context));
        self.job(async move {
            let listed = reconcile(&shared, &store_context).await;
            Done::Reconciled { listed }
        });
    }

    fn end_check(&mut self, listed: bool) {
        /// The time between two checks, as a multiple of the time of the first.
        const PAUSES: u32 = 10;
        /// Maximum time between two checks.
        const LONGEST: Duration = Duration::from_secs(600);
        let took = self.check.began.take().map(|began| began.elapsed());
        let pause = took.filter(|_| listed).unwrap_or_default();
        let pause = pause.saturating_mul(PAUSES).min(LONGEST);
        self.check.not_before = Some(later(Instant::now(), pause));
    }

    /// Searches the store for the answers of the runs that the last check has not searched.
    fn search_from_oldest(&mut self) {
        if self.check.is_searching {
            return;
        }
        let Some(after) = self.store_context.wakes.take_unsearched() else {
            return;
        };
        self.check.is_searching = true;
        let (shared, store_context) = (Arc::clone(&self.shared), Arc::clone(&self.store_context));
        self.job(async move {
            let read = search_from_oldest(&shared, &store_context, after).await;
            Done::SearchedFromOldest { read }
        });
    }

    /// Loads the saved position of this worker's executors, after an earlier attempt failed.
    fn load(&mut self) {
        if std::mem::replace(&mut self.loading, true) {
            return;
        }
        let (shared, store_context, opened) = (
            Arc::clone(&self.shared),
            Arc::clone(&self.store_context),
            self.opened,
        );
        self.job(async move {
            let loaded = checkpoint::load(&shared, &store_context, opened).await;
            if let Err(error) = &loaded {
                tracing::warn!(code = error.code(), error = %Chain(error), "cannot load the saved position, will retry");
            }
            Done::Loaded {
                loaded: loaded.is_ok(),
            }
        });
    }

    /// Saves the time up to which a complete source has delivered.
    fn save_delivered(&mut self) {
        if let Some(newest) = self.shared.progress.newest() {
            self.store_context.checkpoint.delivered_before(newest);
        }
        let (shared, store_context) = (Arc::clone(&self.shared), Arc::clone(&self.store_context));
        self.job(async move {
            save(&shared, &store_context).await;
            Done::Looked
        });
    }

    fn sweep(&mut self) {
        if self.sweeps.is_running {
            return;
        }
        if !self.store_context.checkpoint.is_loaded() {
            self.load();
            return;
        }
        if !self.store_context.checkpoint.begin_sweep() {
            return;
        }
        self.sweeps.is_running = true;
        let (shared, store_context) = (Arc::clone(&self.shared), Arc::clone(&self.store_context));
        let found = self.found.clone();
        let overlaps = std::mem::take(&mut self.sweeps.overlaps);
        self.catch_up.began.get_or_insert_with(Instant::now);
        self.job(async move {
            let mut count = 0;
            let swept = sweep::sweep(&shared, &store_context, &found, overlaps, &mut count).await;
            if let Err(error) = &swept {
                tracing::warn!(code = error.code(), error = %Chain(error), "cannot check the store for missed triggers, will retry");
            }
            Done::Swept {
                swept: swept.ok(),
                overlaps,
                count,
            }
        });
    }
}

/// Saves the position. A failed save is repeated by the next save.
async fn save(shared: &Shared, store_context: &StoreContext) {
    if let Err(error) = checkpoint::save(shared, store_context).await {
        tracing::warn!(code = error.code(), error = %Chain(&error), "cannot save the position, will retry");
    }
}

/// Reads the breadcrumb of an event, and passes it to the waits and suspended runs that it answers.
async fn look_at(store_context: Arc<StoreContext>, mut look: Look) -> Done {
    const TRIES: u32 = 4;
    let mut pause = Duration::from_millis(100);
    let reads_own_writes = store_context.store().capabilities().reads_own_writes;
    for _ in 0..TRIES {
        match in_time(store_context.store().get(look.event.breadcrumb_id)).await {
            Ok(found) if found.version >= look.event.version || reads_own_writes => {
                store_context.waits.answer(&look.waits, &found);
                if look.may_wake {
                    for candidate in store_context.wakes.concerned(&found) {
                        wake(&store_context, &candidate, &found).await;
                    }
                }
                return Done::Looked;
            }
            Err(StoreError::NotFound { .. }) if reads_own_writes => return Done::Looked,
            // The version is not visible in the store.
            Ok(_) | Err(StoreError::NotFound { .. }) => look.rounds += 1,
            // The store is unavailable.
            Err(_) => {}
        }
        sleep(pause).await;
        pause *= 2;
    }
    Done::Deferred(look)
}

/// Waits until `moment`. Never returns if `moment` is `None`.
pub(super) async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
