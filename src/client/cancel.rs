//! Cancellation of runs, also of runs that no worker has received.

use super::{Client, ClientError, creator_of};
use crate::clock::wall_micros;
use crate::executor::session_of_turn;
use crate::model::{Breadcrumb, Event, Timestamp};
use crate::store::{Cancelled, NewRun, RunRef, StoreError, WrittenBy};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

/// The runs that [`Client::cancel`] ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cascade {
    /// Only the run itself.
    Run,
    /// The run, and all runs that its breadcrumbs triggered, directly or through other runs. Children that no worker has enqueued yet
    /// are not found, and on a store that does not [record writers](crate::store::Capabilities::lineage) no child is.
    Children,
}

/// Maximum number of runs that one call of [`Client::cancel`] ends.
const MOST_CANCELLED: usize = 10_000;

/// The time for which a run that the client enqueues is not due, so that no worker starts the run before it is cancelled. A run whose
/// cancellation fails is executed after this time. Measured by the clock of this process, so a clock that differs from the store's clock
/// changes the time, and the cancellation has its effect nevertheless.
const HOLD: Duration = Duration::from_secs(30);

impl Client {
    /// Ends a run that is not over as failed, with the code `cancelled`. Returns the number of runs that were ended.
    ///
    /// A worker that executes a run drops it with its next heartbeat, usually within 10 s, and nothing that it commits later
    /// becomes visible. At most 10,000 runs are ended by one call.
    ///
    /// A run that no worker has received, such as the run of a request that was sent before any worker started, is cancelled too: the
    /// client enqueues the run as a worker would, and cancels it. A worker that receives the trigger later does not execute the run.
    /// The run is the one of its trigger version, so a later version of the trigger is executed. The client does not check that the
    /// trigger matches the executor. [`redo`](Self::redo) runs such a run with a lease of 30 s and, unless it is a turn of a chat session,
    /// without the ordering key of the executor's profile. A run that the ledger has deleted after its end looks like a run that no worker
    /// has received.
    ///
    /// ```
    /// use serde_json::json;
    /// use std::time::Duration;
    /// use universal_executor::client::{Cascade, Client, ReplyError};
    /// use universal_executor::{MemoryStore, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let client = Client::new(&MemoryStore::default());
    /// let order = NewBreadcrumb::new("order.v1").context(json!({"id": 7}));
    /// let request = client.request("clerk", order).key("order-7").send().await?;
    ///
    /// // No worker has been started.
    /// assert_eq!(client.cancel(request.run(), Cascade::Children).await?, 1);
    ///
    /// let ended = request.wait(Duration::from_secs(30)).await;
    /// assert!(matches!(ended, Err(ReplyError::Cancelled { .. })));
    /// assert_eq!(client.cancel(request.run(), Cascade::Children).await?, 0);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    ///
    /// # Errors
    /// [`ClientError::NoTrigger`] if the ledger does not have the run, and the store does not have the trigger in this version;
    /// [`ClientError::NoLedger`]; [`ClientError::Store`] if a store operation fails. Runs that were ended before stay ended.
    pub async fn cancel(&self, run: &RunRef, cascade: Cascade) -> Result<usize, ClientError> {
        let cancelled = match self.cancel_known(run).await? {
            Some(cancelled) => cancelled,
            None => self.cancel_unreceived(run).await?,
        };
        let ended = usize::from(is_ended(cancelled));
        match cascade {
            Cascade::Run => Ok(ended),
            Cascade::Children => Ok(ended + self.cancel_children(run).await?),
        }
    }

    /// Cancels a run that the ledger has. Returns `None` for an unknown run.
    pub(super) async fn cancel_known(
        &self,
        run: &RunRef,
    ) -> Result<Option<Cancelled>, ClientError> {
        match self.ledger()?.cancel(run).await {
            Ok(cancelled) => Ok(Some(cancelled)),
            Err(StoreError::UnknownRun { .. }) => Ok(None),
            Err(error) => Err(ClientError::of_store(format!("cancel {run}"), error)),
        }
    }

    /// Enqueues a run that no worker has enqueued, and cancels it. If a worker enqueues it at the same time, one of the two adds the row.
    async fn cancel_unreceived(&self, run: &RunRef) -> Result<Cancelled, ClientError> {
        let no_trigger = |found: Option<u64>| ClientError::NoTrigger {
            run: run.clone(),
            found,
        };
        let Some(trigger) = self.find(run.trigger_id).await? else {
            return Err(no_trigger(None));
        };
        if !(1..=trigger.version).contains(&run.trigger_version) {
            return Err(no_trigger(Some(trigger.version)));
        }
        let enqueued = self.ledger()?.enqueue(vec![received(run, &trigger)]).await;
        enqueued.map_err(|error| ClientError::of_store(format!("enqueue {run}"), error))?;
        let cancelled = self.cancel_known(run).await?;
        // A ledger that retains few runs can delete a run as soon as a worker has ended it.
        cancelled.ok_or_else(|| {
            let unknown = StoreError::UnknownRun { run: run.clone() };
            ClientError::of_store(format!("cancel {run}"), unknown)
        })
    }

    /// Cancels the runs that the breadcrumbs of a run triggered, directly or through other runs. Returns the number of runs that were
    /// ended.
    pub(super) async fn cancel_children(&self, run: &RunRef) -> Result<usize, ClientError> {
        let name = |run: &RunRef| {
            (
                Arc::clone(&run.executor),
                run.trigger_id,
                run.trigger_version,
            )
        };
        let mut known = HashSet::from([name(run)]);
        let (mut parents, mut ended) = (vec![run.clone()], 0);
        while let Some(parent) = parents.pop() {
            for child in self.children(&parent).await? {
                if known.len() >= MOST_CANCELLED || !known.insert(name(&child)) {
                    continue;
                }
                let cancelled = self.cancel_known(&child).await?;
                // `None` if the store does not retain the run any more.
                ended += usize::from(cancelled.is_some_and(is_ended));
                parents.push(child);
            }
        }
        Ok(ended)
    }

    /// Returns the runs that the breadcrumbs of a run triggered: on the versions that this run wrote, as the store recorded it.
    pub(super) async fn children(&self, parent: &RunRef) -> Result<Vec<RunRef>, ClientError> {
        let mut children = Vec::new();
        let Some(run) = self.run(parent).await? else {
            return Ok(children);
        };
        for id in run.written {
            let runs = self.runs_on(id).await?;
            if runs.is_empty() {
                continue;
            }
            let Some(written) = self.find(id).await? else {
                continue;
            };
            let writers = self.written_by(&[(id, written.version)]).await?;
            let by_parent = WrittenBy::Executor(Arc::clone(&parent.executor));
            if writers.first() != Some(&by_parent) || creator_of(&written).as_ref() != Some(parent)
            {
                continue;
            }
            let runs = runs.into_iter().map(|child| child.run);
            children.extend(runs.filter(|child| child.trigger_version == written.version));
        }
        Ok(children)
    }
}

/// Returns the run on a trigger as a worker enqueues it, due after [`HOLD`]. Only a worker knows the lease and the ordering key of the
/// executor's profile.
fn received(run: &RunRef, trigger: &Breadcrumb) -> NewRun {
    let version = run.trigger_version;
    let event = match version {
        1 => Event::created(trigger),
        _ => Event::updated(trigger),
    };
    let event = Event { version, ..event };
    let session = session_of_turn(&run.executor, &trigger.tags);
    let run = RunRef::of(Arc::clone(&run.executor), &event).ordered_by(session);
    let mut new = NewRun::from(run);
    new.at = Some(Timestamp::from_micros(wall_micros()) + HOLD);
    new
}

/// Returns `true` if a cancellation ended a run.
fn is_ended(cancelled: Cancelled) -> bool {
    match cancelled {
        Cancelled::Waiting | Cancelled::Running => true,
        Cancelled::Over(_) => false,
    }
}
