//! Shared parts of the executor layer's tests: an executor made of closures, and a store that fails, delays or changes its answers on
//! request.

pub(crate) mod log;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use universal_executor::executor::ExecutorError;
use universal_executor::store::{
    Cancelled, Capabilities, Claim, ClaimId, Claimed, Commit, Committed, ExecutorLimits,
    KeyPosition, Lease, Lost, NewRequest, NewRun, PausedExecutor, Query, Requested, Run, RunFilter,
    RunPage, RunQuery, RunRef, Scored, StoreError, StoreId, VectorQuery, Worker, WorkerRecord,
    WrittenBy,
};
use universal_executor::{
    BoxError, Breadcrumb, BreadcrumbId, BreadcrumbStore, BreadcrumbStoreExt, Event,
    ExecutionContext, Failure, Json, MemoryStore, NewBreadcrumb, Outcome, Profile, Response,
    RunLedger, Selector, Subscription, Subscriptions, UniversalExecutor, async_trait,
};

type Execute =
    dyn Fn(ExecutionContext) -> BoxFuture<'static, Result<Value, BoxError>> + Send + Sync;
type Respond = dyn Fn(&Breadcrumb, Value) -> Result<Response, BoxError> + Send + Sync;
type Fail = dyn Fn(&Breadcrumb, &Failure) -> Result<Response, BoxError> + Send + Sync;

/// An executor made of closures. It counts its calls and records each context.
///
/// By default, it writes an `answer.v1` with `{"ok": true}`.
pub(crate) struct Probe {
    id: String,
    subscriptions: Subscriptions,
    store: Box<dyn BreadcrumbStore>,
    profile: Profile,
    execute: Box<Execute>,
    respond: Box<Respond>,
    fail: Box<Fail>,
    contexts: Mutex<Vec<ExecutionContext>>,
    failures: Mutex<Vec<String>>,
    responses: AtomicUsize,
}

impl Probe {
    pub(crate) fn new(
        id: &str,
        store: &(impl BreadcrumbStore + Clone),
        subscriptions: impl IntoIterator<Item = Subscription>,
    ) -> Self {
        Self {
            id: id.to_owned(),
            subscriptions: Subscriptions::new(subscriptions).unwrap(),
            store: Box::new(store.clone()),
            profile: Profile::default(),
            execute: Box::new(|_| Box::pin(async { Ok(json!({"ok": true})) })),
            respond: Box::new(|_, output| {
                Ok(Response::create(
                    NewBreadcrumb::new("answer.v1").context(output),
                ))
            }),
            fail: Box::new(|_, _| Ok(Response::none())),
            contexts: Mutex::default(),
            failures: Mutex::default(),
            responses: AtomicUsize::new(0),
        }
    }

    /// Creates an executor with one schema as its trigger.
    pub(crate) fn on(schema: &str, id: &str, store: &(impl BreadcrumbStore + Clone)) -> Self {
        Self::new(id, store, [Subscription::trigger(schema)])
    }

    pub(crate) fn profile(mut self, profile: Profile) -> Self {
        self.profile = profile;
        self
    }

    pub(crate) fn executing<F, R>(mut self, execute: F) -> Self
    where
        F: Fn(ExecutionContext) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Value, BoxError>> + Send + 'static,
    {
        self.execute = Box::new(move |context| Box::pin(execute(context)));
        self
    }

    /// Lets `execute` never return.
    pub(crate) fn hanging(self) -> Self {
        self.executing(|_| std::future::pending())
    }

    /// Lets `execute` fail with the error that a closure returns.
    pub(crate) fn failing(self, error: impl Fn() -> BoxError + Send + Sync + 'static) -> Self {
        self.executing(move |_| std::future::ready(Err(error())))
    }

    pub(crate) fn responding<F>(mut self, respond: F) -> Self
    where
        F: Fn(&Breadcrumb, Value) -> Result<Response, BoxError> + Send + Sync + 'static,
    {
        self.respond = Box::new(respond);
        self
    }

    /// Lets `respond` return this response for every trigger.
    pub(crate) fn writing(self, response: Response) -> Self {
        self.responding(move |_, _| Ok(response.clone()))
    }

    pub(crate) fn answering_failures<F>(mut self, fail: F) -> Self
    where
        F: Fn(&Breadcrumb, &Failure) -> Result<Response, BoxError> + Send + Sync + 'static,
    {
        self.fail = Box::new(fail);
        self
    }

    pub(crate) fn shared(self) -> Arc<Self> {
        Arc::new(self)
    }

    /// Returns the number of calls of `execute`.
    pub(crate) fn executed(&self) -> usize {
        self.contexts.lock().unwrap().len()
    }

    /// Returns the number of calls of `respond`.
    pub(crate) fn responded(&self) -> usize {
        self.responses.load(Ordering::SeqCst)
    }

    /// Returns the class and message that each call of `respond_failure` received.
    pub(crate) fn failures(&self) -> Vec<String> {
        self.failures.lock().unwrap().clone()
    }

    /// Returns the context of one call of `execute`, counted from 0.
    pub(crate) fn context(&self, call: usize) -> ExecutionContext {
        self.contexts.lock().unwrap().get(call).unwrap().clone()
    }

    pub(crate) async fn sees(&self, breadcrumb: &Breadcrumb) -> Result<Outcome, ExecutorError> {
        self.process_event(&event_of(breadcrumb)).await
    }
}

#[async_trait]
impl UniversalExecutor for Probe {
    fn id(&self) -> &str {
        &self.id
    }

    fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    fn store(&self) -> &dyn BreadcrumbStore {
        &*self.store
    }

    fn profile(&self) -> &Profile {
        &self.profile
    }

    async fn execute(&self, _: &Breadcrumb, context: &ExecutionContext) -> Result<Value, BoxError> {
        self.contexts.lock().unwrap().push(context.clone());
        (self.execute)(context.clone()).await
    }

    async fn respond(&self, trigger: &Breadcrumb, output: Value) -> Result<Response, BoxError> {
        self.responses.fetch_add(1, Ordering::SeqCst);
        (self.respond)(trigger, output)
    }

    async fn respond_failure(
        &self,
        trigger: &Breadcrumb,
        failure: &Failure,
    ) -> Result<Response, BoxError> {
        let told = format!("{}: {}", failure.class, failure.message);
        self.failures.lock().unwrap().push(told);
        (self.fail)(trigger, failure)
    }
}

/// A call of a store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Call<'c> {
    Get(BreadcrumbId),
    Search(&'c Query),
    Commit(&'c Commit),
    Claim,
    Enqueue,
    Heartbeat,
    Retry,
    Release,
    Save,
    Resume,
    Runs(&'c RunFilter),
    RunsPage(&'c RunQuery),
}

/// The effect of a [`Shim`] on a call.
pub(crate) enum Do {
    Pass,
    /// Delays the operation.
    Wait(Duration),
    Fail(StoreError),
    Hang,
    /// Performs a search immediately and delays its result. Delays any other operation.
    Late(Duration),
    /// Returns these breadcrumbs from a read instead of the stored ones.
    Answer(Vec<Arc<Breadcrumb>>),
}

type Script = dyn Fn(Call<'_>) -> Do + Send + Sync;

/// A [`MemoryStore`] whose calls follow a script.
#[derive(Clone)]
pub(crate) struct Shim {
    inner: MemoryStore,
    id: StoreId,
    script: Arc<Script>,
    capabilities: Capabilities,
    ledger: bool,
    near: Vec<Scored>,
}

impl Shim {
    pub(crate) fn new(
        inner: &MemoryStore,
        script: impl Fn(Call<'_>) -> Do + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner: inner.clone(),
            id: StoreId::unique(inner.tenant()),
            script: Arc::new(script),
            capabilities: inner.capabilities(),
            ledger: true,
            near: Vec::new(),
        }
    }

    /// Creates a shim on the same data for a worker that dies: it never releases a run.
    pub(crate) fn of_a_worker_that_dies(inner: &MemoryStore) -> Self {
        Self::new(inner, |call| match call {
            Call::Release => Do::Hang,
            _ => Do::Pass,
        })
    }

    /// Creates a shim on the same data without the run ledger.
    pub(crate) fn without_ledger(inner: &MemoryStore) -> Self {
        Self::new(inner, |_| Do::Pass).ledgerless()
    }

    /// Removes the run ledger.
    pub(crate) fn ledgerless(mut self) -> Self {
        self.ledger = false;
        self
    }

    /// Replaces the capabilities. The ledger is still the one of the inner store, so lineage stays available.
    pub(crate) fn able_to(mut self, capabilities: Capabilities) -> Self {
        self.capabilities = capabilities.lineage(true);
        self
    }

    /// Sets the result of every vector search.
    pub(crate) fn nearest(mut self, found: Vec<Scored>) -> Self {
        self.near = found;
        self.capabilities = self.capabilities.vector_search(true);
        self
    }

    async fn play(&self, call: Call<'_>) -> Result<Option<Vec<Arc<Breadcrumb>>>, StoreError> {
        match (self.script)(call) {
            Do::Pass => Ok(None),
            Do::Wait(delay) => {
                tokio::time::sleep(delay).await;
                Ok(None)
            }
            Do::Late(delay) => {
                let found = match call {
                    Call::Search(query) => Some(self.inner.search(query).await?),
                    _ => None,
                };
                tokio::time::sleep(delay).await;
                Ok(found)
            }
            Do::Fail(error) => Err(error),
            Do::Hang => std::future::pending().await,
            Do::Answer(found) => Ok(Some(found)),
        }
    }
}

impl fmt::Debug for Shim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Shim")
    }
}

#[async_trait]
impl BreadcrumbStore for Shim {
    fn tenant(&self) -> &str {
        self.inner.tenant()
    }

    fn identity(&self) -> StoreId {
        self.id.clone()
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    async fn get(&self, id: BreadcrumbId) -> Result<Arc<Breadcrumb>, StoreError> {
        match self.play(Call::Get(id)).await? {
            Some(found) => Ok(found.into_iter().next().unwrap()),
            None => self.inner.get(id).await,
        }
    }

    async fn search(&self, query: &Query) -> Result<Vec<Arc<Breadcrumb>>, StoreError> {
        match self.play(Call::Search(query)).await? {
            Some(found) => Ok(found),
            None => self.inner.search(query).await,
        }
    }

    async fn vector_search(&self, query: &VectorQuery) -> Result<Vec<Scored>, StoreError> {
        if !self.capabilities.vector_search {
            return self.inner.vector_search(query).await;
        }
        self.play(Call::Search(&query.query)).await?;
        Ok(self.near.clone())
    }

    async fn commit(&self, commit: Commit) -> Result<Committed, StoreError> {
        self.play(Call::Commit(&commit)).await?;
        self.inner.commit(commit).await
    }

    fn ledger(&self) -> Option<&dyn RunLedger> {
        self.ledger.then_some(self)
    }
}

#[async_trait]
impl RunLedger for Shim {
    async fn enqueue(&self, runs: Vec<NewRun>) -> Result<(), StoreError> {
        self.play(Call::Enqueue).await?;
        self.inner.enqueue(runs).await
    }

    async fn claim(&self, run: &RunRef, instead_of: Option<Lease>) -> Result<Claim, StoreError> {
        self.play(Call::Claim).await?;
        self.inner.claim(run, instead_of).await
    }

    async fn claim_next(
        &self,
        n: usize,
        of: &[ExecutorLimits],
        id: ClaimId,
    ) -> Result<Vec<Claimed>, StoreError> {
        self.play(Call::Claim).await?;
        let mut claimed = self.inner.claim_next(n, of, id).await?;
        // The scripted store has no triggers at hand, so the executor must read them with `get`.
        claimed.iter_mut().for_each(|run| run.trigger = None);
        Ok(claimed)
    }

    async fn heartbeat(&self, leases: &[Lease]) -> Result<Vec<Lost>, StoreError> {
        self.play(Call::Heartbeat).await?;
        self.inner.heartbeat(leases).await
    }

    async fn retry(
        &self,
        lease: Lease,
        at: universal_executor::model::Timestamp,
        counts: bool,
        cause: Option<&str>,
    ) -> Result<(), StoreError> {
        self.play(Call::Retry).await?;
        self.inner.retry(lease, at, counts, cause).await
    }

    async fn release(&self, lease: Lease) -> Result<(), StoreError> {
        self.play(Call::Release).await?;
        self.inner.release(lease).await
    }

    async fn transfer(
        &self,
        lease: Lease,
        version: &str,
        until: universal_executor::model::Timestamp,
        position: KeyPosition,
    ) -> Result<(), StoreError> {
        self.inner.transfer(lease, version, until, position).await
    }

    async fn accept_transfers(
        &self,
        versions: &[(Arc<str>, Arc<str>)],
    ) -> Result<usize, StoreError> {
        self.inner.accept_transfers(versions).await
    }

    async fn record_worker(&self, worker: &WorkerRecord) -> Result<(), StoreError> {
        self.inner.record_worker(worker).await
    }

    async fn workers(&self) -> Result<Vec<Worker>, StoreError> {
        self.inner.workers().await
    }

    async fn save_positions(&self, positions: &[(Arc<str>, Vec<u8>)]) -> Result<(), StoreError> {
        self.inner.save_positions(positions).await
    }

    async fn positions(&self, executors: &[Arc<str>]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.inner.positions(executors).await
    }

    async fn save(&self, lease: &Lease, state: Json) -> Result<(), StoreError> {
        self.play(Call::Save).await?;
        self.inner.save(lease, state).await
    }

    async fn resume(&self, run: &RunRef, with: BreadcrumbId) -> Result<(), StoreError> {
        self.play(Call::Resume).await?;
        self.inner.resume(run, with).await
    }

    async fn redo(&self, run: &RunRef) -> Result<(), StoreError> {
        self.inner.redo(run).await
    }

    async fn cancel(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        self.inner.cancel(run).await
    }

    async fn enqueue_cancelled(&self, run: &RunRef) -> Result<Cancelled, StoreError> {
        self.inner.enqueue_cancelled(run).await
    }

    async fn skip(&self, run: &RunRef) -> Result<(), StoreError> {
        self.inner.skip(run).await
    }

    async fn pause_executor(&self, executor: &str) -> Result<bool, StoreError> {
        self.inner.pause_executor(executor).await
    }

    async fn resume_executor(&self, executor: &str) -> Result<bool, StoreError> {
        self.inner.resume_executor(executor).await
    }

    async fn paused_executors(&self) -> Result<Vec<PausedExecutor>, StoreError> {
        self.inner.paused_executors().await
    }

    async fn request(&self, request: NewRequest) -> Result<Requested, StoreError> {
        self.inner.request(request).await
    }

    async fn runs(&self, filter: &RunFilter) -> Result<Vec<Run>, StoreError> {
        // The runs are listed before the script runs, so a delayed answer is out of date.
        let listed = self.inner.runs(filter).await;
        self.play(Call::Runs(filter)).await?;
        listed
    }

    async fn runs_page(&self, query: &RunQuery) -> Result<RunPage, StoreError> {
        let page = self.inner.runs_page(query).await;
        self.play(Call::RunsPage(query)).await?;
        page
    }

    async fn written_by(
        &self,
        versions: &[(BreadcrumbId, u64)],
    ) -> Result<Vec<WrittenBy>, StoreError> {
        self.inner.written_by(versions).await
    }
}

/// Returns the error of a store that is temporarily unavailable.
pub(crate) fn unavailable() -> StoreError {
    StoreError::Unavailable {
        store: "shim",
        retry_after: Duration::ZERO,
        source: "connection refused".into(),
    }
}

/// Returns the event of a breadcrumb's current version.
pub(crate) fn event_of(breadcrumb: &Breadcrumb) -> Event {
    if breadcrumb.version > 1 {
        Event::updated(breadcrumb)
    } else {
        Event::created(breadcrumb)
    }
}

/// Writes a breadcrumb from outside the runtime.
pub(crate) async fn put(store: &MemoryStore, schema: &str, context: Value) -> Arc<Breadcrumb> {
    store
        .create(NewBreadcrumb::new(schema).context(context))
        .await
        .unwrap()
}

/// Returns all breadcrumbs of a schema, newest first.
pub(crate) async fn all(store: &MemoryStore, schema: &str) -> Vec<Arc<Breadcrumb>> {
    let query = Query::new(Selector::schema(schema)).limit(10_000);
    store.search(&query).await.unwrap()
}

/// Returns the rows of the ledger.
pub(crate) async fn runs(store: &MemoryStore) -> Vec<Run> {
    store.runs(&RunFilter::all()).await.unwrap()
}

/// Returns a JSON value with this number of nested arrays.
pub(crate) fn nested(levels: usize) -> Value {
    (0..levels).fold(json!(1), |inner, _| Value::Array(vec![inner]))
}

/// Waits in paused time until a condition holds.
pub(crate) async fn eventually(mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(7_200), waiting)
        .await
        .unwrap();
}
