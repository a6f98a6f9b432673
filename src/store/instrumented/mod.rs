mod source;

use super::wrap::wrap_store;
use super::{BreadcrumbStore, Operation, StoreError, StoreId, metrics};
use crate::error::Retry;
use crate::source::SourceError;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A wrapper around a store or an event source that logs each call: the operation, its duration and its outcome.
///
/// Each call is one `tracing` event at the level `DEBUG`, in the span of its caller. With the feature `metrics`, each call is also
/// one value of a histogram of [`store::metrics`](super::metrics). The wrapper has the tenant, the capabilities and the ledger of
/// the inner store, and returns the result of each call unchanged.
///
/// ```
/// use universal_executor::store::Instrumented;
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = Instrumented::new("sessions", MemoryStore::default());
///
/// // DEBUG a store call ended name="sessions" tenant="default" operation="commit" outcome="ok" retryable=false took=12.3µs
/// store.create(NewBreadcrumb::new("note.v1")).await?;
/// # Ok::<(), universal_executor::store::StoreError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Use it to see slow or failing calls of a store in production. Without a subscriber for `DEBUG`
/// and without the feature `metrics`, a call costs little more than two readings of the clock.
///
/// # Fields
/// | field | meaning |
/// |---|---|
/// | `name` | name that was passed to [`new`](Self::new) |
/// | `tenant` | tenant of the store; absent for a source |
/// | `operation` | [name](Operation::name) of the [`Operation`] |
/// | `outcome` | `ok`, the error code, `dropped` if the caller dropped the future, or `ended` at the end of an event stream |
/// | `retryable` | `true` if the call failed and a retry can succeed |
/// | `took` | duration of the call; for `next`, the time until the source delivered an event |
///
/// The event contains neither breadcrumbs nor error messages.
///
/// # Sources
/// A subscription, each delivery, and each `ack` or `nack` of a delivery is one call. A store from `in_tenant` and a source from
/// `events` of the wrapped store are not instrumented. Wrap each of them with [`beside`](Self::beside).
#[derive(Clone, Debug)]
pub struct Instrumented<S> {
    name: Arc<str>,
    inner: S,
}

impl<S> Instrumented<S> {
    /// Wraps a store or an event source, so that each of its calls is logged. `name` identifies the wrapper in the log.
    #[must_use]
    pub fn new(name: impl Into<Arc<str>>, inner: S) -> Self {
        Self {
            name: name.into(),
            inner,
        }
    }

    /// Wraps another store or event source, and logs its calls under the name of this wrapper.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::Instrumented;
    /// use universal_executor::{BreadcrumbStore, MemoryStore};
    ///
    /// let store = Instrumented::new("desk", MemoryStore::default());
    /// let acme = store.beside(store.inner().in_tenant("acme"));
    /// assert_eq!(acme.tenant(), "acme");
    /// ```
    #[must_use]
    pub fn beside<T>(&self, other: T) -> Instrumented<T> {
        Instrumented {
            name: Arc::clone(&self.name),
            inner: other,
        }
    }

    /// Returns the inner store or event source. Calls of the inner value are not logged.
    ///
    /// Use it for methods that only the concrete store has, such as `in_tenant`.
    #[must_use]
    pub const fn inner(&self) -> &S {
        &self.inner
    }
}

impl<S: BreadcrumbStore> Instrumented<S> {
    fn wrapped_identity(&self) -> StoreId {
        self.inner.identity()
    }

    async fn call<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        operation: Operation,
        call: impl FnOnce() -> F,
    ) -> Result<T, StoreError> {
        let mut timer = CallTimer::begin(&self.name, Some(self.inner.tenant()), operation);
        let answer = call().await;
        timer.outcome = match &answer {
            Ok(_) => CallOutcome::OK,
            Err(error) => CallOutcome::failed(error.code(), error.retry()),
        };
        answer
    }
}

wrap_store!(Instrumented, "Instrumented");

/// Measurement of one call of a store or an event source. Logs the call when dropped, so that a call whose future is dropped is
/// logged too.
struct CallTimer<'o> {
    name: &'o str,
    /// The tenant of the store; `None` for an event source.
    tenant: Option<&'o str>,
    operation: Operation,
    started_at: Instant,
    outcome: CallOutcome,
}

/// Outcome of one call of a store or an event source.
struct CallOutcome {
    /// The value of the log field `outcome`: `ok`, an error code, `dropped` or `ended`.
    code: &'static str,
    retryable: bool,
}

impl CallOutcome {
    const OK: Self = Self::plain("ok");

    const fn plain(code: &'static str) -> Self {
        Self {
            code,
            retryable: false,
        }
    }

    const fn failed(code: &'static str, retry: Retry) -> Self {
        Self {
            code,
            retryable: matches!(retry, Retry::After(_)),
        }
    }

    fn of_source<T>(answer: &Result<T, SourceError>) -> Self {
        match answer {
            Ok(_) => Self::OK,
            Err(error) => Self::failed(error.code(), error.retry()),
        }
    }
}

impl<'o> CallTimer<'o> {
    fn begin(name: &'o str, tenant: Option<&'o str>, operation: Operation) -> Self {
        Self {
            name,
            tenant,
            operation,
            started_at: Instant::now(),
            outcome: CallOutcome::plain("dropped"),
        }
    }

    fn log(&self, took: Duration) {
        let (name, operation) = (self.name, self.operation.name());
        let CallOutcome {
            code: outcome,
            retryable,
        } = self.outcome;
        match self.tenant {
            Some(tenant) => {
                tracing::debug!(
                    name,
                    tenant,
                    operation,
                    outcome,
                    retryable,
                    ?took,
                    "a store call ended"
                );
            }
            None => {
                tracing::debug!(
                    name,
                    operation,
                    outcome,
                    retryable,
                    ?took,
                    "an event source call ended"
                );
            }
        }
    }
}

impl Drop for CallTimer<'_> {
    fn drop(&mut self) {
        let took = self.started_at.elapsed();
        let measured = match self.tenant {
            Some(_) => metrics::STORE_SECONDS,
            None => metrics::SOURCE_SECONDS,
        };
        metrics::record_call(measured, self.operation, self.outcome.code, took);
        self.log(took);
    }
}
