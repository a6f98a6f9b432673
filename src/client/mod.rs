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

mod error;
mod explain;
mod hub;
mod questions;
mod reply;
mod reply_error;
mod request;
mod session;

pub use crate::session_log::SessionError;
pub use error::ClientError;
pub use explain::{ExecutorReport, TriggerReport};
pub use questions::{AnswerError, Principal, QuestionKind, QuestionView, Questions};
pub use reply::Reply;
pub use reply_error::ReplyError;
pub use request::{NewClientRequest, RequestHandle};
pub use session::{Envelope, NewMessage, PastTurn, Session, SessionView, Turn, TurnEnd, TurnEvent};

use crate::model::{Breadcrumb, BreadcrumbId, NewBreadcrumb};
use crate::source::EventSource;
use crate::store::{
    BreadcrumbStore, Cancelled, Run, RunFilter, RunLedger, RunPage, RunQuery, RunRef, StoreError,
    StoreWithEvents, Worker, WrittenBy,
};
use hub::Hub;
use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;

/// A client of the executors that share a store: it sends requests, waits for replies, and lists, cancels and redoes runs.
///
/// A clone is a pointer. The client needs no runtime in its own process, and its store must have a
/// [run ledger](BreadcrumbStore::ledger). On a store that does not [record writers](crate::store::Capabilities::lineage), such as one in
/// [`WithLedger`](crate::WithLedger), a reply names no breadcrumbs and a timeout names no question.
#[derive(Clone)]
pub struct Client {
    store: Arc<dyn BreadcrumbStore>,
    hub: Arc<Hub>,
}

/// The runs that [`Client::cancel`] ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Cascade {
    /// Only the run itself.
    Run,
    /// The run, and all runs that its breadcrumbs triggered, directly or through other runs. Runs that no worker has enqueued yet are
    /// not found, and on a store that does not [record writers](crate::store::Capabilities::lineage) no child is.
    Children,
}

/// Maximum number of runs that one call of [`Client::cancel`] ends.
const MOST_CANCELLED: usize = 10_000;

impl Client {
    /// Creates a client of a store. The store handle is cloned.
    #[must_use]
    pub fn new(store: &impl StoreWithEvents) -> Self {
        Self::on(Arc::new(store.clone()), store.event_source())
    }

    /// Creates a client of a store whose events come from another source. The store handle is cloned.
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

    /// Starts a request to an executor: `breadcrumb` is the trigger, which must match the executor's subscriptions. Other executors
    /// that match are triggered as well.
    pub fn request(
        &self,
        executor: impl Into<Arc<str>>,
        breadcrumb: NewBreadcrumb,
    ) -> NewClientRequest {
        NewClientRequest::new(self.clone(), executor.into(), breadcrumb)
    }

    /// Returns the handle of a request that this or another process sent, by its [ID](RequestHandle::id).
    ///
    /// # Errors
    /// [`ClientError::BadId`] if the text is not the ID of a request.
    pub fn attach(&self, id: &str) -> Result<RequestHandle, ClientError> {
        let run = request::parse_id(id)?;
        Ok(RequestHandle::new(self.clone(), run))
    }

    /// Returns one page of runs, the most recently enqueued first. Continue with [`RunQuery::after`] and [`RunPage::next`].
    ///
    /// # Errors
    /// [`ClientError::NoLedger`] and [`ClientError::Store`].
    pub async fn runs(&self, query: &RunQuery) -> Result<RunPage, ClientError> {
        Ok(self.ledger()?.runs_page(query).await?)
    }

    /// Returns a run. `None` if no worker has enqueued it yet, or if the store retains it no more.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`] and [`ClientError::Store`].
    pub async fn run(&self, run: &RunRef) -> Result<Option<Run>, ClientError> {
        let mut filter = RunFilter::all().trigger(run.trigger_id);
        filter.executor = Some(run.executor.to_string());
        let found = self.ledger()?.runs(&filter).await?;
        Ok(found.into_iter().find(|found| found.run == *run))
    }

    /// Runs a run again that failed, or that was skipped because its executor did not match the trigger: with fresh attempts and a
    /// new idempotency key.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`]; [`ClientError::Store`] if the run is unknown or in another state.
    pub async fn redo(&self, run: &RunRef) -> Result<(), ClientError> {
        Ok(self.ledger()?.redo(run).await?)
    }

    /// Ends a run that is not over as failed, with the code `cancelled`. Returns the number of runs that were ended.
    ///
    /// A worker that executes a run drops it with its next heartbeat, usually within 10 s, and nothing that it commits later
    /// becomes visible. At most 10,000 runs are ended by one call.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`]; [`ClientError::Store`] if the run is unknown or a store operation fails. Runs that were ended before
    /// stay ended.
    pub async fn cancel(&self, run: &RunRef, cascade: Cascade) -> Result<usize, ClientError> {
        let ledger = self.ledger()?;
        let mut ended = usize::from(is_ended(ledger.cancel(run).await?));
        let name = |run: &RunRef| {
            (
                Arc::clone(&run.executor),
                run.trigger_id,
                run.trigger_version,
            )
        };
        let mut known = HashSet::from([name(run)]);
        let mut parents = vec![run.clone()];
        while let Some(parent) = parents.pop().filter(|_| cascade == Cascade::Children) {
            for child in self.children(&parent).await? {
                if known.len() >= MOST_CANCELLED || !known.insert(name(&child)) {
                    continue;
                }
                match ledger.cancel(&child).await {
                    Ok(cancelled) => ended += usize::from(is_ended(cancelled)),
                    // The store does not retain the run any more.
                    Err(StoreError::UnknownRun { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
                parents.push(child);
            }
        }
        Ok(ended)
    }

    /// Returns the runs that the breadcrumbs of a run triggered: on the versions that this run wrote, as the store recorded it.
    async fn children(&self, parent: &RunRef) -> Result<Vec<RunRef>, ClientError> {
        let (ledger, mut children) = (self.ledger()?, Vec::new());
        let Some(run) = self.run(parent).await? else {
            return Ok(children);
        };
        for id in run.written {
            let runs = ledger.runs(&RunFilter::all().trigger(id)).await?;
            if runs.is_empty() {
                continue;
            }
            let written = match self.store.get(id).await {
                Ok(written) => written,
                Err(StoreError::NotFound { .. }) => continue,
                Err(error) => return Err(error.into()),
            };
            let writers = ledger.written_by(&[(id, written.version)]).await?;
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

    /// Lists the workers of the store, the most recently recorded first. Workers that stopped are listed for 24 h.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`] and [`ClientError::Store`].
    pub async fn workers(&self) -> Result<Vec<Worker>, ClientError> {
        Ok(self.ledger()?.workers().await?)
    }

    /// Reports for each executor of a worker whether a breadcrumb triggers it, why not, and the state of the run.
    ///
    /// # Errors
    /// [`ClientError::NoLedger`]; [`ClientError::Store`] if the breadcrumb does not exist or a store operation fails.
    pub async fn explain(&self, breadcrumb: BreadcrumbId) -> Result<TriggerReport, ClientError> {
        explain::explain(self, breadcrumb).await
    }

    /// Returns the questions to people on this store.
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

/// Returns `true` if a cancellation ended a run.
fn is_ended(cancelled: Cancelled) -> bool {
    match cancelled {
        Cancelled::Waiting | Cancelled::Running => true,
        Cancelled::Over(_) => false,
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}
