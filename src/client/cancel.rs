//! Cancellation of runs by a client, even of runs that no worker has received.

use super::{Client, ClientError, creator_of};
use crate::executor::session_of_turn;
use crate::model::{Breadcrumb, Event, SESSION_TAG, Selector};
use crate::store::{Cancelled, Query, RunRef, StoreError, WrittenBy};
use std::collections::HashSet;
use std::sync::Arc;

/// The runs that [`Client::cancel`] ends: the given run alone, or also all runs that its breadcrumbs triggered.
///
/// [`RequestHandle::cancel`](super::RequestHandle::cancel) and
/// [`Turn::cancel`](super::Turn::cancel) always use [`Children`](Self::Children).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cascade {
    /// Cancels only the run itself, and no run that its breadcrumbs triggered.
    ///
    /// Use this if the work that the run has already started for other executors must finish.
    Run,
    /// Cancels the run, and all runs that its breadcrumbs triggered, directly or through other runs. Children that no worker has enqueued
    /// yet are not found, and on a store that does not [record writers](crate::store::Capabilities::lineage) no child is.
    ///
    /// The cascade also works if the run itself is over. One call cancels at most 10,000 runs.
    Children,
}

/// Maximum number of runs that one call of [`Client::cancel`] ends.
const MAX_CANCELLED_RUNS: usize = 10_000;

/// Maximum number of breadcrumbs, newest first, in which a cancellation searches for a breadcrumb that the run wrote. The search
/// happens only if the ledger does not have the run.
const MAX_SEARCHED: usize = 20;

impl Client {
    /// Cancels a run that has not ended: the run gets the state `failed` with the code `cancelled`. Returns the number of runs that this
    /// call ended.
    ///
    /// A worker that executes a run drops it with its next heartbeat, usually within 10 s, and nothing that it commits later
    /// becomes visible. At most 10,000 runs are ended by one call.
    ///
    /// A run that no worker has received, such as the run of a request that was sent before any worker started, is cancelled too: the
    /// client adds the run to the ledger as cancelled, and a worker that receives the trigger later does not execute it. This holds for
    /// as long as the ledger retains the row (`finished_runs` in the limits of the store). The run is the one of its
    /// trigger version, so a later version of the trigger is executed. The client does not check that the trigger matches the
    /// executor. [`redo`](Self::redo) executes such a run with a lease of 30 s and, unless it is a turn of a chat session, without the
    /// ordering key of the executor's profile.
    ///
    /// A run whose row the ledger has deleted after its end is over if the store has a breadcrumb that it wrote, such as a response. If
    /// it wrote none, or on a store that does not [record writers](crate::store::Capabilities::lineage), the call adds it as cancelled
    /// and returns 1.
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
    /// [`ClientError::NoLedger`]; [`ClientError::Store`] if a store operation fails. Runs that were cancelled before the error stay
    /// cancelled.
    pub async fn cancel(&self, run: &RunRef, cascade: Cascade) -> Result<usize, ClientError> {
        let is_cancelled = match self.cancel_known(run).await? {
            Some(cancelled) => is_ended(cancelled),
            None => self.cancel_unknown(run).await?,
        };
        let ended = usize::from(is_cancelled);
        match cascade {
            Cascade::Run => Ok(ended),
            Cascade::Children => Ok(ended + self.cancel_children(run).await?),
        }
    }

    /// Cancels a run that is in the ledger. Returns `None` for a run that the ledger does not have.
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

    /// Adds a run that is missing in the ledger as cancelled, unless a breadcrumb of the run shows that the run has ended. Either
    /// a worker has not received the run's trigger, or the run has ended and the ledger has deleted its row. Returns `true` if
    /// this call ended the run. If a worker enqueues the run at the same time, one of the two adds the row.
    async fn cancel_unknown(&self, run: &RunRef) -> Result<bool, ClientError> {
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
        if self.has_written(run, &trigger).await? {
            return Ok(false);
        }
        let cancelled = self
            .ledger()?
            .enqueue_cancelled(&run_ref_of(run, &trigger))
            .await;
        let cancelled = cancelled
            .map_err(|error| ClientError::of_store(format!("add {run} as cancelled"), error))?;
        Ok(is_ended(cancelled))
    }

    /// Returns `true` if the store has a breadcrumb that the run `run` wrote. On a store that does not record writers, the result
    /// is `false`.
    async fn has_written(&self, run: &RunRef, trigger: &Breadcrumb) -> Result<bool, ClientError> {
        if !self.store.capabilities().lineage {
            return Ok(false);
        }
        let since = match run.trigger_version == trigger.version {
            true => trigger.updated_at,
            false => trigger.created_at,
        };
        // Breadcrumbs of a run have the session tag of its trigger.
        let tags = trigger.tags.iter();
        let session = tags.filter(|tag| tag.starts_with(SESSION_TAG)).take(1);
        let mut written =
            Query::new(Selector::any().all_tags(session.cloned())).limit(MAX_SEARCHED);
        written.after = Some(since.just_before());
        let triggers = [run.trigger_id.to_string()];
        let writers = self.writers(&run.executor, &triggers, written).await?;
        Ok(writers.contains(run))
    }

    /// Cancels the runs that the breadcrumbs of the run `run` triggered, directly or through other runs. Returns the number of runs that
    /// were ended.
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
                if known.len() >= MAX_CANCELLED_RUNS || !known.insert(name(&child)) {
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

    /// Returns the runs that the breadcrumbs of the run `parent` triggered. Only breadcrumb versions that the store recorded as writes of
    /// this run count.
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

/// Returns the run reference that a worker would add to the run ledger when it receives the trigger. The lease and the ordering
/// key of the executor's profile are missing, because only a worker knows the profile.
fn run_ref_of(run: &RunRef, trigger: &Breadcrumb) -> RunRef {
    let version = run.trigger_version;
    let event = match version {
        1 => Event::created(trigger),
        _ => Event::updated(trigger),
    };
    let event = Event { version, ..event };
    let session = session_of_turn(&run.executor, &trigger.tags);
    RunRef::of(Arc::clone(&run.executor), &event).ordered_by(session)
}

/// Returns `true` if the cancellation ended the run, and `false` if the run had ended before.
fn is_ended(cancelled: Cancelled) -> bool {
    match cancelled {
        Cancelled::Waiting | Cancelled::Running => true,
        Cancelled::Over(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::{Response, UniversalExecutor as _, executor};
    use crate::model::{NewBreadcrumb, Subscription};
    use crate::store::{BreadcrumbStore as _, MemoryLimits, MemoryStore, RunLedger as _};

    async fn request(client: &Client) -> RunRef {
        let order = NewBreadcrumb::new("order.v1");
        let request = client.request("clerk", order).send().await.unwrap();
        request.run().clone()
    }

    /// Executes a run, which writes a receipt breadcrumb if `answers` is `true`.
    async fn execute(store: &MemoryStore, run: &RunRef, answers: bool) {
        let clerk = executor("clerk")
            .on(Subscription::trigger("order.v1"))
            .execute(move |_| async move {
                Ok(match answers {
                    true => Response::create(NewBreadcrumb::new("receipt.v1")),
                    false => Response::none(),
                })
            });
        let clerk = clerk.bind(store).unwrap();
        let order = store.get(run.trigger_id).await.unwrap();
        clerk.process_event(&Event::created(&order)).await.unwrap();
    }

    #[tokio::test]
    async fn a_run_that_ended_before_the_ledger_deleted_its_row_is_not_cancelled() {
        let limits = MemoryLimits {
            finished_runs: 1,
            ..MemoryLimits::default()
        };
        let store = MemoryStore::with_limits(limits);
        let client = Client::new(&store);
        let run = request(&client).await;
        execute(&store, &run, true).await;
        let other = request(&client).await;
        execute(&store, &other, false).await;
        assert!(client.run(&run).await.unwrap().is_none());

        let ended = client.cancel(&run, Cascade::Children).await.unwrap();

        assert_eq!(ended, 0);
        assert!(client.run(&run).await.unwrap().is_none());
        let writer = RunRef::new("writer", run.trigger_id, run.trigger_version);
        assert_eq!(
            client.cancel(&writer, Cascade::Run).await.unwrap(),
            1,
            "it wrote nothing"
        );
    }

    #[tokio::test]
    async fn a_client_can_cancel_a_request_while_the_ledger_is_full() {
        let limits = MemoryLimits {
            open_runs: 1,
            ..MemoryLimits::default()
        };
        let store = MemoryStore::with_limits(limits);
        let client = Client::new(&store);
        let (first, second) = (request(&client).await, request(&client).await);
        store.enqueue(vec![first.into()]).await.unwrap();

        let ended = client.cancel(&second, Cascade::Run).await.unwrap();

        assert_eq!(ended, 1);
    }
}
