//! Waits in memory for a breadcrumb that is announced while a run executes.

use super::ExecutionContext;
use crate::executor::ContextError;
use crate::model::{Breadcrumb, Selector};
use std::sync::Arc;
use std::time::Duration;

impl ExecutionContext {
    /// Waits for the first breadcrumb that matches a selector and is announced from now on: call it, write the request,
    /// then await it, and no answer slips between.
    ///
    /// The waiting run retains its lease and counts as a run of its executor, but lends its place among all runs to other runs. A
    /// crash ends the wait; for a long wait, such as for a person, return [`suspend`](crate::suspend) instead. The timeout starts at
    /// the call. Dropping the future ends the wait.
    ///
    /// # Errors
    /// [`ContextError::Wait`] if the time is up, too many wait or the selector cannot be evaluated;
    /// [`ContextError::Unsupported`] unless a [`Runtime`](crate::Runtime) processes the run.
    pub fn wait_for(
        &self,
        selector: Selector,
        timeout: Duration,
    ) -> impl Future<Output = Result<Arc<Breadcrumb>, ContextError>> + Send + 'static + use<> {
        let wait = match &self.run().scope {
            Some(scope) => match scope.store.waits.begin(selector, timeout) {
                Ok(wait) => Ok((wait, Arc::clone(scope))),
                Err(error) => Err(ContextError::Wait(error)),
            },
            None => Err(ContextError::Unsupported {
                operation: "wait_for",
                reason: "no runtime processes this run; return suspend(..) instead",
            }),
        };
        async move {
            let (wait, scope) = wait?;
            let lent = scope.lend_place();
            let answered = wait.answered().await;
            lent.take_back().await;
            answered.map_err(ContextError::Wait)
        }
    }
}
