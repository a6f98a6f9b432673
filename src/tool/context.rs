use super::progress::{Progress, RequestIdentity};
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

/// Context of a tool call: the trigger, a store handle, and the identity of the request.
///
/// The type is the same for a tool that serves a request in its own run and for a tool that is called within the run of an agent. In
/// an agent's run, the context has the trigger and the sources of the agent. A clone is cheap and can move into other tasks.
///
/// A tool receives the context as its second argument. Use
/// [`idempotency_key`](Self::idempotency_key) for calls to external services,
/// [`store`](Self::store) to read and write breadcrumbs, and [`progress`](Self::progress) in a slow
/// tool.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use std::sync::Arc;
/// use universal_executor::tool::{ToolExecutor, json_tool};
/// use universal_executor::{BreadcrumbStoreExt, Event, MemoryStore};
/// use universal_executor::{NewBreadcrumb, UniversalExecutor};
///
/// // The tool writes a breadcrumb as part of its run.
/// let schema = json!({"type": "string"});
/// let note = json_tool("note", "Saves a note.", schema, |input, context| async move {
///     let note = NewBreadcrumb::new("note.v1").context(json!({"text": input}));
///     let note = context.store().create(note).await?;
///     Ok(json!({"id": note.id, "request": context.request_id()}))
/// });
///
/// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
/// let store = MemoryStore::default();
/// let tool = ToolExecutor::new(note, Arc::new(store.clone()))?.also_writes(["note.v1"]);
/// let request = json!({"tool": "note", "input": "milk", "requestId": "r-1"});
/// let request = store.create(NewBreadcrumb::new("tool.request.v1").context(request)).await?;
/// tool.process_event(&Event::created(&request)).await?;
///
/// let note = store.latest("note.v1").await?.ok_or("no note")?;
/// assert_eq!(note.context["text"], "milk");
/// assert_eq!(note.created_by.as_deref(), Some("note"));
/// let response = store.latest("tool.response.v1").await?.ok_or("no response")?;
/// assert_eq!(response.context["output"]["request"], "r-1");
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ToolContext {
    context: Arc<ExecutionContext>,
    store: Arc<dyn BreadcrumbStore>,
    call: Option<Arc<CallIdentity>>,
    progress: Arc<Progress>,
    /// Weak reference to this call's permit under the tool's limit on concurrent calls. The permit exists while the call runs.
    permit: Weak<OwnedSemaphorePermit>,
}

/// Identity of a tool call within the run of another executor.
#[derive(Debug)]
struct CallIdentity {
    id: String,
    requested_by: Option<String>,
    idempotency_key: String,
}

impl ToolContext {
    /// Creates the tool context for a call in a run of the tool itself.
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
            permit: Weak::new(),
        }
    }

    /// Creates the tool context for a call within the run of another executor.
    pub(super) fn in_run(
        context: &ExecutionContext,
        store: &Arc<dyn BreadcrumbStore>,
        tool: &str,
        (id, requested_by): (&str, Option<&str>),
    ) -> Self {
        let call = CallIdentity {
            idempotency_key: key_of(context.idempotency_key(), id),
            id: id.to_owned(),
            requested_by: requested_by.map(str::to_owned),
        };
        Self {
            call: Some(Arc::new(call)),
            ..Self::new(context, store, tool)
        }
    }

    /// Sets the permit of a tool call under the tool's limit on concurrent calls. The context holds the permit only weakly,
    /// because a tool may keep its context after the call.
    pub(super) fn with_permit(self, permit: Option<&Arc<OwnedSemaphorePermit>>) -> Self {
        Self {
            permit: permit.map(Arc::downgrade).unwrap_or_default(),
            ..self
        }
    }

    /// Returns the tool call's permit under the limit on concurrent calls, for work that continues after the call timed out or
    /// was cancelled.
    pub(super) fn permit(&self) -> Option<Arc<OwnedSemaphorePermit>> {
        self.permit.upgrade()
    }

    /// Creates a tool context for unit tests of a tool. Writes to `store` are neither stamped nor limited to schemas.
    ///
    /// The context belongs to no run: its request ID is the ID of the trigger, or the field
    /// `requestId` of the trigger. [`json_tool`](super::json_tool) has an example.
    #[must_use]
    pub fn for_test(context: ExecutionContext, store: Arc<dyn BreadcrumbStore>) -> Self {
        Self {
            context: Arc::new(context),
            store,
            call: None,
            progress: Arc::new(Progress::of("test")),
            permit: Weak::new(),
        }
    }

    /// Returns the execution context of the run in which the tool is called: the trigger, and the breadcrumbs that the context
    /// subscriptions selected.
    ///
    /// Use it to read the sources of the context subscriptions, such as the pages or orders that
    /// the caller selected.
    #[must_use]
    pub fn context(&self) -> &ExecutionContext {
        &self.context
    }

    /// Returns the trigger of the run in which the tool is called. The trigger is the tool request, or another breadcrumb that the
    /// executor's subscriptions select.
    #[must_use]
    pub fn trigger(&self) -> &Breadcrumb {
        self.context.trigger()
    }

    /// Returns the request ID of the tool call. Within the run of an agent, this is the ID of the call. Otherwise it is the
    /// `requestId` of the request, or the ID of the trigger if `requestId` is missing or longer than 512 bytes.
    #[must_use]
    pub fn request_id(&self) -> String {
        match &self.call {
            Some(call) => call.id.clone(),
            None => request_id(self.trigger()),
        }
    }

    /// Returns the name of the requester of the tool call, or `None` if the call has no such name. A name of more than 512 bytes
    /// in a request counts as missing.
    ///
    /// The author of a request can write any name, so the name proves nothing.
    ///
    /// Within the run of another executor, it is the argument of
    /// [`ToolRegistry::call`](super::ToolRegistry::call). For a tool request, it is the field
    /// `requestedBy` or `requested_by`.
    #[must_use]
    pub fn requested_by(&self) -> Option<&str> {
        match &self.call {
            Some(call) => call.requested_by.as_deref(),
            None => requested_by(self.trigger()),
        }
    }

    /// Returns the workspace tag for the tool response: the trigger's workspace tag, or `workspace:tools` for a trigger without
    /// one.
    #[must_use]
    pub fn workspace(&self) -> &str {
        workspace(self.trigger())
    }

    /// Returns the tool call's idempotency key, by which an external system can recognize a call that a retry repeats. All
    /// attempts of a tool request have the same key. Within the run of an agent, each tool call has a different key.
    ///
    /// Pass the key to external services that ignore repeated calls. A tool can be called again
    /// after a crash if it is [idempotent](super::RetrySafety::Idempotent), and after
    /// [`retry_after`](crate::retry_after). Within an agent's run, the key is a hash of the run's
    /// key and the call ID, as 64 hexadecimal digits.
    #[must_use]
    pub fn idempotency_key(&self) -> &str {
        match &self.call {
            Some(call) => &call.idempotency_key,
            None => self.context.idempotency_key(),
        }
    }

    /// Returns a store handle whose commits are part of the run in which the tool is called.
    ///
    /// The handle stamps each write with its creator, and refuses schemas that the run may not write. With a run ledger, commits fail
    /// once the lease of the run is lost. Committed writes remain if the run is retried.
    ///
    /// A tool of a [`ToolExecutor`](super::ToolExecutor) may write `tool.response.v1` and
    /// `tool.progress.v1`, and the schemas of [`also_writes`](super::ToolExecutor::also_writes). A
    /// tool of an agent may write the schemas in the agent's
    /// [`responds_with`](crate::Profile::responds_with). A write of another schema is
    /// [`StoreError::Forbidden`].
    #[must_use]
    pub fn store(&self) -> &dyn BreadcrumbStore {
        &*self.store
    }

    /// Waits for the first breadcrumb that matches a selector and of which the runtime receives an event after this method call.
    /// See [`ExecutionContext::wait_for`]. The wait counts towards the timeout of the tool call.
    ///
    /// The wait and its timeout start at the call, not at the first poll. To miss no answer, call
    /// this method, then write the request, then await the future. Only a run that a
    /// [`Runtime`](crate::Runtime) processes can wait.
    ///
    /// # Errors
    /// The errors of [`ExecutionContext::wait_for`].
    pub fn wait_for(
        &self,
        selector: Selector,
        timeout: Duration,
    ) -> impl Future<Output = Result<Arc<Breadcrumb>, ContextError>> + Send + 'static + use<> {
        self.context.wait_for(selector, timeout)
    }

    /// Reports the progress of the tool call: writes a `tool.progress.v1` breadcrumb that expires after a day.
    ///
    /// `progress` is a string or any JSON of at most 16 KiB. The first 100 reports of a call are written, and further reports are
    /// dropped.
    ///
    /// # Errors
    /// [`StoreError::Forbidden`] if `progress` is too large or nests too deeply, or if the executor of the run may not write
    /// `tool.progress.v1`. Otherwise the [`StoreError`] of the write.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use universal_executor::tool::ToolContext;
    /// use universal_executor::{BreadcrumbStoreExt, ExecutionContext, MemoryStore, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let run = ExecutionContext::for_trigger(NewBreadcrumb::new("tool.request.v1"));
    /// let context = ToolContext::for_test(run, Arc::new(store.clone()));
    /// context.progress("read 10 of 20 files").await?;
    ///
    /// let report = store.latest("tool.progress.v1").await?.ok_or("no report")?;
    /// assert_eq!(report.context["number"], 1);
    /// assert_eq!(report.context["progress"], "read 10 of 20 files");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn progress(&self, progress: impl Into<Value>) -> Result<(), StoreError> {
        let request = RequestIdentity {
            id: self.request_id(),
            requested_by: self.requested_by(),
            workspace: self.workspace(),
        };
        let Some(report) = self.progress.report(&request, progress.into())? else {
            return Ok(());
        };
        self.store.commit(vec![report].into()).await.map(drop)
    }

    /// Returns a future that resolves when the run is over or cancelled. Use this future to stop tasks that the tool spawned. See
    /// [`ExecutionContext::cancelled`].
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static + use<> {
        self.context.cancelled()
    }
}

/// Returns the idempotency key of a tool call within a run: a hash of the run's key and the call ID.
fn key_of(run: &str, id: &str) -> String {
    let mut hash = Sha256::new();
    for part in [run, id] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part.as_bytes());
    }
    hex(&hash.finalize())
}
