//! Requests of an execution context to the holder of the run's lease, because a context has no store handle.

use super::context_error::{ContextError, READ_HINTS};
use super::store_timeout::timed_out;
use crate::clock::within;
use crate::model::{BreadcrumbId, Json};
use crate::store::schema_hints::{self, HintsOfSchemas, SchemaHints};
use crate::store::{BreadcrumbStore, Lease, RunFilter, RunLedger, StoreError, WrittenBy};
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, oneshot};

/// The pending requests of an execution context to the holder of the run's lease.
#[derive(Debug, Default)]
pub(super) struct Asks {
    queue: Mutex<Queue>,
    added: Notify,
}

#[derive(Debug)]
enum Queue {
    Open(Vec<Ask>),
    /// The state after the end of the run: further requests of its execution context are refused.
    Closed,
}

impl Default for Queue {
    fn default() -> Self {
        Self::Open(Vec::new())
    }
}

type Answer<T> = oneshot::Sender<Result<T, StoreError>>;

#[derive(Debug)]
enum Ask {
    /// Request to save a state of the run.
    Save(Json, Answer<()>),
    /// Request for the hints of schemas, from the schema definitions in the store.
    Hints(Vec<String>, Answer<HintsOfSchemas>),
    /// Request for the recorded writer of a version of a breadcrumb.
    WrittenBy((BreadcrumbId, u64), Answer<Option<WrittenBy>>),
    /// Request for the breadcrumbs that the run wrote so far.
    Written(Answer<Option<HashSet<BreadcrumbId>>>),
}

/// The holder of a run's lease, with the store and the ledger of the run.
pub(super) struct Holder<'h> {
    pub(super) store: &'h dyn BreadcrumbStore,
    /// The run ledger, or `None` if the ledger is only in the memory of this process.
    pub(super) ledger: Option<&'h dyn RunLedger>,
    pub(super) lease: &'h Lease,
    /// Cache of schema hints in the runtime that processes the run, or `None` outside a runtime.
    pub(super) hints: Option<&'h SchemaHints>,
    /// Timeout of a store read for a request from an execution context.
    pub(super) patience: Duration,
}

impl Asks {
    /// Maximum number of pending requests of one execution context.
    const MOST: usize = 64;

    /// Asks the lease holder to save a state of the run.
    pub(super) async fn save(&self, state: Json) -> Result<(), ContextError> {
        let saved = self.ask("save", |answer| Ask::Save(state, answer)).await?;
        saved.map_err(|error| ContextError::of_store("save the state of the run", error))
    }

    /// Asks the lease holder for the hints of schemas, and returns them.
    pub(super) async fn hints(&self, schemas: Vec<String>) -> Result<HintsOfSchemas, ContextError> {
        let ask = |answer| Ask::Hints(schemas, answer);
        let found = self.ask("for_model", ask).await?;
        found.map_err(|error| ContextError::of_store(READ_HINTS, error))
    }

    /// Returns the writer of a version of a breadcrumb, or `None` if the store does not record writers.
    pub(super) async fn written_by(
        &self,
        version: (BreadcrumbId, u64),
    ) -> Result<Option<WrittenBy>, ContextError> {
        let ask = |answer| Ask::WrittenBy(version, answer);
        let found = self.ask("written_by", ask).await?;
        found.map_err(|error| ContextError::of_store("read the writer of a breadcrumb", error))
    }

    /// Returns the breadcrumbs that the run wrote so far, or `None` if the store does not record writers.
    pub(super) async fn written(&self) -> Result<Option<HashSet<BreadcrumbId>>, ContextError> {
        let found = self.ask("written", Ask::Written).await?;
        found.map_err(|error| ContextError::of_store("read the writer of a breadcrumb", error))
    }

    async fn ask<T>(
        &self,
        operation: &'static str,
        ask: impl FnOnce(Answer<T>) -> Ask,
    ) -> Result<Result<T, StoreError>, ContextError> {
        let refused = |reason| ContextError::Unsupported { operation, reason };
        const OVER: &str = "the run has ended";
        let (answer, answered) = oneshot::channel();
        match &mut *self.queue() {
            Queue::Open(asks) if asks.len() >= Self::MOST => {
                return Err(refused(
                    "64 requests of this run are pending already; await some of them first",
                ));
            }
            Queue::Open(asks) => asks.push(ask(answer)),
            Queue::Closed => return Err(refused(OVER)),
        }
        self.added.notify_one();
        answered.await.map_err(|_| refused(OVER))
    }

    /// Serves the requests of the execution context until this future is dropped.
    pub(super) async fn serve(&self, holder: Holder<'_>) {
        loop {
            self.added.notified().await;
            for ask in self.take() {
                // Requests are rare. Boxing their future keeps the future of the common path small.
                Box::pin(holder.answer(ask)).await;
            }
        }
    }

    /// Refuses further requests of the execution context, and fails the pending ones.
    pub(super) fn close(&self) {
        let waiting = std::mem::replace(&mut *self.queue(), Queue::Closed);
        drop(waiting);
    }

    fn take(&self) -> Vec<Ask> {
        match &mut *self.queue() {
            Queue::Open(asks) => std::mem::take(asks),
            Queue::Closed => Vec::new(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Holder<'_> {
    async fn written_by(
        &self,
        version: (BreadcrumbId, u64),
    ) -> Result<Option<WrittenBy>, StoreError> {
        match self.records() {
            Some(ledger) => Ok(ledger.written_by(&[version]).await?.pop()),
            None => Ok(None),
        }
    }

    async fn written(&self) -> Result<Option<HashSet<BreadcrumbId>>, StoreError> {
        let Some(ledger) = self.records() else {
            return Ok(None);
        };
        let run = &self.lease.run;
        let filter = RunFilter::all()
            .executor(&*run.executor)
            .trigger(run.trigger_id);
        let rows = ledger.runs(&filter).await?.into_iter();
        let rows = rows.filter(|row| row.run == *run);
        Ok(Some(rows.flat_map(|row| row.written).collect()))
    }

    /// Returns the run ledger if it records the writer of each breadcrumb version.
    fn records(&self) -> Option<&dyn RunLedger> {
        self.ledger.filter(|_| self.store.capabilities().lineage)
    }

    /// Answers a request of the execution context. A state is saved even if the requesting future was dropped meanwhile.
    async fn answer(&self, ask: Ask) {
        match ask {
            Ask::Save(state, answer) => {
                // Without a ledger the request fails, because its answer is dropped. Contexts of such runs send no save requests.
                if let Some(ledger) = self.ledger {
                    drop(answer.send(ledger.save(self.lease, state).await));
                }
            }
            Ask::Hints(schemas, answer) => {
                let found = schema_hints::find(self.hints, self.store, schemas);
                let found = within(self.patience, found).await;
                let late = || timed_out(self.patience);
                drop(answer.send(found.unwrap_or_else(|| Err(late()))));
            }
            Ask::WrittenBy(version, answer) => {
                let found = within(self.patience, self.written_by(version)).await;
                let late = || timed_out(self.patience);
                drop(answer.send(found.unwrap_or_else(|| Err(late()))));
            }
            Ask::Written(answer) => {
                let found = within(self.patience, self.written()).await;
                let late = || timed_out(self.patience);
                drop(answer.send(found.unwrap_or_else(|| Err(late()))));
            }
        }
    }
}
