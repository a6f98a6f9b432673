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
pub(super) struct LeaseRequests {
    queue: Mutex<RequestQueue>,
    added: Notify,
}

#[derive(Debug)]
enum RequestQueue {
    Open(Vec<LeaseRequest>),
    /// The state after the end of the run: further requests of its execution context are refused.
    Closed,
}

impl Default for RequestQueue {
    fn default() -> Self {
        Self::Open(Vec::new())
    }
}

type Reply<T> = oneshot::Sender<Result<T, StoreError>>;

#[derive(Debug)]
enum LeaseRequest {
    /// Request to the holder of the run's lease to save a state of the run.
    Save(Json, Reply<()>),
    /// Request to read the `llm_hints` of schemas from the schema definitions in the store.
    Hints(Vec<String>, Reply<HintsOfSchemas>),
    /// Request for the recorded writer of a version of a breadcrumb.
    WrittenBy((BreadcrumbId, u64), Reply<Option<WrittenBy>>),
    /// Request for the breadcrumbs that the run wrote so far.
    Written(Reply<Option<HashSet<BreadcrumbId>>>),
}

/// The holder of a run's lease, with the store and the ledger of the run.
pub(super) struct LeaseHolder<'h> {
    pub(super) store: &'h dyn BreadcrumbStore,
    /// The run ledger, or `None` if the ledger is only in the memory of this process.
    pub(super) ledger: Option<&'h dyn RunLedger>,
    pub(super) lease: &'h Lease,
    /// Cache of the `llm_hints` of schemas in the runtime that processes the run, or `None` outside a runtime.
    pub(super) hints: Option<&'h SchemaHints>,
    /// Timeout of a store read for a request from an execution context.
    pub(super) read_timeout: Duration,
}

impl LeaseRequests {
    /// Maximum number of pending requests of one execution context.
    const MAX_PENDING: usize = 64;

    /// Asks the lease holder to save a state of the run.
    pub(super) async fn save(&self, state: Json) -> Result<(), ContextError> {
        let saved = self
            .request("save", |answer| LeaseRequest::Save(state, answer))
            .await?;
        saved.map_err(|error| ContextError::of_store("save the state of the run", error))
    }

    /// Asks the lease holder for the `llm_hints` of schemas, and returns them.
    pub(super) async fn hints(&self, schemas: Vec<String>) -> Result<HintsOfSchemas, ContextError> {
        let request = |answer| LeaseRequest::Hints(schemas, answer);
        let found = self.request("for_model", request).await?;
        found.map_err(|error| ContextError::of_store(READ_HINTS, error))
    }

    /// Returns the writer of a version of a breadcrumb, or `None` if the store does not record writers.
    pub(super) async fn written_by(
        &self,
        version: (BreadcrumbId, u64),
    ) -> Result<Option<WrittenBy>, ContextError> {
        let request = |answer| LeaseRequest::WrittenBy(version, answer);
        let found = self.request("written_by", request).await?;
        found.map_err(|error| ContextError::of_store("read the writer of a breadcrumb", error))
    }

    /// Returns the breadcrumbs that the run wrote so far, or `None` if the store does not record writers.
    pub(super) async fn written(&self) -> Result<Option<HashSet<BreadcrumbId>>, ContextError> {
        let found = self.request("written", LeaseRequest::Written).await?;
        found.map_err(|error| ContextError::of_store("read the writer of a breadcrumb", error))
    }

    async fn request<T>(
        &self,
        operation: &'static str,
        request: impl FnOnce(Reply<T>) -> LeaseRequest,
    ) -> Result<Result<T, StoreError>, ContextError> {
        let refused = |reason| ContextError::Unsupported { operation, reason };
        const RUN_ENDED: &str = "the run has ended";
        let (answer, answered) = oneshot::channel();
        match &mut *self.queue() {
            RequestQueue::Open(requests) if requests.len() >= Self::MAX_PENDING => {
                return Err(refused(
                    "64 requests of this run are pending already; await some of them first",
                ));
            }
            RequestQueue::Open(requests) => requests.push(request(answer)),
            RequestQueue::Closed => return Err(refused(RUN_ENDED)),
        }
        self.added.notify_one();
        answered.await.map_err(|_| refused(RUN_ENDED))
    }

    /// Performs the store operations that the execution context requests, until this future is dropped.
    pub(super) async fn serve(&self, holder: LeaseHolder<'_>) {
        loop {
            self.added.notified().await;
            for request in self.take() {
                // Requests are rare. Boxing their future keeps the future of the common path small.
                Box::pin(holder.answer(request)).await;
            }
        }
    }

    /// Refuses further requests of the execution context, and fails the pending ones.
    pub(super) fn close(&self) {
        let waiting = std::mem::replace(&mut *self.queue(), RequestQueue::Closed);
        drop(waiting);
    }

    fn take(&self) -> Vec<LeaseRequest> {
        match &mut *self.queue() {
            RequestQueue::Open(requests) => std::mem::take(requests),
            RequestQueue::Closed => Vec::new(),
        }
    }

    fn queue(&self) -> MutexGuard<'_, RequestQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LeaseHolder<'_> {
    async fn written_by(
        &self,
        version: (BreadcrumbId, u64),
    ) -> Result<Option<WrittenBy>, StoreError> {
        match self.writer_ledger() {
            Some(ledger) => Ok(ledger.written_by(&[version]).await?.pop()),
            None => Ok(None),
        }
    }

    async fn written(&self) -> Result<Option<HashSet<BreadcrumbId>>, StoreError> {
        let Some(ledger) = self.writer_ledger() else {
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
    fn writer_ledger(&self) -> Option<&dyn RunLedger> {
        self.ledger.filter(|_| self.store.capabilities().lineage)
    }

    /// Performs the store operation that the execution context requested, and sends the result to the context. A state is saved
    /// even if the requesting future was dropped meanwhile.
    async fn answer(&self, request: LeaseRequest) {
        match request {
            LeaseRequest::Save(state, answer) => {
                // Without a ledger the request fails, because its answer is dropped. Contexts of such runs send no save requests.
                if let Some(ledger) = self.ledger {
                    drop(answer.send(ledger.save(self.lease, state).await));
                }
            }
            LeaseRequest::Hints(schemas, answer) => {
                let found = schema_hints::find(self.hints, self.store, schemas);
                let found = within(self.read_timeout, found).await;
                let late = || timed_out(self.read_timeout);
                drop(answer.send(found.unwrap_or_else(|| Err(late()))));
            }
            LeaseRequest::WrittenBy(version, answer) => {
                let found = within(self.read_timeout, self.written_by(version)).await;
                let late = || timed_out(self.read_timeout);
                drop(answer.send(found.unwrap_or_else(|| Err(late()))));
            }
            LeaseRequest::Written(answer) => {
                let found = within(self.read_timeout, self.written()).await;
                let late = || timed_out(self.read_timeout);
                drop(answer.send(found.unwrap_or_else(|| Err(late()))));
            }
        }
    }
}
