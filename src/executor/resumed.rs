use crate::model::{Breadcrumb, Json};
use std::sync::Arc;

/// Saved state of a run that resumes after an earlier attempt saved its progress or suspended the run.
///
/// [`ExecutionContext::resumed`](super::ExecutionContext::resumed) returns it. In a test, set it
/// with [`ExecutionContext::with_resumed`](super::ExecutionContext::with_resumed).
///
/// # Examples
/// ```
/// use serde_json::json;
/// use universal_executor::{ExecutionContext, NewBreadcrumb};
///
/// let order = NewBreadcrumb::new("order.v1");
/// let context = ExecutionContext::for_trigger(order).with_resumed(json!({"step": 2}), None);
///
/// let resumed = context.resumed().ok_or("nothing was saved")?;
/// assert_eq!(resumed.state["step"], 2);
/// assert_eq!(resumed.with, None);
/// # Ok::<(), universal_executor::BoxError>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Resumed {
    /// The state that the run saved last.
    pub state: Json,
    /// The breadcrumb that woke the run, or `None` if the wait timed out, the run was not suspended, or the breadcrumb is gone.
    pub with: Option<Arc<Breadcrumb>>,
}
