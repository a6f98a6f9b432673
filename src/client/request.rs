//! Sending of requests to executors, and the handle of a sent request.

use super::reply::{self, Reply};
use super::{Cascade, Client, ClientError, ReplyError, explain};
use crate::error::excerpt;
use crate::executor::check_id;
use crate::model::{BreadcrumbId, NewBreadcrumb};
use crate::store::{BreadcrumbStoreExt as _, NewRequest, RunRef, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// An unsent request to an executor. Created by [`Client::request`], and sent by [`send`](Self::send).
///
/// Without a call of `send`, nothing is written. A clone is a second request: with a key, both lead
/// to the same run.
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::client::ClientError;
/// use universal_executor::{Client, MemoryStore, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let client = Client::new(&MemoryStore::default());
/// let order = |count: u64| NewBreadcrumb::new("order.v1").context(json!({"count": count}));
/// let first = client.request("pricing", order(3)).key("order-17").send().await?;
/// let repeated = client.request("pricing", order(3)).key("order-17").send().await?;
/// assert_eq!(first.id(), repeated.id());
///
/// let other = client.request("pricing", order(4)).key("order-17").send().await;
/// assert!(matches!(other, Err(ClientError::KeyConflict { .. })));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a request is sent by `send`"]
pub struct NewClientRequest {
    client: Client,
    executor: Arc<str>,
    breadcrumb: NewBreadcrumb,
    key: Option<String>,
    needs_listener: bool,
}

impl NewClientRequest {
    pub(super) fn new(client: Client, executor: Arc<str>, breadcrumb: NewBreadcrumb) -> Self {
        Self {
            client,
            executor,
            breadcrumb,
            key: None,
            needs_listener: false,
        }
    }

    /// Sets the idempotency key of the request to the executor, 1 to 255 bytes. A second request to the executor with the same
    /// key and an equal breadcrumb returns the handle of the first request. A key is retained for at least 7 days. Defaults to no
    /// key: every request is new.
    ///
    /// Use a key whenever a caller can repeat the request, for example after a timeout. The
    /// breadcrumb must be equal in all fields, so it must not contain a new timestamp. Different
    /// executors can use the same key. A cancelled request keeps its key.
    ///
    /// A key of another length makes [`send`](Self::send) fail with [`ClientError::Store`]. So does
    /// any key on a store without [`keyed_requests`](crate::store::Capabilities::keyed_requests),
    /// such as a store in [`WithLedger`](crate::WithLedger).
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Requires that a live worker can answer the request: otherwise, the request is not sent. Without such a worker, [`send`](Self::send)
    /// fails with [`ClientError::NoListener`]. The worker must have the request's executor, with subscriptions that match the breadcrumb.
    ///
    /// The check costs one read of the worker records. It is a snapshot: the worker can stop
    /// between the check and the answer. Defaults to no check.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::client::ClientError;
    /// use universal_executor::{Client, MemoryStore, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let client = Client::new(&MemoryStore::default());
    /// let order = NewBreadcrumb::new("order.v1");
    /// let sent = client.request("clerk", order).require_listener().send().await;
    /// assert!(matches!(sent, Err(ClientError::NoListener { .. })));
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    pub fn require_listener(mut self) -> Self {
        self.needs_listener = true;
        self
    }

    /// Sends the request: writes the trigger to the store, and returns the handle of the request.
    ///
    /// The call returns when the trigger is committed, and does not wait for a worker. Call
    /// [`RequestHandle::wait`] for the reply, or return [`RequestHandle::id`] to the caller.
    ///
    /// # Errors
    /// [`ClientError::KeyConflict`], [`ClientError::NoListener`], [`ClientError::NoLedger`] and [`ClientError::Store`]. After
    /// [`ClientError::Store`], the trigger may have been written. A request with a key can be sent again without a duplicate.
    ///
    /// # Cancel safety
    /// If this future is dropped, the trigger may have been written, as after [`ClientError::Store`].
    pub async fn send(self) -> Result<RequestHandle, ClientError> {
        let Self {
            client,
            executor,
            breadcrumb,
            key,
            needs_listener,
        } = self;
        let ledger = client.ledger()?;
        if needs_listener {
            explain::check_listener(&client, &executor, &breadcrumb).await?;
        }
        let (id, version) = match key {
            None => {
                let created = client.store.create(breadcrumb).await;
                let created = created.map_err(|error| of_request(&executor, error))?;
                (created.id, created.version)
            }
            Some(key) => {
                let request = NewRequest::new(Arc::clone(&executor), key, breadcrumb);
                let requested = ledger.request(request).await;
                requested
                    .map_err(|error| conflict(&executor, error))?
                    .trigger()
            }
        };
        let run = RunRef::new(executor, id, version);
        Ok(RequestHandle::new(client, run))
    }
}

fn conflict(executor: &str, error: StoreError) -> ClientError {
    match error {
        StoreError::KeyConflict { executor, key, id } => ClientError::KeyConflict {
            executor,
            key,
            earlier: id,
        },
        error => of_request(executor, error),
    }
}

fn of_request(executor: &str, error: StoreError) -> ClientError {
    ClientError::of_store(format!("send a request to executor {executor:?}"), error)
}

/// Handle of a sent request to an executor. In another process, [`Client::attach`] returns an equal handle for the request's
/// [ID](Self::id).
///
/// Dropping the handle does not change the run. Cloning it is cheap.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use universal_executor::client::ReplyError;
/// use universal_executor::{Client, MemoryStore, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let client = Client::new(&MemoryStore::default());
/// let request = client.request("clerk", NewBreadcrumb::new("order.v1")).send().await?;
///
/// // No worker runs, so the wait ends at its timeout.
/// let waited = request.wait(Duration::from_millis(20)).await;
/// assert!(matches!(waited, Err(ReplyError::TimedOut { state: None, .. })));
/// assert_eq!(client.attach(&request.id())?.run(), request.run());
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RequestHandle {
    client: Client,
    run: RunRef,
}

impl RequestHandle {
    pub(super) fn new(client: Client, run: RunRef) -> Self {
        Self { client, run }
    }

    /// Returns the ID of the request to the executor, with which any process can find the request later. The ID contains no
    /// secrets, and is valid as long as the store has the run.
    ///
    /// The format is `<trigger ID>:<trigger version>:<executor ID>`. Send the ID to a browser, or
    /// save it, and pass it to [`Client::attach`] later. The ID is neither a secret nor a
    /// permission.
    #[must_use]
    pub fn id(&self) -> String {
        let RunRef {
            executor,
            trigger_id,
            trigger_version,
            ..
        } = &self.run;
        format!("{trigger_id}:{trigger_version}:{executor}")
    }

    /// Returns the run that answers the request.
    ///
    /// Pass it to [`Client::run`], [`Client::redo`] or [`Client::cancel`]. [`RunRef::trigger_id`]
    /// is the ID of the breadcrumb that [`send`](NewClientRequest::send) wrote, for example for
    /// [`Client::explain`].
    #[must_use]
    pub fn run(&self) -> &RunRef {
        &self.run
    }

    /// Cancels the request with all runs that its breadcrumbs triggered, as [`Client::cancel`] with [`Cascade::Children`] does. Returns
    /// the number of runs that were ended: 0 if the request and these runs are over.
    ///
    /// Use [`Client::cancel`] with [`Cascade::Run`] to let the child runs continue. A later request
    /// with the same key returns the cancelled request.
    ///
    /// # Errors
    /// As [`Client::cancel`].
    pub async fn cancel(&self) -> Result<usize, ClientError> {
        self.client.cancel(&self.run, Cascade::Children).await
    }

    /// Waits until the run of the request has ended, and returns the breadcrumbs that the run wrote.
    ///
    /// Requires a tokio runtime with time enabled.
    ///
    /// Several callers can wait for the same run. A wait without a worker ends as
    /// [`ReplyError::TimedOut`] with the `state` `None`. After the timeout, the call makes a last
    /// read of the run, which takes at most 4 s if the store does not answer.
    ///
    /// In a web handler, choose a timeout below that of the browser, and wait again. A run that
    /// waits for a person can take a day.
    ///
    /// # Errors
    /// [`ReplyError`] if the run ended without a reply, or could not be read. After [`ReplyError::TimedOut`], the run continues, and the
    /// caller can wait again.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait. The run continues.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime, or if the runtime's time is not enabled.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// use universal_executor::client::{ReplyError, RequestHandle};
    ///
    /// /// Returns the status code for a web client, which calls again after 202.
    /// async fn status(request: &RequestHandle) -> u16 {
    ///     match request.wait(Duration::from_secs(5)).await {
    ///         Ok(_) => 200,
    ///         Err(ReplyError::TimedOut { .. }) => 202,
    ///         Err(ReplyError::Client(_)) => 503,
    ///         Err(_) => 500,
    ///     }
    /// }
    /// ```
    pub async fn wait(&self, timeout: Duration) -> Result<Reply, ReplyError> {
        reply::wait(&self.client, &self.run, timeout).await
    }
}

/// Parses the ID of a request to an executor.
pub(super) fn parse_id(id: &str) -> Result<RunRef, ClientError> {
    let mut parts = id.splitn(3, ':');
    let mut read = || {
        let trigger: BreadcrumbId = parts.next()?.parse().ok()?;
        let version: u64 = parts.next()?.parse().ok()?;
        let executor = parts.next().filter(|id| check_id(id).is_ok())?;
        Some(RunRef::new(executor, trigger, version))
    };
    read().ok_or_else(|| ClientError::BadId {
        id: excerpt(id, 300).into_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::MemoryStore;

    #[test]
    fn the_id_of_a_request_names_its_run() {
        let client = Client::new(&MemoryStore::default());
        for executor in ["clerk", "a:b:c", "é 1"] {
            let run = RunRef::new(executor, BreadcrumbId::NIL, 7);

            let id = RequestHandle::new(client.clone(), run.clone()).id();

            assert_eq!(*client.attach(&id).unwrap().run(), run);
        }
    }

    #[test]
    fn a_text_that_is_not_an_id_is_an_error() {
        let nil = BreadcrumbId::NIL;
        for id in [
            "",
            "clerk",
            "x:1:clerk",
            &format!("{nil}:x:clerk"),
            &format!("{nil}:1:"),
            &format!("{nil}:1:clerk\n"),
            &format!("{nil}:1:{}", "c".repeat(257)),
        ] {
            let error = parse_id(id).unwrap_err();
            assert!(
                matches!(&error, ClientError::BadId { id: shown } if *shown == excerpt(id, 300)),
                "{error}"
            );
        }
    }
}
