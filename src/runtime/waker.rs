//! Task of one store that answers open waits, wakes suspended runs, and schedules the sweeps for triggers whose events did not arrive.

mod look;
mod search;

pub(super) use self::look::Look;
use self::look::look_at;
use self::search::{Check, Search};
use super::checkpoint::SweepOutcome;
use super::metrics;
use super::saved_position;
use super::shared::Shared;
use super::store_context::{Operation, StoreContext};
use super::suspended::look_after;
use super::sweep::{self, SweptBreadcrumb};
use super::timeouts::PAUSE;
use crate::clock::later;
use crate::error::Chain;
use crate::model::Timestamp;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Maximum length of the queue of announced breadcrumbs, which the waker task reads for waits and suspended runs.
pub(super) const INBOX: usize = 16_384;

/// Maximum number of announced breadcrumbs whose read failed and is repeated later.
const MOST_DEFERRED: usize = 16_384;

/// Maximum number of reads of an announced breadcrumb version while the store does not return this version. After that the announcement
/// counts as wrong.
const MOST_ROUNDS: u32 = 128;

/// Maximum number of running jobs of a store's waker task. At this limit, the task reads no more announced breadcrumbs.
const AT_ONCE: usize = 64;

pub(super) struct Waker {
    shared: Arc<Shared>,
    store_context: Arc<StoreContext>,
    inbox: mpsc::Receiver<Look>,
    intake: mpsc::Sender<SweptBreadcrumb>,
    opened: Instant,
    jobs: JoinSet<Done>,
    reconcile: Instant,
    check: Check,
    sweeps: SweepJobs,
    catch_up: CatchUp,
    /// If `true`, the executors' saved position is being loaded from the ledger.
    loading: bool,
    /// Announced breadcrumbs that could not be read for waits and suspended runs.
    deferred: VecDeque<Look>,
    /// Time at which the waker reads the deferred breadcrumbs again.
    again: Instant,
    search: Search,
}

/// State of the sweeps of a store for triggers whose events did not arrive.
#[derive(Default)]
struct SweepJobs {
    is_running: bool,
    /// If `true`, the next sweep reads the breadcrumbs of the last [`OVERLAP`](super::checkpoint::OVERLAP) before the saved position again.
    overlaps: bool,
}

/// Progress of the catch-up, which consists of the sweeps from the start of the runtime until the first complete sweep.
#[derive(Default)]
struct CatchUp {
    began: Option<Instant>,
    /// Number of breadcrumbs that all sweeps have read, including sweeps after the catch-up.
    breadcrumbs: usize,
    is_over: bool,
}

/// Result of a job of the waker of one store.
enum Done {
    Looked,
    /// The store did not answer or did not return the announced breadcrumb version, so the read is repeated later.
    Deferred(Look),
    /// The check of all suspended runs ended. `listed` is `false` if the runs could not be listed.
    Reconciled {
        listed: bool,
    },
    /// The joint search for the answers of several suspended runs ended. `read` is `false` if the search failed.
    SearchedFromOldest {
        read: bool,
    },
    /// The store was searched for answers to waits up to this time. `None` if the search failed or must be repeated.
    Searched(Option<Timestamp>),
    /// A sweep for triggers ended. Without a result, the store could not be read, and a sweep is due again.
    SweepEnded {
        swept: Option<SweepOutcome>,
        overlaps: bool,
        count: usize,
    },
    /// The load of the executors' saved position ended. `loaded` is `false` if it failed.
    Loaded {
        loaded: bool,
    },
}

impl Waker {
    pub(super) fn new(
        shared: Arc<Shared>,
        store_context: Arc<StoreContext>,
        inbox: mpsc::Receiver<Look>,
        intake: mpsc::Sender<SweptBreadcrumb>,
    ) -> Self {
        let search = Search {
            next: shared.source_is_shared.then(Instant::now),
            ..Search::default()
        };
        Self {
            shared,
            store_context,
            inbox,
            intake,
            opened: Instant::now(),
            jobs: JoinSet::new(),
            reconcile: Instant::now(),
            check: Check::default(),
            sweeps: SweepJobs {
                overlaps: true,
                ..SweepJobs::default()
            },
            catch_up: CatchUp::default(),
            loading: false,
            deferred: VecDeque::new(),
            again: Instant::now(),
            search,
        }
    }

    /// Answers waits and wakes suspended runs until the runtime stops or the store has no executors left.
    pub(super) async fn run(mut self) {
        let (stop, store_context) = (self.shared.stop.clone(), Arc::clone(&self.store_context));
        // A sweep of an earlier call of the runtime can have been dropped.
        store_context.checkpoint.end_sweep(None);
        loop {
            let room = self.jobs.len() < AT_ONCE;
            metrics::set_gauge(
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
                        self.note(Done::SweepEnded {
                            swept: None,
                            overlaps: true,
                            count: 0,
                        });
                        if self.loading {
                            self.note(Done::Loaded { loaded: false });
                        }
                        if let Some(after) = self.check.searching.take() {
                            store_context.wakes.note_unsearched(after);
                        }
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
        if self.shared.source_is_complete {
            self.note_delivered();
        }
        save(&self.shared, &store_context).await;
    }

    fn job(&mut self, job: impl Future<Output = Done> + Send + 'static) {
        self.jobs.spawn(Arc::clone(&self.shared).until_ended(job));
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
                self.check.searching = None;
                self.store_context.answered(Operation::Read, read);
            }
            Done::Searched(newest) => self.note_searched(newest),
            Done::SweepEnded {
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

    fn note_swept(&mut self, swept: Option<SweepOutcome>, overlaps: bool, count: usize) {
        self.sweeps.is_running = false;
        self.store_context
            .answered(Operation::Read, swept.is_some());
        self.catch_up.breadcrumbs += count;
        let Some(swept) = swept else {
            self.sweeps.overlaps |= overlaps;
            self.store_context.checkpoint.end_sweep(None);
            self.reconcile = self.reconcile.min(later(Instant::now(), PAUSE));
            return;
        };
        match swept {
            SweepOutcome::All => self.note_caught_up(),
            SweepOutcome::Unread | SweepOutcome::Incomplete => {}
        }
        self.store_context.checkpoint.end_sweep(Some(swept));
        // Another sweep may have been requested in the meantime.
        self.look_as_asked();
    }

    /// Logs once that the catch-up has read all breadcrumbs that were committed before the start of the runtime.
    fn note_caught_up(&mut self) {
        let began = self.catch_up.began;
        let elapsed = began.map_or(Duration::ZERO, |began| began.elapsed());
        if !std::mem::replace(&mut self.catch_up.is_over, true) {
            tracing::info!(
                store = self.store_context.number,
                breadcrumbs = self.catch_up.breadcrumbs,
                elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
                "caught up with the breadcrumbs committed before the start"
            );
        }
    }

    /// Defers the read of an announced breadcrumb: it is read again after [`PAUSE`] if a wait or a suspended run still needs it.
    fn defer(&mut self, look: Look) {
        if look.rounds >= MOST_ROUNDS || self.deferred.len() >= MOST_DEFERRED {
            let (id, version) = (look.event.breadcrumb_id, look.event.version);
            tracing::warn!(%id, version, "cannot read a breadcrumb that an event announced; a wait for it may time out, and a suspended run wakes late");
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

    /// Checks all suspended runs of this runtime's executors, including runs that other workers suspended. Also sweeps the store for
    /// breadcrumbs whose events did not arrive.
    fn look_at_everything(&mut self) {
        self.reconcile = later(Instant::now(), self.shared.settings.reconcile);
        self.check_suspended();
        if self.shared.source_is_complete && !self.store_context.checkpoint.has_unread() {
            self.save_delivered();
        } else {
            self.sweeps.overlaps = true;
            self.store_context.checkpoint.request_sweep();
        }
        self.sweep();
    }

    /// Loads the saved position of this worker's executors from the ledger, after an earlier attempt failed.
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
            let loaded = saved_position::load(&shared, &store_context, opened).await;
            if let Err(error) = &loaded {
                tracing::warn!(code = error.code(), error = %Chain(error), "cannot load the executors' saved position from the run ledger, will retry");
            }
            Done::Loaded {
                loaded: loaded.is_ok(),
            }
        });
    }

    /// Records the time up to which an event source that reports lost events has delivered all events.
    fn note_delivered(&self) {
        if let Some(newest) = self.shared.progress.newest() {
            let checkpoint = &self.store_context.checkpoint;
            checkpoint.note_delivered_before(newest);
        }
    }

    /// Saves the time up to which an event source that reports lost events has delivered all events.
    fn save_delivered(&mut self) {
        self.note_delivered();
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
        let intake = self.intake.clone();
        let overlaps = std::mem::take(&mut self.sweeps.overlaps);
        self.catch_up.began.get_or_insert_with(Instant::now);
        self.job(async move {
            let mut count = 0;
            let swept = sweep::sweep(&shared, &store_context, &intake, overlaps, &mut count).await;
            if let Err(error) = &swept {
                tracing::warn!(code = error.code(), error = %Chain(error), "cannot check the store for missed triggers, will retry");
            }
            Done::SweepEnded {
                swept: swept.ok(),
                overlaps,
                count,
            }
        });
    }
}

/// Saves the executors' position in the ledger. A failed save is repeated by the next save.
async fn save(shared: &Shared, store_context: &StoreContext) {
    if let Err(error) = saved_position::save(shared, store_context).await {
        tracing::warn!(code = error.code(), error = %Chain(&error), "cannot save the executors' position in the run ledger, will retry");
    }
}

/// Waits until `moment`. Never returns if `moment` is `None`.
pub(super) async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
