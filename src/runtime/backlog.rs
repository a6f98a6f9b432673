use super::Runtime;
use super::registry::Registry;
use super::timeouts::{with_source_timeout, with_timeout};
use crate::source::EventSource;
use crate::store::{RunFilter, RunLedger, RunState, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// The pending events and due runs of all workers that share an event source and stores.
///
/// Returned by [`Runtime::backlog`]. The values are the same on each worker with the same
/// executors, so do not add them up.
///
/// # Examples
/// ```
/// use universal_executor::{MemoryStore, Response, Runtime, Subscription, executor};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let clerk = executor("clerk")
///     .on(Subscription::trigger("order.v1"))
///     .execute(|_| async { Ok(Response::none()) });
/// let store = MemoryStore::default();
///
/// let runtime = Runtime::on(&store).executor(clerk).build()?;
/// let backlog = runtime.backlog().await?;
/// let due: usize = backlog.executors.iter().map(|one| one.due).sum();
/// assert_eq!(due, 0);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Backlog {
    /// Number of events that wait in the event source for delivery, or are delivered but not acknowledged. `None` if the source cannot
    /// count these events. See [`EventSource::behind`](crate::EventSource::behind).
    ///
    /// Also `None` if the source does not answer.
    pub behind: Option<u64>,
    /// The due runs of each executor in the ledgers. For an executor on a store without a ledger, only the runs of this process.
    ///
    /// One entry for each executor of the runtime, also without due runs.
    pub executors: Vec<Due>,
}

/// The due runs of an executor: runs that no worker has claimed although they could start.
///
/// Runs of a paused executor count too. A value that stays high means too few workers, a pause, a
/// limit on concurrency or rate, or an ordering key that serialises the runs.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Due {
    /// ID of the executor whose runs are due.
    pub executor: Arc<str>,
    /// Number of due runs, counted up to [`MOST_COUNTED`](Self::MOST_COUNTED). A run that waits for an earlier run with
    /// the same ordering key counts too, and so does a run of a lost worker once its lease has expired.
    pub due: usize,
    /// Time since the oldest due run became due, by the store's clock. `None` without due runs.
    ///
    /// Use it for an alert: it increases for as long as work waits.
    pub oldest: Option<Duration>,
}

impl Due {
    /// Maximum number of due runs of one executor that are counted.
    pub const MOST_COUNTED: usize = 1_000;
}

pub(super) async fn of(
    source: &dyn EventSource,
    registry: &Registry,
) -> Result<Backlog, StoreError> {
    let mut backlog = Backlog {
        behind: with_source_timeout(source.behind()).await.ok().flatten(),
        executors: Vec::new(),
    };
    for member in registry.all() {
        let due = due(member.store_context.ledger(), member.executor.id().into()).await?;
        backlog.executors.push(due);
    }
    Ok(backlog)
}

async fn due(ledger: &dyn RunLedger, executor: Arc<str>) -> Result<Due, StoreError> {
    let waiting = RunFilter::all()
        .executor(&*executor)
        .state(RunState::Ready)
        .limit(Due::MOST_COUNTED);
    let waiting = with_timeout(ledger.runs(&waiting)).await?;
    let due = waiting.iter().filter_map(|run| run.due_for);
    Ok(Due {
        executor,
        due: due.clone().count(),
        oldest: due.max(),
    })
}

/// Sets the metric gauges of the pending events and due runs.
#[cfg(feature = "metrics")]
#[expect(
    clippy::cast_precision_loss,
    reason = "a gauge is a float, and the counts here are small"
)]
fn report(backlog: &Backlog) {
    use super::metrics::{BEHIND, DUE, OLDEST_DUE_SECONDS};
    if let Some(behind) = backlog.behind {
        ::metrics::gauge!(BEHIND).set(behind as f64);
    }
    for waiting in &backlog.executors {
        let executor = || Arc::clone(&waiting.executor);
        let oldest = waiting.oldest.unwrap_or_default().as_secs_f64();
        ::metrics::gauge!(DUE, "executor" => executor()).set(waiting.due as f64);
        ::metrics::gauge!(OLDEST_DUE_SECONDS, "executor" => executor()).set(oldest);
    }
}

/// Sets the metric gauges of the pending events and due runs at intervals.
#[cfg(feature = "metrics")]
pub(super) async fn watch(runtime: &Runtime) {
    loop {
        tokio::time::sleep(runtime.settings.reconcile).await;
        match runtime.backlog().await {
            Ok(backlog) => report(&backlog),
            Err(error) => {
                tracing::debug!(code = error.code(), error = %crate::error::Chain(&error), "cannot read the backlog of the executors for \
                    the metrics, will retry")
            }
        }
    }
}

#[cfg(not(feature = "metrics"))]
pub(super) async fn watch(_: &Runtime) {
    std::future::pending().await
}
