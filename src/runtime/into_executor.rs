//! Types that a runtime accepts as executors.

use super::RuntimeError;
use crate::executor::{Executor, UniversalExecutor};
use crate::store::BreadcrumbStore;
use std::sync::Arc;

/// A type that [`RuntimeBuilder::executor`](super::RuntimeBuilder::executor) accepts: every [`UniversalExecutor`], and an [`Executor`] made
/// from a closure. The latter uses the runtime's store.
///
/// You rarely implement or call this trait. Implement [`UniversalExecutor`] for your own executor
/// types.
///
/// # Examples
/// ```
/// use universal_executor::runtime::{IntoExecutor, RuntimeError};
/// use universal_executor::{MemoryStore, Response, Runtime, Subscription, executor};
///
/// /// Runs one executor on a store in memory.
/// fn runtime(one: impl IntoExecutor) -> Result<Runtime, RuntimeError> {
///     Runtime::on(&MemoryStore::default()).executor(one).build()
/// }
/// let clerk = executor("clerk").on(Subscription::trigger("order.v1"));
/// assert!(runtime(clerk.execute(|_| async { Ok(Response::none()) })).is_ok());
/// ```
pub trait IntoExecutor {
    /// Returns the executor for a runtime, bound to `store` if it has no store. `store` is `None` in a runtime without a store.
    ///
    /// # Errors
    /// [`RuntimeError::NoStore`] if the executor needs a store and the runtime has none, or [`RuntimeError`] if the executor cannot
    /// work.
    fn into_executor(
        self,
        store: Option<&Arc<dyn BreadcrumbStore>>,
    ) -> Result<Arc<dyn UniversalExecutor>, RuntimeError>;
}

impl<E: UniversalExecutor + 'static> IntoExecutor for E {
    fn into_executor(
        self,
        _: Option<&Arc<dyn BreadcrumbStore>>,
    ) -> Result<Arc<dyn UniversalExecutor>, RuntimeError> {
        Ok(Arc::new(self))
    }
}

impl IntoExecutor for Executor {
    fn into_executor(
        self,
        store: Option<&Arc<dyn BreadcrumbStore>>,
    ) -> Result<Arc<dyn UniversalExecutor>, RuntimeError> {
        let Some(store) = store else {
            return Err(RuntimeError::NoStore {
                id: self.id().to_owned(),
            });
        };
        Ok(Arc::new(self.bind(store)?))
    }
}
