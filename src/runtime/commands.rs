//! Commands of an operator to a runtime: redo, cancel and skip a run, pause and resume an executor.

use super::store_context::StoreContext;
use super::{Runtime, RuntimeError};
use crate::store::{Cancelled, RunLedger, RunRef};
use std::sync::Arc;

impl Runtime {
    /// Repeats a run that failed, or that was skipped while it waited for another version of its executor. The run starts a new epoch, with
    /// fresh attempts and a new idempotency key. [`DeadLetter::run_of`](crate::store::DeadLetter::run_of) returns the run of a dead letter.
    /// The dead letter stays in the store, and can be deleted.
    ///
    /// This process starts the run at once if a run of the executor may start.
    /// [`Client::redo`](crate::Client::redo) works in a process without a runtime, and a worker
    /// starts the run at its next check of the ledger.
    ///
    /// # Errors
    /// [`RuntimeError::UnknownExecutor`] and [`RuntimeError::NoLedger`]; [`RuntimeError::Store`] if the run is unknown or its state
    /// does not allow a repetition.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::time::Duration;
    /// use universal_executor::store::DeadLetter;
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, MemoryStore, NewBreadcrumb, Response, Runtime, Selector,
    ///     Subscription, executor, permanent,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let is_valid = Arc::new(AtomicBool::new(false));
    /// let payments = executor("payments")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .state(Arc::clone(&is_valid))
    ///     .execute(|_, is_valid| async move {
    ///         match is_valid.load(Ordering::Relaxed) {
    ///             true => Ok(Response::none()),
    ///             false => Err(permanent("the card has expired")),
    ///         }
    ///     });
    /// let store = MemoryStore::default();
    /// let running = Runtime::on(&store).executor(payments).start().await?;
    /// let runtime = running.runtime();
    ///
    /// let letter = Selector::schema(DeadLetter::SCHEMA);
    /// let letter = runtime.wait_for(letter, Duration::from_secs(10));
    /// store.create(NewBreadcrumb::new("order.v1")).await?;
    /// let run = DeadLetter::run_of(&*letter.await?).ok_or("no dead letter")?;
    ///
    /// is_valid.store(true, Ordering::Relaxed); // the remedy
    /// runtime.redo(&run).await?;
    /// running.stop().await?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn redo(&self, run: &RunRef) -> Result<(), RuntimeError> {
        let store_context = self.store_context_of(&run.executor)?;
        let redone = durable_ledger(&store_context, &run.executor)?
            .redo(run)
            .await;
        redone.map_err(RuntimeError::of_store("redo the run"))?;
        store_context.notify_due([Arc::clone(&run.executor)]);
        Ok(())
    }

    /// Ends an unfinished run as failed, with the code [`cancelled`](crate::store::RunEnd::CANCELLED) and without a dead letter.
    /// [`redo`](Self::redo) repeats the run.
    ///
    /// A worker that executes the run, in this or another process, drops the run at its next answered heartbeat. That is usually
    /// within a third of the [lease](crate::Profile::lease). Nothing that the run writes after the cancellation becomes visible.
    ///
    /// The result is the state of the run before the call. A run that is over does not change. Runs
    /// that the run has triggered continue; [`Client::cancel`](crate::Client::cancel) can cancel
    /// them too, and can cancel a run that no worker has received.
    ///
    /// # Errors
    /// [`RuntimeError::UnknownExecutor`] and [`RuntimeError::NoLedger`]; [`RuntimeError::Store`] if the run is unknown.
    pub async fn cancel(&self, run: &RunRef) -> Result<Cancelled, RuntimeError> {
        let store_context = self.store_context_of(&run.executor)?;
        let cancelled = durable_ledger(&store_context, &run.executor)?
            .cancel(run)
            .await;
        let cancelled = cancelled.map_err(RuntimeError::of_store("cancel the run"))?;
        store_context.notify_due([Arc::clone(&run.executor)]);
        Ok(cancelled)
    }

    /// Skips a run that was transferred to another version of its executor and still waits for a worker to take it over
    /// ([`Run::transferred_to`]). The run ends as skipped, and [`redo`](Self::redo) repeats it.
    ///
    /// Use this if no worker with the other version will start again.
    ///
    /// # Errors
    /// [`RuntimeError::UnknownExecutor`] and [`RuntimeError::NoLedger`]; [`RuntimeError::Store`] if the run is unknown or
    /// does not wait for another version.
    ///
    /// [`Run::transferred_to`]: crate::store::Run::transferred_to
    pub async fn skip(&self, run: &RunRef) -> Result<(), RuntimeError> {
        const SKIP: &str = "skip the run; only a run that waits for another version of its executor can be skipped";
        let store_context = self.store_context_of(&run.executor)?;
        let skipped = durable_ledger(&store_context, &run.executor)?
            .skip(run)
            .await;
        skipped.map_err(RuntimeError::of_store(SKIP))?;
        store_context.notify_due([Arc::clone(&run.executor)]);
        Ok(())
    }

    /// Pauses an executor in all processes: no worker starts its runs until [`resume`](Self::resume), even after a restart.
    /// Returns `false` if the executor is paused already.
    ///
    /// Runs are enqueued as usual, and runs that a worker executes or has claimed continue.
    /// [`paused_executors`](RunLedger::paused_executors) of the ledger lists the paused executors.
    ///
    /// Use this when an external service is down for long, so that its runs do not use up their
    /// attempts. The pause is stored in the ledger.
    ///
    /// # Errors
    /// [`RuntimeError::UnknownExecutor`] and [`RuntimeError::NoLedger`]; [`RuntimeError::Pause`] if the store fails.
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
    /// let runtime = Runtime::on(&store).executor(clerk).build()?;
    ///
    /// assert!(runtime.pause("clerk").await?);
    /// assert!(!runtime.pause("clerk").await?); // it is paused already
    /// assert!(runtime.resume("clerk").await?);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn pause(&self, executor: &str) -> Result<bool, RuntimeError> {
        let store_context = self.store_context_of(executor)?;
        let paused = durable_ledger(&store_context, executor)?.pause_executor(executor);
        let paused = paused.await;
        paused.map_err(|source| RuntimeError::pause(executor, source))
    }

    /// Ends the [pause](Self::pause) of an executor. Returns `false` if the executor is not paused.
    ///
    /// This process starts the executor's due runs immediately. Other processes start them with the next event for the executor,
    /// at the latest with their next [sweep](super::RuntimeBuilder::sweep_every).
    ///
    /// # Errors
    /// [`RuntimeError::UnknownExecutor`] and [`RuntimeError::NoLedger`]; [`RuntimeError::Pause`] if the store fails.
    pub async fn resume(&self, executor: &str) -> Result<bool, RuntimeError> {
        let store_context = self.store_context_of(executor)?;
        let resumed = durable_ledger(&store_context, executor)?.resume_executor(executor);
        let resumed = resumed.await;
        let resumed = resumed.map_err(|source| RuntimeError::pause(executor, source))?;
        store_context.notify_due([Arc::from(executor)]);
        Ok(resumed)
    }

    /// Returns the runtime's [`StoreContext`] for the store on which an executor runs.
    fn store_context_of(&self, executor: &str) -> Result<Arc<StoreContext>, RuntimeError> {
        let unknown = || RuntimeError::UnknownExecutor {
            id: executor.to_owned(),
        };
        let member = self.registry.get(executor).ok_or_else(unknown)?;
        Ok(member.store_context)
    }
}

fn durable_ledger<'h>(
    store_context: &'h StoreContext,
    executor: &str,
) -> Result<&'h dyn RunLedger, RuntimeError> {
    let ledger = store_context.runs().durable_ledger();
    ledger.ok_or_else(|| RuntimeError::NoLedger {
        id: executor.to_owned(),
    })
}
