mod source;

use super::wrap::wrap_store;
use super::{BreadcrumbStore, Operation, StoreError, StoreId};
use crate::source::SourceError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// A wrapper around a store or an event source that injects errors, delays and hangs, to test how executors react to them.
///
/// A *plan* decides about each call: the wrapper calls the plan before the call, and again after a successful call. It returns
/// errors of the inner store unchanged. The plan runs on the thread of the caller, so it may also count calls, block, or kill its
/// own process.
///
/// ```
/// use serde_json::json;
/// use universal_executor::store::{Fault, Faulty, Moment, Operation, StoreError};
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// // Commits succeed, but the caller receives an error.
/// let store = Faulty::new(MemoryStore::default(), |operation, moment| match (operation, moment) {
///     (Operation::Commit, Moment::After) => Fault::Fail,
///     _ => Fault::None,
/// });
///
/// let answer = store.create(NewBreadcrumb::new("note.v1").context(json!({"n": 1}))).await;
///
/// assert!(matches!(answer, Err(StoreError::Unavailable { .. })));
/// assert!(store.latest("note.v1").await?.is_some());
/// # Ok::<(), StoreError>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Use it in tests of executors and of store wrappers. For simple plans with counters, use
/// `testing::Faults` (feature `testing`).
///
/// # Stores
/// The wrapper has the tenant, the capabilities and the ledger of the inner store. Its identity is different, so a runtime
/// separates it from handles without these faults. A store from `in_tenant` and a source from `events` of the inner store have no
/// faults. Wrap each of them with [`beside`](Self::beside).
///
/// # Sources
/// No fault loses an event. [`Fault::Fail`] at [`Operation::Next`] is an error in the stream, and the stream then continues with
/// the event that was due or already received. The plan is called before the stream waits for an event, and again when the event
/// has arrived. It is not called for the `ack` or `nack` of a delivery without a [`Receipt`](crate::source::Receipt).
#[derive(Clone)]
pub struct Faulty<S> {
    inner: S,
    plan: Plan,
    /// Name of the fault plan, as part of the identity of the store.
    name: Arc<str>,
}

/// Moment at which a fault plan chooses a fault: before or after a call of a store or an event source.
///
/// A fault at [`Before`](Self::Before) tests a lost request, and at [`After`](Self::After) a lost
/// response.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Moment {
    /// Before the call of the inner store or source, when nothing has been done yet.
    Before,
    /// After a successful call of the inner store or source, before the caller receives the result.
    After,
}

/// Decision of a fault plan about a call of a store or an event source.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// The call of the store or event source continues without a fault.
    None,
    /// The call fails with [`StoreError::Unavailable`] or [`SourceError::Unavailable`], and [`Injected`] is the source of the
    /// error. At [`Moment::Before`], the operation is not performed. At [`Moment::After`], it has been performed, and its result
    /// is lost.
    Fail,
    /// The call of the store or event source continues after this delay.
    ///
    /// The delay is by tokio's clock, so a test with paused time does not really wait.
    Delay(Duration),
    /// The call of the store or event source never returns. Its caller can only drop the future.
    ///
    /// Use it to test timeouts and cancellation.
    Hang,
}

/// Error that is the `source()` of every error injected by a [`Faulty`] store or event source.
///
/// Find it in the source of an error, to distinguish injected errors from real ones.
///
/// ```
/// use std::error::Error;
/// use universal_executor::store::{Fault, Faulty, Injected, Moment, Operation};
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let store = Faulty::new(MemoryStore::default(), |operation, moment| match (operation, moment) {
///     (Operation::Commit, Moment::Before) => Fault::Fail,
///     _ => Fault::None,
/// });
/// let error = store.create(NewBreadcrumb::new("note.v1")).await.unwrap_err();
/// let injected = error.source().and_then(|cause| cause.downcast_ref::<Injected>());
/// assert_eq!(injected.map(|one| one.operation), Some(Operation::Commit));
/// # Ok::<(), universal_executor::BoxError>(())
/// # })?;
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a fault was injected {} {operation}", moment.name())]
#[non_exhaustive]
pub struct Injected {
    /// The operation that the injected fault affects.
    pub operation: Operation,
    /// The moment of the fault: before or after the call of the inner store or event source.
    pub moment: Moment,
}

type Plan = Arc<dyn Fn(Operation, Moment) -> Fault + Send + Sync>;

impl<S> Faulty<S> {
    /// Retry delay that every injected error reports, 100 ms.
    pub const RETRY_AFTER: Duration = Duration::from_millis(100);

    /// Wraps a store or an event source, so that the fault plan `plan` can inject a fault into each call.
    #[must_use]
    pub fn new(
        inner: S,
        plan: impl Fn(Operation, Moment) -> Fault + Send + Sync + 'static,
    ) -> Self {
        Self {
            inner,
            plan: Arc::new(plan),
            name: Uuid::new_v4().to_string().into(),
        }
    }

    /// Wraps another store or event source with the fault plan of this wrapper.
    ///
    /// # Examples
    /// ```
    /// use universal_executor::store::{Fault, Faulty, Operation, StoreError};
    /// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
    /// let store = Faulty::new(MemoryStore::default(), |operation, _| match operation {
    ///     Operation::Commit => Fault::Fail,
    ///     _ => Fault::None,
    /// });
    /// let acme = store.beside(store.inner().in_tenant("acme"));
    ///
    /// let failed = acme.create(NewBreadcrumb::new("note.v1")).await;
    /// assert!(matches!(failed, Err(StoreError::Unavailable { .. })));
    /// // The inner store has no faults.
    /// store.inner().create(NewBreadcrumb::new("note.v1")).await?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// # })?;
    /// # Ok::<(), universal_executor::BoxError>(())
    /// ```
    #[must_use]
    pub fn beside<T>(&self, other: T) -> Faulty<T> {
        Faulty {
            inner: other,
            plan: Arc::clone(&self.plan),
            name: Arc::clone(&self.name),
        }
    }

    /// Returns the inner store or event source, whose calls have no injected faults.
    #[must_use]
    pub const fn inner(&self) -> &S {
        &self.inner
    }

    fn wrapped_identity(&self) -> StoreId
    where
        S: BreadcrumbStore,
    {
        let inner = self.inner.identity();
        inner.with_faults_of(&self.name)
    }

    async fn call<T, F: Future<Output = Result<T, StoreError>>>(
        &self,
        operation: Operation,
        call: impl FnOnce() -> F,
    ) -> Result<T, StoreError> {
        call_with_faults(&self.plan, operation, call).await
    }
}

wrap_store!(Faulty, NAME);

impl<S: fmt::Debug> fmt::Debug for Faulty<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(NAME)
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

const NAME: &str = "Faulty";

/// Injects the fault that a fault plan chooses for an operation, before or after the call.
async fn inject(plan: &Plan, operation: Operation, moment: Moment) -> Result<(), Injected> {
    match plan(operation, moment) {
        Fault::None => {}
        Fault::Fail => return Err(Injected { operation, moment }),
        Fault::Delay(delay) => tokio::time::sleep(delay).await,
        Fault::Hang => std::future::pending().await,
    }
    Ok(())
}

/// Performs a call of a store or source, with the decisions of a fault plan before and after it.
async fn call_with_faults<T, E: From<Injected>, F: Future<Output = Result<T, E>>>(
    plan: &Plan,
    operation: Operation,
    call: impl FnOnce() -> F,
) -> Result<T, E> {
    inject(plan, operation, Moment::Before).await?;
    let answer = call().await?;
    inject(plan, operation, Moment::After).await?;
    Ok(answer)
}

impl Moment {
    const fn name(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

impl From<Injected> for StoreError {
    fn from(fault: Injected) -> Self {
        Self::Unavailable {
            store: NAME,
            retry_after: Faulty::<()>::RETRY_AFTER,
            source: fault.into(),
        }
    }
}

impl From<Injected> for SourceError {
    fn from(fault: Injected) -> Self {
        Self::Unavailable {
            retry_after: Faulty::<()>::RETRY_AFTER,
            source: fault.into(),
        }
    }
}
