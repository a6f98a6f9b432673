//! Sending of requests to executors, and the handle of a sent request.

use super::reply::{self, Reply};
use super::{Cascade, Client, ClientError, ReplyError, explain};
use crate::error::excerpt;
use crate::executor::check_id;
use crate::model::{BreadcrumbId, NewBreadcrumb};
use crate::store::{BreadcrumbStoreExt as _, NewRequest, RunRef, StoreError};
use std::sync::Arc;
use std::time::Duration;

/// A request to an executor that is not sent yet. Created by [`Client::request`], and sent by [`send`](Self::send).
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

    /// Sets the idempotency key of the request, 1 to 255 bytes. A second request to the executor with the same key and an equal breadcrumb
    /// returns the handle of the first request. A key is retained for at least 7 days. Defaults to no key: every request is new.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Requires a live worker for the request. Without one, [`send`](Self::send) writes nothing and fails with
    /// [`ClientError::NoListener`]. The worker must have the request's executor, with subscriptions that match the breadcrumb.
    pub fn require_listener(mut self) -> Self {
        self.needs_listener = true;
        self
    }

    /// Sends the request: writes the trigger to the store, and returns the handle of the request.
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
#[derive(Clone, Debug)]
pub struct RequestHandle {
    client: Client,
    run: RunRef,
}

impl RequestHandle {
    pub(super) fn new(client: Client, run: RunRef) -> Self {
        Self { client, run }
    }

    /// Returns the ID of the request. The ID contains no secrets, and is valid as long as the store has the run.
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
    #[must_use]
    pub fn run(&self) -> &RunRef {
        &self.run
    }

    /// Cancels the request with all runs that its breadcrumbs triggered, as [`Client::cancel`] with [`Cascade::Children`] does. Returns
    /// the number of runs that were ended: 0 if the request and these runs are over.
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
    /// # Errors
    /// [`ReplyError`] if the run ended without a reply, or could not be read. After [`ReplyError::TimedOut`], the run continues, and the
    /// caller can wait again.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait. The run continues.
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
