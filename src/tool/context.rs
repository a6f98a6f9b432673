use super::progress::{Progress, Request};
use super::wire::{request_id, requested_by, workspace};
use crate::executor::{ContextError, ExecutionContext};
use crate::hex::hex;
use crate::model::{Breadcrumb, Selector};
use crate::store::{BreadcrumbStore, StoreError};
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use std::sync::{Arc, Weak};
use std::time::Duration;
use tokio::sync::OwnedSemaphorePermit;

/// What a tool is called with beside its input. Cheap to clone, and owned, so that it can move into other tasks.
///
/// It is the same whether the tool has a run of its own, because of a request, or is called within the run of an
/// agent; then trigger and sources are the agent's.
#[derive(Clone, Debug)]
pub struct ToolContext {
    context: Arc<ExecutionContext>,
    store: Arc<dyn BreadcrumbStore>,
    call: Option<Arc<InRun>>,
    progress: Arc<Progress>,
    /// The place among the calls that may go on at a time, for as long as the call goes on.
    slot: Weak<OwnedSemaphorePermit>,
}

/// A call within somebody else's run.
#[derive(Debug)]
struct InRun {
    id: String,
    requested_by: Option<String>,
    idempotency_key: String,
}

impl ToolContext {
    /// The context of a call because of a trigger.
    pub(super) fn new(
        context: &ExecutionContext,
        store: &Arc<dyn BreadcrumbStore>,
        tool: &str,
    ) -> Self {
        Self {
            store: context.bound_store(Arc::clone(store)),
            context: Arc::new(context.clone()),
            call: None,
            progress: Arc::new(Progress::of(tool)),
            slot: Weak::new(),
        }
    }

    /// The context of a call within the run of somebody else.
    pub(super) fn in_run(
        context: &ExecutionContext,
        store: &Arc<dyn BreadcrumbStore>,
        tool: &str,
        (id, requested_by): (&str, Option<&str>),
    ) -> Self {
        let call = InRun {
            idempotency_key: key_of(context.idempotency_key(), id),
            id: id.to_owned(),
            requested_by: requested_by.map(str::to_owned),
        };
        Self {
            call: Some(Arc::new(call)),
            ..Self::new(context, store, tool)
        }
    }

    /// The same for a call that has a place among those that may go on. The place is not held by it: a tool may keep its
    /// context for as long as it likes.
    pub(super) fn in_slot(self, slot: Option<&Arc<OwnedSemaphorePermit>>) -> Self {
        Self {
            slot: slot.map(Arc::downgrade).unwrap_or_default(),
            ..self
        }
    }

    /// The place of the call, for what goes on after the call was given up.
    pub(super) fn slot(&self) -> Option<Arc<OwnedSemaphorePermit>> {
        self.slot.upgrade()
    }

    /// For unit tests of a tool: a context made by hand, and a store that writes as it is told.
    #[must_use]
    pub fn for_test(context: ExecutionContext, store: Arc<dyn BreadcrumbStore>) -> Self {
        Self {
            context: Arc::new(context),
            store,
            call: None,
            progress: Arc::new(Progress::of("test")),
            slot: Weak::new(),
        }
    }

    /// What the context subscriptions found, under their keys.
    #[must_use]
    pub fn context(&self) -> &ExecutionContext {
        &self.context
    }

    /// The request, or whatever else triggered the run.
    #[must_use]
    pub fn trigger(&self) -> &Breadcrumb {
        self.context.trigger()
    }

    /// The id of what is asked for: that of the call within a run; else the request's `requestId` of up to 512 bytes, else
    /// the trigger's own id.
    #[must_use]
    pub fn request_id(&self) -> String {
        match &self.call {
            Some(call) => call.id.clone(),
            None => request_id(self.trigger()),
        }
    }

    /// Who asked, if that is said, of a request in up to 512 bytes. Anybody can write any name into a request.
    #[must_use]
    pub fn requested_by(&self) -> Option<&str> {
        match &self.call {
            Some(call) => call.requested_by.as_deref(),
            None => requested_by(self.trigger()),
        }
    }

    /// The workspace tag that the response carries: the trigger's, else `workspace:tools`.
    #[must_use]
    pub fn workspace(&self) -> &str {
        workspace(self.trigger())
    }

    /// The key that calls to the outside world should carry: the same for every attempt at this request, and another
    /// for each call within a run.
    #[must_use]
    pub fn idempotency_key(&self) -> &str {
        match &self.call {
            Some(call) => &call.idempotency_key,
            None => self.context.idempotency_key(),
        }
    }

    /// A store handle bound to this run: what it writes is stamped, limited to the schemas the run may write, and
    /// refused once the run is lost. What it writes stays if the run is tried again.
    #[must_use]
    pub fn store(&self) -> &dyn BreadcrumbStore {
        &*self.store
    }

    /// Waits for the first breadcrumb that matches and is announced from now on; see
    /// [`ExecutionContext::wait_for`].
    ///
    /// # Errors
    /// As [`ExecutionContext::wait_for`]; a wait counts towards the time the call may take.
    pub fn wait_for(
        &self,
        selector: Selector,
        timeout: Duration,
    ) -> impl Future<Output = Result<Arc<Breadcrumb>, ContextError>> + Send + 'static + use<> {
        self.context.wait_for(selector, timeout)
    }

    /// Says how far the call is: writes a `tool.progress.v1` with `progress`, a text or any JSON of up to 16 KiB, that
    /// goes after a day. Of one call the first 100 are written, the others are dropped.
    ///
    /// # Errors
    /// [`StoreError`]; `Forbidden` within a run whose executor may not write the schema, or if it is too large.
    pub async fn progress(&self, progress: impl Into<Value>) -> Result<(), StoreError> {
        let request = Request {
            id: self.request_id(),
            requested_by: self.requested_by(),
            workspace: self.workspace(),
        };
        let Some(note) = self.progress.note(&request, progress.into())? else {
            return Ok(());
        };
        self.store.commit(vec![note].into()).await.map(drop)
    }

    /// Resolves when the run is over, which may be because it was cancelled; for work the tool has spawned.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.context.cancelled()
    }
}

/// The key of a call within a run. Of one length, whatever the id is, and no two ids give the same.
fn key_of(run: &str, id: &str) -> String {
    let mut hash = Sha256::new();
    for part in [run, id] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize())
}
