mod source;

use super::wrap::wrap_store;
use super::{BreadcrumbStore, Operation, StoreError, StoreId};
use crate::source::SourceError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// A store, or a source of events, that fails, is slow or hangs as a plan says: how does my executor behave then?
///
/// The plan is asked before each call, and again after it if it succeeded; an error of what is inside is passed on as
/// it is. It is asked on the thread of the caller, so it may as well count, block, or kill its own process.
///
/// ```
/// use serde_json::json;
/// use universal_executor::store::{Fault, Faulty, Moment, Operation, StoreError};
/// use universal_executor::{BreadcrumbStoreExt, MemoryStore, NewBreadcrumb};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// // Commits are done, and nobody hears of it.
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
/// # Stores
/// Everything else is that of the store inside: its tenant, its capabilities, and whether there is a ledger. Its identity is
/// another one, so a runtime keeps it apart from handles without these faults. A store made
/// from a handle, by `in_tenant` or as `events`, has no faults; [`beside`](Self::beside) gives it the same.
///
/// # Sources
/// No fault loses an event. [`Fault::Fail`] at [`Operation::Next`] is an error in the stream, which goes on after it:
/// the event that was due, or that was taken from the source already, comes next. The plan is asked before the stream
/// waits for an event, and again once there is one. What a source does not want to be told, because its deliveries need
/// no acknowledgement, does not fail either.
#[derive(Clone)]
pub struct Faulty<S> {
    inner: S,
    plan: Plan,
    /// Name of the plan.
    name: Arc<str>,
}

/// When a plan is asked.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Moment {
    /// Nothing was done yet.
    Before,
    /// It was done, and its answer is not out yet.
    After,
}

/// What happens at a moment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The call fails as [`StoreError::Unavailable`] or [`SourceError::Unavailable`], with [`Injected`] as its source:
    /// nothing was done if it is before, and if it is after it was done and the answer is lost.
    Fail,
    /// The call goes on after a time.
    Delay(Duration),
    /// The call never ends; its caller can only drop it.
    Hang,
}

/// The source of an error that a plan asked for.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a fault was injected {} {operation}", moment.name())]
#[non_exhaustive]
pub struct Injected {
    /// What failed.
    pub operation: Operation,
    /// When.
    pub moment: Moment,
}

type Plan = Arc<dyn Fn(Operation, Moment) -> Fault + Send + Sync>;

impl<S> Faulty<S> {
    /// What an injected error says of when to try again.
    pub const RETRY_AFTER: Duration = Duration::from_millis(100);

    /// A store or a source with faults.
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

    /// Another store or source under the same plan.
    #[must_use]
    pub fn beside<T>(&self, other: T) -> Faulty<T> {
        Faulty {
            inner: other,
            plan: Arc::clone(&self.plan),
            name: Arc::clone(&self.name),
        }
    }

    /// What is inside, without faults.
    #[must_use]
    pub const fn inner(&self) -> &S {
        &self.inner
    }

    fn data(&self) -> StoreId
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
        around(&self.plan, operation, call).await
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

/// Does what a plan says at a moment.
async fn inject(plan: &Plan, operation: Operation, moment: Moment) -> Result<(), Injected> {
    match plan(operation, moment) {
        Fault::None => {}
        Fault::Fail => return Err(Injected { operation, moment }),
        Fault::Delay(delay) => tokio::time::sleep(delay).await,
        Fault::Hang => std::future::pending().await,
    }
    Ok(())
}

/// A call with what a plan says before and after it.
async fn around<T, E: From<Injected>, F: Future<Output = Result<T, E>>>(
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
