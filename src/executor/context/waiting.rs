//! In-memory waits of an executing run for the event of a breadcrumb that matches a selector.

use super::ExecutionContext;
use crate::executor::ContextError;
use crate::model::{Breadcrumb, Selector};
use std::sync::Arc;
use std::time::Duration;

impl ExecutionContext {
    /// Waits for the first breadcrumb that matches a selector and of which the runtime receives an event after this call.
    ///
    /// The wait and its timeout start at the call, not at the first poll. To miss no answer, call this method, then write the
    /// request, then await the returned future.
    ///
    /// The waiting run retains its lease and counts as a run of its executor. Its place among the concurrent runs of the runtime is
    /// free for another run meanwhile. A crash ends the wait. For a long wait, such as for a person, return
    /// [`suspend`](crate::suspend) instead.
    ///
    /// # Errors
    /// [`ContextError::Wait`] after the timeout, if too many waits are open, or if the selector cannot be evaluated.
    /// [`ContextError::Unsupported`] if no [`Runtime`](crate::Runtime) processes the run.
    ///
    /// # Cancel safety
    /// Dropping the future ends the wait. A breadcrumb that is announced later is not delivered to the run.
    ///
    /// # Examples
    /// ```no_run
    /// use serde_json::json;
    /// use std::time::Duration;
    /// use universal_executor::{NewBreadcrumb, Response, Selector, Subscription, executor};
    ///
    /// let clerk = executor("clerk")
    ///     .on(Subscription::trigger("order.v1"))
    ///     .execute(|cx| async move {
    ///         let stock = Selector::schema("stock.v1").all_tags(["order:17"]);
    ///         let stock = cx.wait_for(stock, Duration::from_secs(20)).await?;
    ///         let receipt = json!({"in_stock": stock.context["count"]});
    ///         Ok(Response::create(NewBreadcrumb::new("receipt.v1").context(receipt)))
    ///     });
    /// # let _ = clerk;
    /// ```
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
            let lent_permit = scope.lend_permit();
            let answered = wait.answered().await;
            lent_permit.reacquire().await;
            answered.map_err(ContextError::Wait)
        }
    }
}
