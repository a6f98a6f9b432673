mod source;

use super::wrap::wrap_store;
use super::{BreadcrumbStore, Operation, StoreError, StoreId, metrics};
use crate::error::Retry;
use crate::source::SourceError;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A store, or a source of events, that tells of each call: what was asked, how long it took and how it ended.
///
/// Each call is one `tracing` event at the level `DEBUG`, in the span of its caller, and with the feature `metrics` one
/// entry in a histogram of [`store::metrics`](super::metrics). Nothing else changes: it has the tenant, the
/// capabilities and the ledger of the store inside.
///
/// ```
/// use universal_executor::store::Instrumented;
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = Instrumented::new("sessions", MemoryStore::default());
///
/// // DEBUG asked a store name="sessions" tenant="default" operation="commit" outcome="ok" retryable=false took=12.3µs
/// store.create(NewBreadcrumb::new("note.v1")).await?;
/// # Ok::<(), universal_executor::store::StoreError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # What it tells
/// | field | of |
/// |---|---|
/// | `name` | this wrapper, as it was made |
/// | `tenant` | the store; a source has none |
/// | `operation` | the [`Operation`], by its name |
/// | `outcome` | `ok`, the code of the error, `dropped` if nobody waited any more, `ended` for a stream |
/// | `retryable` | the error: whether trying again could help |
/// | `took` | the call; for `next` this is how long it waited for an event |
///
/// It never tells what is read or written, or what an error says.
///
/// # Sources
/// Subscribing is a call, and so are each delivery and what a source is told of one. A store made from a handle, by
/// `in_tenant` or as `events`, is not observed unless it is wrapped too.
#[derive(Clone, Debug)]
pub struct Instrumented<S> {
    name: Arc<str>,
    inner: S,
}

impl<S> Instrumented<S> {
    /// A store or a source that is called by a name when it tells of its calls.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, inner: S) -> Self {
        Self {
            name: name.into(),
            inner,
        }
    }

    /// Another store or source by the same name.
    #[must_use]
    pub fn beside<T>(&self, other: T) -> Instrumented<T> {
        Instrumented {
            name: Arc::clone(&self.name),
            inner: other,
        }
    }

    /// What is inside, and tells nothing.
    #[must_use]
    pub const fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: BreadcrumbStore> Instrumented<S> {
    fn data(&self) -> StoreId {
        self.inner.identity()
    }

    async fn call<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        operation: Operation,
        call: impl FnOnce() -> F,
    ) -> Result<T, StoreError> {
        let mut watch = Watch::begin(&self.name, Some(self.inner.tenant()), operation);
        let answer = call().await;
        watch.ended = match &answer {
            Ok(_) => Ended::OK,
            Err(error) => Ended::with(error.code(), error.retry()),
        };
        answer
    }
}

wrap_store!(Instrumented, "Instrumented");

/// One call. It is told of when this is dropped, so that one which nobody waits for any more is told of too.
struct Watch<'o> {
    name: &'o str,
    /// None for a source.
    tenant: Option<&'o str>,
    operation: Operation,
    began: Instant,
    ended: Ended,
}

/// How a call ended.
struct Ended {
    outcome: &'static str,
    retryable: bool,
}

impl Ended {
    const OK: Self = Self::so("ok");

    const fn so(outcome: &'static str) -> Self {
        Self {
            outcome,
            retryable: false,
        }
    }

    const fn with(code: &'static str, retry: Retry) -> Self {
        Self {
            outcome: code,
            retryable: matches!(retry, Retry::After(_)),
        }
    }

    fn of_source<T>(answer: &Result<T, SourceError>) -> Self {
        match answer {
            Ok(_) => Self::OK,
            Err(error) => Self::with(error.code(), error.retry()),
        }
    }
}

impl<'o> Watch<'o> {
    fn begin(name: &'o str, tenant: Option<&'o str>, operation: Operation) -> Self {
        Self {
            name,
            tenant,
            operation,
            began: Instant::now(),
            ended: Ended::so("dropped"),
        }
    }

    fn tell(&self, took: Duration) {
        let (name, operation) = (self.name, self.operation.name());
        let Ended { outcome, retryable } = self.ended;
        match self.tenant {
            Some(tenant) => {
                tracing::debug!(
                    name,
                    tenant,
                    operation,
                    outcome,
                    retryable,
                    ?took,
                    "asked a store"
                );
            }
            None => {
                tracing::debug!(name, operation, outcome, retryable, ?took, "asked a source");
            }
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let took = self.began.elapsed();
        let measured = match self.tenant {
            Some(_) => metrics::STORE_SECONDS,
            None => metrics::SOURCE_SECONDS,
        };
        metrics::took(measured, self.operation, self.ended.outcome, took);
        self.tell(took);
    }
}
