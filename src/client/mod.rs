//! Requests to executors from any process that can open the store, and the management of their runs.
//!
//! Use this when a web handler, a command-line program or another service wants an answer from an executor that runs elsewhere.
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
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn BreadcrumbStore>,
    hub: Arc<Hub>,
}

impl Client {
    /// Creates a client of a store. The store handle is cloned.
    #[must_use]
    pub fn new(store: &impl StoreWithEvents) -> Self {
        Self::on(Arc::new(store.clone()), store.event_source())
    }

    /// Creates a client of a store that receives its events from the event source `source`, instead of from the store. The store handle is
    /// cloned.
    #[must_use]
    pub fn on_source<B>(store: &B, source: impl EventSource) -> Self
    where
        B: BreadcrumbStore + Clone + 'static,
    {
        Self::on(Arc::new(store.clone()), Box::new(source))
    }

    fn on(store: Arc<dyn BreadcrumbStore>, source: Box<dyn EventSource>) -> Self {
        let hub = Arc::new(Hub::new(source));
        Self { store, hub }
    }

    /// Creates a request to an executor, to be sent with [`send`](NewClientRequest::send). `breadcrumb` is the trigger, which must match
    /// the executor's subscriptions. Other executors that match are triggered too.
    pub fn request(
        &self,
        executor: impl Into<Arc<str>>,
        breadcrumb: NewBreadcrumb,
    ) -> NewClientRequest {
        NewClientRequest::new(self.clone(), executor.into(), breadcrumb)
    }

    /// Returns the handle of an earlier request by its [request ID](RequestHandle::id). This or another process can have sent the request.
    ///
    /// The store is not read. Anyone can build the ID of a run from a trigger and an executor, even if no request was sent. A service
    /// must therefore check that the caller may see and cancel the request: the ID is neither a secret nor a permission.
    ///
    /// # Errors
    /// [`ClientError::BadId`] if `id` is not the ID of a request.
    pub fn attach(&self, id: &str) -> Result<RequestHandle, ClientError> {
        let run = request::parse_id(id)?;
        Ok(RequestHandle::new(self.clone(), run))
    }

    /// Returns one page of the runs in the ledger, the most recently enqueued first. Continue with [`RunQuery::after`] and
    /// [`RunPage::next`].
    ///
    /// # Errors
    /// [`ClientError::NoLedger`] and [`ClientError::Store`].
    pub async fn runs(&self, query: &RunQuery) -> Result<RunPage, ClientError> {
        let page = self.ledger()?.runs_page(query).await;
        page.map_err(|error| ClientError::of_store("list runs", error))
    }

    /// Returns a run from the ledger. The result is `None` if no worker has enqueued the run yet, or if the store has deleted the run's
    /// row.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`] and [`ClientError::Store`].
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
    /// # Errors
    /// [`ClientError::NoLedger`]; [`ClientError::Store`] if the run is unknown or in another state.
    pub async fn redo(&self, run: &RunRef) -> Result<(), ClientError> {
        let redone = self.ledger()?.redo(run).await;
        redone.map_err(|error| ClientError::of_store(format!("redo {run}"), error))
    }

    /// Lists the workers of the store, the most recently recorded first. Workers that stopped are listed for 24 h.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`] and [`ClientError::Store`].
    pub async fn workers(&self) -> Result<Vec<Worker>, ClientError> {
        let workers = self.ledger()?.workers().await;
        workers.map_err(|error| ClientError::of_store("list the workers", error))
    }

    /// Returns a report on the executors that a breadcrumb triggers, and on the executors that it does not trigger. For each executor, the
    /// report has the result of every subscription, and the state of the run.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`]; [`ClientError::Store`] if the breadcrumb does not exist or a store operation fails.
    pub async fn explain(&self, breadcrumb: BreadcrumbId) -> Result<TriggerReport, ClientError> {
        explain::explain(self, breadcrumb).await
    }

    /// Returns the questions to people that the agents, flows and chats of the client's store have asked.
    #[must_use]
    pub fn questions(&self) -> Questions {
        Questions::new(self.clone())
    }

    pub(super) fn ledger(&self) -> Result<&dyn RunLedger, ClientError> {
        self.store.ledger().ok_or(ClientError::NoLedger)
    }
}

/// Returns the run that a breadcrumb names as its writer.
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
