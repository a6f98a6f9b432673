//! Requests to executors from any process that can open the store, and operations on runs, such as cancellation.
//!
//! Use this when a web handler, a command-line program or another service wants an answer from an executor that runs elsewhere.
//!
//! A [`Client`] needs the store and no runtime. Clone one client for all handlers of a server.
//!
//! Start with these types:
//!
//! | to | use |
//! |---|---|
//! | send a request and wait for its reply | [`Client::request`], [`RequestHandle::wait`] |
//! | chat with an executor, with streamed text | [`Client::session`], [`Session`], [`Turn`] |
//! | list and answer questions to people | [`Client::questions`], [`Questions`], [`Principal`] |
//! | list, cancel and repeat runs | [`Client::runs`], [`Client::cancel`], [`Client::redo`] |
//! | find the reason why a breadcrumb starts no run | [`Client::explain`] |
//!
//! ```
//! use serde_json::json;
//! use std::time::Duration;
//! use universal_executor::client::Client;
//! use universal_executor::{MemoryStore, NewBreadcrumb, Response, Runtime, Subscription, executor};
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
//! let greeter = executor("greeter")
//!     .on(Subscription::trigger("visitor.v1"))
//!     .execute(|cx| async move {
//!         let name = cx.trigger().context["name"].clone();
//!         Ok(Response::create(NewBreadcrumb::new("greeting.v1").context(json!({"hello": name}))))
//!     });
//! let store = MemoryStore::default();
//! let running = Runtime::on(&store).executor(greeter).start().await?;
//!
//! let client = Client::new(&store);
//! let visitor = NewBreadcrumb::new("visitor.v1").context(json!({"name": "Ann"}));
//! let request = client.request("greeter", visitor).key("visit-7").send().await?;
//! let reply = request.wait(Duration::from_secs(30)).await?;
//! let greeting = reply.response().ok_or("no greeting")?;
//! assert_eq!(greeting.context["hello"], "Ann");
//!
//! // The ID of the request is a string, so another process can wait for the same reply.
//! let same = client.attach(&request.id())?;
//! assert_eq!(same.wait(Duration::from_secs(30)).await?, reply);
//! running.stop().await?;
//! # Ok::<(), universal_executor::BoxError>(())
//! # })?;
//! # Ok::<(), universal_executor::BoxError>(())
//! ```

mod cancel;
mod error;
mod explain;
mod hub;
mod questions;
mod reads;
mod reply;
mod reply_error;
mod request;
mod session;

pub use crate::session_log::SessionError;
pub use cancel::Cascade;
pub use error::{ClientError, StoreFailure};
pub use explain::{ExecutorReport, TriggerReport};
pub use questions::{AnswerError, Principal, QuestionKind, QuestionState, QuestionView, Questions};
pub use reply::Reply;
pub use reply_error::ReplyError;
pub use request::{NewClientRequest, RequestHandle};
pub use session::{Envelope, NewMessage, PastTurn, Session, SessionView, Turn, TurnEnd, TurnEvent};

use crate::model::{Breadcrumb, BreadcrumbId, NewBreadcrumb};
use crate::source::EventSource;
use crate::store::{
    BreadcrumbStore, Run, RunFilter, RunLedger, RunPage, RunQuery, RunRef, StoreWithEvents, Worker,
};
use hub::Hub;
use std::fmt;
use std::sync::Arc;

/// A client of the executors that share a store: it sends requests, waits for replies, and lists, cancels and redoes runs.
///
/// Cloning is cheap. The client needs no runtime in its process, but its store must have a
/// [run ledger](BreadcrumbStore::ledger). On a store that does not [record writers](crate::store::Capabilities::lineage), such as a
/// store in [`WithLedger`](crate::WithLedger), a reply contains no breadcrumbs and a timeout names no question.
///
/// All clones share one subscription to the store's events. The subscription opens with the first
/// wait of [`RequestHandle::wait`] or [`Turn::next`], and closes when no wait was open for 10 s. An
/// event ends a pause between two reads of the run. Without an event, the pauses grow from 50 ms to
/// 5 s. At most 10,000 open waits of a client receive events; further waits only use these pauses.
///
/// A client belongs to the tenant of its store handle, and neither sees nor changes the runs of
/// other tenants.
///
/// # Examples
/// ```
/// use universal_executor::store::RunQuery;
/// use universal_executor::{Client, MemoryStore, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::default(); // a service uses a durable store
/// let client = Client::new(&store);
/// let order = NewBreadcrumb::new("order.v1");
/// let request = client.request("clerk", order).key("order-7").send().await?;
///
/// // No worker runs in this example, so an operator cancels the request.
/// assert_eq!(request.cancel().await?, 1);
/// let page = client.runs(&RunQuery::failed().executor("clerk")).await?;
/// assert_eq!(page.runs.len(), 1);
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn BreadcrumbStore>,
    hub: Arc<Hub>,
}

impl Client {
    /// Creates a client of a store. The store handle is cloned.
    ///
    /// Creating a client reads nothing and opens no subscription. Each client has a separate
    /// subscription, so clone a client instead of creating one per request.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{Client, MemoryStore};
    ///
    /// let client = Client::new(&MemoryStore::default());
    /// let for_handler = client.clone();
    /// # drop(for_handler);
    /// ```
    #[must_use]
    pub fn new(store: &impl StoreWithEvents) -> Self {
        Self::on(Arc::new(store.clone()), store.event_source())
    }

    /// Creates a client of a store that receives its events from the event source `source`, instead of from the store. The store handle is
    /// cloned.
    ///
    /// Use this for a store that is no source of events, or for a service whose events come over
    /// another channel, such as NATS. The client receives events from the time of the subscription,
    /// and acknowledges them. A lost event delays a reply by at most 5 s.
    ///
    /// Do not pass a source that [shares](EventSource::is_shared) its events with the workers, such
    /// as a NATS source with a `group`: the client would take events from the workers. Pass a source
    /// without a group.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{Client, MemoryStore};
    ///
    /// let store = MemoryStore::default();
    /// let client = Client::on_source(&store, store.events());
    /// # drop(client);
    /// ```
    #[must_use]
    pub fn on_source<B>(store: &B, source: impl EventSource) -> Self
    where
        B: BreadcrumbStore + Clone + 'static,
    {
        Self::on(Arc::new(store.clone()), Box::new(source))
    }

    /// Returns the store of the client.
    #[cfg(feature = "mcp-server")]
    pub(crate) fn store(&self) -> &dyn BreadcrumbStore {
        &*self.store
    }

    fn on(store: Arc<dyn BreadcrumbStore>, source: Box<dyn EventSource>) -> Self {
        let hub = Arc::new(Hub::new(source));
        Self { store, hub }
    }

    /// Creates a request to an executor, to be sent with [`send`](NewClientRequest::send). `breadcrumb` is the trigger, which must match
    /// the executor's subscriptions. Other executors that match are triggered too.
    ///
    /// Nothing is read or written before `send`, and the executor ID is not checked. If no worker
    /// has the executor, the breadcrumb waits in the store.
    /// [`require_listener`](NewClientRequest::require_listener) makes such a request fail.
    ///
    /// # Examples
    /// ```
    /// use serde_json::json;
    /// use universal_executor::{Client, MemoryStore, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let client = Client::new(&MemoryStore::default());
    /// let order = NewBreadcrumb::new("order.v1").context(json!({"count": 3}));
    /// let request = client.request("pricing", order).key("order-17").send().await?;
    /// assert_eq!(&*request.run().executor, "pricing");
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn request(
        &self,
        executor: impl Into<Arc<str>>,
        breadcrumb: NewBreadcrumb,
    ) -> NewClientRequest {
        NewClientRequest::new(self.clone(), executor.into(), breadcrumb)
    }

    /// Returns the handle of an earlier request to an executor by its [request ID](RequestHandle::id). This or another process
    /// can have sent the request.
    ///
    /// The store is not read. Anyone can build the ID of a run from a trigger and an executor, even if no request was sent. A service
    /// must therefore check that the caller may see and cancel the request: the ID is neither a secret nor a permission.
    ///
    /// # Errors
    /// [`ClientError::BadId`] if `id` is not the ID of a request.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{Client, MemoryStore, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let order = NewBreadcrumb::new("order.v1");
    /// let id = Client::new(&store).request("clerk", order).send().await?.id();
    ///
    /// // Another process with the same store, for example after a restart.
    /// let request = Client::new(&store).attach(&id)?;
    /// assert_eq!(request.id(), id);
    /// assert!(Client::new(&store).attach("order 7").is_err());
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn attach(&self, id: &str) -> Result<RequestHandle, ClientError> {
        let run = request::parse_id(id)?;
        Ok(RequestHandle::new(self.clone(), run))
    }

    /// Returns one page of the runs in the ledger, the most recently enqueued first. Continue with [`RunQuery::after`] and
    /// [`RunPage::next`].
    ///
    /// A page has [100](RunQuery::DEFAULT_LIMIT) runs by default, and at most
    /// [1,000](RunQuery::MAX_LIMIT). Runs that no worker has enqueued yet are not in the ledger.
    /// The ledger deletes the oldest finished runs when it has too many.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`] and [`ClientError::Store`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::client::Cascade;
    /// use universal_executor::store::RunQuery;
    /// use universal_executor::{Client, MemoryStore, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let client = Client::new(&MemoryStore::default());
    /// for _ in 0..3 {
    ///     let request = client.request("clerk", NewBreadcrumb::new("order.v1")).send().await?;
    ///     client.cancel(request.run(), Cascade::Run).await?;
    /// }
    ///
    /// let mut query = RunQuery::failed().executor("clerk").limit(2);
    /// let mut cancelled = 0;
    /// loop {
    ///     let page = client.runs(&query).await?;
    ///     cancelled += page.runs.len();
    ///     let Some(next) = page.next else { break };
    ///     query = query.after(next);
    /// }
    /// assert_eq!(cancelled, 3);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn runs(&self, query: &RunQuery) -> Result<RunPage, ClientError> {
        let page = self.ledger()?.runs_page(query).await;
        page.map_err(|error| ClientError::of_store("list runs", error))
    }

    /// Returns the ledger's record of a run. The result is `None` if no worker has enqueued the run yet, or if the store has
    /// deleted the run's row.
    ///
    /// Use this to show the state, the attempts or the last error of one run.
    /// [`RequestHandle::wait`] waits for the end of a run without polling in your code.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`] and [`ClientError::Store`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::RunState;
    /// use universal_executor::{Client, MemoryStore, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let client = Client::new(&MemoryStore::default());
    /// let request = client.request("clerk", NewBreadcrumb::new("order.v1")).send().await?;
    /// assert!(client.run(request.run()).await?.is_none()); // no worker has received it
    ///
    /// request.cancel().await?;
    /// let run = client.run(request.run()).await?.ok_or("no run")?;
    /// assert_eq!(run.state, RunState::Failed);
    /// assert_eq!(run.code.as_deref(), Some("cancelled"));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn run(&self, run: &RunRef) -> Result<Option<Run>, ClientError> {
        let mut filter = RunFilter::all().trigger(run.trigger_id);
        filter.executor = Some(run.executor.to_string());
        let found = self.ledger()?.runs(&filter).await;
        let found = found.map_err(|error| ClientError::of_store(format!("read {run}"), error))?;
        Ok(found.into_iter().find(|found| found.run == *run))
    }

    /// Repeats a failed run, or a run that was skipped because its executor did not match the trigger. The run gets fresh attempts and a
    /// new idempotency key.
    ///
    /// Use this after the cause of a failure is removed. A worker starts the run at its next check
    /// of the ledger, within [`sweep_every`](crate::runtime::RuntimeBuilder::sweep_every) (5 s by
    /// default). The dead letter of the run stays in the store. Calls to external services can
    /// happen again, because their idempotency key changes. If the trigger has a later version by
    /// then, the repeated run ends as superseded.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`]; [`ClientError::Store`] if the run is unknown or in another state.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::RunState;
    /// use universal_executor::{Client, MemoryStore, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let client = Client::new(&MemoryStore::default());
    /// let request = client.request("clerk", NewBreadcrumb::new("order.v1")).send().await?;
    /// request.cancel().await?;
    ///
    /// client.redo(request.run()).await?;
    /// let run = client.run(request.run()).await?.ok_or("no run")?;
    /// assert_eq!(run.state, RunState::Ready);
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn redo(&self, run: &RunRef) -> Result<(), ClientError> {
        let redone = self.ledger()?.redo(run).await;
        redone.map_err(|error| ClientError::of_store(format!("redo {run}"), error))
    }

    /// Lists the workers of the store, sorted by the time when each worker last stored its record, the latest first. Workers that stopped
    /// are listed for 24 h.
    ///
    /// A worker counts as [live](Worker::is_live) for 30 s after it last stored its record. It
    /// stores the record every 10 s. Use this for an overview page, or to check that a deployment
    /// has started.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`] and [`ClientError::Store`].
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{Client, MemoryStore, Response, Runtime, Subscription, executor};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|_| async { Ok(Response::none()) });
    /// let running = Runtime::on(&store).executor(clerk).worker_name("desk-1").start().await?;
    ///
    /// let workers = Client::new(&store).workers().await?;
    /// assert_eq!(workers[0].record.name, "desk-1");
    /// assert!(workers[0].is_live);
    /// running.stop().await?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn workers(&self) -> Result<Vec<Worker>, ClientError> {
        let workers = self.ledger()?.workers().await;
        workers.map_err(|error| ClientError::of_store("list the workers", error))
    }

    /// Returns a report on the executors that a breadcrumb triggers, and on the executors that it does not trigger. For each executor, the
    /// report has the result of every subscription, and the state of the run.
    ///
    /// Use this when a breadcrumb starts no run, or to debug a subscription. The report covers the
    /// workers that were recorded in the last 24 h. It evaluates the current version of the
    /// breadcrumb: version 1 as a creation, a later version as an update. The call reads the
    /// breadcrumb, its runs and all worker records.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`]; [`ClientError::Store`] if the breadcrumb does not exist or a store operation fails.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::{
    ///     BreadcrumbStoreExt, Client, MemoryStore, NewBreadcrumb, Response, Route, Runtime,
    ///     Subscription, executor,
    /// };
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = MemoryStore::default();
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|_| async { Ok(Response::none()) });
    /// let running = Runtime::on(&store).executor(clerk).start().await?;
    /// let visit = store.create(NewBreadcrumb::new("visit.v1")).await?;
    ///
    /// let report = Client::new(&store).explain(visit.id).await?;
    /// let clerk = &report.executors[0];
    /// assert!(matches!(&clerk.explanation, Ok(found) if found.route == Route::Unmatched));
    /// assert!(clerk.run.is_none());
    /// println!("{report}");
    /// running.stop().await?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub async fn explain(&self, breadcrumb: BreadcrumbId) -> Result<TriggerReport, ClientError> {
        explain::explain(self, breadcrumb).await
    }

    /// Returns the questions to people that the agents, flows and chats of the client's store have asked.
    ///
    /// Use this for a page on which people approve tool calls and answer agents. The call reads
    /// nothing; [`Questions`] has the example.
    #[must_use]
    pub fn questions(&self) -> Questions {
        Questions::new(self.clone())
    }

    pub(super) fn ledger(&self) -> Result<&dyn RunLedger, ClientError> {
        self.store.ledger().ok_or(ClientError::NoLedger)
    }
}

/// Returns the run that the field `creator` in a breadcrumb's context states as the writer of the breadcrumb.
fn creator_of(breadcrumb: &Breadcrumb) -> Option<RunRef> {
    let creator = breadcrumb.context.get("creator")?;
    let trigger: BreadcrumbId = creator.get("trigger_id")?.as_str()?.parse().ok()?;
    let version = creator.get("trigger_version")?.as_u64()?;
    Some(RunRef::new(creator.get("id")?.as_str()?, trigger, version))
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
