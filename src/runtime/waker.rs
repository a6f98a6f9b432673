//! Task of one store that answers open `wait_for` calls, wakes suspended runs, and schedules the sweeps for triggers whose events did not
//! arrive.

mod announced;
mod search;

pub(super) use self::announced::AnnouncedBreadcrumb;
use self::announced::read_announced;
use self::search::{AnswerSearch, SuspendedCheck};
use super::checkpoint::SweepOutcome;
use super::metrics;
use super::saved_position;
use super::shared::Shared;
use super::store_context::{Operation, StoreContext};
use super::suspended::register_suspended;
use super::sweep::{self, SweptBreadcrumb};
use super::timeouts::RETRY_PAUSE;
use crate::clock::later;
use crate::error::Chain;
use crate::model::Timestamp;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Maximum number of announced breadcrumbs that wait to be read for open `wait_for` calls and suspended runs.
pub(super) const INBOX: usize = 16_384;

/// Maximum number of announced breadcrumbs whose read failed and is repeated later.
const MAX_DEFERRED: usize = 16_384;

/// Maximum number of reads of an announced breadcrumb version while the store does not return this version. After that the announcement
/// counts as wrong.
const MAX_ROUNDS: u32 = 128;

/// Maximum number of concurrent reads, searches and sweeps that one store's background task runs. At this limit, the task reads no more
/// announced breadcrumbs.
const MAX_JOBS: usize = 64;

pub(super) struct Waker {
    shared: Arc<Shared>,
    store_context: Arc<StoreContext>,
    inbox: mpsc::Receiver<AnnouncedBreadcrumb>,
    intake: mpsc::Sender<SweptBreadcrumb>,
    started_at: Instant,
    jobs: JoinSet<JobResult>,
    reconcile_at: Instant,
    check: SuspendedCheck,
    sweeps: SweepJobs,
    catch_up: CatchUp,
    /// If `true`, the executors' saved read position is being loaded from the ledger.
    loading: bool,
    /// Announced breadcrumbs whose read failed and is repeated later, for open `wait_for` calls and suspended runs.
    deferred: VecDeque<AnnouncedBreadcrumb>,
    /// Time at which the announced breadcrumbs whose read failed are read again.
    read_deferred_at: Instant,
    search: AnswerSearch,
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

/// Result of a concurrent task on one store, such as a read of an announced breadcrumb or a sweep for triggers.
enum JobResult {
    Finished,
    /// The store did not answer or did not return the announced breadcrumb version, so the read is repeated later.
    Deferred(AnnouncedBreadcrumb),
    /// The check of all suspended runs ended. `listed` is `false` if the runs could not be listed.
    Reconciled {
        listed: bool,
    },
    /// The search of the store for the breadcrumbs that wake several suspended runs ended. `read` is `false` if the search failed.
    SearchedFromOldest {
        read: bool,
    },
    /// The store was searched up to this time for breadcrumbs that answer open `wait_for` calls. `None` if the search failed or must be
    /// repeated.
    Searched(Option<Timestamp>),
    /// A sweep for triggers ended. Without a result, the store could not be read, and a sweep is due again.
    SweepEnded {
        swept: Option<SweepOutcome>,
        overlaps: bool,
        count: usize,
    },
    /// The load of the executors' saved read position ended. `loaded` is `false` if it failed.
    Loaded {
        loaded: bool,
    },
}

impl Waker {
    pub(super) fn new(
        shared: Arc<Shared>,
        store_context: Arc<StoreContext>,
        inbox: mpsc::Receiver<AnnouncedBreadcrumb>,
        intake: mpsc::Sender<SweptBreadcrumb>,
    ) -> Self {
        let search = AnswerSearch {
            next: shared.source_is_shared.then(Instant::now),
            ..AnswerSearch::default()
        };
        Self {
            shared,
            store_context,
            inbox,
            intake,
            started_at: Instant::now(),
            jobs: JoinSet::new(),
            reconcile_at: Instant::now(),
            check: SuspendedCheck::default(),
            sweeps: SweepJobs {
                overlaps: true,
                ..SweepJobs::default()
            },
            catch_up: CatchUp::default(),
            loading: false,
            deferred: VecDeque::new(),
            read_deferred_at: Instant::now(),
            search,
        }
    }

    /// Answers open `wait_for` calls and wakes suspended runs until the runtime stops or the store has no executors left.
    pub(super) async fn run(mut self) {
        let (stop, store_context) = (self.shared.stop.clone(), Arc::clone(&self.store_context));
        // A sweep of an earlier call of the runtime can have been dropped.
        store_context.checkpoint.end_sweep(None);
        loop {
            let has_capacity = self.jobs.len() < MAX_JOBS;
            metrics::set_gauge(
                metrics::WAITS,
                store_context.number,
                store_context.waits.len(),
            );
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                () = store_context.no_executors.cancelled() => break,
                Some(done) = self.jobs.join_next() => match done {
                    Ok(done) => self.note(done),
                    // A job that panicked may have been any job, so all of them count as failed.
                    Err(_) => {
                        self.note(JobResult::Reconciled { listed: false });
                        self.note(JobResult::SweepEnded {
                            swept: None,
                            overlaps: true,
                            count: 0,
                        });
                        if self.loading {
                            self.note(JobResult::Loaded { loaded: false });
                        }
                        if let Some(after) = self.check.searching.take() {
                            store_context.wakes.note_unsearched(after);
                        }
                        if self.search.is_running {
                            self.note(JobResult::Searched(None));
                        }
                    }
                },
                announced = self.inbox.recv(), if has_capacity => match announced {
                    Some(announced) => {
                        self.spawn_job(read_announced(Arc::clone(&store_context), announced));
                    }
                    None => stop.cancelled().await,
                },
                () = store_context.check_requested.notified(), if has_capacity => self.handle_requests(),
                () = sleep_until(self.reconcile_at) => self.check_everything(),
                () = sleep_until(self.read_deferred_at), if has_capacity && !self.deferred.is_empty() => {
                    self.read_deferred();
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

    fn spawn_job(&mut self, job: impl Future<Output = JobResult> + Send + 'static) {
        self.jobs.spawn(Arc::clone(&self.shared).until_ended(job));
    }

    fn note(&mut self, done: JobResult) {
        match done {
            JobResult::Finished => {}
            JobResult::Deferred(announced) => self.defer(announced),
            JobResult::Reconciled { listed } => {
                self.end_check(listed);
                self.store_context.note_result(Operation::List, listed);
                self.search_from_oldest();
                if !listed {
                    self.reconcile_at = self.reconcile_at.min(later(Instant::now(), RETRY_PAUSE));
                }
            }
            JobResult::SearchedFromOldest { read } => {
                self.check.searching = None;
                self.store_context.note_result(Operation::Read, read);
            }
            JobResult::Searched(newest) => self.note_searched(newest),
            JobResult::SweepEnded {
                swept,
                overlaps,
                count,
            } => self.note_swept(swept, overlaps, count),
            JobResult::Loaded { loaded } => {
                self.loading = false;
                self.store_context.note_result(Operation::Read, loaded);
                match loaded {
                    true => self.sweep(),
                    false => {
                        self.reconcile_at =
                            self.reconcile_at.min(later(Instant::now(), RETRY_PAUSE));
                    }
                }
            }
        }
    }

    fn note_swept(&mut self, swept: Option<SweepOutcome>, overlaps: bool, count: usize) {
        self.sweeps.is_running = false;
        self.store_context
            .note_result(Operation::Read, swept.is_some());
        self.catch_up.breadcrumbs += count;
        let Some(swept) = swept else {
            self.sweeps.overlaps |= overlaps;
            self.store_context.checkpoint.end_sweep(None);
            self.reconcile_at = self.reconcile_at.min(later(Instant::now(), RETRY_PAUSE));
            return;
        };
        match swept {
            SweepOutcome::All => self.note_caught_up(),
            SweepOutcome::Unread | SweepOutcome::Incomplete => {}
        }
        self.store_context.checkpoint.end_sweep(Some(swept));
        // Another sweep may have been requested in the meantime.
        self.handle_requests();
    }

    /// Logs once that sweeps have read all breadcrumbs that were committed before the runtime started.
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

    /// Defers the read of an announced breadcrumb: it is read again after [`RETRY_PAUSE`] if an open `wait_for` call or a suspended run still
    /// needs it.
    fn defer(&mut self, announced: AnnouncedBreadcrumb) {
        if announced.rounds >= MAX_ROUNDS || self.deferred.len() >= MAX_DEFERRED {
            let (id, version) = (announced.event.breadcrumb_id, announced.event.version);
            tracing::warn!(%id, version, "cannot read a breadcrumb that an event announced; a wait for it may time out, and a suspended run wakes late");
            announced.forget_suspended(&self.store_context);
            return;
        }
        if self.deferred.is_empty() {
            self.read_deferred_at = later(Instant::now(), RETRY_PAUSE);
        }
        self.deferred.push_back(announced);
    }

    fn read_deferred(&mut self) {
        self.read_deferred_at = later(Instant::now(), RETRY_PAUSE);
        for _ in 0..self.deferred.len() {
            if self.jobs.len() >= MAX_JOBS {
                return;
            }
            let Some(mut announced) = self.deferred.pop_front() else {
                return;
            };
            if announced.is_needed(&self.store_context) {
                self.spawn_job(read_announced(Arc::clone(&self.store_context), announced));
            }
        }
    }

    fn handle_requests(&mut self) {
        self.search_if_blocked();
        let suspended = self.store_context.take_suspended();
        if !suspended.is_empty() {
            let store_context = Arc::clone(&self.store_context);
            self.spawn_job(async move {
                for run in suspended {
                    register_suspended(&store_context, &run).await;
                }
                JobResult::Finished
            });
        }
        if self.store_context.take_full_check_request() {
            self.check_everything();
        } else {
            self.sweep();
        }
    }

    /// Checks all suspended runs of this runtime's executors, including runs that other workers suspended. Also sweeps the store for
    /// breadcrumbs whose events did not arrive.
    fn check_everything(&mut self) {
        self.reconcile_at = later(Instant::now(), self.shared.settings.reconcile);
        self.check_suspended();
        if self.shared.source_is_complete && !self.store_context.checkpoint.has_unread() {
            self.save_delivered();
        } else {
            self.sweeps.overlaps = true;
            self.store_context.checkpoint.request_sweep();
        }
        self.sweep();
    }

    /// Loads the saved read position of this worker's executors from the ledger, after an earlier attempt failed.
    fn load(&mut self) {
        if std::mem::replace(&mut self.loading, true) {
            return;
        }
        let (shared, store_context, started_at) = (
            Arc::clone(&self.shared),
            Arc::clone(&self.store_context),
            self.started_at,
        );
        self.spawn_job(async move {
            let loaded = saved_position::load(&shared, &store_context, started_at).await;
            if let Err(error) = &loaded {
                tracing::warn!(code = error.code(), error = %Chain(error), "cannot load the executors' saved event position from the run ledger, will retry");
            }
            JobResult::Loaded {
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

    /// Saves the executors' read position in the ledger, after recording the time up to which the event source has delivered all
    /// events.
    fn save_delivered(&mut self) {
        self.note_delivered();
        let (shared, store_context) = (Arc::clone(&self.shared), Arc::clone(&self.store_context));
        self.spawn_job(async move {
            save(&shared, &store_context).await;
            JobResult::Finished
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
        self.spawn_job(async move {
            let mut count = 0;
            let swept = sweep::sweep(&shared, &store_context, &intake, overlaps, &mut count).await;
            if let Err(error) = &swept {
                tracing::warn!(code = error.code(), error = %Chain(error), "cannot check the store for missed triggers, will retry");
            }
            JobResult::SweepEnded {
                swept: swept.ok(),
                overlaps,
                count,
            }
        });
    }
}

/// Saves the executors' read position in the ledger. A failed save is repeated by the next save.
async fn save(shared: &Shared, store_context: &StoreContext) {
    if let Err(error) = saved_position::save(shared, store_context).await {
        tracing::warn!(code = error.code(), error = %Chain(&error), "cannot save the executors' event position in the run ledger, will retry");
    }
}

/// Waits until `moment`. Never returns if `moment` is `None`.
pub(super) async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
